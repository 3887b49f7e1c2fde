"""The hardware table: conventions, sources, names, and what published measurements say about it."""

import re

import numpy as np
import pytest

from distlib.alphabeta import Link, transfer_time
from distlib.hardware import (
    ACCELERATORS,
    INTERCONNECTS,
    NODES,
    Cluster,
    Interconnect,
    accelerator,
    interconnect,
    node,
    ridge_point,
)
from distlib.published import sweep, sweeps
from distlib.units import GB, MB, TB, TFLOP, Gbit, GiB, W, day, us

ENTRIES = (*INTERCONNECTS, *ACCELERATORS, *NODES)


# --- what the sheets print, in the sheets' own conventions -------------------------------------------------------

SHEETS = {
    # 16-bit TFLOP/s with sparsity, memory GB, memory TB/s, W, NVLink GB/s both ways
    "A100 40GB": (624, 40, 1.555, 400, 600),
    "A100 80GB": (624, 80, 2.039, 400, 600),
    "H100 SXM": (1979, 80, 3.35, 700, 900),
    "H200": (1979, 141, 4.8, 700, 900),
    "H800": (1979, 80, 3.35, 700, 400),
    "B200": (4500, 180, 8.0, 1000, 1800),
    "GB200": (5000, 186, 8.0, 1200, 1800),
}


@pytest.mark.parametrize("name, row", SHEETS.items())
def test_sheets_with_sparse_peak_and_two_way_links_print_twice_what_the_book_uses(name, row):
    a = accelerator(name)
    sparse, memory, memory_bandwidth, power, both_ways = row
    assert a.peak == pytest.approx(sparse / 2 * TFLOP)
    assert a.scale_up.bandwidth == pytest.approx(both_ways / 2 * GB)
    assert (a.memory, a.memory_bandwidth, a.power) == pytest.approx((memory * GB, memory_bandwidth * TB, power * W))


def test_cards_and_chips_without_nvlink_are_as_their_sheets_print_them():
    # dense TFLOP/s, GB, TB/s, W, scale-up GB/s one way
    rows = {
        "V100": (125, 32, 0.9, 300, 150),
        "H100 PCIe": (756.5, 80, 2.0, 350, 63.015),
        "H100 NVL": (835.5, 94, 3.93, 400, 63.015),
        "H20": (148, 96, 4.0, 400, 450),
        "MI300X": (1307, 192, 5.3, 750, 448),
        "TPU v5e": (197, 16, 0.81, None, 180),
        "TPU v5p": (459, 95, 2.76, None, 540),
    }
    assert {a.name for a in ACCELERATORS} == {*rows, *SHEETS}
    for name, (peak, memory, memory_bandwidth, power, scale_up) in rows.items():
        a = accelerator(name)
        assert a.peak == pytest.approx(peak * TFLOP), name
        assert (a.memory, a.memory_bandwidth) == pytest.approx((memory * GB, memory_bandwidth * TB)), name
        assert a.power == power, name
        assert a.scale_up.bandwidth == pytest.approx(scale_up * GB, rel=1e-4), name


def test_the_dense_peak_is_clock_times_matrix_units():
    # 2 FLOP a fused multiply-add: clock, FMA a unit and cycle, units
    engines = {
        "A100 80GB": (1410e6, 256, 432),
        "H100 SXM": (1830e6, 512, 528),
        "MI300X": (2100e6, 256, 1216),
        "TPU v5e": (1.5e9, 128 * 128, 4),
    }
    for name, (clock, per_cycle, units) in engines.items():
        assert accelerator(name).peak == pytest.approx(2 * clock * per_cycle * units, rel=3e-3), name


def test_eight_bit_peak_is_twice_the_16_bit_peak_where_there_is_one():
    for a in ACCELERATORS:
        if a.peak_fp8:
            assert a.peak_fp8 == pytest.approx(2 * a.peak, rel=2e-3), a.name
    without = {a.name for a in ACCELERATORS if not a.peak_fp8}
    assert {"V100", "A100 40GB", "A100 80GB"} <= without


def test_dense_is_half_of_sparse_wherever_both_are_kept():
    # case B04: one table held H100 NVL and H200 sparse and H100 SXM dense
    kept = [a for a in ACCELERATORS if a.sparse]
    assert {"A100 80GB", "H100 SXM", "H100 PCIe", "H100 NVL", "H200", "B200", "GB200"} <= {a.name for a in kept}
    for a in kept:
        assert a.sparse / 2 == a.peak, a.name


