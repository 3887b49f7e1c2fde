"""The step of a model on a cluster in a layout, from first principles: how long each part of it takes, in s.

A rank's step is a sum of parts. Matrix products take the longer of their FLOPs at a fraction of the peak and their
bytes at the memory's bandwidth; element-wise work takes its bytes; a collective takes (√α + √(n/β))² on the link that
its group has; what can run beside other work is hidden up to the time of that work, and costs a share of it. The
slowest stage of the pipeline sets the pace of the others. Everything broadcasts over the fields of the layout (and of
the model): a million layouts are one call.

What no data sheet says stands in one record, `Stack`: the fractions that software reaches and what it does. It
belongs to a kind of accelerator and its software, never to one published run.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distlib.domain import COUNT, FRACTION, NONNEGATIVE, POSITIVE, Real, domain
from distlib.hardware import Cluster
from distlib.parallel import WEIGHT, Held, Layout, layer_held, require, stage_held, stage_layers
from distlib.published import StepTimes
from distlib.step import Step
from distlib.transformer import FULL, SELECTIVE, SWITCH, Transformer

# What no data sheet says


@domain(
    product=FRACTION, memory=FRACTION, attention=FRACTION, fabric=FRACTION, backward=POSITIVE, contention=FRACTION,
    accumulation=NONNEGATIVE, loss=NONNEGATIVE, update=NONNEGATIVE, gradient=POSITIVE, hop_overlap=SWITCH,
    early_stop=SWITCH,
)  # fmt: skip
@dataclass(frozen=True)
class Stack:
    """Software on one kind of accelerator: the fractions of the data sheet that it reaches, and what it does."""

    product: Real  # of the peak, by a matrix product
    memory: Real  # of the memory's bandwidth, by all that moves bytes
    attention: Real  # of the peak, by flash attention forward, of which the causal half is counted
    fabric: Real  # of the ports' bandwidth, by a collective over many nodes
    backward: Real = 0.86  # rate of flash attention backward over forward
    contention: Real = 0.189  # what a hidden second of communication adds to the work beside it, in s
    accumulation: Real = 8  # bytes a parameter and micro-batch, to add a weight's gradient to the sum
    loss: Real = 52  # bytes a logit, forward and backward
    update: Real = 58  # bytes a parameter, of the optimiser
    gradient: Real = 4  # bytes of a gradient that is reduced
    hop_overlap: Real = 0  # 1: with interleaving, activations travel between stages beside other work
    early_stop: Real = 0  # 1: full recomputation leaves a layer's last product out, as its output is not needed
    fitted: tuple[str, ...] = ()  # the constants that were fitted to published steps; all others were fixed before


#: Where the constants that are not fitted come from.
SOURCES = {
    "memory": "H100, NeMo: taken over from the fit on A100",
    "attention": "H100: cuDNN, causal, 128 wide, 8k, 529 TFLOP/s (Shah et al. 2024); Megatron-LM on A100: assumed, "
                 "for planning, as no row uses it",
    "fabric": "A100: all-reduce of 1 GB over 1,024 ranks, polaris_1024_all_reduce; H100: h100x_10n8_reduce_scatter",
    "backward": "318 over 370 TFLOP/s: FlashAttention-2 on H100, 128 wide, 8k (Shah et al. 2024)",
    "contention": "mean slowdown by overlap, A100, H100 and others (Lee et al. 2025)",
    "accumulation": "counted: a 32-bit sum read and written; in 16 bits, and not fused, as much",
    "loss": "counted: the operations of Megatron-LM's vocabulary-parallel cross-entropy in 32 bits; of PyTorch's, 28",
    "update": "counted: Adam 28, unscaling 6, norm, clipping and test for overflow 16, copies 6, zeroing 2",
    "gradient": "in the data, by run: 2 in fp16 (2021), else 4",
    "hop_overlap": "NeMo's documentation, communication overlap; none in Megatron-LM of 2021",
    "early_stop": "PyTorch's checkpoint without reentry stops when all it needs is there; Megatron-LM's does not",
}  # fmt: skip

#: Megatron-LM on A100, NeMo on H100, and PyTorch's FSDP by llm-foundry on both: fitted to the steps in published.
MEGATRON_A100 = Stack(0.813, 0.625, 0.6, 0.61, fitted=("product", "memory"))
NEMO_H100 = Stack(0.744, 0.625, 0.535, 0.81, hop_overlap=1, fitted=("product",))
FSDP_A100 = Stack(0.733, 0.420, 0.357, 0.61, loss=28, early_stop=1, fitted=("product", "memory", "attention"))
FSDP_H100 = Stack(0.613, 0.341, 0.199, 0.81, loss=28, early_stop=1, fitted=("product", "memory", "attention"))


# The parts of a step


@dataclass(frozen=True)
class Estimate:
    """The parts of a step on the slowest rank, in s; they add up to `total`. `hidden` is communication beside work."""

    products: Real  # of the layers
    attention: Real
    elementwise: Real
    recomputation: Real
    vocabulary: Real  # of the output head and the loss, where the last stage is the slowest
    optimiser: Real
    contention: Real  # what the hidden communication slows the work by
    tensor: Real  # exposed, as are the communications below
    context: Real
    experts: Real
    hops: Real  # between stages
    data: Real
    bubble: Real
    hidden: Real  # not in the total

    @property
    def compute(self) -> Real:
        """T_compute/N."""
        work = self.products + self.attention + self.elementwise + self.recomputation
        return work + self.vocabulary + self.optimiser + self.contention

    @property
    def exposed(self) -> Real:
        """T_comm − T_overlap: the communication that nothing hides."""
        return self.tensor + self.context + self.experts + self.hops + self.data

    @property
    def total(self) -> Real:
        """T_step."""
        return self.compute + self.exposed + self.bubble

    def step(self, ranks: Real) -> Step:
        """The same as the four terms of Principle 10; communications that are hidden at once count once."""
        overlap = np.minimum(self.hidden, self.compute)
        return Step(self.compute * ranks, ranks, self.exposed + overlap, self.bubble, overlap)


@dataclass(frozen=True)
class _Machine:
    """Rates of one rank, with the stack's fractions taken."""

    peak: Real
    memory: Real
    inside: Real
    inside_alpha: Real
    outside: Real
    outside_alpha: Real
    node: int


