"""The simulator of an orchestrator, against queueing theory, Principle 12, played rings and what a real Slurm did."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from distlib.alphabeta import Link
from distlib.checkpoint import expected_wall_clock, mean_interval
from distlib.cluster import (
    Allocation,
    Job,
    Marginals,
    Profile,
    Queue,
    Site,
    allocation_time,
    best_effort,
    conservative,
    correlation,
    crossing_share,
    cut_allocation,
    easy,
    fair_share_factor,
    fifo,
    gpu_counts,
    lognormal,
    one_by_one,
    packed,
    placed_all_reduce,
    placed_slowdown,
    signal_lead,
    simulate,
    spread,
    workload,
)
from distlib.collectives import hierarchical_all_reduce
from distlib.published import cluster_jobs
from distlib.units import GB, minute, us

FOUR = Site(4, 8)
POLICIES = [fifo, easy, conservative, best_effort]
PARTS = ["work", "slow", "write", "lost", "restart"]


def job(name, submit=0.0, nodes=1, run=10.0, limit=None, gpus=8, **more):
    return Job(name, submit, nodes, gpus, run, limit or run, **more)


# Ten jobs and six jobs on four nodes of eight GPUs: what a real Slurm 22.05 did with them is in test_slurm.

TEN = [
    Job(name, submit, nodes, gpus, run, limit * minute)
    for submit, (name, nodes, gpus, limit, run) in enumerate(
        [("A", 3, 8, 2, 30), ("B", 4, 8, 1, 10), ("C", 1, 8, 1, 8), ("D", 1, 8, 3, 8), ("E", 1, 8, 1, 8),
         ("F", 2, 8, 1, 12), ("G", 2, 8, 1, 6), ("H", 1, 8, 1, 5), ("I", 1, 4, 1, 5), ("J", 1, 4, 1, 5)]
    )
]  # fmt: skip
SIX = [
    Job(name, submit, nodes, 8, run, limit * minute)
    for submit, (name, nodes, limit, run) in enumerate(
        [("A", 2, 2, 45), ("A2", 1, 4, 45), ("B", 2, 1, 5), ("C", 4, 1, 5), ("X", 1, 5, 5), ("Y", 1, 3, 5)]
    )
]  # fmt: skip


@pytest.mark.parametrize("policy, starts", [
    (fifo, [0, 30, 40, 40, 40, 48, 48, 54, 54, 54]),
    (easy, [0, 30, 2, 40, 10, 40, 48, 18, 23, 23]),
    (conservative, [0, 30, 2, 40, 10, 40, 48, 18, 23, 23]),
])  # fmt: skip
def test_backfill_starts_small_jobs_before_a_large_one_without_delaying_it(policy, starts):
    found = simulate(TEN, FOUR, policy).starts
    assert [found[j.name] for j in TEN] == starts


@pytest.mark.parametrize("policy, starts", [
    (fifo, [0, 1, 45, 50, 55, 55]), (easy, [0, 1, 45, 50, 4, 9]), (conservative, [0, 1, 45, 50, 55, 5]),
])  # fmt: skip
def test_easy_lets_a_job_delay_the_third_in_line_and_conservative_does_not(policy, starts):
    found = simulate(SIX, FOUR, policy).starts
    assert [found[j.name] for j in SIX] == starts


def test_without_a_reservation_a_stream_of_small_jobs_starves_a_large_one():
    small = [job(f"s{i}", 4.0 * i, 1, 10) for i in range(50)]
    jobs = sorted([*small, job("large", 1, 4, 10)], key=lambda j: j.submit)
    assert simulate(jobs, FOUR, easy).starts["large"] == 10
    assert simulate(jobs, FOUR, best_effort).starts["large"] == 206


def test_a_plan_goes_by_the_limits():
    promised = simulate(SIX, FOUR, conservative).promised
    assert promised == {"B": 120, "C": 241, "X": 301}


def test_a_reservation_holds_by_the_limits_not_by_the_run_times():
    late = [job("A", 0, 1, 30, 120), job("big", 1, 2, 10), job("small", 25, 1, 60, 90)]
    found = simulate(late, Site(2, 8), easy)
    assert found.starts["small"] == 25 and found.promised["big"] == 120 and found.starts["big"] == 85


# Random workloads.

SIZES = st.tuples(st.integers(0, 60), st.integers(1, 6), st.sampled_from([1, 2, 4, 8]), st.integers(1, 40),
                  st.integers(0, 40), st.integers(0, 2))  # fmt: skip
WORKLOADS = st.lists(SIZES, min_size=1, max_size=14).map(
    lambda rows: [
        Job(f"{i}", float(submit), nodes, gpus, float(run), float(run + more), "ab"[priority % 2], priority,
            interval=7.0, write=2.0, restart=3.0, step=1.0)
        for i, (submit, nodes, gpus, run, more, priority) in enumerate(sorted(rows))
    ]
)  # fmt: skip
PLAIN = WORKLOADS.map(lambda jobs: [Job(j.name, j.submit, j.nodes, j.gpus, j.run, j.limit) for j in jobs])
SIX_NODES = Site(6, 8, (3,))


def fits_everywhere(result):
    """Whether no node ever has more GPUs taken than it has."""
    changes = sorted((time, sign * a.gpus, node) for a in result.past for node in a.nodes
                     for time, sign in ((a.start, 1), (a.end, -1)))  # fmt: skip
    taken = Counter()
    for _, change, node in changes:  # of one instant the ends come first
        taken[node] += change
        if taken[node] > result.site.gpus:
            return False
    return not any(taken.values())


def assert_conserves(result):
    spent = sum(result.spent(part) for part in PARTS)
    assert spent + result.down + result.idle == pytest.approx(result.capacity)
    for a in result.past:
        parts = [getattr(a, part) for part in PARTS]
        assert min(parts) > -1e-9
        assert sum(parts) == pytest.approx(a.end - a.start if a.job else 0)
    kept = Counter()
    for a in result.past:
        if a.job:
            kept[a.job.name] += a.work
    for j in result.jobs:
        assert j.name in result.timed_out or kept[j.name] == pytest.approx(j.run)


def check_conservation(jobs, policy, place, hazard, notice):
    result = simulate(jobs, SIX_NODES, policy, place, slowdown=lambda j, nodes: 1 + 0.1 * (np.ptp(nodes) + 1 - j.nodes),
                      preempt=True, notice=notice, mtbf=hazard, repair=11.0, seed=len(jobs))  # fmt: skip
    assert fits_everywhere(result)
    assert_conserves(result)
    assert min(result.waits) >= 0 and 0 <= result.fragmentation <= 1 and min(result.slowdowns()) >= 1
    assert result.goodput <= result.utilisation <= 1 + 1e-12


STORMS = (WORKLOADS, st.sampled_from(POLICIES), st.sampled_from([packed, spread]),
          st.sampled_from([math.inf, 150.0]), st.sampled_from([0.0, 2.0, 3.0, 10.0]))  # fmt: skip


def check_reservation(jobs):
    result = simulate(jobs, SIX_NODES, easy)
    for name, promise in result.promised.items():
        assert result.starts[name] <= promise


def check_easy_is_one_reservation(jobs):
    assert simulate(jobs, SIX_NODES, easy).starts == simulate(jobs, SIX_NODES, one_reservation).starts


def one_reservation(queue):
    """EASY by way of the profile of conservative backfill, which then has one reservation."""
    starts, planned, profile = [], {}, Profile(queue)
    for j in queue.waiting:
        start, nodes = profile.earliest(j)
        if start == queue.now:
            starts.append((j, nodes))
        if start == queue.now or not planned:
            profile.reserve(start, start + j.limit, nodes, j.gpus)
        if start > queue.now:
            planned.setdefault(j.name, start)
    return starts, dict(list(planned.items())[:1])


@given(*STORMS)
@settings(max_examples=60)
def test_gpu_seconds_are_conserved_and_no_node_is_taken_twice(jobs, policy, place, hazard, notice):
    check_conservation(jobs, policy, place, hazard, notice)


@given(PLAIN)
@settings(max_examples=60)
def test_easy_never_starts_the_head_of_the_queue_after_its_reservation(jobs):
    check_reservation(jobs)


@given(PLAIN)
@settings(max_examples=60)
def test_easy_is_conservative_backfill_with_one_reservation(jobs):
    check_easy_is_one_reservation(jobs)


@pytest.mark.slow
@given(*STORMS)
@settings(max_examples=1000)
def test_gpu_seconds_are_conserved_on_a_thousand_workloads(jobs, policy, place, hazard, notice):
    check_conservation(jobs, policy, place, hazard, notice)


@pytest.mark.slow
@given(PLAIN)
@settings(max_examples=1000)
def test_easy_keeps_its_reservations_on_a_thousand_workloads(jobs):
    check_reservation(jobs)
    check_easy_is_one_reservation(jobs)


@given(PLAIN)
@settings(max_examples=60)
def test_if_all_jobs_run_to_their_limits_conservative_backfill_keeps_each_plan(jobs):
    result = simulate([job(j.name, j.submit, j.nodes, j.limit, gpus=j.gpus) for j in jobs], SIX_NODES, conservative)
    assert {name: result.starts[name] for name in result.promised} == result.promised


@given(PLAIN)
@settings(max_examples=60)
def test_fifo_starts_jobs_in_the_order_in_which_they_came(jobs):
    starts = simulate(jobs, SIX_NODES, fifo).starts
    assert all(starts[a.name] <= starts[b.name] for a, b in itertools.pairwise(jobs))


@pytest.mark.slow
@pytest.mark.parametrize("policy", [fifo, easy])
def test_ten_thousand_jobs_run_on_two_thousand_nodes(policy):
    site = Site(2048, 8, (32, 256))
    like = Marginals(3600, 1800, 200, 4096, 3600 * 200)
    result = simulate(workload(10_000, 0.9, site, like, seed=1), site, policy)
    assert_conserves(result)
    assert 0.5 < result.goodput < 0.9


# Queueing theory.


def erlang_wait(load, servers, mean):
    """Mean wait of M/M/c: C(c, a)·S/(c − a), a = load·c."""
    a = load * servers
    last = a**servers / math.factorial(servers) / (1 - load)
    queued = last / (sum(a**k / math.factorial(k) for k in range(servers)) + last)
    return queued * mean / (servers - a)


def queue_waits(draw, gap, servers, runs=40, count=1500, warm=300):
    """Mean waits of many first-come runs of one-GPU jobs, the first `warm` jobs of each left out."""
    means = []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        submit, run = np.cumsum(rng.exponential(gap, count)), draw(rng, count)
        jobs = [Job(f"{i}", submit[i], 1, 1, run[i], 1e9) for i in range(count)]
        means.append(simulate(jobs, Site(1, servers), fifo).waits[warm:].mean())
    return mean_interval(np.array(means))


@pytest.mark.slow
def test_single_gpu_jobs_wait_as_erlang_says():
    low, high = queue_waits(lambda rng, size: rng.exponential(100.0, size), 100 / 4 / 0.7, 4)
    assert low < erlang_wait(0.7, 4, 100.0) < high


@pytest.mark.slow
def test_jobs_that_take_all_wait_as_pollaczek_and_khinchine_say():
    mu, sigma = lognormal(100.0, 60.0)
    low, high = queue_waits(lambda rng, size: rng.lognormal(mu, sigma, size), 100 / 0.6, 1)
    assert low < 0.6 / 0.4 * (100 / 60) ** 2 / 2 * 100 < high


# Failures, preemption, notice.


def test_a_job_under_failures_takes_as_long_as_principle_12_says():
    work, interval, write, mtbf, restart = 3000.0, 100.0, 10.0, 400.0, 20.0
    lone = Job("a", 0.0, 2, 1, work, 1e9, interval=interval, write=write, restart=restart)
    times = [simulate([lone], Site(2, 1), fifo, mtbf=2 * mtbf, seed=seed).end for seed in range(400)]
    low, high = mean_interval(np.array(times))
    assert low < expected_wall_clock(work, interval, write, mtbf, restart) < high
    assert all(a.job for a in simulate([lone], Site(2, 1), fifo, mtbf=2 * mtbf).past)


def test_a_repair_keeps_the_node_from_all():
    jobs = [Job(f"{i}", 0.0, 1, 4, 50.0, 50.0) for i in range(40)]
    result = simulate(jobs, Site(2, 8), easy, mtbf=60.0, repair=30.0, seed=3)
    repairs = [a for a in result.past if a.job is None]
    assert repairs and result.down == sum((a.end - a.start) * 8 for a in repairs)
    assert all(a.end - a.start == pytest.approx(30) or a.end == result.end for a in repairs)
    assert fits_everywhere(result)
    assert_conserves(result)


SAVING = dict(interval=100.0, write=10.0, restart=20.0)


@pytest.mark.parametrize("seconds, restarted, saved, parts", [
    (250.0, False, False, (200, 0, 20, 30, 0)),
    (250.0, True, False, (200, 0, 20, 10, 20)),
    (15.0, True, False, (0, 0, 0, 0, 15)),
    (25.0, True, True, (0, 0, 0, 5, 20)),  # no time to write
    (250.0, False, True, (220, 0, 30, 0, 0)),
    (225.0, False, True, (200, 0, 25, 0, 0)),  # the notice came during a write
    (330.0, False, False, (300, 0, 30, 0, 0)),
])  # fmt: skip
def test_a_cut_keeps_what_was_written(seconds, restarted, saved, parts):
    found = cut_allocation(job("a", run=1000, **SAVING), seconds, 1.0, restarted, saved)
    assert tuple(found[part] for part in PARTS) == pytest.approx(parts)


def test_a_cut_of_a_slowed_job_keeps_less_work():
    found = cut_allocation(job("a", run=1000, **SAVING), 250.0, 1.25, False, False)
    assert tuple(found[part] for part in PARTS) == pytest.approx((160, 40, 20, 30, 0))


def test_a_whole_allocation_has_its_work_its_writes_and_its_restart():
    assert allocation_time(job("a", run=250, **SAVING), 250, 1.0, False) == 280
    assert allocation_time(job("a", run=250, **SAVING), 200, 1.5, True) == 350
    assert allocation_time(job("a", run=250), 250, 1.0, True) == 250


# C09: a step of 105 s, a checkpoint of 40 s.
BLOOM = dict(run=4000.0, limit=5000.0, interval=1000.0, write=40.0, restart=60.0, step=105.0)
URGENT = Job("urgent", 1900.0, 4, 8, 100.0, 100.0, priority=1)


@pytest.mark.parametrize("notice, lost", [(90.0, 950.0), (144.0, 1004.0), (145.0, 0.0), (600.0, 0.0)])
def test_ninety_seconds_do_not_save_a_job_that_needs_a_hundred_and_forty_five(notice, lost):
    result = simulate([job("bloom", 0, 4, **BLOOM), URGENT], FOUR, easy, preempt=True, notice=notice)
    assert result.spent("lost") == pytest.approx(lost * 32)
    assert result.starts["urgent"] == result.promised["urgent"] == 1900 + min(notice, 145)
    assert result.starts["bloom"] == 0 and [a.start for a in result.past if a.job.name == "bloom"][1] > 1900
    assert result.spent("work") == pytest.approx((4000 + 100) * 32)
    assert_conserves(result)


def test_a_checkpoint_of_a_second_is_saved_in_two():
    quick = job("quick", 0, 4, 4000, 5000, interval=1000.0, write=1.0, step=1.0)
    assert simulate([quick, URGENT], FOUR, easy, preempt=True, notice=2.0).spent("lost") == 0
    never = job("never", 0, 4, 4000, 9000)  # writes nothing, so no notice saves it
    assert simulate([never, URGENT], FOUR, easy, preempt=True, notice=2.0).spent("lost") == 1902 * 32


def test_without_preemption_the_urgent_job_waits_and_nothing_is_lost():
    result = simulate([job("bloom", 0, 4, **BLOOM), URGENT], FOUR, easy, notice=145.0)
    assert result.starts["urgent"] == 4000 + 4 * 40 and result.spent("lost") == 0


def test_preemption_takes_the_lowest_priority_first_and_of_those_the_latest():
    jobs = [job("old", 0, 1, 100), job("low", 1, 1, 100, priority=-1), job("late", 2, 1, 100), job("mid", 3, 1, 100),
            job("now", 10, 2, 5, priority=3)]  # fmt: skip
    result = simulate(jobs, FOUR, fifo, preempt=True)
    cut = {a.job.name for a in result.past if a.lost}
    assert cut == {"low", "mid"} and result.starts["now"] == 10


def test_preemption_ends_nobody_if_it_would_not_suffice():
    jobs = [job("high", 0, 3, 100, priority=9), job("low", 0, 1, 100), job("now", 10, 2, 5, priority=3)]
    assert simulate(jobs, FOUR, fifo, preempt=True).spent("lost") == 0


def test_a_time_limit_is_a_kill_that_the_signal_softens():
    long = job("a", 0, 1, 900, 400, interval=250.0, write=20.0, restart=10.0, step=5.0)
    warned, cut = (simulate([long], FOUR, easy, notice=notice) for notice in (25.0, 24.0))
    assert not warned.timed_out and len(warned.past) == 3 and warned.spent("lost") == 0
    assert not cut.timed_out and cut.spent("lost") > 0
    endless = simulate([job("a", 0, 1, 900, 400)], FOUR, easy)
    assert endless.timed_out == ["a"] and endless.spent("work") == 0 and endless.spent("lost") == 400 * 8


# Gangs.


def test_two_jobs_placed_one_by_one_hold_half_each_for_ever_and_as_gangs_run_one_after_the_other():
    pair = [Job("a", 0.0, 1, 8, 10.0, 10.0), Job("b", 0.0, 1, 8, 10.0, 10.0)]
    assert one_by_one(pair, 8) == {}
    gang = simulate(pair, Site(1, 8), fifo)
    assert gang.starts == {"a": 0, "b": 10} and gang.utilisation == 1


def test_a_master_placed_before_its_workers_waits_for_ever_where_a_gang_is_refused():
    whole = Job("master and worker", 0.0, 2, 8, 10.0, 10.0)
    assert one_by_one([whole], 8) == {}
    with pytest.raises(ValueError, match="master and worker needs 2 × 8 GPUs"):
        simulate([whole], Site(1, 8), fifo)


def test_one_by_one_works_as_long_as_all_that_wait_fit_at_once():
    jobs = [Job("a", 0.0, 1, 4, 10.0, 10.0), Job("b", 0.0, 1, 4, 5.0, 5.0), Job("c", 1.0, 1, 6, 5.0, 5.0)]
    assert one_by_one(jobs, 8) == {"a": 0, "b": 0, "c": 10}
    assert one_by_one(jobs, 16) == {"a": 0, "b": 0, "c": 1}
    large = [Job("a", 0.0, 25, 4, 10.0, 10.0)]
    assert one_by_one(large, 99) == {} and one_by_one(large, 100) == {"a": 0}


# Fair share.


def test_an_account_that_used_its_share_has_half_the_factor():
    assert fair_share_factor(0.0, 0.25) == 1
    assert fair_share_factor(0.25, 0.25) == 0.5
    assert fair_share_factor(0.5, 0.25) == 0.25
    assert np.shape(fair_share_factor(np.ones((3, 1)), np.ones(2))) == (3, 2)


def test_accounts_of_three_shares_and_of_one_get_three_gpu_seconds_to_one():
    jobs = [Job(f"{team}{i}", 0.0, 1, 8, 10.0, 10.0, team) for i in range(300) for team in "ab"]
    result = simulate(jobs, Site(2, 8), easy, shares={"a": 0.75, "b": 0.25}, half_life=1000.0)
    first = [a.job.account for a in result.past if a.start < 1500]
    assert first.count("a") / first.count("b") == pytest.approx(3, rel=0.02)
    equal = [a.job.account for a in simulate(jobs, Site(2, 8), easy).past if a.start < 1500]
    assert equal.count("a") == equal.count("b")


GOLDEN = 50 / math.log2((1 + math.sqrt(5)) / 2)


@pytest.mark.parametrize("half_life, first", [
    (math.inf, "n2"), (1.01 * GOLDEN, "n2"), (0.99 * GOLDEN, "o2"), (1.0, "o2"),
])  # fmt: skip
def test_usage_halves_with_each_half_life(half_life, first):
    """`old` used 100 s, then `new` 50 s. After both, with u = 2^(−50/h), old's usage is to new's as (1 − u²)u to 1 − u.

    They are equal at u(1 + u) = 1, where u is the inverse of the golden ratio.
    """
    jobs = [job("o1", 0, 1, 100, account="old"), job("n1", 100, 1, 50, account="new"),
            job("o2", 120, 1, 10, account="old"), job("n2", 121, 1, 10, account="new")]  # fmt: skip
    starts = simulate(jobs, Site(1, 8), fifo, shares={"old": 0.5, "new": 0.5}, half_life=half_life).starts
    assert min(("o2", "n2"), key=starts.get) == first


# Where.

POD = Site(2048, 8, (32, 256))


def remnant():
    """2,048 nodes of which leaf 0 has 12 left, its last, and leaf 1 has 24 left."""
    free = np.full(2048, 8)
    free[:20] = free[32:40] = 0
    return free


@pytest.mark.parametrize("nodes, chosen", [
    (32, [(65, 96)]), (12, [(21, 32)]), (10, [(21, 30)]), (24, [(41, 64)]), (40, [(21, 28), (65, 96)]),
    (300, [(21, 32), (65, 352)]),
])  # fmt: skip
def test_placement_is_that_of_a_real_slurm(nodes, chosen):
    expected = np.concatenate([np.arange(low - 1, high) for low, high in chosen])
    assert np.array_equal(packed(POD, remnant(), job("a", nodes=nodes)), expected)


@given(st.lists(st.integers(0, 4), min_size=4, max_size=4), st.integers(2, 16))
def test_packing_uses_as_few_leaves_as_any_choice(free_per_leaf, nodes):
    site = Site(16, 1, (4,))
    free = np.concatenate([np.arange(4) < k for k in free_per_leaf]).astype(int)
    found = packed(site, free, job("a", nodes=nodes, gpus=1))
    if sum(free_per_leaf) < nodes:
        assert found is None
        return
    assert len(set(found)) == nodes and all(free[found])
    enough = [k for k in range(1, 5) for some in itertools.combinations(free_per_leaf, k) if sum(some) >= nodes]
    assert len(set(found // 4)) == min(enough)


def test_packing_prefers_one_pod_to_fewer_free_nodes_elsewhere():
    site, free = Site(32, 1, (4, 16)), np.ones(32, int)
    free[[0, 1, 2, 16, 20, 24, 28]] = 0  # 13 left in the first pod, 12 in the second
    assert set(packed(site, free, job("a", nodes=12, gpus=1)) // 16) == {1}
    assert set(packed(site, free, job("a", nodes=13, gpus=1)) // 16) == {0}
    assert set(packed(site, free, job("a", nodes=14, gpus=1)) // 16) == {0, 1}


def test_one_node_goes_where_least_is_left():
    assert packed(FOUR, np.array([8, 5, 4, 3]), job("a", gpus=4)).tolist() == [2]


def test_spreading_takes_the_freest_nodes_leaf_by_leaf():
    site = Site(8, 8, (4,))
    assert spread(site, np.full(8, 8), job("a", nodes=4)).tolist() == [0, 1, 4, 5]
    assert spread(site, np.array([8, 4, 4, 4, 5, 4, 4, 4]), job("a", gpus=2)).tolist() == [0]
    assert spread(site, np.array([2, 2, 2, 2, 2, 2, 2, 2]), job("a", nodes=1, gpus=4)) is None


def test_spread_small_jobs_leave_no_whole_node_where_packed_ones_do():
    jobs = [job("a", 0, 1, 100, gpus=4), job("b", 0, 1, 100, gpus=4), job("c", 1, 1, 10)]
    apart, close = (simulate(jobs, Site(2, 8), easy, place) for place in (spread, packed))
    assert close.starts["c"] == 1 and close.fragmentation == 0
    assert apart.starts["c"] == 100
    assert simulate(SIX, FOUR, fifo).fragmented == 0  # eight are free for long, but the first in the queue needs more
    assert apart.fragmented == 99 * 8 and apart.fragmentation == pytest.approx(99 * 8 / (110 * 16))


# What a placement costs.

NVLINK, NDR = Link(1 * us, 400 * GB), Link(3 * us, 50 * GB)


def test_the_crossing_share_counts_hops_that_leave_a_leaf():
    assert crossing_share(range(32), 32) == 0
    assert crossing_share([0, 1, 2, 3, 4, 5, 6, 7], 4) == 1 / 4
    assert crossing_share([0, 4, 1, 5, 2, 6, 3, 7], 4) == 1
    assert crossing_share([0, 1, 2, 3, 4], 4) == 1  # the fifth node is alone on its leaf
    assert crossing_share([3], 4) == 0


def test_a_shuffled_ring_crosses_as_often_as_chance_says():
    rng = np.random.default_rng(1)
    shares = []
    for _ in range(2000):
        home = rng.permutation(64) // 16
        shares.append(np.mean((home != np.roll(home, -1))[home == 0]))
    low, high = mean_interval(np.array(shares))
    assert low < (64 - 16) / 63 < high


def test_a_scattered_ring_has_its_share_of_the_uplinks():
    site = Site(64, 8, (16,), oversubscription=4.0)
    here = hierarchical_all_reduce(1e9, 8 * 16, 8, NVLINK, NDR, 8)
    assert placed_all_reduce(1e9, range(16), site, NVLINK, NDR, 8) == here
    assert placed_all_reduce(1e9, [*range(8), *range(16, 24)], site, NVLINK, NDR, 8) == here  # 4/8 < 1
    across = hierarchical_all_reduce(1e9, 8 * 16, 8, NVLINK, Link(NDR.alpha, NDR.beta / 4), 8)
    every_fourth = np.arange(16) * 4 % 61
    assert crossing_share(every_fourth, 16) == 1 / 4
    interleaved = np.arange(16).reshape(4, 4).T.ravel() + np.tile(np.arange(4) * 12, 4)
    assert placed_all_reduce(1e9, interleaved, site, NVLINK, NDR, 8) == across


def test_only_the_exposed_share_of_a_step_is_slowed():
    assert placed_slowdown(0.2, 3.0, 1.0) == pytest.approx(1.4)
    assert placed_slowdown(0.0, 3.0, 1.0) == 1 and placed_slowdown(1.0, 3.0, 1.5) == 2


# Workloads.


def test_a_lognormal_has_the_mean_and_the_median_that_it_was_given():
    mu, sigma = lognormal(1260.0, 124.0)
    x = np.random.default_rng(1).lognormal(mu, sigma, 2_000_000)
    assert np.median(x) == pytest.approx(124, rel=0.01) and x.mean() == pytest.approx(1260, rel=0.03)
    assert math.exp(sigma**2) == pytest.approx((1260 / 124) ** 2)


@pytest.mark.parametrize("mean, largest", [(26.8, 1024), (1.93, 128), (3.7, 2048), (5.7, 1024)])
def test_gpu_counts_have_the_published_mean_and_largest_and_a_median_of_one(mean, largest):
    counts, chances = gpu_counts(mean, largest)
    assert counts[0] == 1 and counts[-1] == largest
    assert chances.sum() == pytest.approx(1) and chances @ counts == pytest.approx(mean)
    assert chances[0] == 0.5 and np.ptp(np.diff(np.log(chances[1:]))) < 1e-6


def test_in_every_cluster_half_of_the_jobs_are_much_shorter_than_the_mean_and_large_jobs_are_long():
    assert {name: found.jobs for name, found in cluster_jobs().items()} == {
        "Seren": 663_813, "Kalos": 19_907, "Philly": 112_956, "Helios": 1_580_464
    }  # fmt: skip
    kalos = cluster_jobs()["Kalos"]
    assert (kalos.mean_wait, kalos.median_wait) == (214.179, 17)
    assert kalos.marginals.gpu_time * kalos.jobs == pytest.approx(1_667_685_146 + 3_239_202_064 + 426_292_851)
    for found in cluster_jobs().values():
        like = found.marginals
        assert like.mean_run > 10 * like.median_run and like.gpu_time > 1.7 * like.mean_run * like.mean_gpus
        assert found.mean_wait > found.median_wait


def test_the_least_and_nearly_the_largest_mean_of_gpu_counts():
    assert np.allclose(gpu_counts(1.5, 8)[1], [0.5, 0.5, 0, 0])
    assert np.allclose(gpu_counts(4.4999, 8)[1], [0.5, 0, 0, 0.5], atol=1e-4)
    assert Marginals(1, 1, 1.5, 4, 1.5).largest == 4 and gpu_counts(1.5, 4)[0].tolist() == [1, 2, 4]


@pytest.mark.parametrize("name", ["Seren", "Kalos", "Philly", "Helios"])
def test_the_correlation_gives_the_published_gpu_time(name):
    like = cluster_jobs()[name].marginals
    counts, chances = gpu_counts(like.mean_gpus, like.largest)
    mu, sigma = lognormal(like.mean_run, like.median_run)
    rng, rho, means = np.random.default_rng(1), correlation(like), []
    for _ in range(60):  # run times drawn from the lognormal of mean weight, which tames its tail; weights undo it
        size, other = rng.standard_normal((2, 40_000))
        tilted = size + rho * sigma
        gpus = counts[np.searchsorted(np.cumsum(chances)[:-1], norm.cdf(tilted))]
        means.append(gpus.mean() * math.exp(mu + sigma**2 / 2))
    low, high = mean_interval(np.array(means))
    assert low < like.gpu_time < high
    assert rho > 0 and like.gpu_time > like.mean_run * like.mean_gpus


def test_jobs_without_correlation_have_the_product_of_the_means():
    assert correlation(Marginals(1000, 300, 10, 256, 10_000)) == pytest.approx(0, abs=1e-9)


def test_a_workload_offers_the_load_that_it_was_asked_for():
    site, like = Site(302, 8), cluster_jobs()["Kalos"].marginals
    jobs = workload(20_000, 0.8, site, like, seed=1)
    work = sum(j.run * j.nodes * j.gpus for j in jobs)
    assert work / (jobs[-1].submit * 2416) == pytest.approx(0.8)
    gaps = np.diff([j.submit for j in jobs])
    assert gaps.std() / gaps.mean() == pytest.approx(1, rel=0.05)
    run, gpus = np.array([[j.run, j.nodes * j.gpus] for j in jobs]).T
    assert run.min() == 1
    assert np.median(run) == pytest.approx(like.median_run, rel=0.05)
    assert gpus.mean() == pytest.approx(like.mean_gpus, rel=0.1) and gpus.max() == 1024
    assert 5 < work / len(jobs) / (run.mean() * gpus.mean()) < 11  # published: 7.9
    assert all(j.run <= j.limit < 4 * j.run + 60 and j.limit % 60 == 0 for j in jobs)
    ratios = [j.limit / j.run for j in jobs if j.run > 3 * 3600]
    assert np.mean(ratios) == pytest.approx(2.5, rel=0.05) and min(ratios) < 1.015
    assert all(j.gpus == 8 or j.nodes == 1 for j in jobs)
    assert workload(10, 0.8, site, like, seed=2) != workload(10, 0.8, site, like)


def test_the_run_times_of_a_workload_spread_as_the_published_ones():
    like = cluster_jobs()["Kalos"].marginals
    run = [j.run for j in workload(200_000, 0.8, Site(302, 8), like, seed=1)]
    spread_of_logs = np.diff(np.log(np.percentile(run, [30, 90])))[0] / np.diff(norm.ppf([0.3, 0.9]))[0]
    assert spread_of_logs == pytest.approx(lognormal(like.mean_run, like.median_run)[1], rel=0.005)


def test_what_is_not_said_of_a_job_or_a_site_changes_nothing():
    plain = job("a")
    assert (plain.priority, plain.write, plain.restart, plain.step) == (0, 0, 0, 0)
    assert Site(4, 8, oversubscription=1.01).oversubscription == 1.01
    assert plain.interval == math.inf and Site(4, 8).oversubscription == 1 and Site(4, 8).leaf == 4


def test_metrics_of_a_small_plan_by_hand():
    jobs = [job("a", 5, 2, 10), job("b", 6, 2, 20, 25), job("c", 7, 1, 4)]
    result = simulate(jobs, Site(2, 8), fifo)
    assert result.waits.tolist() == [0, 9, 28] and result.begin == 5 and result.end == 39
    assert result.capacity == 34 * 16 and result.idle == 4 * 8
    assert result.utilisation == result.goodput == pytest.approx((30 * 16 + 4 * 8) / (34 * 16))
    assert result.slowdowns().tolist() == [1, 29 / 20, 3.2] and result.slowdowns(4)[2] == 8


@pytest.mark.parametrize("bad", [
    lambda: Site(0, 8), lambda: Site(4, 8, oversubscription=0.5), lambda: Site(4, 8, (0,)),
    lambda: job("a", nodes=1.5), lambda: job("a", submit=-1), lambda: job("a", run=0.0, limit=1),
    lambda: job("a", gpus=0), lambda: job("a", interval=0.0), lambda: job("a", write=-1.0),
    lambda: fair_share_factor(-1, 1), lambda: placed_slowdown(2, 1, 1), lambda: workload(0, 1, FOUR, None),
    lambda: one_by_one([], 0), lambda: signal_lead(-1, 1), lambda: lognormal(0, 1), lambda: gpu_counts(1.4, 8),
    lambda: gpu_counts(2, 3), lambda: gpu_counts(4.5, 8), lambda: Marginals(1, 1, 1.4, 8, 1),
    lambda: Marginals(1, 1, 2, 3, 1), lambda: simulate([job("a")], FOUR, fifo, notice=-1),
    lambda: simulate([job("a")], FOUR, fifo, mtbf=0),
    lambda: simulate([job("a", account="b")], FOUR, fifo, shares={"a": 1.0}),
    lambda: simulate([job("a"), job("a")], FOUR, fifo), lambda: simulate([job("a", gpus=9)], FOUR, fifo),
])  # fmt: skip
def test_bad_input_is_refused(bad):
    with pytest.raises(ValueError, match="must be|needs|two jobs"):
        bad()


def test_a_queue_without_jobs_decides_nothing():
    empty = Queue(FOUR, packed, 0.0, np.full(4, 8), [], [])
    for policy in POLICIES:
        assert policy(empty) == ([], {})
    assert Allocation(None, np.arange(3), 8, 0.0, 1.0).size == 24
