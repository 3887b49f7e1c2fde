"""The accelerators, links, nodes and clusters that the book uses, each figure with its source.

Conventions, everywhere: FLOP/s are dense (a peak with structured sparsity is kept only as a remark, `sparse`, and
counts for nothing); a bandwidth is one way; units are decimal (GB = 10⁹ bytes). What a data sheet says and what
somebody measured are separate fields, and a link is asked for by name: `specified_link` or `measured_link`.
A name is matched exactly, but for case: "H100" is the SXM part, "H800" never is an "H100", an unknown name is an
error. `record.source("peak")` says where a figure was read and when; `read=False` marks one that was read nowhere.
"""

from dataclasses import dataclass, fields
from typing import Any, TypeVar

from distlib.alphabeta import Link
from distlib.domain import COUNT, POSITIVE, Real, domain
from distlib.units import GB, TB, TFLOP, Gbit, W, us


@dataclass(frozen=True)
class Source:
    """Where a figure was read. `date` is that of the version read, or of the reading where it has none."""

    where: str
    date: str
    read: bool = True


ML_ENGINEERING = Source("github.com/stas00/ml-engineering 744d01e, compute/accelerator and network", "2026-08-22")
SCALING_BOOK = Source("github.com/jax-ml/scaling-book 0819a7d, tpus.md", "2025-02-18")
GTC25 = Source("NVIDIA GTC 2025, session S72583, slide 12 (in ml-engineering 744d01e, network/images)", "2025-03")
LOCKWOOD = Source("glennklockwood.com/garden/processors/A100, after NVIDIA's A100 data sheet r4", "2026-11-29")
LIGHTNING = Source("github.com/Lightning-AI/pytorch-lightning pull 21743, half of NVIDIA's data sheets", "2026-05-26")
H100_BRIEF = Source("NVIDIA H100 PCIe product brief PB-11133-001_v02", "2022-11-30")
NCCL_149 = Source("github.com/NVIDIA/nccl-tests issue 149, NVIDIA staff", "2023-07-05")
NCCL_TUNING = Source("github.com/NVIDIA/nccl 01afd20, src/graph/tuning.cc, hwLat", "2026-11-29")
DEEPEP_16 = Source("github.com/deepseek-ai/DeepEP issue 16, project staff", "2025-02-26")
PUBLISHED = Source("distlib.published, the sweep that the entry names", "2026-11-29")
PCIE = Source("hpc-notes.pages.dev/reference/pcie: 16 lanes of 8, 16, 32 GT/s, 128b/130b", "2026-11-29")
SECONDARY = Source("secondary: pages that list GPUs, the vendor's sheet was not read", "2026-11-29")
UNVERIFIED = Source("unverified: no source was read", "2026-11-29", read=False)

#: A source and the fields that it holds for, by name.
Sources = tuple[tuple[Source, str], ...]


@dataclass(frozen=True, kw_only=True)
class _Entry:
    name: str
    aliases: tuple[str, ...] = ()
    sources: Sources
    remark: str = ""

    def source(self, field: str) -> Source:
        """Where the figure in `field` comes from."""
        for source, names in self.sources:
            if field in names.split():
                return source
        raise ValueError(f"field must be a figure of {self.name} that has a source, got {field!r}")

    def figures(self) -> dict[str, float]:
        """The numbers of this record, by field."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, int | float)}


@domain(bandwidth=POSITIVE, lanes=COUNT)
@dataclass(frozen=True, kw_only=True)
class Interconnect(_Entry):
    """A kind of link. Scale-up: all that one accelerator has of it; host: one slot; scale-out: one port."""

    kind: str  # scale-up, host, scale-out
    bandwidth: float  # byte/s, one way, of the data sheet
    lanes: int  # the links (scale-up) or lanes (host, scale-out) that add up to it
    measured: float | None = None  # byte/s, one way: the best that was published; a ring's busbw unless said otherwise
    measured_as: str = ""
    in_switch: float | None = None  # byte/s: all-reduce busbw with reduction in the switch, no rate of a wire
    alpha: float | None = None  # s, start-up of one message between neighbours
    alpha_as: str = ""

    @property
    def lane_bandwidth(self) -> float:
        """Of one link or lane, in byte/s, one way."""
        return self.bandwidth / self.lanes

    def specified_link(self, alpha: Real = None) -> Link:
        """The link with the data sheet's bandwidth; α as recorded unless given."""
        return Link(self._alpha(alpha), self.bandwidth)

    def measured_link(self, alpha: Real = None) -> Link:
        """The link with the measured bandwidth; α as recorded unless given. Raises where none was measured."""
        if self.measured is None:
            raise ValueError(f"{self.name} has no measured bandwidth here; specified_link has the data sheet's")
        return Link(self._alpha(alpha), self.measured)

    def _alpha(self, alpha: Real) -> Real:
        if alpha is None and self.alpha is None:
            raise ValueError(f"alpha must be given: no source states one for {self.name}")
        return self.alpha if alpha is None else alpha


