"""Keys for a live capture: those that programs make while they connect, and those that they made long ago."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import chain

from dissectors.events import AnyEvent, Command
from dissectors.zmtp.curve_keys import SharedKey, parse_key
from zmtpsniff.host.boxes import UnopenedBoxes, UnopenedConnection
from zmtpsniff.host.client import HelperClient
from zmtpsniff.host.owners import ConnectionOwners

_WAIT_SECONDS = 0.5  # that the probes have before memory is searched
_AGAIN_SECONDS = 4.0  # between two searches for one connection
_MOST_SEARCHES = 3  # for one connection
_SEARCH_SECONDS = 20.0
_MOST_REMEMBERED = 1 << 16  # connections


class ConnectionKeys:
    """Passes keys on, and has memory searched for keys that do not come by themselves."""

    def __init__(self, helper: HelperClient, owners: ConnectionOwners) -> None:
        """Ask ``helper`` for what does not come by itself."""
        self.lines: list[str] = []  # where keys go, as lines of a key file; another thread may take them out
        self.save: Callable[[list[str]], None] | None = None  # where the keys of this capture's connections go, too
        self._helper = helper
        self._owners = owners
        self._boxes = UnopenedBoxes()
        # By C': keys whose HELLO has not been seen, or None where HELLO of this capture showed it.
        self._clients: OrderedDict[bytes, str | None] = OrderedDict()

    def take(self, events: Iterable[AnyEvent], sealed: Iterable[Command]) -> None:
        """Look at all events but messages, and at commands that wait for a key. Search for keys that are overdue."""
        for event in events:
            if isinstance(event, Command) and event.name == "HELLO" and isinstance(event.client_key, bytes):
                line = self._clients.get(event.client_key)
                self._remember(event.client_key, None)
                if line is not None and self.save is not None:
                    self.save([line])
        for connection in self._boxes.take(chain(events, sealed)):
            self._search_for(connection)

    def end(self, flow: int) -> None:
        """A connection is over."""
        self._boxes.forget(flow)

    def see(self, line: str) -> None:
        """Take a key from the helper."""
        self.lines.append(line)
        key = parse_key(line)
        if not isinstance(key, SharedKey) or self.save is None:
            return
        if key.client is None or self._clients.get(key.client, line) is None:
            self.save([line])
        else:
            self._remember(key.client, line)

    def _remember(self, client: bytes, line: str | None) -> None:
        self._clients[client] = line
        if len(self._clients) > _MOST_REMEMBERED:
            self._clients.popitem(last=False)

    def _search_for(self, connection: UnopenedConnection) -> None:
        """If it is time, search for the key of a connection that has just shown a box that no key opens."""
        now = time.monotonic()
        if connection.next_search is None:
            self._owners.ask(connection.flow, connection.src, connection.dst)
            connection.next_search = now + _WAIT_SECONDS
        elif (
            now >= connection.next_search
            and connection.searches < _MOST_SEARCHES
            and (pids := self._owners.pids(connection.flow))
        ):
            connection.searches += 1
            connection.next_search = now + _AGAIN_SECONDS
            self._helper.search(connection.flow, pids, [connection.target], _SEARCH_SECONDS)
