"""What a parallel layout costs each rank: its memory, the bytes that it sends, the time for which it waits.

A layout shares one model and one batch among N = tp·cp·pp·dp ranks. Bytes are those that one rank sends, one way, as
in `distlib.collectives`; memory is that of one rank.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np

from distlib.collectives import ring_all_gather_bytes, ring_all_reduce_bytes, ring_reduce_scatter_bytes
from distlib.domain import COUNT, NONNEGATIVE, POSITIVE, Domain, Real, check, domain, whole
from distlib.transformer import (
    FULL,
    NONE,
    RECOMPUTE,
    SWITCH,
    Transformer,
    attention_parameters,
    expert_parameters,
    ffn_parameters,
    vector_parameters,
)

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

    def __str__(self) -> str:
        """Of one layout, its fields that differ from one rank's: "tp 8, pp 16, dp 128, …"."""
        values = ((field.name, getattr(self, field.name), field.default) for field in fields(self))
        return ", ".join(f"{name} {value:g}" for name, value, default in values if value != default)

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
    ends = 1.0 * np.equal(stage, 0) + np.equal(stage, layout.pp - 1)
    even = _divides(layout.pp * layout.virtual, layers)
    return np.where(even, layers / layout.pp, (layers + 2) / layout.pp - ends)[()]


def _divides(part: Real, total: Real) -> Real:
    share = np.divide(total, part)
    return share == np.rint(share)


def refusals(model: Transformer, layout: Layout, seq: Real, ranks: Real) -> Iterator[tuple[str, Real]]:
    """(reason, where it holds) of each way in which a layout cannot exist."""
    tp, pp, chunks, share = layout.tp, layout.pp, layout.pp * layout.virtual, layout.dp * layout.micro_batch
    heads, interleaved = check("heads", model.heads, COUNT), layout.virtual > 1
    split = layout.cp * np.where(layout.sequence_parallel == 1, tp, 1)
    yield "tp·cp·pp·dp is not the number of ranks", np.not_equal(layout.ranks, ranks)
    yield "tp does not divide the heads", ~_divides(tp, heads)
    yield "tp does not divide the key/value heads", ~_divides(tp, model.kv_heads)
    yield "tp does not divide the width of the feed-forward", ~_divides(tp, model.ffn)
    yield "tp does not divide the width of an expert", ~_divides(tp, model.expert_ffn)
    yield "cp (times tp, with sequence parallelism) does not divide the sequence", ~_divides(split, seq)
    yield "there are more stages than layers", pp > model.layers
    yield "virtual stages need a pipeline, pp > 1", interleaved & (pp == 1)
    uneven = ~_divides(chunks, model.layers) & ~_divides(chunks, model.layers + 2)
    yield "pp·virtual divides neither the layers nor the layers + 2", uneven
    yield "dp·micro_batch does not divide the global batch", ~_divides(share, layout.global_batch)
    yield "interleaving needs a multiple of pp micro-batches", interleaved & ~_divides(pp, layout.microbatches)
    yield "ep does not divide the experts", ~_divides(layout.ep, model.experts)
    yield "ep does not divide dp", ~_divides(layout.ep, layout.dp)


@domain(seq=COUNT, ranks=COUNT)
def possible(model: Transformer, layout: Layout, seq: Real, ranks: Real) -> Real:
    """Where a layout can exist for that model, sequence and number of ranks: True or False, of the fields' shape."""
    bad = False
    for _, holds in refusals(model, layout, seq, ranks):
        bad = bad | holds
    return np.logical_not(bad)[()]


@domain(seq=COUNT, ranks=COUNT)
def require(model: Transformer, layout: Layout, seq: Real, ranks: Real) -> Layout:
    """The layout itself, or ValueError with the first reason for which it, or one of many, cannot exist."""
    for reason, holds in refusals(model, layout, seq, ranks):
        if np.any(holds):
            shape = np.shape(possible(model, layout, seq, ranks))
            first = layout_at(layout, int(np.argmax(np.broadcast_to(holds, shape))))
            raise ValueError(f"{reason}: {first}; {ranks} ranks, sequence of {seq}")
    return layout


def layout_at(layout: Layout, index: Real) -> Layout:
    """The layouts with that flat index, or those indices, among broadcast ones."""
    values = np.broadcast_arrays(*(getattr(layout, field.name) for field in fields(layout)))
    return Layout(*(value.flat[index] for value in values))


# The memory of a rank