@domain(peak=POSITIVE, memory=POSITIVE, memory_bandwidth=POSITIVE)
@dataclass(frozen=True, kw_only=True)
class Accelerator(_Entry):
    """One device: a GPU, a Blackwell GPU of a GB200, a TPU chip."""

    year: int  # announced
    peak: float  # FLOP/s, dense, 16-bit matrix product with 32-bit sums
    number_format: str = "bf16"  # of `peak`
    peak_fp8: float | None = None  # FLOP/s, dense
    sparse: float | None = None  # FLOP/s, the 16-bit peak with 2:4 sparsity that many sheets print; a remark
    memory: float  # byte, as marketed
    memory_bandwidth: float  # byte/s
    power: float | None = None  # W
    scale_up: Interconnect
    matmul: float | None = None  # FLOP/s, measured: the best 16-bit matrix product found over many shapes
    matmul_fp8: float | None = None  # FLOP/s, measured likewise
    peer_copy: float | None = None  # byte/s, one way, measured: copy from one accelerator to another


def ridge_point(accelerator: Accelerator) -> float:
    """peak / memory_bandwidth, in FLOP/byte: the intensity above which arithmetic, not memory, is the limit."""
    return accelerator.peak / accelerator.memory_bandwidth


@domain(accelerators=COUNT, nics=COUNT)
@dataclass(frozen=True, kw_only=True)
class Node(_Entry):
    """What shares one scale-up domain: `accelerators` of a kind, and the network ports out of it."""

    accelerator: Accelerator
    accelerators: int
    host: Interconnect
    nic: Interconnect
    nics: int

    def specified_link(self, alpha: Real = None) -> Link:
        """One accelerator's way to the others of its node, bandwidth of the data sheet."""
        return self.accelerator.scale_up.specified_link(alpha)

    def measured_link(self, alpha: Real = None) -> Link:
        """One accelerator's way to the others of its node, bandwidth as measured."""
        return self.accelerator.scale_up.measured_link(alpha)


@domain(nodes=COUNT, rails=COUNT)
@dataclass(frozen=True, kw_only=True)
class Cluster:
    """`nodes` nodes joined by `rails` ports each of a fabric without oversubscription."""

    node: Node
    nodes: int
    rails: int
    fabric: Interconnect

    @property
    def ranks(self) -> int:
        """N: accelerators in all."""
        return self.nodes * self.node.accelerators

    @property
    def node_bandwidth(self) -> float:
        """Out of one node, in byte/s, one way, of the data sheet."""
        return self.rails * self.fabric.bandwidth

    @property
    def rank_bandwidth(self) -> float:
        """One accelerator's share of its node's ports, in byte/s, one way, of the data sheet."""
        return self.node_bandwidth / self.node.accelerators

    def specified_link(self, alpha: Real = None) -> Link:
        """One accelerator's share of the fabric, bandwidth of the data sheet."""
        return self._share(self.fabric.specified_link(alpha))

    def measured_link(self, alpha: Real = None) -> Link:
        """One accelerator's share of the fabric, bandwidth as measured on one port."""
        return self._share(self.fabric.measured_link(alpha))

    def _share(self, port: Link) -> Link:
        return Link(port.alpha, port.beta * self.rails / self.node.accelerators)


HOP = "one hop of a ring in NCCL's cost model, LL protocol"

