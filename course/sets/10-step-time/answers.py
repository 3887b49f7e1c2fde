"""Right and known wrong answers of the set on Principle 10."""

import math

import numpy as np

from course.grading import Function, Prediction, Value
from distlib.published import strong_scaling
from distlib.step import exponential_wait, linear_time, partly_overlapped


def step(p):
    return partly_overlapped(p.hidden, p.compute, p.ranks, p.comm, p.sync)


def nodes_best(p):
    gpus = np.arange(8, 80001, 8)
    return gpus[np.argmin(linear_time(gpus, p.compute, p.sync, p.growth))]


def prediction(p, weights):
    table = strong_scaling(p.system, p.batch)
    n, t = table.ranks[:-1], table.time[:-1]
    a, f = np.linalg.lstsq(np.column_stack([1 / n, np.ones(3)]) * weights(t)[:, None], t * weights(t), rcond=None)[0]
    return table, a / table.ranks[-1] + f


def miss(p, weights=lambda t: 1 / t):
    table, predicted = prediction(p, weights)
    return 100 * (predicted / table.time[-1] - 1)


def ideal_miss(p):
    table, _ = prediction(p, np.ones_like)
    return 100 * (table.time[0] * table.ranks[0] / table.ranks[-1] / table.time[-1] - 1)


TASKS = (
    Prediction(name="guess", options=("1.5 times", "2 times", "3 times")),
    Value(
        name="step",
        right=lambda p: step(p).total,
        wrong={
            "nothing is hidden in this answer": lambda p: p.compute / p.ranks + p.comm + p.sync,
            "a part of the sum is hidden; what can be hidden is the smaller of the two sides": (
                lambda p: (p.compute / p.ranks + p.comm + p.sync) * (1 - p.hidden)
            ),
            "T_compute is summed over the GPUs: divide it": (
                lambda p: p.compute + p.comm + p.sync - p.hidden * (p.comm + p.sync)
            ),
        },
    ),
    Value(
        name="speedup",
        right=lambda p: step(p).total / max(p.compute / p.ranks, p.comm + p.sync),
        wrong={
            "computation cannot be hidden behind nothing: the longer side stays": (
                lambda p: step(p).total / min(p.compute / p.ranks, p.comm + p.sync)
            ),
            "that is against a step with nothing hidden; yours hides a part already": (
                lambda p: (p.compute / p.ranks + p.comm + p.sync) / max(p.compute / p.ranks, p.comm + p.sync)
            ),
            "that is the part that is not hidden, turned over": lambda p: 1 / (1 - p.hidden),
        },
    ),
    Function(
        name="best_step",
        right=lambda compute, fixed, growth, nodes: float(
            linear_time(np.arange(8, 8 * int(nodes) + 1, 8), compute, fixed, growth).min()
        ),
        cases=lambda p: [
            (float(p.compute), p.sync, p.growth, 10000), (100.0, 1.0, 0.01, 100), (100.0, 0.0, 1e-6, 5),
            (9.0, 0.0, 1.0, 50),
        ],
        wrong={
            "the best number of GPUs may lie beyond what there is: N ends at 8·nodes": (
                "def best_step(compute, fixed, growth, nodes):\n    return fixed + 2 * (compute * growth) ** 0.5\n"
            ),
            "more GPUs are not always better: beyond N* the growth wins": (
                "def best_step(compute, fixed, growth, nodes):\n"
                "    return compute / (8 * nodes) + fixed + growth * 8 * nodes\n"
            ),
            "the growth is by GPU, not by node": (
                "def best_step(compute, fixed, growth, nodes):\n"
                "    return min(compute / (8 * k) + fixed + growth * k for k in range(1, int(nodes) + 1))\n"
            ),
        },
        shortcut=(
            "import numpy as np\nfrom distlib.step import linear_time\n"
            "def best_step(compute, fixed, growth, nodes):\n"
            "    return linear_time(np.arange(8, 8 * int(nodes) + 1, 8), compute, fixed, growth).min()\n"
        ),
    ),
    Value(
        name="best_gpus",
        right=nodes_best,
        wrong={
            "that is a number of nodes": lambda p: nodes_best(p) / 8,
            "√(T_compute/(8·g)) charges the growth by node": (
                lambda p: 8 * round(math.sqrt(p.compute / p.growth / 8) / 8)
            ),
            "that is T_compute/g; the optimum is its square root": lambda p: p.compute / p.growth,
        },
        tolerance=1e-4,
    ),
    Value(
        name="wait",
        right=lambda p: 1e3 * exponential_wait(p.ranks, p.jitter),
        wrong={
            "that is the mean of the slowest; the mean of all is work, not waiting": (
                lambda p: 1e3 * (exponential_wait(p.ranks, p.jitter) + p.jitter)
            ),
            "delays do not add up over GPUs: the barrier waits for the slowest alone": (
                lambda p: 1e3 * p.jitter * p.ranks
            ),
            "the greatest of N exponentials grows as a sum of 1/k, not as √N": (
                lambda p: 1e3 * p.jitter * math.sqrt(p.ranks)
            ),
        },
    ),
    Value(
        name="longer",
        right=lambda p: 100 * (p.micro_steps - 1) * p.comm / (p.compute / p.ranks + p.comm),
        wrong={
            "the computation is divided already: it is not done K times": lambda p: 100 * (p.micro_steps - 1),
            "that is the share of the wrong step; the question is about the right one": (
                lambda p: 100 * (p.micro_steps - 1) * p.comm / (p.compute / p.ranks + p.micro_steps * p.comm)
            ),
            "one of the K reductions is needed": (
                lambda p: 100 * p.micro_steps * p.comm / (p.compute / p.ranks + p.comm)
            ),
        },
    ),
    Value(
        name="miss",
        right=miss,
        wrong={
            "that is ideal scaling from the smallest run, with no f": ideal_miss,
            "that fits absolute errors: the longest step rules": lambda p: miss(p, np.ones_like),
            "the sign: above the measured time is positive": lambda p: -miss(p),
        },
        tolerance=0.01,
    ),
)
