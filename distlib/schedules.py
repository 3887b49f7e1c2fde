"""Pipeline schedules: what each stage does in which order, played as a timeline and run on real arrays.

A model is cut into pp·v parts of consecutive layers. Stage i of pp holds the parts i, pp + i, 2pp + i, …: its v chunks.
A schedule is a list of operations for each stage, which the stage does in that order, each as soon as what it needs is
there. An operation is for one micro-batch and one chunk:

    F   the forward pass
    B   the whole backward pass: gradients of the input and of the weights
    I   the input's part of B alone, which the stage before waits for
    W   the weights' part of B alone, which nobody waits for

A stage has B, or I and W. In times, B (`backward`) is the whole backward pass and W (`weight`) its part for the
weights, so I takes B − W; Qi et al. (2024) write B for that. A message between stages takes `hop` s and disturbs
nobody:

    played = play(one_f_one_b(8, 24), forward=1.0, backward=2.0, hop=0.1)
    played.makespan, played.over_ideal, peak_activations(played.schedule)
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from distlib.domain import COUNT, FRACTION, NONNEGATIVE, Real, check


class Op(NamedTuple):
    """One operation of a stage."""

    kind: str  # F, B, I or W
    microbatch: int
    chunk: int = 0

    def __str__(self) -> str:
        return f"{self.kind}{self.microbatch}" + (f" of chunk {self.chunk}" if self.chunk else "")


Schedule = Sequence[Sequence[Op]]  # by stage


def _size(schedule: Schedule) -> tuple[int, int]:
    """(chunks a stage, micro-batches)."""
    every = [op for ops in schedule for op in ops]
    return 1 + max((op.chunk for op in every), default=0), 1 + max((op.microbatch for op in every), default=0)


# The schedules


def _alternate(forwards: Sequence[Op], backwards: Sequence[Op], warm: int, lag: int | None = None) -> list[Op]:
    """`warm` forward passes, then one backward and one forward in turn; with `lag`, each W so many I late."""
    ops, ahead = list(forwards[:warm]), iter(forwards[warm:])
    weights = [] if lag is None else [Op("W", *op[1:]) for op in backwards]
    for done, op in enumerate(backwards):
        ops.append(op)
        if lag is not None and done >= lag:
            ops.append(weights[done - lag])
        ops += [op for op in [next(ahead, None)] if op]
    return ops + (weights[len(backwards) - lag :] if lag else [])


def _plain(microbatches: Real, warm: Callable[[int], int], stages: Real) -> Schedule:
    forwards, backwards = ([Op(kind, j) for j in range(check("microbatches", microbatches, COUNT))] for kind in "FB")
    return [_alternate(forwards, backwards, warm(i)) for i in range(check("stages", stages, COUNT))]


def _split(microbatches: Real, warm: Callable[[int], int], lag: Callable[[int], int], stages: Real) -> Schedule:
    forwards, backwards = ([Op(kind, j) for j in range(check("microbatches", microbatches, COUNT))] for kind in "FI")
    late = [min(lag(i), len(backwards)) for i in range(check("stages", stages, COUNT))]
    return [_alternate(forwards, backwards, warm(i), late[i]) for i in range(stages)]


def gpipe(stages: int, microbatches: int) -> Schedule:
    """All forward passes, then all backward passes. Huang et al. (2019)."""
    return _plain(microbatches, lambda i: microbatches, stages)


def one_f_one_b(stages: int, microbatches: int) -> Schedule:
    """Stage i does pp − i forward passes, then one backward and one forward in turn. Harlap et al. (2018)."""
    return _plain(microbatches, lambda i: stages - i, stages)


def interleaved(stages: int, microbatches: int, virtual: int) -> Schedule:
    """1F1B over v chunks a stage, in rounds of pp micro-batches, of which m is a multiple. Narayanan et al. (2021)."""
    v = check("virtual", virtual, COUNT)
    rounds = int(check("microbatches / stages", microbatches / check("stages", stages, COUNT), COUNT))
    order = [(r * stages + j, c) for r in range(rounds) for c in range(v) for j in range(stages)]
    forwards, backwards = [Op("F", j, c) for j, c in order], [Op("B", j, v - 1 - c) for j, c in order]
    return [_alternate(forwards, backwards, 2 * (stages - 1 - i) + (v - 1) * stages + 1) for i in range(stages)]


def zb_h1(stages: int, microbatches: int) -> Schedule:
    """1F1B with the backward pass split: W comes i micro-batches late at stage i. Qi et al. (2024)."""
    return _split(microbatches, lambda i: stages - i, lambda i: i, stages)


def zb_h2(stages: int, microbatches: int) -> Schedule:
    """2(pp − i) − 1 forward passes first, W 2i micro-batches late: no stage idles inside. Qi et al. (2024)."""
    return _split(microbatches, lambda i: 2 * (stages - i) - 1, lambda i: 2 * i, stages)


def peak_activations(schedule: Schedule, kept: float = 1.0) -> np.ndarray:
    """The most activations that each stage holds at once, in those of one micro-batch in the whole stage.

    F adds its chunk's, B frees them; after I the share `kept` of them stays for W (M_W/M_B in Qi et al. 2024).
    """
    after = {"F": 1.0, "B": -1.0, "I": check("kept", kept, FRACTION) - 1, "W": -kept}
    return np.array([np.cumsum([after[op.kind] for op in ops]).max() for ops in schedule]) / _size(schedule)[0]


# Played


def _needs(op: Op, stage: int, stages: int, chunks: int, split: bool) -> list[tuple[int, Op]]:
    """What must be done before the operation: (stage, operation)."""
    kind, j, c = op
    part = c * stages + stage
    before, after = divmod(part - 1, stages), divmod(part + 1, stages)  # (chunk, stage) of the neighbouring parts
    if kind == "W":
        return [(stage, Op("I", j, c))]
    if kind == "F":
        return [(before[1], Op("F", j, before[0]))] if part else []
    gradient = [(after[1], Op("I" if split else "B", j, after[0]))] if after[0] < chunks else []
    return [(stage, Op("F", j, c)), *gradient]


def in_turn(schedule: Schedule) -> Iterator[tuple[int, Op, list[tuple[int, Op]]]]:
    """(stage, operation, what it needed), in an order in which all can be done.

    Refuses a schedule that leaves work out or does it twice, and one that stops because stages wait for each other.
    """
    chunks, count = _size(schedule)
    split = any(op.kind == "I" for ops in schedule for op in ops)
    work = sorted(Op(kind, j, c) for kind in ("FIW" if split else "FB") for j in range(count) for c in range(chunks))
    for stage, ops in enumerate(schedule):
        if sorted(ops) != work:
            wrong = min(set(work) ^ set(ops) or {op for op in ops if ops.count(op) > 1})
            raise ValueError(f"schedule must do each operation once at each stage; at stage {stage} not so {wrong}")
    done: set[tuple[int, Op]] = set()
    at, active = [0] * len(schedule), list(range(len(schedule)))
    while active:
        stage = active.pop()
        while at[stage] < len(schedule[stage]):
            op = schedule[stage][at[stage]]
            needs = _needs(op, stage, len(schedule), chunks, split)
            if not done.issuperset(needs):
                break
            done.add((stage, op))
            at[stage] += 1
            yield stage, op, needs
            active += [neighbour % len(schedule) for neighbour in (stage - 1, stage + 1)]
    waits = []
    for stage, ops in enumerate(schedule):
        if at[stage] < len(ops):
            missing = [need for need in _needs(ops[at[stage]], stage, len(schedule), chunks, split) if need not in done]
            waits.append(f"stage {stage} waits with {ops[at[stage]]} for {missing[0][1]} of stage {missing[0][0]}")
    if waits:
        raise ValueError(f"schedule must not deadlock: {'; '.join(waits)}")


class Span(NamedTuple):
    """What a stage does from `start` to `end`, in s."""

    stage: int
    op: Op
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """A schedule, played."""

    schedule: Schedule
    spans: tuple[Span, ...]  # of each stage in its order

    @property
    def busy(self) -> np.ndarray:
        """The work of each stage, in s."""
        return np.bincount([s.stage for s in self.spans], [s.end - s.start for s in self.spans])

    @property
    def makespan(self) -> float:
        """From the first start to the last end, in s: the step, if it ends for all stages at once."""
        return max(span.end for span in self.spans)

    @property
    def span(self) -> float:
        """The longest from a stage's first start to its last end, in s: the step, if none waits to begin the next."""
        ends = {span.stage: span.end for span in self.spans}
        starts = {span.stage: span.start for span in reversed(self.spans)}
        return max(ends[stage] - starts[stage] for stage in ends)

    @property
    def over_ideal(self) -> float:
        """Makespan over the work of the busiest stage, less 1: the bubble over the ideal time."""
        return float(self.makespan / self.busy.max() - 1)

    @property
    def of_total(self) -> float:
        """1 less the work of the busiest stage over the makespan: the bubble of the total time."""
        return float(1 - self.busy.max() / self.makespan)


