"""Small real trainings: synchronous, asynchronous, local and compressed SGD, with a clock that counts who waits.

N workers share a linear regression: worker i has inputs Xᵢ (rows × d) and targets Yᵢ (rows × c), and its own best
weights differ from the common ones. The loss is ½·mean‖XW − Y‖² a row over all workers, less its minimum. The
arithmetic is real; only the clock is a model: a gradient takes its worker a random time, an exchange a fixed one.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from distlib.domain import COUNT, NONNEGATIVE, POSITIVE, domain

# The problem and the clock


@dataclass(frozen=True, eq=False)
class Problem:
    """Shards of a regression: `inputs` (N, rows, d), `targets` (N, rows, c)."""

    inputs: np.ndarray
    targets: np.ndarray

    @property
    def workers(self) -> int:
        """N."""
        return len(self.inputs)

    @property
    def shape(self) -> tuple[int, int]:
        """(d, c), the shape of the weights."""
        return self.inputs.shape[2], self.targets.shape[2]

    @cached_property
    def best(self) -> np.ndarray:
        """The weights of the least loss, by the normal equations."""
        x, y = self.inputs.reshape(-1, self.shape[0]), self.targets.reshape(-1, self.shape[1])
        return np.linalg.solve(x.T @ x, x.T @ y)

    def loss(self, weights: np.ndarray) -> float:
        """½·mean‖X(W − W*)‖² a row: the loss less its minimum, which the normal equations make equal to this."""
        return float(0.5 * np.mean(np.sum((self.inputs @ (weights - self.best)) ** 2, axis=2)))

    def gradients(self, weights: np.ndarray, rng: np.random.Generator, batch: int) -> np.ndarray:
        """Xᵀ(XW − Y)/batch on `batch` random rows of each worker; weights (d, c) or (N, d, c), gradients (N, d, c)."""
        rows = rng.integers(self.inputs.shape[1], size=(self.workers, batch, 1))
        x, y = np.take_along_axis(self.inputs, rows, 1), np.take_along_axis(self.targets, rows, 1)
        return x.swapaxes(1, 2) @ (x @ weights - y) / batch

    def gradient(self, weights: np.ndarray, worker: int, rng: np.random.Generator, batch: int) -> np.ndarray:
        """The same for one worker, (d, c)."""
        rows = rng.integers(self.inputs.shape[1], size=batch)
        x, y = self.inputs[worker, rows], self.targets[worker, rows]
        return x.T @ (x @ weights - y) / batch


def regression(
    workers: int = 16, rows: int = 64, d: int = 24, c: int = 16, unlike: float = 0.5, noise: float = 0.1, seed: int = 13
) -> Problem:
    """A problem whose inputs vary most along the first axes (scale 1 to ⅓) and whose workers differ by `unlike`."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((workers, rows, d)) * np.geomspace(1, 1 / 3, d)
    own = rng.standard_normal((d, c)) + unlike * rng.standard_normal((workers, d, c))
    return Problem(x, x @ own + noise * rng.standard_normal((workers, rows, c)))


@domain(compute=POSITIVE, jitter=NONNEGATIVE, comm=NONNEGATIVE, slow=POSITIVE)
@dataclass(frozen=True)
class Clock:
    """A gradient takes `compute`·(1 + jitter·E) s, E exponential of mean 1; worker 0 `slow` times as long.

    An exchange (an all-reduce, or a push and a pull) takes `comm` s.
    """

    compute: float = 1.0
    jitter: float = 0.0
    comm: float = 0.0
    slow: float = 1.0

    def draw(self, rng: np.random.Generator, workers: int) -> np.ndarray:
        """One gradient's time on each worker, in s."""
        return self.compute * (1 + self.jitter * rng.exponential(size=workers)) * self._factor(np.arange(workers))

    def draw_one(self, rng: np.random.Generator, worker: int) -> float:
        """One gradient's time on one worker, in s."""
        return float(self.compute * (1 + self.jitter * rng.exponential()) * self._factor(worker))

    def _factor(self, worker: int | np.ndarray) -> np.ndarray:
        return np.where(np.equal(worker, 0), self.slow, 1.0)


@dataclass(frozen=True, eq=False)
class Training:
    """A training seen at its synchronisations (asynchronous: at each N-th update): arrays that start at 0.

    computing + waiting + communicating = N·time, in worker-seconds, at every entry.
    """

    time: np.ndarray  # s
    loss: np.ndarray
    gradients: np.ndarray  # finished, of all workers
    computing: np.ndarray
    waiting: np.ndarray
    communicating: np.ndarray

    def reached(self, target: float) -> int:
        """The first entry whose loss is at most `target`; ValueError if none is."""
        hits = np.flatnonzero(self.loss <= target)
        if not hits.size:
            raise ValueError(f"target must be at least the least loss {self.loss.min():.3g}, got {target}")
        return int(hits[0])


# The trainings

#: From what each worker would send, (N, d, c), what each does send.
Compressor = Callable[[np.ndarray], np.ndarray]


def _training(rows: Sequence[tuple[float, ...]]) -> Training:
    return Training(*np.array(rows).T)


def synchronous(problem: Problem, clock: Clock, rate: float, steps: int, batch: int = 4, seed: int = 0) -> Training:
    """W ← W − rate·mean(gradients): every step waits for the slowest worker, then exchanges."""
    return local(problem, clock, rate, steps, 1, batch, seed)


