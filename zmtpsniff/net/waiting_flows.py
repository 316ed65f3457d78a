"""The flows with segments that wait for others, and how long they may wait."""

from collections.abc import Mapping

from msgspec import field

from dissectors.snapshots import Live, Part, SnapshotError
from zmtpsniff.net.flow import Flow

LONGEST_NS = 60_000_000_000
"""The longest time that a segment waits for others."""


class WaitingFlows(Part):
    """The flows that lack octets. ``linger_ns`` is as long as a flow is known after its end."""

    _linger_ns: Live[int]
    _flows: Live[dict[int, Flow]] = field(default_factory=dict)
    _saved: list[int] = field(default_factory=list)  # in a snapshot: the numbers of these flows

    def see(self, flow: Flow) -> None:
        """Learn that a flow has changed: it may lack octets now, or lack them no longer."""
        if flow.awaits_octets:
            self._flows.setdefault(flow.number, flow)
        else:
            self.forget(flow)

    def forget(self, flow: Flow) -> None:
        """A flow waits for nothing any more."""
        self._flows.pop(flow.number, None)

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
        if flow.number not in self._flows:
            return False
        if flow.was_reset:
            longest_ns = max(longest_ns, self._linger_ns)
        elif flow.awaits_network:
            longest_ns = LONGEST_NS
        return now_ns - flow.since_ns > longest_ns

    # ------------------------------------------------------------------ snapshots

    def before_save(self) -> None:
        """List the numbers."""
        self._saved = list(self._flows)

    def find(self, flows: Mapping[int, Flow]) -> None:
        """Find the flows of a snapshot by their numbers; raises SnapshotError if there is no such flow."""
        try:
            self._flows = {number: flows[number] for number in self._saved}
        except KeyError as error:
            raise SnapshotError(f"not a snapshot of flows: there is no flow {error}") from error
