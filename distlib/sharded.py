"""A transformer block and its optimiser in NumPy, whole and shared: data, tensor, sequence and context parallel.

One code computes all of them. Ranks are entries of a list: `forward(shards, inputs, split)` has each rank's weights
and input, and a `Split` says what they exchange. Whatever they exchange goes through a `Group`, which plays it with
the rings of `distlib.play` and counts the bytes. The whole block is the list of one rank.

The block is y = x + A(norm(x)), z = y + F(norm(y)). A is causal attention of key/value heads, each serving a group of
query heads; F is down·silu(up·x). Inputs are batch × sequence × h. The loss is ½‖z − target‖², summed over tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from distlib.alphabeta import Link
from distlib.domain import COUNT, domain
from distlib.play import Played, ring_all_gather, ring_all_reduce, ring_reduce_scatter

Parameters = dict[str, np.ndarray]
Arrays = list[np.ndarray]

# Who exchanges what


@domain(ranks=COUNT)
@dataclass
class Group:
    """Ranks that exchange arrays, one each, and the bytes that each has sent so far."""

    ranks: int
    sent: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.sent = np.zeros(self.ranks)

    def _play(self, ring: Callable[..., Played], arrays: Arrays) -> tuple[np.ndarray, ...]:
        played = ring([array.ravel() for array in arrays], Link(0.0, 1.0))
        self.sent += played.sent
        return played.results

    def all_reduce(self, arrays: Arrays) -> Arrays:
        """Everyone has the sum."""
        return [whole.reshape(arrays[0].shape) for whole in self._play(ring_all_reduce, arrays)]

    def all_gather(self, arrays: Arrays, axis: int = 0) -> Arrays:
        """Everyone has all parts, joined along `axis` in the order of ranks."""
        parts = [np.moveaxis(array, axis, 0) for array in arrays]
        shape = self.ranks * len(parts[0]), *parts[0].shape[1:]
        return [np.moveaxis(whole.reshape(shape), 0, axis) for whole in self._play(ring_all_gather, parts)]

    def reduce_scatter(self, arrays: Arrays, axis: int = 0) -> Arrays:
        """Rank r has part r of the sum, cut along `axis`; refused unless the parts are equal."""
        wholes = [np.moveaxis(array, axis, 0) for array in arrays]
        length, rest = len(wholes[0]), wholes[0].shape[1:]
        if length % self.ranks:
            raise ValueError(f"an axis of {length} must divide into {self.ranks} equal parts: pad it")
        shape = length // self.ranks, *rest
        return [np.moveaxis(part.reshape(shape), 0, axis) for part in self._play(ring_reduce_scatter, wholes)]

    def shift(self, arrays: Arrays) -> Arrays:
        """Everyone has what its left neighbour in the ring had."""
        self.sent += [array.nbytes for array in arrays]
        return [arrays[-1], *arrays[:-1]]


def _same(arrays: Arrays) -> Arrays:
    return arrays


@dataclass(frozen=True)
class Split:
    """How ranks share a block.

    `enter` stands before the products that are split, `leave` after them. Backward they change places: the gradient of
    an all-reduce (of copies that all use) is no exchange at all, that of an all-gather is a reduce-scatter. `places`
    are the positions of each rank's tokens in the sequence; `shift` passes keys and values on, `hops` times.
    """

    places: Arrays
    enter: Callable[[Arrays], Arrays] = _same
    leave: Callable[[Arrays], Arrays] = _same
    shift: Callable[[Arrays], Arrays] = _same
    hops: int = 0


def apart(ranks: int, seq: int) -> Split:
    """Each rank has a whole block and its own sequences; one rank: nothing is shared."""
    return Split([np.arange(seq)] * ranks)


def tensor(group: Group, seq: int) -> Split:
    """Every rank has the whole input, some of the heads and some of the feed-forward: sums are all-reduced."""
    return Split([np.arange(seq)] * group.ranks, leave=group.all_reduce)


def sequence(group: Group, seq: int) -> Split:
    """The same, but between the products each rank has its part of the sequence only."""
    gather, scatter = (partial(exchange, axis=1) for exchange in (group.all_gather, group.reduce_scatter))
    return Split([np.arange(seq)] * group.ranks, gather, scatter)


def context(group: Group, places: Arrays) -> Split:
    """Each rank has a whole block and its part of each sequence: keys and values go round."""
    return Split(places, shift=group.shift, hops=group.ranks - 1)


@domain(seq=COUNT, cp=COUNT)
def contiguous(seq: int, cp: int) -> Arrays:
    """The positions of cp neighbouring parts."""
    return np.array_split(np.arange(seq), cp)


@domain(seq=COUNT, cp=COUNT)
def zigzag(seq: int, cp: int) -> Arrays:
    """Of 2·cp parts rank r has part r and part 2·cp − 1 − r: an early and a late one, so that all attend to as much."""
    parts = np.array_split(np.arange(seq), 2 * cp)
    return [np.concatenate([parts[r], parts[2 * cp - 1 - r]]) for r in range(cp)]


# Weights

#: In the order in which they stand in a vector.
NAMES = "q k v o up down gain1 bias1 gain2 bias2".split()


@domain(hidden=COUNT, kv_heads=COUNT, group=COUNT, head=COUNT, inner=COUNT)
def parameters(hidden: int, kv_heads: int, group: int, head: int, inner: int, seed: int) -> Parameters:
    """Random weights of a block: h × key/value heads × query heads a group × head size, and so on."""
    rng = np.random.default_rng(seed)
    shapes = {
        "q": (hidden, kv_heads, group, head), "k": (hidden, kv_heads, head), "v": (hidden, kv_heads, head),
        "o": (kv_heads, group, head, hidden), "up": (hidden, inner), "down": (inner, hidden),
        "gain1": (hidden,), "bias1": (hidden,), "gain2": (hidden,), "bias2": (hidden,),
    }  # fmt: skip
    drawn = {name: rng.standard_normal(shape) / np.sqrt(hidden) for name, shape in shapes.items()}
    return drawn | {name: 1 + drawn[name] for name in ("gain1", "gain2")}


#: The axis along which a weight is split: columns of the first product of a pair, rows of the second.
AXES = {"q": 1, "k": 1, "v": 1, "o": 0, "up": 1, "down": 0}


@domain(tp=COUNT)
def split_weights(weights: Parameters, tp: int) -> list[Parameters]:
    """Rank r's columns, rows and heads (unequal where they do not divide); normalisations are everybody's."""
    heads, inner = weights["q"].shape[1], weights["up"].shape[1]
    if tp > min(heads, inner):
        raise ValueError(f"tp must be at most {min(heads, inner)}: no key/value head or column is cut, got {tp}")
    cut = {name: np.array_split(weights[name], tp, axis) for name, axis in AXES.items()}
    return [weights | {name: parts[r] for name, parts in cut.items()} for r in range(tp)]


def join_weights(shards: Sequence[Parameters]) -> Parameters:
    """The whole from `split_weights`."""
    return shards[0] | {name: np.concatenate([s[name] for s in shards], axis) for name, axis in AXES.items()}


def flat(weights: Parameters) -> np.ndarray:
    """All weights in one vector."""
    return np.concatenate([array.ravel() for array in weights.values()])


def unflat(vector: np.ndarray, like: Parameters) -> Parameters:
    """The weights in a vector (which may be padded at its end), with the names, shapes and number format of `like`."""
    ends = np.cumsum([array.size for array in like.values()])
    pieces = zip(like.items(), np.split(vector[: ends[-1]], ends[:-1]), strict=True)
    return {name: piece.reshape(array.shape).astype(array.dtype) for (name, array), piece in pieces}


# The block, forward and backward

MASKED = -1e30  # a score that no key has; finite, so that a block in which all are masked weighs nothing


def norm(x: np.ndarray, gain: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """gain·(x − mean)/deviation + bias along h, and what `norm_backward` needs."""
    unit = x - x.mean(-1, keepdims=True)
    spread = np.sqrt((unit**2).mean(-1, keepdims=True) + 1e-5)
    return gain * (unit / spread) + bias, (unit / spread, spread)


def norm_backward(d: np.ndarray, gain: np.ndarray, kept: tuple[np.ndarray, np.ndarray]) -> Arrays:
    """Gradients with respect to x, gain and bias."""
    (unit, spread), inner = kept, gain * d
    along = inner - inner.mean(-1, keepdims=True) - unit * (inner * unit).mean(-1, keepdims=True)
    return [along / spread, (d * unit).sum((0, 1)), d.sum((0, 1))]


def _scores(q: np.ndarray, k: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    scores = q @ k[:, :, None].swapaxes(-1, -2) * q.shape[-1] ** -0.5
    return np.where(rows[:, None] >= columns, scores, MASKED)


Attended = tuple[np.ndarray, np.ndarray]


def attend(q: np.ndarray, kv: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> Attended:
    """softmax(qkᵀ/√d)·v over the keys at `columns` up to each query's place in `rows`; and log Σ exp(scores)."""
    scores = _scores(q, kv[0], rows, columns)
    log_sum = np.logaddexp.reduce(scores, axis=-1, keepdims=True)
    return np.exp(scores - log_sum) @ kv[1][:, :, None], log_sum