@domain(rate=POSITIVE, rounds=COUNT, local_steps=COUNT, batch=COUNT)
def local(
    problem: Problem, clock: Clock, rate: float, rounds: int, local_steps: int, batch: int = 4, seed: int = 0
) -> Training:
    """Each worker makes H steps of its own (`local_steps`), then all take the mean of their weights; H = 1 is SGD."""
    data, times = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    common, workers = np.zeros(problem.shape), problem.workers
    rows = [(0.0, problem.loss(common), 0.0, 0.0, 0.0, 0.0)]
    for _ in range(rounds):
        own = np.broadcast_to(common, (workers, *problem.shape))
        busy = np.zeros(workers)
        for _ in range(local_steps):
            own = own - rate * problem.gradients(own, data, batch)
            busy += clock.draw(times, workers)
        common = own.mean(axis=0)
        time, _, count, computing, waiting, communicating = rows[-1]
        rows.append((
            time + busy.max() + clock.comm, problem.loss(common), count + workers * local_steps,
            computing + busy.sum(), waiting + (busy.max() - busy).sum(), communicating + workers * clock.comm,
        ))  # fmt: skip
    return _training(rows)


@domain(rate=POSITIVE, updates=COUNT, batch=COUNT)
def asynchronous(
    problem: Problem, clock: Clock, rate: float, updates: int, batch: int = 4, seed: int = 0
) -> tuple[Training, np.ndarray]:
    """W ← W − (rate/N)·gradient as soon as a worker has one; it then takes the new weights. Nobody waits.

    Events in order of time. Also returns the staleness of each update: how many others came since its weights were
    read. The exchange is counted when the gradient arrives, so a gradient on its way at the end is not in the arrays.
    """
    data, times = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    weights, workers = np.zeros(problem.shape), problem.workers
    read = [(weights, 0)] * workers
    arrivals = [(clock.draw_one(times, w) + clock.comm, w) for w in range(workers)]
    heapq.heapify(arrivals)
    rows, stale = [(0.0, problem.loss(weights), 0.0, 0.0, 0.0, 0.0)], np.zeros(updates, int)
    for update in range(1, updates + 1):
        now, worker = heapq.heappop(arrivals)
        seen, version = read[worker]
        weights = weights - rate / workers * problem.gradient(seen, worker, data, batch)
        stale[update - 1] = update - 1 - version
        read[worker] = weights, update
        heapq.heappush(arrivals, (now + clock.draw_one(times, worker) + clock.comm, worker))
        if update % workers == 0:
            exchanging = clock.comm * update
            rows.append((now, problem.loss(weights), update, workers * now - exchanging, 0.0, exchanging))
    return _training(rows), stale


@domain(rate=POSITIVE, steps=COUNT, batch=COUNT)
def compressed(
    problem: Problem, clock: Clock, rate: float, steps: int, compress: Compressor, feedback: bool, batch: int = 4,
    seed: int = 0,
) -> Training:  # fmt: skip
    """Synchronous, but each worker sends compress(gradient + e); e is what was not sent, kept if `feedback`, else 0.

    `clock.comm` is the time of the compressed exchange.
    """
    data, times = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    weights, workers = np.zeros(problem.shape), problem.workers
    kept = np.zeros((workers, *problem.shape))
    rows = [(0.0, problem.loss(weights), 0.0, 0.0, 0.0, 0.0)]
    for _ in range(steps):
        whole = problem.gradients(weights, data, batch) + kept
        sent = compress(whole)
        kept = (whole - sent) * feedback
        weights = weights - rate * sent.mean(axis=0)
        busy = clock.draw(times, workers)
        time, _, count, computing, waiting, communicating = rows[-1]
        rows.append((
            time + busy.max() + clock.comm, problem.loss(weights), count + workers,
            computing + busy.sum(), waiting + (busy.max() - busy).sum(), communicating + workers * clock.comm,
        ))  # fmt: skip
    return _training(rows)


# Compressors


@domain(k=COUNT)
def top_k(k: int) -> Compressor:
    """Each worker sends the k entries of largest magnitude, with their places; the others count as 0."""

    def compress(whole: np.ndarray) -> np.ndarray:
        flat = whole.reshape(len(whole), -1)
        sent = np.zeros_like(flat)
        places = np.argsort(-np.abs(flat), axis=1)[:, :k]
        np.put_along_axis(sent, places, np.take_along_axis(flat, places, 1), 1)
        return sent.reshape(whole.shape)

    return compress


@domain(rank=COUNT)
def low_rank(rank: int, seed: int = 0) -> Compressor:
    """All send one matrix P·Qᵀ of rank r: P = orth(M·Q), then Q = Mᵀ·P, M the mean; as PowerSGD, Q kept for the next.

    M·Q and Mᵀ·P are linear in M, so an all-reduce of the factors gives them, r·(d + c) numbers a step.
    """
    last: list[np.ndarray] = []

    def compress(whole: np.ndarray) -> np.ndarray:
        mean = whole.mean(axis=0)
        q = last.pop() if last else np.random.default_rng(seed).standard_normal((mean.shape[1], rank))
        p = np.linalg.qr(mean @ q)[0]
        last.append(mean.T @ p)
        return np.broadcast_to(p @ last[0].T, whole.shape)

    return compress


@domain(d=COUNT, c=COUNT, k=COUNT)
def top_k_ratio(d: int, c: int, k: int) -> float:
    """d·c/(2k): numbers of the gradient over numbers sent, a place counted as a number."""
    return d * c / (2 * k)


@domain(d=COUNT, c=COUNT, rank=COUNT)
def low_rank_ratio(d: int, c: int, rank: int) -> float:
    """d·c/(r·(d + c)): numbers of the gradient over numbers sent."""
    return d * c / (rank * (d + c))