def _machine(cluster: Cluster, stack: Stack) -> _Machine:
    device, link = cluster.node.accelerator, cluster.node.measured_link()
    port = cluster.specified_link()
    return _Machine(device.peak * stack.product, device.memory_bandwidth * stack.memory, link.beta, link.alpha,
                    port.beta * stack.fabric, port.alpha, cluster.node.accelerators)  # fmt: skip


def _product(m: Real, n: Real, k: Real, machine: _Machine, count: Real = 1) -> Real:
    """max(2mnk/peak, 2(mk + kn + mn)/memory)·count: an m × k by k × n product of 16-bit numbers."""
    return count * np.maximum(2 * m * n * k / machine.peak, 2 * (m * (k + n) + k * n) / machine.memory)


def _group(ranks: Real, stride: Real, machine: _Machine) -> tuple[Real, Real]:
    """(α, (N − 1)/(Nβ)) of a ring over N ranks that lie `stride` apart, in s and s/byte.

    α adds up its hops, within nodes and between them. A group with r ranks in a node has r shares of the node's ports
    for its way out: β = min(inside, r·outside), and inside alone if it stays in one node.
    """
    local = np.minimum(ranks, np.maximum(np.floor(machine.node / stride), 1))
    nodes = np.ceil(ranks / local)
    beta = np.where(nodes > 1, np.minimum(machine.inside, local * machine.outside), machine.inside)
    alpha = (nodes - 1) * machine.outside_alpha + (ranks - nodes) * machine.inside_alpha
    return alpha, (1 - 1 / ranks) / beta


