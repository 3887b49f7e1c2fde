"""Checkpoint intervals and the cost of failures, against optima found numerically, played jobs and published cases."""

from decimal import Decimal, localcontext
from itertools import combinations, pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize, minimize_scalar
from scipy.stats import chi2, norm, poisson

from distlib.checkpoint import (
    REGIMES,
    Failures,
    Plan,
    aggregate_bandwidth_for_waste,
    asynchronous_interval,
    asynchronous_segment_time,
    best_goodput,
    burst_failures,
    checkpoint_bytes,
    combined_mtbf,
    cusum,
    cusum_run_length,
    daly_interval,
    elastic_restart,
    exact_interval,
    expected_wall_clock,
    exponential_failures,
    first_order_overhead,
    fit_from_mtbf,
    group_survival,
    implied_aggregate_bandwidth,
    longest_write,
    mean_interval,
    most_useful_ranks,
    mtbf_from_counts,
    mtbf_from_fit,
    mtbf_from_log,
    overhead,
    paired_mtbf,
    regret,
    renewal_goodput,
    robust_scores,
    saved_in_time,
    segment_time,
    simulate,
    simulate_two_level,
    spares_suffice,
    stage_replay_time,
    survival,
    system_mtbf,
    two_level_intervals,
    two_level_overhead,
    useful_ranks,
    waste,
    wasted_money,
    wasted_time,
    weibull_failures,
    write_time,
    young_interval,
)
from distlib.units import GB, TB, TiB, day, hour, minute

YEAR = 365.25 * day
LLAMA3 = 54 * day / 419  # s, MTBF of the system


def least(cost, low, high):
    """The argument in [low, high] at which `cost` is least, found numerically; the search is over its logarithm."""
    found = minimize_scalar(lambda x: cost(np.exp(x)), bounds=np.log([low, high]), method="bounded",
                            options={"xatol": 1e-12})  # fmt: skip
    return np.exp(found.x)


# How often a system fails.


def test_the_first_failure_among_n_parts_comes_n_times_as_soon():
    lives = np.random.default_rng(1).exponential(1000 * hour, (4000, 64))
    low, high = mean_interval(lives.min(axis=1))
    assert low < system_mtbf(1000 * hour, 64) < high


def test_classes_add_as_rates_and_one_class_is_the_system_law():
    lives = np.random.default_rng(2).exponential(1, (20000, 12)) * np.repeat([50.0, 7.0], [9, 3])
    low, high = mean_interval(lives.min(axis=1))
    assert low < combined_mtbf([50.0, 7.0], [9, 3]) < high
    assert combined_mtbf([50.0], [9]) == pytest.approx(system_mtbf(50.0, 9), rel=1e-15)


def test_llama_3_ran_three_hours_between_interruptions():  # C03
    assert LLAMA3 / hour == pytest.approx(3.09, abs=0.005)
    part = LLAMA3 * 16384
    assert part / hour == pytest.approx(50_677, abs=1)
    assert part / YEAR == pytest.approx(5.78, abs=0.005)
    assert part / 8 / hour == pytest.approx(6335, abs=0.5)
    assert system_mtbf(part, [8192, 1024]) / hour == pytest.approx([6.19, 49.5], rel=1e-3)
    assert system_mtbf(part, 100_000) / minute == pytest.approx(30.4, abs=0.05)
    assert system_mtbf(50_000 * hour, [100_000, 1_000_000]) / minute == pytest.approx([30, 3])


def test_a_60_s_write_on_llama_3_gives_19_minutes_and_300_s_gives_43():  # C03
    assert young_interval(60, LLAMA3) == pytest.approx(1156, abs=0.5)
    assert young_interval(60, LLAMA3) / minute == pytest.approx(19.3, abs=0.05)
    assert young_interval(300, LLAMA3) / minute == pytest.approx(43, abs=0.1)
    tau = young_interval([60, 300], LLAMA3)
    assert first_order_overhead(tau, [60, 300], LLAMA3) == pytest.approx([0.104, 0.232], abs=5e-4)


def test_twenty_thousand_fit_are_50_000_hours_and_twenty_are_a_thousand_times_more():  # C04
    assert mtbf_from_fit(20_000) / hour == pytest.approx(50_000)
    assert system_mtbf(mtbf_from_fit(20_000), 16384) / hour == pytest.approx(3.05, abs=0.005)
    assert mtbf_from_fit(20) / hour == pytest.approx(5e7)
    assert system_mtbf(mtbf_from_fit(20), 16384) / day == pytest.approx(127, abs=0.5)
    assert fit_from_mtbf(mtbf_from_fit([7.0, 4000.0])) == pytest.approx([7, 4000], rel=1e-14)


def test_four_hours_for_each_of_10_000_parts_is_a_failure_every_1_44_s():  # C05
    assert system_mtbf(4 * hour, 10_000) == pytest.approx(1.44)
    both = combined_mtbf([20_000 * hour, 10_000 * hour], [10_000, 1_250])
    assert both / hour == pytest.approx(1.6)
    assert both / minute == pytest.approx(96)


def test_survival_halves_each_half_life_and_starts_at_one():
    assert survival(0.0, 7.0) == 1
    assert survival(7 * np.log(2) * np.arange(1, 4), 7.0) == pytest.approx([1 / 2, 1 / 4, 1 / 8])


def test_a_run_that_ended_without_a_failure_adds_time_and_no_failure():  # C08
    failed = np.array([True] * 3 + [False] * 7)
    estimate = mtbf_from_log(np.full(10, 12 * hour), failed)
    assert estimate.mtbf / hour == pytest.approx(40)
    assert (estimate.failures, estimate.exposure) == (3, 120 * hour)
    assert estimate == mtbf_from_counts(120 * hour, 3, 0.95) == mtbf_from_counts(120 * hour, 3)
    every_end = mtbf_from_counts(120 * hour, 13).mtbf
    assert every_end / hour == pytest.approx(9.2, abs=0.05)
    assert np.sqrt(every_end / estimate.mtbf) == pytest.approx(0.48, abs=0.001)
    assert young_interval(60, every_end) / young_interval(60, estimate.mtbf) == pytest.approx(0.48, abs=0.001)


@pytest.mark.parametrize("failures", [1, 3, 419])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_the_interval_is_that_of_chi_square(failures, confidence):
    tail = (1 - confidence) / 2
    estimate = mtbf_from_counts(100.0, failures, confidence)
    assert estimate.lower == pytest.approx(200 / chi2.ppf(1 - tail, 2 * failures + 2), rel=1e-9)
    assert estimate.upper == pytest.approx(200 / chi2.ppf(tail, 2 * failures), rel=1e-9)
    assert estimate.lower < estimate.mtbf < estimate.upper


