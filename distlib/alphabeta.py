"""Messages on a link: Principle 11, the α–β law, T(n) = α + n/β, the forms it grows into, and their fits.

α is the start-up latency in seconds, β the bandwidth in bytes per second, one way, n the message size in bytes.
Much of the literature writes β for seconds per byte; here it is a bandwidth.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from distlib.domain import COUNT, FRACTION, NONNEGATIVE, POSITIVE, Real, at_least, check, domain

# One message


@domain(alpha=NONNEGATIVE, beta=POSITIVE)
@dataclass(frozen=True)
class Link:
    """One direction of one link: latency `alpha` in s, bandwidth `beta` in byte/s."""

    alpha: Real
    beta: Real


@domain(n=NONNEGATIVE)
def transfer_time(n: Real, link: Link) -> Real:
    """T(n) = α + n/β: the time of one message of n bytes, in s."""
    return link.alpha + n / link.beta


def half_bandwidth_size(link: Link) -> Real:
    """n½ = αβ: the message, in bytes, that reaches half of β."""
    return link.alpha * link.beta


@domain(n=POSITIVE)
def effective_bandwidth(n: Real, link: Link) -> Real:
    """n/T(n) = β·n/(n + n½), in byte/s: what a message of n bytes gets from the link."""
    return link.beta * n / (n + half_bandwidth_size(link))


@domain(fraction=FRACTION)
def size_for_fraction(fraction: Real, link: Link) -> Real:
    """n = n½·f/(1 − f): the message, in bytes, that reaches the fraction f of β; infinite for f = 1."""
    with np.errstate(divide="ignore"):
        return half_bandwidth_size(link) * np.divide(fraction, 1 - np.asarray(fraction, float))


# Many messages


@domain(n=NONNEGATIVE, messages=COUNT)
def split_time(n: Real, messages: Real, link: Link) -> Real:
    """T = kα + n/β: n bytes in k messages, one after another, in s. Fusing them into one saves (k − 1)α."""
    return messages * link.alpha + n / link.beta


@domain(n=NONNEGATIVE, ratio=at_least(1), codec=POSITIVE)
def compressed_time(n: Real, ratio: Real, codec: Real, link: Link) -> Real:
    """T = n/g + α + n/(rβ): n bytes compressed r times, in s; the link's β stays as it is.

    g (`codec`, byte/s of input) is the rate of packing and unpacking together, done before and after the message.
    It pays if and only if g > β·r/(r − 1), whatever n.
    """
    return n / codec + transfer_time(n / ratio, link)


@domain(n=NONNEGATIVE, buckets=COUNT, compute=NONNEGATIVE)
def exposed_time(n: Real, buckets: Real, compute: Real, link: Link) -> Real:
    """T = max(α + n/(kβ), T_b/k + kα + n/β − T_b): what k equal buckets leave uncovered, in s.

    A computation of T_b seconds (`compute`) yields n bytes at a steady rate; bucket i of k is sent when it is whole,
    at i·T_b/k, and when the link is free. The first term is the last bucket, which nothing can cover; the second
    is a link that is busy from the first bucket on.
    """
    bucket = transfer_time(n / buckets, link)
    return np.maximum(bucket, compute / buckets + buckets * bucket - compute)


@domain(n=NONNEGATIVE, compute=NONNEGATIVE)
def best_bucket_count(n: Real, compute: Real, link: Link) -> Real:
    """k = max(1, √(T_b/α), (T_b − n/β)/α): the buckets that leave least of `exposed_time` uncovered, a real number.

    Below (T_b − n/β)/α the link keeps up and the last bucket rules; above it each further bucket costs an α.
    """
    alpha = check("link.alpha", link.alpha, POSITIVE)
    return np.maximum(1.0, np.maximum(np.sqrt(compute / alpha), (compute - n / link.beta) / alpha))


# One message through stages, in chunks


@domain(n=NONNEGATIVE, stages=COUNT, chunks=COUNT)
def pipeline_time(n: Real, stages: Real, chunks: Real, link: Link) -> Real:
    """T = (d − 1 + k)(α + n/(kβ)): n bytes in k chunks through d links in a row, in s.

    All links alike; a stage passes a chunk on when it has the whole of it, and receives the next one meanwhile.
    """
    return (stages - 1 + chunks) * transfer_time(n / chunks, link)


@domain(n=NONNEGATIVE, stages=COUNT)
def best_chunk_count(n: Real, stages: Real, link: Link) -> Real:
    """k = max(1, √((d − 1)·n/(αβ))): the chunks with which `pipeline_time` is least, a real number."""
    alpha = check("link.alpha", link.alpha, POSITIVE)
    return np.maximum(1.0, np.sqrt((stages - 1) * n / (alpha * link.beta)))


@domain(n=NONNEGATIVE)
def chunked_time(n: Real, link: Link) -> Real:
    """T(n) = (√α + √(n/β))² = α + n/β + 2√(αn/β): n bytes through stages in the best chunks, in s.

    `pipeline_time` at k = √((d − 1)n/(aβ)) with α = (d − 1)a, the time to fill the stages: a bound for whole k.
    """
    return (np.sqrt(link.alpha) + np.sqrt(n / link.beta)) ** 2


# What a library adds


@domain(n=NONNEGATIVE)
def two_protocol_time(n: Real, eager: Link, bulk: Link) -> Real:
    """T(n) = min(α₁ + n/β₁, α₂ + n/β₂): a library that has two ways to send and takes the faster, in s."""
    return np.minimum(transfer_time(n, eager), transfer_time(n, bulk))


@domain(n=NONNEGATIVE, launch=NONNEGATIVE)
def launched_time(n: Real, launch: Real, link: Link) -> Real:
    """T(n) = α₀ + (√α + √(n/β))²: a start of α₀ (`launch`), then the stages in the best chunks, in s."""
    return launch + chunked_time(n, link)


@domain(n=at_least(1), growth=NONNEGATIVE)
def growing_time(n: Real, growth: Real, link: Link) -> Real:
    """T(n) = max(α + δ·log₂ n, (√α + √(n/β))²): a start that grows by δ (`growth`) a doubling, or the stages, in s.

    n ≥ 1 byte, where the start is α. Whichever takes longer rules.
    """
    return np.maximum(link.alpha + growth * np.log2(n), chunked_time(n, link))


# Fits


@dataclass(frozen=True)
class Law:
    """A time as a function of n and of positive constants, with the points from which their fit starts.

    `start(latency, bandwidth)` gives the starting points, from the least time and the largest n/T of the data.
    """

    formula: str
    constants: tuple[str, ...]
    time: Callable[..., Real]
    start: Callable[[float, float], list[tuple[float, ...]]]


LINE = Law("α + n/β", ("α", "β"), lambda n, a, b: transfer_time(n, Link(a, b)), lambda a, b: [(a, b)])
TWO_PROTOCOLS = Law(
    "min(α₁ + n/β₁, α₂ + n/β₂)",
    ("α₁", "β₁", "α₂", "β₂"),
    lambda n, a1, b1, a2, b2: two_protocol_time(n, Link(a1, b1), Link(a2, b2)),
    lambda a, b: [(a, b / 2, 1.5 * a, b), (a, b / 10, 3 * a, b), (a, b / 30, 10 * a, b)],
)
CHUNKED = Law("(√α + √(n/β))²", ("α", "β"), lambda n, a, b: chunked_time(n, Link(a, b)), lambda a, b: [(a, b)])
LAUNCHED = Law(
    "α₀ + (√α + √(n/β))²",
    ("α₀", "α", "β"),
    lambda n, a0, a, b: launched_time(n, a0, Link(a, b)),
    lambda a, b: [(a / 2, a / 2, b), (a / 20, a, b), (a, a / 20, b)],
)
GROWING = Law(
    "max(α + δ·log₂ n, (√α + √(n/β))²)",
    ("α", "δ", "β"),
    lambda n, a, d, b: growing_time(n, d, Link(a, b)),
    lambda a, b: [(a, a / 30, b), (a, a / 300, b)],
)


@dataclass(frozen=True, eq=False)
class Fit:
    """A law with the constants that fit measured times: `constants[i]` is `law.constants[i]`, in s or byte/s."""

    law: Law
    constants: np.ndarray
    n: np.ndarray  # byte
    time: np.ndarray  # s, measured

    def predict(self, n: Real) -> Real:
        """The law's time for n bytes, in s."""
        return self.law.time(n, *self.constants)

    @property
    def residuals(self) -> np.ndarray:
        """Predicted over measured, less 1, at each size of the fit."""
        return self.predict(self.n) / self.time - 1


