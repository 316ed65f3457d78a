"""Subscriptions that a subscriber lost when it connected again: subscriptions-lost.

Theory
------

When a connection comes back, libzmq sends all subscriptions of the socket again, one behind the other, in the order of
their octets. They go through the same queue as everything that the socket sends. Beyond its mark (ZMQ_SNDHWM) they are
dropped without a word (libzmq#4064), and the subscriber gets nothing of these topics any more.

A program that starts anew may subscribe to less. So the new connection must have a part of the topics of the old one
and no others, in the order of their octets, and must have cancelled none.
"""

from collections.abc import Iterable
from typing import NamedTuple

from dissectors.address import host_of
from dissectors.events import Connection, Subscription
from dissectors.zmtp.sockets import SUBSCRIBERS
from zmtpsniff.analysis.dossier import Dossier, ends_of
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import Inquiry
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.words.counts import plural

_LEAST_TOPICS = 5  # that came again; few may be in order by chance
_LEAST_NS = 1_000_000_000  # for so long the new connection lasts, at least
_AWAY_NS = 600_000_000_000
_MOST = 100  # connections between the same two
_MOST_TOPICS = 100_000  # of all connections that are remembered


class _Subscribed(NamedTuple):
    """A connection that is over, and its topics."""

    start_ns: int
    end_ns: int
    packet: int
    flow: int
    subscriber: str  # the address of the socket, or its host if it connects
    topics: list[bytes]
    is_closed: bool
    has_cancelled: bool


class Resubscriptions(Inquiry):
    """Subscriptions before and after a connection came back."""

    def __init__(self) -> None:
        """Start without any."""
        self._pairs: Ledger[tuple[str, str], list[_Subscribed]] = Ledger(list)
        self._cancelled: Ledger[int, None] = Ledger()
        self._count = 0

    def subscription(self, dossier: Dossier, event: Subscription) -> None:
        """Remember who cancels."""
        if event.action == "cancel":
            self._cancelled.at(event.flow)

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Remember the topics of a connection."""
        has_cancelled = self._cancelled.pop(event.flow, 0) is None
        if dossier is None or dossier.blind or event.handshake != "complete":
            return
        topics = [topic for topic in event.subscriptions if isinstance(topic, bytes)]
        self._count += len(topics)
        pair = self._pairs.at(ends_of(event))
        if len(topics) < _LEAST_TOPICS or len(pair) >= _MOST or self._count > _MOST_TOPICS:
            return
        kind = event.client.socket_type
        subscriber = host_of(event.client.address) if kind in SUBSCRIBERS else event.server.address
        pair.append(
            _Subscribed(
                event.start_ns, until_ns, dossier.packet, event.flow, subscriber, topics, event.is_closed, has_cancelled
            )
        )

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Subscribers that got fewer topics back than they had."""
        for (host, server), pair in self._pairs.items():
            for after in pair:
                before = [one for one in pair if one.is_closed and 0 <= after.start_ns - one.end_ns <= _AWAY_NS]
                having = set(after.topics)
                if after.has_cancelled or after.end_ns - after.start_ns < _LEAST_NS:
                    continue
                if len(before) != 1 or not having < set(before[0].topics) or after.topics != sorted(after.topics):
                    continue
                publisher = server if after.subscriber == host else host
                had, has = len(before[0].topics), len(after.topics)
                yield Claim(
                    "subscriptions-lost",
                    f"{after.subscriber} had {plural(had, 'subscription')} at {publisher}, and {has:,} after it had "
                    f"connected again: {had - has:,} are lost",
                    "the topics of the new connection are a part of those of the old one, in the order in which libzmq "
                    "sends them again, and none was cancelled",
                    Occurrences.of([(after.start_ns, after.packet, after.flow)]),
                    [server],
                    certainty="likely",
                )