INTERCONNECTS = (
    Interconnect(name="NVLink 2", kind="scale-up", bandwidth=6 * 25 * GB, lanes=6, alpha=0.47 * us, alpha_as=HOP,
                 sources=((ML_ENGINEERING, "bandwidth lanes"), (NCCL_TUNING, "alpha"))),
    Interconnect(name="NVLink 3", kind="scale-up", bandwidth=12 * 25 * GB, lanes=12,
                 measured=230 * GB, measured_as="all-reduce busbw, 8 A100, messages of 8 GB",
                 alpha=0.47 * us, alpha_as=HOP,
                 sources=((ML_ENGINEERING, "bandwidth lanes"), (NCCL_149, "measured"), (NCCL_TUNING, "alpha"))),
    Interconnect(name="NVLink 4", kind="scale-up", bandwidth=18 * 25 * GB, lanes=18,
                 measured=370 * GB, measured_as="all-reduce busbw, 8 H100, ring", in_switch=480 * GB,
                 alpha=0.47 * us, alpha_as=HOP,
                 sources=((ML_ENGINEERING, "bandwidth lanes"), (GTC25, "measured in_switch"), (NCCL_TUNING, "alpha"))),
    Interconnect(name="NVLink 4 (H800)", kind="scale-up", bandwidth=200 * GB, lanes=8,
                 measured=160 * GB, measured_as="DeepEP, 8 H800", alpha=0.47 * us, alpha_as=HOP,
                 sources=((DEEPEP_16, "bandwidth measured"), (SECONDARY, "lanes"), (NCCL_TUNING, "alpha"))),
    Interconnect(name="NVLink 5", kind="scale-up", bandwidth=18 * 50 * GB, lanes=18,
                 measured=700 * GB, measured_as="all-reduce busbw, 8 B200, ring", in_switch=850 * GB,
                 alpha=0.47 * us, alpha_as=HOP,
                 sources=((ML_ENGINEERING, "bandwidth lanes"), (GTC25, "measured in_switch"), (NCCL_TUNING, "alpha"))),
    Interconnect(name="Infinity Fabric (MI300X)", kind="scale-up", bandwidth=7 * 64 * GB, lanes=7,
                 measured=312.912 * GB, measured_as="all-reduce busbw, 8 MI300X, 4 GiB",
                 remark="a pair of GPUs has one of the seven links",
                 sources=((ML_ENGINEERING, "bandwidth lanes measured"),)),
    Interconnect(name="ICI v5e", kind="scale-up", bandwidth=4 * 45 * GB, lanes=4, alpha=1 * us,
                 alpha_as="one hop of the torus, as the source supposes",
                 remark="2D torus: a neighbour is reached by one link",
                 sources=((SCALING_BOOK, "bandwidth lanes alpha"),)),
    Interconnect(name="ICI v5p", kind="scale-up", bandwidth=6 * 90 * GB, lanes=6,
                 remark="3D torus: a neighbour is reached by one link", sources=((SCALING_BOOK, "bandwidth lanes"),)),
    Interconnect(name="PCIe 3.0 x16", kind="host", bandwidth=16 * 8 * Gbit * 128 / 130, lanes=16,
                 alpha=1.0 * us, alpha_as=HOP, sources=((PCIE, "bandwidth lanes"), (NCCL_TUNING, "alpha"))),
    Interconnect(name="PCIe 4.0 x16", kind="host", bandwidth=16 * 16 * Gbit * 128 / 130, lanes=16,
                 measured=21.73 * GB, measured_as="a100pcie_p2p_sendrecv: between GPUs of a host, through the CPU",
                 alpha=1.0 * us, alpha_as=HOP,
                 sources=((PCIE, "bandwidth lanes"), (PUBLISHED, "measured"), (NCCL_TUNING, "alpha"))),
    Interconnect(name="PCIe 5.0 x16", kind="host", bandwidth=16 * 32 * Gbit * 128 / 130, lanes=16,
                 measured=55.43 * GB, measured_as="copy from host to H200", alpha=1.0 * us, alpha_as=HOP,
                 sources=((PCIE, "bandwidth lanes"), (ML_ENGINEERING, "measured"), (NCCL_TUNING, "alpha"))),
    Interconnect(name="InfiniBand EDR", aliases=("EDR",), kind="scale-out", bandwidth=4 * 25 * Gbit, lanes=4,
                 alpha=2.7 * us, alpha_as=HOP, sources=((ML_ENGINEERING, "bandwidth lanes"), (NCCL_TUNING, "alpha"))),
    Interconnect(name="InfiniBand HDR", aliases=("HDR",), kind="scale-out", bandwidth=4 * 50 * Gbit, lanes=4,
                 measured=192 * GB / 8, measured_as="all-reduce busbw over 8 ports a node, 4 DGX A100",
                 alpha=2.7 * us, alpha_as=HOP,
                 sources=((ML_ENGINEERING, "bandwidth lanes"), (GTC25, "measured"), (NCCL_TUNING, "alpha"))),
    Interconnect(name="InfiniBand NDR", aliases=("NDR",), kind="scale-out", bandwidth=4 * 100 * Gbit, lanes=4,
                 measured=392.69 * GB / 8, measured_as="i309b_h100_2n_ring: forced ring over 8 ports a node",
                 alpha=2.7 * us, alpha_as=HOP,
                 sources=((ML_ENGINEERING, "bandwidth lanes"), (PUBLISHED, "measured"), (NCCL_TUNING, "alpha"))),
    Interconnect(name="InfiniBand XDR", aliases=("XDR",), kind="scale-out", bandwidth=4 * 200 * Gbit, lanes=4,
                 alpha=2.7 * us, alpha_as=HOP, sources=((ML_ENGINEERING, "bandwidth lanes"), (NCCL_TUNING, "alpha"))),
    Interconnect(name="RoCE 100G", kind="scale-out", bandwidth=100 * Gbit, lanes=1, alpha=2.7 * us, alpha_as=HOP,
                 sources=((ML_ENGINEERING, "bandwidth lanes"), (NCCL_TUNING, "alpha"))),
    Interconnect(name="RoCE 200G", kind="scale-out", bandwidth=200 * Gbit, lanes=1, alpha=2.7 * us, alpha_as=HOP,
                 sources=((ML_ENGINEERING, "bandwidth lanes"), (NCCL_TUNING, "alpha"))),
    Interconnect(name="RoCE 400G", kind="scale-out", bandwidth=400 * Gbit, lanes=1, alpha=2.7 * us, alpha_as=HOP,
                 sources=((ML_ENGINEERING, "bandwidth lanes"), (NCCL_TUNING, "alpha"))),
    Interconnect(name="EFA v1", kind="scale-out", bandwidth=100 * Gbit, lanes=1,
                 measured=340 * Gbit / 4, measured_as="all-reduce over 4 ports a node, p4d",
                 sources=((ML_ENGINEERING, "bandwidth lanes measured"),)),
    Interconnect(name="EFA v2", kind="scale-out", bandwidth=100 * Gbit, lanes=1,
                 sources=((ML_ENGINEERING, "bandwidth lanes"),)),
    Interconnect(name="EFA v3", kind="scale-out", bandwidth=200 * Gbit, lanes=1,
                 sources=((ML_ENGINEERING, "bandwidth lanes"),)),
    Interconnect(name="EFA v4", kind="scale-out", bandwidth=400 * Gbit, lanes=1,
                 measured=753.6 * GB / 16, measured_as="aws_p6b300_2n_all_gather: over 16 ports a node",
                 sources=((ML_ENGINEERING, "bandwidth lanes"), (PUBLISHED, "measured"))),
    Interconnect(name="Slingshot-11", kind="scale-out", bandwidth=200 * Gbit, lanes=1,
                 measured=35.9 * GB / 2, measured_as="polaris_8_all_gather: over 2 ports a node",
                 sources=((ML_ENGINEERING, "bandwidth lanes"), (PUBLISHED, "measured"))),
)  # fmt: skip

