"""Each algorithm of `distlib.play`, played once per setting on numbers that tell every element from every other."""

import functools
import inspect

import numpy as np

from distlib import play
from distlib.alphabeta import Link

RANKS = [*range(1, 18), 64]
LINK = Link(3.0, 7.0)
INTRA, INTER = Link(2.0, 11.0), Link(5.0, 3.0)
SLOW_INTRA, FAST_INTER = Link(6.0, 2.0), Link(1.0, 13.0)  # the levels' roles exchanged, to test each max()
OPERATIONS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"]
ALGORITHMS = [
    name
    for name, function in inspect.getmembers(play, inspect.isfunction)
    if not name.startswith("_") and "arrays" in inspect.signature(function).parameters
]


def takes(name, parameter):
    return parameter in inspect.signature(getattr(play, name)).parameters


def links_of(name):
    return (INTRA, INTER) if takes(name, "intra") else (LINK,)


def operation(name):
    return next(each for each in OPERATIONS if name.endswith(each))


def needs_power_of_two(name):
    return name.startswith(("recursive", "halving"))


def settings(name):
    """The arguments after `arrays`, by rank count: every chunk count, and every gpus and rails that divide."""
    for ranks in RANKS:
        if needs_power_of_two(name) and ranks & (ranks - 1):
            continue
        if takes(name, "chunks"):
            for chunks in (1, 2, 3, 7) if ranks < 64 else (1, 4):
                yield ranks, (LINK, chunks)
        elif takes(name, "rails"):
            for gpus in range(1, ranks + 1) if ranks < 64 else (8,):
                for rails in range(1, gpus + 1):
                    if ranks % gpus == gpus % rails == 0:
                        yield ranks, (gpus, *links_of(name), rails)
                        if ranks < 9 and takes(name, "intra"):
                            yield ranks, (gpus, SLOW_INTRA, FAST_INTER, rails)
        elif takes(name, "axes"):
            for axes in range(1, 7):
                if round(ranks ** (1 / axes)) ** axes == ranks:
                    yield ranks, (LINK, axes)
        else:
            yield ranks, (LINK,)


def arrays(ranks, size):
    return [row.copy() for row in np.random.default_rng(ranks).integers(0, 2**40, (ranks, size))]


def divisible(ranks, arguments):
    """A number of elements that every algorithm's pieces divide: halves, chunks, rails and ranks."""
    whole = [value for value in arguments if isinstance(value, int)]
    return 2 * ranks * int(np.prod(whole[-1:]))


@functools.cache
def played(name, ranks, arguments, size):
    return getattr(play, name)(arrays(ranks, size), *arguments)
