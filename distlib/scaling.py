"""Principle 9: the scaling law 𝓛(C) − E ∝ C^−γ, and the loss surface 𝓛(P, D) = E + A/Pᵃ + B/Dᵇ above it.

P is the number of parameters, D of training tokens, C = 6PD the training compute in FLOP, 𝓛 the loss in nats per
token. The literature writes N for P, and α, β for a, b (Hoffmann et al. 2022); here N counts ranks, and α and β are
a link's latency and bandwidth. The fields of a surface may be arrays: a sample of surfaces gives a sample of answers.
"""

import itertools
import warnings
from dataclasses import dataclass

import numpy as np

from distlib.domain import FRACTION, NONNEGATIVE, POSITIVE, Domain, Real, check, domain, whole
from distlib.transformer import inference_flops, training_flops

BELOW_ONE = Domain("a number ≥ 0 and < 1", lambda x: (x >= 0) & (x < 1))


@domain(E=NONNEGATIVE, A=POSITIVE, B=POSITIVE, a=POSITIVE, b=POSITIVE)
@dataclass(frozen=True)
class LossSurface:
    """𝓛(P, D) = E + A/Pᵃ + B/Dᵇ: irreducible loss, shortage of parameters, shortage of data."""

    E: Real  # nats/token
    A: Real
    B: Real
    a: Real
    b: Real


@domain(parameters=POSITIVE, tokens=POSITIVE)
def loss_at(parameters: Real, tokens: Real, surface: LossSurface) -> Real:
    """𝓛(P, D) = E + A/Pᵃ + B/Dᵇ, in nats/token."""
    return surface.E + surface.A / parameters**surface.a + surface.B / tokens**surface.b


# The valley floor: the best loss of each budget


def balance(surface: LossSurface) -> Real:
    """G = (aA/(bB))^(1/(a+b)): the weight between parameters and tokens in the optimum."""
    return (surface.a * surface.A / (surface.b * surface.B)) ** (1 / (surface.a + surface.b))


@domain(compute=POSITIVE)
def optimal_parameters(compute: Real, surface: LossSurface) -> Real:
    """P*(C) = G·(C/6)^(b/(a+b)): where aA/Pᵃ = bB/Dᵇ and 6PD = C."""
    return balance(surface) * (compute / 6) ** (surface.b / (surface.a + surface.b))


@domain(compute=POSITIVE)
def optimal_tokens(compute: Real, surface: LossSurface) -> Real:
    """D*(C) = (C/6)^(a/(a+b))/G."""
    return (compute / 6) ** (surface.a / (surface.a + surface.b)) / balance(surface)


def gamma(surface: LossSurface) -> Real:
    """γ = ab/(a+b): the exponent of 𝓛*(C) − E ∝ C^−γ."""
    return surface.a * surface.b / (surface.a + surface.b)


def frontier_scale(surface: LossSurface) -> Real:
    """K = (1 + a/b)·A/Gᵃ: the reducible loss of the optimum at C = 6 FLOP."""
    return (1 + surface.a / surface.b) * surface.A / balance(surface) ** surface.a


@domain(compute=POSITIVE)
def frontier_loss(compute: Real, surface: LossSurface) -> Real:
    """𝓛*(C) = E + K·(C/6)^−γ: the least loss that C buys, in nats/token."""
    return surface.E + frontier_scale(surface) * (compute / 6) ** -gamma(surface)


@domain(loss=POSITIVE)
def compute_for_loss(loss: Real, surface: LossSurface) -> Real:
    """C(𝓛) = 6·(K/(𝓛 − E))^(1/γ), in FLOP; no compute reaches E."""
    reducible = check("loss − E", loss - surface.E, POSITIVE)
    return 6 * (frontier_scale(surface) / reducible) ** (1 / gamma(surface))


