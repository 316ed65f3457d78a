"""The processes at the ends of connections: asked for when a connection is new, added to its summary."""

import re
import time
from dataclasses import dataclass, field
from typing import Any

from dissectors.events import Connection, Process
from zmtpsniff.host.client import HelperClient
from zmtpsniff.host.kernel_sockets import SocketEnds
from zmtpsniff.host.processes import look_up, process_of

_PATIENCE_SECONDS = 0.2  # wait so long at the end for answers about connections that had just begun
_LOOK_SECONDS = 5.0  # wait so long for the helper's first look, on a machine that is slow to give it a processor
_TRACED = re.compile(r"pid-(\d+):\d+")  # the end of a program under strace (net/addresses.py)


@dataclass(slots=True)
class _Asked:
    """An open connection with its facts."""

    since: float
    is_sought: bool = False  # the helper has not looked for it yet
    found: dict[str, tuple[int, Process]] = field(default_factory=dict)  # when somebody looked, and who it was, by end


class ConnectionOwners:
    """The processes behind connections.

    An answer says when the helper looked, in nanoseconds since the Unix epoch. It counts only for a connection that was
    open then, so that it does not name the owner of a port before or after.
    """

    def __init__(self, helper: HelperClient) -> None:
        """Ask ``helper``."""
        self._helper = helper
        self._asked: dict[int, _Asked] = {}  # by flow

    def ask(self, flow: int, src: str, dst: str) -> None:
        """Ask about a connection, unless that was done."""
        if flow in self._asked:
            return
        asked = self._asked[flow] = _Asked(time.monotonic())
        if found := _TRACED.fullmatch(src) or _TRACED.fullmatch(dst):
            if (process := look_up(process_of(int(found[1])))) is not None:
                asked.found[found[0]] = time.time_ns(), process
        elif not src.startswith("peer-of-"):
            asked.is_sought = True
            self._helper.find_owners(flow, [SocketEnds(src, dst), SocketEnds(dst, src)])

    def see(self, reply: dict[str, Any]) -> None:
        """Take an answer of the helper, or that it has looked for the first time, and reported what it found."""
        asked = self._open(reply["id"])
        if reply["is"] == "looked":
            asked.is_sought = False
        else:
            process = Process(reply["pid"], reply["name"], reply["container"], reply["pod"])
            asked.found.setdefault(reply["local"], (reply["time_ns"], process))

    def pids(self, flow: int) -> list[int]:
        """The processes that are known to have a connection."""
        return [process.pid for _, process in self._open(flow).found.values()]

    def process(self, flow: int, address: str) -> Process | None:
        """The process that has an end of a connection, as soon as that is known, while the connection is open."""
        found = self._open(flow).found.get(address)
        return found and found[1]

    def _open(self, flow: int) -> _Asked:
        """The facts that are known of a connection; none if it is over."""
        return self._asked.get(flow) or _Asked(0.0)

    def add_to(self, event: Connection) -> None:
        """Add to a connection's record whose its ends were."""
        asked = self._asked.get(event.flow)
        if asked is None:
            return
        while event.end == "open" and len(asked.found) < 2:
            if time.monotonic() - asked.since > (_LOOK_SECONDS if asked.is_sought else _PATIENCE_SECONDS):
                break
            time.sleep(0.01)
        del self._asked[event.flow]
        for peer in (event.client, event.server):
            if peer.address in asked.found:
                time_ns, process = asked.found[peer.address]
                if event.start_ns <= time_ns and (time_ns <= event.end_ns or event.end in ("open", "timeout")):
                    peer.process = process
