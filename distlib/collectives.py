"""Collectives under the α–β law: the time and the bytes of each algorithm, the bounds, and what a benchmark reports.

n is the full array in bytes: what each rank holds before an all-reduce, a broadcast or a reduce; the gathered result of
an all-gather; the input of a reduce-scatter; one rank's buffer in an all-to-all. N is `ranks`, d = ⌈log₂N⌉ (`depth`).

**Names.** `algorithm_operation(n, ranks, link)` is a time in seconds. `algorithm_operation_bytes(n, ranks)` is what a
rank sends, in bytes, the mean over ranks; where the busiest rank sends more, `algorithm_operation_busiest_bytes` says
how much. A pipelined algorithm also takes `chunks`, the number of pieces k. A two-level algorithm takes `gpus` (ranks a
node), the links `intra` (between GPUs of a node) and `inter` (one NIC), and `rails` (NICs a node).

**Assumed everywhere.** Links are full duplex: a rank sends and receives at once, each at β. No two ranks share a wire,
save where GPUs share a rail or an uplink. Ranks move in rounds. A rank opens the messages of a round together, so it
pays the largest α among them once, and their bytes share its port, so they pay n/β each; with one message a round (all
but the double tree, the flat ring on several rails and NVLS) this is the one-ported model of the literature. On direct
wires (`line_…`, `torus_…`) there is no switch, and a rank has a port of β for each neighbour. A round ends when its
slowest rank is done. Adding up arrays costs no time. Each formula is exact for the algorithm as `distlib.play` plays
it, where n divides into the pieces that the algorithm cuts.

Sources: Thakur, Rabenseifner & Gropp (2005) and Chan et al. (2007) for rings, trees, halving and doubling; Patarasuk &
Yuan (2009) for the bandwidth bound of the all-reduce and the ring that meets it; Sanders, Speck & Träff (2009) for the
two trees; PERFORMANCE.md of nccl-tests for algbw and busbw. There β is often s/byte; here it is byte/s.
"""

from dataclasses import dataclass

import numpy as np

from distlib.alphabeta import Link, best_chunk_count, pipeline_time, transfer_time
from distlib.domain import COUNT, NONNEGATIVE, POSITIVE, POWER_OF_TWO, Real, check, domain, whole


@domain(ranks=COUNT)
def depth(ranks: Real) -> Real:
    """d = ⌈log₂N⌉: the rounds in which what one rank knows can reach N ranks, if who knows tells one other a round."""
    return np.frexp(ranks - 1)[1]


# --- all-gather and reduce-scatter: the two halves of an all-reduce ------------------------------------------------


@domain(n=NONNEGATIVE, ranks=COUNT)
def ring_all_gather(n: Real, ranks: Real, link: Link) -> Real:
    """T = (N−1)(α + n/(Nβ)): each rank passes on, to its right, the block that came from its left. Any N."""
    return (ranks - 1) * transfer_time(n / ranks, link)


@domain(n=NONNEGATIVE, ranks=COUNT)
def ring_all_gather_bytes(n: Real, ranks: Real) -> Real:
    """(N−1)n/N, every rank alike: all blocks but one."""
    return (ranks - 1) * n / ranks


@domain(n=NONNEGATIVE, ranks=POWER_OF_TWO)
def recursive_doubling_all_gather(n: Real, ranks: Real, link: Link) -> Real:
    """T = d·α + (N−1)n/(Nβ): partners at distance 1, 2, 4, … exchange all they hold. N a power of two."""
    return depth(ranks) * link.alpha + recursive_doubling_all_gather_bytes(n, ranks) / link.beta


@domain(n=NONNEGATIVE, ranks=POWER_OF_TWO)
def recursive_doubling_all_gather_bytes(n: Real, ranks: Real) -> Real:
    """(N−1)n/N, every rank alike: n/N + 2n/N + 4n/N + … N a power of two."""
    return (ranks - 1) * n / ranks


@domain(n=NONNEGATIVE, ranks=COUNT)
def ring_reduce_scatter(n: Real, ranks: Real, link: Link) -> Real:
    """T = (N−1)(α + n/(Nβ)): a block gathers one term at each rank it passes. Any N."""
    return (ranks - 1) * transfer_time(n / ranks, link)


@domain(n=NONNEGATIVE, ranks=COUNT)
def ring_reduce_scatter_bytes(n: Real, ranks: Real) -> Real:
    """(N−1)n/N, every rank alike: all blocks but its own."""
    return (ranks - 1) * n / ranks