def merge(one: Attended, other: Attended) -> Attended:
    """`attend` over two sets of keys, from `attend` over each, weighted by their Σ exp(scores)."""
    log_sum = np.logaddexp(one[1], other[1])
    return one[0] * np.exp(one[1] - log_sum) + other[0] * np.exp(other[1] - log_sum), log_sum


def attend_backward(
    d: np.ndarray, q: np.ndarray, kv: np.ndarray, rows: np.ndarray, columns: np.ndarray, kept: Attended
) -> Attended:
    """Gradients with respect to q and kv, through these keys alone; `kept` is the result over all keys."""
    weights = np.exp(_scores(q, kv[0], rows, columns) - kept[1])
    along = d @ kv[1][:, :, None].swapaxes(-1, -2) - (d * kept[0]).sum(-1, keepdims=True)
    inner = weights * along * q.shape[-1] ** -0.5
    pair = [(inner.swapaxes(-1, -2) @ q).sum(2), (weights.swapaxes(-1, -2) @ d).sum(2)]
    return inner @ kv[0][:, :, None], np.stack(pair)


def _add(these: Arrays, those: Arrays) -> Arrays:
    return [a + b for a, b in zip(these, those, strict=True)]


def attention(qs: Arrays, kvs: Arrays, split: Split) -> list[Attended]:
    """Each rank's queries over its own keys, then over those that come round the ring."""
    columns = split.places
    results = list(map(attend, qs, kvs, split.places, columns))
    for _ in range(split.hops):
        kvs, columns = split.shift(kvs), [columns[-1], *columns[:-1]]
        results = list(map(merge, results, map(attend, qs, kvs, split.places, columns)))
    return results