@pytest.mark.parametrize("expected", [0.3, 2.0, 9.0, 40.0])
def test_the_interval_covers_the_truth_as_often_as_it_says(expected):
    counts = np.arange(200)
    ends = [mtbf_from_counts(expected, int(k)) for k in counts]  # the true MTBF is 1
    covered = np.array([e.lower <= 1 <= e.upper for e in ends])
    coverage = np.sum(poisson.pmf(counts, expected)[covered])
    assert 0.95 <= coverage < 0.999


def test_no_failure_leaves_a_lower_bound_only():
    estimate = mtbf_from_counts(100.0, 0)
    assert estimate.mtbf == estimate.upper == np.inf
    assert estimate.lower == pytest.approx(100 / -np.log(0.025))


# How often to write.

RATIOS = [1e-6, 1e-4, 1e-3, 0.01, 0.1, 0.5, 1.0, 2.0]


@pytest.mark.parametrize("ratio", RATIOS)
def test_youngs_interval_makes_the_first_order_overhead_least(ratio):
    best = least(lambda tau: first_order_overhead(tau, ratio, 1.0, 0.3), 1e-5, 1e2)
    assert young_interval(ratio, 1.0) == pytest.approx(best, rel=1e-6)
    assert first_order_overhead(best, ratio, 1.0) == pytest.approx(np.sqrt(2 * ratio))


@pytest.mark.parametrize("ratio", [*RATIOS, 5.0, 30.0])
@pytest.mark.parametrize("restart", [0.0, 0.7])
def test_the_exact_interval_makes_the_exact_overhead_least_whatever_the_restart(ratio, restart):
    best = least(lambda tau: segment_time(tau, ratio, 1.0, restart) / tau, 1e-4, 50)
    assert exact_interval(ratio, 1.0) == pytest.approx(best, rel=1e-5)


def test_the_exact_interval_solves_its_equation_on_both_sides_of_the_seam():
    ratio = np.logspace(-4, 1, 200)
    u = exact_interval(ratio, 1.0)
    assert np.all(u < 1)
    assert -np.log1p(-u) - u == pytest.approx(ratio, rel=1e-10)
    below, above = exact_interval(np.array([1e-5 * (1 - 1e-9), 1e-5 * (1 + 1e-9)]), 1.0)
    assert above / below - 1 == pytest.approx(1e-9, rel=0.1)


@pytest.mark.parametrize("ratio", ["9.9e-6", "1e-9", "1.01e-5"])
def test_the_exact_interval_keeps_its_digits_where_the_write_is_short(ratio):
    """Against Newton's method in fifty decimal digits. Beyond the seam W₀ itself has lost half of them."""
    with localcontext(prec=50):
        d, u = Decimal(ratio), (2 * Decimal(ratio)).sqrt()
        for _ in range(8):
            u -= (-(1 - u).ln() - u - d) * (1 - u) / u
    assert exact_interval(float(ratio), 1.0) == pytest.approx(
        float(u), rel=1e-13 if float(ratio) < 1e-5 else 1e-11, abs=0
    )


def test_the_interval_is_work_and_the_period_is_a_write_more():
    """Young's number lies above the best work by s/3 and below the best period by s/6, s = √(2·T_write/MTBF)."""
    write = 1e-6
    s, best = np.sqrt(2 * write), exact_interval(write, 1.0)
    assert 1 - best / young_interval(write, 1.0) == pytest.approx(s / 3, rel=1e-3)
    assert (best + write) / young_interval(write, 1.0) - 1 == pytest.approx(s / 6, rel=1e-3)
    period = least(lambda p: write / p + p / 2, 1e-4, 1)  # first order again, as a share of the period
    assert period == pytest.approx(young_interval(write, 1.0), rel=1e-6)


def test_dalys_interval_misses_the_exact_one_by_the_fourth_order_only():
    s = np.array([0.04, 0.02, 0.01])
    daly = daly_interval(s**2 / 2, 1.0) - exact_interval(s**2 / 2, 1.0)
    assert daly[:-1] / daly[1:] == pytest.approx(16, rel=0.05)
    assert np.all(np.abs(daly) < s**4 / 100)
    young = young_interval(s**2 / 2, 1.0) - exact_interval(s**2 / 2, 1.0)
    assert young[:-1] / young[1:] == pytest.approx(4, rel=0.02)


def test_both_orders_meet_the_exact_interval_as_the_write_vanishes():
    for write in (1e-9, 1e-12, 1e-16):
        assert young_interval(write, 1.0) / exact_interval(write, 1.0) == pytest.approx(1, abs=1e-4)
        assert daly_interval(write, 1.0) / exact_interval(write, 1.0) == pytest.approx(1, abs=1e-12)


def test_a_write_far_longer_than_the_mtbf_leaves_an_interval_of_one_mtbf():
    assert exact_interval([50.0, 2000.0], 3.0) == pytest.approx(3.0, rel=1e-6)


@pytest.mark.parametrize("law", [young_interval, daly_interval, lambda w, m: first_order_overhead(10.0, w, m)])
def test_first_order_laws_end_at_a_write_of_two_mtbf(law):
    assert np.isfinite(law(2.0, 1.0))
    with pytest.raises(ValueError, match=r"write/mtbf must be at most 2 .*exact_interval.*got 2\.1"):
        law(2.1, 1.0)
    with pytest.raises(ValueError, match="at index"):
        law(600.0, np.array([1e6, 30.0]))


# What failures cost.


@pytest.mark.parametrize("interval, write, mtbf, restart", [
    (1.0, 0.1, 3.0, 0.0), (1.0, 0.1, 3.0, 0.5), (2.0, 1.0, 1.0, 0.3), (0.1, 0.0, 5.0, 0.0), (0.5, 2.0, 0.8, 1.0),
])  # fmt: skip
def test_the_segment_time_is_the_mean_over_the_moment_of_the_first_failure(interval, write, mtbf, restart):
    def until(length, after):  # a failure at t costs t and `after`; none by `length` ends it
        failed = quad(lambda t: (t + after) * np.exp(-t / mtbf) / mtbf, 0, length)[0]
        return failed + length * np.exp(-length / mtbf)

    length = restart + interval + write
    again = until(length, 0.0) / np.exp(-length / mtbf)  # from a restart to the end: x = until(length, x)
    assert segment_time(interval, write, mtbf, restart) == pytest.approx(until(interval + write, again), rel=1e-9)


def test_without_failures_only_the_writes_cost():
    assert overhead(100.0, 5.0, 1e15, 600.0) == pytest.approx(0.05, rel=1e-9)
    assert first_order_overhead(100.0, 5.0, 1e15, 600.0) == pytest.approx(0.05, rel=1e-9)
    assert best_goodput(1e-9, 1e12) == pytest.approx(1, abs=1e-9)


