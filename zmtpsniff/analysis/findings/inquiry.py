"""The base of all inquiries: the events that they may take."""

from collections.abc import Callable, Iterable, Sequence

from dissectors.events import Capture, Command, Connection, Greeting, Message, Problem, Subscription
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.finding import Claim
from zmtpsniff.net.witness import Attempt, Pause, Stall

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


class WholeCaptureInquiry(Inquiry):
    """An inquiry about what did not happen: it says nothing if packets were dropped, which may have shown that."""

    is_whole = True  # the capture dropped no packet

    def totals(self, event: Capture) -> None:
        """Packets that were dropped may be the ones that are sought."""
        self.is_whole = not event.dropped
