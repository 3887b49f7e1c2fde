"""The terms of a step against played timelines, simulated barriers, numerical optima and published cases."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import quad
from scipy.optimize import curve_fit, minimize_scalar
from scipy.stats import norm, t

from distlib import step as law
from distlib.checkpoint import mean_interval
from distlib.step import (
    DOUBLINGS,
    FIXED,
    WORK,
    Step,
    accumulated_time,
    amdahl_speedup,
    comm_share_if_reduced_once,
    exponential_jitter,
    exponential_wait,
    fit_critical_batch,
    fit_terms,
    gustafson_speedup,
    hidden_best_ranks,
    linear_best_ranks,
    linear_time,
    normal_jitter,
    normal_wait,
    pareto_jitter,
    pareto_wait,
    partly_overlapped,
    reductions_per_step,
    samples_to_target,
    simulated_waits,
    slow_node_wait,
    steps_to_target,
    strong_speedup,
    throughput_efficiency,
    weak_efficiency,
)

TIME = st.floats(0, 1e3)


def least(cost):
    """The argument at which `cost` is least, found numerically; the search is over its logarithm."""
    found = minimize_scalar(lambda x: cost(np.exp(x)), bounds=np.log([1.0, 1e9]), method="bounded",
                            options={"xatol": 1e-10})  # fmt: skip
    return np.exp(found.x)


# One step


@given(fraction=st.floats(0, 1), compute=TIME, ranks=st.floats(1, 1e5), comm=TIME, sync=TIME)
def test_a_step_lies_between_the_larger_of_its_two_sides_and_their_sum(fraction, compute, ranks, comm, sync):  # B15
    step = partly_overlapped(fraction, compute, ranks, comm, sync)
    larger, both = max(compute / ranks, comm + sync), compute / ranks + comm + sync
    assert larger * (1 - 1e-9) <= step.total <= both * (1 + 1e-9)
    assert step.total == pytest.approx(both - fraction * min(compute / ranks, comm + sync), rel=1e-9, abs=1e-9)


def test_with_twice_as_much_communication_half_of_the_overlap_gains_a_fifth_and_all_of_it_a_half():  # B15
    apart, half, full = (partly_overlapped(f, 1.0, 1, 2.0).total for f in (0, 0.5, 1))
    assert (apart / half, apart / full) == pytest.approx((1.20, 1.50))


@pytest.mark.parametrize("terms", [(8.0, 4, 1.0, 0.5), (8.0, 4, 3.0, 1.0), (0.0, 4, 1.0, 1.0), (8.0, 4, 0.0, 0.0)])
def test_a_step_that_hides_more_than_there_is_to_hide_raises(terms):
    compute, ranks, comm, sync = terms
    limit = min(compute / ranks, comm + sync)
    assert Step(*terms, limit).total == max(compute / ranks, comm + sync)
    with pytest.raises(ValueError, match=r"overlap beyond its bound must be at most min\(T_compute/N, T_comm"):
        Step(*terms, limit * 1.00001 + 1e-12)
    with pytest.raises(ValueError, match="overlap must be a finite number ≥ 0"):
        Step(*terms, -0.1)


def test_the_terms_of_a_step_add_up_and_broadcast():
    step = Step(np.array([[6.0], [12.0]]), np.array([1.0, 2.0, 3.0]), 1.0, 0.5, 0.25)
    assert step.share == pytest.approx(np.array([[6, 3, 2], [12, 6, 4]]))
    assert step.exposed == 1.25
    assert step.total == pytest.approx(step.share + 1.25)
    with pytest.raises(ValueError, match="at index"):
        Step(6.0, np.array([1.0, 24.0]), 1.0, 0.0, 0.5)
    with pytest.raises(AttributeError):
        step.comm = 0.0


def test_a_bad_count_is_refused_by_name():
    with pytest.raises(ValueError, match="ranks must be a finite number ≥ 1, got 0.5"):
        Step(1.0, 0.5, 0.0)


# Speedup and efficiency


def test_an_efficiency_is_another_number_with_another_baseline():  # B11
    one, eight, sixteen = 122.0, 8 * 110.0, 16 * 80.0  # samples/s of all GPUs
    node = throughput_efficiency(eight, 8, baseline_throughput=one, baseline_ranks=1)
    assert node == pytest.approx(0.902, abs=5e-4)
    assert throughput_efficiency(sixteen, 16, baseline_throughput=eight, baseline_ranks=8) == pytest.approx(
        0.727, abs=5e-4
    )
    assert throughput_efficiency(sixteen, 16, baseline_throughput=one, baseline_ranks=1) == pytest.approx(
        0.656, abs=5e-4
    )


@pytest.mark.parametrize("name", ["strong_speedup", "weak_efficiency", "throughput_efficiency"])
def test_no_efficiency_comes_without_its_baseline(name):
    with pytest.raises(TypeError, match="baseline"):
        getattr(law, name)(*([1.0] * (1 if name in ("strong_speedup", "weak_efficiency") else 2)))


def test_without_overhead_all_scaling_is_perfect():
    ranks = np.array([2.0, 16.0, 1024.0])
    strong, weak = Step(60.0, ranks, 0.0).total, Step(30.0 * ranks, ranks, 0.0).total
    assert strong_speedup(strong, baseline_time=30.0) == pytest.approx(ranks / 2)
    assert weak_efficiency(weak, baseline_time=30.0) == pytest.approx([1, 1, 1])


def test_amdahl_is_a_step_with_a_fixed_part_and_gustafson_the_same_step_with_growing_work():
    ranks, serial = np.array([1.0, 2.0, 7.0, 64.0]), 0.05
    strong = Step(100.0 * (1 - serial), ranks, 0.0, 100.0 * serial)
    assert strong_speedup(strong.total, baseline_time=100.0) == pytest.approx(amdahl_speedup(serial, ranks))
    assert amdahl_speedup(serial, 1e12) == pytest.approx(1 / serial)
    grown = Step(100.0 * (1 - serial) * ranks, ranks, 0.0, 100.0 * serial)
    alone = Step(100.0 * (1 - serial) * ranks, 1, 0.0, 100.0 * serial)
    assert alone.total / grown.total == pytest.approx(gustafson_speedup(serial, ranks))
    assert gustafson_speedup([0.0, 1.0], 9) == pytest.approx([9, 1])


# N*


def hidden_time(ranks, compute, fixed, growth):
    return partly_overlapped(1.0, compute, ranks, fixed + growth * ranks).total


@pytest.mark.parametrize("compute, fixed, growth", [(1e4, 0.3, 1e-3), (30.0, 0.0, 2e-5), (5e3, 2.0, 0.4)])
def test_beyond_the_closed_form_each_further_worker_slows_the_step(compute, fixed, growth):
    for time, best in ((linear_time, linear_best_ranks(compute, growth)),
                       (hidden_time, hidden_best_ranks(compute, fixed, growth))):  # fmt: skip
        assert best == pytest.approx(least(lambda n, time=time: time(n, compute, fixed, growth)), rel=1e-4)


def test_where_everything_can_just_hide_the_two_sides_are_equal():
    best = hidden_best_ranks(1e3, [0.1, 0.1, 0.0], [1e-4, 0.0, 1e-4])
    assert 1e3 / best == pytest.approx(np.array([0.1, 0.1, 0.0]) + [1e-4, 0, 1e-4] * best)
    with pytest.raises(ValueError, match=r"fixed \+ growth must be a finite number > 0"):
        hidden_best_ranks(1.0, 0.0, 0.0)


def test_a_cluster_has_at_least_one_worker():
    assert linear_best_ranks(1.0, 5.0) == hidden_best_ranks(1.0, 5.0, 0.0) == 1


def test_the_three_step_times_are_the_step_with_and_without_overlap():
    ranks = np.array([1.0, 10.0, 300.0])
    comm = 0.3 + 0.02 * ranks
    assert linear_time(ranks, 50.0, 0.3, 0.02) == pytest.approx(Step(50.0, ranks, comm).total)
    hidden = np.maximum(50.0 / ranks, comm)
    assert partly_overlapped(1.0, 50.0, ranks, comm).total == pytest.approx(hidden)


# Waiting for the slowest


@pytest.mark.parametrize("ranks", [8, 1024, 100_000])
@pytest.mark.parametrize("jitter, wait", [
    (normal_jitter(0.02), lambda n: normal_wait(n, 0.02)),
    (exponential_jitter(0.3), lambda n: exponential_wait(n, 0.3)),
    (pareto_jitter(0.3, 4.0), lambda n: pareto_wait(n, 0.3, 4.0)),
], ids=["normal", "exponential", "heavy-tailed"])  # fmt: skip
def test_a_barrier_waits_as_long_as_the_formula_says(jitter, wait, ranks):
    low, high = mean_interval(simulated_waits(jitter, ranks, 40_000_000 // (ranks + 1000) // 4, seed=5))
    assert low < wait(ranks) < high


def test_the_mean_of_the_largest_of_two_three_and_five_normals_is_known_in_closed_form():
    assert normal_wait([1, 2, 3], 2.0) == pytest.approx([0, 2 / np.sqrt(np.pi), 3 / np.sqrt(np.pi)], abs=1e-12)


@pytest.mark.parametrize("ranks", [2, 5, 300, 30_000, 10**7])
def test_the_wait_is_the_mean_of_the_largest_less_the_mean(ranks):
    def density(x, cdf, pdf):
        return x * ranks * np.exp((ranks - 1) * np.log(cdf(x))) * pdf(x)

    top = norm.isf(1 / ranks) if ranks > 2 else 0.5
    largest = sum(quad(density, a, b, (norm.cdf, norm.pdf), epsabs=1e-12, limit=200)[0]
                  for a, b in ((-8, top), (top, top + 8)))  # fmt: skip
    assert normal_wait(ranks, 1.0) == pytest.approx(largest, rel=1e-8)
    assert exponential_wait(ranks, 3.0) == pytest.approx(3 * sum(1 / k for k in range(2, min(ranks, 10**6) + 1))
                                                         + 3 * np.log(max(ranks, 10**6) / 10**6), rel=1e-6)  # fmt: skip


@pytest.mark.parametrize("tail", [1.5, 3.0, 20.0])
def test_the_heavy_tailed_wait_is_the_integral_of_its_law(tail):
    u = np.linspace(0, 80, 400_001)  # log(1 + x/scale), scale = mean·(tail − 1)
    for count in (1, 4, 50):
        beyond = -np.expm1(count * np.log1p(-np.exp(-tail * u[1:])))
        largest = 2.0 * (tail - 1) * np.trapezoid(np.exp(u) * np.append(1.0, beyond), u)
        assert pareto_wait(count, 2.0, tail) == pytest.approx(largest - 2.0, rel=1e-5, abs=1e-5)


def test_heavier_tails_wait_longer_and_grow_faster():
    ranks = np.array([1e2, 1e4])
    waits = [normal_wait(ranks, 1.0), exponential_wait(ranks, 1.0), pareto_wait(ranks, 1.0, 3.0)]
    assert np.all(np.diff(np.array(waits), axis=0) > 0)
    assert np.all(np.diff([w[1] / w[0] for w in waits]) > 0)


@pytest.mark.parametrize("wait", [normal_wait, exponential_wait, lambda n, t: pareto_wait(n, t, 3.0),
                                  lambda n, t: slow_node_wait(n, t, 1.2)])  # fmt: skip
def test_one_worker_waits_for_nobody_and_a_wait_is_a_time(wait):
    assert wait(1, 0.4) == pytest.approx(0, abs=1e-9)
    assert wait(np.array([[8.0], [64.0]]), np.array([1.0, 2.0, 4.0])).shape == (2, 3)
    assert wait(64.0, 3.0) == pytest.approx(3 * wait(64.0, 1.0))


def test_one_slow_node_delays_all_by_what_it_lacks_whatever_the_size():
    for ranks in (1, 8, 4096):
        times = np.full(ranks, 2.0)
        times[0] *= 1.06
        assert slow_node_wait(ranks, 2.0, 1.06) == pytest.approx(times.max() - times.mean(), abs=1e-12)
        assert Step(times.sum(), ranks, 0.0, slow_node_wait(ranks, 2.0, 1.06)).total == pytest.approx(2.12)


@pytest.mark.parametrize("tail", [2.5, 9.0])
def test_half_of_the_heavy_tailed_delays_exceed_their_median_and_their_law_has_the_mean_given(tail):
    draws = pareto_jitter(0.4, tail)(np.random.default_rng(9), (1000, 1000))
    scale = 0.4 * (tail - 1)
    assert np.mean(draws > scale * (2 ** (1 / tail) - 1)) == pytest.approx(0.5, abs=0.002)
    assert draws.mean() == pytest.approx(0.4, rel=0.006)


def test_a_node_that_is_not_slow_delays_nobody():
    assert slow_node_wait(8, 2.0, 1) == 0
    with pytest.raises(ValueError, match="slowdown must be a finite number ≥ 1"):
        slow_node_wait(8, 2.0, 0.99)


def test_simulated_waits_are_seeded_and_one_a_step():
    jitter = normal_jitter(1.0)
    waits = simulated_waits(jitter, 300_000, 5, seed=1)  # in blocks of three steps and of two
    assert waits.shape == (5,)
    assert np.array_equal(waits, simulated_waits(jitter, 300_000, 5, seed=1))
    assert not np.array_equal(waits, simulated_waits(jitter, 300_000, 5, seed=2))
    assert simulated_waits(jitter, 1_100_000, 2, seed=1).shape == (2,)


# Accumulation


def test_accumulation_saves_all_reductions_but_one():  # B12
    assert accumulated_time(3.0, 1.0, 4) == 13
    assert 4 * accumulated_time(3.0, 1.0, 1) - accumulated_time(3.0, 1.0, 4) == 3


def test_two_timings_tell_a_step_that_reduces_at_every_micro_step():  # B12
    one, four = 110.2, 430.6  # s
    assert four / one == pytest.approx(3.91, abs=0.005)
    share = comm_share_if_reduced_once(one, four, 4)
    assert share == pytest.approx(0.031, abs=5e-4)
    for communicates in (0.25, 0.5, 0.9):  # any share that would make accumulation worth its while
        assert round(float(reductions_per_step(one, four, 4, communicates))) == 4
    assert reductions_per_step(one, four, 4, share) == pytest.approx(1)


@given(compute=st.floats(0.1, 10), comm=st.floats(0.1, 10), accumulation=st.integers(2, 64))
def test_the_timings_of_a_known_step_give_back_what_it_does(compute, comm, accumulation):
    one, share = compute + comm, comm / (compute + comm)
    once = accumulated_time(compute, comm, accumulation)
    always = accumulation * accumulated_time(compute, comm, 1)
    assert comm_share_if_reduced_once(one, once, accumulation) == pytest.approx(share)
    assert comm_share_if_reduced_once(one, always, accumulation) == pytest.approx(0, abs=1e-9)
    assert reductions_per_step(one, [once, always], accumulation, share) == pytest.approx([1, accumulation])


# A larger batch


@given(batch=st.floats(1, 1e6), steps_min=st.floats(1, 1e5), critical=st.floats(1, 1e6))
def test_steps_and_samples_lie_on_the_hyperbola(batch, steps_min, critical):
    steps, samples = steps_to_target(batch, steps_min, critical), samples_to_target(batch, steps_min, critical)
    assert samples == pytest.approx(batch * steps)
    excess = (steps / steps_min - 1, samples / (steps_min * critical) - 1)
    assert excess[0] * excess[1] == pytest.approx(1, rel=1e-6)


def test_at_the_critical_batch_steps_and_samples_are_twice_their_least():
    assert steps_to_target(300.0, 10.0, 300.0) == pytest.approx(20)
    assert samples_to_target(300.0, 10.0, 300.0) == pytest.approx(2 * 3000)


def test_a_fit_finds_the_critical_batch_and_stays_near_it_in_noise():
    batch = 4.0 ** np.arange(7)
    steps = steps_to_target(batch, 50.0, 90.0)
    assert fit_critical_batch(batch, steps) == pytest.approx((50, 90))
    noisy = steps * np.exp(0.03 * np.random.default_rng(3).standard_normal(7))
    assert fit_critical_batch(batch, noisy) == pytest.approx((50, 90), rel=0.1)


# What step times tell of the terms


def test_a_fit_gives_back_the_terms_that_made_the_times():
    ranks = np.array([8.0, 32, 128, 512, 2048])
    fitted = fit_terms(ranks, 900 / ranks + 0.2 + 0.03 * np.log2(ranks), (WORK, FIXED, DOUBLINGS))
    assert fitted.constants == pytest.approx([900, 0.2, 0.03])
    assert fitted.residuals == pytest.approx(np.zeros(5), abs=1e-12)
    assert fitted.predict(64) == pytest.approx(900 / 64 + 0.2 + 0.18)


@pytest.mark.parametrize("terms, truth", [
    ((WORK, FIXED), (900.0, 0.4)), ((WORK, FIXED, DOUBLINGS), (900.0, 0.4, 1e-2)),
])  # fmt: skip
def test_the_intervals_hold_the_truth_nineteen_times_in_twenty(terms, truth):
    rng, ranks = np.random.default_rng(8), np.array([8.0, 32, 128, 512, 2048, 4096])
    clean = sum(c * term.of(ranks) for c, term in zip(truth, terms, strict=True))
    inside = []
    for _ in range(2000):
        fitted = fit_terms(ranks, clean / (1 + 0.02 * rng.standard_normal(6)), terms)
        inside.append((fitted.lower < truth) & (truth < fitted.upper))
    assert np.mean(inside, axis=0) == pytest.approx(0.95, abs=0.02)


def test_the_correlation_is_that_of_fits_to_many_samples():
    rng, ranks = np.random.default_rng(4), np.array([64.0, 128, 256, 512])
    clean = 600 / ranks + 0.3
    fits = [fit_terms(ranks, clean / (1 + 0.01 * rng.standard_normal(4)), (WORK, FIXED)) for _ in range(3000)]
    found = np.corrcoef(np.array([f.constants for f in fits]).T)[0, 1]
    assert fits[0].correlation[0, 1] == pytest.approx(found, abs=0.03)
    assert np.diag(fits[0].correlation) == pytest.approx([1, 1])
    design = np.stack([1 / ranks, np.ones(4)], axis=1) / clean[:, None]
    assert fits[0].condition == pytest.approx(np.linalg.cond(design / np.linalg.norm(design, axis=0)), rel=0.1)


def test_intervals_and_correlation_are_those_of_weighted_least_squares():
    ranks = np.array([64.0, 128, 256, 512, 2048])
    time = (600 / ranks + 0.3) * (1 + 0.02 * np.array([1, -1, 0.5, -2, 1]))
    fitted = fit_terms(ranks, time, (WORK, FIXED))
    best, covariance = curve_fit(lambda n, a, b: a / n + b, ranks, time, p0=(500, 1), sigma=time)
    spread = np.sqrt(np.diag(covariance))
    assert fitted.constants == pytest.approx(best, rel=1e-6)
    assert fitted.upper - fitted.constants == pytest.approx(t.ppf(0.975, 3) * spread, rel=1e-5)
    assert fitted.constants - fitted.lower == pytest.approx(t.ppf(0.975, 3) * spread, rel=1e-5)
    assert fitted.correlation[0, 1] == pytest.approx(covariance[0, 1] / spread.prod(), rel=1e-6)


def test_three_times_are_enough_for_two_terms():
    assert np.isfinite(fit_terms([8, 16, 32], [2.0, 1.1, 0.7], (WORK, FIXED)).upper).all()


def test_over_a_short_range_of_workers_a_constant_and_a_logarithm_look_alike():
    truth = lambda n: 900 / n + 0.2 + 0.03 * np.log2(n)  # noqa: E731
    short, long = np.array([256.0, 384, 512, 768, 1024]), np.array([1.0, 16, 256, 4096, 65536])
    near, far = (fit_terms(n, truth(n), (WORK, FIXED, DOUBLINGS)) for n in (short, long))
    assert near.condition > 10 * far.condition
    assert abs(near.correlation[1, 2]) > 0.99


def test_a_fit_needs_more_times_than_terms():
    with pytest.raises(ValueError, match="more than 2, got shapes"):
        fit_terms([8, 16], [2.0, 1.1], (WORK, FIXED))
    with pytest.raises(ValueError, match="more than 2, got shapes"):
        fit_terms([8, 16, 32], [2.0, 1.1, 0.7, 0.5], (WORK, FIXED))


@given(arrays(float, 4, elements=st.floats(0.5, 2)))
def test_doubling_all_times_doubles_all_constants(noise):
    ranks = np.array([8.0, 64, 512, 4096])
    once, twice = (fit_terms(ranks, s * noise, (WORK, FIXED)) for s in (1.0, 2.0))
    assert twice.constants == pytest.approx(2 * once.constants, rel=1e-6, abs=1e-9)
    assert twice.upper == pytest.approx(2 * once.upper, rel=1e-6, abs=1e-9)
