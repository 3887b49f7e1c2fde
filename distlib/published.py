"""Published measurements as records: each has its machine, its source and what is odd about it.

`distlib/data/collectives_sweeps.csv` has one row a sweep, `collectives_times.csv` one row a message size. The sizes
follow nccl-tests: the full array of an all-reduce, all-gather or reduce-scatter, a rank's buffer of an all-to-all,
the message of a broadcast, reduce or sendrecv. Times are of out-of-place calls (input and output buffers differ),
in every row; where the in-place time is printed too, it stands beside. A time that its source does not print is
computed from the printed bandwidth, and the sweep says `derived`.
"""

import csv
import difflib
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any

import numpy as np

from distlib.cluster import Marginals
from distlib.parallel import Layout
from distlib.scaling import LossSurface
from distlib.transformer import FULL, Transformer
from distlib.units import GB, TB, TFLOP, GiB, day, hour, ms, us


@dataclass(frozen=True, eq=False)
class Sweep:
    """One operation timed over message sizes. Arrays are read-only; nan where the source prints nothing."""

    id: str
    operation: str  # all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, sendrecv
    accelerator: str
    nodes: int
    gpus_per_node: int
    ranks: int
    fabric: str
    algorithm: str  # as the source states it; empty where it does not
    library: str
    repository: str
    path: str
    commit: str
    licence: str  # as the source states it; empty where it does not
    retrieved: str
    anomaly: str  # empty, or what sets the sweep apart from its like
    note: str
    derived: bool  # the time is computed from a printed bandwidth
    n: np.ndarray  # byte, increasing
    time: np.ndarray  # s, out-of-place
    time_in_place: np.ndarray  # s
    algbw: np.ndarray  # byte/s, as printed
    busbw: np.ndarray  # byte/s, as printed