Entry = TypeVar("Entry", bound=_Entry)


def _find(what: str, entries: tuple[Entry, ...], name: Any) -> Entry:
    """The entry of that name or alias, whatever the case; ValueError lists the known names."""
    for entry in entries:
        if str(name).casefold() in (known.casefold() for known in (entry.name, *entry.aliases)):
            return entry
    raise ValueError(f"{what} must be one of {', '.join(entry.name for entry in entries)}, got {name!r}")


def interconnect(name: str) -> Interconnect:
    """The link of that name: `interconnect("NDR")`."""
    return _find("interconnect", INTERCONNECTS, name)


NVLINK4, NVLINK5, PCIE5 = interconnect("NVLink 4"), interconnect("NVLink 5"), interconnect("PCIe 5.0 x16")
DEVICE = "peak peak_fp8 memory memory_bandwidth power matmul matmul_fp8 peer_copy"

ACCELERATORS = (
    Accelerator(name="V100", aliases=("V100 SXM2",), year=2017, peak=125 * TFLOP, number_format="fp16",
                memory=32 * GB, memory_bandwidth=0.9 * TB, power=300 * W, scale_up=interconnect("NVLink 2"),
                remark="no bf16; a 16 GB variant exists",
                sources=((SECONDARY, "year peak memory memory_bandwidth power"),)),
    Accelerator(name="A100 40GB", aliases=("A100 SXM 40GB",), year=2020, peak=312 * TFLOP, sparse=624 * TFLOP,
                memory=40 * GB, memory_bandwidth=1.555 * TB, power=400 * W, scale_up=interconnect("NVLink 3"),
                matmul=271.2 * TFLOP, peer_copy=274 * GB,
                sources=((LOCKWOOD, "peak sparse memory memory_bandwidth power"), (SECONDARY, "year"),
                         (ML_ENGINEERING, "matmul peer_copy"))),
    Accelerator(name="A100 80GB", aliases=("A100 SXM 80GB",), year=2020, peak=312 * TFLOP, sparse=624 * TFLOP,
                memory=80 * GB, memory_bandwidth=2.039 * TB, power=400 * W, scale_up=interconnect("NVLink 3"),
                matmul=271.2 * TFLOP, peer_copy=274 * GB,
                sources=((LOCKWOOD, "peak sparse memory memory_bandwidth power"), (SECONDARY, "year"),
                         (ML_ENGINEERING, "matmul peer_copy"))),
    Accelerator(name="H100 SXM", aliases=("H100",), year=2022, peak=1979 / 2 * TFLOP, sparse=1979 * TFLOP,
                peak_fp8=1979 * TFLOP, memory=80 * GB, memory_bandwidth=3.35 * TB, power=700 * W, scale_up=NVLINK4,
                matmul=794.5 * TFLOP, matmul_fp8=1402.6 * TFLOP, peer_copy=376 * GB,
                sources=((LIGHTNING, "peak sparse peak_fp8"), (SECONDARY, "year"), (ML_ENGINEERING, DEVICE))),
    Accelerator(name="H100 PCIe", year=2022, peak=1513 / 2 * TFLOP, sparse=1513 * TFLOP, peak_fp8=1513 * TFLOP,
                memory=80 * GB, memory_bandwidth=2.0 * TB, power=350 * W, scale_up=PCIE5,
                remark="an NVLink bridge can join two cards",
                sources=((H100_BRIEF, "power"), (SECONDARY, "year"), (ML_ENGINEERING, DEVICE + " sparse"))),
    Accelerator(name="H100 NVL", year=2023, peak=1671 / 2 * TFLOP, sparse=1671 * TFLOP, peak_fp8=1670.5 * TFLOP,
                memory=94 * GB, memory_bandwidth=3.93 * TB, power=400 * W, scale_up=PCIE5,
                remark="per card; an NVLink bridge joins two cards",
                sources=((LIGHTNING, "peak sparse peak_fp8"), (SECONDARY, "year memory memory_bandwidth"),
                         (ML_ENGINEERING, "power"))),
    Accelerator(name="H200", aliases=("H200 SXM",), year=2023, peak=1979 / 2 * TFLOP, sparse=1979 * TFLOP,
                peak_fp8=1979 * TFLOP, memory=141 * GB, memory_bandwidth=4.8 * TB, power=700 * W, scale_up=NVLINK4,
                matmul=794.5 * TFLOP, matmul_fp8=1453.4 * TFLOP, peer_copy=396.4 * GB,
                sources=((LIGHTNING, "peak sparse peak_fp8"), (SECONDARY, "year"), (ML_ENGINEERING, DEVICE))),
    Accelerator(name="H800", aliases=("H800 SXM",), year=2023, peak=1979 / 2 * TFLOP, sparse=1979 * TFLOP,
                peak_fp8=1979 * TFLOP, memory=80 * GB, memory_bandwidth=3.35 * TB, power=700 * W,
                scale_up=interconnect("NVLink 4 (H800)"), remark="as H100 SXM but for NVLink",
                sources=((UNVERIFIED, DEVICE + " sparse year"),)),
    Accelerator(name="H20", year=2023, peak=148 * TFLOP, memory=96 * GB, memory_bandwidth=4.0 * TB, power=400 * W,
                scale_up=NVLINK4, remark="NVLink as H100's by DeepEP issue 16",
                sources=((SECONDARY, "peak memory memory_bandwidth power"), (UNVERIFIED, "year"))),
    Accelerator(name="B200", aliases=("B200 SXM",), year=2024, peak=2250 * TFLOP, sparse=4500 * TFLOP,
                peak_fp8=4500 * TFLOP, memory=180 * GB, memory_bandwidth=8.0 * TB, power=1000 * W, scale_up=NVLINK5,
                matmul=1745 * TFLOP, matmul_fp8=3432.5 * TFLOP,
                sources=((ML_ENGINEERING, DEVICE), (UNVERIFIED, "year sparse"))),
    Accelerator(name="GB200", year=2024, peak=2500 * TFLOP, sparse=5000 * TFLOP, peak_fp8=5000 * TFLOP,
                memory=186 * GB, memory_bandwidth=8.0 * TB, power=1200 * W, scale_up=NVLINK5,
                matmul=1822 * TFLOP, matmul_fp8=3615.6 * TFLOP, peer_copy=746 * GB,
                remark="per Blackwell GPU, two to a superchip; other NVIDIA pages print 2450 TFLOP/s",
                sources=((ML_ENGINEERING, DEVICE), (UNVERIFIED, "year sparse"))),
    Accelerator(name="MI300X", year=2023, peak=1307 * TFLOP, peak_fp8=2610 * TFLOP, memory=192 * GB,
                memory_bandwidth=5.3 * TB, power=750 * W, scale_up=interconnect("Infinity Fabric (MI300X)"),
                matmul=668.4 * TFLOP, sources=((ML_ENGINEERING, DEVICE), (UNVERIFIED, "year"))),
    Accelerator(name="TPU v5e", year=2023, peak=197 * TFLOP, memory=16 * GB, memory_bandwidth=0.81 * TB,
                scale_up=interconnect("ICI v5e"),
                sources=((SCALING_BOOK, "peak memory memory_bandwidth"), (UNVERIFIED, "year"))),
    Accelerator(name="TPU v5p", year=2023, peak=459 * TFLOP, memory=95 * GB, memory_bandwidth=2.76 * TB,
                scale_up=interconnect("ICI v5p"), remark="scaling-book prints 96 GB and 2.8 TB/s",
                sources=((ML_ENGINEERING, "peak memory memory_bandwidth"), (UNVERIFIED, "year"))),
)  # fmt: skip


