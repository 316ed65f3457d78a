"""How much the flow table keeps, and for how long."""

from typing import NamedTuple

_WAITING_OCTETS = 64 << 20
_SHARE = 16  # one direction may have a sixteenth of all the octets that may wait


class FlowLimits(NamedTuple):
    """Bounds of memory and time."""

    waiting_octets_per_direction: int = _WAITING_OCTETS // _SHARE
    waiting_octets: int = _WAITING_OCTETS
    flows: int = 50_000  # at once
    idle_seconds: float = 86_400.0
    idle_seconds_unknown: float = 600.0  # until a flow that is not known to be ZMTP is over
    linger_seconds: float = 5.0  # so long late segments of a closed flow may come
    recent_octets: int = 64 << 20  # octets of delivered segments to keep, to compare retransmissions with them

    def with_waiting(self, octets: int) -> "FlowLimits":
        """The same limits, but with so many octets that may wait in all, and a direction's share of them."""
        return self._replace(waiting_octets=octets, waiting_octets_per_direction=octets // _SHARE)
