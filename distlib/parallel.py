"""What a parallel layout costs each rank: its memory, the bytes that it sends, the time for which it waits.

A layout shares one model and one batch among N = tp·cp·pp·dp ranks. Bytes are those that one rank sends, one way, as
in `distlib.collectives`; memory is that of one rank.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np

from distlib.domain import COUNT, NONNEGATIVE, POSITIVE, Domain, Real, check, domain
from distlib.transformer import NONE, RECOMPUTE, SWITCH, Transformer

# The layout

ZERO = Domain("0, 1, 2 or 3", lambda x: (x == 0) | (x == 1) | (x == 2) | (x == 3))


@domain(
    tp=COUNT, cp=COUNT, pp=COUNT, dp=COUNT, ep=COUNT, virtual=COUNT, micro_batch=COUNT, global_batch=COUNT,
    recompute=RECOMPUTE, zero=ZERO, sequence_parallel=SWITCH, flash=SWITCH, dp_overlap=SWITCH, tp_overlap=SWITCH,
)  # fmt: skip
@dataclass(frozen=True)
class Layout:
    """How tp·cp·pp·dp ranks share a model and a batch: each field one number, or arrays that broadcast.

    The ep ranks that share a layer's experts are among the dp. Batches are counted in sequences.
    """

    tp: Real = 1
    cp: Real = 1
    pp: Real = 1
    dp: Real = 1
    ep: Real = 1
    virtual: Real = 1  # chunks of layers a stage, interleaved
    micro_batch: Real = 1
    global_batch: Real = 1
    recompute: Real = NONE
    zero: Real = 0  # the dp·cp replicas split: 1 optimiser, 2 and gradients, 3 and weights
    sequence_parallel: Real = 0  # 1: what tensor parallelism leaves whole is split by sequence
    flash: Real = 1  # 0: attention keeps its score matrix
    dp_overlap: Real = 0  # 1: gradients are reduced during the backward pass
    tp_overlap: Real = 0  # 1: tensor-parallel collectives run beside the products

    @property
    def ranks(self) -> Real:
        """N = tp·cp·pp·dp."""
        return self.tp * self.cp * self.pp * self.dp

    @property
    def microbatches(self) -> Real:
        """m = global batch/(dp·micro-batch): whole in a layout that can exist."""
        return self.global_batch / (self.dp * self.micro_batch)


@domain(layers=COUNT)
def stage_layers(layers: Real, layout: Layout, stage: Real) -> Real:
    """L/pp if pp·virtual divides L; else (L + 2)/pp, of which the embedding and the output head take one layer's place
    each, in the first stage and in the last (`stage` = 0 … pp − 1), as in Llama 3 (126 layers, 16 stages)."""
    ends = np.equal(stage, 0) * 1 + np.equal(stage, layout.pp - 1)
    even = _divides(layout.pp * layout.virtual, layers)
    return np.where(even, layers / layout.pp, (layers + 2) / layout.pp - ends)[()]


def _divides(part: Real, total: Real) -> Real:
    return np.equal(np.mod(total, part), 0)


def _refusals(model: Transformer, layout: Layout, seq: Real, ranks: Real) -> Iterator[tuple[str, Real]]:
    """(reason, where it holds) of each way in which a layout cannot exist."""
    tp, pp, chunks, share = layout.tp, layout.pp, layout.pp * layout.virtual, layout.dp * layout.micro_batch
    heads, interleaved = check("heads", model.heads, COUNT), np.greater(layout.virtual, 1)
    split = layout.cp * np.where(np.equal(layout.sequence_parallel, 1), tp, 1)
    yield "tp·cp·pp·dp is not the number of ranks", np.not_equal(layout.ranks, ranks)
    yield "tp does not divide the heads", ~_divides(tp, heads)
    yield "tp does not divide the key/value heads", ~_divides(tp, model.kv_heads)
    yield "tp does not divide the width of the feed-forward", ~_divides(tp, model.ffn)
    yield "tp does not divide the width of an expert", ~_divides(tp, model.expert_ffn)
    yield "cp (times tp, with sequence parallelism) does not divide the sequence", ~_divides(split, seq)
    yield "there are more stages than layers", np.greater(pp, model.layers)
    yield "virtual stages need a pipeline, pp > 1", interleaved & np.equal(pp, 1)
    uneven = ~_divides(chunks, model.layers) & ~_divides(chunks, model.layers + 2)
    yield "pp·virtual divides neither the layers nor the layers + 2", uneven
    yield "dp·micro_batch does not divide the global batch", ~_divides(share, layout.global_batch)
    yield "interleaving needs a multiple of pp micro-batches", interleaved & ~_divides(pp, layout.microbatches)
    yield "ep does not divide the experts", ~_divides(layout.ep, model.experts)
    yield "ep does not divide dp", ~_divides(layout.ep, layout.dp)


def possible(model: Transformer, layout: Layout, seq: Real, ranks: Real) -> Real:
    """Where a layout can exist for that model, sequence and number of ranks: True or False, of the fields' shape."""
    bad = False
    for _, holds in _refusals(model, layout, seq, ranks):
        bad = bad | holds
    return np.logical_not(bad)[()]


