"""Principle 10: the time of a step, T_step(N) = T_compute/N + T_comm(N) + T_sync(N) − T_overlap.

T_compute (`compute`) is the computation of a step summed over the N workers, T_comm its communication, T_sync its
waiting, and T_overlap the time for which a worker computes while it also communicates or waits; all in s. T_compute
and T_comm are the times as they are while running: what they lose to each other by contention is in them.

*Strong scaling* shares one batch among more workers, so T_compute stays; *weak scaling* gives each worker the same
work, so T_compute/N stays. A speedup and an efficiency always name their baseline. N (`ranks`) may be any real number
≥ 1 here: the laws are curves.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from distlib.domain import COUNT, FRACTION, NONNEGATIVE, POSITIVE, Domain, Real, at_least, check, domain

RANKS = at_least(1)
ABOVE_ONE = Domain("a finite number > 1", lambda x: (x > 1) & (x < np.inf))

# One step


@domain(compute=NONNEGATIVE, ranks=RANKS, comm=NONNEGATIVE, sync=NONNEGATIVE, overlap=NONNEGATIVE)
@dataclass(frozen=True)
class Step:
    """The terms of one step, in s: `compute` summed over `ranks` workers, the others as each worker meets them.

    0 ≤ T_overlap ≤ min(T_compute/N, T_comm + T_sync), to a rounding error of 10⁻⁹: more raises ValueError. So
    `total` is never below the larger of T_compute/N and T_comm + T_sync, nor above their sum.
    """

    compute: Real
    ranks: Real
    comm: Real
    sync: Real = 0.0
    overlap: Real = 0.0

    def __post_init__(self) -> None:
        limit = np.minimum(self.share, self.comm + self.sync)
        room = Domain("at most min(T_compute/N, T_comm + T_sync)", lambda excess: excess <= 1e-9 * limit)
        check("overlap beyond its bound", self.overlap - limit, room)

    @property
    def share(self) -> Real:
        """T_compute/N: the computation of one worker, in s."""
        return np.divide(self.compute, self.ranks)

    @property
    def total(self) -> Real:
        """T_step = T_compute/N + T_comm + T_sync − T_overlap, in s."""
        return self.share + self.comm + self.sync - self.overlap

    @property
    def exposed(self) -> Real:
        """T_comm + T_sync − T_overlap: what the step takes beyond its computation, in s."""
        return self.comm + self.sync - self.overlap


@domain(fraction=FRACTION)
def partly_overlapped(fraction: Real, compute: Real, ranks: Real, comm: Real, sync: Real = 0.0) -> Step:
    """T_overlap = f·min(T_compute/N, T_comm + T_sync): the step that hides the fraction f of what could be hidden."""
    return Step(compute, ranks, comm, sync, fraction * np.minimum(np.divide(compute, ranks), np.add(comm, sync)))


# Speedup and efficiency, against a baseline that is named


@domain(time=POSITIVE, baseline_time=POSITIVE)
def strong_speedup(time: Real, *, baseline_time: Real) -> Real:
    """T(N₀)/T(N): one batch, shared among more workers."""
    return np.divide(baseline_time, time)


@domain(time=POSITIVE, baseline_time=POSITIVE)
def weak_efficiency(time: Real, *, baseline_time: Real) -> Real:
    """T(N₀)/T(N): each worker has the same work at N as at N₀."""
    return np.divide(baseline_time, time)


@domain(throughput=POSITIVE, ranks=RANKS, baseline_throughput=POSITIVE, baseline_ranks=RANKS)
def throughput_efficiency(
    throughput: Real, ranks: Real, *, baseline_throughput: Real, baseline_ranks: Real
) -> Real:
    """(x/N)/(x₀/N₀): samples a second and worker over the baseline's; x counts those of all workers."""
    return np.divide(throughput * baseline_ranks, baseline_throughput * ranks)


@domain(serial=FRACTION, ranks=RANKS)
def amdahl_speedup(serial: Real, ranks: Real) -> Real:
    """1/(f + (1 − f)/N): strong scaling when the fraction f of the baseline at N₀ = 1 does not divide."""
    return 1 / (serial + (1 - serial) / ranks)


@domain(serial=FRACTION, ranks=RANKS)
def gustafson_speedup(serial: Real, ranks: Real) -> Real:
    """f + (1 − f)·N: work done over that of one worker, when f of the *scaled* run does not divide and the rest grows.

    Weak scaling. The f of Amdahl is a fraction of the run on one worker, this one of the run on N.
    """
    return serial + (1 - serial) * ranks


# Strong scaling: beyond N* a further worker slows the step


@domain(ranks=RANKS, compute=POSITIVE, fixed=NONNEGATIVE, growth=NONNEGATIVE)
def linear_time(ranks: Real, compute: Real, fixed: Real, growth: Real) -> Real:
    """T = T_compute/N + f + g·N: overhead that grows by g with each worker, as a ring's start does; none hidden."""
    return compute / ranks + fixed + growth * ranks