def test_without_writes_and_restarts_the_wall_clock_is_the_law_of_starting_again():
    assert segment_time(2.0, 0.0, 0.5) == pytest.approx((np.exp(2.0 / 0.5) - 1) * 0.5)


def test_first_order_and_exact_overhead_meet_when_failures_are_rare():
    tau = np.array([0.01, 0.02])
    first, exact = first_order_overhead(tau, 1e-4, 1.0, 1e-3), overhead(tau, 1e-4, 1.0, 1e-3)
    assert first == pytest.approx(exact, rel=0.02)
    assert np.all(first < exact)


def test_the_wall_clock_of_a_job_counts_its_last_shorter_segment():
    whole, rest = segment_time(10.0, 1.0, 40.0, 3.0), segment_time(4.0, 1.0, 40.0, 3.0)
    assert expected_wall_clock(34.0, 10.0, 1.0, 40.0, 3.0) == pytest.approx(3 * whole + rest)
    assert expected_wall_clock(30.0, 10.0, 1.0, 40.0, 3.0) == pytest.approx(3 * whole)
    assert expected_wall_clock(0.3, 0.1, 0.0, 1e9) == pytest.approx(0.3)  # 0.3/0.1 is just below 3
    assert expected_wall_clock(0.7, 0.1, 1.0, 1e9) == pytest.approx(7.7)  # 0.7/0.1 rounds just below 7
    assert expected_wall_clock(4.0, 10.0, 1.0, 40.0, 3.0) == pytest.approx(rest)


def test_overhead_is_per_useful_second_and_waste_per_second_of_wall_clock():
    a, b = overhead(8.0, 1.0, 30.0, 2.0), waste(8.0, 1.0, 30.0, 2.0)
    assert segment_time(8.0, 1.0, 30.0, 2.0) == pytest.approx(8.0 * (1 + a))
    assert b == pytest.approx(a / (1 + a))


def test_the_first_order_law_says_52_percent_where_the_truth_is_77():
    write, mtbf = 2450.0, 5 * hour
    young, best = young_interval(write, mtbf), exact_interval(write, mtbf)
    assert young == pytest.approx(9391, abs=1)
    assert best == pytest.approx(7834, abs=1)
    assert first_order_overhead(young, write, mtbf) == pytest.approx(0.522, abs=5e-4)
    assert overhead(best, write, mtbf) == pytest.approx(0.771, abs=5e-4)
    assert overhead(young, write, mtbf) == pytest.approx(0.784, abs=5e-4)
    assert waste(best, write, mtbf) == pytest.approx(0.435, abs=5e-4)
    assert waste(young, write, mtbf) == pytest.approx(0.439, abs=5e-4)
    assert first_order_overhead(young / 10, write / 100, mtbf) == pytest.approx(0.0522, abs=5e-5)
    assert 0.03 < overhead(exact_interval(24.5, mtbf), 24.5, mtbf) / 0.0522 - 1 < 0.04


@pytest.mark.parametrize("restart", [0.0, 0.4])
@pytest.mark.parametrize("write", [1e-3, 0.1, 3.0])
def test_the_best_goodput_is_the_goodput_at_the_best_interval(write, restart):
    at_best = 1 - waste(exact_interval(write, 1.0), write, 1.0, restart)
    assert best_goodput(write, 1.0, restart) == pytest.approx(at_best, rel=1e-12)


def test_a_wrong_interval_costs_nothing_at_the_optimum_and_more_on_each_side():
    best = exact_interval(0.02, 1.0)
    loss = regret(best * np.array([0.5, 0.8, 1.0, 1.25, 2.0]), 0.02, 1.0)
    assert loss[2] == pytest.approx(0, abs=1e-14)
    assert loss[0] > loss[1] > 0 < loss[3] < loss[4]
    assert loss[0] == pytest.approx(
        expected_wall_clock(600.0, best / 2, 0.02, 1.0, 0.1) / expected_wall_clock(600.0, best, 0.02, 1.0, 0.1) - 1,
        rel=0.02,
    )


def test_an_mtbf_wrong_by_a_factor_of_two_adds_six_percent_to_the_overhead():
    write = 1e-8
    for factor in (0.5, 2.0):
        loss = regret(exact_interval(write, factor), write, 1.0) / overhead(exact_interval(write, 1.0), write, 1.0)
        assert loss == pytest.approx((np.sqrt(2) + np.sqrt(0.5)) / 2 - 1, rel=1e-3)
        assert loss == pytest.approx(0.0607, abs=1e-4)


def test_bloom_saved_too_seldom_at_first_and_well_afterwards():  # C01
    step, write, mtbf = 105.22, 40.0, 604_800.0
    assert 250 * step / hour == pytest.approx(7.31, abs=0.005)
    assert young_interval(write, mtbf) == pytest.approx(6956, abs=0.5)
    assert young_interval(write, mtbf) / step == pytest.approx(66, abs=0.5)
    assert young_interval(write, mtbf) / hour == pytest.approx(1.93, abs=0.005)
    percent = 100 * first_order_overhead(step * np.array([250, 200, 100, 66, 20]), write, mtbf)
    assert percent == pytest.approx([2.33, 1.93, 1.25, 1.15, 2.07], abs=0.005)
    exact = 100 * overhead(step * np.array([250, 200, 100, 66, 20]), write, mtbf)
    assert exact == pytest.approx(percent, rel=0.02)
    assert exact[2] - exact[3] == pytest.approx(0.1, abs=0.005)


def test_a_plan_has_the_exact_numbers_and_says_its_regime():  # C06
    plan = Plan(10_480.0, day)
    assert plan.interval == exact_interval(10_480.0, day)
    assert plan.overhead == overhead(plan.interval, 10_480.0, day)
    assert plan.waste == pytest.approx(waste(plan.interval, 10_480.0, day))
    assert plan.regime == REGIMES[2] and type(plan.regime) is str
    assert young_interval(10_480.0, day) == pytest.approx(42_555, abs=1)
    assert young_interval(10_480.0, day) / hour == pytest.approx(11.8, abs=0.05)
    assert first_order_overhead(young_interval(10_480.0, day), 10_480.0, day) == pytest.approx(0.49, abs=0.005)
    assert young_interval(10_480.0, 5240.0) == pytest.approx(10_480)  # half the time saving: MTBF = 1.46 h
    assert 5240 / hour == pytest.approx(1.46, abs=0.005)
    assert list(Plan(np.array([0.01, 0.1, 2.0, 20.0]), 1.0, 0.5).regime) == list(REGIMES)
    assert list(Plan(np.array([0.0101, 0.101, 2.01]), 1.0).regime) == list(REGIMES[1:])
    assert Plan(600.0, 30.0).interval == pytest.approx(30)
    assert Plan(60.0, LLAMA3, 300.0).waste == pytest.approx(waste(exact_interval(60, LLAMA3), 60, LLAMA3, 300.0))