def require(model: Transformer, layout: Layout, seq: Real, ranks: Real) -> Layout:
    """The layout itself, or ValueError with the first reason for which it, or one of many, cannot exist."""
    for reason, holds in _refusals(model, layout, seq, ranks):
        if np.any(holds):
            shape = np.shape(possible(model, layout, seq, ranks))
            first = layout_at(layout, int(np.argmax(np.broadcast_to(holds, shape))))
            sizes = ", ".join(f"{field.name} {getattr(first, field.name):g}" for field in fields(first))
            raise ValueError(f"{reason}: {sizes}; {ranks} ranks, sequence of {seq}")
    return layout


def layout_at(layout: Layout, index: Real) -> Layout:
    """The layouts with that flat index, or those indices, among broadcast ones."""
    values = np.broadcast_arrays(*(getattr(layout, field.name) for field in fields(layout)))
    return Layout(*(value.flat[index] for value in values))


# Data parallel: replicas, ZeRO

# Tensor and sequence parallel, context parallel

# Pipeline parallel: the bubble


@domain(stages=COUNT, microbatches=COUNT, virtual=COUNT)
def bubble_over_ideal(stages: Real, microbatches: Real, virtual: Real = 1) -> Real:
    """(pp − 1)/(v·m): idle time of a pipeline over the time of its work; 1F1B has v = 1, interleaving v > 1."""
    return (stages - 1) / (virtual * microbatches)


@domain(stages=COUNT, microbatches=COUNT, virtual=COUNT)
def bubble_of_total(stages: Real, microbatches: Real, virtual: Real = 1) -> Real:
    """(pp − 1)/(v·m + pp − 1): idle time of a pipeline over all its time."""
    return (stages - 1) / (virtual * microbatches + stages - 1)


@domain(stages=COUNT, forward=NONNEGATIVE, backward=NONNEGATIVE, weight=NONNEGATIVE)
def zero_bubble_time(stages: Real, forward: Real, backward: Real, weight: Real) -> Real:
    """T = (pp − 1)(F + B − 2W): what the schedule ZB-H1 leaves idle of a rank in a step, in s; W ≤ (F + B)/2.

    F, B and W are the times of one micro-batch in one stage. B (`backward`) is the **whole** backward pass and W
    (`weight`) the part of it that makes gradients of weights. Who writes B for the input's part alone, B − W here,
    prints (pp − 1)(F + B − W) for the same time. Qi et al. (2024).
    """
    check("(F + B) − 2W", forward + backward - 2 * weight, NONNEGATIVE)
    return (stages - 1) * (forward + backward - 2 * weight)


@domain(stages=COUNT, work=POSITIVE, split=POSITIVE, hop=NONNEGATIVE)
def pipeline_crossover(stages: Real, work: Real, split: Real, hop: Real) -> Real:
    """m* = (pp − 1)·t/(c − 2T): the micro-batches from which a pipeline costs less than splitting each layer.

    For one micro-batch: t s of work (`work`) on each of the same GPUs, c s of collectives (`split`) when its layers are
    split, T s (`hop`) for its activations from a stage to the next, once forward and once back. Raises if c ≤ 2T.
    """
    return (stages - 1) * work / check("split − 2·hop", split - 2 * hop, POSITIVE)


# Expert parallel