def _gather(n: Real, group: tuple[Real, Real]) -> Real:
    """(√α + √(n(N − 1)/(Nβ)))²: an all-gather or reduce-scatter of n bytes, in chunks that follow each other."""
    alpha, each = group[0], n * group[1]
    return alpha + each + 2 * np.sqrt(alpha * each)


def _exchange(n: Real, ranks: Real, stride: Real, machine: _Machine) -> Real:
    """An all-to-all of n bytes a rank: (N − 1)α, and the longer of what stays in the node and what leaves it."""
    local = np.minimum(ranks, np.maximum(np.floor(machine.node / stride), 1))
    away = (ranks - local) / ranks
    start = (local - 1) * machine.inside_alpha + (ranks - local) * machine.outside_alpha
    return start + n * np.maximum((local - 1) / ranks / machine.inside, away / machine.outside)


def _link(ranks: Real, stride: Real, machine: _Machine) -> tuple[Real, Real]:
    """(α, β) between neighbours: of the node if all `ranks`, `stride` apart, lie in one."""
    within = ranks * stride <= machine.node
    return (np.where(within, machine.inside_alpha, machine.outside_alpha),
            np.where(within, machine.inside, machine.outside))  # fmt: skip


def _uncovered(comm: Real, cover: Real) -> Real:
    """max(comm − cover, 0): what the work beside it cannot hide."""
    return np.maximum(comm - cover, 0)


# The law


@domain(seq=COUNT)
def estimate(model: Transformer, cluster: Cluster, layout: Layout, seq: Real, stack: Stack) -> Estimate:
    """The parts of one step, in s. A layout that cannot exist on the cluster raises ValueError with the reason."""
    return parts(model, cluster, require(model, layout, seq, cluster.ranks), seq, stack)


def parts(model: Transformer, cluster: Cluster, layout: Layout, seq: Real, stack: Stack) -> Estimate:
    """`estimate` of layouts that are known to exist.

    T = m·(n·layer + hops + vocabulary) + bubble + data + optimiser, of the slowest stage: its n layers, and the output
    head with its all-reduce if it is the last.
    """
    rank = _machine(cluster, stack)
    pp, m, v = layout.pp, layout.microbatches, layout.virtual
    work = _layer_work(model, layout, seq, rank, stack)
    half = _gather(2 * layout.micro_batch * seq / layout.cp * model.hidden, _group(layout.tp, 1, rank))
    comm = _layer_comm(model, layout, seq, rank, work, half)
    each = work.total + comm.exposed + stack.contention * comm.hidden

    hop, beside = (pp > 1) * 2 * v * _hop(model, layout, seq, rank, half), stack.hop_overlap * (v > 1)
    words = _vocabulary(model, layout, seq, rank, stack) + 2 * half
    inner = stage_layers(model.layers, layout, pp > 2)
    outer = stage_layers(model.layers, layout, pp - 1)
    ends = outer * each + words >= inner * each
    n = m * np.where(ends, outer, inner)

    held = stage_held(model, layout, 0)
    free = np.maximum(work.backward - comm.hidden, 0)
    data, cover = _data(model, layout, held, rank, stack, work.forward, free, inner)
    return Estimate(
        products=n * work.products,
        attention=n * work.attention,
        elementwise=n * work.elementwise,
        recomputation=n * work.again,
        vocabulary=m * ends * words,
        optimiser=held.bytes(stack.update, layout, layout.zero > 0) / rank.memory,
        contention=stack.contention * (n * comm.hidden + cover),
        tensor=n * comm.tensor,
        context=n * comm.context,
        experts=n * comm.experts,
        hops=m * (1 - beside) * hop,
        data=data,
        bubble=(pp - 1) / v * (inner * each + hop),
        hidden=n * comm.hidden + cover + m * beside * hop,
    )