@domain(n=NONNEGATIVE, ranks=POWER_OF_TWO)
def recursive_halving_reduce_scatter(n: Real, ranks: Real, link: Link) -> Real:
    """T = d·α + (N−1)n/(Nβ): partners at distance N/2, N/4, … exchange the half that the other will own.

    N a power of two.
    """
    return depth(ranks) * link.alpha + recursive_halving_reduce_scatter_bytes(n, ranks) / link.beta


@domain(n=NONNEGATIVE, ranks=POWER_OF_TWO)
def recursive_halving_reduce_scatter_bytes(n: Real, ranks: Real) -> Real:
    """(N−1)n/N, every rank alike: n/2 + n/4 + … + n/N. N a power of two."""
    return (ranks - 1) * n / ranks


# --- broadcast and reduce ------------------------------------------------------------------------------------------


@domain(n=NONNEGATIVE, ranks=COUNT)
def tree_broadcast(n: Real, ranks: Real, link: Link) -> Real:
    """T = d(α + n/β): a binomial tree, storing and forwarding; who has the array sends it whole each round. Any N."""
    return depth(ranks) * transfer_time(n, link)


@domain(n=NONNEGATIVE, ranks=COUNT)
def tree_broadcast_bytes(n: Real, ranks: Real) -> Real:
    """(N−1)n/N, the mean: N − 1 ranks must be told, each once."""
    return (ranks - 1) * n / ranks


@domain(n=NONNEGATIVE, ranks=COUNT)
def tree_broadcast_busiest_bytes(n: Real, ranks: Real) -> Real:
    """d·n: the root sends in every round."""
    return depth(ranks) * n


@domain(n=NONNEGATIVE, ranks=COUNT)
def tree_reduce(n: Real, ranks: Real, link: Link) -> Real:
    """T = d(α + n/β): the binomial broadcast run backwards, with sums. Any N."""
    return depth(ranks) * transfer_time(n, link)


@domain(n=NONNEGATIVE, ranks=COUNT)
def tree_reduce_bytes(n: Real, ranks: Real) -> Real:
    """(N−1)n/N, the mean: every rank but the root sends its sum once."""
    return (ranks - 1) * n / ranks


@domain(n=NONNEGATIVE, ranks=COUNT)
def tree_reduce_busiest_bytes(n: Real, ranks: Real) -> Real:
    """n: every rank but the root (0 for N = 1, where no one sends)."""
    return np.minimum(ranks - 1, 1) * n


@domain(n=NONNEGATIVE, ranks=COUNT, chunks=COUNT)
def chain_broadcast(n: Real, ranks: Real, link: Link, chunks: Real) -> Real:
    """T = (N−1 + k−1)(α + n/(kβ)): each rank passes chunks down a line; N − 1 hops, one chunk a round behind another.

    Any N ≥ 2; 0 for N = 1. As k grows with n this nears n/β, which no broadcast beats.
    """
    return np.minimum(ranks - 1, 1) * pipeline_time(n, np.maximum(ranks - 1, 1), chunks, link)


@domain(n=NONNEGATIVE, ranks=COUNT)
def chain_broadcast_bytes(n: Real, ranks: Real) -> Real:
    """(N−1)n/N, the mean: every rank but the last passes the array on once."""
    return (ranks - 1) * n / ranks


@domain(n=NONNEGATIVE, ranks=COUNT)
def chain_broadcast_busiest_bytes(n: Real, ranks: Real) -> Real:
    """n: every rank but the last (0 for N = 1)."""
    return np.minimum(ranks - 1, 1) * n


@domain(n=NONNEGATIVE, ranks=COUNT)
def chain_broadcast_chunks(n: Real, ranks: Real, link: Link) -> Real:
    """The whole k that makes `chain_broadcast` fastest, next to √((N−2)n/(αβ)); α > 0."""
    return _nearest_count(best_chunk_count(n, np.maximum(ranks - 1, 1), link))


def _nearest_count(best: Real) -> Real:
    """k = ⌈½(√(1 + 4κ²) − 1)⌉: the whole chunk count with the least time, where κ ≥ 1 is the best real one.

    Of a pipeline's time only kα + κ²α/k depends on k, and k + 1 chunks are no better than k once k(k+1) ≥ κ².
    """
    return np.ceil((np.sqrt(1 + 4 * best**2) - 1) / 2)


# --- all-reduce on one level ---------------------------------------------------------------------------------------