def test_the_regimes_are_where_their_words_say():
    ratio = np.array([0.01, 0.0101, 0.1])
    short = 1 - np.sqrt(2 * ratio) / overhead(exact_interval(ratio, 1.0), ratio, 1.0)
    assert np.round(short, 2) == pytest.approx([0.09, 0.09, 0.28])
    assert short[0] < 0.1


# Bytes and bandwidth.


def test_a_checkpoint_holds_14_bytes_per_parameter_since_gradients_are_not_saved():  # C02
    bloom = checkpoint_bytes(176.247e9)
    assert bloom / TB == pytest.approx(2.467, abs=5e-4)
    assert bloom / TiB == pytest.approx(2.244, abs=5e-4)
    assert checkpoint_bytes(176.25e9) == pytest.approx(2.47e12, rel=2e-3)
    assert 2.3 * TB / 40 / GB == pytest.approx(57.5)
    assert implied_aggregate_bandwidth(2.3 * TB, 40.0) / GB == pytest.approx(57.5)
    assert implied_aggregate_bandwidth(bloom, 40.0) / GB == pytest.approx(61.7, abs=0.05)


def test_slow_saves_betray_one_stream():  # C07
    fp32_adam = checkpoint_bytes(8_030_261_248, weights=4, master=0, moments=8)
    assert fp32_adam / GB == pytest.approx(96.4, abs=0.05)
    assert implied_aggregate_bandwidth(fp32_adam, 360.0) / GB == pytest.approx(0.27, abs=0.005)
    weights = checkpoint_bytes(70.6e9, weights=2, master=0, moments=0)
    assert weights / GB == pytest.approx(141, abs=0.5)
    assert implied_aggregate_bandwidth(weights, 1000.0) / GB == pytest.approx(0.14, abs=0.005)


def test_shards_write_at_once_until_the_storage_is_full():
    write = write_time(1 * TB, writers=[1, 4, 100], bandwidth_per_writer=2 * GB, bandwidth_aggregate=50 * GB)
    assert write == pytest.approx([500, 125, 20])


def test_a_bandwidth_must_be_named():
    with pytest.raises(TypeError):
        write_time(1 * TB, 8, 2 * GB, 50 * GB)
    with pytest.raises(TypeError):
        write_time(1 * TB, writers=8, bandwidth=2 * GB)


@pytest.mark.parametrize("restart", [0.0, 100.0])
def test_the_longest_write_wastes_just_what_is_allowed(restart):
    target = np.array([0.05, 0.1, 0.6])
    write = longest_write(target, LLAMA3, restart)
    assert 1 - best_goodput(write, LLAMA3, restart) == pytest.approx(target, rel=1e-9)
    assert aggregate_bandwidth_for_waste(5 * TB, target, LLAMA3, restart) == pytest.approx(5 * TB / write)


def test_five_percent_of_waste_leaves_about_an_eight_hundredth_of_the_mtbf_to_write():
    assert longest_write(0.05, 1.0) == pytest.approx(0.05**2 / 2, rel=0.04)


def test_a_restart_alone_can_waste_more_than_is_allowed():
    with pytest.raises(ValueError, match="no write is short enough"):
        longest_write(0.05, 1000.0, 52.0)
    assert longest_write(0.05, 1000.0, 51.0) > 0


# Asynchronous, in memory, on two levels.


def played_asynchronous(rng, snapshots, interval, blocking, latency, mtbf, restart):
    """One job, event by event: snapshots at the end of each segment, durable `latency` later."""
    clock = pause = 0.0
    durable = 0  # the last snapshot to fall back to
    while True:
        gap, now, taken = rng.exponential(mtbf), pause, durable
        pending = []  # (moment it is durable, number)
        while True:
            end = now + interval + blocking
            pending.append((end + latency, taken + 1))
            if taken + 1 == snapshots:
                break
            now, taken = end, taken + 1
        last = pending[-1][0]
        if gap >= last:
            return clock + last
        durable = max([durable] + [number for moment, number in pending if moment <= gap])
        clock, pause = clock + gap, restart


def test_asynchronous_snapshots_cost_as_a_longer_restart_does():
    interval, blocking, latency, mtbf, restart, snapshots = 5.0, 0.2, 3.0, 40.0, 2.0, 12
    rng = np.random.default_rng(5)
    low, high = mean_interval(
        np.array([played_asynchronous(rng, snapshots, interval, blocking, latency, mtbf, restart) for _ in range(8000)])
    )
    first = segment_time(interval, blocking + latency, mtbf, restart)  # the first must become durable from nothing
    rest = asynchronous_segment_time(interval, blocking, latency, mtbf, restart)
    assert low < first + (snapshots - 1) * rest < high


def test_asynchronous_without_latency_is_synchronous_and_the_next_snapshot_waits():
    assert asynchronous_segment_time(5.0, 0.2, 0.0, 40.0, 2.0) == segment_time(5.0, 0.2, 40.0, 2.0)
    assert asynchronous_interval(0.2, 1.0, 40.0) == exact_interval(0.2, 40.0)
    assert asynchronous_interval(0.2, 9.0, 40.0) == 9
    with pytest.raises(ValueError, match=r"latency/interval must be a number from 0 to 1, got 1\.2"):
        asynchronous_segment_time(5.0, 0.2, 6.0, 40.0)
    best = least(lambda tau: asynchronous_segment_time(tau, 0.2, 1.0, 40.0, 2.0) / tau, 1, 40)
    assert asynchronous_interval(0.2, 1.0, 40.0) == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("nodes, copies, failed", [
    (8, 2, 2), (8, 2, 3), (8, 2, 5), (9, 3, 4), (12, 3, 6), (6, 1, 1), (6, 6, 6), (8, 2, 0), (8, 4, 3),
])  # fmt: skip
def test_the_survival_of_peer_copies_is_that_of_all_ways_to_fail(nodes, copies, failed):
    groups = [set(range(first, first + copies)) for first in range(0, nodes, copies)]
    ways = [not any(group <= set(dead) for group in groups) for dead in combinations(range(nodes), failed)]
    assert group_survival(nodes, copies, failed) == pytest.approx(np.mean(ways), abs=1e-12)


def test_groups_must_fill_the_nodes():
    with pytest.raises(ValueError, match="nodes must be a multiple of copies = 3"):
        group_survival(8, 3, 1)
    with pytest.raises(ValueError, match="at least failed = 9"):
        group_survival(8, 2, 9)