@domain(compute=POSITIVE, gain=BELOW_ONE)
def compute_for_gain(compute: Real, gain: Real, surface: LossSurface) -> Real:
    """C' with 𝓛*(C') = (1 − gain)·𝓛*(C), in FLOP: what the next gain of the whole loss costs."""
    return compute_for_loss((1 - gain) * frontier_loss(compute, surface), surface)


@domain(remaining=POSITIVE, exponent=POSITIVE)
def compute_multiple(remaining: Real, exponent: Real) -> Real:
    """C'/C = r^(−1/γ): the multiple of compute that leaves the fraction r of the reducible loss 𝓛 − E."""
    return remaining ** (-1 / exponent)


@domain(compute=POSITIVE)
def log_slope(compute: Real, surface: LossSurface) -> Real:
    """d ln 𝓛*/d ln C = −γ(1 − E/𝓛*): what a pure power law without E takes for its exponent at C."""
    return -gamma(surface) * (1 - surface.E / frontier_loss(compute, surface))


# Off the valley floor: smaller models trained for longer, and data seen more than once


@domain(parameters=POSITIVE, loss=POSITIVE)
def tokens_for_loss(parameters: Real, loss: Real, surface: LossSurface) -> Real:
    """D(P, 𝓛) = (B/(𝓛 − E − A/Pᵃ))^(1/b): the tokens after which P parameters reach 𝓛."""
    left = check("loss − E − A/Pᵃ", loss - surface.E - surface.A / parameters**surface.a, POSITIVE)
    return (surface.B / left) ** (1 / surface.b)


def smallest_fraction(surface: LossSurface) -> Real:
    """(1 + a/b)^(−1/a): below this fraction of P*, no amount of data reaches the loss of the optimum."""
    return (1 + surface.a / surface.b) ** (-1 / surface.a)


@domain(fraction=POSITIVE)
def overtraining_multiple(fraction: Real, surface: LossSurface) -> Real:
    """C/C* = f·(1 − (b/a)(f^−a − 1))^(−1/b): compute of a model of P = f·P* that reaches the same loss."""
    left = 1 - surface.b / surface.a * (fraction**-surface.a - 1)
    return fraction * check("1 − (b/a)(fraction^−a − 1)", left, POSITIVE) ** (-1 / surface.b)


@domain(parameters=POSITIVE, tokens=POSITIVE, served=NONNEGATIVE)
def lifetime_flops(parameters: Real, tokens: Real, served: Real) -> Real:
    """6PD + 2PS: training on D tokens, then S tokens read or written in service (Sardana et al. 2024)."""
    return training_flops(parameters, tokens) + inference_flops(parameters, served)


@domain(loss=POSITIVE, served=NONNEGATIVE)
def lifetime_optimum(loss: Real, served: Real, surface: LossSurface) -> tuple[Real, Real]:
    """(P, D) of least 6PD + 2PS at loss 𝓛: the P where aA/Pᵃ = (bB/Dᵇ)(1 + S/(3D)), by bisection of ln P.

    P lies between the smallest model that reaches 𝓛 and the optimum without service.
    """
    reducible = check("loss − E", loss - surface.E, POSITIVE)
    high = np.log(optimal_parameters(compute_for_loss(loss, surface), surface)) + 0 * served
    low = np.log(surface.A / reducible) / surface.a + 0 * served
    for _ in range(60):
        middle = (low + high) / 2
        tokens = tokens_for_loss(np.exp(middle), loss, surface)
        data_pull = surface.b * surface.B / tokens**surface.b * (1 + served / (3 * tokens))
        too_small = surface.a * surface.A * np.exp(-surface.a * middle) > data_pull
        low, high = np.where(too_small, middle, low), np.where(too_small, high, middle)
    return np.exp(high), tokens_for_loss(np.exp(high), loss, surface)


@domain(amount=POSITIVE, base=POSITIVE, decay=POSITIVE)
def diminished(amount: Real, base: Real, decay: Real) -> Real:
    """X' = U + U·R*(1 − e^(−R/R*)), R = X/U − 1 repeats of U; X' = X for X ≤ U (Muennighoff et al. 2023)."""
    repeats = np.maximum(amount / base - 1, 0)
    return np.minimum(amount, base) + base * decay * -np.expm1(-repeats / decay)