#: Bytes of a parameter: its 16-bit weight; its gradient, summed in 32 bits as Megatron-LM and Llama 3 do; and what
#: Adam keeps of it, a 32-bit copy and two moments.
WEIGHT, GRADIENT, OPTIMISER = 2, 4, 12


@dataclass(frozen=True)
class Held:
    """Parameters that a rank holds: those of experts, of which dp·cp/ep ranks have the same, and all others (dp·cp)."""

    shared: Real
    experts: Real

    def bytes(self, each: Real, layout: Layout, split: Real) -> Real:
        """each·(shared + experts), in bytes, of which the replicas keep only their part where `split` is true."""
        replicas = layout.dp * layout.cp
        shared = self.shared / np.where(split, replicas, 1)
        return each * (shared + self.experts / np.where(split, replicas / layout.ep, 1))


def layer_held(model: Transformer, layout: Layout) -> Held:
    """Of the mean layer: matrices/tp, experts/(tp·ep); router and vectors, below 0.1 %, whole on each rank."""
    sparse = model.expert_layers / model.layers
    always = (1 - sparse) * ffn_parameters(model) + sparse * model.shared * expert_parameters(model)
    unsplit = vector_parameters(model) + sparse * model.hidden * model.experts
    chosen = sparse * model.experts * expert_parameters(model) / (layout.tp * layout.ep)
    return Held((attention_parameters(model) + always) / layout.tp + unsplit, chosen)


@domain(stage=whole(0))
def stage_held(model: Transformer, layout: Layout, stage: Real) -> Held:
    """Of a stage: its layers; in the first the embedding, V·h/tp, and the positions; in the last the output head,
    V·h/tp (a second copy if it is tied and pp > 1), and the final normalisations."""
    words = model.vocab * model.hidden / layout.tp
    first, last = np.equal(stage, 0), np.equal(stage, layout.pp - 1)
    head = last * (1 - first * model.tied) * words
    outside = first * (words + model.positions * model.hidden) + head
    outside = outside + last * model.norms * (1 + model.biases) * model.hidden
    layers, one = stage_layers(model.layers, layout, stage), layer_held(model, layout)
    return Held(layers * one.shared + outside, layers * one.experts)


def whole_activations(model: Transformer, layout: Layout, seq: Real) -> Real:
    """sbh(8 + 2·dropout), over cp, and over tp with sequence parallelism: of one layer and micro-batch, in bytes.

    What tensor parallelism does not split: two normalisations' inputs and outputs (2 bytes each element) and two masks
    (1 byte); b is the micro-batch.
    """
    rows = seq * layout.micro_batch / layout.cp
    return rows * model.hidden * (8 + 2 * model.dropout) / np.where(layout.sequence_parallel, layout.tp, 1)


def score_activations(model: Transformer, layout: Layout, seq: Real) -> Real:
    """(2 + 3·dropout)·a·s²b/(tp·cp), a heads: the score matrix after softmax, with dropout also its mask and product.

    Of one layer and micro-batch, in bytes; 0 with flash attention, which never stores it.
    """
    rows = seq * layout.micro_batch / layout.cp
    heads = check("heads", model.heads, COUNT) / layout.tp
    return (1 - layout.flash) * (2 + 3 * model.dropout) * heads * seq * rows


def split_activations(model: Transformer, layout: Layout, seq: Real) -> Real:
    """sb(4h(1 + kv_heads/heads) + (4 + 2·gated)·ffn)/(tp·cp): of one layer and micro-batch, in bytes.

    What tensor parallelism splits: queries, keys, values, attention's output; what goes into the feed-forward's
    function and what comes out. With experts, ffn is that of the top_k and shared ones, evenly loaded, and the copies
    dispatched to the top_k add 2h each.
    """
    rows = seq * layout.micro_batch / layout.cp
    sparse = model.expert_layers / model.layers
    width = (1 - sparse) * model.ffn + sparse * (model.top_k + model.shared) * model.expert_ffn
    sent = 2 * sparse * model.top_k * model.hidden
    return rows * (4 * model.hidden * (1 + model.kv_share) + (4 + 2 * model.gated) * width + sent) / layout.tp


