"""What a parallel layout costs each rank: its memory, the bytes that it sends, the time for which it waits.

A layout shares one model and one batch among N = tp·cp·pp·dp ranks. Bytes are those that one rank sends, one way, as
in `distlib.collectives`; memory is that of one rank.
"""

import numpy as np

from distlib.domain import COUNT, NONNEGATIVE, POSITIVE, Real, check, domain, whole

# The layout

# Data parallel: replicas, ZeRO

# Tensor and sequence parallel, context parallel

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
