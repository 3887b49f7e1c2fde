"""Right and known wrong answers of the set on Principle 12."""

import math

from course.grading import Function, Prediction, Value
from distlib.checkpoint import (
    checkpoint_bytes,
    exact_interval,
    mtbf_from_counts,
    overhead,
    system_mtbf,
    write_time,
    young_interval,
)  # fmt: skip
from distlib.published import reported
from distlib.units import day, hour, minute

YEAR = 365 * day


def mtbf(p):
    return system_mtbf(p.part_years * YEAR, p.ranks)


def size(p):
    return checkpoint_bytes(p.parameters)


def write(p):
    return write_time(size(p), writers=p.ranks, bandwidth_per_writer=p.writer, bandwidth_aggregate=p.storage)


def cost(p, interval):
    return p.ranks * p.days * overhead(interval, write(p), mtbf(p), p.restart)


def published(failures):
    return mtbf_from_counts(reported("llama3", "window"), int(reported("llama3", failures))).mtbf


TASKS = (
    Prediction(name="guess", options=("unchanged", "half", "a quarter")),
    Value(
        name="mtbf_hours",
        right=lambda p: mtbf(p) / hour,
        wrong={
            "that is the MTBF of one GPU; a job of N stops N times as often": lambda p: p.part_years * YEAR / hour,
            "a node has 8 GPUs, but the MTBF given is of one GPU": lambda p: 8 * mtbf(p) / hour,
            "chances of failure add up, they do not grow with √N": (
                lambda p: p.part_years * YEAR / math.sqrt(p.ranks) / hour
            ),
        },
    ),
    Value(
        name="write",
        right=write,
        wrong={
            "12 bytes a parameter leave out the 2-byte weights": lambda p: write(p) * 12 / 14,
            "16 bytes a parameter count the gradients too, which are not saved": lambda p: write(p) * 16 / 14,
            "only the weights: the optimiser's state is the larger part": lambda p: write(p) * 2 / 14,
            "one writer writes all: every GPU writes a shard": lambda p: size(p) / p.writer,
        },
    ),
    Function(
        name="best_interval",
        right=lambda write, mtbf, restart: exact_interval(write, mtbf),
        cases=lambda p: [(write(p), mtbf(p), p.restart), (60.0, 1e6, 300.0), (3000.0, 4000.0, 60.0), (50.0, 60.0, 0.0)],
        wrong={
            "that is the first-order law, which fails where T_write comes near MTBF": (
                "def best_interval(write, mtbf, restart):\n    return (2 * write * mtbf) ** 0.5\n"
            ),
            "without the factor 2: a failure loses half an interval on average, not all of it": (
                "def best_interval(write, mtbf, restart):\n    return (write * mtbf) ** 0.5\n"
            ),
            "the time of the write is no useful work": (
                "from math import exp\nfrom scipy.special import lambertw\n"
                "def best_interval(write, mtbf, restart):\n"
                "    return mtbf * (1 + lambertw(-exp(-1 - write / mtbf)).real) + write\n"
            ),
        },
        shortcut=(
            "from distlib.checkpoint import exact_interval\n"
            "def best_interval(write, mtbf, restart):\n    return exact_interval(write, mtbf)\n"
        ),
        tolerance=1e-4,
    ),
    Value(
        name="minutes",
        right=lambda p: exact_interval(write(p), mtbf(p)) / minute,
        wrong={
            "from the MTBF of one GPU: the job's is N times shorter": (
                lambda p: exact_interval(write(p), p.part_years * YEAR) / minute
            ),
            "√(T_write·MTBF) lacks the factor 2": lambda p: math.sqrt(write(p) * mtbf(p)) / minute,
            "the restart is no part of what is written": (
                lambda p: young_interval(write(p) + p.restart, mtbf(p)) / minute
            ),
        },
        tolerance=0.002,
    ),
    Value(
        name="lost",
        right=lambda p: cost(p, exact_interval(write(p), mtbf(p))),
        wrong={
            "of one GPU: the whole job waits": lambda p: cost(p, exact_interval(write(p), mtbf(p))) / p.ranks,
            "that is only the time of the writes": (
                lambda p: p.ranks * p.days * write(p) / exact_interval(write(p), mtbf(p))
            ),
            "the restart is left out": (
                lambda p: p.ranks * p.days * overhead(exact_interval(write(p), mtbf(p)), write(p), mtbf(p))
            ),
        },
    ),
    Value(
        name="mine_hours",
        right=lambda p: published("unexpected") * 16384 / p.ranks / hour,
        wrong={
            "planned stops are counted as failures": lambda p: published("all") * 16384 / p.ranks / hour,
            "that is the MTBF of the published job; yours has another size": lambda p: published("unexpected") / hour,
            "a larger job fails more often: N goes the other way": (
                lambda p: published("unexpected") * p.ranks / 16384 / hour
            ),
        },
    ),
)
