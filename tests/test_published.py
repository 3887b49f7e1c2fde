"""The published sweeps: their structure, their sources, and their arithmetic."""

import numpy as np
import pytest

from distlib.hardware import ACCELERATORS
from distlib.published import sweep, sweeps
from distlib.units import GB, GiB, us

ALL = sweeps()
OPERATIONS = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "sendrecv"}

# busbw / algbw, from what each operation must move, written out here so that it is no copy of the package's own
SHARE = {
    "all_reduce": lambda N: 2 * (N - 1) / N,
    "all_gather": lambda N: (N - 1) / N,
    "reduce_scatter": lambda N: (N - 1) / N,
    "all_to_all": lambda N: (N - 1) / N,
    "broadcast": lambda N: 1.0,
    "reduce": lambda N: 1.0,
    "sendrecv": lambda N: 1.0,
}


def test_every_operation_is_covered_and_the_counts_are_those_of_the_tables():
    assert {s.operation for s in ALL} == OPERATIONS
    assert len(ALL) == 118
    assert sum(s.n.size for s in ALL) == 2381
    assert len(sweeps(min_sizes=10)) == 74


def test_sizes_increase_and_times_are_positive_and_finite():
    for s in ALL:
        assert np.all(np.diff(s.n) > 0), s.id
        assert np.all(s.n > 0), s.id
        assert np.all((s.time > 0) & np.isfinite(s.time)), s.id
        assert s.n.shape == s.time.shape == s.time_in_place.shape == s.algbw.shape == s.busbw.shape, s.id


def test_ranks_are_nodes_times_gpus_per_node():
    for s in ALL:
        assert s.ranks == s.nodes * s.gpus_per_node, s.id
        assert s.ranks >= 2, s.id


def test_printed_algbw_is_size_over_time_to_the_digits_printed():
    # both columns are rounded, algbw to 0.01 GB/s and the time to four or five digits
    checked = 0
    for s in ALL:
        if not s.derived:
            given = ~np.isnan(s.algbw)
            computed = s.n[given] / s.time[given]
            slack = 0.0051 * GB + 1e-3 * computed
            assert np.all(np.abs(computed - s.algbw[given]) <= slack), s.id
            checked += given.sum()
    assert checked > 2000


def test_printed_busbw_is_algbw_times_the_share_that_each_rank_must_move():
    checked = 0
    for s in ALL:
        given = s.busbw > 1 * GB
        computed = s.n[given] / s.time[given] * SHARE[s.operation](s.ranks)
        assert s.busbw[given] == pytest.approx(computed, rel=0.01), s.id
        checked += given.sum()
    assert checked > 1000


def test_a_derived_time_follows_the_printed_algbw_where_there_is_one():
    for s in (s for s in ALL if s.derived):
        given = s.algbw > 1 * GB
        assert s.algbw[given] == pytest.approx(s.n[given] / s.time[given], rel=0.01), s.id


def test_the_reference_sweep_reads_as_its_source_prints_it():
    s = sweep("aws_p5_1n")
    assert (s.ranks, s.nodes, s.n.size) == (8, 1, 32)
    assert (s.n[0], s.n[-1]) == (8, 16 * GiB)
    assert s.time[0] == pytest.approx(12.84 * us, rel=0.05)
    assert s.busbw.max() == pytest.approx(483 * GB, rel=0.01)


def test_every_sweep_states_a_source_a_licence_column_and_the_day_it_was_read():
    for s in ALL:
        assert s.path, s.id
        assert s.retrieved >= "2026-11-29", s.id
        assert isinstance(s.licence, str), s.id


def test_accelerators_are_named_as_in_the_hardware_table_or_are_not_in_it():
    elsewhere = {"A100 PCIe 40GB", "GH200", "B300", "GB300"}
    assert {s.accelerator for s in ALL} <= {a.name for a in ACCELERATORS} | elsewhere


def test_bad_sweeps_stay_and_say_what_is_wrong_with_them():
    for id in ("dgx_h100_2n", "i290_h100_2n_ring", "cscs_gh200_2n4_nohook", "polaris_8_all_reduce_tcp"):
        assert sweep(id).anomaly, id
    slow, fast = sweep("polaris_8_all_reduce_tcp"), sweep("polaris_8_all_reduce")
    assert fast.busbw.max() > 3 * slow.busbw.max()


def test_arrays_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        sweep("aws_p5_1n").time[0] = 0.0


def test_an_unknown_sweep_is_an_error_that_lists_near_names():
    with pytest.raises(ValueError, match="aws_p5_1n"):
        sweep("aws_p5")
    with pytest.raises(ValueError, match="published sweep"):
        sweep("")


def test_an_unknown_field_is_an_error_that_lists_the_fields():
    with pytest.raises(ValueError, match="operation"):
        sweeps(op="all_reduce")


def test_sweeps_selects_by_field_and_by_number_of_sizes():
    chosen = sweeps(operation="all_reduce", nodes=1, min_sizes=10)
    assert "aws_p5_1n" in {s.id for s in chosen}
    assert all(s.operation == "all_reduce" and s.nodes == 1 and s.n.size >= 10 for s in chosen)