def test_a_dense_peak_gives_the_corrected_times_of_a_corrected_book():
    # case B04: 6PD FLOP over peak and efficiency; the sparse peak had given half of each
    h100 = accelerator("H100").peak
    assert 6 * 175e9 * 300e9 / h100 / (365 * day) == pytest.approx(10.1, abs=0.05)
    assert 6 * 70e9 * 1e6 / (128 * h100 * 0.45) == pytest.approx(7.37, rel=2e-3)
    assert 6 * 7e9 * 2e12 / (0.5 * h100) / day == pytest.approx(1966, rel=2e-3)
    peaks = {"A100 80GB": 312, "H100": 989.5, "H100 NVL": 835.5, "H200": 989.5, "B200": 2250}
    for name, peak in peaks.items():
        assert accelerator(name).peak == peak * TFLOP, name


def test_the_ridge_point_of_b200_is_281_flop_a_byte():
    assert ridge_point(accelerator("B200")) == 2250e12 / 8e12 == 281.25
    assert ridge_point(accelerator("H100")) == pytest.approx(295.4, abs=0.05)


# --- links -------------------------------------------------------------------------------------------------------


def test_links_times_one_link_is_the_whole():
    links = {  # links, GB/s of one link, one way
        "NVLink 2": (6, 25), "NVLink 3": (12, 25), "NVLink 4": (18, 25), "NVLink 4 (H800)": (8, 25),
        "NVLink 5": (18, 50), "Infinity Fabric (MI300X)": (7, 64), "ICI v5e": (4, 45), "ICI v5p": (6, 90),
    }  # fmt: skip
    assert {i.name for i in INTERCONNECTS if i.kind == "scale-up"} == set(links)
    for name, (count, one) in links.items():
        i = interconnect(name)
        assert i.lanes == count, name
        assert i.lane_bandwidth == pytest.approx(one * GB), name
        assert i.bandwidth == pytest.approx(count * one * GB), name


def test_each_pcie_and_infiniband_generation_doubles_the_one_before():
    for family in (["PCIe 3.0 x16", "PCIe 4.0 x16", "PCIe 5.0 x16"], ["EDR", "HDR", "NDR", "XDR"]):
        rates = [interconnect(name).bandwidth for name in family]
        assert np.divide(rates[1:], rates[:-1]) == pytest.approx(2.0)
    assert interconnect("PCIe 4.0 x16").bandwidth == pytest.approx(31.5 * GB, rel=1e-3)


def test_a_slot_has_16_lanes_an_infiniband_port_four_and_other_ports_count_as_one():
    for i in INTERCONNECTS:
        if i.kind != "scale-up":
            lanes = 16 if i.name.startswith("PCIe") else 4 if i.name.startswith("InfiniBand") else 1
            assert i.lanes == lanes, i.name
    assert interconnect("NDR").lane_bandwidth == 100 * Gbit
    assert interconnect("PCIe 3.0 x16").lane_bandwidth == pytest.approx(0.985 * GB, rel=1e-3)


def test_a_network_port_is_named_in_bits_and_kept_in_bytes():
    ports = {
        "EDR": 100, "HDR": 200, "NDR": 400, "XDR": 800, "RoCE 100G": 100, "RoCE 200G": 200, "RoCE 400G": 400,
        "EFA v1": 100, "EFA v2": 100, "EFA v3": 200, "EFA v4": 400, "Slingshot-11": 200,
    }  # fmt: skip
    assert {interconnect(name).name for name in ports} == {i.name for i in INTERCONNECTS if i.kind == "scale-out"}
    for name, bits in ports.items():
        assert interconnect(name).bandwidth == pytest.approx(bits / 8 * GB), name
    assert interconnect("NDR").bandwidth == 50 * GB


def test_nvlink_4_is_9_times_an_ndr_port_not_18_times():
    nvlink, ndr = interconnect("NVLink 4"), interconnect("NDR")
    assert nvlink.bandwidth / ndr.bandwidth == 9.0
    assert 2 * nvlink.bandwidth / ndr.bandwidth == 18.0  # both ways of one against one way of the other


def test_a100_nvlink_is_300_one_way_and_230_in_use():
    # case A09: 600 both ways, 300 one way, about 80 % payload = 240, 230 measured, algbw 131 with 8 ranks
    a100 = accelerator("A100 80GB").scale_up
    assert a100.bandwidth == 300 * GB
    assert a100.lane_bandwidth * 0.8 * 12 == pytest.approx(240 * GB)
    assert a100.measured == 230 * GB
    assert a100.measured / (2 * 7 / 8) == pytest.approx(131 * GB, rel=5e-3)