def accelerator(name: str) -> Accelerator:
    """The accelerator of that name: `accelerator("H100")` is the SXM part."""
    return _find("accelerator", ACCELERATORS, name)


NODES = (
    Node(name="DGX A100", accelerator=accelerator("A100 80GB"), accelerators=8, host=interconnect("PCIe 4.0 x16"),
         nic=interconnect("HDR"), nics=8, remark="sweep sophia_16_all_reduce; an earlier one has A100 40GB",
         sources=((GTC25, "nics"), (PUBLISHED, "accelerators"))),
    Node(name="DGX H100", accelerator=accelerator("H100"), accelerators=8, host=PCIE5, nic=interconnect("NDR"), nics=8,
         sources=((ML_ENGINEERING, "accelerators nics"),)),
    Node(name="GB200 NVL72", accelerator=accelerator("GB200"), accelerators=72, host=PCIE5, nic=interconnect("NDR"),
         nics=72, remark="a rack: trays of 4 GPUs and 4 ports, one NVLink domain",
         sources=((ML_ENGINEERING, "accelerators nics"),)),
    Node(name="p5.48xlarge", accelerator=accelerator("H100"), accelerators=8, host=PCIE5, nic=interconnect("EFA v2"),
         nics=32, remark="sweep aws_p5_2n", sources=((ML_ENGINEERING, "nics"), (PUBLISHED, "accelerators"))),
    Node(name="p4de.24xlarge", accelerator=accelerator("A100 80GB"), accelerators=8, host=interconnect("PCIe 4.0 x16"),
         nic=interconnect("EFA v1"), nics=4, remark="sweep aws_p4de_2n", sources=((PUBLISHED, "accelerators nics"),)),
)  # fmt: skip


def node(name: str) -> Node:
    """The node of that name: `node("DGX H100")`."""
    return _find("node", NODES, name)