@domain(compute=POSITIVE, growth=POSITIVE)
def linear_best_ranks(compute: Real, growth: Real) -> Real:
    """N* = max(1, √(T_compute/g)): where `linear_time` is least."""
    return np.maximum(1.0, np.sqrt(np.divide(compute, growth)))


@domain(compute=POSITIVE, fixed=NONNEGATIVE, growth=NONNEGATIVE)
def hidden_best_ranks(compute: Real, fixed: Real, growth: Real) -> Real:
    """N* = max(1, 2·T_compute/(f + √(f² + 4g·T_compute))): where max(T_compute/N, f + g·N) is least.

    That is `linear_time` with as much hidden as the bound allows. Up to there everything can hide; beyond,
    computation hides instead. T_compute/f when g = 0.
    """
    check("fixed + growth", np.add(fixed, growth), POSITIVE)
    return np.maximum(1.0, 2 * compute / (fixed + np.sqrt(fixed**2 + 4 * growth * compute)))


# Waiting: a barrier ends when the slowest of N is there, so T_sync = E[max of N] − mean


@domain(ranks=RANKS, deviation=NONNEGATIVE)
def normal_wait(ranks: Real, deviation: Real) -> Real:
    """T_sync = σ·∫₀^∞ (1 − Φ(x)^N − Φ(−x)^N) dx: N normal times of standard deviation σ, independent, in s.

    By Gauss–Legendre quadrature, to 10⁻⁹.
    """
    from scipy.special import log_ndtr

    nodes, weights = np.polynomial.legendre.leggauss(300)
    count = np.asarray(ranks, float)[..., np.newaxis]
    half = (np.sqrt(2 * np.log(count)) + 9) / 2
    x = half * (nodes + 1)
    beyond = -np.expm1(count * log_ndtr(x)) - np.exp(count * log_ndtr(-x))
    return (deviation * np.sum(half * weights * beyond, axis=-1))[()]


@domain(ranks=RANKS, mean=NONNEGATIVE)
def exponential_wait(ranks: Real, mean: Real) -> Real:
    """T_sync = μ·(H_N − 1), H_N = 1 + 1/2 + … + 1/N: exponential delays of mean μ on top of a fixed time, in s."""
    from scipy.special import digamma

    return mean * (digamma(np.add(ranks, 1.0)) + np.euler_gamma - 1)


@domain(ranks=RANKS, mean=NONNEGATIVE, tail=ABOVE_ONE)
def pareto_wait(ranks: Real, mean: Real, tail: Real) -> Real:
    """T_sync = μ·(a − 1)·(Γ(N + 1)·Γ(1 − 1/a)/Γ(N + 1 − 1/a) − a/(a − 1)): heavy-tailed delays, in s.

    A delay exceeds x with probability (1 + x/(μ(a − 1)))^(−a): Lomax's law of mean μ and tail index a.
    """
    from scipy.special import gammaln

    part = 1 / np.asarray(tail, float)
    count = np.asarray(ranks, float)
    largest = np.exp(gammaln(count + 1) + gammaln(1 - part) - gammaln(count + 1 - part))
    return (mean * ((tail - 1) * largest - tail))[()]


@domain(ranks=RANKS, share=NONNEGATIVE, slowdown=at_least(1))
def slow_node_wait(ranks: Real, share: Real, slowdown: Real) -> Real:
    """T_sync = (s − 1)·t·(1 − 1/N): one of N alike workers takes s·t where the others take t (`share`), in s.

    The mean over workers; the others wait (s − 1)·t each. The step grows by (s − 1)·t whatever N.
    """
    return (slowdown - 1) * share * (1 - np.divide(1.0, ranks))


#: Draws the times, or delays, of (steps, ranks) alike workers, in s.
Jitter = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def normal_jitter(deviation: float) -> Jitter:
    """Normal times of mean 0: what matters to a barrier is the spread."""
    return lambda rng, shape: deviation * rng.standard_normal(shape)


def exponential_jitter(mean: float) -> Jitter:
    """Exponential delays."""
    return lambda rng, shape: mean * rng.standard_exponential(shape)


def pareto_jitter(mean: float, tail: float) -> Jitter:
    """Heavy-tailed delays: the law of `pareto_wait`."""
    return lambda rng, shape: mean * (tail - 1) * rng.pareto(tail, shape)


