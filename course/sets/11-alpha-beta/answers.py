"""Right and known wrong answers of the set on Principle 11."""

from course.grading import Function, Prediction, Value
from distlib.alphabeta import Link, exposed_time, size_for_fraction, transfer_time
from distlib.collectives import busbw
from distlib.published import sweep


def link(p):
    return Link(p.alpha, p.beta)


def least(p):
    return min(exposed_time(p.gradient, k, p.backward, link(p)) for k in range(1, 2001))


def measured(p):
    table = sweep("aws_p5_1n")
    return table.n[p.row], table.time[p.row]


TASKS = (
    Prediction(name="guess", options=("latency", "bandwidth", "both alike")),
    Value(
        name="size_80",
        right=lambda p: size_for_fraction(0.8, link(p)) / 1e6,
        wrong={
            "that is n½, which reaches half of β": lambda p: p.alpha * p.beta / 1e6,
            "80 % of n½ is not the size that reaches 80 % of β: solve n/T(n) = 0.8 β for n": (
                lambda p: 0.8 * p.alpha * p.beta / 1e6
            ),
            "β is one way here; the answer uses both ways": lambda p: 8 * p.alpha * p.beta / 1e6,
            "that is MiB, 2^20 byte; the task asks for MB": lambda p: 4 * p.alpha * p.beta / 2**20,
        },
    ),
    Value(
        name="one_way",
        right=lambda p: 1e3 * transfer_time(p.gradient, link(p)),
        wrong={
            "the sum of both ways does not speed up a message that goes one way": (
                lambda p: 1e3 * (p.alpha + p.gradient / (2 * p.beta))
            ),
            "bytes over byte/s: there are no bits in this task": lambda p: 1e3 * (p.alpha + 8 * p.gradient / p.beta),
            "that is s; the task asks for ms": lambda p: p.alpha + p.gradient / p.beta,
        },
    ),
    Function(
        name="uncovered",
        right=lambda n, k, backward, alpha, beta: exposed_time(n, k, backward, Link(alpha, beta)),
        cases=lambda p: [
            (p.gradient, k, backward, p.alpha, p.beta) for k in (1, 3, 40, 900) for backward in (0.01, p.backward)
        ],
        wrong={
            "the last bucket can be sent only when it is whole: at least one message is uncovered": (
                "def uncovered(n, k, backward, alpha, beta):\n"
                "    return max(0.0, k * alpha + n / beta - backward)\n"
            ),
            "that hides nothing: buckets are sent while the backward pass goes on": (
                "def uncovered(n, k, backward, alpha, beta):\n    return k * alpha + n / beta\n"
            ),
            "each bucket is a message and pays α; here one α is paid for all": (
                "def uncovered(n, k, backward, alpha, beta):\n"
                "    return max(alpha + n / k / beta, backward / k + alpha + n / beta - backward)\n"
            ),
        },
        shortcut=(
            "from distlib.alphabeta import Link, exposed_time\n"
            "def uncovered(n, k, backward, alpha, beta):\n"
            "    return exposed_time(n, k, backward, Link(alpha, beta))\n"
        ),
    ),
    Value(
        name="left",
        right=lambda p: 1e6 * least(p),
        wrong={
            "that is with ten buckets; more of them leave less uncovered": (
                lambda p: 1e6 * exposed_time(p.gradient, 10, p.backward, link(p))
            ),
            "that is with one bucket, which hides nothing": lambda p: 1e6 * transfer_time(p.gradient, link(p)),
            "one α is left at least, and the bytes of the last bucket too": lambda p: 1e6 * p.alpha,
        },
    ),
    Value(
        name="bus",
        right=lambda p: busbw(*measured(p), "all_reduce", 8) / 1e9,
        wrong={
            "that is algbw, n/t; bus bandwidth multiplies it by what a ring moves per byte of the array": (
                lambda p: measured(p)[0] / measured(p)[1] / 1e9
            ),
            "(N − 1)/N is the factor of an all-gather; an all-reduce has two such phases": (
                lambda p: measured(p)[0] / measured(p)[1] * 7 / 8 / 1e9
            ),
            "that is GiB/s; the task asks for GB/s": lambda p: busbw(*measured(p), "all_reduce", 8) / 2**30,
        },
    ),
    Value(
        name="codec",
        right=lambda p: p.beta * p.ratio / (p.ratio - 1) / 1e9,
        wrong={
            "a compressor as fast as the link costs as much as it saves": lambda p: p.beta / 1e9,
            "that charges the codec for the compressed bytes; g is per byte of input": lambda p: p.beta / p.ratio / 1e9,
            "what is saved is n/β − n/(rβ), a part (r − 1)/r of n/β: the break-even is above β": (
                lambda p: p.beta * (p.ratio - 1) / p.ratio / 1e9
            ),
        },
    ),
)