@domain(n=NONNEGATIVE, ranks=COUNT)
def ring_all_reduce(n: Real, ranks: Real, link: Link) -> Real:
    """T = 2(N−1)(α + n/(Nβ)): a ring reduce-scatter, then a ring all-gather. Any N."""
    return 2 * (ranks - 1) * transfer_time(n / ranks, link)


@domain(n=NONNEGATIVE, ranks=COUNT)
def ring_all_reduce_bytes(n: Real, ranks: Real) -> Real:
    """2(N−1)n/N, every rank alike."""
    return 2 * (ranks - 1) * n / ranks


@domain(n=NONNEGATIVE, ranks=POWER_OF_TWO)
def halving_doubling_all_reduce(n: Real, ranks: Real, link: Link) -> Real:
    """T = 2d·α + 2(N−1)n/(Nβ): recursive halving, then recursive doubling (Rabenseifner). N a power of two."""
    return recursive_halving_reduce_scatter(n, ranks, link) + recursive_doubling_all_gather(n, ranks, link)


@domain(n=NONNEGATIVE, ranks=POWER_OF_TWO)
def halving_doubling_all_reduce_bytes(n: Real, ranks: Real) -> Real:
    """2(N−1)n/N, every rank alike. N a power of two."""
    return 2 * (ranks - 1) * n / ranks


@domain(n=NONNEGATIVE, ranks=POWER_OF_TWO)
def recursive_doubling_all_reduce(n: Real, ranks: Real, link: Link) -> Real:
    """T = d(α + n/β): partners at distance 1, 2, 4, … exchange whole sums; the fewest rounds. N a power of two."""
    return depth(ranks) * transfer_time(n, link)


@domain(n=NONNEGATIVE, ranks=POWER_OF_TWO)
def recursive_doubling_all_reduce_bytes(n: Real, ranks: Real) -> Real:
    """d·n, every rank alike. N a power of two."""
    return depth(ranks) * n


@domain(n=NONNEGATIVE, ranks=COUNT)
def tree_all_reduce(n: Real, ranks: Real, link: Link) -> Real:
    """T = 2d(α + n/β): a binomial reduce, then a binomial broadcast, storing and forwarding the whole array. Any N."""
    return tree_reduce(n, ranks, link) + tree_broadcast(n, ranks, link)


@domain(n=NONNEGATIVE, ranks=COUNT)
def tree_all_reduce_bytes(n: Real, ranks: Real) -> Real:
    """2(N−1)n/N, the mean: N − 1 sends of n up, N − 1 down; so for any tree."""
    return 2 * (ranks - 1) * n / ranks


@domain(n=NONNEGATIVE, ranks=COUNT)
def tree_all_reduce_busiest_bytes(n: Real, ranks: Real) -> Real:
    """d·n: the root sends d times on the way down; its first child once up and d − 1 times down."""
    return depth(ranks) * n


@domain(ranks=COUNT)
def double_tree_depth(ranks: Real) -> Real:
    """⌊log₂N⌋: the hops from root to farthest leaf in each tree of a double tree (`distlib.play.double_tree`)."""
    return np.frexp(ranks)[1] - 1


@domain(n=NONNEGATIVE, ranks=COUNT, chunks=COUNT)
def double_tree_all_reduce(n: Real, ranks: Real, link: Link, chunks: Real) -> Real:
    """T = 2(⌊log₂N⌋ + k − 1)(α + n/(kβ)): two binary trees, each reduces, then broadcasts, its half of n in k chunks.

    A rank is interior in at most one tree, a leaf in the other, so in a round it sends at most two chunks of n/(2k) and
    receives at most two: one to its parent in each tree while reducing, one to each of two children while
    broadcasting. The two start together and share the port. Rounds are clocked: each lasts as long as a full one,
    α + n/(kβ). Only powers of two have emptier ones: without the clock N = 4, 8, … would gain n/(kβ) in all, and
    N = 2, where the trees run in opposite directions, n/β. Any N; 0 for N = 1. With k = 1 and N a power of two this
    is the time of `tree_all_reduce`.
    """
    return 2 * np.minimum(ranks - 1, 1) * pipeline_time(n, np.maximum(double_tree_depth(ranks), 1), chunks, link)


@domain(n=NONNEGATIVE, ranks=COUNT)
def double_tree_all_reduce_limit(n: Real, ranks: Real, link: Link) -> Real:
    """T → 2⌊log₂N⌋α + 2n/β: below `double_tree_all_reduce` for every k, its limit, in ratio, as n and the best k grow.

    A limit, not a time: k chunks leave 2(⌊log₂N⌋−1)n/(kβ) and cost 2(k−1)α. 0 for N = 1.
    """
    return 2 * double_tree_depth(ranks) * link.alpha + 2 * np.minimum(ranks - 1, 1) * n / link.beta


