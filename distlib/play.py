"""The algorithms of `distlib.collectives` played on real arrays: who sends what to whom, round by round.

Each function has the name of the formula that it proves. It takes one array a rank, moves elements by messages alone,
and counts rounds, bytes and α–β time on the way:

    played = ring_all_reduce([np.ones(8)] * 4, link)
    played.results, played.rounds, played.sent, played.time
    for memory in played.holdings(): ...                # who holds what: before the first round and after each

**Ports.** A rank has a port to its node-mates (`intra`) and a port to other nodes, a NIC (`inter`), which gpus/rails
node-mates share. Both are full duplex. The messages of a round start together: a rank pays the largest α among those
that it sends or receives, then the time that its fuller port takes for the round's bytes, in the fuller direction. The
round lasts as long as its slowest rank. `gpus` in an algorithm of one level says how many ranks make a node, for the
count of bytes alone: all, if left out. On direct wires (`line_…`, `torus_…`) a rank has a port for each neighbour.

**Uneven division.** Where the array does not divide into the pieces that an algorithm cuts, pieces differ by one
element; none is padded. All ranks together send what the formula says, and the time lies between the formula at n and
the formula at n rounded up to what divides. An all-to-all needs an even division.

At the end the backward pass of a data-parallel step is played as a timeline, the oracle of `distlib.step`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import NamedTuple

import numpy as np

from distlib.alphabeta import Link, transfer_time
from distlib.domain import COUNT, NONNEGATIVE, POSITIVE, POWER_OF_TWO, Real, check
from distlib.step import Step


class Message(NamedTuple):
    """What `source` reads from its memory at `take`, and `to` writes to, or adds to, its own at `put`."""

    source: int
    to: int
    take: slice | np.ndarray
    put: slice | np.ndarray
    add: bool


Round = list[Message]


@dataclass(frozen=True)
class Played:
    """What an algorithm led to, and what it took."""

    results: tuple[np.ndarray, ...]  # by rank; of a reduce, the root's alone
    rounds: int
    time: float  # s
    intra: np.ndarray  # bytes that each rank sent to its node-mates
    inter: np.ndarray  # bytes that each rank sent to other nodes
    start: np.ndarray  # ranks × elements: every rank's memory before the first round
    schedule: tuple[Round, ...]

    @property
    def sent(self) -> np.ndarray:
        """Bytes that each rank sent."""
        return self.intra + self.inter

    def holdings(self) -> Iterator[np.ndarray]:
        """All memories (ranks × elements) before the first round and after each.

        Give rank r arrays of the number 2^r: the binary digits of what is held then name the ranks whose data is in it.
        """
        memory = self.start.copy()
        yield memory.copy()
        for messages in self.schedule:
            _deliver(messages, memory)
            yield memory.copy()


@dataclass(frozen=True)
class _Wires:
    """Nodes of `gpus` ranks on `intra`, with `rails` NICs each on `inter`."""

    intra: Link
    inter: Link
    gpus: int
    rails: int


def _one(name: str, value: Real) -> int:
    """One whole number ≥ 1, as an int."""
    if np.ndim(value):
        raise ValueError(f"{name} must be a single whole number ≥ 1, got {value!r}")
    return int(check(name, value, COUNT))


def _two_levels(ranks: int, gpus: int, intra: Link, inter: Link, rails: int) -> _Wires:
    gpus, rails = _one("gpus", gpus), _one("rails", rails)
    _one("ranks / gpus", ranks / gpus)
    _one("gpus / rails", gpus / rails)
    return _Wires(intra, inter, gpus, rails)


def _one_level(ranks: int, gpus: int | None, link: Link) -> _Wires:
    gpus = ranks if gpus is None else gpus
    return _two_levels(ranks, gpus, link, link, rails=gpus)


def _memory(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Ranks × elements, a copy; refused unless there is one array of numbers a rank, all of one length."""
    rows = [np.asarray(array) for array in arrays] if np.iterable(arrays) else []
    if not rows or any(row.ndim != 1 or row.dtype.kind not in "iuf" or row.shape != rows[0].shape for row in rows):
        got = ", ".join(f"{row.dtype} of shape {row.shape}" for row in rows) or repr(arrays)
        raise ValueError(f"arrays must be one array of numbers a rank, of one dimension and equal length, got {got}")
    return np.stack(rows)


