"""Right and known wrong answers of the set on fault tolerance."""

import numpy as np

from course.grading import Function, Prediction, Value
from distlib.checkpoint import (
    combined_mtbf,
    first_order_overhead,
    saved_in_time,
    spares_suffice,
    survival,
    young_interval,
)  # fmt: skip
from distlib.published import reported
from distlib.units import minute


def mtbf(p):
    return combined_mtbf([p.gpu_hours, p.node_hours], [p.gpus, p.gpus / 8])


def spares(mtbf, repair, chance):
    return int(np.argmax(spares_suffice(np.arange(10000), repair, mtbf) >= chance))


def between():
    return reported("llama3", "window") / reported("llama3", "unexpected")


def effective(p, interval, restart):
    return 100 / (1 + first_order_overhead(interval, p.saves, between(), restart))


def flipped(p):
    number = np.array([1.0])
    number.view(np.uint64)[0] ^= np.uint64(1 << p.bit)
    return float(number[0])


TASKS = (
    Prediction(name="guess", options=("halved", "squared", "unchanged")),
    Value(
        name="mtbf",
        right=mtbf,
        wrong={
            "only the GPUs are counted": lambda p: p.gpu_hours / p.gpus,
            "rates add up, mean times do not": lambda p: (p.gpu_hours + p.node_hours) / p.gpus,
            "a node has 8 GPUs: there are gpus/8 nodes": (
                lambda p: combined_mtbf([p.gpu_hours, p.node_hours], [p.gpus, p.gpus])
            ),
        },
    ),
    Value(
        name="survives",
        right=lambda p: 100 * survival(20.0, mtbf(p)),
        wrong={
            "that is the chance of a failure": lambda p: 100 * (1 - survival(20.0, mtbf(p))),
            "after a mean time between failures the chance is e^−1, not one half": (
                lambda p: 100 * 0.5 ** (20.0 / mtbf(p))
            ),
            "that is the expected number of failures, as a percentage": lambda p: 100 * 20.0 / mtbf(p),
        },
    ),
    Function(
        name="spares",
        right=spares,
        cases=lambda p: [(mtbf(p), p.repair_hours, 0.99), (3.0, 24.0, 0.9), (10.0, 5.0, 0.999), (1.0, 100.0, 0.99)],
        wrong={
            "that is the mean number of nodes out; the chance asks for more": (
                "from math import ceil\ndef spares(mtbf, repair, chance):\n    return ceil(repair / mtbf)\n"
            ),
            "the number out is a Poisson number, whose deviation is the root of its mean": (
                "from math import ceil\ndef spares(mtbf, repair, chance):\n"
                "    return ceil(repair / mtbf + 3 * repair / mtbf)\n"
            ),
            "one too many: k is to be the least": (
                "from scipy.stats import poisson\ndef spares(mtbf, repair, chance):\n"
                "    return int(poisson.ppf(chance, repair / mtbf)) + 1\n"
            ),
        },
        shortcut=(
            "from distlib.checkpoint import spares_suffice\n"
            "def spares(mtbf, repair, chance):\n"
            "    k = 0\n    while spares_suffice(k, repair, mtbf) < chance:\n        k += 1\n    return k\n"
        ),
    ),
    Value(
        name="kept",
        right=lambda p: spares(mtbf(p), p.repair_hours, 0.99),
        wrong={
            "that is what is out on average": lambda p: p.repair_hours / mtbf(p),
            "that is one more than needed": lambda p: spares(mtbf(p), p.repair_hours, 0.99) + 1,
            "that is one too few": lambda p: spares(mtbf(p), p.repair_hours, 0.99) - 1,
        },
        tolerance=1e-6,
    ),
    Value(
        name="in_time",
        right=lambda p: 100 * saved_in_time(p.lead, p.step, p.write),
        wrong={
            "that the write alone fits is not enough: the step in flight has to end first": lambda p: 100.0,
            "that is lead over step and write": lambda p: 100 * p.lead / (p.step + p.write),
            "that is the chance to lose it": lambda p: 100 * (1 - saved_in_time(p.lead, p.step, p.write)),
        },
    ),
    Value(
        name="mean",
        right=lambda p: (7 + flipped(p)) / 8,
        wrong={
            "that is the mean without it": lambda p: 1.0,
            "seven of eight, as if the eighth were lost: it is still divided by 8 and added": lambda p: 0.5,
            "that is the flipped number itself": flipped,
        },
        tolerance=1e-9,
    ),
    Value(
        name="effective",
        right=lambda p: effective(p, young_interval(p.saves, between()), p.warmup * minute),
        wrong={
            "the restart is left out": lambda p: effective(p, young_interval(p.saves, between()), 0.0),
            "a failure loses half an interval on average, not a whole one": (
                lambda p: effective(p, young_interval(p.saves, between()), p.warmup * minute
                                    + young_interval(p.saves, between()) / 2)
            ),
            "that is the overhead, not what is left": (
                lambda p: 100 - effective(p, young_interval(p.saves, between()), p.warmup * minute)
            ),
        },
        tolerance=0.001,
    ),
)