@domain(n=NONNEGATIVE, ranks=COUNT)
def double_tree_all_reduce_bytes(n: Real, ranks: Real) -> Real:
    """2(N−1)n/N, the mean."""
    return 2 * (ranks - 1) * n / ranks


@domain(n=NONNEGATIVE, ranks=COUNT)
def double_tree_all_reduce_busiest_bytes(n: Real, ranks: Real) -> Real:
    """n/2·min(N, 4), so 2n from N = 4: n/2 up and twice n/2 down in one tree, n/2 up in the other (0 for N = 1)."""
    return np.minimum(ranks - 1, 1) * np.minimum(ranks, 4) * n / 2


@domain(n=NONNEGATIVE, ranks=COUNT)
def double_tree_all_reduce_chunks(n: Real, ranks: Real, link: Link) -> Real:
    """The whole k that makes `double_tree_all_reduce` fastest, next to √((⌊log₂N⌋−1)n/(αβ)); α > 0."""
    return _nearest_count(best_chunk_count(n, np.maximum(double_tree_depth(ranks), 1), link))


# --- direct wires: no switch, each rank has a wire to each of its neighbours ----------------------------------------


@domain(n=NONNEGATIVE, ranks=COUNT)
def line_all_gather(n: Real, ranks: Real, link: Link) -> Real:
    """T = (N−1)(α + n/(Nβ)): ranks in a line, ends not joined, each passes on blocks both ways at once. Any N.

    An end has one wire, through which N − 1 blocks must come: no all-gather on a line is faster in bytes.
    """
    return (ranks - 1) * transfer_time(n / ranks, link)


@domain(n=NONNEGATIVE, ranks=COUNT)
def line_all_gather_bytes(n: Real, ranks: Real) -> Real:
    """(N−1)n/N, the mean: each of N blocks crosses N − 1 wires."""
    return (ranks - 1) * n / ranks


@domain(n=NONNEGATIVE, ranks=COUNT)
def line_all_gather_busiest_bytes(n: Real, ranks: Real) -> Real:
    """(N+1)n/N: a rank between others sends its own block twice and every other once (n/2 for N = 2, 0 for N = 1)."""
    return (ranks + np.where(ranks > 2, 1, -1)) * n / ranks


@domain(n=NONNEGATIVE, ranks=COUNT)
def line_all_reduce(n: Real, ranks: Real, link: Link) -> Real:
    """T = 2(N−1)(α + n/(Nβ)): the line's all-gather run backwards, with sums, then forwards. Any N."""
    return 2 * line_all_gather(n, ranks, link)


@domain(n=NONNEGATIVE, ranks=COUNT)
def line_all_reduce_bytes(n: Real, ranks: Real) -> Real:
    """2(N−1)n/N, the mean."""
    return 2 * (ranks - 1) * n / ranks


@domain(n=NONNEGATIVE, ranks=COUNT)
def line_all_reduce_busiest_bytes(n: Real, ranks: Real) -> Real:
    """2n: between others, (N−1)n/N on the way in and (N+1)n/N on the way out (n for N = 2, 0 for N = 1)."""
    return np.minimum(ranks - 1, 2) * n


@domain(n=NONNEGATIVE, ranks=COUNT, axes=COUNT)
def torus_all_reduce(n: Real, ranks: Real, link: Link, axes: Real) -> Real:
    """T = 2·axes(side−1)α + 2(N−1)n/(N·wires·β), N = side^axes, wires = 2·axes (axes for side = 2).

    The array is cut into one part an axis and direction. Each part is reduce-scattered by rings along its own axis,
    what is left along the next, and so on, then all-gathered back, so that all wires are busy, both ways, all the time.
    axes = 1 is the bidirectional ring: two rings, one each way round, with half of the array each. β is of one wire.
    """
    side = _side(ranks, axes)
    wires = axes * np.clip(side - 1, 1, 2)
    return 2 * axes * (side - 1) * link.alpha + torus_all_reduce_bytes(n, ranks) / (wires * link.beta)


@domain(n=NONNEGATIVE, ranks=COUNT)
def torus_all_reduce_bytes(n: Real, ranks: Real) -> Real:
    """2(N−1)n/N, every rank alike, over all its wires."""
    return 2 * (ranks - 1) * n / ranks


