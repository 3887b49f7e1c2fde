"""Right and known wrong answers of the set on orchestration."""

import math

from course.grading import Function, Prediction, Value
from distlib.cluster import Job, Site, easy, fifo, signal_lead, simulate
from distlib.collectives import hierarchical_all_reduce_bytes
from distlib.published import cluster_jobs
from distlib.units import GB, hour


def run(p, policy):
    jobs = [Job(name, submit, nodes, 8, run, limit) for name, submit, nodes, run, limit in p.jobs]
    return simulate(jobs, Site(p.nodes, 8), policy)


def mean_wait(nodes, submits, sizes, runs):
    jobs = [Job(f"{i}", *job, limit=2 * job[-1]) for i, job in enumerate(
        (submit, size, 8, run) for submit, size, run in zip(submits, sizes, runs, strict=True)
    )]  # fmt: skip
    starts = simulate(jobs, Site(nodes, 8), fifo).starts
    return sum(starts[job.name] - job.submit for job in jobs) / len(jobs)


def waits(p):
    starts = run(p, easy).starts
    return starts["small"] - 20 + starts["late"] - 30


def across(p):
    n = hierarchical_all_reduce_bytes(p.array, 8 * p.job_nodes, 8).inter * 8
    return 1e3 * n / (p.rails * 50 * GB)


def trace(p):
    return cluster_jobs()[p.cluster].marginals


def hours(p):
    return trace(p).mean_run * trace(p).mean_gpus / hour


def short(p):
    return p.count * (trace(p).gpu_time / hour - hours(p))


TASKS = (
    Prediction(name="guess", options=("never", "only on nodes that the wide job leaves", "always")),
    Value(
        name="late_fifo",
        right=lambda p: run(p, fifo).starts["late"],
        wrong={
            "by the time limits; jobs end after their run time": lambda p: p.jobs[0][4] + p.jobs[1][4],
            "`late` does not wait for `small`: there is room for both": (
                lambda p: p.long_run + p.wide_run + p.small_run
            ),
            "that overtakes: the queue is strict": lambda p: 30.0,
            "that is when `wide` starts": lambda p: p.long_run,
        },
        tolerance=1e-4,
    ),
    Value(
        name="waits",
        right=waits,
        wrong={
            "that is with the strict queue: `small` may overtake": (
                lambda p: 2 * (p.long_run + p.wide_run) - 50
            ),
            "`late` would hold the reservation of `wide` up": lambda p: 0.0,
            "waits count from the submission": lambda p: p.long_run + p.wide_run,
        },
        tolerance=1e-4,
    ),
    Function(
        name="mean_wait",
        right=mean_wait,
        cases=lambda p: [
            (p.nodes, [job[1] for job in p.jobs], [job[2] for job in p.jobs], [job[3] for job in p.jobs]),
            (4, [0.0, 1.0, 2.0, 3.0, 50.0], [3, 2, 1, 4, 1], [10.0, 5.0, 20.0, 1.0, 1.0]),
            (2, [0.0, 0.0, 0.0], [1, 2, 1], [4.0, 4.0, 4.0]),
        ],
        wrong={
            "that starts a job as soon as it fits: the queue is strict": (
                "def mean_wait(nodes, submits, sizes, runs):\n"
                "    waiting, running, now, total = list(zip(submits, sizes, runs)), [], 0.0, 0.0\n"
                "    while waiting:\n"
                "        running = [r for r in running if r[0] > now]\n"
                "        for job in [j for j in waiting if j[0] <= now]:\n"
                "            if job[1] <= nodes - sum(r[1] for r in running):\n"
                "                running.append((now + job[2], job[1]))\n"
                "                total += now - job[0]\n                waiting.remove(job)\n"
                "        later = [r[0] for r in running if r[0] > now] + [j[0] for j in waiting if j[0] > now]\n"
                "        now = min(later) if later else now\n"
                "    return total / len(submits)\n"
            ),
            "one job at a time: there is room for several": (
                "def mean_wait(nodes, submits, sizes, runs):\n    now = total = 0.0\n"
                "    for s, _, r in zip(submits, sizes, runs):\n"
                "        now = max(now, s)\n        total += now - s\n        now += r\n"
                "    return total / len(submits)\n"
            ),
            "that is the sum of the waits, not their mean": (
                "def mean_wait(nodes, submits, sizes, runs):\n    running, now, total = [], 0.0, 0.0\n"
                "    for s, n, r in zip(submits, sizes, runs):\n        now = max(now, s)\n"
                "        while nodes - sum(h for e, h in running if e > now) < n:\n"
                "            now = min(e for e, h in running if e > now)\n"
                "        running.append((now + r, n))\n        total += now - s\n    return total\n"
            ),
        },
        shortcut=(
            "from distlib.cluster import Job, Site, fifo, simulate\n"
            "def mean_wait(nodes, submits, sizes, runs):\n"
            "    jobs = [Job(f'{i}', s, n, 8, r, 2 * r) for i, (s, n, r) in enumerate(zip(submits, sizes, runs))]\n"
            "    starts = simulate(jobs, Site(nodes, 8), fifo).starts\n"
            "    return sum(starts[j.name] - j.submit for j in jobs) / len(jobs)\n"
        ),
    ),
    Value(
        name="lead",
        right=lambda p: signal_lead(p.step, p.write),
        wrong={
            "the step in flight has to end before the write": lambda p: p.write,
            "half a step is the mean; the worst case is a whole one": lambda p: math.ceil(p.step / 2 + p.write),
            "that is the step alone": lambda p: p.step,
        },
        tolerance=1e-6,
    ),
    Value(
        name="longer",
        right=lambda p: across(p) * (p.taper - 1),
        wrong={
            "that is the whole phase; the question is by how much it is longer": lambda p: across(p) * p.taper,
            "a node sends twice (nodes − 1)/nodes of the array": lambda p: across(p) * (p.taper - 1) / 2,
            "all NICs of the node send at once": lambda p: across(p) * (p.taper - 1) * p.rails,
        },
    ),
    Value(
        name="short",
        right=short,
        wrong={
            "that is the colleague's estimate": lambda p: p.count * hours(p),
            "that is the published GPU time, not by how much the estimate falls short": (
                lambda p: short(p) + p.count * hours(p)
            ),
            "with the median run time; the colleague took the mean": (
                lambda p: short(p) + p.count * hours(p) * (1 - trace(p).median_run / trace(p).mean_run)
            ),
            "that is the shortfall of one job": lambda p: short(p) / p.count,
        },
        tolerance=0.002,
    ),
)
