"""Heartbeats (37/ZMTP, "Connection Heartbeats"): PING and PONG, how long that took, and peers that fell silent."""

from collections import deque

from dissectors.events import Command, Connection, Message, at_hand
from zmtpsniff.patterns.conversation import Conversation, Findings, Rules

_LONGEST_CONTEXT = 255  # octets; more than 16 are not allowed
_PENDING = 64  # PINGs of one side without a PONG


class Heartbeats(Rules):
    """The heartbeats of one connection."""

    def __init__(self, conversation: Conversation, findings: Findings) -> None:
        """Look at the connection from its first PING on."""
        self._conversation = conversation
        self._findings = findings
        self._pending: dict[str, deque[Command]] = {}  # by sender
        self._promises: dict[str, Command] = {}  # of each side the last PING that has a time to live
        self._heard_ns: dict[str, int] = {}
        self.message = self._hear

    def command(self, event: Command) -> None:
        """Take note of any command."""
        self._hear(event)
        if event.name == "PING" and len(at_hand(event.context or b"")) <= _LONGEST_CONTEXT:
            self._pending.setdefault(event.src, deque(maxlen=_PENDING)).append(event)
            if event.ttl_ms:
                self._promises[event.src] = event
        elif event.name == "PONG":
            self._answer(event)

    def _answer(self, event: Command) -> None:
        pings = self._pending.get(event.dst, deque())
        for ping in pings:
            if (ping.context or b"") == (event.context or b""):
                event.latency_ns = event.time_ns - ping.time_ns
                event.request = ping.packet
                while pings and pings.popleft() is not ping:
                    pass  # an older one that was not answered is not going to be
                return
        if not self._conversation.blind:
            self._findings.report("pong-without-ping", event, "a PONG that answers no PING")

    def _hear(self, event: Command | Message) -> None:
        """A side is alive; has it been silent for longer than it had promised?"""
        promise = self._promises.get(event.src)
        if promise is not None and promise.ttl_ms is not None:
            silent_ns = event.time_ns - max(self._heard_ns.get(event.src, 0), promise.time_ns)
            if silent_ns > promise.ttl_ms * 1_000_000:
                self._findings.report(
                    "heartbeat-late",
                    event,
                    f"silent for {silent_ns / 1e6:,.0f} ms, though its PING announced {promise.ttl_ms:,} ms at most",
                )
        self._heard_ns[event.src] = event.time_ns

    def finish(self, event: Connection, now_ns: int) -> None:
        """Report the PINGs that stayed without an answer, and a side that fell silent."""
        if self._conversation.blind:
            return
        end_ns = now_ns if event.end == "open" else event.end_ns
        for side, pings in self._pending.items():
            if not pings:
                continue
            first = pings[0]
            waited_ms = (end_ns - first.time_ns) / 1e6
            heard_ns = self._heard_ns.get(first.dst, 0)
            if heard_ns > first.time_ns:
                severity = "note"  # alive all the same: anything that it says counts
            else:
                severity = "warning" if waited_ms > (first.ttl_ms or 1000) else "note"
            count = f"{len(pings)} PINGs" if len(pings) > 1 else "a PING"
            self._findings.report(
                "ping-unanswered",
                first,
                f"{count} of {side} without a PONG, the first for {waited_ms:,.0f} ms",
                severity,
            )
