"""Publishers and subscribers (29/PUBSUB): which subscription each message matches, and what matches none."""

from collections import Counter

import msgspec

from dissectors.address import host_of
from dissectors.events import Connection, Message, Subscription, at_hand
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.insertions import Problems
from zmtpsniff.analysis.patterns.conversation import Room, RoomShare, Rules
from zmtpsniff.words.counts import plural

_CANCELLED = 100  # cancelled topics to remember of one connection: their messages may still be on their way
_LENGTHS = 256  # different lengths of topics; each costs one look-up for every message
_LEFT = 1000  # subscribers that left to remember of one publisher
_TOLD = 10  # different messages to report of one connection that match nothing
_TOPIC_COST = 150  # octets of memory that a topic takes beside its content


class Publisher(msgspec.Struct, eq=False):
    """The messages of one publisher, at one address, as its busiest connection shows them."""

    messages: int = 0
    first_ns: int = 0  # when the first of them came
    # The hosts of subscribers that got some and closed, each with its first topic: they may come back.
    left: set[tuple[str, bytes]] = msgspec.field(default_factory=set)


class PublishSubscribe(Rules):
    """The messages and subscriptions of one connection."""

    def __init__(self, dossier: Dossier, problems: Problems, room: Room, address: str, publisher: Publisher) -> None:
        """Look at the connection from its first message on. ``address`` is that of the publisher."""
        self._dossier = dossier
        self._problems = problems
        self._share = RoomShare(room)
        self._publisher = publisher
        self._before = publisher.messages
        self._sent = 0
        self._address = address
        # An XSUB, as in a proxy, gives its program all messages; a SUB drops those that it has not subscribed to.
        self._drops = "SUB" in dossier.types.values()
        self._topics: dict[bytes, int] = {}  # how often each is subscribed to
        self._of_length: Counter[int] = Counter()
        self._lengths: list[int] = []  # of the topics, ascending
        self._last: bytes | None = None  # the topic that matched last
        self._cancelled: dict[bytes, None] = {}
        self._subscribed = False
        self._first: tuple[str, bytes] | None = None  # the host and the topic of its first subscription
        self._gave_up = False  # there were too many topics
        self._told: set[int] = set()
        self.message = self._take

    # ------------------------------------------------------------------ subscriptions

    def subscription(self, event: Subscription) -> None:
        """Take note of a subscription or its end."""
        topic = event.topic
        if self._gave_up or event.src == self._address:  # a subscription of the publisher itself has no effect
            return
        if not isinstance(topic, bytes) or event.incomplete:  # the capture lacks a part of it
            self._give_up()
            return
        if event.action == "subscribe":
            if not self._subscribed:
                self._subscribed = True
                self._first = host_of(event.src), topic
                self._tell_what_was_missed(event)
            if topic in self._topics:
                self._problems.report("subscribed-twice", event, "this topic is subscribed to already")
            self._add(topic)
        elif topic in self._topics:
            self._remove(topic)
        elif not self._dossier.blind:
            self._problems.report("cancel-without-subscribe", event, "this topic is not subscribed to")
        self._last = None

    def _add(self, topic: bytes) -> None:
        if topic in self._cancelled:
            del self._cancelled[topic]
            self._give_back(topic)
        times = self._topics.get(topic, 0)
        self._topics[topic] = times + 1
        if times:
            return
        if not self._share.hold(self._share.held + _TOPIC_COST + len(topic)):
            self._give_up()
            return
        self._of_length[len(topic)] += 1
        if self._of_length[len(topic)] == 1:
            self._lengths = sorted(self._of_length)
            if len(self._lengths) > _LENGTHS:
                self._give_up()

    def _remove(self, topic: bytes) -> None:
        self._topics[topic] -= 1
        if self._topics[topic]:
            return
        del self._topics[topic]
        self._of_length[len(topic)] -= 1
        if not self._of_length[len(topic)]:
            del self._of_length[len(topic)]
            self._lengths = sorted(self._of_length)
        self._cancelled[topic] = None
        if len(self._cancelled) > _CANCELLED:
            oldest = next(iter(self._cancelled))
            del self._cancelled[oldest]
            self._give_back(oldest)

    def _give_back(self, topic: bytes) -> None:
        self._share.hold(self._share.held - _TOPIC_COST - len(topic))

    def _give_up(self) -> None:
        """There are too many topics to remember: report nothing of messages any more."""
        self._gave_up = True
        self._share.hold(0)
        self._topics, self._lengths, self._last = {}, [], None
        self._of_length.clear()
        self._cancelled.clear()

    def _tell_what_was_missed(self, event: Subscription) -> None:
        missed = self._publisher.messages
        # One from before the first message waited for packets that the capture lacks, and comes here late.
        is_early = event.time_ns < self._publisher.first_ns
        has_come_back = (host_of(event.src), event.topic) in self._publisher.left
        if not missed or self._sent or is_early or has_come_back or self._dossier.blind:
            return
        since = missed - self._before
        meanwhile = f", {since:,} of them since this connection began" if since else ""
        self._problems.report(
            "slow-joiner",
            event,
            f"the first subscription on this connection, after the publisher had sent "
            f"{plural(missed, 'message')} to another subscriber{meanwhile}",
        )

    # ------------------------------------------------------------------ messages

    def _take(self, event: Message) -> None:
        if event.src != self._address:
            return  # a message from an XSUB to an XPUB
        self._sent = sent = self._sent + 1
        if sent > self._publisher.messages:
            if sent == 1:
                self._publisher.first_ns = event.time_ns
            self._publisher.messages = sent
        first = at_hand(event.frames[0])
        last = self._last
        if last is not None and first.startswith(last):
            event.matched = last
            return
        topics = self._topics
        for length in self._lengths:
            if first[:length] in topics:
                event.matched = self._last = first[:length]
                return
        if not (event.incomplete or self._dossier.blind or self._gave_up) and len(self._told) < _TOLD:
            self._tell_unmatched(event, first)

    def _tell_unmatched(self, event: Message, first: bytes) -> None:
        kind = hash(first)
        if kind in self._told or any(first.startswith(topic) for topic in self._cancelled):
            return
        self._told.add(kind)
        if not self._subscribed:
            detail = "a message to a receiver that has not subscribed to anything"
            self._problems.report("unmatched-message", event, detail, "note")
        elif self._drops:
            detail = (
                "a message that matches no subscription of its receiver, which drops it unless both sides match "
                "inverted (ZMQ_INVERT_MATCHING)"
            )
            self._problems.report("unmatched-message", event, detail)
        else:
            detail = "a message that matches no subscription of its receiver"
            self._problems.report("unmatched-message", event, detail, "note")

    def finish(self, event: Connection, now_ns: int) -> None:
        """Give back all room."""
        self._give_up()
        if self._sent and self._first is not None and len(self._publisher.left) < _LEFT:
            self._publisher.left.add(self._first)