def _side(ranks: Real, axes: Real) -> Real:
    """The axes-th root of N: refused unless whole."""
    root = np.power(ranks, 1 / axes)
    return check("ranks ** (1 / axes)", np.where(np.rint(root) ** axes == ranks, np.rint(root), root), COUNT)


# --- reduction inside the switch: bounds, not predictions ----------------------------------------------------------


@domain(n=NONNEGATIVE, ranks=COUNT)
def in_network_all_reduce(n: Real, ranks: Real, link: Link) -> Real:
    """T ≥ α + n/β: each rank sends its array once to a tree of switches that adds up, and receives the sum once.

    As SHARP does. A bound: switches keep up with the links and their depth is in α. 0 for N = 1.
    """
    return np.minimum(ranks - 1, 1) * transfer_time(n, link)


@domain(n=NONNEGATIVE, ranks=COUNT)
def in_network_all_reduce_bytes(n: Real, ranks: Real) -> Real:
    """n, every rank alike (0 for N = 1)."""
    return np.minimum(ranks - 1, 1) * n


@domain(n=NONNEGATIVE, ranks=COUNT, chunks=COUNT)
def nvls_all_reduce(n: Real, ranks: Real, link: Link, chunks: Real) -> Real:
    """T = (k+1)α + (k+1)n/(kβ) + (k−1)n/(kNβ): each rank pulls the sum of its block, then multicasts it, in k chunks.

    As NVLink SHARP does: a pull makes every rank send the block once, its owner's copy too, and the switch adds up on
    the way; a multicast leaves its sender once. While chunk j is multicast, chunk j + 1 is pulled. 0 for N = 1.
    """
    first_and_last = 2 * transfer_time(n / chunks, link)
    between = (chunks - 1) * transfer_time((1 + 1 / ranks) * n / chunks, link)
    return np.minimum(ranks - 1, 1) * (first_and_last + between)


@domain(n=NONNEGATIVE, ranks=COUNT)
def nvls_all_reduce_limit(n: Real, ranks: Real, link: Link) -> Real:
    """T → 2α + (N+1)n/(Nβ), so algbw → β·N/(N+1): below `nvls_all_reduce` for every k; a bound, 0 for N = 1.

    A bound on the wires alone: measured switches stay well below it.
    """
    return np.minimum(ranks - 1, 1) * (2 * link.alpha + (ranks + 1) * n / (ranks * link.beta))


@domain(n=NONNEGATIVE, ranks=COUNT)
def nvls_all_reduce_bytes(n: Real, ranks: Real) -> Real:
    """(N+1)n/N, every rank alike: n pulled from it and n/N multicast by it (0 for N = 1)."""
    return np.minimum(ranks - 1, 1) * (ranks + 1) * n / ranks


# --- two levels: nodes of GPUs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LevelBytes:
    """Bytes that a rank sends, mean over ranks: to GPUs of its node (`intra`) and to other nodes (`inter`)."""

    intra: Real
    inter: Real


def _nodes(ranks: Real, gpus: Real) -> Real:
    """N/gpus, the number of nodes: refused unless whole."""
    return check("ranks / gpus", ranks / gpus, COUNT)


def _share(inter: Link, gpus: Real, rails: Real) -> Link:
    """What one GPU has of its node's NICs when all send at once: β·rails/gpus; gpus/rails must be whole."""
    return Link(inter.alpha, inter.beta / check("gpus / rails", gpus / rails, COUNT))


@domain(n=NONNEGATIVE, ranks=COUNT, gpus=COUNT, rails=COUNT)
def hierarchical_all_reduce(n: Real, ranks: Real, gpus: Real, intra: Link, inter: Link, rails: Real) -> Real:
    """T = 2(gpus−1)(α_intra + n/(gpus·β_intra)) + 2(nodes−1)(α_inter + n/(nodes·rails·β_inter)), nodes = N/gpus.

    A ring reduce-scatter inside each node, a ring all-reduce of n/gpus between GPUs of equal place in all nodes, a ring
    all-gather inside each node, one after the other. N a multiple of `gpus`, `gpus` of `rails`: gpus/rails GPUs share a
    NIC.
    """
    across = ring_all_reduce(n / gpus, _nodes(ranks, gpus), _share(inter, gpus, rails))
    return ring_reduce_scatter(n, gpus, intra) + across + ring_all_gather(n, gpus, intra)


