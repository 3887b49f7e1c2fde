"""Where the worker-seconds go: Principle 13, a ledger that sums to N·wall-clock, and the three axes of its entries.

C³ stands for the axes: computation, communication, coordination. Every entry is in worker-seconds and lies on one
axis. Communication that computation hides is reported and costs nothing; what it costs the computation (the units and
the memory bandwidth that it takes) is an entry of its own, `contention`.
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from distlib.checkpoint import Runs
from distlib.domain import COUNT, NONNEGATIVE, POSITIVE, Domain, Real, check, domain
from distlib.step import samples_to_target

COMPUTE = ("useful", "recomputation", "extra_iterations", "contention")
COMMUNICATION = ("exposed",)
COORDINATION = ("bubble", "straggler_wait", "checkpoint_writes", "lost_work", "restart", "idle")
ENTRIES = COMPUTE + COMMUNICATION + COORDINATION
#: What happens between steps; all else happens within one.
BETWEEN_STEPS = ("checkpoint_writes", "lost_work", "restart", "idle")

# The ledger


@domain(ranks=COUNT, wall_clock=POSITIVE, hidden=NONNEGATIVE, **dict.fromkeys(ENTRIES, NONNEGATIVE))
@dataclass(frozen=True, kw_only=True, eq=False)
class Ledger:
    """N·wall-clock = Σ entries, in worker-seconds; entries that do not sum to it within 1e-9 of it raise ValueError.

    Numbers or arrays, one element a run. `hidden` is the communication behind computation: reported, not summed.
    """

    ranks: Real
    wall_clock: Real  # s
    useful: Real = 0.0  # what the work would take if nothing stood in its way
    recomputation: Real = 0.0  # activations computed again
    extra_iterations: Real = 0.0  # computation that a reference would not have needed to get as far
    contention: Real = 0.0  # computation slowed by communication behind it
    exposed: Real = 0.0  # communication that nothing hides
    bubble: Real = 0.0  # a pipeline that fills and drains
    straggler_wait: Real = 0.0  # at a barrier, for the slowest
    checkpoint_writes: Real = 0.0  # that stop the work, and last
    lost_work: Real = 0.0  # undone by failures
    restart: Real = 0.0  # from a failure to the first new step
    idle: Real = 0.0  # none of these
    hidden: Real = 0.0

    def __post_init__(self) -> None:
        miss = self.total / (self.ranks * self.wall_clock) - 1
        within = Domain("within 1e-9 of 0: the entries must sum to it", lambda x: abs(x) <= 1e-9)
        check("sum of entries/(ranks·wall_clock) − 1", miss, within)

    def sum_of(self, names: tuple[str, ...]) -> Real:
        """Σ of the named entries, in worker-seconds."""
        return sum(getattr(self, name) for name in names)

    @property
    def total(self) -> Real:
        """Σ of all entries, in worker-seconds."""
        return self.sum_of(ENTRIES)


def summed(ranks: Real, **entries: Real) -> Ledger:
    """The ledger whose wall-clock is (Σ entries)/N: nothing is left over."""
    total = sum(value for name, value in entries.items() if name != "hidden")
    return Ledger(ranks=ranks, wall_clock=total / ranks, **entries)


def remainder_idle(ranks: Real, wall_clock: Real, **entries: Real) -> Ledger:
    """The ledger of a measured wall-clock: `idle` is what the entries leave; entries beyond N·wall-clock raise."""
    rest = ranks * wall_clock - sum(value for name, value in entries.items() if name != "hidden")
    return Ledger(ranks=ranks, wall_clock=wall_clock, idle=rest, **entries)


@domain(ranks=COUNT)
def ledger_of_runs(runs: Runs, ranks: Real) -> Ledger:
    """N·(work + writing + lost + restarting): the simulated jobs of `distlib.checkpoint`, one element a run."""
    return Ledger(
        ranks=ranks, wall_clock=runs.wall_clock, useful=ranks * runs.work, checkpoint_writes=ranks * runs.writing,
        lost_work=ranks * runs.lost, restart=ranks * runs.restarting,
    )  # fmt: skip


def within(run: Ledger, step: Ledger) -> Ledger:
    """The run with its useful work split as the step splits its total: the two levels in one ledger, none twice.

    For the run a second in a step is useful; the step's ledger says what it was spent on. Both have the same ranks.
    """
    check("step.ranks", np.subtract(step.ranks, run.ranks), Domain("the same as run.ranks", lambda x: x == 0))
    scale = run.useful / step.total
    split = {name: scale * getattr(step, name) for name in ENTRIES}
    both = {name: getattr(run, name) + split[name] for name in ENTRIES if name != "useful"}
    return replace(run, useful=split["useful"], hidden=run.hidden + scale * step.hidden, **both)


# The axes


@domain(compute=NONNEGATIVE, communication=NONNEGATIVE, coordination=NONNEGATIVE)
@dataclass(frozen=True)
class Coordinates:
    """Worker-seconds on each axis of C³ per unit of progress."""

    compute: Real
    communication: Real
    coordination: Real

    @property
    def total(self) -> Real:
        """N·wall-clock per unit of progress."""
        return self.compute + self.communication + self.coordination


@domain(progress=POSITIVE)
def coordinates(ledger: Ledger, progress: Real = 1.0) -> Coordinates:
    """(Σ compute, Σ communication, Σ coordination)/progress: worker-seconds per unit of progress on each axis."""
    return Coordinates(*(ledger.sum_of(axis) / progress for axis in (COMPUTE, COMMUNICATION, COORDINATION)))


def dominates(one: Coordinates, other: Coordinates) -> bool:
    """Whether `one` is nowhere above `other` and somewhere below it: a free win."""
    pairs = [(getattr(one, axis.name), getattr(other, axis.name)) for axis in fields(Coordinates)]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def on_front(designs: list[Coordinates]) -> list[bool]:
    """Of each design, whether none of the others dominates it: the Pareto front."""
    return [not any(dominates(other, design) for other in designs) for design in designs]


# Factors


@domain(kernel=NONNEGATIVE)
@dataclass(frozen=True)
class Factors:
    """Shares whose product is the MFU of a whole run: each loss stands in one of them.

    `kernel` is the model's FLOP/s while computing usefully, over the dense peak.
    """

    kernel: Real
    yield_: Real  # useful/(all computation)
    step: Real  # computation/(time in steps)
    goodput: Real  # (time in steps)/(N·wall-clock)

    @property
    def run_mfu(self) -> Real:
        """kernel·yield·step·goodput = model FLOPs/(peak·N·wall-clock), by the wall-clock of the run."""
        return self.kernel * self.yield_ * self.step * self.goodput

    @property
    def step_mfu(self) -> Real:
        """kernel·yield·step: MFU as reported, by the time of a step. It holds `step` already."""
        return self.kernel * self.yield_ * self.step

    @property
    def counted_twice(self) -> Real:
        """MFU·step·goodput: the product of three published shares. It is too low by the factor `step`."""
        return self.step_mfu * self.step * self.goodput


def factors(ledger: Ledger, kernel: Real = 1.0) -> Factors:
    """useful/total = (useful/computation)·(computation/in steps)·(in steps/total): a product that telescopes."""
    computation = ledger.sum_of(COMPUTE)
    in_steps = ledger.total - ledger.sum_of(BETWEEN_STEPS)
    return Factors(kernel, ledger.useful / computation, computation / in_steps, in_steps / ledger.total)


# What a large batch costs


@domain(batch=POSITIVE, critical=POSITIVE)
def extra_for_batch(batch: Real, reference: Real, critical: Real) -> Real:
    """(1 + B/B_crit)/(1 + B_ref/B_crit) − 1: data beyond that of the reference batch to the same loss.

    The samples are those of the critical batch, `distlib.step.samples_to_target`; one unit for all three.
    """
    return samples_to_target(batch, 1.0, critical) / samples_to_target(reference, 1.0, critical) - 1
