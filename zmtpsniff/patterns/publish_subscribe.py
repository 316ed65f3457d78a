"""Publishers and subscribers (29/PUBSUB): which subscription each message matches, and what matches none."""

from collections import Counter
from dataclasses import dataclass

from dissectors.events import Message, Subscription, at_hand
from dissectors.zmtp.sockets import PUBLISHERS
from zmtpsniff.patterns.conversation import Conversation, Findings, Rules

_REMEMBERED = 1000  # topics of one connection that were cancelled, and topics that matched none


@dataclass
class Publisher:
    """What one publisher, at one address, has sent to all of its subscribers."""

    messages: int = 0


class PublishSubscribe(Rules):
    """The messages and subscriptions of one connection."""

    def __init__(self, conversation: Conversation, findings: Findings, publisher: Publisher) -> None:
        """Look at the connection from its first message on."""
        self._conversation = conversation
        self._findings = findings
        self._publisher = publisher
        self._before = publisher.messages
        self._address = next(address for address, kind in conversation.types.items() if kind in PUBLISHERS)
        self._topics: Counter[bytes] = Counter()
        self._lengths: list[int] = []  # of the topics, ascending
        self._last: bytes | None = None  # the topic that matched last
        self._cancelled: dict[bytes, None] = {}
        self._subscribed = False
        self._unmatched: set[bytes] = set()
        self.message = self._take

    def subscription(self, event: Subscription) -> None:
        """Take note of a subscription or its end."""
        topic = event.topic
        if not isinstance(topic, bytes) or event.incomplete:  # of a length that cannot be compared
            self._conversation.blind = True
            return
        if event.action == "subscribe":
            if not self._subscribed:
                self._subscribed = True
                self._tell_what_was_missed(event)
            if self._topics[topic]:
                self._findings.report("subscribed-twice", event, "this topic is subscribed to already")
            self._topics[topic] += 1
            self._cancelled.pop(topic, None)
        elif self._topics[topic]:
            self._topics[topic] -= 1
            if len(self._cancelled) < _REMEMBERED:
                self._cancelled[topic] = None
        elif not self._conversation.blind:
            self._findings.report("cancel-without-subscribe", event, "this topic is not subscribed to")
        self._topics = +self._topics
        self._lengths = sorted({len(topic) for topic in self._topics})
        self._last = None

    def _tell_what_was_missed(self, event: Subscription) -> None:
        missed = self._publisher.messages - self._before
        if missed:
            self._findings.report(
                "slow-joiner",
                event,
                f"the first subscription on this connection, after the publisher had sent {missed:,} "
                f"message{'' if missed == 1 else 's'} to other subscribers in the meantime",
            )

    def _take(self, event: Message) -> None:
        if event.src != self._address:
            return  # what an XSUB says to an XPUB
        self._publisher.messages += 1
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
        if not (event.incomplete or self._conversation.blind or self._is_just_cancelled(first)):
            self._tell_unmatched(event, first)

    def _is_just_cancelled(self, first: bytes) -> bool:
        """Whether a message may have been on its way when its topic was cancelled."""
        return any(first.startswith(topic) for topic in self._cancelled)

    def _tell_unmatched(self, event: Message, first: bytes) -> None:
        if first in self._unmatched or len(self._unmatched) >= _REMEMBERED:
            return
        self._unmatched.add(first)
        if self._subscribed:
            self._findings.report("unmatched-message", event, "a message that matches no subscription of its receiver")
        else:
            self._findings.report(
                "unmatched-message", event, "a message to a receiver that has not subscribed to anything", "note"
            )
