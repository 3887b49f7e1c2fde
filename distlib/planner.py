"""Many layouts at once: which can exist, which fit into memory, and how long the step of each one takes.

The layouts of a model on a cluster lie in arrays, block by block: millions are priced in a second, and a search holds
one block and the best found so far, never all that it looked at. A rank's memory is `parallel.peak_memory`, the time of
its step `estimate.parts`; the planner adds no law of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from distlib.domain import COUNT, POSITIVE, Real, domain
from distlib.estimate import Stack, parts
from distlib.hardware import Cluster
from distlib.parallel import Layout, layout_at, peak_memory, possible, refusals
from distlib.transformer import FULL, NONE, Transformer
from distlib.units import GB

#: What is free in every layout: recomputation and ZeRO stage. Attention is flash attention, so a selective
#: recomputation would have nothing to recompute.
RECOMPUTE, ZERO = np.array([[[NONE]], [[FULL]]], float), np.arange(4.0)[:, None]
EACH = RECOMPUTE.size * ZERO.size
BLOCK = 2**15  # layouts priced at once, or a little more: their arrays fit into a cache
Columns = dict[str, np.ndarray]


def _divisors(number: Real) -> np.ndarray:
    some = np.arange(float(number)) + 1
    return some[number % some == 0]


def _cross(columns: Columns, name: str, values: np.ndarray) -> Columns:
    """Each row with each of the values."""
    crossed = {known: np.repeat(column, values.size) for known, column in columns.items()}
    return {**crossed, name: np.tile(values, len(next(iter(columns.values()))))}


def _where(columns: Columns, holds: np.ndarray) -> Columns:
    return {name: column[holds] for name, column in columns.items()}


def _candidates(model: Transformer, seq: Real, global_batch: Real, ranks: Real) -> Iterator[Layout]:
    """Flat layouts, some thousands at a time, of which most can exist: sizes multiply to N, virtual stages divide."""
    sizes = _divisors(ranks)
    few = _cross({"tp": np.intersect1d(sizes, _divisors(model.kv_heads))}, "cp", np.intersect1d(sizes, _divisors(seq)))
    few = _cross(few, "pp", sizes[sizes <= model.layers])
    few["dp"] = ranks / (few["tp"] * few["cp"] * few["pp"])
    few = _where(few, few["dp"] % 1 == 0)
    few = _cross(few, "virtual", np.union1d(_divisors(model.layers), _divisors(model.layers + 2)))
    chunks = few["pp"] * few["virtual"]
    split = (model.layers % chunks == 0) | ((model.layers + 2) % chunks == 0)
    few = _where(few, split & ((few["pp"] > 1) | (few["virtual"] == 1)))
    few = _cross(few, "ep", _divisors(model.experts))
    few = _where(few, few["dp"] % few["ep"] == 0)
    micro = _divisors(global_batch)
    at_once = max(1, BLOCK // (EACH * micro.size))
    for start in range(0, few["tp"].size, at_once):
        some = _cross({name: column[start : start + at_once] for name, column in few.items()}, "micro_batch", micro)
        some = _where(some, global_batch % (some["dp"] * some["micro_batch"]) == 0)
        yield Layout(**some, global_batch=global_batch, sequence_parallel=np.minimum(some["tp"] - 1, 1), dp_overlap=1)


@domain(seq=COUNT, global_batch=COUNT, ranks=COUNT)
def layouts(model: Transformer, seq: Real, global_batch: Real, ranks: Real) -> Iterator[Layout]:
    """Every layout of N ranks that can exist, in blocks of shape (recomputation, ZeRO stage, some).

    tp, cp, pp, ep, virtual stages and micro-batch take each value that divides what it must; sequence parallelism
    comes with tp > 1, and gradients are reduced during the backward pass.
    """
    waiting: list[Layout] = []
    for few in _candidates(model, seq, global_batch, ranks):
        waiting.append(layout_at(few, np.flatnonzero(possible(model, few, seq, ranks))))
        if sum(layout.tp.size for layout in waiting) * EACH >= BLOCK:
            yield _free(_joined(waiting))
            waiting = []
    if sum(layout.tp.size for layout in waiting):
        yield _free(_joined(waiting))


def _joined(parts: list[Layout]) -> Layout:
    """One flat layout of all of these."""
    return Layout(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Layout)))


def _free(layout: Layout) -> Layout:
    """The layouts with each recomputation and each ZeRO stage."""
    each = {field.name: getattr(layout, field.name) for field in fields(layout)}
    return Layout(**{**each, "recompute": RECOMPUTE, "zero": ZERO})


def _some(block: Layout, index: np.ndarray) -> Layout:
    """Some of a block, with each recomputation and each ZeRO stage still."""
    own = [field.name for field in fields(block) if field.name not in ("recompute", "zero")]
    return replace(block, **{name: getattr(block, name)[index] for name in own})


def pareto(time: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """Indices, by rising time, of what no other beats: every quicker one needs more memory."""
    order = np.argsort(time)
    for _ in range(2):  # the first pass leaves few, and of equal times perhaps more than one
        least = np.minimum.accumulate(memory[order])
        order = order[np.diff(least, prepend=np.inf) < 0]
        order = order[np.lexsort((memory[order], time[order]))]
    return order


@dataclass(frozen=True)
class Plans:
    """The quickest layouts that fit, by rising time, and those of the front of time and memory.

    `estimate(model, cluster, plans[:10], seq, stack)` has the terms of the ten quickest.
    """

    layout: Layout
    time: np.ndarray  # s, a step
    memory: np.ndarray  # byte, of the fullest rank
    front: np.ndarray  # indices of the Pareto front among these
    possible: int  # layouts that can exist
    fitting: int  # of them, those that fit

    def __getitem__(self, index: Real) -> Layout:
        """The layout at that place, or those at those places."""
        return layout_at(self.layout, index)


@domain(seq=COUNT, global_batch=COUNT, memory=POSITIVE, keep=COUNT)
def plan(
    model: Transformer, cluster: Cluster, seq: Real, global_batch: Real, memory: Real, stack: Stack, keep: int = 1000
) -> Plans:
    """The `keep` quickest layouts of a model on a cluster that need at most `memory` bytes a rank; the Pareto front.

    A step is one global batch, in sequences of s tokens. Raises ValueError with the reason where nothing can exist or
    nothing fits.
    """
    found: list[tuple[Layout, np.ndarray, np.ndarray]] = []
    count, fitting, leanest, need = 0, 0, None, np.inf
    for block in layouts(model, seq, global_batch, cluster.ranks):
        held = peak_memory(model, block, seq)
        if held.min() < need:
            leanest, need = layout_at(block, int(np.argmin(held))), held.min()
        some = np.flatnonzero(np.any(held <= memory, axis=(0, 1)))
        count, block, held = count + held.size, _some(block, some), held[..., some].ravel()
        inside = np.flatnonzero(held <= memory)
        fitting += inside.size
        if inside.size:
            time = np.ravel(parts(model, cluster, block, seq, stack).total)[inside]
            kept = _kept(time, held[inside], keep)
            found.append((layout_at(block, inside[kept]), time[kept], held[inside][kept]))
    if leanest is None:
        why = _obstacle(model, seq, global_batch, cluster.ranks)
        raise ValueError(f"no layout of {cluster.ranks} ranks can exist; most often {why}")
    if not found:
        raise ValueError(f"no layout fits into {memory / GB:.1f} GB: the leanest, {leanest}, needs {need / GB:.1f} GB")
    layout = _joined([one for one, _, _ in found])
    time, held = (np.concatenate([one[part] for one in found]) for part in (1, 2))
    kept = _kept(time, held, keep)
    return Plans(layout_at(layout, kept), time[kept], held[kept], pareto(time[kept], held[kept]), count, fitting)


def _kept(time: np.ndarray, memory: np.ndarray, keep: int) -> np.ndarray:
    """Indices, by rising time, of the quickest and of the front."""
    quickest = np.flatnonzero(time <= np.sort(time)[:keep][-1])
    kept = np.union1d(quickest, pareto(time, memory))
    return kept[np.lexsort((memory[kept], time[kept]))]


def _obstacle(model: Transformer, seq: Real, global_batch: Real, ranks: Real) -> str:
    """What refuses most of the ways to write N as tp·cp·pp·dp."""
    sizes = _divisors(ranks)
    few = _cross(_cross(_cross({"tp": sizes}, "cp", sizes), "pp", sizes), "dp", sizes)
    few = _where(few, few["tp"] * few["cp"] * few["pp"] * few["dp"] == ranks)
    reasons = refusals(model, Layout(**few, global_batch=global_batch), seq, ranks)
    return max(reasons, key=lambda reason: np.sum(reason[1]))[0]