def attention_backward(
    ds: Arrays, qs: Arrays, kvs: Arrays, split: Split, kept: list[Attended]
) -> tuple[Arrays, Arrays]:
    """Gradients with respect to each rank's q and kv: those of kv follow it round the ring, and home in a last hop."""
    columns, carried = split.places, None
    of_q, of_kv = map(list, zip(*map(attend_backward, ds, qs, kvs, split.places, columns, kept), strict=True))
    for _ in range(split.hops):
        kvs, columns = split.shift(kvs), [columns[-1], *columns[:-1]]
        more, here = map(list, zip(*map(attend_backward, ds, qs, kvs, split.places, columns, kept), strict=True))
        of_q, carried = _add(of_q, more), here if carried is None else _add(here, split.shift(carried))
    return of_q, of_kv if carried is None else _add(of_kv, split.shift(carried))


def silu(x: np.ndarray) -> np.ndarray:
    """x/(1 + e^−x)."""
    return x / (1 + np.exp(-x))


def silu_slope(x: np.ndarray) -> np.ndarray:
    """Its derivative, r·(1 + x(1 − r)) with r = 1/(1 + e^−x)."""
    rise = 1 / (1 + np.exp(-x))
    return rise * (1 + x * (1 - rise))


def forward(shards: Sequence[Parameters], inputs: Arrays, split: Split) -> tuple[Arrays, tuple]:
    """Each rank's output, and what `backward` needs: of the split products, their inputs before `enter`."""
    first = [norm(x, w["gain1"], w["bias1"]) for w, x in zip(shards, inputs, strict=True)]
    qs, kvs = [], []
    for w, x in zip(shards, split.enter([y for y, _ in first]), strict=True):
        qs.append(np.einsum("bsh,hkgd->bkgsd", x, w["q"]))
        kvs.append(np.stack([np.einsum("bsh,hkd->bksd", x, w[name]) for name in ("k", "v")]))
    seen = attention(qs, kvs, split)
    sums = [np.einsum("bkgsd,kgdh->bsh", out, w["o"]) for w, (out, _) in zip(shards, seen, strict=True)]
    middle = _add(inputs, split.leave(sums))
    second = [norm(x, w["gain2"], w["bias2"]) for w, x in zip(shards, middle, strict=True)]
    rises = [x @ w["up"] for w, x in zip(shards, split.enter([y for y, _ in second]), strict=True)]
    sums = [silu(rise) @ w["down"] for w, rise in zip(shards, rises, strict=True)]
    return _add(middle, split.leave(sums)), (first, qs, kvs, seen, second, rises)