@domain(n=NONNEGATIVE, ranks=COUNT, gpus=COUNT)
def hierarchical_all_reduce_bytes(n: Real, ranks: Real, gpus: Real) -> LevelBytes:
    """2(gpus−1)n/gpus inside the node and 2(nodes−1)n/N across, nodes = N/gpus; every rank alike."""
    return LevelBytes(ring_all_reduce_bytes(n, gpus), ring_all_reduce_bytes(n / gpus, _nodes(ranks, gpus)))


@domain(n=NONNEGATIVE, ranks=COUNT, gpus=COUNT, rails=COUNT)
def flat_ring_all_reduce(n: Real, ranks: Real, gpus: Real, intra: Link, inter: Link, rails: Real) -> Real:
    """T = 2(N−1)(max(α_intra, α_inter) + max(n/(N·rails·β_inter), share·n/(N·β_intra))): one ring of n/rails a rail.

    Each ring runs over all N ranks: through the GPUs of a node, then out by its rail. share is the part of its sends
    that the busiest GPU makes inside the node: (gpus−1)/gpus where each GPU is the exit of one ring (rails = gpus),
    else 1. With one node all is on `intra`; with one GPU a node nothing is. N a multiple of `gpus`, `gpus` of `rails`.
    rails = 1, one NIC a node, is what "flat ring" often means: say the rails in every comparison.
    """
    nodes, sharing = _nodes(ranks, gpus), check("gpus / rails", gpus / rails, COUNT)
    share = np.where(sharing > 1, 1, (gpus - 1) / gpus)
    alpha = np.where(gpus > 1, np.maximum(intra.alpha, inter.alpha), inter.alpha)
    crossing = alpha + np.maximum(n / (ranks * rails * inter.beta), share * n / (ranks * intra.beta))
    return 2 * (ranks - 1) * np.where(nodes > 1, crossing, transfer_time(n / ranks, intra))


@domain(n=NONNEGATIVE, ranks=COUNT, gpus=COUNT)
def flat_ring_all_reduce_bytes(n: Real, ranks: Real, gpus: Real) -> LevelBytes:
    """2(N−1)n/N in all, every rank alike; a 1/gpus part of it leaves the node (none with one node), however many rails.

    The levels are means: what leaves a node is sent by the GPUs at its exits alone, 2(N−1)n/(N·rails) each.
    """
    inter = np.minimum(_nodes(ranks, gpus) - 1, 1) * ring_all_reduce_bytes(n, ranks) / gpus
    return LevelBytes(ring_all_reduce_bytes(n, ranks) - inter, inter)


# --- all-to-all ----------------------------------------------------------------------------------------------------


@domain(n=NONNEGATIVE, ranks=COUNT)
def pairwise_all_to_all(n: Real, ranks: Real, link: Link) -> Real:
    """T = (N−1)(α + n/(Nβ)): in round t rank i sends its block to rank i + t. Any N; the switch has full bisection."""
    return (ranks - 1) * transfer_time(n / ranks, link)


@domain(n=NONNEGATIVE, ranks=COUNT)
def pairwise_all_to_all_bytes(n: Real, ranks: Real) -> Real:
    """(N−1)n/N, every rank alike: all blocks but its own."""
    return (ranks - 1) * n / ranks


@domain(n=NONNEGATIVE, ranks=COUNT, gpus=COUNT, rails=COUNT)
def hierarchical_all_to_all(n: Real, ranks: Real, gpus: Real, intra: Link, inter: Link, rails: Real) -> Real:
    """T = (gpus−1)(α_intra + n/(gpus·β_intra)) + (nodes−1)(α_inter + gpus·n/(nodes·rails·β_inter)), nodes = N/gpus.

    First a GPU gives its node-mate of place j all that goes to place j of any node; then GPUs of equal place exchange
    what their nodes have for each other, in nodes − 1 messages in place of N − gpus. Pairwise exchanges both. N a
    multiple of `gpus`, `gpus` of `rails`.
    """
    across = pairwise_all_to_all(n, _nodes(ranks, gpus), _share(inter, gpus, rails))
    return pairwise_all_to_all(n, gpus, intra) + across


@domain(n=NONNEGATIVE, ranks=COUNT, gpus=COUNT)
def hierarchical_all_to_all_bytes(n: Real, ranks: Real, gpus: Real) -> LevelBytes:
    """(gpus−1)n/gpus inside the node and (N−gpus)n/N across, every rank alike; `pairwise_all_to_all` sends the same
    across and (gpus−1)n/N inside.
    """
    return LevelBytes(pairwise_all_to_all_bytes(n, gpus), pairwise_all_to_all_bytes(n, _nodes(ranks, gpus)))


