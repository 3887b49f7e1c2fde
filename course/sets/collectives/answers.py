"""Right and known wrong answers of the set on collectives."""

from course.grading import Function, Prediction, Value
from distlib.alphabeta import Link
from distlib.collectives import (
    hierarchical_all_reduce,
    off_node_share,
    ring_all_reduce_bytes,
    ring_tree_crossover,
    two_level_all_reduce_cap,
)  # fmt: skip
from distlib.published import sweep


def links(p):
    return Link(p.alpha_node, p.beta_node), Link(p.alpha_net, p.beta_net)


def two_levels(p, rails):
    return 1e3 * hierarchical_all_reduce(p.n, p.ranks, p.gpus, *links(p), rails)


def rate(p, factor=None):
    table = sweep(p.table_name)
    sent = ring_all_reduce_bytes(table.n[-1], table.ranks) if factor is None else factor * table.n[-1]
    return sent / table.time[-1] / 1e9


TASKS = (
    Prediction(name="guess", options=("ring", "tree", "both alike")),
    Value(
        name="sent",
        right=lambda p: ring_all_reduce_bytes(p.n, p.ranks) / 1e6,
        wrong={
            "that is one phase: an all-reduce is a reduce-scatter and an all-gather": (
                lambda p: (p.ranks - 1) / p.ranks * p.n / 1e6
            ),
            "each of 2(N − 1) steps sends a part n/N, not the whole array": lambda p: 2 * (p.ranks - 1) * p.n / 1e6,
            "that counts what a GPU receives as well": lambda p: 2 * ring_all_reduce_bytes(p.n, p.ranks) / 1e6,
        },
        tolerance=0.002,
    ),
    Function(
        name="crossover",
        right=lambda ranks, alpha, beta: ring_tree_crossover(ranks, Link(alpha, beta)),
        cases=lambda p: [(128, p.alpha_net, p.beta_net), (8, 5e-6, 5e10), (512, 5e-6, 5e10), (64, 1e-6, 1e11)],
        wrong={
            "that is the limit of a tree in ever smaller chunks; this one passes the whole array on": (
                "from math import log2\ndef crossover(ranks, alpha, beta):\n"
                "    return ranks * alpha * beta * (ranks - 1 - log2(ranks))\n"
            ),
            "only the latencies are compared: where the bytes count too, the ring gains": (
                "from math import log2\ndef crossover(ranks, alpha, beta):\n"
                "    return alpha * beta * (ranks - 1) / log2(ranks)\n"
            ),
            "the tree goes up and down, the ring has two phases: both take the factor 2": (
                "from math import log2\ndef crossover(ranks, alpha, beta):\n    d = log2(ranks)\n"
                "    return alpha * beta * (2 * (ranks - 1) - d) / (d - 2 * (ranks - 1) / ranks)\n"
            ),
        },
        shortcut=(
            "from distlib.alphabeta import Link\nfrom distlib.collectives import ring_tree_crossover\n"
            "def crossover(ranks, alpha, beta):\n    return ring_tree_crossover(ranks, Link(alpha, beta))\n"
        ),
    ),
    Value(
        name="two_levels",
        right=lambda p: two_levels(p, p.rails),
        wrong={
            "that has one NIC a node": lambda p: two_levels(p, 1),
            "across nodes each GPU reduces its eighth, not the whole array": (
                lambda p: two_levels(p, p.rails)
                + 1e3 * 2 * (p.nodes - 1) / p.nodes * p.n * (p.gpus - 1) / p.gpus * p.gpus / (p.beta_net * p.rails)
            ),
            "the last phase is missing: all have to get the whole": (
                lambda p: two_levels(p, p.rails) - 1e3 * (p.gpus - 1) * (p.alpha_node + p.n / p.gpus / p.beta_node)
            ),
        },
        tolerance=0.002,
    ),
    Value(
        name="cap",
        right=lambda p: two_level_all_reduce_cap(16, 8, p.beta_node, p.rails * p.beta_net).inter / 1e9,
        wrong={
            "that is the wire's rate; on two nodes only n bytes cross, and busbw counts almost 2n": (
                lambda p: p.rails * p.beta_net / 1e9
            ),
            "that is of one NIC": lambda p: 2 * 15 / 16 * p.beta_net / 1e9,
            "7/8 is the factor inside a node; N is 16": lambda p: 2 * 7 / 8 * p.rails * p.beta_net / 1e9,
        },
    ),
    Value(
        name="rate",
        right=rate,
        wrong={
            "that is algbw: a ring sends almost twice the array": lambda p: rate(p, 1.0),
            "that is one phase of two": lambda p: rate(p) / 2,
            "that is (N − 1)-fold: in each step of the ring a rank sends a part n/N": (
                lambda p: rate(p) * sweep(p.table_name).ranks
            ),
        },
    ),
    Value(
        name="exchange",
        right=lambda p: 1e3 * p.n * off_node_share(p.ranks, p.gpus) / p.beta_net,
        wrong={
            "the blocks for GPUs of the same node do not pass the NIC": (
                lambda p: 1e3 * p.n * (p.ranks - 1) / p.ranks / p.beta_net
            ),
            "the NICs of a node do not add up for one GPU's bytes": (
                lambda p: 1e3 * p.n * off_node_share(p.ranks, p.gpus) / (8 * p.beta_net)
            ),
            "that sends the whole buffer through the NIC": lambda p: 1e3 * p.n / p.beta_net,
        },
        tolerance=0.002,
    ),
)
