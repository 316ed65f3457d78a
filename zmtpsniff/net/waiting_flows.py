"""The flows with segments that wait for others, and how long they may wait."""

from zmtpsniff.net.flow import Flow

LONGEST_NS = 60_000_000_000
"""The longest time that a segment waits for others."""


class WaitingFlows:
    """The flows that lack octets."""

    def __init__(self, flows: dict[int, Flow], linger_ns: int) -> None:
        """``flows`` has them by their numbers. ``linger_ns`` is as long as a flow is known after its end."""
        self._flows = flows
        self._linger_ns = linger_ns

    def has(self, flow: Flow) -> bool:
        """Whether a flow lacks octets."""
        return flow.number in self._flows

    @property
    def flows(self) -> list[Flow]:
        """These flows."""
        return list(self._flows.values())

    @property
    def horizons(self) -> dict[int, int]:
        """By the numbers of these flows: the time up to which all octets are here, except lost ones."""
        return {number: flow.sure_ns for number, flow in self._flows.items()}

    def is_overdue(self, flow: Flow, now_ns: int, longest_ns: int = LONGEST_NS) -> bool:
        """Whether segments of a flow have waited for too long.

        Those that wait for octets which were received may wait ``longest_ns``. After a RST, segments wait as long as a
        flow lingers. By then it is known whether the RST counts, and so whether the network or the capture lost octets.
        Two losses in a row can make TCP wait for seconds before it sends octets again.
        """
        if not self.has(flow):
            return False
        if flow.was_reset:
            longest_ns = max(longest_ns, self._linger_ns)
        elif flow.awaits_network:
            longest_ns = LONGEST_NS
        return now_ns - flow.since_ns > longest_ns
