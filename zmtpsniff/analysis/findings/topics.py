"""Subscriptions that match nothing: subscription-unmatched.

Theory
------

A publisher sends only what somebody subscribed to. So a subscriber with a typo in its topic gets nothing, no error
comes, and the messages that it waits for are not even on its connection. They are on the connections of other
subscribers. All messages that a publisher sends to all its subscribers are what it publishes, as far as anybody can
see.

To get nothing is no fault by itself: the publisher may have no news on that topic. A typo is likely if the publisher
has a topic that is nearly the same. Names with a counter ("sensor1", "sensor2"), or that differ in a part of two
letters or less, are near, too, but most likely no typos.
"""

import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from dissectors.events import Connection, Message, Subscription, at_hand
from dissectors.zmtp.sockets import PUBLISHERS, SUBSCRIBERS
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import Contact, Inquiry, Ledger, Listener, quoted, some, span, times

_PUBLISHED = 500  # different beginnings of messages to remember for each publisher
_LONGEST = 64  # octets of them
_TOPICS = 200  # of one subscriber
_SUSPECTS = 2000
_LEAST_MESSAGES = 3
_LEAST_NS = 300_000_000
_IDLE_NS = 5_000_000_000  # so long a subscriber may be without any subscription
_WORDS = re.compile(rb"[^\s,;|=\0]+")  # the first frame may be the topic; so may the beginning of the only frame
_TOKENS = re.compile(rb"[A-Za-z0-9]+|[^A-Za-z0-9]")


class _Publisher:
    """What one publisher sends, to all its subscribers."""

    __slots__ = ("copies", "matched", "published")

    def __init__(self) -> None:
        self.copies = 0
        self.published: OrderedDict[bytes, None] = OrderedDict()
        self.matched: dict[bytes, None] = {}  # subscriptions that matched

    def publish(self, first: bytes) -> None:
        """It sent a message that begins so."""
        if len(self.published) < _PUBLISHED:
            self.published[first[:_LONGEST]] = None


class _Wish:
    """A topic that somebody subscribed to."""

    __slots__ = ("before", "packet", "since_ns")

    def __init__(self, since_ns: int, packet: int, before: int) -> None:
        self.since_ns = since_ns
        self.packet = packet
        self.before = before  # copies that the publisher had sent by then


class _Subscriber:
    """One connection of a subscriber."""

    __slots__ = ("address", "blind", "got", "last", "matched", "publisher", "server", "topics")

    def __init__(self, publisher: _Publisher, server: str, address: str) -> None:
        self.publisher = publisher
        self.server = server
        self.address = address
        self.topics: dict[bytes, _Wish] = {}
        self.matched: set[bytes] = set()
        self.last: bytes | None = None
        self.got = 0
        self.blind = False

    def take(self, messages: Sequence[Message]) -> None:
        """Count messages."""
        server = self.server
        publisher = self.publisher
        published = publisher.published
        got = 0
        for event in messages:
            if event.src != server:
                continue
            got += 1
            topic = event.matched
            if topic is not None and topic is not self.last:
                whole = at_hand(topic)
                self.last = whole
                self.matched.add(whole)
                publisher.matched[whole] = None
            first = event.frames[0]
            if type(first) is not bytes:
                first = at_hand(first)
            if first[:_LONGEST] not in published:
                publisher.publish(first)
        self.got += got
        publisher.copies += got


class _Suspect:
    """A topic that matched nothing."""

    __slots__ = ("address", "flow", "got", "publisher", "sent", "server", "topic", "until_ns", "wish")

    def __init__(self, subscriber: _Subscriber, topic: bytes, flow: int, until_ns: int) -> None:
        self.publisher = subscriber.publisher
        self.server = subscriber.server
        self.address = subscriber.address
        self.got = subscriber.got
        self.topic = topic
        self.wish = subscriber.topics[topic]
        self.sent = self.publisher.copies - self.wish.before  # meanwhile, to others
        self.flow = flow
        self.until_ns = until_ns


