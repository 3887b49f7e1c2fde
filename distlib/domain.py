"""The domain of a law, stated beside it: `@domain(n=NONNEGATIVE, ranks=COUNT)`.

The decorator checks each named argument, scalar or array, before the body runs, so a body stays one equation. A
value outside its domain raises ValueError with the argument's name, the value and what is allowed. It serves
functions and records (dataclasses) alike.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

#: A number, or an array of numbers that broadcasts.
Real = Any
Target = TypeVar("Target", bound=Callable[..., Any])


@dataclass(frozen=True)
class Domain:
    """A set of real numbers: what it allows, in words, and the test of membership, element by element."""

    allowed: str
    holds: Callable[[Real], Real]


def at_least(lowest: float) -> Domain:
    """The finite numbers from `lowest` up."""
    return Domain(f"a finite number ≥ {lowest}", lambda x: (x >= lowest) & (x < np.inf))


def whole(lowest: int) -> Domain:
    """The whole numbers from `lowest` up."""
    return Domain(f"a whole number ≥ {lowest}", lambda x: (x >= lowest) & (x < np.inf) & (x == np.floor(x)))


POSITIVE = Domain("a finite number > 0", lambda x: (x > 0) & (x < np.inf))
NONNEGATIVE = at_least(0)
FRACTION = Domain("a number from 0 to 1", lambda x: (x >= 0) & (x <= 1))
COUNT = whole(1)
POWER_OF_TWO = Domain(
    "a power of two (1, 2, 4, …)", lambda x: (x >= 1) & (x < np.inf) & (np.frexp(x)[0] == 0.5)
)


def check(name: str, value: Real, domain: Domain) -> Real:
    """`value` itself if it lies in `domain`: a number as a Python number, a sequence as an array of float64.

    Raises ValueError that names the argument, the value (for an array the first bad one, with its index) and what
    is allowed. Booleans, strings, None and complex numbers are not numbers here.
    """
    if (isinstance(value, float) or type(value) is int) and domain.holds(value):
        return value
    if type(value) is np.ndarray and value.dtype == float and value.ndim and domain.holds(value).all():
        return value
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} must be {domain.allowed}, got a ragged sequence {value!r}") from None
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be {domain.allowed}, got {value!r}")
    numbers = array.astype(float)
    inside = domain.holds(numbers)
    if not np.all(inside):
        bad = np.argwhere(~inside)[0]
        where = f" at index {tuple(int(i) for i in bad)}" if array.ndim else ""
        raise ValueError(f"{name} must be {domain.allowed}, got {array[tuple(bad)]}{where}")
    return numbers if array.ndim else array.item()


def domain(**domains: Domain) -> Callable[[Target], Target]:
    """Decorate a function or a dataclass so that each named argument is checked against its domain when it is passed.

    A name that is not a parameter raises TypeError when the law is defined.
    """

    def decorate(target: Target) -> Target:
        law = target.__init__ if inspect.isclass(target) else target
        places = {name: i for i, name in enumerate(inspect.signature(law).parameters)}
        unknown = set(domains) - set(places)
        if unknown:
            raise TypeError(f"{target.__name__} has no parameter {', '.join(sorted(unknown))}")

        @functools.wraps(law)
        def checked(*args: Any, **kwargs: Any) -> Any:
            values = list(args)
            for name, allowed in domains.items():
                if name in kwargs:
                    kwargs[name] = check(name, kwargs[name], allowed)
                elif places[name] < len(values):
                    values[places[name]] = check(name, values[places[name]], allowed)
            return law(*values, **kwargs)

        if inspect.isclass(target):
            target.__init__ = checked  # type: ignore[method-assign]
            return target
        return checked  # type: ignore[return-value]

    return decorate