@dataclass(frozen=True)
class _Work:
    """Of one layer and micro-batch, in s."""

    attend: Real  # products into queries, keys, values, one pass
    expand: Real  # products into the feed-forward, one pass
    products: Real  # all, forward and backward
    attention: Real
    elementwise: Real
    again: Real  # recomputation
    forward: Real
    scores: Real  # attention forward

    @property
    def total(self) -> Real:
        return self.products + self.attention + self.elementwise + self.again

    @property
    def backward(self) -> Real:
        return self.total - self.forward


def _layer_work(model: Transformer, layout: Layout, seq: Real, rank: _Machine, stack: Stack) -> _Work:
    """Products thrice (forward, and for the gradients of inputs and of weights), attention, what moves bytes."""
    tp, h, tokens = layout.tp, model.hidden, layout.micro_batch * seq / layout.cp
    attend = _product(tokens, h * (1 + 2 * model.kv_share) / tp, h, rank)
    expand = _product(tokens, (1 + model.gated) * model.ffn / tp, h, rank)
    contract = _product(tokens, h, model.ffn / tp, rank)
    wide, moved = tokens * model.ffn, 0.0
    if np.any(model.experts > 1):
        sparse, per = model.expert_layers / model.layers, tokens * model.top_k * layout.ep / model.experts
        count, common = model.experts / layout.ep, model.shared * model.expert_ffn / tp
        inner = model.expert_ffn / tp
        chosen = _product(per, (1 + model.gated) * inner, h, rank, count), _product(per, h, inner, rank, count)
        shared = _product(tokens, (1 + model.gated) * common, h, rank), _product(tokens, h, common, rank)
        expand = (1 - sparse) * expand + sparse * (chosen[0] + shared[0])
        contract = (1 - sparse) * contract + sparse * (chosen[1] + shared[1])
        wide = (1 - sparse) * wide + sparse * tokens * (model.top_k + model.shared) * model.expert_ffn
        moved = sparse * 8 * tokens * model.top_k * h
    once = attend + _product(tokens, h, h / tp, rank) + expand + contract
    held = layer_held(model, layout)
    products = 3 * once + stack.accumulation * (held.shared + held.experts) / rank.memory

    scores, gradient = _attention(model, layout, seq, rank, stack)
    ahead, back = _elementwise(model, layout, tokens, wide, moved)
    ahead, back = ahead / rank.memory, back / rank.memory
    forward = once + scores + ahead
    again = (layout.recompute == FULL) * (forward - stack.early_stop * contract)
    again = again + (layout.recompute == SELECTIVE) * scores
    return _Work(attend, expand, products, scores + gradient, ahead + back, again, forward, scores)


def _attention(model: Transformer, layout: Layout, seq: Real, rank: _Machine, stack: Stack) -> tuple[Real, Real]:
    """Forward and backward, in s. Flash attention: the causal half of two products, and of five, at its own rate.

    Without it, the whole score matrix is multiplied, written and read: 4 bytes a score by the softmax, 5 by dropout
    with its mask; backward 6 and 5.
    """
    part = layout.micro_batch / layout.tp
    rows, kept = seq / layout.cp, 5 * model.dropout
    flash = 2 * part * model.hidden * rows * seq / (rank.peak / stack.product * stack.attention)
    if np.all(layout.flash):
        return flash, 2.5 / stack.backward * flash
    heads, depth = part * model.heads, model.hidden / model.heads
    moved = heads * rows * seq / rank.memory
    products = 2 * _product(rows, seq, depth, rank, heads)
    whole = products + (4 + kept) * moved, 2 * products + (6 + kept) * moved
    return np.where(layout.flash, flash, whole[0]), np.where(layout.flash, 2.5 / stack.backward * flash, whole[1])