def test_h800_is_no_h100():
    # case A12
    h100, h20, h800 = (accelerator(name) for name in ("H100", "H20", "H800"))
    assert h100.scale_up.bandwidth == h20.scale_up.bandwidth == 450 * GB
    assert 370 * GB <= h100.scale_up.measured <= 380 * GB
    assert h800.scale_up.bandwidth == 200 * GB
    assert h800.scale_up.measured == 160 * GB == 0.8 * h800.scale_up.bandwidth
    assert "H100" not in (h800.name, *h800.aliases)


def test_what_was_measured_is_what_the_sources_print():
    # GB/s: one way, as measured
    printed = {
        "NVLink 3": 230, "NVLink 4": 370, "NVLink 4 (H800)": 160, "NVLink 5": 700, "Infinity Fabric (MI300X)": 312.912,
        "PCIe 5.0 x16": 55.43, "HDR": 24, "EFA v1": 10.625,
    }  # fmt: skip
    for name, value in printed.items():
        assert interconnect(name).measured == pytest.approx(value * GB), name
    from_sweeps = {  # peak busbw of a published sweep over the ports of a node
        "NDR": ("i309b_h100_2n_ring", 8), "EFA v4": ("aws_p6b300_2n_all_gather", 16),
        "Slingshot-11": ("polaris_8_all_gather", 2), "PCIe 4.0 x16": ("a100pcie_p2p_sendrecv", 1),
    }  # fmt: skip
    for name, (id, ports) in from_sweeps.items():
        assert interconnect(name).measured == pytest.approx(np.nanmax(sweep(id).busbw) / ports, rel=2e-3), name
        assert id in interconnect(name).measured_as, name
    with_figure = {i.name for i in INTERCONNECTS if i.measured}
    assert with_figure == {interconnect(name).name for name in (*printed, *from_sweeps)}
    assert [interconnect(f"NVLink {g}").in_switch for g in (2, 3, 4, 5)] == [None, None, 480 * GB, 850 * GB]


def test_a_start_up_time_is_that_of_one_hop_and_says_so():
    hops = {"NVLink": 0.47, "PCIe": 1.0, "InfiniBand": 2.7, "RoCE": 2.7, "ICI v5e": 1.0}
    for i in INTERCONNECTS:
        expected = [value for family, value in hops.items() if i.name.startswith(family)]
        assert i.alpha == (pytest.approx(expected[0] * us) if expected else None), i.name
        assert bool(i.alpha_as) == bool(i.alpha), i.name
    # far below the whole of an 8-rank all-reduce, which pays 2(N−1) = 14 of them and a launch
    assert 14 * interconnect("NVLink 4").alpha < sweep("aws_p5_1n").time[0] < 30 * us


def test_achieved_matrix_products_and_copies_stay_below_the_sheet():
    # TFLOP/s in 16 and in 8 bit, GB/s of a copy between two accelerators
    printed = {
        "A100 40GB": (271.2, None, 274), "A100 80GB": (271.2, None, 274), "H100 SXM": (794.5, 1402.6, 376),
        "H200": (794.5, 1453.4, 396.4), "B200": (1745, 3432.5, None), "GB200": (1822, 3615.6, 746),
        "MI300X": (668.4, None, None),
    }  # fmt: skip
    for a in ACCELERATORS:
        matmul, fp8, copy = printed.get(a.name, (None, None, None))
        assert a.matmul == (matmul and pytest.approx(matmul * TFLOP)), a.name
        assert a.matmul_fp8 == (fp8 and pytest.approx(fp8 * TFLOP)), a.name
        assert a.peer_copy == (copy and pytest.approx(copy * GB)), a.name
        assert 0.5 * a.peak < (a.matmul or 0.8 * a.peak) < a.peak, a.name
        assert (a.matmul_fp8 or 0) < (a.peak_fp8 or 1), a.name
        assert (a.peer_copy or 0) < a.scale_up.bandwidth, a.name


def test_nothing_measured_on_a_wire_exceeds_its_sheet_and_in_switch_figures_do():
    for i in INTERCONNECTS:
        assert (i.measured or 0) < i.bandwidth, i.name
    assert interconnect("NVLink 4").in_switch > interconnect("NVLink 4").bandwidth
    assert interconnect("NVLink 5").in_switch < interconnect("NVLink 5").bandwidth