def _pieces(start: int, stop: int, parts: int) -> list[slice]:
    """start … stop cut into `parts` neighbours that differ in length by at most one."""
    return [slice(a, b) for a, b in pairwise(start + (stop - start) * i // parts for i in range(parts + 1))]


def _deliver(messages: Round, memory: np.ndarray) -> None:
    """All messages of a round at once: every rank reads before any writes."""
    payloads = [memory[m.source, m.take].copy() for m in messages]
    for m, payload in zip(messages, payloads, strict=True):
        memory[m.to, m.put] = memory[m.to, m.put] + payload if m.add else payload


def _play(
    memory: np.ndarray,
    schedule: Sequence[Round],
    wires: _Wires,
    keep: Sequence[slice] | None = None,
    full: float = 0.0,
    switch: bool = False,
) -> Played:
    """Play `schedule` on `memory`; rank r's result is what it holds at keep[r] in the end, or all of it.

    A round lasts at least `full` seconds. With `switch`, the switch copies and adds: a piece leaves its rank once
    however many receive it, and what is added up for a rank arrives there once.
    """
    start, ranks = memory.copy(), len(memory)
    node, nic = np.arange(ranks) // wires.gpus, np.arange(ranks) // (wires.gpus // wires.rails)
    time, sent = 0.0, np.zeros((2, ranks))
    for messages in schedule:
        out, into, opened = np.zeros((3, 2, ranks))
        seen: set[tuple[bool, int, str] | None] = set()
        for m in messages:
            level = int(node[m.source] != node[m.to])
            size = memory[m.source, m.take].nbytes
            for load, rank, piece in (out, m.source, m.take), (into, m.to, m.put):
                opened[level, rank] = 1
                passage = (load is out, rank, str(piece)) if switch else None
                if passage not in seen:
                    load[level, rank] += size
                if passage:
                    seen.add(passage)
        _deliver(messages, memory)
        nic_load = np.maximum(np.bincount(nic, out[1])[nic], np.bincount(nic, into[1])[nic])
        carry = np.maximum(np.maximum(out[0], into[0]) / wires.intra.beta, opened[1] * nic_load / wires.inter.beta)
        alpha = np.maximum(opened[0] * wires.intra.alpha, opened[1] * wires.inter.alpha)
        time += max(float(np.max(alpha + carry)), full)
        sent += out
    results = memory if keep is None else [memory[rank, piece] for rank, piece in enumerate(keep)]
    return Played(tuple(row.copy() for row in results), len(schedule), time, sent[0], sent[1], start, tuple(schedule))


def _send(source: int, to: int, piece: slice, add: bool = False) -> Message:
    """A piece that has the same place at both ends."""
    return Message(source, to, piece, piece, add)


def _side_by_side(schedules: Sequence[Sequence[Round]]) -> list[Round]:
    """Schedules of different ranks, or of different parts of the array, as one: their rounds coincide."""
    return [sum(rounds, []) for rounds in zip_longest(*schedules, fillvalue=[])]


def _backwards(broadcast: Sequence[Round]) -> list[Round]:
    """A broadcast run as a reduce: last round first, each message back from its receiver and added."""
    return [[_send(m.to, m.source, m.take, add=True) for m in messages] for messages in reversed(broadcast)]


# --- rings: any N --------------------------------------------------------------------------------------------------


def _ring_reduce_scatter(members: Sequence[int], pieces: Sequence[slice]) -> list[Round]:
    """Piece i starts at the member after i and goes right, one term richer a hop, until it is whole at member i."""
    size = len(members)
    return [
        [_send(members[i], members[(i + 1) % size], pieces[(i - t - 1) % size], add=True) for i in range(size)]
        for t in range(size - 1)
    ]


def _ring_all_gather(members: Sequence[int], pieces: Sequence[slice]) -> list[Round]:
    """Piece i starts at member i and goes right until all have it."""
    size = len(members)
    return [
        [_send(members[i], members[(i + 1) % size], pieces[(i - t) % size]) for i in range(size)]
        for t in range(size - 1)
    ]


def _ring_all_reduce(members: Sequence[int], pieces: Sequence[slice]) -> list[Round]:
    return _ring_reduce_scatter(members, pieces) + _ring_all_gather(members, pieces)


def _to_gather(shards: Sequence[np.ndarray]) -> tuple[np.ndarray, list[slice]]:
    """Memories for the whole array, in which rank r holds piece r; and the pieces."""
    rows = _memory(shards)
    ranks, size = rows.shape
    memory, pieces = np.zeros((ranks, ranks * size), rows.dtype), _pieces(0, ranks * size, ranks)
    for rank, piece in enumerate(pieces):
        memory[rank, piece] = rows[rank]
    return memory, pieces


def ring_all_gather(arrays: Sequence[np.ndarray], link: Link, gpus: int | None = None) -> Played:
    """From one shard a rank, each rank ends with all, in the order of ranks. N − 1 rounds."""
    memory, pieces = _to_gather(arrays)
    return _play(memory, _ring_all_gather(range(len(memory)), pieces), _one_level(len(memory), gpus, link))


def ring_reduce_scatter(arrays: Sequence[np.ndarray], link: Link, gpus: int | None = None) -> Played:
    """Rank r ends with piece r of the sum. N − 1 rounds."""
    memory = _memory(arrays)
    ranks, size = memory.shape
    pieces = _pieces(0, size, ranks)
    return _play(memory, _ring_reduce_scatter(range(ranks), pieces), _one_level(ranks, gpus, link), pieces)


def ring_all_reduce(arrays: Sequence[np.ndarray], link: Link, gpus: int | None = None) -> Played:
    """Each rank ends with the sum. 2(N − 1) rounds."""
    memory = _memory(arrays)
    ranks, size = memory.shape
    return _play(memory, _ring_all_reduce(range(ranks), _pieces(0, size, ranks)), _one_level(ranks, gpus, link))


# --- recursive halving and doubling: N a power of two --------------------------------------------------------------


def _distances(memory: np.ndarray) -> list[int]:
    """1, 2, 4, … N/2; refused unless N is a power of two."""
    return [1 << i for i in range(check("ranks", len(memory), POWER_OF_TWO).bit_length() - 1)]


def _span(pieces: Sequence[slice], rank: int, count: int) -> slice:
    """The `count` pieces, of those cut at multiples of `count`, among which piece `rank` is."""
    first = rank // count * count
    return slice(pieces[first].start, pieces[first + count - 1].stop)


def _recursive_halving(memory: np.ndarray, pieces: Sequence[slice]) -> list[Round]:
    """With the partner at distance N/2, … 2, 1: send the half in which its piece lies, keep the half with one's own."""
    return [
        [_send(r, r ^ far, _span(pieces, r ^ far, far), add=True) for r in range(len(memory))]
        for far in reversed(_distances(memory))
    ]


def _recursive_doubling(memory: np.ndarray, pieces: Sequence[slice]) -> list[Round]:
    """With the partner at distance 1, 2, … N/2: send all pieces held."""
    return [[_send(r, r ^ far, _span(pieces, r, far)) for r in range(len(memory))] for far in _distances(memory)]


def recursive_doubling_all_gather(arrays: Sequence[np.ndarray], link: Link, gpus: int | None = None) -> Played:
    """From one shard a rank, each rank ends with all, in the order of ranks. log₂N rounds."""
    memory, pieces = _to_gather(arrays)
    return _play(memory, _recursive_doubling(memory, pieces), _one_level(len(memory), gpus, link))


def recursive_halving_reduce_scatter(arrays: Sequence[np.ndarray], link: Link, gpus: int | None = None) -> Played:
    """Rank r ends with piece r of the sum. log₂N rounds."""
    memory = _memory(arrays)
    ranks, size = memory.shape
    pieces = _pieces(0, size, ranks)
    return _play(memory, _recursive_halving(memory, pieces), _one_level(ranks, gpus, link), pieces)


def halving_doubling_all_reduce(arrays: Sequence[np.ndarray], link: Link, gpus: int | None = None) -> Played:
    """Each rank ends with the sum. 2log₂N rounds."""
    memory = _memory(arrays)
    ranks, size = memory.shape
    pieces = _pieces(0, size, ranks)
    schedule = _recursive_halving(memory, pieces) + _recursive_doubling(memory, pieces)
    return _play(memory, schedule, _one_level(ranks, gpus, link))


def recursive_doubling_all_reduce(arrays: Sequence[np.ndarray], link: Link, gpus: int | None = None) -> Played:
    """Each rank ends with the sum: partners at distance 1, 2, … N/2 exchange and add all they have. log₂N rounds."""
    memory = _memory(arrays)
    ranks, size = memory.shape
    schedule = [[_send(r, r ^ far, slice(0, size), add=True) for r in range(ranks)] for far in _distances(memory)]
    return _play(memory, schedule, _one_level(ranks, gpus, link))


# --- trees: any N --------------------------------------------------------------------------------------------------


def _binomial(memory: np.ndarray) -> list[Round]:
    """A broadcast from rank 0: in round t each of the 2^t ranks that have the array sends it 2^t ranks on."""
    ranks, size = memory.shape
    steps = [1 << t for t in range((ranks - 1).bit_length())]
    return [[_send(r, r + step, slice(0, size)) for r in range(min(step, ranks - step))] for step in steps]


def _pipelined(parents: Sequence[int], pieces: Sequence[slice]) -> list[Round]:
    """A broadcast from the root of a tree: piece j arrives at depth x in round x + j, counted from 1 and from 0."""

    def depth(rank: int) -> int:
        return 0 if parents[rank] < 0 else 1 + depth(parents[rank])

    deepest = max(depth(rank) for rank in range(len(parents)))
    schedule: list[Round] = [[] for _ in range(deepest + len(pieces) - 1)] if deepest else []
    for rank, parent in enumerate(parents):
        for j, piece in enumerate(pieces if parent >= 0 else []):
            schedule[depth(rank) - 1 + j].append(_send(parent, rank, piece))
    return schedule


def tree_broadcast(arrays: Sequence[np.ndarray], link: Link, gpus: int | None = None) -> Played:
    """Each rank ends with the array of rank 0. ⌈log₂N⌉ rounds."""
    memory = _memory(arrays)
    return _play(memory, _binomial(memory), _one_level(len(memory), gpus, link))


def tree_reduce(arrays: Sequence[np.ndarray], link: Link, gpus: int | None = None) -> Played:
    """Rank 0 ends with the sum. ⌈log₂N⌉ rounds."""
    memory = _memory(arrays)
    ranks, size = memory.shape
    return _play(memory, _backwards(_binomial(memory)), _one_level(ranks, gpus, link), keep=[slice(0, size)])


def tree_all_reduce(arrays: Sequence[np.ndarray], link: Link, gpus: int | None = None) -> Played:
    """Each rank ends with the sum. 2⌈log₂N⌉ rounds."""
    memory = _memory(arrays)
    broadcast = _binomial(memory)
    return _play(memory, _backwards(broadcast) + broadcast, _one_level(len(memory), gpus, link))


def chain_broadcast(arrays: Sequence[np.ndarray], link: Link, chunks: int, gpus: int | None = None) -> Played:
    """Each rank ends with the array of rank 0, passed down a line in chunks. N − 1 + chunks − 1 rounds."""
    memory = _memory(arrays)
    ranks, size = memory.shape
    schedule = _pipelined(range(-1, ranks - 1), _pieces(0, size, _one("chunks", chunks)))
    return _play(memory, schedule, _one_level(ranks, gpus, link))


def double_tree(ranks: int) -> tuple[list[int], list[int]]:
    """Two binary trees over the ranks 0 … N−1, each as the parent of every rank (−1 for the root); any N.

    Number the places from 1 to N. In the first tree 2^h times an odd number stands at height h, midway between its
    children; whose parent would lie beyond N hangs on the next place below instead. So odd places are leaves. The
    second tree is the first moved on by one, the last rank to the first place: no rank has children in both.
    """
    count = _one("ranks", ranks)

    def parent(place: int) -> int:
        step = place & -place  # 2^h
        up = place + step if place // step % 4 == 1 else place - step
        return up if up <= count else place - step  # 0: there is none

    first = [parent(place) - 1 for place in range(1, count + 1)]
    return first, [-1 if first[rank - 1] < 0 else (first[rank - 1] + 1) % count for rank in range(count)]


def double_tree_all_reduce(arrays: Sequence[np.ndarray], link: Link, chunks: int, gpus: int | None = None) -> Played:
    """Each rank ends with the sum: each tree reduces, then broadcasts, its half. 2(⌊log₂N⌋ + chunks − 1) rounds.

    Clocked: no round is shorter than what a port takes for the largest chunk of both halves.
    """
    memory = _memory(arrays)
    ranks, size = memory.shape
    halves = [_pieces(half.start, half.stop, _one("chunks", chunks)) for half in _pieces(0, size, 2)]
    broadcast = _side_by_side([_pipelined(tree, half) for tree, half in zip(double_tree(ranks), halves, strict=True)])
    full = transfer_time(sum(max(memory[0, piece].nbytes for piece in half) for half in halves), link)
    return _play(memory, _backwards(broadcast) + broadcast, _one_level(ranks, gpus, link), full=full)


# --- direct wires: a line of any N, a torus of N = side^axes -------------------------------------------------------


def _play_on_wires(memory: np.ndarray, schedule: Sequence[Round], link: Link) -> Played:
    """Play `schedule` on wires to neighbours: a round lasts as long as its fullest wire, in the fuller direction."""
    start, time, sent = memory.copy(), 0.0, np.zeros(len(memory))
    for messages in schedule:
        wires: Counter[tuple[int, int]] = Counter()
        for m in messages:
            wires[m.source, m.to] += memory[m.source, m.take].nbytes
            sent[m.source] += memory[m.source, m.take].nbytes
        time += transfer_time(max(wires.values()), link)
        _deliver(messages, memory)
    return Played(tuple(memory.copy()), len(schedule), time, sent, np.zeros(len(memory)), start, tuple(schedule))


def _line_all_gather(pieces: Sequence[slice]) -> list[Round]:
    """In round t each rank sends to its right what came from t places left of it, and to its left likewise."""
    ranks = len(pieces)
    return [
        [_send(r, r + 1, pieces[r - t]) for r in range(t, ranks - 1)]
        + [_send(r, r - 1, pieces[r + t]) for r in range(1, ranks - t)]
        for t in range(ranks - 1)
    ]


def line_all_gather(arrays: Sequence[np.ndarray], link: Link) -> Played:
    """From one shard a rank, each rank of a line ends with all, in the order of ranks. N − 1 rounds."""
    memory, pieces = _to_gather(arrays)
    return _play_on_wires(memory, _line_all_gather(pieces), link)


def line_all_reduce(arrays: Sequence[np.ndarray], link: Link) -> Played:
    """Each rank of a line ends with the sum. 2(N − 1) rounds."""
    memory = _memory(arrays)
    ranks, size = memory.shape
    gather = _line_all_gather(_pieces(0, size, ranks))
    return _play_on_wires(memory, _backwards(gather) + gather, link)


def _torus_all_reduce(grid: np.ndarray, axes: Sequence[int], part: slice) -> list[Round]:
    """Rings along the first axis reduce-scatter the part, the other axes all-reduce the pieces, rings all-gather."""
    if not axes:
        return []
    side = grid.shape[axes[0]]
    pieces = _pieces(part.start, part.stop, side)
    rings = np.moveaxis(grid, axes[0], -1).reshape(-1, side).tolist()
    planes = zip(np.split(grid, side, axes[0]), pieces, strict=True)
    return [
        *_side_by_side([_ring_reduce_scatter(ring, pieces) for ring in rings]),
        *_side_by_side([_torus_all_reduce(plane, axes[1:], piece) for plane, piece in planes]),
        *_side_by_side([_ring_all_gather(ring, pieces) for ring in rings]),
    ]


def torus_all_reduce(arrays: Sequence[np.ndarray], link: Link, axes: int) -> Played:
    """Each rank ends with the sum: a part an axis and direction, each around all axes. 2·axes(side − 1) rounds."""
    memory = _memory(arrays)
    ranks, size = memory.shape
    axes = _one("axes", axes)
    side = _one("ranks ** (1 / axes)", next((x for x in range(1, ranks + 1) if x**axes == ranks), ranks ** (1 / axes)))
    grid = np.arange(ranks).reshape((side,) * axes)
    ways = [(way, [*range(axis, axes), *range(axis)]) for axis in range(axes) for way in (grid, np.flip(grid))]
    parts = zip(ways, _pieces(0, size, 2 * axes), strict=True)
    return _play_on_wires(memory, _side_by_side([_torus_all_reduce(*way, part) for way, part in parts]), link)


# --- reduction in the switch: any N --------------------------------------------------------------------------------


def _pulled_by(owner: int, ranks: int, piece: slice) -> Round:
    """Every rank's piece, the owner's own too, goes to the switch, which adds them up for the owner."""
    return [_send(owner, owner, piece), *(_send(r, owner, piece, add=True) for r in range(ranks) if r != owner)]


def in_network_all_reduce(arrays: Sequence[np.ndarray], link: Link) -> Played:
    """Each rank ends with the sum, formed in the switch and sent to all. One round; none for N = 1."""
    memory = _memory(arrays)
    ranks, size = memory.shape
    schedule = [sum([_pulled_by(rank, ranks, slice(0, size)) for rank in range(ranks)], [])] if ranks > 1 else []
    return _play(memory, schedule, _one_level(ranks, None, link), switch=True)


def nvls_all_reduce(arrays: Sequence[np.ndarray], link: Link, chunks: int) -> Played:
    """Each rank ends with the sum: it pulls its own block's, then multicasts it, in chunks. chunks + 1 rounds."""
    memory = _memory(arrays)
    ranks, size = memory.shape
    chunks = _one("chunks", chunks)
    schedule: list[Round] = [[] for _ in range(chunks + 1)] if ranks > 1 else []
    for owner, block in enumerate(_pieces(0, size, ranks) if ranks > 1 else []):
        for j, piece in enumerate(_pieces(block.start, block.stop, chunks)):
            schedule[j] += _pulled_by(owner, ranks, piece)
            schedule[j + 1] += [_send(owner, rank, piece) for rank in range(ranks)]
    return _play(memory, schedule, _one_level(ranks, None, link), switch=True)


# --- two levels: N a multiple of gpus, gpus of rails ---------------------------------------------------------------


def hierarchical_all_reduce(arrays: Sequence[np.ndarray], gpus: int, intra: Link, inter: Link, rails: int) -> Played:
    """Each rank ends with the sum: rings inside nodes, rings of equal places across nodes, rings inside nodes."""
    memory = _memory(arrays)
    ranks, size = memory.shape
    wires = _two_levels(ranks, gpus, intra, inter, rails)
    nodes, pieces = np.arange(ranks).reshape(-1, wires.gpus), _pieces(0, size, wires.gpus)
    across = [
        _ring_all_reduce(place, _pieces(piece.start, piece.stop, len(place)))
        for place, piece in zip(nodes.T.tolist(), pieces, strict=True)
    ]
    schedule = [
        *_side_by_side([_ring_reduce_scatter(node, pieces) for node in nodes.tolist()]),
        *_side_by_side(across),
        *_side_by_side([_ring_all_gather(node, pieces) for node in nodes.tolist()]),
    ]
    return _play(memory, schedule, wires)


def flat_ring_all_reduce(arrays: Sequence[np.ndarray], gpus: int, intra: Link, inter: Link, rails: int) -> Played:
    """Each rank ends with the sum: for each rail a ring over all ranks, which leaves nodes there. 2(N − 1) rounds."""
    memory = _memory(arrays)
    ranks, size = memory.shape
    wires = _two_levels(ranks, gpus, intra, inter, rails)
    nodes = np.arange(ranks).reshape(-1, wires.gpus)
    rings = []
    for rail, stripe in enumerate(_pieces(0, size, wires.rails)):
        exit_last = np.roll(nodes, -rail * (wires.gpus // wires.rails) - 1, axis=1).ravel()
        rings.append(_ring_all_reduce(exit_last.tolist(), _pieces(stripe.start, stripe.stop, ranks)))
    return _play(memory, _side_by_side(rings), wires)


# --- all-to-all ----------------------------------------------------------------------------------------------------


def _exchange(members: Sequence[int], take: np.ndarray, put: np.ndarray) -> list[Round]:
    """Pairwise: in round t member i sends what lies at take[i + t] to member i + t, who puts it at put[i]."""
    size = len(members)
    return [
        [Message(members[i], members[(i + t) % size], take[(i + t) % size], put[i], False) for i in range(size)]
        for t in range(1, size)
    ]


def _to_exchange(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Ranks × elements, as `_memory`; refused unless the elements divide by the ranks."""
    rows = _memory(arrays)
    if rows.shape[1] % len(rows):
        raise ValueError(f"arrays must have a multiple of {len(rows)} (ranks) elements, got {rows.shape[1]}")
    return rows


def _pairwise(rows: np.ndarray, wires: _Wires) -> Played:
    ranks, size = rows.shape
    pieces = np.arange(size).reshape(ranks, -1)
    memory = np.hstack([rows, rows])  # sent | received, where one's own piece is in place
    return _play(memory, _exchange(range(ranks), pieces, size + pieces), wires, [slice(size, None)] * ranks)


def pairwise_all_to_all(arrays: Sequence[np.ndarray], link: Link, gpus: int | None = None) -> Played:
    """Rank r ends with piece r of every rank's array, in the order of ranks. N − 1 rounds; any N."""
    rows = _to_exchange(arrays)
    return _pairwise(rows, _one_level(len(rows), gpus, link))


def oversubscribed_all_to_all(arrays: Sequence[np.ndarray], gpus: int, link: Link, rails: int) -> Played:
    """The same on a fat tree: `gpus` ranks have a leaf switch with `rails` uplinks, which gpus/rails of them share."""
    rows = _to_exchange(arrays)
    return _pairwise(rows, _two_levels(len(rows), gpus, link, link, rails))


def hierarchical_all_to_all(arrays: Sequence[np.ndarray], gpus: int, intra: Link, inter: Link, rails: int) -> Played:
    """Rank r ends with piece r of every rank's array: first a hop to the right place in the node, then to the node."""
    rows = _to_exchange(arrays)
    ranks, size = rows.shape
    wires = _two_levels(ranks, gpus, intra, inter, rails)
    nodes = np.arange(ranks).reshape(-1, wires.gpus)
    pieces = np.arange(size).reshape(*nodes.shape, -1)
    memory = np.hstack([rows, rows, rows])  # sent | at the right place | received; one's own piece is in place
    inside = []
    for here, node in enumerate(nodes.tolist()):
        arrived = size * (1 + (np.arange(len(nodes)) == here))[:, None, None] + pieces
        inside.append(_exchange(node, np.moveaxis(pieces, 1, 0), np.moveaxis(arrived, 1, 0)))
    across = [_exchange(place, size + pieces, 2 * size + pieces) for place in nodes.T.tolist()]
    schedule = _side_by_side(inside) + _side_by_side(across)
    return _play(memory, schedule, wires, [slice(2 * size, None)] * ranks)


# --- the backward pass as a timeline -------------------------------------------------------------------------------


class Span(NamedTuple):
    """What one stream of one rank does from `start` to `end`, in s: a layer, a wait for other ranks, or a bucket."""

    rank: int
    stream: str  # "compute" or "comm"
    name: str  # "layer", "wait" or "bucket"
    place: int  # which of its kind, in the order of the pass
    start: float
    end: float


@dataclass(frozen=True)
class Backward:
    """A backward pass of N ranks, played. Times are in s from its start; each array's last axis is (start, end)."""

    layers: np.ndarray  # ranks × layers × 2: when the rank computes each layer
    waits: np.ndarray  # ranks × buckets × 2: from when the rank could send a bucket until all could
    buckets: np.ndarray  # buckets × 2: when all ranks reduce each bucket
    slowdown: float  # s: what contention added to computation, the mean over ranks

    @property
    def total(self) -> float:
        """When the last layer and the last bucket are done."""
        return float(max(self.layers.max(), self.buckets.max()))

    @property
    def step(self) -> Step:
        """The terms: what computes, reduces, waits, and does so while it computes; means over ranks."""
        begin, end = np.broadcast_to(self.buckets, self.waits.shape).swapaxes(0, -1).swapaxes(1, -1)
        computed = self.layers[:, -1:, 1]
        hidden = np.clip(np.minimum(end, computed) - self.waits[..., 0], 0, None)
        return Step(
            compute=float(computed.sum()), ranks=len(computed), comm=float((end - begin)[0].sum()),
            sync=float((begin - self.waits[..., 0]).sum(axis=1).mean()), overlap=float(hidden.sum(axis=1).mean()),
        )  # fmt: skip

    @property
    def spans(self) -> list[Span]:
        """Everything that happens, rank by rank."""
        done = []
        for rank, (layers, waits) in enumerate(zip(self.layers.tolist(), self.waits.tolist(), strict=True)):
            done += [Span(rank, "compute", "layer", i, *times) for i, times in enumerate(layers)]
            for i, (wait, bucket) in enumerate(zip(waits, self.buckets.tolist(), strict=True)):
                done += [Span(rank, "comm", "wait", i, *wait), Span(rank, "comm", "bucket", i, *bucket)]
        return done


def bucket_ends(n: Sequence[float], bucket: float) -> list[int]:
    """The layers that close a bucket: the first with which it holds `bucket` bytes or more, and the last layer.

    `n` has the bytes of each layer's gradient in the order of the pass.
    """
    ends, held = [], 0.0
    for layer, size in enumerate(n):
        held += size
        if held >= bucket or layer == len(n) - 1:
            ends.append(layer)
            held = 0.0
    return ends


def backward(
    compute: np.ndarray, n: Sequence[float], bucket: float, reduce: Callable[[float], float],
    contention: float = 0.0, drag: float = 0.0,
) -> Backward:  # fmt: skip
    """Play a backward pass: each rank computes layer after layer and offers a bucket as soon as it is whole.

    `compute` (ranks × layers, s) is each layer's time if nothing disturbs it, in the order of the pass; `n` its
    gradient in bytes. `reduce(n)` is the time in s in which all ranks reduce n bytes, alone. One bucket is reduced at a
    time, in order, from when every rank has it. While a bucket is reduced, computation takes 1 + `contention` times
    as long; while any rank computes, reduction takes 1 + `drag` times as long.
    """
    work = check("compute", compute, NONNEGATIVE)
    sizes = check("n", n, NONNEGATIVE)
    if np.ndim(work) != 2 or work.size == 0 or np.shape(sizes) != work.shape[1:]:
        raise ValueError(
            "compute must be ranks × layers and n have one size a layer, "
            f"got shapes {np.shape(work)} and {np.shape(sizes)}"
        )
    check("bucket", bucket, POSITIVE)
    slow, heavy = 1 + check("contention", contention, NONNEGATIVE), 1 + check("drag", drag, NONNEGATIVE)
    ranks, depth = work.shape
    ends = bucket_ends(sizes, bucket)
    volumes = np.add.reduceat(sizes, [0, *(end + 1 for end in ends[:-1])])
    left = work.copy()  # s of each layer still to compute, undisturbed
    layers, waits, buckets = np.zeros((ranks, depth, 2)), np.zeros((ranks, len(ends), 2)), np.zeros((len(ends), 2))
    at = np.zeros(ranks, int)  # the layer each rank is at; `depth` when it is done
    sent, to_send, now, every = 0, None, 0.0, np.arange(ranks)
    while sent < len(ends) or np.any(at < depth):
        if to_send is None and sent < len(ends) and np.all(at > ends[sent]):
            ready = np.maximum(layers[:, ends[sent], 1], buckets[sent - 1, 1] if sent else 0.0)
            waits[:, sent], buckets[sent, 0] = np.stack([ready, np.full(ranks, now)], axis=1), now
            to_send = float(reduce(volumes[sent]))
        busy = at < depth
        pace = 1.0 if to_send is None else slow
        weight = heavy if busy.any() else 1.0
        ahead = left[every[busy], at[busy]] * pace
        until = min(ahead.min(initial=np.inf), np.inf if to_send is None else to_send * weight)
        left[every[busy], at[busy]] = np.where(ahead <= until, 0.0, (ahead - until) / pace)
        now += until
        finished = every[busy][ahead <= until]
        layers[finished, at[finished], 1] = now
        at[finished] += 1
        going = finished[at[finished] < depth]
        layers[going, at[going], 0] = now
        if to_send is not None:
            to_send = None if to_send * weight <= until else to_send - until / weight
            if to_send is None:
                buckets[sent, 1] = now
                sent += 1
    slowdown = float((layers[:, -1, 1] - work.sum(axis=1)).mean())
    return Backward(layers, waits, buckets, slowdown)
