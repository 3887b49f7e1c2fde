"""The ledger of worker-seconds: it sums for every simulated run, and no loss stands in two of its factors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlib.checkpoint import exponential_failures, simulate, simulate_two_level
from distlib.overhead import (
    BETWEEN_STEPS,
    COMMUNICATION,
    COMPUTE,
    COORDINATION,
    ENTRIES,
    Coordinates,
    Ledger,
    coordinates,
    dominates,
    extra_for_batch,
    factors,
    ledger_of_runs,
    on_front,
    remainder_idle,
    summed,
    within,
)
from distlib.units import hour, minute

SECONDS = st.floats(0, 1e9)
SPLITS = st.fixed_dictionaries(dict.fromkeys(ENTRIES, SECONDS)).filter(lambda split: sum(split.values()) > 1)
EXAMPLE = {
    "useful": 50.0, "recomputation": 10.0, "extra_iterations": 5.0, "contention": 3.0, "exposed": 12.0, "bubble": 6.0,
    "straggler_wait": 4.0, "checkpoint_writes": 3.0, "lost_work": 2.0, "restart": 1.0, "idle": 4.0,
}  # fmt: skip


def test_the_axes_are_those_of_the_design_and_each_entry_is_on_one():
    assert COMPUTE == ("useful", "recomputation", "extra_iterations", "contention")
    assert COMMUNICATION == ("exposed",)
    assert COORDINATION == ("bubble", "straggler_wait", "checkpoint_writes", "lost_work", "restart", "idle")
    assert len(set(ENTRIES)) == len(ENTRIES) == len(COMPUTE + COMMUNICATION + COORDINATION) == 11
    assert set(BETWEEN_STEPS) == {"checkpoint_writes", "lost_work", "restart", "idle"}


@given(SPLITS, st.integers(1, 100_000))
def test_entries_sum_to_ranks_times_wall_clock(split, ranks):
    ledger = summed(ranks, **split)
    assert ledger.total == pytest.approx(ranks * ledger.wall_clock, rel=1e-12)
    assert coordinates(ledger).total == pytest.approx(sum(split.values()), rel=1e-12)


@pytest.mark.parametrize("axis, entries", [("compute", COMPUTE), ("communication", COMMUNICATION),
                                           ("coordination", COORDINATION)])  # fmt: skip
def test_an_entry_moves_its_own_axis_alone(axis, entries):
    for name in entries:
        at = coordinates(summed(4, **{name: 8.0}), progress=2.0)
        assert getattr(at, axis) == at.total == 4.0


@pytest.mark.parametrize("miss", [2e-9, -2e-9, 0.02])
def test_entries_that_do_not_sum_are_refused(miss):
    with pytest.raises(ValueError, match="sum of entries"):
        Ledger(ranks=8, wall_clock=12.5 * (1 + miss), **EXAMPLE)
    assert Ledger(ranks=8, wall_clock=12.5 * (1 + 0.5e-9 * np.sign(miss)), **EXAMPLE).total == 100


@pytest.mark.parametrize("name", [*ENTRIES, "hidden"])
def test_a_negative_entry_is_refused(name):
    with pytest.raises(ValueError, match=name):
        summed(8, **{**EXAMPLE, name: -1e-3})


def test_hidden_communication_is_reported_and_costs_nothing():
    quiet, hiding = summed(8, **EXAMPLE), summed(8, **EXAMPLE, hidden=7.0)
    assert hiding.hidden == 7
    assert hiding.total == quiet.total == 100
    assert hiding.wall_clock == quiet.wall_clock == 12.5
    assert remainder_idle(2, 10.0, useful=15.0, hidden=3.0).idle == 5


def test_what_entries_leave_of_a_measured_wall_clock_is_idle_and_more_than_it_is_refused():
    ledger = remainder_idle(4, 10.0, useful=30.0, exposed=4.0)
    assert ledger.idle == 6
    assert ledger.total == 40
    with pytest.raises(ValueError, match="idle"):
        remainder_idle(4, 10.0, useful=41.0)


@pytest.mark.parametrize("seed", range(5))
def test_every_simulated_job_has_a_ledger_that_sums(seed):
    rng = np.random.default_rng(seed)
    mtbf, interval, write, restart = rng.uniform([2, 0.2, 0.01, 0], [9, 1, 0.2, 0.5]) * hour
    ranks = int(rng.integers(1, 20_000))
    runs = simulate(exponential_failures(mtbf), 200 * hour, interval, write, restart, runs=300, seed=seed)
    ledger = ledger_of_runs(runs, ranks)
    assert np.max(np.abs(ledger.total / (ranks * runs.wall_clock) - 1)) < 1e-9
    assert coordinates(ledger).compute == pytest.approx(ranks * 200 * hour)
    assert coordinates(ledger).communication == 0
    assert coordinates(ledger).coordination == pytest.approx(ranks * (runs.wall_clock - runs.work))
    assert ledger.checkpoint_writes == pytest.approx(ranks * runs.writing)
    assert ledger.lost_work == pytest.approx(ranks * runs.lost)
    assert ledger.restart == pytest.approx(ranks * runs.restarting)


def test_a_job_with_two_levels_of_checkpoints_has_one_too():
    runs = simulate_two_level(exponential_failures(3 * hour), 100 * hour, 0.5 * hour, 4, minute, 4 * minute, 0.8,
                              minute, 9 * minute, runs=200, seed=3)  # fmt: skip
    assert ledger_of_runs(runs, 64).total == pytest.approx(64 * runs.wall_clock, rel=1e-9)


@given(SPLITS.filter(lambda split: split["useful"] > 1e-3), SPLITS)
def test_a_step_within_a_run_splits_its_useful_work_and_changes_no_total(run_split, step_split):
    run, step = summed(8, **run_split), summed(8, **step_split, hidden=5.0)
    both = within(run, step)
    assert both.total == pytest.approx(run.total)
    assert both.useful == pytest.approx(run.useful * step.useful / step.total)
    for name in ENTRIES[1:]:
        assert getattr(both, name) == pytest.approx(getattr(run, name) + run.useful * getattr(step, name) / step.total)
    assert both.hidden == pytest.approx(run.useful * 5 / step.total)


def test_a_step_of_other_ranks_is_refused():
    with pytest.raises(ValueError, match=r"step\.ranks"):
        within(summed(8, useful=1.0), summed(4, useful=1.0))


def test_a_played_job_and_its_step_give_one_ledger():
    runs = simulate(exponential_failures(5 * hour), 100 * hour, hour, minute, minute, runs=100, seed=1)
    both = within(ledger_of_runs(runs, 16), summed(16, useful=12.0, exposed=3.0, bubble=1.0))
    assert both.total == pytest.approx(16 * runs.wall_clock, rel=1e-9)
    assert both.exposed == pytest.approx(16 * 100 * hour * 3 / 16)


# Fronts


def test_one_design_dominates_another_when_it_is_nowhere_worse_and_somewhere_better():
    base = Coordinates(2.0, 2.0, 2.0)
    assert dominates(Coordinates(2.0, 1.9, 2.0), base)
    assert not dominates(base, base)
    assert not dominates(Coordinates(2.0, 1.0, 2.1), base)
    assert not dominates(Coordinates(2.1, 1.0, 1.0), base)
    assert not dominates(Coordinates(1.0, 2.1, 1.0), base)


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=12))
def test_on_the_front_no_axis_falls_without_another_rising(points):
    designs = [Coordinates(*map(float, point)) for point in points]
    front = on_front(designs)
    assert any(front)
    array = np.array(points)
    for i, kept in enumerate(front):
        below = (array <= array[i]).all(axis=1) & (array < array[i]).any(axis=1)
        assert kept == (not below.any())


# Factors


def test_the_factors_of_a_ledger_multiply_to_its_useful_share():
    shares = factors(summed(8, **EXAMPLE), kernel=0.8)
    assert shares.yield_ == pytest.approx(50 / 68)
    assert shares.step == pytest.approx(68 / 90)
    assert shares.goodput == pytest.approx(90 / 100)
    assert shares.run_mfu == pytest.approx(0.8 * 50 / 100)
    assert shares.step_mfu == pytest.approx(0.8 * 50 / 90)
    assert factors(summed(8, **EXAMPLE)).run_mfu == pytest.approx(0.5)


def test_mfu_times_efficiency_times_goodput_counts_what_a_step_loses_twice():
    shares = factors(summed(8, **EXAMPLE), kernel=0.8)
    assert shares.counted_twice == pytest.approx(0.8 * 50 / 90 * (68 / 90) * 0.9)
    assert shares.counted_twice / shares.run_mfu == pytest.approx(shares.step)
    assert shares.counted_twice < shares.run_mfu


@given(SPLITS.filter(lambda split: split["useful"] > 1e-3), st.floats(0.1, 1))
def test_the_run_s_mfu_is_model_flops_over_peak_and_wall_clock(split, kernel):
    ledger = summed(64, **split)
    flops = kernel * ledger.useful  # of a peak of one FLOP/s
    assert factors(ledger, kernel).run_mfu == pytest.approx(flops / (64 * ledger.wall_clock), rel=1e-9)


# Laws of a step


def test_a_batch_of_the_critical_size_needs_twice_the_least_data():
    assert extra_for_batch(8.0, 1e-12, 8.0) == pytest.approx(1)
    assert extra_for_batch(5.0, 5.0, 8.0) == 0
    assert extra_for_batch([2.0, 4.0], 1.0, 2.0) == pytest.approx([1 / 3, 1])