@domain(seq=COUNT)
def layer_activations(model: Transformer, layout: Layout, seq: Real) -> Real:
    """What one layer keeps of one micro-batch for its backward pass, in bytes. Korthikanti et al. (2022).

    Without recomputation the sum of the three above: of a GPT sbh(10 + 24/tp + 5as/(h·tp)), and sbh/tp·(34 + 5as/h)
    with sequence parallelism. Selective recomputation leaves the scores out; full keeps 2sbh, the layer's input.
    """
    unsplit = whole_activations(model, layout, seq)
    scores = (layout.recompute == NONE) * score_activations(model, layout, seq)
    kept = unsplit + split_activations(model, layout, seq) + scores
    return np.where(layout.recompute == FULL, unsplit / (4 + model.dropout), kept)[()]


@domain(stage=whole(0))
def in_flight(layout: Layout, stage: Real) -> Real:
    """Micro-batches whose activations a stage holds at once, each for all its layers: at most m.

    1F1B: pp − stage. Interleaved: (v − 1)·pp + 2(pp − stage) − 1 chunks, each of a 1/v part of the stage's layers.
    """
    ahead = layout.pp - stage
    chunks = (layout.virtual - 1) * layout.pp + 2 * ahead - 1
    held = np.where(layout.virtual > 1, chunks / layout.virtual, ahead)
    return np.minimum(held, layout.microbatches)


@domain(seq=COUNT, stage=whole(0))
def end_activations(model: Transformer, layout: Layout, seq: Real, stage: Real) -> Real:
    """First stage: sbh·dropout, the embedding's mask, of each micro-batch in flight; last: sb(4h + 4V/tp).

    The latter are the inputs of final normalisation and output head, and the logits in 32 bits. In bytes, over cp; what
    has h in it also over tp with sequence parallelism.
    """
    rows = seq * layout.micro_batch / layout.cp
    width = model.hidden / np.where(layout.sequence_parallel, layout.tp, 1)
    mask = np.equal(stage, 0) * model.dropout * width * in_flight(layout, stage)
    return rows * (mask + np.equal(stage, layout.pp - 1) * (4 * width + 4 * model.vocab / layout.tp))


@dataclass(frozen=True)
class Memory:
    """Bytes that a rank holds at its fullest moment, by what they are.

    Left out: the framework's and the network library's own buffers, workspace of kernels, fragmentation.
    """

    weights: Real
    gradients: Real
    optimiser: Real
    activations: Real  # of the layers
    ends: Real  # of embedding and output head
    working: Real  # a layer recomputed before its backward pass; with ZeRO-3 two gathered layers' weights

    @property
    def states(self) -> Real:
        """weights + gradients + optimiser."""
        return self.weights + self.gradients + self.optimiser

    @property
    def total(self) -> Real:
        """The sum of all parts."""
        return self.states + self.activations + self.ends + self.working


@domain(seq=COUNT, stage=whole(0), gradient=POSITIVE)
def stage_memory(model: Transformer, layout: Layout, seq: Real, stage: Real, gradient: Real = GRADIENT) -> Memory:
    """The memory of a rank of that stage, 0 … pp − 1; `gradient` bytes a gradient."""
    held, one = stage_held(model, layout, stage), layer_held(model, layout)
    layer = whole_activations(model, layout, seq) + split_activations(model, layout, seq)
    scores = score_activations(model, layout, seq)
    again = (layout.recompute == FULL) * layer + (layout.recompute != NONE) * scores
    gathered = (layout.zero == 3) * 2 * WEIGHT * (one.shared + one.experts)
    per_layer = layer_activations(model, layout, seq)
    return Memory(
        weights=held.bytes(WEIGHT, layout, layout.zero == 3),
        gradients=held.bytes(gradient, layout, layout.zero > 1),
        optimiser=held.bytes(OPTIMISER, layout, layout.zero > 0),
        activations=per_layer * stage_layers(model.layers, layout, stage) * in_flight(layout, stage),
        ends=end_activations(model, layout, seq, stage),
        working=again + gathered,
    )


@domain(seq=COUNT)
def peak_memory(model: Transformer, layout: Layout, seq: Real, gradient: Real = GRADIENT) -> Real:
    """The fullest rank's bytes: of the stages 0, 1 and pp − 1 (each further one holds less than the one before)."""
    stages = 0, 1, layout.pp - 1  # one stage alone holds more than a second that it lacks would
    totals = [stage_memory(model, layout, seq, stage, gradient).total for stage in stages]
    return np.maximum(np.maximum(totals[0], totals[1]), totals[2])


