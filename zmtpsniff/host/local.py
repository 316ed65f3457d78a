"""The machine that a live capture runs on: it adds to connections which processes have their ends."""

import re
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from dissectors.events import AnyEvent, Connection, Message, Process
from zmtpsniff.host.client import HelperClient
from zmtpsniff.host.processes import look_up
from zmtpsniff.host.sockets import SocketEnds

_PATIENCE_SECONDS = 0.2  # for answers about connections that began just before the end of the capture
_TRACED = re.compile(r"pid-(\d+):\d+")  # the end of a program under strace (net/addresses.py)

Answer = tuple[int, Process]
"""When somebody looked, in nanoseconds since the Unix epoch, and who it was."""


class LocalHost:
    """Knows the processes behind connections: asks the helper when one is new, and adds to its record what it heard.

    An answer says when the helper looked. It counts only for a connection that lived then, so that nobody is named for
    a port that was another's before or after.
    """

    def __init__(self, helper: HelperClient, tell: Callable[[str], None]) -> None:
        """Listen to the replies of a helper from now on; ``tell`` is called with lines for people."""
        self._helper = helper
        self._tell = tell
        self._asked: dict[int, float] = {}  # connections that are open, by their flows, and when they were asked about
        self._answers: dict[int, dict[str, Answer]] = {}  # by flow, and address of an end
        threading.Thread(target=self._listen, daemon=True).start()

    def take(self, events: Iterable[AnyEvent]) -> None:
        """See events in their order: ask about connections that are new, add processes to those that are over."""
        for event in events:
            if isinstance(event, Connection):
                self._add(event)
            elif not isinstance(event, Message):  # of every connection something else comes first
                flow = getattr(event, "flow", None)
                if flow is not None and flow not in self._asked:
                    self._ask(flow, getattr(event, "src", None), getattr(event, "dst", None))

    def close(self) -> None:
        """End the helper."""
        self._helper.close()

    def _ask(self, flow: int, src: str | None, dst: str | None) -> None:
        if src is None or dst is None:
            return
        self._asked[flow] = time.monotonic()
        self._answers[flow] = {}
        if found := _TRACED.fullmatch(src) or _TRACED.fullmatch(dst):
            if (process := look_up(int(found[1]))) is not None:
                self._answers[flow][found[0]] = time.time_ns(), process
        elif not src.startswith("peer-of-"):
            self._helper.find_owners(flow, [SocketEnds(src, dst), SocketEnds(dst, src)])

    def _add(self, event: Connection) -> None:
        """Add to a connection's record whose its ends were."""
        asked = self._asked.pop(event.flow, None)
        if asked is None:
            return
        answers = self._answers[event.flow]
        while event.end == "open" and len(answers) < 2 and time.monotonic() - asked < _PATIENCE_SECONDS:
            time.sleep(0.01)
        del self._answers[event.flow]
        for peer in (event.client, event.server):
            if peer.address in answers:
                time_ns, process = answers[peer.address]
                if event.start_ns <= time_ns and (time_ns <= event.end_ns or event.end in ("open", "timeout")):
                    peer.process = process

    def _listen(self) -> None:
        while (reply := self._helper.replies.get()) is not None:
            if reply["is"] == "owner":
                self._hear(reply)
            elif reply["is"] == "told":
                self._tell(reply["text"])

    def _hear(self, reply: dict[str, Any]) -> None:
        answers = self._answers.get(reply["id"])
        if answers is not None:  # else it is over already
            process = Process(reply["pid"], reply["name"], reply["container"])
            answers.setdefault(reply["local"], (reply["time_ns"], process))
