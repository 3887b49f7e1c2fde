"""One message on one link: Principle 11, the α–β law, T(n) = α + n/β.

α is the start-up latency in seconds, β the bandwidth in bytes per second, one way, n the message size in bytes.
Much of the literature writes β for seconds per byte (Hockney 1994 has r∞ and n½); here β is bandwidth.
"""

from dataclasses import dataclass

from distlib.domain import NONNEGATIVE, POSITIVE, Real, domain


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


@domain(n=NONNEGATIVE)
def effective_bandwidth(n: Real, link: Link) -> Real:
    """n/T(n) = β·n/(n + n½), in byte/s: what a message of n bytes gets from the link."""
    return n / transfer_time(n, link)
