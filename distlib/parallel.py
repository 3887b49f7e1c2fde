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


# Expert parallel
