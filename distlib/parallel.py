"""What a parallel layout costs each rank: its memory, the bytes that it sends, the time for which it waits.

A layout shares one model and one batch among N = tp·cp·pp·dp ranks. Bytes are those that one rank sends, one way, as
in `distlib.collectives`; memory is that of one rank.
"""

from distlib.collectives import ring_all_gather_bytes, ring_all_reduce_bytes, ring_reduce_scatter_bytes
from distlib.domain import COUNT, NONNEGATIVE, POSITIVE, Real, check, domain

# The layout

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
