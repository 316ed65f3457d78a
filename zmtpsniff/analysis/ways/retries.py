"""Requests that clients gave up and sent again, on the same connection or on a new one."""

from collections import deque
from functools import partial

from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.ways.hops import Hop, OpenWay
from zmtpsniff.analysis.ways.way_connections import WayConnection

_GIVEN_UP = 16  # requests in vain that are remembered of the clients of one host that closed connections to one server
_SERVED = 4096  # such pairs of a host and a server
_APART_NS = 20_000_000  # of clients that close within this time, any may be the one that connects next


class Retries:
    """Links the requests of each client with those that it sent before."""

    def __init__(self) -> None:
        """Start without any."""
        # By the client's host and the server: the last requests of clients that closed their connections.
        self._given_up: Ledger[tuple[str, str], deque[OpenWay]] = Ledger(partial(deque, maxlen=_GIVEN_UP), _SERVED)

    def end(self, connection: WayConnection) -> None:
        """A connection was closed: its clients have given up what has no reply."""
        for stream in connection.streams.values():
            way = stream.last_request
            if way is not None and not way.first.answered:
                self._given_up.at((stream.src_host, way.first.dst)).append(way)

    def note_request(self, way: OpenWay) -> None:
        """Link a request of a REQ with the one before on its connection: the REQ may have given that up."""
        stream = way.first.stream
        way.earlier, way.is_first = stream.last_request, stream.last_request is None
        if way.earlier is not None:
            way.earlier.again_ns = way.first.time_ns
        stream.last_request = way

    def given_up_before(self, first: Hop) -> OpenWay | None:
        """The request that a client gave up when it closed its connection, and made a new one for ``first``.

        It is None if no client on its host closed a connection to this server, or several did at about the same time.
        """
        given_up = self._given_up.get((first.stream.src_host, first.dst), deque[OpenWay]())
        by_ns = first.stream.connected_ns + _APART_NS  # the kernel may close the old connection a little later
        others = [way for way in given_up if way.first.time_ns < first.time_ns]
        closed = sorted((_closed_ns(way), place) for place, way in enumerate(others) if _closed_ns(way) <= by_ns)
        if not closed or (len(closed) > 1 and closed[-2][0] > closed[-1][0] - _APART_NS):
            return None
        way = others[closed[-1][1]]
        given_up.remove(way)
        return way


def _closed_ns(way: OpenWay) -> int:
    """When the connection over which a way begins was closed; 0 if it is open."""
    return way.first.stream.shared.closed_ns or 0