def play(schedule: Schedule, forward: Real, backward: Real, weight: Real = 0.0, hop: float = 0.0) -> Timeline:
    """Play the schedule; times in s of a micro-batch in a chunk are one number, one a stage, or chunks × stages.

    B takes `backward`, W `weight` of it and I the rest; a message to another stage arrives `hop` s after it was sent.
    """
    shape = (_size(schedule)[0], len(schedule))
    whole, part = check("backward", backward, NONNEGATIVE), check("weight", weight, NONNEGATIVE)
    rest = check("backward − weight", np.subtract(whole, part), NONNEGATIVE)
    times = {"F": check("forward", forward, NONNEGATIVE), "B": whole, "I": rest, "W": part}
    cost = {kind: np.broadcast_to(time, shape).tolist() for kind, time in times.items()}
    check("hop", hop, NONNEGATIVE)
    free, spans = [0.0] * len(schedule), []
    ends: dict[tuple[int, Op], float] = {}
    for stage, op, needs in in_turn(schedule):
        arrived = max((ends[need] + (hop if need[0] != stage else 0.0) for need in needs), default=0.0)
        start = max(arrived, free[stage])
        ends[stage, op] = free[stage] = start + cost[op.kind][op.chunk][stage]
        spans.append(Span(stage, op, start, free[stage]))
    return Timeline(schedule, tuple(spans))


