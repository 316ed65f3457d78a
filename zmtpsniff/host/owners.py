"""The processes at the ends of connections: asked for when a connection is new, added to its summary."""

import re
import time
from typing import Any

from dissectors.events import Connection, Process
from zmtpsniff.host.client import HelperClient
from zmtpsniff.host.processes import look_up, process_of
from zmtpsniff.host.sockets import SocketEnds

_PATIENCE_SECONDS = 0.2  # wait so long at the end for answers about connections that had just begun
_LOOK_SECONDS = 5.0  # wait so long for the helper's first look, on a machine that is slow to give it a processor
_TRACED = re.compile(r"pid-(\d+):\d+")  # the end of a program under strace (net/addresses.py)

Answer = tuple[int, Process]
"""When somebody looked, in nanoseconds since the Unix epoch, and who it was."""


class ConnectionOwners:
    """The processes behind connections.

    An answer says when the helper looked. It counts only for a connection that was open then, so that it does not name
    the owner of a port before or after.
    """

    def __init__(self, helper: HelperClient) -> None:
        """Ask ``helper``."""
        self._helper = helper
        self._asked: dict[int, float] = {}  # connections that are open, by their flows, and when they were asked about
        self._answers: dict[int, dict[str, Answer]] = {}  # by flow, and address of an end
        self._sought: set[int] = set()  # the open ones that the helper has not looked for yet

    def ask(self, flow: int, src: str, dst: str) -> None:
        """Ask about a connection, unless that was done."""
        if flow in self._asked:
            return
        self._answers[flow] = {}
        self._asked[flow] = time.monotonic()
        if found := _TRACED.fullmatch(src) or _TRACED.fullmatch(dst):
            if (process := look_up(process_of(int(found[1])))) is not None:
                self._answers[flow][found[0]] = time.time_ns(), process
        elif not src.startswith("peer-of-"):
            self._sought.add(flow)
            self._helper.find_owners(flow, [SocketEnds(src, dst), SocketEnds(dst, src)])

    def hear(self, reply: dict[str, Any]) -> None:
        """Take an answer of the helper."""
        answers = self._answers.get(reply["id"])
        if answers is not None:  # else it is over already
            process = Process(reply["pid"], reply["name"], reply["container"], reply["pod"])
            answers.setdefault(reply["local"], (reply["time_ns"], process))

    def note_look(self, flow: int) -> None:
        """The helper has looked for the ends of a connection for the first time, and reported what it found."""
        self._sought.discard(flow)

    def pids(self, flow: int) -> list[int]:
        """The processes that are known to have a connection."""
        return [process.pid for _, process in self._answers.get(flow, {}).values()]

    def process(self, flow: int, address: str) -> Process | None:
        """The process that is known so far to have an end of a connection that is open."""
        answer = self._answers.get(flow, {}).get(address)
        return None if answer is None else answer[1]

    def add_to(self, event: Connection) -> None:
        """Add to a connection's record whose its ends were."""
        asked = self._asked.pop(event.flow, None)
        if asked is None:
            return
        answers = self._answers[event.flow]
        while event.end == "open" and len(answers) < 2:
            patience = _LOOK_SECONDS if event.flow in self._sought else _PATIENCE_SECONDS
            if time.monotonic() - asked > patience:
                break
            time.sleep(0.01)
        self._sought.discard(event.flow)
        del self._answers[event.flow]
        for peer in (event.client, event.server):
            if peer.address in answers:
                time_ns, process = answers[peer.address]
                if event.start_ns <= time_ns and (time_ns <= event.end_ns or event.end in ("open", "timeout")):
                    peer.process = process