def test_each_level_is_written_by_youngs_law_of_its_own_failures():
    near, far, mtbf, coverage = 0.2, 5.0, 1000.0, 0.8

    def cost(log_tau):
        tau_near, tau_far = np.exp(log_tau)
        return near / tau_near + far / tau_far + (coverage * tau_near + (1 - coverage) * tau_far) / (2 * mtbf)

    best = np.exp(minimize(cost, [2.0, 5.0], tol=1e-12).x)
    assert two_level_intervals(near, far, mtbf, coverage) == pytest.approx(best, rel=1e-4)


def test_a_near_copy_that_survives_nothing_leaves_one_level():
    assert two_level_overhead(7.0, 1, 0.0, 0.5, 60.0, 0.0, 9.0, 2.0) == pytest.approx(overhead(7.0, 0.5, 60.0, 2.0))
    four = two_level_overhead(7.0, 4, 0.1, 0.5, 60.0, 0.0, 9.0, 2.0)
    assert four == pytest.approx(segment_time(28.0, 0.9, 60.0, 2.0) / 28 - 1)


def test_a_near_copy_that_survives_everything_makes_far_writes_a_mere_cost():
    all_near = two_level_overhead(7.0, 3, 0.5, 0.0, 60.0, 1 - 1e-9, 2.0, 50.0)
    assert all_near == pytest.approx(overhead(7.0, 0.5, 60.0, 2.0), rel=1e-5)


@pytest.mark.parametrize("every", [1, 2, 5])
@pytest.mark.parametrize("coverage, near_restart, far_restart", [(0.8, 5.0, 30.0), (0.5, 10.0, 10.0), (0.9, 0.0, 0.0)])
def test_the_two_level_law_is_the_mean_of_simulated_jobs(every, coverage, near_restart, far_restart):
    costs = (60.0, every, 2.0, 20.0)
    runs = simulate_two_level(exponential_failures(360.0), 60.0 * 20, *costs, coverage, near_restart, far_restart,
                              runs=20_000, seed=every)  # fmt: skip
    low, high = mean_interval(runs.wall_clock)
    exact = two_level_overhead(*costs, 360.0, coverage, near_restart, far_restart)
    assert low < 1200 * (1 + exact) < high


# Found out.


def test_robust_scores_are_deviations_of_a_normal_law_and_bad_ranks_do_not_move_them():
    z = norm.ppf((np.arange(2001) + 0.5) / 2001)
    assert robust_scores(3.0 + 0.2 * z) == pytest.approx(z, rel=1e-3, abs=1e-6)
    slow = 3.0 + 0.2 * z
    slow[-40:] = 1e6
    assert robust_scores(slow)[:-40] == pytest.approx(z[:-40], rel=0.05, abs=0.05)
    assert robust_scores(np.array([slow, 7 * slow]))[1] == pytest.approx(robust_scores(slow))


def test_the_cusum_is_the_largest_sum_of_late_scores_or_nothing():
    scores = np.random.default_rng(3).standard_normal((40, 3)) + [0.0, 0.5, 1.0]
    for step, sums in enumerate(cusum(scores, 0.4)):
        tails = np.cumsum(scores[step::-1] - 0.4, axis=0)
        assert sums == pytest.approx(np.maximum(0, tails.max(axis=0)))


@pytest.mark.parametrize("limit, drift, shift", [(4.0, 0.5, 0.0), (4.0, 0.5, 0.5), (5.0, 0.5, 1.0), (6.0, 1.0, 3.0)])
def test_the_run_length_is_the_mean_of_played_alarms(limit, drift, shift):
    rng, runs = np.random.default_rng(7), np.zeros(3000)
    sums, watching = np.zeros(3000), np.ones(3000, bool)
    while watching.any():
        runs[watching] += 1
        sums[watching] = np.maximum(0, sums[watching] + rng.standard_normal(watching.sum()) + shift - drift)
        watching &= sums <= limit
    assert cusum_run_length(limit, drift, shift) == pytest.approx(np.mean(runs), rel=0.1)


def test_the_run_length_has_siegmunds_constant_and_its_limits():
    overshoot = 2 * 1.4603545088 / np.sqrt(2 * np.pi)  # −2·ζ(1/2)/√(2π)
    assert np.sqrt(cusum_run_length(0.01, 0.7, 0.7)) == pytest.approx(0.01 + overshoot, rel=2e-3)
    around = cusum_run_length(4.0, 0.7, [0.7 - 1e-4, 0.7, 0.7 + 1e-4])
    assert around == pytest.approx(around[1], rel=1e-3)
    assert cusum_run_length(50.0, 0.5, 2.0) == pytest.approx((50 + overshoot) / 1.5, rel=0.02)  # the drift alone
    assert cusum_run_length(4.0, 0.5) == cusum_run_length(4.0, 0.5, 0.0)
    assert cusum_run_length(np.ones((3, 1)), np.ones(4), 0.5).shape == (3, 4)


def test_a_warning_of_90_s_loses_a_checkpoint_that_takes_a_step_of_105_s_and_a_write_of_40():  # C09
    step, write, rng = 105.22, 40.0, np.random.default_rng(9)
    assert saved_in_time(step + write, step, write) == 1  # 145 s
    assert saved_in_time(step + write - 1, step, write) < 1
    left = step * rng.random(100_000)  # of the step in which the warning comes
    for lead in (30.0, 90.0, 120.0, 145.3, 600.0):
        low, high = mean_interval((left + write <= lead).astype(float))
        assert low <= saved_in_time(lead, step, write) <= high
    assert saved_in_time(90.0, step, write) == pytest.approx(0.475, abs=5e-4)
    assert saved_in_time([30.0, 40.0], step, write).tolist() == [0, 0]


# Kept ready.


def test_spares_suffice_as_often_as_few_enough_nodes_fail():
    fails = np.random.default_rng(4).poisson(3.0, 200_000)
    for spares in range(7):
        low, high = mean_interval((fails <= spares).astype(float))
        assert low < spares_suffice(spares, 30.0, 10.0) < high
    assert spares_suffice(0, 5.0, 10.0) == pytest.approx(survival(5.0, 10.0))
    assert spares_suffice(np.arange(3), 2.0, 1.0) == pytest.approx(poisson.cdf(np.arange(3), 2.0))


@pytest.mark.parametrize("shape", [0.5, 1.0, 4.0])
def test_with_repair_the_nodes_away_are_poisson_whatever_the_repair_takes(shape):
    rng = np.random.default_rng(6)
    failed = np.cumsum(rng.exponential(10.0, 100_000))
    back = failed + 25.0 * rng.gamma(shape, 1 / shape, failed.size)
    seen = rng.uniform(1000, failed[-1], 4000)
    away = np.searchsorted(failed, seen) - np.searchsorted(np.sort(back), seen)
    for spares in (0, 2, 5):
        low, high = mean_interval((away <= spares).astype(float))
        assert low - 0.01 < spares_suffice(spares, 25.0, 10.0) < high + 0.01