def backward(shards: Sequence[Parameters], ds: Arrays, split: Split, kept: tuple) -> tuple[list[Parameters], Arrays]:
    """Gradients with respect to each rank's weights, through its own tokens, and its input; ds are its output's."""
    first, qs, kvs, seen, second, rises = kept
    split_ds, entered = split.enter(ds), split.enter([y for y, _ in second])
    of_rise = [d @ w["down"].T * silu_slope(rise) for w, d, rise in zip(shards, split_ds, rises, strict=True)]
    down = [np.einsum("bsf,bsh->fh", silu(rise), d) for rise, d in zip(rises, split_ds, strict=True)]
    up = [np.einsum("bsh,bsf->hf", x, d) for x, d in zip(entered, of_rise, strict=True)]
    sums = split.leave([d @ w["up"].T for w, d in zip(shards, of_rise, strict=True)])
    of_second = [norm_backward(d, w["gain2"], y[1]) for w, d, y in zip(shards, sums, second, strict=True)]
    ds = _add(ds, [d for d, *_ in of_second])

    split_ds, entered = split.enter(ds), split.enter([y for y, _ in first])
    o = [np.einsum("bkgsd,bsh->kgdh", out, d) for (out, _), d in zip(seen, split_ds, strict=True)]
    of_out = [np.einsum("bsh,kgdh->bkgsd", d, w["o"]) for w, d in zip(shards, split_ds, strict=True)]
    of_q, of_kv = attention_backward(of_out, qs, kvs, split, seen)
    q = [np.einsum("bsh,bkgsd->hkgd", x, d) for x, d in zip(entered, of_q, strict=True)]
    k, v = ([np.einsum("bsh,bksd->hkd", x, d[i]) for x, d in zip(entered, of_kv, strict=True)] for i in (0, 1))
    sums = [
        np.einsum("bkgsd,hkgd->bsh", a, w["q"]) + sum(np.einsum("bksd,hkd->bsh", b[i], w["kv"[i]]) for i in (0, 1))
        for w, a, b in zip(shards, of_q, of_kv, strict=True)
    ]
    of_first = [norm_backward(d, w["gain1"], y[1]) for w, d, y in zip(shards, split.leave(sums), first, strict=True)]
    norms = ([part[i] for part in of] for of in (of_first, of_second) for i in (1, 2))
    gradients = [dict(zip(NAMES, each, strict=True)) for each in zip(q, k, v, o, up, down, *norms, strict=True)]
    return gradients, _add(ds, [d for d, *_ in of_first])


def sum_norm_gradients(gradients: list[Parameters], group: Group) -> list[Parameters]:
    """Of sequence parallel: a rank's normalisations saw its part of the sequence alone, so their gradients are summed.

    One all-reduce of 4h numbers a layer and step. Left out, nothing fails: the ranks' copies drift apart.
    """
    names = NAMES[6:]
    sums = group.all_reduce([np.stack([g[name] for name in names]) for g in gradients])
    return [g | dict(zip(names, rows, strict=True)) for g, rows in zip(gradients, sums, strict=True)]


# The step: gradients of many ranks, and an optimiser whose state is whole or sharded

Batch = tuple[np.ndarray, np.ndarray]  # inputs and targets, batch × sequence × h
Batches = Sequence[Sequence[Batch]]  # each rank's micro-batches, of any size


@dataclass(frozen=True)
class State:
    """A rank's share of the weights, and of Adam's two moments, as vectors."""

    weights: np.ndarray
    mean: np.ndarray
    square: np.ndarray
    steps: int = 0


@domain(shards=COUNT)
def states(weights: Parameters, shards: int = 1) -> list[State]:
    """Fresh states of all weights, padded with zeros and cut into equal shards."""
    vector = flat(weights)
    padded = np.pad(vector, (0, -len(vector) % shards))
    return [State(piece, np.zeros_like(piece), np.zeros_like(piece)) for piece in np.split(padded, shards)]