class Topics(Inquiry):
    """Subscriptions and what matches them."""

    def __init__(self) -> None:
        """Start without any."""
        self._publishers: Ledger[str, _Publisher] = Ledger(_Publisher, 1000)
        self._subscribers: dict[int, _Subscriber] = {}
        self._suspects: list[_Suspect] = []
        self._without: list[tuple[str, str, Contact, int]] = []  # address, publisher, connection, its end

    def begin(self, contact: Contact) -> Listener | None:
        """Hear what a publisher sends."""
        kinds = contact.kinds
        server = next((address for address, kind in kinds.items() if kind in PUBLISHERS), None)
        subscriber = next((address for address, kind in kinds.items() if kind in SUBSCRIBERS), None)
        if server is None or subscriber is None:
            return None
        made = self._subscribers[contact.flow] = _Subscriber(self._publishers.at(server), server, subscriber)
        made.blind = contact.blind
        return made.take

    def lose(self, contact: Contact) -> None:
        """What is missing may have matched."""
        subscriber = self._subscribers.get(contact.flow)
        if subscriber is not None:
            subscriber.blind = True

    def subscription(self, contact: Contact, event: Subscription) -> None:
        """Remember a topic, and when it was subscribed to."""
        subscriber = self._subscribers.get(contact.flow)
        if subscriber is None or event.src != subscriber.address or not isinstance(event.topic, bytes):
            return
        if event.action == "cancel":
            subscriber.topics.pop(event.topic, None)  # it may have been there for a moment only
        elif event.topic not in subscriber.topics and len(subscriber.topics) < _TOPICS:
            subscriber.topics[event.topic] = _Wish(event.time_ns, event.packet, subscriber.publisher.copies)

    def end(self, contact: Contact | None, event: Connection, until_ns: int) -> None:
        """Look for topics that matched nothing."""
        subscriber = self._subscribers.pop(event.flow, None)
        if contact is None or subscriber is None or subscriber.blind or event.handshake != "complete":
            return
        if not subscriber.topics and not subscriber.got and not event.subscriptions:
            lasted_ns = until_ns - event.start_ns
            says_topics = (event.version or "") >= "3"  # earlier ones keep their subscriptions to themselves
            kinds = (event.client.socket_type, event.server.socket_type)
            if says_topics and "SUB" in kinds and lasted_ns >= _IDLE_NS and len(self._without) < _SUSPECTS:
                self._without.append((subscriber.address, subscriber.server, contact, until_ns))
        for topic in subscriber.topics:
            if topic in subscriber.matched or any(topic.startswith(other) for other in subscriber.matched):
                continue  # a shorter one is named for the messages of both
            if len(self._suspects) < _SUSPECTS:
                self._suspects.append(_Suspect(subscriber, topic, event.flow, until_ns))

    # ------------------------------------------------------------------ results

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Topics that matched nothing, each with the nearest topic that is published."""
        groups: dict[tuple[str, bytes, bool], list[_Suspect]] = {}
        for suspect in self._suspects:
            if suspect.sent < _LEAST_MESSAGES or suspect.until_ns - suspect.wish.since_ns < _LEAST_NS:
                continue
            groups.setdefault((suspect.server, suspect.topic, suspect.got == 0), []).append(suspect)
        for (server, topic, got_nothing), suspects in groups.items():
            yield self._claim(server, topic, got_nothing, suspects)
        for address, server, contact, end_ns in self._without:
            seen = Occurrences()
            seen.add(contact.start_ns, contact.packet, contact.flow)
            lasted = span(end_ns - contact.start_ns)
            summary = f"the subscriber {address} of {server} has not subscribed to anything in {lasted}"
            advice = "Call zmq_setsockopt with ZMQ_SUBSCRIBE: a SUB socket gets nothing before. An empty topic is all."
            known = "its connection has no subscription"
            yield Claim("subscription-unmatched", summary, known, seen, [address, server], "note", advice=advice)

    def _claim(self, server: str, topic: bytes, got_nothing: bool, suspects: list[_Suspect]) -> Claim:
        seen = Occurrences()
        for suspect in suspects:
            seen.add(suspect.wish.since_ns, suspect.wish.packet, suspect.flow)
        addresses = [suspect.address for suspect in suspects]
        publisher = suspects[0].publisher
        near = nearest(topic, [*publisher.matched, *publisher.published])
        sent = max(suspect.sent for suspect in suspects)
        if got_nothing:
            what = f"{some(addresses)} got nothing: no message matches its topic {quoted(topic)}"
        else:
            what = (
                f"no message matches the topic {quoted(topic)} of {some(addresses)}, though others of its topics match"
            )
        meanwhile = f"{server} sent {times(sent, 'message')} to others meanwhile"
        question = f"; did you mean {quoted(near)}?" if near is not None else ""
        suggestion = None if near is None else near.decode(errors="backslashreplace")
        return Claim(
            "subscription-unmatched",
            f"{what}{question}",
            f"{meanwhile}, none of which begins with {quoted(topic)}; they got {some(_examples(publisher))}",
            seen,
            [*addresses[:10], server],
            None if got_nothing and near is not None else "note",
            "likely" if near is not None else "possible",
            suggestion,
        )


def nearest(topic: bytes, published: Iterable[bytes]) -> bytes | None:
    """The published topic that the subscriber most likely meant; None if none is near enough.

    ``published`` are topics, or messages that begin with their topics.
    """
    best: tuple[int, bytes] | None = None
    for one in published:
        for candidate in _beginnings(one, len(topic)):
            distance = _typo(topic, candidate)
            if distance is not None and (best is None or distance < best[0]):
                best = distance, candidate
    return None if best is None else best[1]


def _examples(publisher: _Publisher) -> list[str]:
    """The published topics: those of subscriptions that matched, otherwise the first words of messages."""
    topics = [topic for topic in publisher.matched if topic]
    if not topics:
        found = (_WORDS.match(one) for one in publisher.published)
        topics = list(dict.fromkeys(one[0] for one in found if one))
    return [quoted(topic) for topic in topics] or ["messages without a topic"]


def _beginnings(one: bytes, length: int) -> Iterable[bytes]:
    """The beginning of a message that may be its topic: its first word, or about as long as the subscription."""
    found = _WORDS.match(one)
    seen = {one if len(one) <= length + 2 else b"", found[0] if found else b"", one[:length]}
    return sorted(seen - {b""}, reverse=True)


def _typo(topic: bytes, other: bytes) -> int | None:
    """How far two topics are from each other, if one may be the other with a typo; else None."""
    if topic == other or not topic.strip():
        return None
    if topic.lower() == other.lower() or _bare(topic) == _bare(other) != b"":
        return 1
    if len(topic) < 4 or abs(len(topic) - len(other)) > 2:
        return None
    if re.sub(rb"\d+", b"0", topic) == re.sub(rb"\d+", b"0", other):
        return None  # counted through
    mine, theirs = _TOKENS.findall(topic), _TOKENS.findall(other)
    if len(mine) == len(theirs):
        differ = [(one, two) for one, two in zip(mine, theirs, strict=True) if one != two]
        if len(differ) > 1:
            return None
        one, two = differ[0]
        least = min(len(one), len(two))
        if least < 3 or (one[:-1] == two[:-1] and _is_counter(one, two)):
            return None
        allowed = 1 if least < 6 else 2
        return distance if (distance := _distance(one, two)) <= allowed else None
    allowed = 1 if len(topic) < 8 else 2
    return distance if (distance := _distance(topic, other)) <= allowed else None


def _bare(topic: bytes) -> bytes:
    """A topic without blanks and separators, in lower case."""
    return re.sub(rb"[\s./:_\0-]+", b"", topic).lower()


def _is_counter(one: bytes, two: bytes) -> bool:
    """Whether the last letters of two names count, as in topicA and topicB."""
    return all(name[-1:].isupper() and not name[-2:-1].isupper() for name in (one, two))


def _distance(one: bytes, two: bytes) -> int:
    """How many letters must be changed, added, removed or swapped with the next to make one name of the other."""
    before: list[int] = []
    last = list(range(len(two) + 1))
    for row, letter in enumerate(one, 1):
        line = [row]
        for column, other in enumerate(two, 1):
            cost = min(last[column] + 1, line[column - 1] + 1, last[column - 1] + (letter != other))
            if row > 1 and column > 1 and letter == two[column - 2] and one[row - 2] == other:
                cost = min(cost, before[column - 2] + 1)
            line.append(cost)
        before, last = last, line
    return last[-1]