@domain(tokens=POSITIVE)
def matched_parameters(tokens: Real, surface: LossSurface) -> Real:
    """P = G·(GD)^(b/a): the model for which D tokens are compute-optimal."""
    weight = balance(surface)
    return weight * (weight * tokens) ** (surface.b / surface.a)


@domain(parameters=POSITIVE, tokens=POSITIVE, unique=POSITIVE, token_decay=POSITIVE, parameter_decay=POSITIVE)
def repeated_loss(
    parameters: Real, tokens: Real, unique: Real, surface: LossSurface, token_decay: Real, parameter_decay: Real
) -> Real:
    """𝓛(P', D'): D' of D tokens with U unique, P' of P parameters against those matched to U.

    Muennighoff et al. 2023, arXiv 2305.16264; the decays are its R*_D and R*_N.
    """
    fresh = np.minimum(unique, tokens)
    data = diminished(tokens, fresh, token_decay)
    model = diminished(parameters, np.minimum(matched_parameters(fresh, surface), parameters), parameter_decay)
    return loss_at(model, data, surface)


# What it costs on machines


@domain(compute=NONNEGATIVE, ranks=POSITIVE, peak=POSITIVE, mfu=FRACTION)
def training_time(compute: Real, ranks: Real, peak: Real, mfu: Real) -> Real:
    """C/(N·MFU·peak), in s: model FLOPs over what N accelerators of dense `peak` FLOP/s deliver."""
    return compute / (ranks * check("mfu", mfu, POSITIVE) * peak)


# The fit: Huber loss of ln 𝓛, summed, many starts

HUBER_DELTA = 1e-3
#: Starting points (ln A, ln B, ln E, a, b) of a fit.
STARTS = np.array(list(itertools.product((0, 10, 20), (0, 10, 20), (0,), (0, 0.5), (0, 0.5))), dtype=float)
#: Above this condition number an error of 1 % in the losses can become one of order 1 in the constants.
ILL_CONDITIONED = 100.0


@dataclass(frozen=True)
class Fit:
    """A fitted surface, how it was found, and the runs it was fitted to."""

    surface: LossSurface
    objective: float  # summed Huber loss of ln 𝓛, δ = 1e-3
    objectives: np.ndarray  # the same where each start ended
    condition: float  # of the design: see `condition_number`
    parameters: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray

    @property
    def residuals(self) -> np.ndarray:
        """ln 𝓛 − ln 𝓛(P, D) of the runs fitted."""
        return log_residuals(self.parameters, self.tokens, self.loss, self.surface)

def huber(residual: Real, delta: float = HUBER_DELTA) -> Real:
    """c·(r − c/2) with c = r cut off at ±δ: r²/2 for |r| ≤ δ, δ(|r| − δ/2) beyond, straight for outliers."""
    cut = np.clip(residual, -delta, delta)
    return cut * (residual - cut / 2)


@domain(parameters=POSITIVE, tokens=POSITIVE, loss=POSITIVE)
def log_residuals(parameters: Real, tokens: Real, loss: Real, surface: LossSurface) -> Real:
    """ln 𝓛 − ln 𝓛(P, D): close to the relative error of the surface, positive where a run is worse than it says."""
    return np.log(loss) - np.log(loss_at(parameters, tokens, surface))


def fit_objective(parameters: Real, tokens: Real, loss: Real, surface: LossSurface) -> Real:
    """Σ huber(ln 𝓛 − ln 𝓛(P, D)): what a fit minimises."""
    return np.sum(huber(log_residuals(parameters, tokens, loss, surface)), axis=-1)


