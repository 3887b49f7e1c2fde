"""A layer of experts: who is chosen, who is full, and the all-to-all that takes tokens to experts and back.

E experts lie on N ranks, E/N neighbours on each; `gpus` neighbouring ranks make a node. A router gives each token a
score for each expert, and the token goes to its top-k. Arrays are tokens × experts (scores, gates) or tokens × top-k
(choices, as numbers of experts).

The exchange is played on arrays in two hops, as large systems do it: a token goes once to each node that it needs, to
the rank there with the sender's place (over the NIC), and from there to each rank with a chosen expert (over NVLink).
Results come back the same way, added up before each hop.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distlib.domain import COUNT, FRACTION, NONNEGATIVE, Real, check, domain

# Routing


def scores(tokens: int, experts: int, rng: np.random.Generator, skew: float = 0.0) -> np.ndarray:
    """Random scores, tokens × experts: a preference of standard deviation `skew` for each expert, plus Gumbel noise.

    So the first choice falls on expert e with probability softmax(preference)_e; with `skew` 0 all are alike.
    """
    preference = check("skew", skew, NONNEGATIVE) * rng.standard_normal(check("experts", experts, COUNT))
    return preference + rng.gumbel(size=(check("tokens", tokens, COUNT), experts))


def top_k(score: np.ndarray, topk: int) -> np.ndarray:
    """The `topk` experts of highest score for each token, best first."""
    check("experts − topk + 1", score.shape[1] - check("topk", topk, COUNT) + 1, COUNT)
    return np.argsort(-score, axis=1, kind="stable")[:, :topk]


def node_limited(score: np.ndarray, nodes: int, limit: int, each: int) -> np.ndarray:
    """The scores, with −∞ outside the `limit` nodes whose `each` best experts have the highest sum of scores."""
    of_node = score.reshape(len(score), check("nodes", nodes, COUNT), -1)
    best = np.sort(of_node, axis=2)[:, :, -each:].sum(axis=2)
    allowed = np.zeros(best.shape, bool)
    np.put_along_axis(allowed, top_k(best, limit), True, axis=1)
    return np.where(allowed[:, :, None], of_node, -np.inf).reshape(score.shape)


def distinct(choice: np.ndarray, experts: int, groups: int) -> np.ndarray:
    """To how many of the groups (ranks, nodes) of neighbouring experts each token goes."""
    size = check("experts / groups", experts / groups, COUNT)
    return 1 + np.count_nonzero(np.diff(np.sort(choice // int(size), axis=1), axis=1), axis=1)


# Load


def loads(choice: np.ndarray, experts: int) -> np.ndarray:
    """Tokens that each expert gets."""
    return np.bincount(choice.ravel(), minlength=experts)


def kept(choice: np.ndarray, experts: int, capacity: int) -> np.ndarray:
    """Which choices fit, tokens × top-k: an expert takes the first `capacity` tokens that come, in their order."""
    chosen = choice.ravel()
    order = np.argsort(chosen, kind="stable")
    place = np.empty(len(chosen), int)
    place[order] = np.arange(len(chosen)) - np.searchsorted(chosen[order], chosen[order])
    return (place < check("capacity", capacity, COUNT)).reshape(choice.shape)


@domain(tokens=COUNT, probability=FRACTION, capacity=NONNEGATIVE)
def mean_overflow(tokens: Real, probability: Real, capacity: Real) -> Real:
    """E[(X − c)⁺], X binomial(T, p): tokens that an expert must drop, on average.

    T tokens choose, each on its own; p is the probability that one of its k choices falls on this expert: k/E if all
    are alike. Summed over experts this is exact: that loads depend on each other changes no mean.
    """
    from scipy.stats import binom

    # E[X; X > c] = Tp·P(Y ≥ c), Y binomial(T − 1, p)
    whole = np.floor(capacity)
    above = tokens * probability * binom.sf(whole - 1, tokens - 1, probability)
    return above - capacity * binom.sf(whole, tokens, probability)


@domain(tokens=COUNT, experts=COUNT, topk=COUNT)
def mean_largest_load(tokens: int, experts: int, topk: int) -> float:
    """E[max] = Σ_x (1 − P(X ≤ x)^E), X binomial(T, k/E): the largest of E loads, if all experts are alike.

    As if loads were independent. They are not: what goes to one expert does not go to another, and the true mean is a
    little below.
    """
    from scipy.stats import binom

    below = binom.cdf(np.arange(tokens), tokens, check("topk / experts", topk / experts, FRACTION))
    return float(np.sum(1 - below**experts))


# The layer: expert e computes tanh(x·A_e)·B_e, and a token gets the sum of its experts' results times their gates


@dataclass(frozen=True)
class Layer:
    """What a layer of experts gave back, forward and backward."""

    outputs: list[np.ndarray]  # by rank: tokens × hidden
    inputs: list[np.ndarray]  # the gradient at the tokens, likewise
    gates: list[np.ndarray]  # the gradient at the gates: tokens × experts, 0 where not chosen
    up: np.ndarray  # the gradient at A: experts × hidden × inner
    down: np.ndarray  # the gradient at B: experts × inner × hidden
    nic: np.ndarray  # bytes that each rank sent to other nodes: ranks × (dispatch, combine, and both of the gradient)
    nvlink: np.ndarray  # bytes that it sent to its node-mates, likewise


Rows = Sequence[np.ndarray]


def dense(tokens: Rows, gates: Rows, up: np.ndarray, down: np.ndarray, gradients: Rows) -> Layer:
    """The layer with every expert in one place, each applied to all tokens: nothing is sent."""
    x, g, dy = (np.concatenate(rows) for rows in (tokens, gates, gradients))
    inner = np.tanh(np.einsum("th,ehf->etf", x, up))
    results = inner @ down
    back = np.einsum("te,th,efh->etf", g, dy, down) * (1 - inner**2)
    ends = np.cumsum([len(rows) for rows in tokens])[:-1]
    return Layer(
        outputs=np.split(np.einsum("te,eth->th", g, results), ends),
        inputs=np.split(np.einsum("etf,ehf->th", back, up), ends),
        gates=np.split(np.where(g != 0, np.einsum("th,eth->te", dy, results), 0), ends),
        up=np.einsum("th,etf->ehf", x, back),
        down=np.einsum("etf,te,th->efh", inner, g, dy),
        nic=np.zeros((1, 4)), nvlink=np.zeros((1, 4)),
    )  # fmt: skip


class _Exchange:
    """Tokens to ranks and back. wanted[s] (tokens × ranks) says where the tokens of rank s go."""

    def __init__(self, wanted: Rows, gpus: int) -> None:
        self.wanted, self.gpus, self.phase = wanted, gpus, -1
        self.sent = np.zeros((2, len(wanted), 4))  # NVLink and NIC

    def _send(self, source: int, to: int, rows: np.ndarray) -> None:
        if source != to:
            self.sent[int(source // self.gpus != to // self.gpus), source, self.phase] += rows.nbytes

    def _hops(self, source: int) -> list[tuple[int, Any, range]]:
        """(the rank with the sender's place, which tokens go there, the ranks of its node), node by node."""
        nodes = [range(first, first + self.gpus) for first in range(0, len(self.wanted), self.gpus)]
        return [(node[source % self.gpus], self.wanted[source][:, node].any(axis=1), node) for node in nodes]

    def dispatch(self, rows: Rows) -> list[list[np.ndarray]]:
        """arrived[r][s]: the rows of rank s that rank r wants."""
        self.phase += 1
        arrived: list[list[np.ndarray]] = [[] for _ in rows]
        for source, mine in enumerate(rows):
            for relay, needed, node in self._hops(source):
                copies = mine[needed]
                self._send(source, relay, copies)
                for rank in node:
                    arrived[rank].append(copies[self.wanted[source][needed, rank]])
                    self._send(relay, rank, arrived[rank][source])
        return arrived

    def combine(self, parts: Sequence[Rows]) -> list[np.ndarray]:
        """By rank s, the sum of parts[r][s] over r, each row where it came from."""
        self.phase += 1
        totals = [np.zeros((len(wanted), parts[0][0].shape[1])) for wanted in self.wanted]
        for source, total in enumerate(totals):
            for relay, needed, node in self._hops(source):
                sums = np.zeros_like(total[needed])
                for rank in node:
                    sums[self.wanted[source][needed, rank]] += parts[rank][source]
                    self._send(rank, relay, parts[rank][source])
                total[needed] += sums
                self._send(relay, source, sums)
        return totals


def expert_parallel(tokens: Rows, gates: Rows, up: np.ndarray, down: np.ndarray, gradients: Rows, gpus: int) -> Layer:
    """The same layer on N ranks, E/N experts on each; a gate of 0 means not chosen.

    `tokens`, `gates` and `gradients` (of the loss, at the outputs) have one array a rank; ranks may have different
    numbers of tokens. Bytes are those of token vectors: gates, a few numbers a token, travel with them uncounted.
    """
    ranks, experts = len(tokens), len(up)
    here = int(check("experts / ranks", experts / ranks, COUNT))
    check("ranks / gpus", ranks / check("gpus", gpus, COUNT), COUNT)
    wanted = [(g != 0).reshape(len(g), ranks, here).any(axis=2) for g in gates]
    exchange = _Exchange(wanted, gpus)
    arrived = exchange.dispatch(tokens)
    mine = [slice(rank * here, (rank + 1) * here) for rank in range(ranks)]
    theirs = [[g[w[:, rank], mine[rank]] for g, w in zip(gates, wanted, strict=True)] for rank in range(ranks)]
    none = [[np.zeros_like(rows) for rows in sources] for sources in arrived]
    local = [dense(arrived[r], theirs[r], up[mine[r]], down[mine[r]], none[r]) for r in range(ranks)]
    outputs = exchange.combine([one.outputs for one in local])
    back = exchange.dispatch(gradients)
    local = [dense(arrived[r], theirs[r], up[mine[r]], down[mine[r]], back[r]) for r in range(ranks)]
    inputs = exchange.combine([one.inputs for one in local])
    at_gates = [np.zeros_like(g) for g in gates]
    for rank, one in enumerate(local):
        for source, w in enumerate(wanted):
            at_gates[source][w[:, rank], mine[rank]] = one.gates[source]
    ups, downs = (np.concatenate([getattr(one, name) for one in local]) for name in ("up", "down"))
    return Layer(outputs, inputs, at_gates, ups, downs, nic=exchange.sent[1], nvlink=exchange.sent[0])
