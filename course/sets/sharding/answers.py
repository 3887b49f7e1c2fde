"""Right and known wrong answers of the set on data and tensor parallelism."""

from course.grading import Function, Prediction, Value
from distlib.hardware import accelerator
from distlib.parallel import data_hidden_tokens, replica_bytes, tensor_bytes, zero3_bytes
from distlib.published import sharded_runs
from distlib.transformer import training_flops
from distlib.units import GB


def held(p, gradients=2.0, optimiser=12.0, dp=None):
    return p.parameters * (2 + (gradients + optimiser) / (dp or p.dp)) / GB


def sent(p):
    return zero3_bytes(2 * p.parameters, 2 * p.parameters, p.dp, p.microbatches) / GB


def loss(p):
    return sum(size * mean for size, mean in zip(p.batches, p.losses, strict=True)) / sum(p.batches)


def share(p, split=None, both=1.0):
    compute = 24 * p.seq * p.hidden**2 * (1 + p.seq / (6 * p.hidden)) / (split or p.tp) / p.flops
    comm = both * tensor_bytes(2 * p.seq * p.hidden, p.tp) / p.nvlink
    return 100 * comm / (compute + comm)


def mfu(p):
    [run] = [run for run in sharded_runs() if (run.model, run.gpus) == (p.name, p.most)]
    return 100 * training_flops(run.parameters, run.rate) / accelerator("A100 40GB").peak


def hidden_tokens(parameters, dp, flops, beta):
    busbw = beta  # of a ring without latency; the law takes the limit of many ranks
    return data_hidden_tokens(flops, busbw) * replica_bytes(1.0, dp) / 2


TASKS = (
    Prediction(name="guess", options=("ZeRO-1", "ZeRO-2", "ZeRO-3")),
    Value(
        name="held",
        right=held,
        wrong={
            "that is ZeRO-3, which shards the weights too": lambda p: 16 * p.parameters / p.dp / GB,
            "that is ZeRO-1: ZeRO-2 shards the gradients as well": lambda p: p.parameters * (4 + 12 / p.dp) / GB,
            "that is GiB, 2^30 byte; the task asks for GB": lambda p: held(p) * GB / 2**30,
            "nothing is sharded in this answer": lambda p: 16 * p.parameters / GB,
        },
    ),
    Value(
        name="sent",
        right=sent,
        wrong={
            "the weights are gathered twice, for the forward and for the backward pass": lambda p: sent(p) * 2 / 3,
            "a rank that keeps only shards gathers and reduces in every micro-batch": (
                lambda p: sent(p) / p.microbatches
            ),
            "that is what replicas send, once a step": lambda p: replica_bytes(2 * p.parameters, p.dp) / GB,
            "16 bits are two bytes": lambda p: sent(p) * 8,
        },
        tolerance=0.002,
    ),
    Value(
        name="loss",
        right=loss,
        wrong={
            "a mean of means weighs the smaller batch too much": lambda p: sum(p.losses) / 2,
            "that is the sum over the samples, not the mean": lambda p: loss(p) * sum(p.batches),
            "the weights are exchanged": (
                lambda p: (p.batches[1] * p.losses[0] + p.batches[0] * p.losses[1]) / sum(p.batches)
            ),
        },
        tolerance=0.001,
    ),
    Function(
        name="hidden_tokens",
        right=hidden_tokens,
        cases=lambda p: [(p.parameters, p.dp, p.flops, p.nvlink), (1e9, 2, 4e14, 1e11), (7e10, 512, 5e14, 4.5e10)],
        wrong={
            "an all-reduce sends almost twice the array": (
                "def hidden_tokens(parameters, dp, flops, beta):\n    return (dp - 1) / dp * flops / beta / 2\n"
            ),
            "only the backward pass can hide it: 4 FLOP a parameter and token, not 6": (
                "def hidden_tokens(parameters, dp, flops, beta):\n    return (dp - 1) / dp * flops / beta * 4 / 6\n"
            ),
            "the gradients are 16 bits, two bytes": (
                "def hidden_tokens(parameters, dp, flops, beta):\n    return 2 * (dp - 1) / dp * flops / beta\n"
            ),
        },
        shortcut=(
            "from distlib.parallel import data_hidden_tokens\n"
            "def hidden_tokens(parameters, dp, flops, beta):\n"
            "    return data_hidden_tokens(flops, beta) * (dp - 1) / dp\n"
        ),
    ),
    Value(
        name="share",
        right=share,
        wrong={
            "the products are split over the GPUs too": lambda p: share(p, split=1),
            "one all-reduce after attention, one after the feed-forward": lambda p: share(p, both=0.5),
            "each activation is 16 bits, two bytes": lambda p: share(p, both=2.0),
        },
    ),
    Value(
        name="mfu",
        right=mfu,
        wrong={
            "624 TFLOP/s is with structured sparsity; dense is half of it": lambda p: mfu(p) / 2,
            "8 FLOP count the forward pass twice: that is HFU": lambda p: mfu(p) * 8 / 6,
            "that counts the forward pass alone": lambda p: mfu(p) / 3,
            "the rate is of one GPU already": lambda p: mfu(p) / p.most,
        },
    ),
)