def log_terms(theta: np.ndarray, log_p: np.ndarray, log_d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """ln 𝓛 by log-sum-exp of ln A − a ln P, ln B − b ln D, ln E, and the share of each term in 𝓛."""
    terms = np.stack([theta[0] - theta[3] * log_p, theta[1] - theta[4] * log_d, np.full_like(log_p, theta[2])])
    fitted = np.logaddexp.reduce(terms, axis=0)
    return fitted, np.exp(terms - fitted)


def objective(
    theta: np.ndarray, log_p: np.ndarray, log_d: np.ndarray, log_loss: np.ndarray
) -> tuple[float, np.ndarray]:
    """Σ huber(r/δ) with r = ln 𝓛(P, D) − ln 𝓛, and its gradient in (ln A, ln B, ln E, a, b)."""
    fitted, share = log_terms(theta, log_p, log_d)
    residual = (fitted - log_loss) / HUBER_DELTA
    pull = np.clip(residual, -1, 1) / HUBER_DELTA * share
    slope = [pull[0].sum(), pull[1].sum(), pull[2].sum(), -(pull[0] * log_p).sum(), -(pull[1] * log_d).sum()]
    return huber(residual, 1.0).sum(), np.array(slope)


def descend(start: np.ndarray, *logs: np.ndarray, scale: float = 1.0) -> tuple[np.ndarray, float]:
    """BFGS from one start on ln P, ln D, ln 𝓛: (where it ended, Σ huber(r) there).

    An optimiser stops when a slope is small in absolute terms, so it matters that residuals are measured in δ.
    `scale` multiplies the objective: it moves no minimum, only the point where the optimiser stops.
    """
    from scipy.optimize import minimize

    def scaled(theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = objective(theta, *logs)
        return scale * value, scale * slope

    found = minimize(scaled, start, jac=True, method="BFGS")
    return found.x, found.fun / scale * HUBER_DELTA**2


def settle(theta: np.ndarray, *logs: np.ndarray) -> np.ndarray:
    """The zero of the gradient beside `theta`, or `theta` where none is: a fit to nearly all digits of its floats.

    A descent ends with half of them, as the objective is flat to its own rounding there; its slope is not.
    """
    from scipy.optimize import root

    found = root(lambda x: objective(x, *logs)[1], theta, tol=1e-13)
    settled = found.success and objective(found.x, *logs)[0] <= (1 + 1e-9) * objective(theta, *logs)[0]
    return found.x if settled else theta


def as_surface(theta: Real) -> LossSurface:
    """The surface of (ln A, ln B, ln E, a, b); rows of a matrix give a sample of surfaces."""
    log_a, log_b, log_e, a, b = np.asarray(theta).T
    return LossSurface(E=np.exp(log_e), A=np.exp(log_a), B=np.exp(log_b), a=a, b=b)


def as_theta(surface: LossSurface) -> np.ndarray:
    """(ln A, ln B, ln E, a, b) of a surface."""
    return np.array([np.log(surface.A), np.log(surface.B), np.log(surface.E), surface.a, surface.b])


def condition_number(parameters: Real, tokens: Real, surface: LossSurface) -> float:
    """Largest over smallest singular value of ∂ln 𝓛/∂(ln A, ln B, ln E, a, b) over the runs.

    Each column is centred in ln P or ln D and scaled to length one, so that units and origin do not count. A large
    value says that some change of the constants leaves every run as it was: the runs do not identify them. It is inf
    where rounding hides the smallest singular value.
    """
    log_p, log_d = np.log(parameters), np.log(tokens)
    _, share = log_terms(as_theta(surface), log_p, log_d)
    about_p, about_d = log_p - np.average(log_p, weights=share[0]), log_d - np.average(log_d, weights=share[1])
    columns = np.stack([share[0], share[1], share[2], share[0] * about_p, share[1] * about_d], axis=1)
    lengths = np.linalg.norm(columns, axis=0)
    values = np.linalg.svd(columns / np.where(lengths > 0, lengths, 1), compute_uv=False)
    return float(values[0] / values[-1]) if values[-1] > 1e-12 * values[0] else np.inf


@domain(parameters=POSITIVE, tokens=POSITIVE, loss=POSITIVE)
def fit_surface(parameters: Real, tokens: Real, loss: Real, starts: np.ndarray = STARTS) -> Fit:
    """The surface of least Σ huber(ln 𝓛 − ln 𝓛(P, D)) over many starts (Hoffmann et al. 2022, approach 3).

    `parameters`, `tokens` and `loss` are one array each, a run an element. Warns when the runs do not identify the
    constants.
    """
    parameters, tokens, loss = (np.atleast_1d(x) for x in np.broadcast_arrays(parameters, tokens, loss))
    if len(loss) < 5:
        raise ValueError(f"five constants need at least 5 runs, got {len(loss)}")
    logs = np.log(parameters), np.log(tokens), np.log(loss)
    ends = [descend(start, *logs) for start in np.atleast_2d(starts)]
    surface = as_surface(settle(min(ends, key=lambda end: end[1])[0], *logs))
    condition = condition_number(parameters, tokens, surface)
    if condition > ILL_CONDITIONED:
        warnings.warn(f"condition number {condition:.0f}: these runs do not identify the constants", stacklevel=3)
    ended = np.sort([end[1] for end in ends])
    return Fit(surface, fit_objective(parameters, tokens, loss, surface), ended, condition, parameters, tokens, loss)


@domain(resamples=whole(2))
def bootstrap(fit: Fit, resamples: int = 300, seed: int = 0) -> LossSurface:
    """A sample of surfaces, each fitted to the runs drawn anew with replacement, from the fit's own optimum."""
    rng = np.random.default_rng(seed)
    logs = np.log([fit.parameters, fit.tokens, fit.loss])
    draws = rng.integers(len(fit.loss), size=(resamples, len(fit.loss)))
    best = as_theta(fit.surface)
    return as_surface([settle(descend(best, *sample)[0], *sample) for sample in (logs[:, draw] for draw in draws)])


@domain(parameters=POSITIVE, tokens=POSITIVE)
def predicted_losses(parameters: Real, tokens: Real, fit: Fit, sample: LossSurface) -> np.ndarray:
    """𝓛(P, D)·e^r along a last axis: each surface of the sample with each residual r of the fit.

    What new runs would give if the form of the surface were right and they scattered as the fitted runs do.
    """
    losses = loss_at(np.asarray(parameters)[..., None], np.asarray(tokens)[..., None], sample)
    spread = losses[..., None] * np.exp(fit.residuals)
    return spread.reshape(*losses.shape[:-1], -1)


@domain(level=FRACTION)
def interval(sample: Real, level: Real = 0.95) -> np.ndarray:
    """(low, high): the central `level` of a sample along its last axis."""
    return np.quantile(sample, [(1 - level) / 2, (1 + level) / 2], axis=-1)


# The shortcut: a parabola through each budget's runs, a power law through their minima


@domain(parameters=POSITIVE, loss=POSITIVE)
def isoflop_optimum(parameters: Real, loss: Real) -> float:
    """P* of one budget: the vertex of 𝓛 = c₀ + c₁ ln P + c₂ (ln P)² (Hoffmann et al. 2022, approach 2).

    Biased where a ≠ b: the valley is steeper on one side, a parabola is not.
    """
    log_p = np.log(parameters)
    centre = np.mean(log_p)
    bend, slope, _ = np.polyfit(log_p - centre, loss, 2)
    return float(np.exp(centre - slope / (2 * check("curvature of the parabola", bend, POSITIVE))))


@domain(x=POSITIVE, y=POSITIVE)
def power_law(x: Real, y: Real) -> tuple[float, float]:
    """(k, p) of y = k·xᵖ: least squares of ln y on ln x."""
    p, log_k = np.polyfit(np.log(x), np.log(y), 1)
    return float(np.exp(log_k)), float(p)
