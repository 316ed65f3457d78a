"""The base of all inquiries: the events that they may take, and tables in bounded memory."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from dissectors.events import Capture, Command, Connection, Greeting, Message, Problem, Subscription
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.finding import Claim
from zmtpsniff.net.witness import Attempt, Pause, Stall

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


Listener = Callable[[Sequence[Message]], None]
"""Takes consecutive messages of one connection, with no event of another connection between them."""


class Inquiry:
    """One family of findings. It overrides the methods for the events that it needs; by default it gets none."""

    def begin(self, dossier: Dossier) -> Listener | None:
        """Both sides of a connection have announced their types.

        Returns what takes its messages, None if nothing does.
        """

    def earlier(self) -> Sequence[int]:
        """Connections that have begun before, and whose messages the listener of :meth:`begin` wants from here on."""
        return ()

    def meet(self, dossier: Dossier, reply: Message) -> Listener | None:
        """A reply has its request, on a connection whose sockets have not announced their types.

        Returns what takes the messages of the connection from this one on, None if nothing does.
        """

    def greeting(self, dossier: Dossier, event: Greeting) -> None:
        """Take note of a greeting."""

    def command(self, dossier: Dossier, event: Command) -> None:
        """Take note of a command other than CURVE's MESSAGE, PING and PONG."""

    def sealed(self, event: Command) -> None:
        """Take note of CURVE's MESSAGE, which no key has opened."""

    def subscription(self, dossier: Dossier, event: Subscription) -> None:
        """Take note of a subscription or its end."""

    def problem(self, event: Problem) -> None:
        """Take note of a problem."""

    def lose(self, dossier: Dossier) -> None:
        """Octets of a connection are missing."""

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """A connection, or the capture, is over at ``until_ns``. ``dossier`` is None if neither side said anything."""

    def totals(self, event: Capture) -> None:
        """The capture is over."""

    def attempt(self, attempt: Attempt) -> None:
        """Take note of an attempt to connect."""

    def stall(self, stall: Stall) -> None:
        """Take note of a receiver that stopped for a while."""

    def pause(self, pause: Pause) -> None:
        """Take note of a connection on which nothing came for a while."""

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """The findings; called once, at the end, when it is ``now_ns``."""
        return ()


class Ledger(Generic[Key, Value]):
    """A table in bounded memory: the entry that has not been used for the longest gives way."""

    def __init__(self, make: Callable[[], Value], limit: int = 10_000) -> None:
        """``make`` makes an empty entry."""
        self.entries: OrderedDict[Key, Value] = OrderedDict()
        self._make = make
        self._limit = limit

    def at(self, key: Key) -> Value:
        """The entry of a key, made if there is none."""
        entries = self.entries
        entry = entries.get(key)
        if entry is not None:
            entries.move_to_end(key)
            return entry
        entry = entries[key] = self._make()
        if len(entries) > self._limit:
            entries.popitem(last=False)
        return entry

    def put(self, key: Key, entry: Value) -> None:
        """Remember a new entry."""
        self.entries[key] = entry
        if len(self.entries) > self._limit:
            self.entries.popitem(last=False)