def test_no_published_sweep_inside_a_node_exceeds_its_link_but_by_reduction_in_the_switch():
    exceeding = set()
    for s in sweeps(nodes=1):
        known = [a for a in ACCELERATORS if a.name == s.accelerator]
        if known and np.nanmax(s.busbw) > known[0].scale_up.bandwidth:
            exceeding.add((s.operation, s.accelerator))
    assert exceeding == {("all_reduce", "H100 SXM"), ("all_reduce", "H200")}
    rings = [s for s in sweeps(nodes=1, operation="all_reduce") if s.algorithm.startswith("Ring (")]
    assert len(rings) >= 10
    for s in rings:
        assert np.nanmax(s.busbw) < accelerator(s.accelerator).scale_up.bandwidth, s.id


def test_published_peaks_inside_a_node_are_near_the_measured_figures():
    ring, switched = interconnect("NVLink 4").measured, interconnect("NVLink 4").in_switch
    for id in ("h100x_1n4_all_reduce", "h100x_1n8_all_gather", "h100x_1n8_sendrecv", "stas_h200_16G_all_reduce_ring"):
        assert np.nanmax(sweep(id).busbw) == pytest.approx(ring, rel=0.03), id
    for id in ("aws_p5_1n", "h100x_1n8_all_reduce", "stas_h200_1n_torch"):
        assert np.nanmax(sweep(id).busbw) == pytest.approx(switched, rel=0.01), id


# --- names, sources, units ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("find", [accelerator, interconnect, node])
@pytest.mark.parametrize("name", ["", "H10", "A100", "H100 SXM ", "GH200", "NVLink", None, 100])
def test_an_unknown_name_is_an_error_that_lists_the_known_ones(find, name):
    # case B03: an unknown device once fell back to A100, and gave a model FLOPs utilisation of 104 %
    known = {"accelerator": ACCELERATORS, "interconnect": INTERCONNECTS, "node": NODES}[find.__name__]
    with pytest.raises(ValueError, match=re.escape(repr(name))) as error:
        find(name)
    for entry in known:
        assert entry.name in str(error.value)


def test_h100_is_the_sxm_part_and_case_does_not_matter():
    assert accelerator("H100") is accelerator("h100 sxm") is accelerator("H100 SXM")
    assert interconnect("ndr") is interconnect("InfiniBand NDR")
    assert node("dgx h100").accelerator is accelerator("H100")


def test_no_two_entries_of_a_kind_share_a_name():
    for entries in (ACCELERATORS, INTERCONNECTS, NODES):
        names = [name.casefold() for entry in entries for name in (entry.name, *entry.aliases)]
        assert len(names) == len(set(names))


def test_the_wrong_peak_gives_a_utilisation_above_one_and_the_right_one_33_percent():
    # case B03: 104 % of an A100 on an H100
    rate = 1.04 * accelerator("A100 80GB").peak
    assert rate / accelerator("H100").peak == pytest.approx(0.328, abs=5e-4)


def test_every_figure_has_a_source_and_a_date():
    for entry in ENTRIES:
        for field in entry.figures():
            source = entry.source(field)
            assert len(source.where) > 10, (entry.name, field)
            assert re.fullmatch(r"20\d\d-\d\d(-\d\d)?", source.date), (entry.name, field)
        named = {name for _, names in entry.sources for name in names.split()}
        assert all(hasattr(entry, name) for name in named), entry.name


def test_a_field_without_a_source_is_an_error():
    with pytest.raises(ValueError, match="scale_up"):
        accelerator("H100").source("scale_up")


def test_what_was_read_nowhere_says_so():
    unread = {(e.name, f) for e in ENTRIES for f in e.figures() if not e.source(f).read}
    assert {name for name, _ in unread} == {"H800", "H20", "B200", "GB200", "MI300X", "TPU v5e", "TPU v5p"}
    assert {field for name, field in unread if name != "H800"} == {"year", "sparse"}


def test_figures_lie_in_a_plausible_range_of_si_units():
    for a in ACCELERATORS:
        assert 100e12 <= a.peak <= 2.6e15, a.name
        assert 16e9 <= a.memory <= 200e9, a.name
        assert 0.5e12 <= a.memory_bandwidth <= 8.1e12, a.name
        assert a.number_format == ("fp16" if a.name == "V100" else "bf16")
        assert 2017 <= a.year <= 2024, a.name
    for i in INTERCONNECTS:
        assert i.kind in ("scale-up", "host", "scale-out"), i.name
        assert 10e9 < i.bandwidth <= 900e9, i.name
        assert bool(i.measured) == bool(i.measured_as), i.name