# Data parallel: replicas, ZeRO. Bytes of a step; `gradients` and `weights` are those of the whole model, in the number
# format in which they are sent. A step adds up m micro-batches (`microbatches`).


@domain(gradients=NONNEGATIVE, dp=COUNT)
def replica_bytes(gradients: Real, dp: Real) -> Real:
    """2(dp−1)/dp·g: replicas all-reduce g bytes of gradients, once a step."""
    return ring_all_reduce_bytes(gradients, dp)


@domain(gradients=NONNEGATIVE, weights=NONNEGATIVE, dp=COUNT)
def zero1_bytes(gradients: Real, weights: Real, dp: Real) -> Real:
    """(dp−1)/dp·(g + w): the gradients are reduce-scattered, and the weights, updated by shards, gathered.

    With g = w what `replica_bytes` says: an all-reduce is both. Rajbhandari et al. (2020).
    """
    return ring_reduce_scatter_bytes(gradients, dp) + ring_all_gather_bytes(weights, dp)


@domain(gradients=NONNEGATIVE, weights=NONNEGATIVE, dp=COUNT, microbatches=COUNT)
def zero2_bytes(gradients: Real, weights: Real, dp: Real, microbatches: Real = 1) -> Real:
    """(dp−1)/dp·(m·g + w): who keeps only a shard of the gradient must reduce-scatter after each micro-batch."""
    return microbatches * ring_reduce_scatter_bytes(gradients, dp) + ring_all_gather_bytes(weights, dp)


@domain(gradients=NONNEGATIVE, weights=NONNEGATIVE, dp=COUNT, microbatches=COUNT)
def zero3_bytes(gradients: Real, weights: Real, dp: Real, microbatches: Real = 1) -> Real:
    """(dp−1)/dp·m·(g + 2w): who keeps only a shard of the weights gathers them for each forward and each backward pass.

    Half as much again as `replica_bytes` if g = w and m = 1.
    """
    return microbatches * (ring_reduce_scatter_bytes(gradients, dp) + 2 * ring_all_gather_bytes(weights, dp))


@domain(rate=POSITIVE, busbw=POSITIVE)
def data_hidden_tokens(rate: Real, busbw: Real) -> Real:
    """tokens = F/busbw: from so many a rank 16-bit gradients take no longer than the backward pass, starts not counted.

    F is the FLOP/s of a rank (`rate`), busbw that of the collective. Backward: 4P·tokens/F against 2·2P/busbw, so the
    parameters drop out. Of a step for replicas, ZeRO-1; of each micro-batch for ZeRO-3, in either pass.
    """
    return rate / busbw


# Tensor and sequence parallel, context parallel. Bytes of one layer and micro-batch; n are the bytes of the activations
# between layers, micro-batch × s × h numbers, whole.


@domain(n=NONNEGATIVE, tp=COUNT)
def tensor_bytes(n: Real, tp: Real) -> Real:
    """4(tp−1)/tp·n: two all-reduces, after attention and after the feed-forward; forward, and again backward."""
    return 2 * ring_all_reduce_bytes(n, tp)


@domain(n=NONNEGATIVE, tp=COUNT)
def sequence_bytes(n: Real, tp: Real) -> Real:
    """4(tp−1)/tp·n: two all-gathers and two reduce-scatters, not two all-reduces; forward, and again backward."""
    return 2 * (ring_all_gather_bytes(n, tp) + ring_reduce_scatter_bytes(n, tp))


@domain(n=NONNEGATIVE, tp=COUNT)
def sequence_regather_bytes(n: Real, tp: Real) -> Real:
    """2(tp−1)/tp·n: backward, two more all-gathers, of the inputs of which each rank kept only its part."""
    return 2 * ring_all_gather_bytes(n, tp)


@domain(hidden=COUNT, seq=COUNT, rate=POSITIVE, beta=POSITIVE)
def tensor_break_even(hidden: Real, seq: Real, rate: Real, beta: Real) -> Real:
    """tp = 1 + 3hβ/F·(1 + s/(6h)): where a layer's all-reduces take as long as its products.

    A rank computes at F FLOP/s (`rate`) its share of 24·tokens·h²(1 + s/(6h)) FLOP a pass and sends 4(tp−1)/tp·n,
    n = 2·tokens·h (16-bit), at β, starts not counted. Communication over computation is (tp−1)/(break-even − 1).
    """
    return 1 + 3 * hidden * beta / rate * (1 + seq / (6 * hidden))