@domain(n=NONNEGATIVE, ranks=COUNT, gpus=COUNT, rails=COUNT)
def oversubscribed_all_to_all(n: Real, ranks: Real, gpus: Real, link: Link, rails: Real) -> Real:
    """T = (N−1)α + o(N−o)n/(Nβ), o = gpus/rails: pairwise on a fat tree, `gpus` ranks a leaf switch, `rails` uplinks.

    o ranks share an uplink, in the order of ranks. Round t takes min(t, o, N−t) messages through the fullest one. o is
    the oversubscription. With one leaf nothing climbs: `pairwise_all_to_all`.
    """
    shared = np.where(_nodes(ranks, gpus) > 1, check("gpus / rails", gpus / rails, COUNT), 1)
    return (ranks - 1) * link.alpha + shared * (ranks - shared) * n / (ranks * link.beta)


@domain(n=NONNEGATIVE, ranks=COUNT, gpus=COUNT)
def oversubscribed_all_to_all_bytes(n: Real, ranks: Real, gpus: Real) -> LevelBytes:
    """(gpus−1)n/N below the leaf switch and (N−gpus)n/N through its uplinks, every rank alike."""
    return LevelBytes((gpus - 1) * n / ranks, off_node_share(ranks, gpus) * n)


@domain(ranks=COUNT, gpus=COUNT)
def off_node_share(ranks: Real, gpus: Real) -> Real:
    """(N−gpus)/N: of a buffer that goes evenly to all ranks, its sender included, the part that leaves the node.

    An all-to-all "bandwidth" that counts the whole buffer is this share at the NIC: half of it on two nodes.
    """
    return (_nodes(ranks, gpus) - 1) * gpus / ranks


# --- what a benchmark reports, and bounds --------------------------------------------------------------------------

def _all_but_one(ranks: Real) -> Real:
    return (ranks - 1) / ranks


def _all(ranks: Real) -> Real:
    return np.ones(np.shape(ranks))[()]


#: busbw/algbw at N ranks, as nccl-tests defines it: the part of n that some rank must send.
BUSBW_FACTORS = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all_gather": _all_but_one,
    "reduce_scatter": _all_but_one,
    "all_to_all": _all_but_one,
    "gather": _all_but_one,
    "scatter": _all_but_one,
    "broadcast": _all,
    "reduce": _all,
    "sendrecv": _all,
}


@domain(ranks=COUNT)
def busbw_factor(operation: str, ranks: Real) -> Real:
    """busbw/algbw: 2(N−1)/N for "all_reduce"; (N−1)/N for "all_gather", "reduce_scatter", "all_to_all", …; else 1."""
    if operation not in BUSBW_FACTORS:
        raise ValueError(f"operation must be one of {', '.join(BUSBW_FACTORS)}, got {operation!r}")
    return BUSBW_FACTORS[operation](ranks)


@domain(n=NONNEGATIVE, time=POSITIVE)
def algbw(n: Real, time: Real) -> Real:
    """algbw = n/t in byte/s, n the full array: for an all-gather of shards that is N × shard, not the shard."""
    return n / time


@domain(n=NONNEGATIVE, time=POSITIVE)
def busbw(n: Real, time: Real, operation: str, ranks: Real) -> Real:
    """busbw = algbw × factor(operation, N), in byte/s: what each rank must at least have sent, per second, one way.

    A wire's rate only for flat point-to-point algorithms, where busbw ≤ β: with two levels or reduction in the
    switch it can exceed a NIC's or a link's rate, and rightly.
    """
    return algbw(n, time) * busbw_factor(operation, ranks)


@domain(algbw=NONNEGATIVE)
def algbw_to_busbw(algbw: Real, operation: str, ranks: Real) -> Real:
    """busbw = algbw × factor(operation, N)."""
    return algbw * busbw_factor(operation, ranks)


@domain(busbw=NONNEGATIVE, ranks=whole(2))
def busbw_to_algbw(busbw: Real, operation: str, ranks: Real) -> Real:
    """algbw = busbw / factor(operation, N), N ≥ 2: one rank sends nothing, so its busbw tells nothing."""
    return busbw / busbw_factor(operation, ranks)


@domain(ranks=COUNT)
def latency_bound(ranks: Real, link: Link) -> Real:
    """T ≥ d·α: no sooner can what one rank holds reach, or be summed from, N ranks, one message a rank and round.

    For each operation but a sendrecv. Holds without reduction or copying in the network.
    """
    return depth(ranks) * link.alpha