def _starts(law: Law, n: np.ndarray, time: np.ndarray) -> np.ndarray:
    return np.array(law.start(time.min(), (n / time).max()))


def _solve(law: Law, n: np.ndarray, time: np.ndarray, starts: list[np.ndarray]) -> np.ndarray:
    from scipy.optimize import least_squares

    def misses(logs: np.ndarray) -> np.ndarray:
        return np.log(law.time(n, *np.exp(logs)) / time)

    def slopes(logs: np.ndarray, step: float = 1e-7) -> np.ndarray:
        points = logs + step * np.vstack([np.zeros(logs.size), np.eye(logs.size)])
        values = np.log(law.time(n, *np.exp(points).T[:, :, np.newaxis]))
        return (values[1:] - values[0]).T / step

    solutions = [least_squares(misses, start, jac=slopes, loss="soft_l1", f_scale=0.02) for start in starts]
    return np.exp(min(solutions, key=lambda solution: solution.cost).x)


@domain(n=POSITIVE, time=POSITIVE)
def fit(law: Law, n: Real, time: Real) -> Fit:
    """The constants with the least Σ ρ(ln(T(n)/time)): each size counts alike, whether it took 10 µs or 60 ms.

    ρ is square below 2 % of error and straight above (SciPy's soft_l1), so that a stray time does not bend the law.
    n in bytes and time in s are vectors of one length, with at least one size more than the law has constants.
    """
    n, time = np.asarray(n, float), np.asarray(time, float)
    if n.ndim != 1 or n.shape != time.shape or len(n) <= len(law.constants):
        raise ValueError(
            f"n and time must be vectors of one length, more than {len(law.constants)} for {law.formula}, "
            f"got shapes {n.shape} and {time.shape}"
        )
    return Fit(law, _solve(law, n, time, [np.log(start) for start in _starts(law, n, time)]), n, time)


