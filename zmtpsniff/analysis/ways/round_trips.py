"""How long packets are on their way to the ends of a connection and back, where no READY tells it.

Theory
------

In ZMTP 3.x a side sends READY as soon as it has the greeting of the other side, so the dossier of the connection knows
how far each side is from the capture point. Older peers have no READY, but their connection begins as any of TCP does:

- The server's host answers the SYN at once, so the answer shows the way to the *server*.
- The *client* begins its greeting as soon as it has this answer. In ZMTP 1.0 that is all of it. In ZMTP 2.0 it goes on
  once it has what the server says, so the end of its greeting comes after two ways to the client and one to the server.
  The same holds for an identity that a later peer sends to one of ZMTP 1.0.

A peer that sends its greeting in one piece seems nearer than it is, so less is held against the network than it took.
"""

import msgspec

from dissectors.events import Greeting
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.net.witness import Attempt

_FAR_NS = 1_000_000  # a shorter time may be that of the program and not of the network
_OLD = frozenset({None, "1.0", "2.0", "3"})  # versions in the greetings of connections without READY


class _Answer(msgspec.Struct, gc=False):
    """The answer to a SYN."""

    client: str
    time_ns: int
    server_ns: int  # to the server and back
    client_ns: int = 0  # to the client and back; 0: not known, or near


class RoundTrips:
    """The times to the ends of connections and back, from their beginnings."""

    def __init__(self) -> None:
        """Start without any."""
        self._answers: Ledger[int, _Answer] = Ledger(limit=10_000)  # by flow

    def attempt(self, attempt: Attempt) -> None:
        """Learn the way to a server that answers."""
        if attempt.answer_ns is not None:
            answered_ns = attempt.first_ns + attempt.answer_ns
            self._answers[attempt.flow] = _Answer(attempt.client, answered_ns, attempt.answer_ns)

    def greet(self, event: Greeting) -> None:
        """Learn the way to a client that speaks ZMTP 1.0 or 2.0, or to whom its server does."""
        answer = self._answers.get(event.flow)
        if answer is None:
            return
        if event.version not in _OLD or event.mechanism is not None:
            del self._answers[event.flow]
        elif event.src == answer.client:
            waited_ns = event.time_ns - answer.time_ns
            is_at_once = event.version == "1.0" or (event.version is None and not event.identity)
            answer.client_ns = waited_ns if is_at_once else (waited_ns - answer.server_ns) // 2

    def to(self, flow: int, address: str) -> int:
        """How long packets take from the capture point to this end of a connection and back; 0 if that is unknown."""
        answer = self._answers.get(flow)
        if answer is None:
            return 0
        length_ns = answer.client_ns if address == answer.client else answer.server_ns
        return length_ns if length_ns >= _FAR_NS else 0

    def end(self, flow: int) -> None:
        """A connection is over."""
        self._answers.pop(flow, None)