def test_years_are_those_of_the_announcements():
    years = [a.year for a in ACCELERATORS]
    assert years == [2017, 2020, 2020, 2022, 2022, 2023, 2023, 2023, 2023, 2024, 2024, 2023, 2023, 2023]


def test_bad_figures_are_refused_by_name():
    good = {"name": "x", "kind": "host", "bandwidth": 1 * GB, "lanes": 1, "sources": ()}
    assert Interconnect(**good).lane_bandwidth == 1 * GB
    for field, value in (("bandwidth", 0.0), ("bandwidth", float("nan")), ("lanes", 2.5), ("lanes", 0)):
        with pytest.raises(ValueError, match=field):
            Interconnect(**{**good, field: value})


# --- links of nodes and clusters ---------------------------------------------------------------------------------


def test_a_link_is_specified_or_measured_by_name_never_by_default():
    nvlink = interconnect("NVLink 4")
    assert nvlink.specified_link() == Link(nvlink.alpha, 450 * GB)
    assert nvlink.measured_link() == Link(nvlink.alpha, 370 * GB)
    assert nvlink.measured_link(alpha=2 * us).alpha == 2 * us
    assert nvlink.specified_link(alpha=0).alpha == 0


def test_a_link_without_a_known_start_up_time_or_measurement_is_an_error():
    with pytest.raises(ValueError, match=r"alpha must be given.*EFA v2"):
        interconnect("EFA v2").specified_link()
    with pytest.raises(ValueError, match="XDR has no measured bandwidth"):
        interconnect("XDR").measured_link()
    assert interconnect("EFA v2").specified_link(alpha=20 * us) == Link(20 * us, 12.5 * GB)


def test_nodes_hold_what_their_makers_say():
    rows = {  # accelerators, ports, Gbit/s of a port, GB/s out of the node, one way
        "DGX A100": (8, 8, 200, 200), "DGX H100": (8, 8, 400, 400), "GB200 NVL72": (72, 72, 400, 3600),
        "p5.48xlarge": (8, 32, 100, 400), "p4de.24xlarge": (8, 4, 100, 50),
    }  # fmt: skip
    assert {n.name for n in NODES} == set(rows)
    for name, (accelerators, ports, bits, out) in rows.items():
        n = node(name)
        assert (n.accelerators, n.nics) == (accelerators, ports), name
        assert n.nic.bandwidth == pytest.approx(bits * Gbit), name
        assert n.nics * n.nic.bandwidth == pytest.approx(out * GB), name
        assert n.host.kind == "host" and n.nic.kind == "scale-out", name


def test_a_cluster_multiplies_nodes_rails_and_fabric():
    dgx = node("DGX H100")
    cluster = Cluster(node=dgx, nodes=32, rails=8, fabric=dgx.nic)
    assert cluster.ranks == 256
    assert cluster.node_bandwidth == 400 * GB
    assert cluster.rank_bandwidth == 50 * GB
    assert cluster.specified_link() == dgx.nic.specified_link()
    half = Cluster(node=dgx, nodes=32, rails=4, fabric=dgx.nic)
    assert half.specified_link().beta == 25 * GB
    assert half.measured_link().beta == pytest.approx(dgx.nic.measured / 2)
    assert half.node.measured_link() == interconnect("NVLink 4").measured_link()
    assert dgx.specified_link(alpha=1 * us) == Link(1 * us, 450 * GB)


def test_the_same_message_takes_nine_times_as_long_on_the_rank_s_share_of_the_fabric():
    dgx = node("DGX H100")
    cluster = Cluster(node=dgx, nodes=2, rails=8, fabric=dgx.nic)
    inside, across = dgx.specified_link(alpha=0), cluster.specified_link(alpha=0)
    assert transfer_time(1 * GiB, across) / transfer_time(1 * GiB, inside) == pytest.approx(9)
    assert transfer_time(450 * MB, inside) == pytest.approx(1e-3)


@pytest.mark.parametrize("field, value", [("nodes", 0), ("nodes", 2.5), ("rails", 0), ("rails", -1)])
def test_a_cluster_of_no_nodes_or_broken_rails_is_refused(field, value):
    dgx = node("DGX H100")
    good = {"node": dgx, "nodes": 2, "rails": 8, "fabric": dgx.nic}
    with pytest.raises(ValueError, match=field):
        Cluster(**{**good, field: value})
