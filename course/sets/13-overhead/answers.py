"""Right and known wrong answers of the set on Principle 13."""

from course.grading import Function, Prediction, Value
from distlib.overhead import Coordinates, on_front, remainder_idle
from distlib.parallel import bubble_of_total, bubble_over_ideal
from distlib.published import strong_scaling
from distlib.units import day, hour, minute


def ledger(p):
    per_step = {"exposed": p.exposed, "bubble": p.bubble, "recomputation": p.again}
    entries = {name: p.ranks * p.steps * seconds for name, seconds in per_step.items()}
    return remainder_idle(
        p.ranks, p.days * day, useful=p.ranks * p.steps * (p.step - sum(per_step.values())),
        lost_work=p.ranks * p.failures * 22 * minute, restart=p.ranks * p.failures * 9 * minute,
        checkpoint_writes=p.ranks * p.writes * 45, **entries,
    )  # fmt: skip


def shrinks(p, bubble=bubble_of_total):
    return 100 * (bubble(p.stages, p.microbatches) - bubble(p.stages, p.microbatches, p.virtual))


def table(p):
    return strong_scaling(p.system, p.batch)


def front(x, y, z):
    return sum(on_front([Coordinates(*axes) for axes in zip(x, y, z, strict=True)]))


DESIGNS = (
    ([3.0, 1.0, 2.0, 2.0, 4.0], [1.0, 3.0, 2.0, 2.5, 1.0], [2.0, 2.0, 2.0, 2.0, 3.0]),
    ([1.0, 1.0, 2.0], [1.0, 1.0, 0.5], [1.0, 1.0, 1.0]),
    ([5.0, 4.0, 3.0, 2.0], [1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 1.0, 2.0]),
)
TASKS = (
    Prediction(name="guess", options=("computation", "communication", "coordination")),
    Value(
        name="idle",
        right=lambda p: ledger(p).idle / hour,
        wrong={
            "that is hours of the job, not GPU-hours": lambda p: ledger(p).idle / hour / p.ranks,
            "the exposed communication is within the step: it is counted twice": (
                lambda p: (ledger(p).idle - ledger(p).exposed) / hour
            ),
            "the work that failures lost is not idle time": lambda p: (ledger(p).idle + ledger(p).lost_work) / hour,
        },
    ),
    Value(
        name="useful",
        right=lambda p: 100 * ledger(p).useful / ledger(p).total,
        wrong={
            "that is of the time in steps, not of the run": (
                lambda p: 100 * (1 - (p.exposed + p.bubble + p.again) / p.step)
            ),
            "recomputation is work of the GPUs, but not useful": (
                lambda p: 100 * (ledger(p).useful + ledger(p).recomputation) / ledger(p).total
            ),
            "that takes whole steps for useful": lambda p: 100 * p.steps * p.step / (p.days * day),
        },
    ),
    Value(
        name="mfu",
        right=lambda p: 75 * p.hfu,
        wrong={
            "that is the HFU: it counts the forward pass twice": lambda p: 100 * p.hfu,
            "the other way: MFU is the smaller": lambda p: 100 * p.hfu * 4 / 3,
            "the backward pass is twice the forward pass: 3 parts of 4, not 2 of 3": lambda p: 100 * p.hfu * 2 / 3,
        },
    ),
    Value(
        name="shrinks",
        right=shrinks,
        wrong={
            "those are parts of the ideal time, not of the total": lambda p: shrinks(p, bubble_over_ideal),
            "v multiplies the micro-batches; it does not divide the stages": (
                lambda p: 100 * (
                    bubble_of_total(p.stages, p.microbatches)
                    - (p.stages / p.virtual - 1) / (p.microbatches + p.stages / p.virtual - 1)
                )
            ),
            "that mixes a part of the total with a part of the ideal": (
                lambda p: 100 * (bubble_over_ideal(p.stages, p.microbatches)
                                 - bubble_of_total(p.stages, p.microbatches, p.virtual))
            ),
        },
    ),
    Function(
        name="unbeaten",
        right=front,
        cases=lambda p: list(DESIGNS),
        wrong={
            "that adds the axes up: the sum hides which one is paid": (
                "def unbeaten(x, y, z):\n"
                "    sums = [a + b + c for a, b, c in zip(x, y, z)]\n    return sums.count(min(sums))\n"
            ),
            "equal designs do not beat each other": (
                "def unbeaten(x, y, z):\n    d = list(zip(x, y, z))\n"
                "    return sum(not any(all(p <= q for p, q in zip(o, e)) for j, o in enumerate(d) if j != i)"
                " for i, e in enumerate(d))\n"
            ),
            "to be beaten takes less on one axis only, no more on the others": (
                "def unbeaten(x, y, z):\n    d = list(zip(x, y, z))\n"
                "    return sum(not any(all(p < q for p, q in zip(o, e)) for o in d) for e in d)\n"
            ),
        },
        shortcut=(
            "from distlib.overhead import Coordinates, on_front\n"
            "def unbeaten(x, y, z):\n    return sum(on_front([Coordinates(*axes) for axes in zip(x, y, z)]))\n"
        ),
    ),
    Value(
        name="more",
        right=lambda p: 100 * (table(p).ranks[-1] * table(p).time[-1] / (table(p).ranks[0] * table(p).time[0]) - 1),
        wrong={
            "that is the loss of efficiency, a part of the larger cost": (
                lambda p: 100 * (1 - table(p).ranks[0] * table(p).time[0] / (table(p).ranks[-1] * table(p).time[-1]))
            ),
            "that compares seconds, not GPU-seconds": lambda p: 100 * (table(p).time[-1] / table(p).time[0] - 1),
            "that is the ratio, not what it is more": (
                lambda p: 100 * table(p).ranks[-1] * table(p).time[-1] / (table(p).ranks[0] * table(p).time[0])
            ),
        },
    ),
)