def adam(state: State, gradient: np.ndarray, rate: float = 1e-2) -> State:
    """w − rate·m̂/(√v̂ + ε), number by number: so whoever has a shard of the sums can update it alone."""
    steps = state.steps + 1
    mean = 0.9 * state.mean + 0.1 * gradient
    square = 0.99 * state.square + 0.01 * gradient**2
    move = (mean / (1 - 0.9**steps)) / (np.sqrt(square / (1 - 0.99**steps)) + 1e-8)
    return State(state.weights - rate * move, mean, square, steps)


def tokens(batches: Batches) -> int:
    """Tokens of a step, over all ranks and micro-batches: what the sum of gradients is divided by."""
    return sum(x.shape[0] * x.shape[1] for own in batches for x, _ in own)


def gradient(state: State, forth: np.ndarray, back: np.ndarray, batch: Batch, like: Parameters) -> np.ndarray:
    """The sum over one rank's tokens, as a vector of the state's number format, padded as the weights are.

    Forward with the weights in `forth`, backward with those in `back`: the same, but ZeRO-3 gathers them twice.
    """
    x, target = batch
    alone = apart(1, x.shape[1])
    (output,), kept = forward([unflat(forth, like)], [x], alone)
    (gradients,), _ = backward([unflat(back, like)], [output - target], alone, kept)
    vector = flat(gradients).astype(state.weights.dtype)
    return np.pad(vector, (0, len(forth) - len(vector)))


def _sum(state: State, whole: np.ndarray, own: Sequence[Batch], like: Parameters) -> np.ndarray:
    """Over a rank's micro-batches."""
    return np.sum([gradient(state, whole, whole, batch, like) for batch in own], axis=0)


def _gather(shards: list[State], like: Parameters, group: Group) -> Arrays:
    """All weights for each rank, sent in the number format of `like`."""
    return group.all_gather([s.weights.astype(like["q"].dtype) for s in shards])


def _in_step(batches: Batches) -> list[tuple[Batch, ...]]:
    """Micro-batch after micro-batch, of all ranks: a collective follows each, and waits for ever for who has none."""
    counts = [len(own) for own in batches]
    if len(set(counts)) > 1:
        raise ValueError(f"batches must have as many micro-batches at each rank (empty ones will do), got {counts}")
    return list(zip(*batches, strict=True))


def _update(shards: list[State], sums: Arrays, batches: Batches) -> list[State]:
    """Each its own part, by the mean over all tokens of the step."""
    return [adam(s, part / tokens(batches)) for s, part in zip(shards, sums, strict=True)]


def replica_step(replicas: list[State], batches: Batches, like: Parameters, group: Group) -> list[State]:
    """Everyone has everything; micro-batches are added up, gradients all-reduced, and all make the same update.

    One rank is the whole, unshared step.
    """
    sums = [_sum(s, s.weights, own, like) for s, own in zip(replicas, batches, strict=True)]
    return _update(replicas, group.all_reduce(sums), batches)


def zero1_step(shards: list[State], batches: Batches, like: Parameters, group: Group) -> list[State]:
    """Moments are sharded: each updates its shard of the weights; all are gathered for the next step (here first)."""
    whole = _gather(shards, like, group)
    sums = [_sum(s, w, own, like) for s, w, own in zip(shards, whole, batches, strict=True)]
    return _update(shards, group.reduce_scatter(sums), batches)


def zero2_step(shards: list[State], batches: Batches, like: Parameters, group: Group) -> list[State]:
    """The gradient is sharded too: a micro-batch's is scattered before the next begins."""
    whole, sums = _gather(shards, like, group), [np.zeros_like(s.weights) for s in shards]
    for micro in _in_step(batches):
        own = [gradient(s, w, w, b, like) for s, w, b in zip(shards, whole, micro, strict=True)]
        sums = _add(sums, group.reduce_scatter(own))
    return _update(shards, sums, batches)


def zero3_step(shards: list[State], batches: Batches, like: Parameters, group: Group) -> list[State]:
    """The weights are sharded too: they are whole only while a pass uses them."""
    sums = [np.zeros_like(s.weights) for s in shards]
    for micro in _in_step(batches):
        forth, back = _gather(shards, like, group), _gather(shards, like, group)
        own = [gradient(*each, like) for each in zip(shards, forth, back, micro, strict=True)]
        sums = _add(sums, group.reduce_scatter(own))
    return _update(shards, sums, batches)