# Run: a network of layers tanh(xA), whose loss is half the squared error of its output, summed over outputs and
# averaged over rows


@dataclass(frozen=True)
class Run:
    """What a pipelined step led to."""

    loss: float
    gradients: list[np.ndarray]  # by layer
    sent: np.ndarray  # bytes that each stage sent
    held: np.ndarray  # the most micro-batches (of one chunk) of which each stage held activations at once


def run(schedule: Schedule, layers: Sequence[np.ndarray], inputs: np.ndarray, targets: np.ndarray) -> Run:
    """Do one forward and backward pass of a network in the order of the schedule.

    Layers go to the parts, and rows to the micro-batches, as evenly as they divide. A stage touches its own layers and
    what the stages next to it have sent, nothing else.
    """
    stages, (chunks, count) = len(schedule), _size(schedule)
    parts = stages * chunks
    if not len(layers) >= parts or not len(inputs) >= count:
        raise ValueError(f"there must be {parts} layers and {count} rows or more, got {len(layers)} and {len(inputs)}")
    of_part = np.array_split(np.arange(len(layers)), parts)
    mail = {("F", j, 0): rows for j, rows in enumerate(np.array_split(inputs, count))}
    answers = np.array_split(targets, count)
    kept: list[dict[tuple[int, int], list[np.ndarray]]] = [{} for _ in schedule]  # by stage: what each layer was given
    deltas: dict[tuple[int, int], list[np.ndarray]] = {}  # what W needs: the gradient at each layer's product
    gradients = [np.zeros_like(layer) for layer in layers]
    loss, sent, held = 0.0, np.zeros(stages), np.zeros(stages, int)
    for stage, (kind, j, c), _ in in_turn(schedule):
        part = c * stages + stage
        mine = of_part[part]
        if kind == "F":
            values = [mail.pop(("F", j, part))]
            for layer in mine:
                values.append(np.tanh(values[-1] @ layers[layer]))
            kept[stage][j, part] = values
            held[stage] = max(held[stage], len(kept[stage]))
            if part + 1 < parts:
                mail["F", j, part + 1] = values[-1]
                sent[stage] += values[-1].nbytes if stages > 1 else 0
            else:
                miss = values[-1] - answers[j]
                loss += 0.5 * float(np.sum(miss**2)) / len(inputs)
                mail["B", j, part] = miss / len(inputs)
        if kind in "BI":
            upward, values, deltas[j, part] = mail.pop(("B", j, part)), kept[stage][j, part], []
            for layer, value in zip(mine[::-1], values[:0:-1], strict=True):
                deltas[j, part].append(upward * (1 - value**2))
                upward = deltas[j, part][-1] @ layers[layer].T
            if part:
                mail["B", j, part - 1] = upward
                sent[stage] += upward.nbytes if stages > 1 else 0
        if kind in "BW":
            values = kept[stage].pop((j, part))
            for layer, value, delta in zip(mine[::-1], values[-2::-1], deltas.pop((j, part)), strict=True):
                gradients[layer] += value.T @ delta
    return Run(loss, gradients, sent, held)