@domain(n=NONNEGATIVE, heads=COUNT, kv_heads=COUNT)
def key_value_bytes(n: Real, heads: Real, kv_heads: Real) -> Real:
    """2n·(key/value heads)/heads: keys and values of one layer, whole; all heads have their own, or groups share."""
    return 2 * n * kv_heads / heads


@domain(keys_values=NONNEGATIVE, cp=COUNT)
def context_forward_bytes(keys_values: Real, cp: Real) -> Real:
    """(cp−1)/cp·kv: each rank's part of the keys and values goes round the ring to all others."""
    return ring_all_gather_bytes(keys_values, cp)


@domain(keys_values=NONNEGATIVE, gradients=NONNEGATIVE, cp=COUNT)
def context_backward_bytes(keys_values: Real, gradients: Real, cp: Real) -> Real:
    """(cp−1)/cp·(kv + g): they go round again, and their gradients of g bytes, summed on the way, back home."""
    return ring_all_gather_bytes(keys_values, cp) + ring_reduce_scatter_bytes(gradients, cp)


@domain(rate=POSITIVE, beta=POSITIVE, heads=COUNT, kv_heads=COUNT)
def context_hidden_tokens(rate: Real, beta: Real, heads: Real, kv_heads: Real) -> Real:
    """s/cp = 2F/β·(key/value heads)/heads: the tokens a rank from which the forward ring hides behind attention.

    In each of cp rounds a rank attends to s/cp keys, half of them masked on average, with 2h·(s/cp)² FLOP at F FLOP/s
    (`rate`), and sends a block of 16-bit keys and values, 4h·s/cp·(key/value heads)/heads bytes, at β.
    """
    return 2 * rate / beta * kv_heads / heads

# Pipeline parallel: the bubble, the activations held, the messages waited for (played in `distlib.schedules`)


@domain(stages=COUNT, microbatches=COUNT, virtual=COUNT)
def bubble_over_ideal(stages: Real, microbatches: Real, virtual: Real = 1) -> Real:
    """(pp − 1)/(v·m): idle time of a pipeline over the time of its work; 1F1B has v = 1, interleaving v > 1."""
    return (stages - 1) / (virtual * microbatches)


@domain(stages=COUNT, microbatches=COUNT, virtual=COUNT)
def bubble_of_total(stages: Real, microbatches: Real, virtual: Real = 1) -> Real:
    """(pp − 1)/(v·m + pp − 1): idle time of a pipeline over all its time."""
    return (stages - 1) / (virtual * microbatches + stages - 1)


@domain(global_batch=COUNT, microbatch=COUNT, dp=COUNT)
def microbatches_per_step(global_batch: Real, microbatch: Real, dp: Real) -> Real:
    """m = global batch/(micro-batch · dp), all in sequences; raises unless it is whole."""
    return check("global_batch / (microbatch · dp)", np.divide(global_batch, np.multiply(microbatch, dp)), COUNT)


@domain(stages=COUNT, microbatches=COUNT, stage=whole(0))
def one_f_one_b_held(stages: Real, microbatches: Real, stage: Real = 0) -> Real:
    """min(m, pp − i): micro-batches of which stage i holds activations at the peak of 1F1B."""
    return np.minimum(microbatches, check("stages − stage", np.subtract(stages, stage), COUNT))


@domain(stages=COUNT, microbatches=COUNT, virtual=COUNT)
def interleaved_held(stages: Real, microbatches: Real, virtual: Real) -> Real:
    """min(m, pp + (pp − 1)/v): the same at the first stage of interleaved 1F1B; m a multiple of pp."""
    check("microbatches / stages", np.divide(microbatches, stages), COUNT)
    return np.minimum(microbatches, stages + (stages - 1) / virtual)


@domain(stages=COUNT, microbatches=COUNT)
def one_f_one_b_hops(stages: Real, microbatches: Real) -> Real:
    """2⌈(pp − 1)(m + pp − 2)/pp⌉: the messages that 1F1B waits for, nearly two a micro-batch; m ≥ pp."""
    return 2 * np.ceil((stages - 1) * (microbatches + stages - 2) / stages)


