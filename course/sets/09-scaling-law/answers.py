"""Right and known wrong answers of the set on Principle 9."""

from course.grading import Function, Prediction, Value
from distlib.hardware import accelerator
from distlib.published import training_costs
from distlib.scaling import (
    LossSurface,
    compute_multiple,
    gamma,
    loss_at,
    optimal_parameters,
    optimal_tokens,
    tokens_for_loss,
    training_time,
)  # fmt: skip
from distlib.transformer import training_flops
from distlib.units import day, hour

PEAK = 1979e12 / 2
assert abs(PEAK - accelerator("H100").peak) < 0.001 * PEAK


def surface(p):
    return LossSurface(p.E, p.A, p.B, p.a, p.b)


def best(p):
    return optimal_parameters(p.budget, surface(p))


def cost(p):
    [found] = [found for found in training_costs() if found.model == p.model]
    return found


def saved(p, compute=6.0, peak=PEAK):
    flops = compute / 6 * training_flops(cost(p).parameters, cost(p).tokens)
    return (cost(p).hours - training_time(flops, 1, peak, p.mfu) / hour) * p.price / 1e6


def extra(p):
    loss = loss_at(best(p), optimal_tokens(p.budget, surface(p)), surface(p))
    small = p.fraction * best(p)
    flops = training_flops(small, tokens_for_loss(small, loss, surface(p)))
    return training_time(flops - p.budget, 1, PEAK, p.mfu) / hour * p.price


TASKS = (
    Prediction(name="guess", options=("2 times", "10 times", "about 50 times")),
    Value(
        name="multiple",
        right=lambda p: compute_multiple(p.left, gamma(surface(p))),
        wrong={
            "that takes the exponent of the parameters alone": lambda p: p.left ** (-1 / p.a),
            "that takes the sum of both exponents; the budget buys parameters and tokens": (
                lambda p: p.left ** (-1 / (p.a + p.b))
            ),
            "a law with exponent 1 would make it that": lambda p: 1 / p.left,
        },
    ),
    Function(
        name="best_parameters",
        right=lambda compute, E, A, B, a, b: optimal_parameters(compute, LossSurface(E, A, B, a, b)),
        cases=lambda p: [
            (float(p.budget), p.E, p.A, p.B, p.a, p.b), (1e21, 1.69, 406.4, 410.7, 0.34, 0.28),
            (1e19, 1.9, 500.0, 900.0, 0.3, 0.4),
        ],
        wrong={
            "the exponents are exchanged: P* grows as C^(b/(a+b))": (
                "def best_parameters(compute, E, A, B, a, b):\n"
                "    return (a * A / (b * B)) ** (1 / (a + b)) * (compute / 6) ** (a / (a + b))\n"
            ),
            "twenty tokens per parameter is a rule of thumb, not the optimum of this surface": (
                "def best_parameters(compute, E, A, B, a, b):\n    return (compute / 120) ** 0.5\n"
            ),
            "C = 6PD: the 6 is missing": (
                "def best_parameters(compute, E, A, B, a, b):\n"
                "    return (a * A / (b * B)) ** (1 / (a + b)) * compute ** (b / (a + b))\n"
            ),
            "the weight aA/(bB) is missing": (
                "def best_parameters(compute, E, A, B, a, b):\n"
                "    return (A / B) ** (1 / (a + b)) * (compute / 6) ** (b / (a + b))\n"
            ),
        },
        shortcut=(
            "from distlib.scaling import LossSurface, optimal_parameters\n"
            "def best_parameters(compute, E, A, B, a, b):\n"
            "    return optimal_parameters(compute, LossSurface(E, A, B, a, b))\n"
        ),
        tolerance=1e-4,
    ),
    Value(
        name="tokens_each",
        right=lambda p: optimal_tokens(p.budget, surface(p)) / best(p),
        wrong={
            "6 is missing twice: D = C/(6P), and the tokens are divided by P once more": (
                lambda p: 36 * optimal_tokens(p.budget, surface(p)) / best(p)
            ),
            "that is parameters per token": lambda p: best(p) / optimal_tokens(p.budget, surface(p)),
            "D is C/(6P), not C/P": lambda p: p.budget / best(p) ** 2,
        },
    ),
    Value(
        name="days",
        right=lambda p: training_time(p.budget, p.gpus, PEAK, p.mfu) / day,
        wrong={
            "1,979 TFLOP/s is with structured sparsity; dense is half of it": (
                lambda p: training_time(p.budget, p.gpus, 2 * PEAK, p.mfu) / day
            ),
            "that is at the peak; the MFU is missing": lambda p: training_time(p.budget, p.gpus, PEAK, 1.0) / day,
            "that is for one GPU": lambda p: training_time(p.budget, 1, PEAK, p.mfu) / day,
        },
    ),
    Value(
        name="years",
        right=lambda p: training_time(p.budget, 8, PEAK, p.mfu) / (365 * day),
        wrong={
            "that is one GPU": lambda p: training_time(p.budget, 1, PEAK, p.mfu) / (365 * day),
            "that is the cluster": lambda p: training_time(p.budget, p.gpus, PEAK, p.mfu) / (365 * day),
            "that uses the sparse peak": lambda p: training_time(p.budget, 8, 2 * PEAK, p.mfu) / (365 * day),
        },
    ),
    Value(
        name="saved",
        right=saved,
        wrong={
            "that divides by the sparse peak": lambda p: saved(p, peak=2 * PEAK),
            "2PD is the forward pass; training takes 6PD": lambda p: saved(p, compute=2.0),
            "that is what it cost, not what is saved": lambda p: cost(p).hours * p.price / 1e6,
            "that is what it would have cost, not what is saved": lambda p: cost(p).hours * p.price / 1e6 - saved(p),
        },
    ),
    Value(
        name="extra",
        right=extra,
        wrong={
            "that is the whole cost; the question is what it costs more": (
                lambda p: extra(p) + training_time(p.budget, 1, PEAK, p.mfu) / hour * p.price
            ),
            "per GPU of the cluster: the price is of one GPU-hour, and all are paid": lambda p: extra(p) / p.gpus,
            "at the peak: the MFU is missing": lambda p: extra(p) * p.mfu,
        },
    ),
)
