"""What a parallel layout costs each rank: its memory, the bytes that it sends, the time for which it waits.

A layout shares one model and one batch among N = tp·cp·pp·dp ranks. Bytes are those that one rank sends, one way, as
in `distlib.collectives`; memory is that of one rank.
"""

from distlib.domain import COUNT, NONNEGATIVE, POSITIVE, Real, check, domain

# The layout

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
