"""Principle 11: each formula against a played schedule, a numerical optimum or a published sweep."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlib.alphabeta import (
    CHUNKED,
    GROWING,
    LAUNCHED,
    LINE,
    TWO_PROTOCOLS,
    Link,
    best_bucket_count,
    best_chunk_count,
    chunked_time,
    compressed_time,
    effective_bandwidth,
    exposed_time,
    fit,
    growing_time,
    half_bandwidth_size,
    held_out,
    intervals,
    launched_time,
    leave_one_out,
    pipeline_time,
    size_for_fraction,
    split_time,
    transfer_time,
    two_protocol_time,
)
from distlib.published import sweep
from distlib.units import GB, MB, GiB, KiB, us

NDR = Link(5 * us, 50 * GB)
LAWS = [LINE, TWO_PROTOCOLS, CHUNKED, LAUNCHED, GROWING]
sizes = st.floats(1, 1e11)
links = st.builds(Link, st.floats(1e-7, 1e-3), st.floats(1e8, 1e12))


# One message


def test_a_message_costs_its_latency_and_its_bytes():
    assert transfer_time(0, NDR) == 5 * us
    assert transfer_time(1 * MB, NDR) == pytest.approx(25 * us)
    assert transfer_time(1 * MB, Link(0, 50 * GB)) == pytest.approx(20 * us)


def test_half_of_the_bandwidth_is_reached_at_half_bandwidth_size():
    assert half_bandwidth_size(NDR) == pytest.approx(250e3)
    assert effective_bandwidth(half_bandwidth_size(NDR), NDR) == pytest.approx(25 * GB)


@given(sizes, links)
def test_effective_bandwidth_is_bytes_over_time(n, link):
    assert effective_bandwidth(n, link) == pytest.approx(n / transfer_time(n, link))
    assert effective_bandwidth(n, link) <= link.beta


def test_without_latency_every_message_gets_the_whole_bandwidth():
    link = Link(0, 50 * GB)
    assert list(effective_bandwidth([1, 1e9], link)) == [50 * GB] * 2


@given(st.floats(0.001, 0.999), links)
def test_the_size_for_a_fraction_reaches_that_fraction(fraction, link):
    assert effective_bandwidth(size_for_fraction(fraction, link), link) == pytest.approx(fraction * link.beta)


def test_no_message_reaches_all_of_the_bandwidth():
    assert size_for_fraction(1, NDR) == np.inf
    assert size_for_fraction(0, NDR) == 0


@given(sizes, links, st.floats(1e-3, 1e3))
def test_units_scale(n, link, scale):
    slower = Link(scale * link.alpha, link.beta / scale)
    bigger = Link(link.alpha, scale * link.beta)
    assert transfer_time(n, slower) == pytest.approx(scale * transfer_time(n, link))
    assert transfer_time(scale * n, bigger) == pytest.approx(transfer_time(n, link))
    assert chunked_time(n, slower) == pytest.approx(scale * chunked_time(n, link))


# Many messages


@given(sizes, links, st.integers(1, 10_000))
def test_splitting_costs_one_latency_a_message_more(n, link, messages):
    assert split_time(n, messages, link) == pytest.approx(messages * transfer_time(n / messages, link))
    assert split_time(n, messages, link) - split_time(n, 1, link) == pytest.approx((messages - 1) * link.alpha)


def test_compression_pays_only_with_a_codec_faster_than_the_break_even():
    ratio = 4
    break_even = NDR.beta * ratio / (ratio - 1)
    for n in (1.0, 1e6, 1e12):
        assert compressed_time(n, ratio, break_even, NDR) == pytest.approx(transfer_time(n, NDR))
        assert compressed_time(n, ratio, 0.99 * break_even, NDR) > transfer_time(n, NDR)
        assert compressed_time(n, ratio, 1.01 * break_even, NDR) < transfer_time(n, NDR)


def test_a_ratio_of_one_leaves_the_message_and_adds_the_codec():
    assert compressed_time(1 * MB, 1, 10 * GB, NDR) == pytest.approx(125 * us)


def test_compression_leaves_the_latency_and_the_bandwidth_alone():
    assert compressed_time(4e9, 4, np.finfo(float).max, NDR) == pytest.approx(transfer_time(1e9, NDR))


def played_exposure(n, buckets, compute, link):
    """One stream computes, one sends: bucket i is ready at i·T_b/k and waits until the link is free."""
    free = 0.0
    for i in range(1, buckets + 1):
        free = max(free, i * compute / buckets) + link.alpha + n / buckets / link.beta
    return free - compute


@given(st.floats(0, 1e10), st.integers(1, 300), st.floats(0, 1), links)
def test_exposed_time_is_what_two_streams_leave_when_played(n, buckets, compute, link):
    played = played_exposure(n, buckets, compute, link)
    assert exposed_time(n, buckets, compute, link) == pytest.approx(played, rel=1e-9, abs=1e-9)


@given(st.floats(1e3, 1e10), st.floats(1e-4, 1), links)
def test_no_number_of_buckets_beats_the_best(n, compute, link):
    best = best_bucket_count(n, compute, link)
    near = np.unique([max(1, np.floor(best)), np.ceil(best)])
    every = np.unique(np.round(np.geomspace(1, 1e6, 500)))
    least = exposed_time(n, near, compute, link).min()
    assert least <= exposed_time(n, every, compute, link).min() * (1 + 1e-9)


def test_the_best_counts_are_never_below_one():
    assert best_bucket_count(1 * GB, 0, NDR) == 1
    assert best_chunk_count(1 * GB, 1, NDR) == 1


def test_the_last_bucket_is_always_exposed():
    assert exposed_time(1 * GB, 64, 1.0, NDR) == pytest.approx(transfer_time(1 * GB / 64, NDR))


# Chunks


def played_pipeline(n, stages, chunks, link):
    """A chunk enters a stage when the stage before has all of it and the one ahead of it has left."""
    left = np.zeros(stages)
    for _ in range(chunks):
        arrived = 0.0
        for stage in range(stages):
            arrived = left[stage] = max(arrived, left[stage]) + link.alpha + n / chunks / link.beta
    return left[-1]


@given(sizes, st.integers(1, 9), st.integers(1, 40), links)
def test_pipeline_time_is_the_played_pipeline(n, stages, chunks, link):
    assert pipeline_time(n, stages, chunks, link) == pytest.approx(played_pipeline(n, stages, chunks, link))


@given(sizes, st.integers(2, 4096), links)
def test_chunked_time_bounds_every_number_of_chunks(n, stages, link):
    fill = Link((stages - 1) * link.alpha, link.beta)
    every = np.unique(np.round(np.geomspace(1, 1e6, 200)))
    assert np.all(pipeline_time(n, stages, every, link) >= chunked_time(n, fill) * (1 - 1e-12))


@given(sizes, st.integers(2, 4096), links)
def test_the_best_chunks_reach_chunked_time_where_they_are_many(n, stages, link):
    fill = Link((stages - 1) * link.alpha, link.beta)
    best = best_chunk_count(n, stages, link)
    if best > 100:
        assert pipeline_time(n, stages, round(best), link) == pytest.approx(chunked_time(n, fill), rel=1e-3)
    else:
        near = np.unique([max(1, np.floor(best)), np.ceil(best)])
        every = np.arange(1, 400)
        least = pipeline_time(n, stages, every, link).min()
        assert pipeline_time(n, stages, near, link).min() == pytest.approx(least, rel=1e-9)


def test_the_best_chunks_of_a_gigabyte_through_five_links():
    assert best_chunk_count(1 * GB, 5, NDR) == pytest.approx(126.4911064)  # √(4 · 10⁹/250 000)


def test_chunked_time_opens_into_three_terms():
    n = 64 * MB
    cross = 2 * np.sqrt(NDR.alpha * n / NDR.beta)
    assert chunked_time(n, NDR) == pytest.approx(transfer_time(n, NDR) + cross)
    assert chunked_time(0, NDR) == pytest.approx(NDR.alpha)


def test_without_a_wait_between_stages_chunks_need_no_latency():
    with pytest.raises(ValueError, match=r"link\.alpha must be a finite number > 0, got 0"):
        best_chunk_count(1 * MB, 3, Link(0, 50 * GB))
    with pytest.raises(ValueError, match=r"link\.alpha"):
        best_bucket_count(1 * MB, 1.0, Link(0, 50 * GB))


# What a library adds


def test_two_protocols_take_the_faster_on_each_side_of_their_crossing():
    eager, bulk = Link(5 * us, 10 * GB), Link(20 * us, 50 * GB)
    crossing = (bulk.alpha - eager.alpha) / (1 / eager.beta - 1 / bulk.beta)
    assert two_protocol_time(crossing / 2, eager, bulk) == transfer_time(crossing / 2, eager)
    assert two_protocol_time(crossing * 2, eager, bulk) == transfer_time(crossing * 2, bulk)


@given(sizes, links, st.floats(0, 1e-3))
def test_each_form_contains_the_simpler_one(n, link, launch):
    assert launched_time(n, 0, link) == pytest.approx(chunked_time(n, link))
    assert launched_time(n, launch, link) == pytest.approx(launch + chunked_time(n, link))
    assert launched_time(n, launch, Link(0, link.beta)) == pytest.approx(transfer_time(n, Link(launch, link.beta)))
    assert growing_time(n, 0, link) == pytest.approx(chunked_time(n, link))
    assert two_protocol_time(n, link, link) == transfer_time(n, link)


def test_a_growing_start_rises_by_delta_a_doubling():
    link, delta = Link(10 * us, 1e30), 1 * us
    assert np.diff(growing_time(2.0 ** np.arange(12), delta, link)) == pytest.approx(np.full(11, delta))
    assert growing_time(1, delta, link) == pytest.approx(10 * us)


# All of them


CALLS = {
    "transfer_time": lambda n: transfer_time(n, NDR),
    "effective_bandwidth": lambda n: effective_bandwidth(n, NDR),
    "split_time": lambda n: split_time(n, 3, NDR),
    "compressed_time": lambda n: compressed_time(n, 2, 1e12, NDR),
    "exposed_time": lambda n: exposed_time(n, 4, 0.1, NDR),
    "best_bucket_count": lambda n: best_bucket_count(n, 0.1, NDR),
    "pipeline_time": lambda n: pipeline_time(n, 3, 4, NDR),
    "best_chunk_count": lambda n: best_chunk_count(n, 3, NDR),
    "chunked_time": lambda n: chunked_time(n, NDR),
    "two_protocol_time": lambda n: two_protocol_time(n, NDR, NDR),
    "launched_time": lambda n: launched_time(n, 1e-6, NDR),
    "growing_time": lambda n: growing_time(n, 1e-6, NDR),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_arrays_broadcast_and_agree_with_scalars(call):
    n = np.array([[1.0, 1e3], [1e6, 1e9]])
    assert np.shape(call(n)) == (2, 2)
    assert call(n) == pytest.approx(np.vectorize(call)(n))
    assert np.all(np.diff(np.ravel(call(n))) >= 0) or call is CALLS["best_bucket_count"]


@pytest.mark.parametrize("bad", [-1, np.nan, np.inf, "1 MB", None, True, [1.0, -1.0], np.array([1.0, np.nan])])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_bad_size_is_named(call, bad):
    with pytest.raises(ValueError, match=r"n must be a finite number (≥ [01]|> 0), got"):
        call(bad)


@pytest.mark.parametrize("count", [0, 2.5, -1, np.nan])
def test_a_bad_count_is_named(count):
    for name, call in {
        "messages": lambda k: split_time(1e6, k, NDR),
        "buckets": lambda k: exposed_time(1e6, k, 0.1, NDR),
        "chunks": lambda k: pipeline_time(1e6, 3, k, NDR),
        "stages": lambda k: pipeline_time(1e6, k, 3, NDR),
    }.items():
        with pytest.raises(ValueError, match=rf"{name} must be a whole number ≥ 1, got {count}"):
            call(count)


def test_a_link_checks_itself():
    with pytest.raises(ValueError, match=r"beta must be a finite number > 0, got 0"):
        Link(1e-6, 0)
    with pytest.raises(ValueError, match=r"alpha must be a finite number ≥ 0, got -1e-06"):
        Link(-1e-6, 1e9)
    with pytest.raises(dataclasses.FrozenInstanceError):
        NDR.alpha = 0


# Fits


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.formula)
def test_a_fit_finds_the_constants_that_made_the_data(law):
    true = {
        LINE: (20 * us, 40 * GB),
        TWO_PROTOCOLS: (10 * us, 5 * GB, 40 * us, 45 * GB),
        CHUNKED: (20 * us, 40 * GB),
        LAUNCHED: (8 * us, 15 * us, 40 * GB),
        GROWING: (12 * us, 0.5 * us, 40 * GB),
    }[law]
    n = 2.0 ** np.arange(3, 34)
    fitted = fit(law, n, law.time(n, *true))
    assert fitted.constants == pytest.approx(true, rel=1e-4)
    assert np.abs(fitted.residuals).max() < 1e-5
    assert np.abs(leave_one_out(fitted)).max() < 1e-4


def test_a_stray_time_does_not_bend_a_fit():
    n = 2.0 ** np.arange(10, 31)
    time = transfer_time(n, NDR)
    time[4] *= 10
    fitted = fit(LINE, n, time)
    assert fitted.constants == pytest.approx((NDR.alpha, NDR.beta), rel=0.01)
    assert fitted.residuals[4] == pytest.approx(-0.9, abs=0.01)


def noisy_line():
    n = np.geomspace(1e3, 1e9, 25)
    return n, transfer_time(n, NDR) * np.exp(np.random.default_rng(5).normal(0, 0.03, n.size))


def test_a_fit_is_stationary_in_the_loss_that_turns_straight_at_two_percent():
    n, time = noisy_line()
    alpha, beta = fit(LINE, n, time).constants
    predicted = alpha + n / beta
    misses = np.log(predicted / time)
    for direction in (alpha / predicted, -n / beta / predicted):
        slope = np.sum(misses / np.sqrt(1 + (misses / 0.02) ** 2) * direction)
        assert slope == pytest.approx(0, abs=1e-6)


def test_intervals_are_the_outer_quantiles_of_refits_to_sizes_drawn_anew():
    fitted = fit(LINE, *noisy_line())
    draws = np.random.default_rng(11).integers(25, size=(200, 25))
    refits = [fit(LINE, fitted.n[draw], fitted.time[draw]).constants for draw in draws]
    assert intervals(fitted) == pytest.approx(np.quantile(refits, [0.025, 0.975], axis=0).T, rel=1e-4)
    assert intervals(fitted, level=0.5) == pytest.approx(np.quantile(refits, [0.25, 0.75], axis=0).T, rel=1e-4)


def test_intervals_cover_the_constants_of_noisy_data_and_shrink_with_the_noise():
    random = np.random.default_rng(5)
    n = 2.0 ** np.arange(10, 31)
    widths = []
    for noise in (0.1, 0.01):
        inside = []
        for _ in range(12):
            fitted = fit(LINE, n, transfer_time(n, NDR) * np.exp(noise * random.standard_normal(n.size)))
            low, high = intervals(fitted, resamples=40).T
            inside.append((low <= (NDR.alpha, NDR.beta)) & (high >= (NDR.alpha, NDR.beta)))
            widths.append(high[1] - low[1])
        assert np.mean(inside) > 0.75
    assert np.mean(widths[12:]) < 0.3 * np.mean(widths[:12])


def test_held_out_sizes_do_not_take_part_in_the_fit():
    n = 2.0 ** np.arange(10, 31)
    time = transfer_time(n, NDR)
    spoiled = time.copy()
    spoiled[-3:] *= 7
    held = np.arange(n.size) >= n.size - 3
    assert held_out(fit(LINE, n, spoiled), held) == pytest.approx(np.full(3, 1 / 7 - 1), rel=1e-3)


def test_a_fit_refuses_what_it_cannot_fit():
    n = np.array([1e3, 1e6])
    with pytest.raises(ValueError, match="more than 2 for α"):
        fit(LINE, n, n / 1e9)
    with pytest.raises(ValueError, match=r"time must be a finite number > 0, got 0.* at index"):
        fit(LINE, [1, 2, 3], [0, 1, 2])
    with pytest.raises(ValueError, match=r"n must be a finite number > 0, got 0.* at index"):
        fit(LINE, [0, 2, 3], [1, 1, 2])
    with pytest.raises(ValueError, match=r"got shapes \(3,\) and \(4,\)"):
        fit(LINE, [1, 2, 3], [1, 2, 3, 4])


# Published sweeps


def error(fitted):
    return np.abs(leave_one_out(fitted)).mean()


def test_a05_the_largest_row_rules_plain_least_squares_and_relative_fits_tell_their_misfit():
    p5 = sweep("aws_p5_2n")
    n, time = p5.n[p5.n >= 128 * KiB], p5.time[p5.n >= 128 * KiB]
    assert np.polyfit(n, time, 1)[1] == pytest.approx(317 * us, rel=0.005)
    slope, latency = np.polyfit(n, time, 1, w=1 / time)
    assert latency == pytest.approx(133 * us, rel=0.005)
    assert 1.875 / slope == pytest.approx(423 * GB, rel=0.005)
    assert latency / slope == pytest.approx(30 * MB, rel=0.01)
    assert np.abs((latency + slope * n) / time - 1).max() == pytest.approx(0.36, abs=0.01)

    line = fit(LINE, n, time)
    assert abs(line.residuals[0]) < 0.40
    assert 1.875 * 16 * GiB / line.predict(16 * GiB) == pytest.approx(487 * GB, rel=0.15)
    assert np.abs(line.residuals).max() > 0.30
    chunked = fit(CHUNKED, n, time)
    assert np.abs(chunked.residuals).mean() < 0.06 < 0.13 < np.abs(line.residuals).mean()


def test_the_nvlink_all_reduce_meets_the_bars_of_the_book():
    p5 = sweep("aws_p5_1n")
    assert p5.n.size == 32
    assert 0.14 < error(fit(LINE, p5.n, p5.time)) < 0.16
    assert error(fit(CHUNKED, p5.n, p5.time)) < 0.08
    assert error(fit(LAUNCHED, p5.n, p5.time)) < 0.07
    assert error(fit(GROWING, p5.n, p5.time)) < 0.05


def test_the_chunked_form_predicts_the_largest_third_from_the_rest_where_the_line_fails():
    p5 = sweep("aws_p5_1n")
    largest = np.arange(p5.n.size) >= p5.n.size - p5.n.size // 3
    assert np.abs(held_out(fit(CHUNKED, p5.n, p5.time), largest)).mean() < 0.10
    assert np.abs(held_out(fit(LINE, p5.n, p5.time), largest)).mean() > 0.90


def test_one_message_on_one_link_follows_the_line():
    wire = sweep("a100pcie_hdr_sendrecv")
    assert error(fit(LINE, wire.n, wire.time)) < 0.05