def _rows(name: str) -> list[dict[str, str]]:
    text = (files("distlib") / "data" / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _column(rows: list[dict[str, str]], name: str, unit: float = 1.0) -> np.ndarray:
    values = np.array([float(row[name] or "nan") * unit for row in rows])
    values.flags.writeable = False
    return values


@cache
def _all() -> dict[str, Sweep]:
    times = {key: list(rows) for key, rows in groupby(_rows("collectives_times.csv"), lambda row: row["sweep"])}
    found = {}
    for row in _rows("collectives_sweeps.csv"):
        rows = times[row["id"]]
        counts = {name: int(row[name]) for name in ("nodes", "gpus_per_node", "ranks")}
        found[row["id"]] = Sweep(
            **{**row, **counts},  # type: ignore[arg-type]
            derived=any(r["derived"] for r in rows),
            n=_column(rows, "n_bytes"),
            time=_column(rows, "time_us", us),
            time_in_place=_column(rows, "time_in_place_us", us),
            algbw=_column(rows, "algbw_GBps", GB),
            busbw=_column(rows, "busbw_GBps", GB),
        )
    return found


def sweep(id: str) -> Sweep:
    """The sweep of that name. An unknown name raises ValueError that lists the near ones."""
    if id not in _all():
        near = difflib.get_close_matches(str(id), _all(), n=5, cutoff=0.3)
        raise ValueError(f"id must be a published sweep, got {id!r}; near it: {', '.join(near) or 'none'}")
    return _all()[id]


def sweeps(min_sizes: int = 1, **fields: Any) -> tuple[Sweep, ...]:
    """Every sweep of `min_sizes` message sizes or more whose fields equal those given.

    `sweeps(operation="all_reduce", nodes=1, min_sizes=10)`. An unknown field raises ValueError.
    """
    unknown = sorted(set(fields) - set(Sweep.__dataclass_fields__))
    if unknown:
        raise ValueError(f"a sweep has no field {', '.join(unknown)}; it has {', '.join(Sweep.__dataclass_fields__)}")
    return tuple(
        s for s in _all().values() if s.n.size >= min_sizes and all(getattr(s, k) == v for k, v in fields.items())
    )


# Reliability: `distlib/data/reliability.csv` has one row a fact, `llama3_interruptions.csv` one row a cause.

_SI = {
    "count": 1.0, "percent": 0.01, "s": 1.0, "hour": hour, "day": day, "GB": GB, "TB": TB, "TB/s": TB,
    "per 1000 node-days": 1 / (1000 * day), "ppl": 1.0, "nats/token": 1.0,
}  # fmt: skip


@dataclass(frozen=True)
class Reported:
    """One published fact of a training run's reliability, in SI: s, byte, byte/s, 1/s; a percentage is a share."""

    study: str
    quantity: str
    value: float
    gpus: int | None
    accelerator: str
    kind: str  # measured, specified, estimated, projected, or bound (at least or at most, see the note)
    source: str
    note: str


@dataclass(frozen=True)
class Interruption:
    """One cause of the unexpected interruptions of Llama 3: how many, and the share that the paper prints."""

    component: str
    category: str
    count: int
    printed_share: float
    source: str


@cache
def reliability() -> tuple[Reported, ...]:
    """Every published fact of reliability that the book uses."""
    return tuple(
        Reported(
            study=row["study"], quantity=row["quantity"], value=float(row["value"]) * _SI[row["unit"]],
            gpus=int(row["gpus"]) if row["gpus"] else None, accelerator=row["accelerator"], kind=row["kind"],
            source=row["source"], note=row["note"],
        )
        for row in _rows("reliability.csv")
    )  # fmt: skip


def reported(study: str, quantity: str) -> float:
    """The value, in SI, of one published fact: `reported("bloom", "write")`. An unknown one raises ValueError."""
    found = {(fact.study, fact.quantity): fact.value for fact in reliability()}
    if (study, quantity) not in found:
        known = ", ".join(f"{s} {q}" for s, q in sorted(found))
        raise ValueError(f"study and quantity must be one of {known}; got {study!r}, {quantity!r}")
    return found[study, quantity]


@cache
def llama3_interruptions() -> tuple[Interruption, ...]:
    """The causes of Llama 3's 419 unexpected interruptions in 54 days, most frequent first."""
    return tuple(
        Interruption(row["component"], row["category"], int(row["count"]), float(row["printed_percent"]) / 100,
                     row["source"])
        for row in _rows("llama3_interruptions.csv")
    )  # fmt: skip


# Scaling studies: runs of many sizes, and surfaces fitted to them (Principle 9)


@dataclass(frozen=True, eq=False)
class ScalingStudy:
    """The runs of one study of scaling. Arrays are read-only, a run (or a point of a loss curve) an element."""

    id: str
    models: str
    data: str
    paper: str
    repository: str
    path: str
    commit: str
    licence: str  # as the source states it; empty where it does not
    retrieved: str
    evaluation: str  # what the loss is measured on, or its unit where the source leaves it open
    note: str
    parameters: np.ndarray
    tokens: np.ndarray
    compute: np.ndarray  # FLOP, by the study's own count
    loss: np.ndarray  # nats/token unless `evaluation` says otherwise
    flag: np.ndarray  # empty, or why the source sets the run apart

    @property
    def runs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(P, D, 𝓛), as a fit takes them."""
        return self.parameters, self.tokens, self.loss

    def where(self, chosen: np.ndarray) -> "ScalingStudy":
        """The study with the chosen runs only."""
        names = ("parameters", "tokens", "compute", "loss", "flag")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    def split(self, compute: float) -> "tuple[ScalingStudy, ScalingStudy]":
        """The runs of at most `compute` FLOP, and those above."""
        return self.where(self.compute <= compute), self.where(self.compute > compute)


@cache
def _studies() -> dict[str, ScalingStudy]:
    runs = {key: list(rows) for key, rows in groupby(_rows("scaling_runs.csv"), lambda row: row["study"])}
    found = {}
    for row in _rows("scaling_studies.csv"):
        rows = runs[row["id"]]
        found[row["id"]] = ScalingStudy(
            **row,
            parameters=_column(rows, "parameters"),
            tokens=_column(rows, "tokens"),
            compute=_column(rows, "compute_flop"),
            loss=_column(rows, "loss"),
            flag=np.array([r["flag"] for r in rows]),
        )
    return found


def scaling_study(id: str) -> ScalingStudy:
    """The study of that name. An unknown name raises ValueError that lists the known ones."""
    if id not in _studies():
        raise ValueError(f"id must be one of {', '.join(_studies())}, got {id!r}")
    return _studies()[id]


def scaling_studies() -> tuple[ScalingStudy, ...]:
    """Every study of scaling."""
    return tuple(_studies().values())


def fitted_surface(id: str) -> LossSurface:
    """A published fit of the loss surface; distlib/data/scaling_fits.csv has the sources."""
    fits = {row["id"]: row for row in _rows("scaling_fits.csv")}
    if id not in fits:
        raise ValueError(f"id must be one of {', '.join(fits)}, got {id!r}")
    return LossSurface(**{name: float(fits[id][name]) for name in ("E", "A", "B", "a", "b")})


@dataclass(frozen=True)
class TrainingCost:
    """What a published model took to train, by its makers' account."""

    model: str
    parameters: float
    tokens: float
    accelerator: str
    hours: float  # accelerator-hours, all stages of the training
    source: str
    note: str


def training_costs() -> tuple[TrainingCost, ...]:
    """Models whose accelerator-hours, parameters and tokens are published."""
    numbers = ("parameters", "tokens", "hours")
    rows = _rows("training_costs.csv")
    return tuple(TrainingCost(**{**row, **{name: float(row[name]) for name in numbers}}) for row in rows)  # type: ignore[arg-type]


# Trainings that send less, or wait less (Principle 13)


@dataclass(frozen=True)
class Reduction:
    """One result of a training that communicates less or does not wait, in SI; a percentage is a share."""

    method: str
    model: str
    parameters: float
    tokens: float | None
    workers: int | None
    local_steps: int | None  # H
    quantity: str
    value: float
    kind: str  # measured, simulated (a model of the network), computed
    source: str
    note: str


@cache
def communication_reductions() -> tuple[Reduction, ...]:
    """Every published result on local steps and staleness that the book uses."""
    return tuple(
        Reduction(
            method=row["method"], model=row["model"], parameters=float(row["parameters_million"]) * 1e6,
            tokens=float(row["tokens_billion"]) * 1e9 if row["tokens_billion"] else None,
            workers=int(row["workers"]) if row["workers"] else None,
            local_steps=int(row["local_steps"]) if row["local_steps"] else None, quantity=row["quantity"],
            value=float(row["value"]) * _SI[row["unit"]], kind=row["kind"], source=row["source"], note=row["note"],
        )
        for row in _rows("comm_reduction.csv")
    )  # fmt: skip


def communication_reduction(method: str, quantity: str, tokens: float | None = None) -> float:
    """The value, in SI, of one such result: `communication_reduction("data parallel", "eval_loss", 25e9)`."""
    found = {(r.method, r.quantity, r.tokens): r.value for r in communication_reductions()}
    if (method, quantity, tokens) not in found:
        known = ", ".join(sorted(f"{m} {q}" + (f" {t:g}" if t else "") for m, q, t in found))
        raise ValueError(
            f"method, quantity and tokens must be one of {known}; got {method!r}, {quantity!r}, {tokens!r}"
        )
    return found[method, quantity, tokens]


# Strong scaling: one batch on more and more accelerators (Principle 10)


@dataclass(frozen=True, eq=False)
class StrongScaling:
    """Published step times of one system at one global batch, by the number of accelerators."""

    system: str
    model: str
    accelerator: str
    batch: int  # sequences, of all ranks
    tp: int
    pp: int
    virtual: int
    source: str
    note: str
    ranks: np.ndarray
    time: np.ndarray  # s, a step


@cache
def _strong_scalings() -> tuple[StrongScaling, ...]:
    found = []
    for (system, batch), group in groupby(_rows("strong_scaling.csv"), lambda row: (row["system"], row["batch"])):
        rows = list(group)
        first = rows[0]
        found.append(
            StrongScaling(
                system=system, batch=int(batch), model=first["model"], accelerator=first["accelerator"],
                tp=int(first["tp"]), pp=int(first["pp"]), virtual=int(first["virtual"]), source=first["source"],
                note=first["note"], ranks=_column(rows, "gpus"), time=_column(rows, "step_s"),
            )
        )  # fmt: skip
    return tuple(found)


def strong_scaling(system: str, batch: int) -> StrongScaling:
    """The step times of that system at that batch: `strong_scaling("MegaScale", 768)`."""
    found = {(s.system, s.batch): s for s in _strong_scalings()}
    if (system, batch) not in found:
        known = ", ".join(f"{s} {b}" for s, b in found)
        raise ValueError(f"system and batch must be one of {known}; got {system!r}, {batch!r}")
    return found[system, batch]


# Data and context parallelism: published throughput


@dataclass(frozen=True)
class ShardedRun:
    """A model trained with all of its states sharded (ZeRO-3), no other parallelism, bf16."""

    model: str
    parameters: int
    layers: int
    accelerator: str
    seq: int
    gpus: int
    micro_batch: int  # sequences of one rank
    accumulation: int
    rate: float  # tokens/s, of one GPU
    source: str

    @property
    def time(self) -> float:
        """Of one micro-batch, in s: its tokens over the rate."""
        return self.micro_batch * self.seq / self.rate


def sharded_runs() -> tuple[ShardedRun, ...]:
    """One node of eight GPUs, then more, model after model."""
    names = ("parameters", "layers", "seq", "gpus", "micro_batch", "accumulation")
    return tuple(
        ShardedRun(
            model=row["model"], accelerator=row["accelerator"], rate=float(row["tokens_per_s_gpu"]),
            source=row["source"], **{name: int(row[name]) for name in names},
        )
        for row in _rows("fsdp_runs.csv")
    )  # fmt: skip


@dataclass(frozen=True)
class ContextRun:
    """Training on long sequences, FP8; the layout is that of the run with context parallelism."""

    model: str
    accelerator: str
    seq: int
    gpus: int
    batch: int  # sequences, of all ranks
    tp: int
    pp: int
    dp: int
    cp: int
    rate: float  # model FLOP/s of one GPU
    rate_without_cp: float | None  # the best found with cp = 1, layout unstated; None: nothing fits
    anomaly: str  # empty, or what does not add up
    source: str


def context_runs() -> tuple[ContextRun, ...]:
    """Every published run; those of the B200 print sizes whose product is not the number of GPUs, and say so."""
    names = ("seq", "gpus", "batch", "tp", "pp", "dp", "cp")
    return tuple(
        ContextRun(
            model=row["model"], accelerator=row["accelerator"], rate=float(row["tflops"]) * TFLOP,
            rate_without_cp=float(row["tflops_without_cp"]) * TFLOP if row["tflops_without_cp"] else None,
            anomaly=row["anomaly"], source=row["source"], **{name: int(row[name]) for name in names},
        )
        for row in _rows("context_parallel.csv")
    )  # fmt: skip



# Step times with their layouts: `distlib/data/step_times.csv` has one row a run, `step_times_peers.csv` one a guess


@dataclass(frozen=True, eq=False)
class StepTimes:
    """Published step times of whole trainings: arrays over the rows, also in the fields of `model` and `layout`."""

    id: np.ndarray
    table: np.ndarray
    family: np.ndarray  # models that are much alike: what a fit leaves out together
    accelerator: np.ndarray
    model: Transformer
    layout: Layout
    seq: np.ndarray
    gradient: np.ndarray  # bytes of a gradient that is reduced: 2 in fp16 (2021), 4 where sums are kept in 32 bits
    time: np.ndarray  # s
    step_from: np.ndarray  # as printed, or from which printed rate
    assumed: np.ndarray  # fields of the layout that the source does not state; empty where it states all
    source: np.ndarray

    def __len__(self) -> int:
        return len(self.id)

    def where(self, rows: np.ndarray) -> "StepTimes":
        """The chosen rows, by mask or index."""

        def pick(record: Any) -> Any:
            arrays = {k: v[rows] for k, v in vars(record).items() if isinstance(v, np.ndarray)}
            return replace(record, **arrays)

        return replace(pick(self), model=pick(self.model), layout=pick(self.layout))

    def of(self, *tables: str) -> "StepTimes":
        """The rows of those tables; ValueError lists them all where one is unknown."""
        known = dict.fromkeys(self.table)
        if unknown := [name for name in tables if name not in known]:
            raise ValueError(f"table must be one of {', '.join(known)}; got {', '.join(unknown)}")
        return self.where(np.isin(self.table, tables))


@cache
def step_times() -> StepTimes:
    """Every row."""
    rows = _rows("step_times.csv")

    def record(kind: Any) -> Any:
        names = [field.name for field in fields(kind) if field.name in rows[0]]
        return kind(**{name: _column(rows, name) for name in names})

    texts = ("id", "table", "family", "accelerator", "step_from", "assumed", "source")
    return StepTimes(
        model=record(Transformer), layout=record(Layout), seq=_column(rows, "seq"),
        gradient=_column(rows, "gradient"), time=_column(rows, "step_s"),
        **{name: np.array([row[name] for row in rows]) for name in texts},
    )  # fmt: skip


def peer_step_times(peer: str, runs: StepTimes) -> np.ndarray:
    """What calculon, mlsysim or llm-analysis predicts for those rows, in s; nan where it cannot express one.

    Run with their own recommended settings, untuned: calculon caa4b11 (it has no flash attention; such rows are given
    to it without recomputation), mlsysim 0.3.0, llm_analysis 0.2.2.
    """
    rows = _rows("step_times_peers.csv")
    if peer not in {row["peer"] for row in rows}:
        raise ValueError(f"peer must be one of {', '.join(dict.fromkeys(row['peer'] for row in rows))}; got {peer!r}")
    found = {row["id"]: float(row["step_s"]) for row in rows if row["peer"] == peer}
    return np.array([found.get(id, np.nan) for id in runs.id])


# Layouts: a sweep of them, and what a rank's memory holds (practice/planning)


@dataclass(frozen=True, eq=False)
class LayoutSweep:
    """BigScience's trials before BLOOM: GPTs of 176 to 206 billion parameters on 384 A100, one entry a layout.

    Sequences of 2048 tokens, full recomputation, ZeRO-1, no flash attention; a single iteration each, so that a rate
    is good to some percent. From 28 February on a 32-bit sum of gradients was kept beside the 16-bit gradients.
    """

    source: str
    line: np.ndarray  # of the source
    model: Transformer
    layout: Layout
    step: np.ndarray  # s
    rate: np.ndarray  # hardware FLOP/s of one GPU, as logged
    gradient: np.ndarray  # bytes a gradient takes
    memory: np.ndarray  # byte, all that is taken on a GPU (printed as GB, from nvidia-smi: GiB); nan where not printed


@cache
def layout_sweep() -> LayoutSweep:
    """The trials whose layout is stated in full, from the day on which their FLOP counter was corrected."""
    rows = _rows("layout_sweep.csv")
    shape = {name: _column(rows, name) for name in ("layers", "hidden", "heads")}
    sizes = {name: _column(rows, name) for name in ("dp", "tp", "pp", "micro_batch", "global_batch")}
    return LayoutSweep(
        source=rows[0]["source"], line=_column(rows, "line"), gradient=_column(rows, "gradient"),
        model=Transformer(**shape, vocab=250880, positions=2048, norms=2),
        layout=Layout(**sizes, recompute=FULL, zero=1, flash=0),
        step=_column(rows, "step_s"), rate=_column(rows, "tflops", TFLOP), memory=_column(rows, "memory_gib", GiB),
    )  # fmt: skip


@dataclass(frozen=True)
class PublishedMemory:
    """What the fullest rank holds: "states" (weights, gradients, optimiser), "activations" or all at its "peak", in
    bytes; or the "share" of its activations in those without recomputation and sequence parallelism."""

    study: str
    name: str
    model: Transformer
    layout: Layout
    seq: int
    quantity: str
    value: float
    kind: str
    source: str


@cache
def published_memory() -> tuple[PublishedMemory, ...]:
    """Figures 1 and 7 of Korthikanti et al. (2022), which their authors computed, and what Qi et al. (2024) measured.

    The latter do not state vocabulary, precision of gradients or attention: supposed are 50,304 words, 32-bit sums of
    gradients and a score matrix that is stored.
    """
    found = []
    for row in _rows("memory.csv"):
        words = ("study", "model", "quantity", "value", "unit", "kind", "source")
        number = {name: int(value) for name, value in row.items() if name not in words}
        seq, unit = number.pop("seq"), {"GiB": GiB, "percent": 0.01}[row["unit"]]
        shape = {name: number.pop(name) for name in ("layers", "hidden", "heads", "vocab")}
        found.append(
            PublishedMemory(
                row["study"], row["model"], Transformer(**shape, positions=seq), Layout(**number, flash=0), seq,
                row["quantity"], float(row["value"]) * unit, row["kind"], row["source"],
            )
        )  # fmt: skip
    return tuple(found)



# Pipeline schedules: `distlib/data/pipeline_passes.csv` has one row a setting, with the times of a micro-batch's passes
# as its authors profiled them; `pipeline_schedules.csv` one row a setting and schedule


@dataclass(frozen=True)
class PipelineRun:
    """One schedule of one setting of Qi et al. (2024): what was profiled, computed from that by them, and measured."""

    model: str
    schedule: str  # ZB-1p and ZB-2p are found by search, within the activations of 1F1B and twice as many
    stages: int
    microbatches: int
    microbatch: int  # sequences
    virtual: int  # chunks a stage of 1F1B-I: one layer each
    forward: float  # s, a micro-batch in a stage; profiled in the run of ZB-2p, as are the next three
    of_input: float  # s, the input's part of the backward pass
    weight: float  # s, the weights' part
    hop: float  # s, a message to the next stage
    bubble: float | None  # of the total; computed by the authors from the four times
    throughput: float | None  # sequences/s of one accelerator; measured
    memory: float | None  # byte, the peak; measured
    source: str


@cache
def pipeline_runs() -> tuple[PipelineRun, ...]:
    """Every published schedule whose pass times are published too."""
    found = []
    passes = {(row["model"], row["microbatches"]): row for row in _rows("pipeline_passes.csv")}
    for row in _rows("pipeline_schedules.csv"):
        setting = passes[row["model"], row["microbatches"]]
        printed = [float(row[name]) if row[name] else None for name in ("bubble", "samples_per_gpu_s", "memory_GB")]
        bubble, throughput, memory = printed
        times = [float(setting[f"{name}_ms"]) * ms for name in ("forward", "input", "weight", "hop")]
        forward, of_input, weight, hop = times
        found.append(
            PipelineRun(
                model=row["model"], schedule=row["schedule"], stages=int(setting["stages"]),
                microbatches=int(row["microbatches"]), microbatch=int(setting["microbatch"]),
                virtual=(int(setting["layers"]) + 2) // int(setting["stages"]),  # first and last have a layer less
                forward=forward, of_input=of_input, weight=weight, hop=hop, bubble=bubble, throughput=throughput,
                memory=memory and memory * GB, source=row["source"],
            )
        )
    return tuple(found)


@dataclass(frozen=True)
class LayoutRun:
    """One layout that BigScience tried before it trained BLOOM: one step, timed, on 384 A100."""

    layers: int
    hidden: int
    heads: int
    dp: int
    tp: int
    pp: int
    microbatch: int  # sequences of 2048 tokens
    global_batch: int
    time: float  # s
    rate: float  # FLOP/s of one accelerator as logged, full recomputation counted
    source: str


@cache
def bloom_layouts() -> tuple[LayoutRun, ...]:
    """Seven layouts of a 181B model, and one layout of a 182B model at four global batches."""
    whole = ("layers", "hidden", "heads", "dp", "tp", "pp", "microbatch", "global_batch")
    return tuple(
        LayoutRun(
            **{name: int(row[name]) for name in whole}, time=float(row["step_s"]), rate=float(row["tflops"]) * TFLOP,
            source=row["source"],
        )
        for row in _rows("bloom_layouts.csv")
    )  # fmt: skip


# Expert parallelism: `distlib/data/expert_exchanges.csv` has one row a benchmarked dispatch or combine


@dataclass(frozen=True)
class ExpertExchange:
    """One benchmark of DeepEP, of a dispatch or a combine: nodes of 8 GPUs with a NIC of 400 Gb/s each."""

    system: str
    mode: str  # normal: a token once to each node and on from there; low-latency: once for each of its experts
    operation: str  # dispatch or combine
    accelerator: str  # H800, or an architecture: SM90 is Hopper, SM100 Blackwell
    nodes: int
    gpus: int  # of a node
    tokens: int  # of a rank
    hidden: int
    topk: int
    token_bytes: int  # one token with its scales, in 8 bits to the experts and in 16 back
    latency: float | None  # s
    bandwidth: float  # byte/s, as printed
    counted: str  # a token for each node it goes to, its own too (nic), for each rank (nvlink), or each expert (all)
    sms: int | None  # processors that the kernel used
    source: str


@cache
def expert_exchanges() -> tuple[ExpertExchange, ...]:
    """Every published dispatch and combine."""
    whole = ("nodes", "gpus", "tokens", "hidden", "topk", "token_bytes")
    return tuple(
        ExpertExchange(
            **{name: int(row[name]) for name in whole},  # type: ignore[arg-type]
            latency=float(row["latency_us"]) * us if row["latency_us"] else None,
            bandwidth=float(row["bandwidth_GBps"]) * GB, sms=int(row["sms"]) if row["sms"] else None,
            **{name: row[name] for name in ("system", "mode", "operation", "accelerator", "counted", "source")},  # type: ignore[arg-type]
        )
        for row in _rows("expert_exchanges.csv")
    )  # fmt: skip



# Pairs of nodes (practice: your cluster)


@dataclass(frozen=True, eq=False)
class Pairs:
    """One test between every two nodes of a cluster. Arrays have one element a pair; nan where the test failed."""

    cluster: str
    operation: str  # sendrecv, all_to_all
    gpus_per_node: int  # that take part
    source: str
    node: np.ndarray  # the one with the lower number
    other: np.ndarray
    busbw: np.ndarray  # byte/s, at the largest size of the log: 16 GiB, 8 GiB in a few


@cache
def _pairs() -> dict[tuple[str, str, int], Pairs]:
    found = {}
    key = ("cluster", "operation", "gpus_per_node")
    for (cluster, operation, gpus), rows in groupby(_rows("pairwise.csv"), lambda row: tuple(row[k] for k in key)):
        cells = [(int(row["node"]), i, rate, row["source"]) for row in rows
                 for i, rate in enumerate(row["busbw_GBps"].split(), int(row["node"]) + 1)]  # fmt: skip
        node, other, rates, sources = zip(*cells, strict=True)
        busbw = np.array([float("nan" if rate == "-" else rate) * GB for rate in rates])
        busbw.flags.writeable = False
        found[cluster, operation, int(gpus)] = Pairs(
            cluster, operation, int(gpus), sources[0], np.array(node), np.array(other), busbw
        )
    return found


def pairs(cluster: str, operation: str, gpus_per_node: int) -> Pairs:
    """The pairs of that cluster: `pairs("cluster00", "sendrecv", 1)`. An unknown one raises ValueError."""
    if (cluster, operation, gpus_per_node) not in _pairs():
        known = ", ".join(f"{c} {o} {g}" for c, o, g in _pairs())
        raise ValueError(f"pairs must be one of {known}; got {cluster!r}, {operation!r}, {gpus_per_node!r}")
    return _pairs()[cluster, operation, gpus_per_node]



# --- what a real Slurm answered, and what is published of the jobs of clusters ---------------------------------------


@dataclass(frozen=True)
class SlurmPlan:
    """A job before a controller with four nodes: its start, real if it runs, else planned (None: not planned), in s."""

    policy: str
    job: str
    submit: float
    nodes: int
    limit: float
    running: bool
    start: float | None


@cache
def slurm_plans() -> tuple[SlurmPlan, ...]:
    """Six jobs before a real slurmctld, under conservative and under EASY backfill; 0 is the first job's start."""
    return tuple(
        SlurmPlan(row["policy"], row["job"], float(row["submit_s"]), int(row["nodes"]), float(row["limit_s"]),
                  row["state"] == "RUNNING", float(row["start_s"]) if row["start_s"] else None)
        for row in _rows("slurm_plans.csv")
    )  # fmt: skip


@dataclass(frozen=True)
class SlurmPlacement:
    """The nodes that a controller chose of 2,048, those of `drained` apart; `agrees`: as `cluster.packed` does."""

    drained: str
    nodes: int
    chosen: str
    agrees: bool


@cache
def slurm_placements() -> tuple[SlurmPlacement, ...]:
    """Requests for whole nodes before a real slurmctld with a tree of leaves of 32 nodes and pods of eight leaves."""
    return tuple(
        SlurmPlacement(row["drained"], int(row["nodes"]), row["chosen"], row["agrees"] == "yes")
        for row in _rows("slurm_placements.csv")
    )


@dataclass(frozen=True)
class ClusterJobs:
    """GPU jobs of a cluster, as its operators publish them; waits in s, from submission to start."""

    cluster: str
    jobs: int
    mean_wait: float
    median_wait: float
    marginals: Marginals


@cache
def cluster_jobs() -> dict[str, ClusterJobs]:
    """What is published of the jobs of four clusters, by name."""
    return {
        row["cluster"]: ClusterJobs(
            row["cluster"], int(row["jobs"]), float(row["mean_wait_s"]), float(row["median_wait_s"]),
            Marginals(float(row["mean_run_s"]), float(row["median_run_s"]), float(row["mean_gpus"]),
                      int(row["largest_gpus"]), float(row["gpu_seconds"]) / int(row["jobs"])),
        )
        for row in _rows("job_marginals.csv")
    }  # fmt: skip