def _elementwise(model: Transformer, layout: Layout, tokens: Real, wide: Real, moved: Real) -> tuple[Real, Real]:
    """Bytes of one layer forward and backward, at 2 a number and 1 a dropout mask.

    Not split by width: two normalisations (read, write; backward two reads of gradient and input, one write) and two
    residual sums (two reads, one write), with dropout; gradients of biases are a read. Split: the function of the
    feed-forward, the copies between layouts around the score matrix, and tokens sent to experts.
    """
    rows = tokens * model.hidden / np.where(layout.sequence_parallel, layout.tp, 1)
    copies = 4 * (1 - layout.flash) * tokens * model.hidden
    added = 2 * model.biases * (tokens * model.hidden * (1 + 2 * model.kv_share) + wide * (1 + model.gated))
    ahead = (copies + (4 + 2 * model.gated) * wide + moved) / layout.tp
    back = (copies + (6 + 4 * model.gated) * wide + moved + added) / layout.tp
    return (20 + 2 * model.dropout) * rows + ahead, (28 + 10 * model.dropout + 4 * model.biases) * rows + back


@dataclass(frozen=True)
class _Comm:
    """Of one layer and micro-batch, in s: what is exposed of each kind, and what is hidden of all."""

    tensor: Real
    context: Real
    experts: Real
    hidden: Real

    @property
    def exposed(self) -> Real:
        return self.tensor + self.context + self.experts


def _layer_comm(model: Transformer, layout: Layout, seq: Real, rank: _Machine, work: _Work, half: Real) -> _Comm:
    """Tensor parallel: four halves of an all-reduce forward, and again if the forward pass is. Backward four; six with
    sequence parallelism, which gathers the inputs anew. With overlap, the reduction of an input's gradient hides behind
    the product for the weights' gradient, and that gathering behind the product before it.

    Context parallel: keys and values go round a ring behind the attention of the part at hand; backward, with their
    gradients. Experts: two all-to-alls each pass, exposed.
    """
    tp, cp, split = layout.tp, layout.cp, layout.sequence_parallel
    passes, sends = 1 + (layout.recompute == FULL), 2 * layout.micro_batch * seq / cp * model.hidden
    reduce = (2 - split) * half
    late = _uncovered(reduce, work.attend) + _uncovered(reduce, work.expand)
    late = late + split * (_uncovered(half, work.attend) + _uncovered(half, work.expand) + 2 * half)
    whole = (4 + 2 * split) * half
    late = np.where(layout.tp_overlap, late, whole)
    tensor, hidden = 4 * passes * half + late, whole - late

    context = experts = 0.0
    if np.any(cp > 1):
        alpha, beta = _link(cp, tp, rank)
        ring = (cp - 1) * alpha, (cp - 1) * 2 * sends * model.kv_share / tp / beta
        rest = (cp - 1) / cp
        ahead, back = ring[0] + ring[1], ring[0] + 2 * ring[1]
        shown = _uncovered(ahead, rest * work.scores), _uncovered(back, rest * (work.attention - work.scores))
        context = passes * shown[0] + shown[1]
        hidden = hidden + passes * ahead + back - context
    if np.any(model.experts > 1):
        buffer = sends * model.top_k / np.where(split, tp, 1)
        trips = 2 * (passes + 1) * model.expert_layers / model.layers
        experts = trips * _exchange(buffer, layout.ep, tp * cp, rank)
    return _Comm(tensor, context, experts, hidden)


def _hop(model: Transformer, layout: Layout, seq: Real, rank: _Machine, half: Real) -> Real:
    """α + n/β from a stage to the next: each tensor rank sends its part, then they gather if they must."""
    sends = 2 * layout.micro_batch * seq / layout.cp * model.hidden
    alpha, beta = _link(layout.pp, layout.tp * layout.cp * layout.dp, rank)
    return alpha + sends / layout.tp / beta + (1 - layout.sequence_parallel) * half