@domain(stages=COUNT, forward=NONNEGATIVE, backward=NONNEGATIVE, weight=NONNEGATIVE, hop=NONNEGATIVE)
def zero_bubble_time(stages: Real, forward: Real, backward: Real, weight: Real, hop: Real = 0.0) -> Real:
    """T = (pp − 1)(F + B − 2W + 4T_hop): what ZB-H1 leaves idle of a rank in a step, in s; 2T_hop ≤ W ≤ (F + B)/2.

    F, B and W are the times of one micro-batch in one stage. B (`backward`) is the **whole** backward pass and W
    (`weight`) the part of it that makes gradients of weights. Who writes B for the input's part alone, B − W here,
    prints (pp − 1)(F + B − W) for the same time. `hop` is that of a message to the next stage. Qi et al. (2024), who
    leave it out.
    """
    check("(F + B) − 2W", forward + backward - 2 * weight, NONNEGATIVE)
    check("W − 2·hop", weight - 2 * hop, NONNEGATIVE) if np.any(hop) else None
    return (stages - 1) * (forward + backward - 2 * weight + 4 * hop)


@domain(stages=COUNT, work=POSITIVE, split=POSITIVE, hop=NONNEGATIVE)
def pipeline_crossover(stages: Real, work: Real, split: Real, hop: Real) -> Real:
    """m* = (pp − 1)·t/(c − 2T): the micro-batches from which a pipeline costs less than splitting each layer.

    For one micro-batch: t s of work (`work`) on each of the same GPUs, c s of collectives (`split`) when its layers are
    split, T s (`hop`) for its activations from a stage to the next, once forward and once back. Raises if c ≤ 2T.
    """
    return (stages - 1) * work / check("split − 2·hop", split - 2 * hop, POSITIVE)


# Expert parallel: n is all that the tokens of a rank weigh, each once (played in `distlib.experts`)


@domain(tokens=COUNT, topk=COUNT, experts=COUNT, factor=POSITIVE)
def expert_capacity(tokens: Real, topk: Real, experts: Real, factor: Real) -> Real:
    """⌈f·T·k/E⌉: the tokens that an expert takes, of T tokens with k choices each; f is the capacity factor."""
    return np.ceil(factor * tokens * topk / experts)


@domain(experts=COUNT, groups=COUNT, topk=COUNT)
def mean_groups(experts: Real, groups: Real, topk: Real) -> Real:
    """g·(1 − Π_(i<k) (E − E/g − i)/(E − i)): to how many of g groups of experts a token goes, on average.

    Its k experts are any k of E, all sets alike; the product is the chance that a group of E/g has none of them.
    """
    from scipy.special import gammaln

    size = check("experts / groups", np.divide(experts, groups), COUNT)
    check("experts − topk", np.subtract(experts, topk), NONNEGATIVE)
    outside = np.subtract(experts, size)
    ways = gammaln(outside + 1) - gammaln(outside - topk + 1) - gammaln(experts + 1) + gammaln(experts - topk + 1)
    return groups * (1 - np.exp(ways))


@domain(n=NONNEGATIVE, topk=NONNEGATIVE, nodes=COUNT)
def direct_nic_bytes(n: Real, topk: Real, nodes: Real) -> Real:
    """n·k·(nodes − 1)/nodes: what the NIC of a rank sends if each token goes to each of its k experts by itself."""
    return n * topk * (nodes - 1) / nodes


@domain(n=NONNEGATIVE, topk=NONNEGATIVE, nodes=COUNT, gpus=COUNT)
def direct_nvlink_bytes(n: Real, topk: Real, nodes: Real, gpus: Real) -> Real:
    """n·k·(gpus − 1)/(nodes·gpus): what it then sends to its node-mates."""
    return n * topk * (gpus - 1) / (nodes * gpus)


@domain(n=NONNEGATIVE, to_nodes=NONNEGATIVE, nodes=COUNT)
def expert_nic_bytes(n: Real, to_nodes: Real, nodes: Real) -> Real:
    """n·d·(nodes − 1)/nodes: what the NIC of a rank sends if a token goes once to each of the d nodes that it needs.

    All nodes alike. Dispatch and combine send this each, and each again for the gradient. A benchmark that counts n·d
    (DeepEP's) prints nodes/(nodes − 1) times what the NIC carries.
    """
    return n * to_nodes * (nodes - 1) / nodes


@domain(n=NONNEGATIVE, to_ranks=NONNEGATIVE, gpus=COUNT)
def expert_nvlink_bytes(n: Real, to_ranks: Real, gpus: Real) -> Real:
    """n·d·(gpus − 1)/gpus: what a rank passes on to its node-mates if a token goes to d ranks, all alike."""
    return n * to_ranks * (gpus - 1) / gpus