@pytest.mark.parametrize("stall, rebuild, replicas", [(3.0, 10.0, 12), (0.0, 20.0, 4), (5.0, 0.0, 3), (2.0, 9.0, 1)])
def test_an_elastic_job_loses_the_stall_and_a_share_of_the_rebuilding(stall, rebuild, replicas):
    rng, mtbf = np.random.default_rng(8), 18.0
    failed = np.cumsum(rng.exponential(mtbf, 400_000))
    whose = rng.integers(replicas, size=failed.size)
    seen = rng.uniform(100, failed[-1], 40_000)

    def since(times):
        last = np.searchsorted(times, seen) - 1
        return np.where(last >= 0, seen - times[np.maximum(last, 0)], np.inf)

    works = (since(failed) > stall) & (since(failed[whose == 0]) > stall + rebuild)  # of replica 0, all alike
    low, high = mean_interval(works.astype(float))
    assert low < np.exp(-elastic_restart(stall, rebuild, replicas) / mtbf) < high
    assert best_goodput(1e-12, mtbf, elastic_restart(stall, rebuild, replicas)) == pytest.approx(
        np.exp(-(stall + rebuild / replicas) / mtbf), rel=1e-5
    )


@pytest.mark.parametrize("repair", [0.05, 1.0, 7.0])
def test_a_pair_lasts_as_its_markov_chain_says(repair):
    part = 3.0
    rates = np.array([[-2 / part, 2 / part], [1 / repair, -1 / repair - 1 / part]])  # both up; one up
    assert paired_mtbf(part, 1, repair) == pytest.approx(np.linalg.solve(rates, [-1.0, -1.0])[0], rel=1e-12)


def test_many_pairs_last_as_long_as_played_ones():
    rng, part, repair, pairs = np.random.default_rng(2), 100.0, 1.0, 50
    ends = []
    for _ in range(200):
        clock, down = 0.0, np.zeros(pairs, bool)  # of each pair, whether one is down
        while True:
            rate = np.append(2 * ~down + down, 0) / part + np.append(down / repair, 0)
            clock += rng.exponential(1 / rate.sum())
            pair = rng.choice(pairs + 1, p=rate / rate.sum())
            if down[pair] and rng.random() < (1 / part) / (1 / part + 1 / repair):
                break
            down[pair] = ~down[pair]
        ends.append(clock)
    low, high = mean_interval(np.array(ends))
    assert low < paired_mtbf(part, pairs, repair) < high


@pytest.mark.parametrize("stage, after", [(0, 5), (1, 9), (2, 1), (3, 12), (1, 0), (0, 24)])
def test_a_stage_replays_from_the_logs_of_its_neighbours_what_it_had_done_and_no_more(stage, after):
    microbatches, stages, w = 12, 4, 0.7
    rng = np.random.default_rng(stage)
    came, returned = rng.standard_normal((2, microbatches, 5))  # inputs from before, gradients from behind, logged
    ahead = min(microbatches, stages - stage)
    order = [("F", j) for j in range(ahead)]
    for j in range(microbatches):
        order += [("B", j), ("F", j + ahead)][: 1 + (j + ahead < microbatches)]

    def work(actions, gradient, kept):
        spent = 0.0
        for kind, j in actions:
            if kind == "F":
                kept[j] = np.tanh(w * came[j])
            else:
                gradient = gradient + np.sum(returned[j] * (1 - kept.pop(j) ** 2) * came[j])
            spent += {"F": 1.5, "B": 2.5}[kind]
        return gradient, kept, spent

    whole, _, _ = work(order, 0.0, {})
    had = order[:after]
    gradient, kept, spent = work(had, 0.0, {})  # lost now
    done = [j for kind, j in had if kind == "B"]
    again = [(kind, j) for j in done for kind in "FB"] + [("F", j) for kind, j in had if kind == "F" and j not in done]
    gradient, kept, spent = work(again, 0.0, {})
    assert stage_replay_time(len(done), len(kept), 1.5, 2.5) == pytest.approx(spent)
    assert work(order[after:], gradient, kept)[0] == whole


# Size and money.


def test_useful_ranks_are_ranks_times_goodput():
    assert useful_ranks(1000, 4e6, 60.0, 90.0) == pytest.approx(1000 * best_goodput(60.0, 4000.0, 90.0))


@pytest.mark.parametrize("write, restart", [(60.0, 0.0), (60.0, 300.0), (600.0, 60.0), (1.0, 600.0)])
def test_useful_ranks_peak_where_the_law_says_and_then_fall(write, restart):
    part = 50_000 * hour
    peak = most_useful_ranks(part, write, restart)
    found = least(lambda n: -useful_ranks(np.round(n), part, write, restart), 1e3, 1e8)
    assert peak == pytest.approx(found, rel=2e-3)
    mtbf = part / peak
    assert write / exact_interval(write, mtbf) == pytest.approx(1 - restart / mtbf, rel=1e-9)
    useful = useful_ranks(np.round(peak * np.array([0.5, 1, 2])), part, write, restart)
    assert useful[0] < useful[1] > useful[2]


def test_the_peak_has_its_two_limits():
    assert 1e6 / most_useful_ranks(1e6, 60.0) == pytest.approx(1.255 * 60, rel=1e-3)
    assert 1e6 / most_useful_ranks(1e6, 1e-9, 300.0) == pytest.approx(300, rel=1e-4)


def test_waste_is_priced_in_gpu_hours():
    assert wasted_time(16384, 54 * day, 0.1) / hour == pytest.approx(16384 * 1296 * 0.1)
    assert wasted_money(16384, 54 * day, 0.1, 2 / hour) == pytest.approx(2 * 16384 * 1296 * 0.1)


# Runs under failures, simulated.


def listed(gaps):
    """Failures at the given gaps, in order, for one run."""
    gaps = iter(gaps)
    return Failures(1.0, lambda t: np.zeros_like(t), lambda rng, size: np.array([next(gaps)]))