@domain(n=NONNEGATIVE, ranks=COUNT)
def bandwidth_bound(n: Real, ranks: Real, link: Link, operation: str) -> Real:
    """T ≥ factor(operation, N)·n/β, 0 for N = 1: busbw is made so that this bound reads busbw ≤ β.

    An all-reduce takes N − 1 sends of each byte to sum and N − 1 to spread, so 2(N−1)n/N a rank, on average, one way.
    Holds without reduction or copying in the network; `in_network_all_reduce` beats it.
    """
    return np.minimum(ranks - 1, 1) * busbw_factor(operation, ranks) * n / link.beta


@domain(ranks=COUNT, gpus=COUNT, nic=POSITIVE)
def all_to_all_cap(ranks: Real, gpus: Real, nic: Real) -> Real:
    """busbw ≤ nic·(N−1)/(N−gpus), in byte/s; nic is the bandwidth of one GPU's NIC, one way. Infinite on one node.

    Only the off-node share (N−gpus)/N of n passes the NIC. The cap falls to nic as nodes are added; the NICs of a node
    do not add up.
    """
    with np.errstate(divide="ignore"):
        return nic * np.divide(busbw_factor("all_to_all", ranks), off_node_share(ranks, gpus))


@dataclass(frozen=True)
class AllReduceCap:
    """Most busbw, in byte/s, that each level of a two-level all-reduce lets through if the other costs nothing."""

    intra: Real
    inter: Real

    @property
    def busbw(self) -> Real:
        """The smaller of the two: reached if the levels overlap in full."""
        return np.minimum(self.intra, self.inter)

    @property
    def binding(self) -> Real:
        """The name of the level that binds: "intra" or "inter"."""
        return np.where(np.less_equal(self.intra, self.inter), "intra", "inter")[()]


@domain(ranks=COUNT, gpus=COUNT, gpu_bandwidth=POSITIVE, node_bandwidth=POSITIVE)
def two_level_all_reduce_cap(ranks: Real, gpus: Real, gpu_bandwidth: Real, node_bandwidth: Real) -> AllReduceCap:
    """busbw ≤ (N−1)/N times gpu_bandwidth·gpus/(gpus−1) inside, node_bandwidth·nodes/(nodes−1) across, in byte/s.

    `gpu_bandwidth` is what a GPU has to its node-mates, `node_bandwidth` what all NICs of a node have, one way each.
    Only 2(nodes−1)n/nodes crosses a node's boundary, so busbw may exceed node_bandwidth, nearly twofold on two nodes,
    and nears it as nodes are added. A level of one member caps nothing: infinite.
    """
    with np.errstate(divide="ignore"):
        rest = busbw_factor("all_reduce", ranks)
        intra = gpu_bandwidth * np.divide(rest, busbw_factor("all_reduce", gpus))
        inter = node_bandwidth * np.divide(rest, busbw_factor("all_reduce", _nodes(ranks, gpus)))
    return AllReduceCap(intra, inter)


# --- crossovers: the n at which a ring and a tree take the same time -----------------------------------------------


@domain(ranks=whole(2))
def ring_tree_crossover(ranks: Real, link: Link) -> Real:
    """n = αβ·[(N−1) − d]/[d − (N−1)/N]: above it the ring beats the store-and-forward tree. N ≥ 2."""
    return link.alpha * link.beta * (ranks - 1 - depth(ranks)) / (depth(ranks) - (ranks - 1) / ranks)


@domain(ranks=whole(2), chunks=COUNT)
def ring_double_tree_crossover(ranks: Real, link: Link, chunks: Real) -> Real:
    """n = αβ·(N − d − k)/((d−1)/k + 1/N), d = ⌊log₂N⌋: above it the ring beats the double tree with k chunks. N ≥ 2.

    At least 0: with so many chunks that the tree takes no fewer rounds the ring wins at every n. Its largest value over
    k is how far the tree gets at its best. With k = 1 and N a power of two it is `ring_tree_crossover`.
    """
    hops = double_tree_depth(ranks)
    return link.alpha * link.beta * np.maximum(ranks - hops - chunks, 0) / ((hops - 1) / chunks + 1 / ranks)


@domain(ranks=whole(2))
def ring_double_tree_crossover_limit(ranks: Real, link: Link) -> Real:
    """n = Nαβ·(N−1−⌊log₂N⌋): where the ring meets `double_tree_all_reduce_limit`; no chunk count gets so far. N ≥ 2."""
    return ranks * link.alpha * link.beta * (ranks - 1 - double_tree_depth(ranks))