def held_out(fitted: Fit, held: Real) -> np.ndarray:
    """Predicted over measured, less 1, at the sizes `held` (indices or a mask), from a fit to all other sizes.

    The refit sees none of the times that it predicts. It starts at the constants of `fitted`, those that had vanished
    raised to a hundredth of the law's first guess, so that they may grow again.
    """
    rest = np.ones(len(fitted.n), bool)
    rest[held] = False
    n, time = fitted.n[rest], fitted.time[rest]
    start = np.log(np.maximum(fitted.constants, 0.01 * _starts(fitted.law, n, time)[0]))
    constants = _solve(fitted.law, n, time, [start])
    return fitted.law.time(fitted.n[held], *constants) / fitted.time[held] - 1


def leave_one_out(fitted: Fit) -> np.ndarray:
    """`held_out` of each size in its turn."""
    return np.array([held_out(fitted, i) for i in range(len(fitted.n))])


def intervals(fitted: Fit, level: float = 0.95, resamples: int = 200, seed: int = 11) -> np.ndarray:
    """Bootstrap intervals of the constants, shape (constants, 2): refits to sizes drawn anew with replacement.

    They say how far the constants hang on the choice of sizes. They cannot say that the law is right: see `residuals`.
    """
    random = np.random.default_rng(seed)
    start = [np.log(fitted.constants)]
    draws = random.integers(len(fitted.n), size=(resamples, len(fitted.n)))
    refits = [_solve(fitted.law, fitted.n[draw], fitted.time[draw], start) for draw in draws]
    return np.quantile(refits, [(1 - level) / 2, (1 + level) / 2], axis=0).T