def _vocabulary(model: Transformer, layout: Layout, seq: Real, rank: _Machine, stack: Stack) -> Real:
    """Output head (a product thrice) and loss of one micro-batch, in s."""
    tokens, words = layout.micro_batch * seq / layout.cp, model.vocab / layout.tp
    moved = stack.accumulation * words * model.hidden + stack.loss * tokens * words
    return 3 * _product(tokens, words, model.hidden, rank) + moved / rank.memory


def _data(
    model: Transformer, layout: Layout, held: Held, rank: _Machine, stack: Stack, forward: Real, back: Real,
    layers: Real,
) -> tuple[Real, Real]:  # fmt: skip
    """(exposed, hidden) time of the data-parallel ranks' exchange in the first stage, in s.

    Gradients are reduced once a step, with ZeRO-2 and 3 once a micro-batch; then weights (with ZeRO) or gradients are
    gathered. What overlaps hides behind the backward pass of one micro-batch (`back` a layer, less what hides there
    already), and weights behind a forward pass; not the embedding's part, which comes last. ZeRO-3 gathers each
    layer before it is used, forward and backward.
    """
    many, zero = layout.dp * layout.cp, layout.zero
    group = _group(many, layout.tp, rank)
    moe = np.any(model.experts > 1)
    expert_group = _group(many / layout.ep, layout.tp * layout.cp * layout.ep, rank) if moe else group

    def gather(each: Real, share: Real = 1) -> Real:
        time = _gather(each * held.shared / share, group)
        return time + _gather(each * held.experts / share, expert_group) if moe else time

    weight = np.where(zero > 0, WEIGHT, stack.gradient)
    reduces = np.where(zero > 1, layout.microbatches, 1)
    whole = reduces * gather(stack.gradient) + gather(weight)
    cover = layers * (reduces * back + (zero > 0) * forward)
    tail = _gather((stack.gradient + weight) * model.vocab * model.hidden / layout.tp, group)
    shown = np.minimum(np.maximum(whole - cover, tail), whole)
    if np.any(zero == 3):
        fetch, drop, count = gather(WEIGHT, layers), gather(stack.gradient, layers), layers * layout.microbatches
        late = count * (_uncovered(fetch, forward) + _uncovered(fetch + drop, back))
        whole = np.where(zero == 3, count * (2 * fetch + drop), whole)
        shown = np.where(zero == 3, late, shown)
    shown = np.where(layout.dp_overlap, shown, whole)
    return shown, whole - shown


# Held to published steps


def predicted(runs: StepTimes, cluster: Cluster, stack: Stack) -> np.ndarray:
    """T_step of each run, in s; gradients have the bytes that the run says."""
    return parts(runs.model, cluster, runs.layout, runs.seq, replace(stack, gradient=runs.gradient)).total


def fit_stack(runs: StepTimes, cluster: Cluster, stack: Stack) -> Stack:
    """The stack with the least Σ ln²(predicted/measured) over its `fitted` constants, from its own as the start."""
    from scipy.optimize import least_squares

    def logs(values: np.ndarray) -> np.ndarray:
        return np.log(predicted(runs, cluster, with_(values)) / runs.time)

    def with_(values: np.ndarray) -> Stack:
        constants: dict[str, Any] = dict(zip(stack.fitted, map(float, values), strict=True))
        return replace(stack, **constants)

    start = np.array([getattr(stack, name) for name in stack.fitted])
    return with_(least_squares(logs, start, bounds=(1e-2, 1), x_scale=start, xtol=1e-10).x)


def left_out(runs: StepTimes, cluster: Cluster, stack: Stack, groups: np.ndarray) -> np.ndarray:
    """T_step in s, each group of runs predicted by a fit to all others."""
    times = np.empty(len(runs))
    for name in dict.fromkeys(groups):
        out = groups == name
        times[out] = predicted(runs.where(out), cluster, fit_stack(runs.where(~out), cluster, stack))
    return times
