"""Keys for a live capture: those that programs make while they connect, and those that they made long ago."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dissectors.events import AnyEvent, Command
from dissectors.zmtp.curve_keys import SharedKey, parse_key
from zmtpsniff.host.boxes import UnopenedBoxes
from zmtpsniff.host.client import HelperClient
from zmtpsniff.host.owners import ConnectionOwners

_WAIT_SECONDS = 0.5  # that the probes have before memory is searched
_AGAIN_SECONDS = 4.0  # between two searches for one connection
_MOST_SEARCHES = 3  # for one connection
_SEARCH_SECONDS = 20.0
_MOST_REMEMBERED = 1 << 16  # connections


@dataclass(slots=True)
class _MissingKey:
    """A connection whose key is missing."""

    next_search: float
    searches: int = 0


class ConnectionKeys:
    """Passes keys on, and has memory searched for keys that do not come by themselves."""

    def __init__(self, helper: HelperClient, owners: ConnectionOwners) -> None:
        """Ask ``helper`` for what does not come by itself."""
        self.lines: list[str] = []  # where keys go, as lines of a key file; another thread may take them out
        self.save: Callable[[list[str]], None] | None = None  # where the keys of this capture's connections go, too
        self._helper = helper
        self._owners = owners
        self._boxes = UnopenedBoxes()
        self._wanted: dict[int, _MissingKey] = {}
        self._clients: OrderedDict[bytes, None] = OrderedDict()  # C' that HELLOs of this capture showed
        self._others: OrderedDict[bytes, str] = OrderedDict()  # keys whose HELLO has not been seen, by C'

    def take(self, events: Iterable[AnyEvent], sealed: Iterable[Command]) -> None:
        """Look at all events but messages, and at commands that wait for a key. Search for keys that are overdue."""
        for event in events:
            if isinstance(event, Command) and event.name == "HELLO" and isinstance(event.client_key, bytes):
                self._see_client(event.client_key)
        missing = self._boxes.take(events) | self._boxes.take(sealed)
        now = time.monotonic()
        for flow in missing:
            self._search_for(flow, now)

    def end(self, flow: int) -> None:
        """A connection is over."""
        self._boxes.forget(flow)
        self._wanted.pop(flow, None)

    def hear(self, line: str) -> None:
        """Take a key from the helper."""
        self.lines.append(line)
        key = parse_key(line)
        if not isinstance(key, SharedKey) or self.save is None:
            return
        if key.client is None or key.client in self._clients:
            self.save([line])
        else:
            self._others[key.client] = line
            if len(self._others) > _MOST_REMEMBERED:
                self._others.popitem(last=False)

    def _see_client(self, client: bytes) -> None:
        self._clients[client] = None
        if len(self._clients) > _MOST_REMEMBERED:
            self._clients.popitem(last=False)
        line = self._others.pop(client, None)
        if line is not None and self.save is not None:
            self.save([line])

    def _search_for(self, flow: int, now: float) -> None:
        """If it is time, search for the key of a connection that has just shown a box that no key opens."""
        wanted = self._wanted.get(flow)
        connection = self._boxes.connection(flow)
        if wanted is None:
            self._owners.ask(flow, connection.src, connection.dst)
            self._wanted[flow] = _MissingKey(now + _WAIT_SECONDS)
        elif now >= wanted.next_search and wanted.searches < _MOST_SEARCHES and (pids := self._owners.pids(flow)):
            wanted.searches += 1
            wanted.next_search = now + _AGAIN_SECONDS
            self._helper.search(flow, pids, [connection.target], _SEARCH_SECONDS)
