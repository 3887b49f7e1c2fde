"""Principle 12: how often to write a checkpoint, and what failures cost: τ_opt = √(2·T_write·MTBF).

τ (`interval`) is the useful work between two writes, T_write (`write`) the time for which a write stops the job, and
R (`restart`) the time from a failure to the first new step; replay of lost work is apart. All are in s. `mtbf` is
that of the whole system; that of one part is called `part_mtbf`. Two denominators occur, and each function says which:
an *overhead* is per useful second (wall-clock/useful − 1), a *waste* is a share of wall-clock (1 − useful/wall-clock),
and goodput is 1 − waste. The exact forms let a failure strike at any moment, in a write and in a restart too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import comb, gamma

import numpy as np

from distlib.domain import COUNT, FRACTION, NONNEGATIVE, POSITIVE, Domain, Real, check, domain, whole
from distlib.units import hour

BELOW_ONE = Domain("a number ≥ 0 and < 1", lambda x: (x >= 0) & (x < 1))
INSIDE = Domain("a number > 0 and < 1", lambda x: (x > 0) & (x < 1))

# How often a system fails.


@domain(part_mtbf=POSITIVE, ranks=COUNT)
def system_mtbf(part_mtbf: Real, ranks: Real) -> Real:
    """MTBF = MTBF_part/N: N alike, independent parts, any of which stops the job."""
    return part_mtbf / ranks


@domain(part_mtbf=POSITIVE, counts=COUNT)
def combined_mtbf(part_mtbf: Real, counts: Real) -> Real:
    """MTBF = 1/Σᵢ(Nᵢ/MTBFᵢ): Nᵢ parts of class i; the classes lie along the last axis."""
    return 1 / np.sum(np.divide(counts, part_mtbf), axis=-1)


@domain(fit=POSITIVE)
def mtbf_from_fit(fit: Real) -> Real:
    """MTBF = 10⁹ h/FIT, in s: a FIT is one failure in 10⁹ hours."""
    return 1e9 * hour / fit


@domain(mtbf=POSITIVE)
def fit_from_mtbf(mtbf: Real) -> Real:
    """FIT = 10⁹ h/MTBF."""
    return 1e9 * hour / mtbf


@domain(time=NONNEGATIVE, mtbf=POSITIVE)
def survival(time: Real, mtbf: Real) -> Real:
    """P(no failure for t) = e^(−t/MTBF), failures exponential."""
    return np.exp(-time / mtbf)


@dataclass(frozen=True)
class MtbfEstimate:
    """An MTBF from a log, in s, with its confidence interval; `exposure` is the time watched, in s."""

    mtbf: float
    lower: float
    upper: float
    failures: int
    exposure: float


@domain(exposure=POSITIVE, failures=whole(0), confidence=INSIDE)
def mtbf_from_counts(exposure: float, failures: int, confidence: float = 0.95) -> MtbfEstimate:
    """MTBF = T/k from k failures in a time T, between 2T/χ²(1−q; 2k+2) and 2T/χ²(q; 2k), q = (1 − confidence)/2.

    The interval is exact for a Poisson count (Garwood): it covers at least `confidence`. Without a failure both the
    estimate and its upper end are infinite, and the lower end still says something.
    """
    from scipy.special import gammaincinv

    tail = (1 - confidence) / 2
    lower = exposure / gammaincinv(failures + 1, 1 - tail)
    upper = exposure / gammaincinv(failures, tail) if failures else np.inf
    return MtbfEstimate(exposure / failures if failures else np.inf, float(lower), float(upper), failures, exposure)


@domain(durations=POSITIVE)
def mtbf_from_log(durations: Real, failed: Real, confidence: float = 0.95) -> MtbfEstimate:
    """MTBF = Σ durations/number that failed: a run that ended otherwise is censored, it adds time and no failure.

    `durations` in s, one a run; `failed` is True for a run that a failure ended.
    """
    failed = np.asarray(failed)
    if failed.dtype != bool or failed.shape != np.shape(durations):
        raise ValueError(f"failed must be True or False for each of the {np.size(durations)} durations, got {failed!r}")
    return mtbf_from_counts(float(np.sum(durations)), int(np.sum(failed)), confidence)


# How often to write.


def _first_order(write: Real, mtbf: Real) -> None:
    allowed = Domain("at most 2 in a first-order law (exact_interval has no such limit)", lambda ratio: ratio <= 2)
    check("write/mtbf", np.divide(write, mtbf), allowed)


@domain(write=POSITIVE, mtbf=POSITIVE)
def young_interval(write: Real, mtbf: Real) -> Real:
    """τ_opt = √(2·T_write·MTBF): the work between writes that makes `first_order_overhead` least (Young 1974).

    Raises beyond T_write = 2·MTBF, where it would ask for less work than a write takes.
    """
    _first_order(write, mtbf)
    return np.sqrt(2 * write * mtbf)


@domain(write=POSITIVE, mtbf=POSITIVE)
def daly_interval(write: Real, mtbf: Real) -> Real:
    """τ_opt = √(2·T_write·MTBF)·(1 + x/3 + x²/9) − T_write, x = √(T_write/(2·MTBF)): work between writes (Daly 2006).

    It is the series of `exact_interval` in √(T_write/MTBF), to third order. Raises beyond T_write = 2·MTBF.
    """
    _first_order(write, mtbf)
    x = np.sqrt(write / (2 * mtbf))
    return np.sqrt(2 * write * mtbf) * (1 + x / 3 + x**2 / 9) - write


@domain(write=POSITIVE, mtbf=POSITIVE)
def exact_interval(write: Real, mtbf: Real) -> Real:
    """τ_opt = MTBF·(1 + W₀(−e^(−1−T_write/MTBF))): the work between writes that makes `segment_time`/τ least.

    Exponential failures; W₀ is Lambert's function; R drops out. Below T_write = 10⁻⁵·MTBF, where the argument of
    W₀ rounds to −1/e, its series about that point is used: τ_opt/MTBF = p − p²/3 + 11p³/72 − …, to 10⁻¹³.
    """
    from scipy.special import lambertw

    ratio = np.divide(write, mtbf)
    p = np.sqrt(-2 * np.expm1(-ratio))
    series = p * (1 - p * (1 / 3 - p * (11 / 72 - p * (43 / 540 - p * 769 / 17280))))
    return mtbf * np.where(ratio < 1e-5, series, 1 + lambertw(-np.exp(-1 - ratio)).real)[()]


# What failures cost.


@domain(interval=POSITIVE, write=NONNEGATIVE, mtbf=POSITIVE, restart=NONNEGATIVE)
def first_order_overhead(interval: Real, write: Real, mtbf: Real, restart: Real = 0.0) -> Real:
    """T_write/τ + (τ/2 + R)/MTBF: overhead per useful second, to first order. Raises beyond T_write = 2·MTBF.

    It assumes that a failure comes once in MTBF of useful time, in work and not in a write or a restart, and finds
    half an interval to lose.
    """
    _first_order(write, mtbf)
    return write / interval + (interval / 2 + restart) / mtbf


@domain(interval=POSITIVE, write=NONNEGATIVE, mtbf=POSITIVE, restart=NONNEGATIVE)
def segment_time(interval: Real, write: Real, mtbf: Real, restart: Real = 0.0) -> Real:
    """E = MTBF·e^(R/MTBF)·(e^((τ + T_write)/MTBF) − 1): expected wall-clock of τ of work and the write after it.

    Exact for exponential failures (Daly 2006); with R = T_write = 0 it is the restart law (e^(λτ) − 1)/λ. In s; ∞
    where it passes the largest float.
    """
    with np.errstate(over="ignore"):
        return mtbf * np.exp(restart / mtbf) * np.expm1((interval + write) / mtbf)


@domain(work=POSITIVE, interval=POSITIVE, write=NONNEGATIVE, mtbf=POSITIVE, restart=NONNEGATIVE)
def expected_wall_clock(work: Real, interval: Real, write: Real, mtbf: Real, restart: Real = 0.0) -> Real:
    """Σ `segment_time` over ⌈work/τ⌉ segments, of which the last holds what is left and is written too, in s."""
    full = np.ceil(work / interval - 1e-9) - 1
    rest = work - full * interval
    return full * segment_time(interval, write, mtbf, restart) + segment_time(rest, write, mtbf, restart)


def overhead(interval: Real, write: Real, mtbf: Real, restart: Real = 0.0) -> Real:
    """`segment_time`/τ − 1: exact overhead per useful second."""
    return segment_time(interval, write, mtbf, restart) / interval - 1


def waste(interval: Real, write: Real, mtbf: Real, restart: Real = 0.0) -> Real:
    """1 − τ/`segment_time`: exact waste, a share of wall-clock."""
    return 1 - interval / segment_time(interval, write, mtbf, restart)


@domain(restart=NONNEGATIVE)
def best_goodput(write: Real, mtbf: Real, restart: Real = 0.0) -> Real:
    """(1 − τ_opt/MTBF)·e^(−R/MTBF): goodput at `exact_interval`; the waste is τ_opt/MTBF when R = 0."""
    return (1 - exact_interval(write, mtbf) / mtbf) * np.exp(-np.divide(restart, mtbf))


def regret(interval: Real, write: Real, mtbf: Real) -> Real:
    """Expected wall-clock at `interval` over that at `exact_interval`, − 1: what a wrong interval costs. R cancels."""
    best = exact_interval(write, mtbf)
    return (segment_time(interval, write, mtbf) / interval) / (segment_time(best, write, mtbf) / best) - 1


@domain(write=POSITIVE, mtbf=POSITIVE, restart=NONNEGATIVE)
@dataclass(frozen=True)
class Plan:
    """A write time, system MTBF and restart time, in s, and what follows for the best interval."""

    write: Real
    mtbf: Real
    restart: Real = 0.0

    @property
    def interval(self) -> Real:
        """`exact_interval`, in s."""
        return exact_interval(self.write, self.mtbf)

    @property
    def overhead(self) -> Real:
        """Per useful second."""
        return overhead(self.interval, self.write, self.mtbf, self.restart)

    @property
    def waste(self) -> Real:
        """Share of wall-clock."""
        return 1 - best_goodput(self.write, self.mtbf, self.restart)

    @property
    def regime(self) -> Real:
        """How far T_write/MTBF lets the first-order law go, in words."""
        ratio = np.divide(self.write, self.mtbf)
        words = np.select([ratio <= 0.01, ratio <= 0.1, ratio <= 2], REGIMES[:3], REGIMES[3])
        return words if words.ndim else str(words)


#: T_write/MTBF up to 0.01, 0.1, 2 and beyond.
REGIMES = (
    "first order: Young's overhead is within 10 % of the exact one",
    "exact: Young's overhead is 9 to 28 % too low",
    "slow write: no interval helps much; write in shards, asynchronously or to memory",
    "beyond first order: a write seldom ends before a failure",
)

# Bytes and bandwidth.


@domain(parameters=POSITIVE, weights=NONNEGATIVE, master=NONNEGATIVE, moments=NONNEGATIVE)
def checkpoint_bytes(parameters: Real, weights: Real = 2, master: Real = 4, moments: Real = 8) -> Real:
    """P·(weights + master + moments) bytes, each in bytes per parameter; gradients are not saved.

    By default bf16 weights, their fp32 master copy and Adam's two fp32 moments: 14 bytes per parameter.
    """
    return parameters * (weights + master + moments)


@domain(n=NONNEGATIVE, writers=COUNT, bandwidth_per_writer=POSITIVE, bandwidth_aggregate=POSITIVE)
def write_time(n: Real, *, writers: Real, bandwidth_per_writer: Real, bandwidth_aggregate: Real) -> Real:
    """n/min(writers·bandwidth_per_writer, bandwidth_aggregate): n bytes in equal shards, into one storage, in s.

    Both bandwidths are one way, in byte/s: what one writer can send, and what the storage takes from all of them. A
    checkpoint gathered on one rank has `writers` = 1 (the time to gather it is not counted).
    """
    return n / np.minimum(writers * bandwidth_per_writer, bandwidth_aggregate)


@domain(n=NONNEGATIVE, write=POSITIVE)
def implied_aggregate_bandwidth(n: Real, write: Real) -> Real:
    """n/T_write, in byte/s over all writers: what a checkpoint of n bytes in T_write says of the storage."""
    return n / write


@domain(waste=INSIDE, mtbf=POSITIVE, restart=NONNEGATIVE)
def longest_write(waste: Real, mtbf: Real, restart: Real = 0.0) -> Real:
    """T_write = MTBF·(−ln(1 − u) − u), u = 1 − (1 − waste)·e^(R/MTBF): the longest that keeps a waste of wall-clock.

    The inverse of `best_goodput`; about waste²·MTBF/2 when R = 0. Raises when R alone wastes more than that.
    """
    u = 1 - (1 - waste) * np.exp(np.divide(restart, mtbf))
    check("waste left by restart", u, Domain("> 0 (no write is short enough for this restart)", lambda x: x > 0))
    return mtbf * (-np.log1p(-u) - u)


@domain(n=POSITIVE)
def aggregate_bandwidth_for_waste(n: Real, waste: Real, mtbf: Real, restart: Real = 0.0) -> Real:
    """n/`longest_write`, in byte/s over all writers: what keeps the waste of wall-clock, writes stopping the job."""
    return n / longest_write(waste, mtbf, restart)


# Asynchronous, in memory, on two levels.


@domain(latency=NONNEGATIVE)
def asynchronous_interval(blocking: Real, latency: Real, mtbf: Real) -> Real:
    """max(`exact_interval`(blocking), latency): a snapshot stops the job for `blocking` s, and is durable `latency`
    s later, while work goes on; the next one waits until it is.
    """
    return np.maximum(exact_interval(blocking, mtbf), latency)


@domain(latency=NONNEGATIVE)
def asynchronous_segment_time(interval: Real, blocking: Real, latency: Real, mtbf: Real, restart: Real = 0.0) -> Real:
    """`segment_time` with `blocking` for T_write and R + latency for R: exact, for latency ≤ τ.

    A failure falls back to the last durable snapshot, so it also loses the `latency` that passed since that was taken.
    """
    check("latency/interval", np.divide(latency, interval), FRACTION)
    return segment_time(interval, blocking, mtbf, restart + latency)


@domain(nodes=COUNT, copies=COUNT, failed=whole(0))
def group_survival(nodes: int, copies: int, failed: int) -> float:
    """P(each group of `copies` nodes keeps a live one) when `failed` of `nodes`, all alike likely, die at once.

    The nodes of a group hold one another's state in memory. Σⱼ(−1)ʲ·C(g, j)·C(N − jc, k − jc)/C(N, k), with g = N/c
    groups, by inclusion and exclusion of the groups that are lost whole.
    """
    groups, left = divmod(int(nodes), int(copies))
    if left or failed > nodes:
        raise ValueError(f"nodes must be a multiple of copies = {copies} and at least failed = {failed}, got {nodes}")
    lost = range(min(groups, failed // copies) + 1)
    ways = sum((-1) ** j * comb(groups, j) * comb(nodes - j * copies, failed - j * copies) for j in lost)
    return ways / comb(nodes, failed)


@domain(near_write=POSITIVE, far_write=POSITIVE, mtbf=POSITIVE, coverage=INSIDE)
def two_level_intervals(near_write: Real, far_write: Real, mtbf: Real, coverage: Real) -> tuple[Real, Real]:
    """τ_near = √(2·T_near·MTBF/c), τ_far = √(2·T_far·MTBF/(1 − c)): work between writes on each level, first order.

    A near copy (a peer's memory, a local disk) survives a share c, `coverage`, of failures; the others fall back to
    the far copy (storage). Each level meets its own failures only, so each has Young's law.
    """
    return young_interval(near_write, mtbf / coverage), young_interval(far_write, mtbf / (1 - coverage))


@domain(interval=POSITIVE, every=COUNT, near_write=NONNEGATIVE, far_write=NONNEGATIVE, mtbf=POSITIVE,
        coverage=BELOW_ONE, near_restart=NONNEGATIVE, far_restart=NONNEGATIVE)  # fmt: skip
def two_level_overhead(
    interval: Real, every: Real, near_write: Real, far_write: Real, mtbf: Real, coverage: Real,
    near_restart: Real = 0.0, far_restart: Real = 0.0,
) -> Real:  # fmt: skip
    """(1/L − 1)·(1/λ_far + (e^(λ·R_far) − 1)/λ)/(every·τ) − 1: exact overhead per useful second, two levels.

    τ of work is followed by a near write, each `every`-th of them by a far write too. Failures are exponential, λ =
    1/MTBF; λ_far = (1 − coverage)·λ of them lose the near copy. L = E[e^(−λ_far·D)], D the time of `every` segments
    under the other failures: a product over the segments, each ℓ long, of
    e^(−λℓ) + c·(1 − e^(−λℓ))·y/(1 − c·(1 − y)), y = e^(−λ(R_near + ℓ)), c = coverage.
    """
    rate = 1 / mtbf

    def discount(length: Real) -> Real:
        y = np.exp(-rate * (near_restart + length))
        return np.exp(-rate * length) - coverage * np.expm1(-rate * length) * y / (1 - coverage * (1 - y))

    near, last = interval + near_write, interval + near_write + far_write
    tries = 1 / (discount(near) ** (every - 1) * discount(last)) - 1
    return tries * (1 / ((1 - coverage) * rate) + np.expm1(rate * far_restart) / rate) / (every * interval) - 1


# Found out: who is slow, and how soon that is known.


def robust_scores(times: Real) -> Real:
    """(t − median)/(1.4826·MAD), over the last axis: how many standard deviations a rank's time lies above its peers'.

    `times` of one step in s, a rank an element of the last axis. Median and MAD (median distance from the median) do
    not feel a few bad ranks; 1.4826 makes the MAD the standard deviation of a normal law.
    """
    apart = times - np.median(times, axis=-1, keepdims=True)
    return apart / (1.4826 * np.median(np.abs(apart), axis=-1, keepdims=True))


@domain(drift=NONNEGATIVE)
def cusum(scores: Real, drift: Real) -> Real:
    """Sₜ = max(0, Sₜ₋₁ + zₜ − drift), along the first axis: evidence, added up, that a rank is slower than its peers.

    A sum beyond a limit is an alarm. Half the smallest slowness that matters is the drift that finds it soonest.
    """
    now, sums = 0.0, []
    for score in scores:
        now = np.maximum(0.0, now + score - drift)
        sums.append(now)
    return np.array(sums)


@domain(limit=POSITIVE, drift=POSITIVE, shift=NONNEGATIVE)
def cusum_run_length(limit: Real, drift: Real, shift: Real = 0.0) -> Real:
    """(e^(−2Δb) + 2Δb − 1)/(2Δ²), Δ = shift − drift, b = limit + 1.166: mean steps until one rank's `cusum` > limit.

    For normal scores of deviation 1 and mean `shift`, starting from 0: with shift 0 the steps to a false alarm, with
    that of a slow rank the delay of detection. Siegmund's approximation, within a tenth; at Δ = 0 it is b².
    """
    delta, b = shift - drift, limit + 1.166
    safe = np.where(delta == 0, b, delta)
    return np.where(delta == 0, b**2, (np.exp(-2 * safe * b) + 2 * safe * b - 1) / (2 * safe**2))[()]


@domain(lead=NONNEGATIVE, step=POSITIVE, write=NONNEGATIVE)
def saved_in_time(lead: Real, step: Real, write: Real) -> Real:
    """(lead − T_write)/T_step, from 0 to 1: P(a warning leaves time to end the step and write).

    The warning comes `lead` s before the end, at any moment of a step alike. It is 1 from lead = T_step + T_write on.
    """
    return np.clip((lead - write) / step, 0.0, 1.0)


# Kept ready: spares, fewer replicas, two of each, and the log of a stage.


@domain(spares=whole(0), time=NONNEGATIVE, mtbf=POSITIVE)
def spares_suffice(spares: Real, time: Real, mtbf: Real) -> Real:
    """Σₖ e^(−x)·xᵏ/k!, k = 0 … spares, x = t/MTBF: P(at most `spares` nodes fail in t).

    With the time of a repair for t it is the share of time in which a spare is ready, nodes returning when repaired
    (Poisson, whatever the law of the repair time). `mtbf` is the system's, in s.
    """
    from scipy.special import pdtr

    return pdtr(spares, np.divide(time, mtbf))


@domain(stall=NONNEGATIVE, rebuild=NONNEGATIVE, replicas=COUNT)
def elastic_restart(stall: Real, rebuild: Real, replicas: Real) -> Real:
    """R = T_stall + T_rebuild/dp: what a failure costs where it stops all replicas for a stall, and one for the rest.

    In s of the whole job. Exact for exponential failures: a replica works unless any failed in the last T_stall, or
    itself in the T_rebuild before, so goodput is e^(−R/MTBF), as with `best_goodput` of writes that cost nothing.
    """
    return stall + rebuild / replicas


@domain(part_mtbf=POSITIVE, pairs=COUNT, repair=POSITIVE)
def paired_mtbf(part_mtbf: Real, pairs: Real, repair: Real) -> Real:
    """MTBF = MTBF_part·(3 + MTBF_part/T_repair)/(2·pairs): every rank twice, the job stops when a pair is down.

    Exact for one pair with exponential repair; for many while T_repair ≪ MTBF_part. In s.
    """
    return part_mtbf * (3 + part_mtbf / repair) / (2 * pairs)


@domain(done=whole(0), in_flight=whole(0), forward=NONNEGATIVE, backward=NONNEGATIVE)
def stage_replay_time(done: Real, in_flight: Real, forward: Real, backward: Real) -> Real:
    """done·(T_f + T_b) + in_flight·T_f: a lost pipeline stage computed again alone from its neighbours' logs, in s.

    `done` micro-batches had passed it both ways in this step (their gradients are lost), `in_flight` forwards only
    (their activations are lost).
    """
    return done * (forward + backward) + in_flight * forward


# Size and money.


@domain(ranks=COUNT)
def useful_ranks(ranks: Real, part_mtbf: Real, write: Real, restart: Real = 0.0) -> Real:
    """N·`best_goodput` at MTBF = MTBF_part/N: the ranks that would do as much if none ever failed."""
    return ranks * best_goodput(write, system_mtbf(part_mtbf, ranks), restart)


@domain(part_mtbf=POSITIVE, write=POSITIVE, restart=NONNEGATIVE)
def most_useful_ranks(part_mtbf: Real, write: Real, restart: Real = 0.0) -> Real:
    """N at which `useful_ranks` is greatest, not rounded: there T_write/τ_opt = 1 − R/MTBF. Beyond, more give less.

    With u = τ_opt/MTBF this is −ln(1 − u) − u = u/(1 + u·R/T_write), solved by bisection; with R = 0 the peak is at
    MTBF = 1.255·T_write, and as T_write → 0 it is at MTBF = R.
    """
    ratio = np.divide(restart, write)
    low, high = np.zeros_like(ratio), np.ones_like(ratio)
    for _ in range(60):
        u = (low + high) / 2
        past = -np.log1p(-u) - u > u / (1 + u * ratio)
        low, high = np.where(past, low, u), np.where(past, u, high)
    return (part_mtbf / write) * (low / (1 + low * ratio))


@domain(ranks=COUNT, wall_clock=NONNEGATIVE, waste=FRACTION)
def wasted_time(ranks: Real, wall_clock: Real, waste: Real) -> Real:
    """N·wall-clock·waste, in worker-seconds (divide by `hour` for GPU-hours); waste is a share of wall-clock."""
    return ranks * wall_clock * waste


@domain(price=NONNEGATIVE)
def wasted_money(ranks: Real, wall_clock: Real, waste: Real, price: Real) -> Real:
    """`wasted_time`·price, the price in money per worker-second (`2 / hour` is two an hour)."""
    return wasted_time(ranks, wall_clock, waste) * price


# Runs under failures, simulated.


@dataclass(frozen=True)
class Failures:
    """The times from one failure to the next, each drawn anew: their mean in s, P(gap > t), and a drawing of them."""

    mtbf: float
    survival: Callable[[Real], Real]
    draw: Callable[[np.random.Generator, int], np.ndarray]


@domain(mtbf=POSITIVE)
def exponential_failures(mtbf: float) -> Failures:
    """P(gap > t) = e^(−t/MTBF): failures that do not remember."""
    return Failures(mtbf, lambda t: survival(t, mtbf), lambda rng, size: rng.exponential(mtbf, size))


@domain(mtbf=POSITIVE, shape=POSITIVE)
def weibull_failures(mtbf: float, shape: float) -> Failures:
    """P(gap > t) = e^(−(t/scale)^shape), scale = MTBF/Γ(1 + 1/shape): shape < 1 fails early again, > 1 wears out."""
    scale = mtbf / gamma(1 + 1 / shape)
    return Failures(mtbf, lambda t: np.exp(-((t / scale) ** shape)), lambda rng, size: scale * rng.weibull(shape, size))


@domain(mtbf=POSITIVE, share=BELOW_ONE, short=POSITIVE)
def burst_failures(mtbf: float, share: float, short: float) -> Failures:
    """P(gap > t) = share·e^(−t/short) + (1 − share)·e^(−t/long), of mean MTBF: a failure that brings on the next."""
    long = (mtbf - share * short) / (1 - share)
    check("mtbf − share·short", long, POSITIVE)
    return Failures(
        mtbf,
        lambda t: share * survival(t, short) + (1 - share) * survival(t, long),
        lambda rng, size: rng.exponential(np.where(rng.random(size) < share, short, long)),
    )


@domain(interval=POSITIVE, write=NONNEGATIVE, restart=NONNEGATIVE)
def renewal_goodput(interval: Real, write: Real, failures: Failures, restart: float = 0.0) -> Real:
    """(τ/MTBF)·Σₖ P(gap > R + k·(τ + T_write)), k = 1, 2, …: useful share of wall-clock in a long job, any `failures`.

    Between two failures ⌊(gap − R)/(τ + T_write)⌋ segments last; the sum is the mean of that. Exact; with
    exponential failures it is 1 − `waste`. `restart` is one number.
    """
    k, segments = np.arange(1.0, 1001.0), 0.0
    while True:
        terms = failures.survival(restart + np.multiply.outer(interval + write, k))
        segments = segments + np.sum(terms, axis=-1)
        if np.max(terms[..., -1]) < 1e-15:
            return interval / failures.mtbf * segments
        k += 1000


@dataclass(frozen=True)
class Runs:
    """Simulated jobs, one entry a run, in s: work + writing + lost + restarting = wall_clock.

    `writing` is the time of the writes that lasted; `lost` is work and writes that a failure undid.
    """

    wall_clock: np.ndarray
    failures: np.ndarray
    work: float
    writing: float
    lost: np.ndarray
    restarting: np.ndarray


def simulate(
    failures: Failures, work: float, interval: float, write: float, restart: float = 0.0, runs: int = 10_000,
    seed: int = 0,
) -> Runs:  # fmt: skip
    """Jobs as `expected_wall_clock` has them, under `failures`; the first gap starts with the job."""
    return simulate_two_level(failures, work, interval, 1, 0.0, write, 0.0, restart, restart, runs, seed)


@domain(work=POSITIVE, interval=POSITIVE, every=COUNT, near_write=NONNEGATIVE, far_write=NONNEGATIVE,
        coverage=FRACTION, near_restart=NONNEGATIVE, far_restart=NONNEGATIVE, runs=COUNT)  # fmt: skip
def simulate_two_level(
    failures: Failures, work: float, interval: float, every: int, near_write: float, far_write: float, coverage: float,
    near_restart: float = 0.0, far_restart: float = 0.0, runs: int = 10_000, seed: int = 0,
) -> Runs:  # fmt: skip
    """Jobs as `two_level_overhead` has them: all runs advance together, from one failure to the next."""
    rng = np.random.default_rng(seed)
    segment, pattern = interval + near_write, every * (interval + near_write) + far_write
    segments = np.ceil(work / interval - 1e-9)
    end = work + segments * near_write + segments // every * far_write
    wall, count, lost, restarting = np.zeros((4, runs))
    done, pause, running = np.zeros(runs), np.zeros(runs), np.arange(runs)  # segments kept, restart to come, run

    def reached(time: np.ndarray) -> np.ndarray:
        whole_patterns, rest = np.divmod(time, pattern)
        return whole_patterns * every + np.minimum(rest // segment, every - 1)

    while running.size:
        gap, far = failures.draw(rng, running.size), rng.random(running.size) >= coverage
        start = done * segment + done // every * far_write
        finished = gap >= pause + end - start
        gap = np.where(finished, pause + end - start, gap)
        paused = np.minimum(gap, pause)
        kept = np.maximum(done, reached(start + gap - paused))
        kept = np.where(far, kept // every * every, kept)
        wall[running] += gap
        restarting[running] += paused
        count[running] += ~finished
        lost[running] += np.where(finished, 0, gap - paused - (kept * segment + kept // every * far_write - start))
        deep = far | ((gap < pause) & (pause == far_restart))
        done, pause = kept, np.where(deep, far_restart, near_restart)
        running, done, pause = (array[~finished] for array in (running, done, pause))
    return Runs(wall, count, work, end - work, lost, restarting)


def mean_interval(samples: np.ndarray) -> tuple[float, float]:
    """Mean ∓ 1.96·s/√n: the 95 % confidence interval of the mean of many independent samples."""
    half = 1.96 * np.std(samples, ddof=1) / np.sqrt(np.size(samples))
    return float(np.mean(samples) - half), float(np.mean(samples) + half)