@domain(ranks=COUNT, steps=COUNT)
def simulated_waits(jitter: Jitter, ranks: int, steps: int, seed: int) -> np.ndarray:
    """max − mean over `ranks` workers in each of `steps` steps, in s: its mean is T_sync."""
    rng, waits = np.random.default_rng(seed), []
    block = max(1, 2**20 // ranks)
    for start in range(0, steps, block):
        times = jitter(rng, (min(block, steps - start), ranks))
        waits.append(times.max(axis=1) - times.mean(axis=1))
    return np.concatenate(waits)


# Accumulation: K micro-steps, one reduction


@domain(micro=NONNEGATIVE, comm=NONNEGATIVE, accumulation=COUNT)
def accumulated_time(micro: Real, comm: Real, accumulation: Real) -> Real:
    """T = K·T_micro + T_comm: gradients of K micro-steps are added up and reduced once, in s; nothing hidden."""
    return accumulation * micro + comm


@domain(one=POSITIVE, many=POSITIVE, accumulation=at_least(2))
def comm_share_if_reduced_once(one: Real, many: Real, accumulation: Real) -> Real:
    """(K − T_K/T_1)/(K − 1): the share of communication in T_1, if the step of K micro-steps reduces once.

    From two timings, in s: `one` for K = 1 and `many` for K. A share far below what the network can do says that it
    does not reduce once.
    """
    return (accumulation - np.divide(many, one)) / (accumulation - 1)


@domain(one=POSITIVE, many=POSITIVE, accumulation=at_least(2), share=POSITIVE)
def reductions_per_step(one: Real, many: Real, accumulation: Real, share: Real) -> Real:
    """K − (K − T_K/T_1)/s: how often a step of K micro-steps reduces, when T_comm = s·T_1.

    1 if accumulation works, K if it reduces at every micro-step.
    """
    return accumulation - (accumulation - np.divide(many, one)) / share


# A larger batch


@domain(batch=POSITIVE, steps_min=POSITIVE, critical=POSITIVE)
def steps_to_target(batch: Real, steps_min: Real, critical: Real) -> Real:
    """S = S_min·(1 + B_crit/B): steps to a given loss with batch B, each batch with its own best learning rate.

    With E = S·B samples and E_min = B_crit·S_min it is (S/S_min − 1)(E/E_min − 1) = 1 (McCandlish et al. 2018).
    """
    return steps_min * (1 + np.divide(critical, batch))


def samples_to_target(batch: Real, steps_min: Real, critical: Real) -> Real:
    """E = S·B = E_min·(1 + B/B_crit): samples to the same loss. At B = B_crit both S and E are twice their least."""
    return batch * steps_to_target(batch, steps_min, critical)


@domain(batch=POSITIVE, steps=POSITIVE)
def fit_critical_batch(batch: Real, steps: Real) -> tuple[float, float]:
    """(S_min, B_crit) with the least squares of relative error of `steps_to_target`; a line in 1/B."""
    batch, steps = np.asarray(batch, float), np.asarray(steps, float)
    design = np.stack([1 / steps, 1 / (batch * steps)], axis=1)
    (steps_min, samples_min), *_ = np.linalg.lstsq(design, np.ones(len(steps)), rcond=None)
    return float(steps_min), float(samples_min / steps_min)


# What step times tell of the terms


@dataclass(frozen=True)
class Term:
    """A part of the step time that is c·of(N), with c to be found, in s."""

    name: str
    of: Callable[[Real], Real]


WORK = Term("1/N", lambda ranks: 1 / ranks)
FIXED = Term("constant", np.ones_like)
DOUBLINGS = Term("log₂ N", np.log2)


@dataclass(frozen=True, eq=False)
class TermFit:
    """Terms with the constants that fit step times; `lower` and `upper` are the ends of their 95 % intervals, in s."""

    terms: tuple[Term, ...]
    constants: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    correlation: np.ndarray  # of the constants with one another: near ±1 two of them cannot be told apart
    condition: float  # of the design with its columns scaled to one length: 1 at best
    residuals: np.ndarray  # fitted over measured, less 1

    def predict(self, ranks: Real) -> Real:
        """T(N) in s."""
        return sum(c * term.of(np.asarray(ranks, float)) for c, term in zip(self.constants, self.terms, strict=True))


@domain(ranks=RANKS, time=POSITIVE)
def fit_terms(ranks: Real, time: Real, terms: tuple[Term, ...]) -> TermFit:
    """The constants with the least Σ (T(N)/time − 1)², and Student's intervals, errors alike and independent.

    Strong scaling: one batch at several N, more of them than terms. A constant may come out negative, and its interval
    may hold 0: then the times do not show that the term is there.
    """
    from scipy.stats import t

    ranks, time = np.asarray(ranks, float), np.asarray(time, float)
    if time.ndim != 1 or ranks.shape != time.shape or len(time) <= len(terms):
        raise ValueError(
            f"ranks and time must be vectors of one length, more than {len(terms)}, "
            f"got shapes {ranks.shape} and {time.shape}"
        )
    free = len(time) - len(terms)
    design = np.stack([term.of(ranks) / time for term in terms], axis=1)
    length = np.linalg.norm(design, axis=0)
    left, values, right = np.linalg.svd(design / length, full_matrices=False)
    constants = right.T @ (left.sum(axis=0) / values) / length
    residuals = design @ constants - 1
    inverse = (right.T / values**2) @ right
    spread = np.sqrt(np.diag(inverse))
    reach = t.ppf(0.975, free) * np.sqrt(residuals @ residuals / free) * spread / length
    return TermFit(terms, constants, constants - reach, constants + reach, inverse / np.outer(spread, spread),
                   float(values[0] / values[-1]), residuals)  # fmt: skip