def played(gaps, far, work, interval, every, near_write, far_write, near_restart, far_restart):
    """One job, segment by segment: wall-clock, failures, and time in restarts."""
    segments, clock, failures, pausing = int(np.ceil(work / interval - 1e-9)), 0.0, 0, 0.0
    done, pause = 0, 0.0
    for gap, is_far in zip(gaps, far, strict=True):
        now, at = pause, done
        if gap < pause:
            pausing += gap
            pause = far_restart if is_far or pause == far_restart else near_restart
        else:
            pausing += pause
            while at < segments:
                piece = min(interval, work - at * interval) + near_write
                piece += far_write if (at + 1) % every == 0 else 0
                if now + piece > gap:
                    break
                now, at = now + piece, at + 1
            if at == segments:
                return clock + now, failures, pausing
            done, pause = at, near_restart
            if is_far:
                pause = far_restart
        if is_far:
            done = done // every * every
        clock, failures = clock + gap, failures + 1
    raise AssertionError("the list of gaps is too short")


@pytest.mark.parametrize("seed", range(12))
def test_a_simulated_job_is_the_job_played_segment_by_segment(seed):
    rng = np.random.default_rng(seed)
    work, interval, every = 200.0 + 10 * rng.random(), 7.0, int(rng.integers(1, 5))
    costs = (0.5, 2.0, *((1.0, 4.0) if seed % 3 else (3.0, 3.0)))
    gaps, coverage = rng.exponential(25.0, 4000), 0.7
    far = np.random.default_rng(seed).random(4000) >= coverage  # the draws that the simulation makes
    runs = simulate_two_level(listed(gaps), work, interval, every, *costs[:2], coverage, *costs[2:], 1, seed)
    clock, failures, pausing = played(gaps, far, work, interval, every, *costs)
    assert runs.wall_clock[0] == pytest.approx(clock, rel=1e-12)
    assert runs.failures[0] == failures > 3
    assert runs.restarting[0] == pytest.approx(pausing, rel=1e-12)


@pytest.mark.parametrize("interval, write, mtbf, restart", [
    (30.0, 2.0, 200.0, 0.0), (30.0, 2.0, 200.0, 15.0), (60.0, 20.0, 90.0, 10.0), (20.0, 40.0, 30.0, 5.0),
])  # fmt: skip
def test_the_expected_wall_clock_is_the_mean_of_simulated_jobs(interval, write, mtbf, restart):
    work = 10.5 * interval
    runs = simulate(exponential_failures(mtbf), work, interval, write, restart, seed=3)
    low, high = mean_interval(runs.wall_clock)
    assert low < expected_wall_clock(work, interval, write, mtbf, restart) < high
    assert (high - low) / high < 0.03


@pytest.mark.parametrize("failures", [
    exponential_failures(100.0), weibull_failures(100.0, 0.6), weibull_failures(100.0, 2.0),
    burst_failures(100.0, 0.5, 6.0),
])  # fmt: skip
def test_the_renewal_goodput_is_the_rate_of_long_simulated_jobs(failures):
    """Twice the work takes longer by just the rate: the two ends of the job cancel."""
    short, long = (simulate(failures, work, 15.0, 2.0, 4.0, seed=7).wall_clock for work in (900.0, 2700.0))
    low, high = mean_interval(long - short)
    assert low < 1800 / renewal_goodput(15.0, 2.0, failures, 4.0) < high


def test_the_renewal_goodput_of_exponential_failures_is_the_exact_one():
    tau = np.array([0.02, 5.0, 20.0, 80.0])  # the first has thousands of segments between two failures
    for write in (0.001, 2.0):
        exact = 1 - waste(tau, write, 70.0, 9.0)
        assert renewal_goodput(tau, write, exponential_failures(70.0), 9.0) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("failures", [
    exponential_failures(100.0), weibull_failures(100.0, 0.6), weibull_failures(100.0, 2.5),
    burst_failures(100.0, 0.5, 6.0),
])  # fmt: skip
def test_each_law_of_failures_has_its_mean_and_draws_from_its_survival(failures):
    gaps = failures.draw(np.random.default_rng(11), 40_000)
    low, high = mean_interval(gaps)
    assert low < failures.mtbf == 100 < high
    for t in (3.0, 50.0, 150.0):
        low, high = mean_interval((gaps > t).astype(float))
        assert low < failures.survival(t) < high
    assert quad(failures.survival, 0, np.inf, limit=200)[0] == pytest.approx(100, rel=1e-6)


def test_weibull_of_shape_one_is_exponential():
    t = np.linspace(0, 300, 7)
    assert weibull_failures(100.0, 1.0).survival(t) == pytest.approx(exponential_failures(100.0).survival(t))


