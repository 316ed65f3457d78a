"""How much is kept of flows, and for how long."""

from typing import NamedTuple

_WAITING_OCTETS = 64 << 20
_SHARE = 16  # of what may wait in all, the part that one direction may have: one of so many


class FlowLimits(NamedTuple):
    """Bounds of memory and time."""

    waiting_octets_per_direction: int = _WAITING_OCTETS // _SHARE
    waiting_octets: int = _WAITING_OCTETS
    flows: int = 50_000  # at once
    idle_seconds: float = 86_400.0
    idle_seconds_unknown: float = 600.0  # of flows that are not ZMTP, or not yet
    linger_seconds: float = 5.0  # how long late segments of a closed flow are expected
    recent_octets: int = 64 << 20  # of segments that have gone on, with which retransmissions are compared

    def with_waiting(self, octets: int) -> "FlowLimits":
        """The same, but with so many octets that may wait in all, and a direction's share of them."""
        return self._replace(waiting_octets=octets, waiting_octets_per_direction=octets // _SHARE)