def test_the_time_of_a_run_is_work_writing_loss_and_restarts_and_nothing_else():
    for every, coverage in ((1, 0.0), (3, 0.6)):
        runs = simulate_two_level(weibull_failures(50.0, 0.7), 301.0, 10.0, every, 0.5, 2.0, coverage, 1.0, 5.0, 500, 9)
        parts = runs.work + runs.writing + runs.lost + runs.restarting
        assert runs.wall_clock == pytest.approx(parts, rel=1e-12)
        assert runs.writing == pytest.approx(31 * 0.5 + 31 // every * 2.0)
        assert np.all(runs.lost >= 0) and np.all(runs.restarting >= 0)


def test_a_run_without_failures_is_its_work_and_its_writes():
    runs = simulate(exponential_failures(1e15), 100.0, 30.0, 1.0, 5.0, runs=3)
    assert runs.wall_clock == pytest.approx([104.0] * 3)
    assert not runs.failures.any() and not runs.lost.any() and not runs.restarting.any()


def test_the_same_seed_gives_the_same_runs():
    one, two, other = (simulate(exponential_failures(50.0), 300.0, 10.0, 1.0, 2.0, 50, seed) for seed in (4, 4, 5))
    assert np.array_equal(one.wall_clock, two.wall_clock)
    assert not np.array_equal(one.wall_clock, other.wall_clock)


def test_the_confidence_interval_of_a_mean_covers_it_19_times_in_20():
    samples = np.random.default_rng(8).exponential(1.0, (2000, 400))
    ends = np.array([mean_interval(row) for row in samples])
    covered = np.mean((ends[:, 0] < 1) & (ends[:, 1] > 1))
    assert 0.935 < covered < 0.96
    assert mean_interval(np.array([0.0, 2.0])) == pytest.approx((1 - norm.ppf(0.975), 1 + norm.ppf(0.975)), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("write, restart", [(60.0, 300.0), (300.0, 600.0), (10.0, 0.0)])
def test_54_days_on_16384_gpus_take_as_long_as_expected(write, restart):
    tau = exact_interval(write, LLAMA3)
    runs = simulate(exponential_failures(LLAMA3), 48 * day, tau, write, restart, seed=54)
    low, high = mean_interval(runs.wall_clock)
    assert low < expected_wall_clock(48 * day, tau, write, LLAMA3, restart) < high


# All laws.

FAILING = exponential_failures(1.0)
DEFAULTS = [  # where the restart or restarts come last
    (first_order_overhead, (2.0, 0.3, 10.0), 1), (segment_time, (2.0, 0.3, 10.0), 1),
    (expected_wall_clock, (50.0, 2.0, 0.3, 10.0), 1), (overhead, (2.0, 0.3, 10.0), 1), (waste, (2.0, 0.3, 10.0), 1),
    (best_goodput, (0.3, 10.0), 1), (longest_write, (0.1, 10.0), 1),
    (aggregate_bandwidth_for_waste, (7.0, 0.1, 10.0), 1), (asynchronous_segment_time, (2.0, 0.3, 1.0, 10.0), 1),
    (two_level_overhead, (2.0, 3, 0.1, 0.3, 10.0, 0.5), 2), (useful_ranks, (4, 40.0, 0.3), 1),
    (most_useful_ranks, (40.0, 0.3), 1), (renewal_goodput, (2.0, 0.3, FAILING), 1),
    (lambda *args: Plan(*args).waste, (0.3, 10.0), 1),
    (lambda *args: simulate(FAILING, *args, runs=9).wall_clock.sum(), (9.0, 0.5, 0.1), 1),
    (lambda *args: simulate_two_level(FAILING, *args, runs=9).wall_clock.sum(), (9.0, 0.5, 2, 0.1, 0.2, 0.6), 2),
]  # fmt: skip


@pytest.mark.parametrize("law, arguments, restarts", DEFAULTS)
def test_a_restart_that_is_not_given_takes_no_time(law, arguments, restarts):
    for given in range(restarts):
        assert law(*arguments, *[0.0] * given) == law(*arguments, *[0.0] * restarts)
    assert law(*arguments, *[0.01] * restarts) != law(*arguments)


def test_ten_thousand_runs_are_simulated_unless_said_otherwise():
    assert simulate(FAILING, 1.0, 0.5, 0.1).wall_clock.shape == (10_000,)
    assert simulate_two_level(FAILING, 1.0, 0.5, 2, 0.1, 0.1, 0.5).wall_clock.shape == (10_000,)


TIMES = [  # each of times alone, so that scaling every argument scales a time and leaves a share
    (young_interval, (3.0, 100.0), True), (daly_interval, (3.0, 100.0), True), (exact_interval, (3.0, 100.0), True),
    (first_order_overhead, (20.0, 3.0, 100.0, 5.0), False), (segment_time, (20.0, 3.0, 100.0, 5.0), True),
    (expected_wall_clock, (500.0, 20.0, 3.0, 100.0, 5.0), True), (overhead, (20.0, 3.0, 100.0, 5.0), False),
    (waste, (20.0, 3.0, 100.0, 5.0), False), (best_goodput, (3.0, 100.0, 5.0), False),
    (regret, (20.0, 3.0, 100.0), False), (asynchronous_interval, (1.0, 30.0, 100.0), True),
    (asynchronous_segment_time, (20.0, 3.0, 7.0, 100.0, 5.0), True), (survival, (20.0, 100.0), False),
    (most_useful_ranks, (1e6, 3.0, 5.0), False),
]  # fmt: skip


@pytest.mark.parametrize("law, arguments, is_time", TIMES)
def test_a_change_of_the_unit_of_time_changes_times_and_no_share(law, arguments, is_time):
    scaled = law(*(60 * a for a in arguments))
    assert scaled == pytest.approx(law(*arguments) * (60 if is_time else 1), rel=1e-9)


@pytest.mark.parametrize("law, arguments, is_time", TIMES)
def test_every_law_broadcasts(law, arguments, is_time):
    first, second = (np.array([1.0, 1.1, 1.2])[:, None] * arguments[0], np.array([1.0, 1.5]) * arguments[1])
    result = law(first, second, *arguments[2:])
    assert result.shape == (3, 2)
    assert result[2, 1] == pytest.approx(law(1.2 * arguments[0], 1.5 * arguments[1], *arguments[2:]))


@pytest.mark.parametrize("call, name", [
    (lambda: system_mtbf(-1.0, 8), "part_mtbf"), (lambda: system_mtbf(1.0, 2.5), "ranks"),
    (lambda: combined_mtbf([1.0, 0.0], [2, 3]), "part_mtbf"), (lambda: combined_mtbf([1.0], [0]), "counts"),
    (lambda: mtbf_from_fit(0), "fit"), (lambda: mtbf_from_counts(0.0, 3), "exposure"),
    (lambda: mtbf_from_counts(1.0, -1), "failures"), (lambda: mtbf_from_counts(1.0, 1, 1.0), "confidence"),
    (lambda: mtbf_from_log([1.0, -2.0], [True, False]), "durations"), (lambda: mtbf_from_log([1.0], [2]), "failed"),
    (lambda: mtbf_from_log([1.0, 2.0], [True]), "failed"), (lambda: young_interval(-1.0, 10.0), "write"),
    (lambda: daly_interval(1.0, np.nan), "mtbf"), (lambda: exact_interval(0.0, 1.0), "write"),
    (lambda: exact_interval(1.0, "5 h"), "mtbf"), (lambda: first_order_overhead(0.0, 1.0, 9.0), "interval"),
    (lambda: segment_time(1.0, 1.0, 9.0, -1.0), "restart"), (lambda: expected_wall_clock(0.0, 1.0, 1.0, 9.0), "work"),
    (lambda: Plan(1.0, 0.0), "mtbf"), (lambda: checkpoint_bytes(0), "parameters"),
    (lambda: write_time(1.0, writers=0, bandwidth_per_writer=1.0, bandwidth_aggregate=1.0), "writers"),
    (lambda: longest_write(1.0, 5.0), "waste"), (lambda: two_level_intervals(1.0, 5.0, 99.0, 1.0), "coverage"),
    (lambda: two_level_overhead(1.0, 0, 1.0, 1.0, 9.0, 0.5), "every"), (lambda: group_survival(8, 0, 1), "copies"),
    (lambda: wasted_time(8, 1.0, 1.5), "waste"), (lambda: wasted_money(8, 1.0, 0.5, -1.0), "price"),
    (lambda: weibull_failures(1.0, 0.0), "shape"), (lambda: burst_failures(1.0, 1.0, 0.1), "share"),
    (lambda: burst_failures(1.0, 0.5, 3.0), "mtbf − share·short"),
    (lambda: simulate(exponential_failures(1.0), 1.0, 1.0, 1.0, runs=0), "runs"),
])  # fmt: skip
def test_a_value_outside_its_domain_is_named(call, name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        call()


def test_a_write_longer_than_any_gap_never_ends():
    assert overhead(1.0, 1e6, 1.0) == np.inf
    assert waste(1.0, 1e6, 1.0) == 1
    assert all(a < b for a, b in pairwise(overhead(exact_interval(RATIOS, 1.0), RATIOS, 1.0)))
