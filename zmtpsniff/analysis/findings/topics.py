"""Subscriptions that match nothing: subscription-unmatched.

Theory
------

A publisher sends only what somebody subscribed to. So a subscriber with a typo in its topic gets nothing, no error
comes, and the messages that it waits for are not even on its connection. They are on the connections of other
subscribers. All messages that a publisher sends to all its subscribers are what it publishes, as far as anybody can
see.

To get nothing is no fault by itself: the publisher may have no news on that topic, or had them before. So it is a
note. It is a warning if others got messages of the topic meanwhile, or if the publisher never sent the topic and has
one that is nearly the same, which makes a typo likely. Names with a counter ("sensor1", "sensor2"), or that differ in
a part of two letters or less, are near, too, but most likely no typos. A subscriber whose other topics match may well
have one without news that looks like another one. So that is a warning only if nothing but the case of letters, or
separators, differs. A subscriber that wants the near one as well made no typo.

The XSUB of a proxy repeats what subscribers behind it want. If the capture has one of these, only that one is named.
If octets of any subscriber are missing, these may have been that subscription, and it is a note.

A publisher knows a subscription only when it has come, and a copy may come after the end of the capture. So messages
are missed only if they are some time after the one and before the other, and only if they matched a subscription of
the one who got them: a publisher with ZMQ_INVERT_MATCHING sends the others.

A SUB may connect to several publishers, and subscribes to all its topics at each of them. Such connections come from
one host, have the same topics, and the subscriptions come at the same time. Then it is enough that one has a topic.

A RADIO sends to groups that a DISH has joined. A group is a topic that must match as a whole. So here an octet stands
behind each group that none has in it.
"""

import re
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Literal

import msgspec

from dissectors.address import has_bound_port, host_of
from dissectors.events import Command, Connection, Message, Octets, Severity, Subscription, at_hand
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.finding import Certainty, Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import Inquiry, Listener
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.words.counts import listed, plural
from zmtpsniff.words.durations import about
from zmtpsniff.words.text import quoted

_PUBLISHED = 500  # different beginnings of messages to remember for each publisher
_LONGEST = 64  # octets of them
_MATCHED = 10_000  # topics that matched on one connection
_TOPICS = 200  # of one subscriber
_SUSPECTS = 2000
_SIBLINGS = 100  # connections of one host with the same topics
_LEAST_MESSAGES = 3
_LEAST_NS = 300_000_000
_TOGETHER_NS = 100_000_000  # the connections of one socket have a subscription within this time
_IDLE_NS = 5_000_000_000  # so long a subscriber may be without any subscription
_SEPARATOR = re.compile(rb"[\s./:_\0-]")
_END = b"\0"  # of a group
_WORDS = re.compile(rb"[^\s,;|=\0]+")  # the first frame may be the topic; so may the beginning of the only frame
_TOKENS = re.compile(rb"[A-Za-z0-9]+|[^A-Za-z0-9]")


class _Wish:
    """A topic that somebody subscribed to."""

    __slots__ = ("before", "first_missed_ns", "flow", "is_met", "is_old", "missed", "missed_flow", "packet", "since_ns")

    def __init__(self, topic: bytes, event: Subscription | Command, publisher: "_Publisher") -> None:
        self.flow = event.flow
        self.since_ns = event.time_ns
        self.packet = event.packet
        self.before = publisher.copies  # that the publisher had sent by then
        self.is_old = publisher.is_full or publisher.has_sent(topic)  # or may be
        self.is_met = False  # messages of it came, under its name or that of a shorter one
        self.missed = 0  # messages of the topic that somebody else got meanwhile
        self.missed_flow = 0  # the connection of that one
        self.first_missed_ns: int | None = None

    def miss(self, event: Message) -> None:
        """Another subscriber got a message of the topic."""
        if event.flow == self.flow or event.time_ns - self.since_ns < _LEAST_NS:
            return
        if self.first_missed_ns is None:
            self.first_missed_ns, self.missed_flow = event.time_ns, event.flow
        self.missed += event.flow == self.missed_flow


class _Publisher(msgspec.Struct, eq=False):
    """The topics of one publisher, and of all its subscribers."""

    has_groups: bool = False  # it is a RADIO
    copies: int = 0
    published: OrderedDict[bytes, None] = msgspec.field(default_factory=OrderedDict)
    matched: dict[bytes, None] = {}  # subscriptions that matched
    open: dict[int, dict[bytes, list[_Wish]]] = {}  # by the length of the topic: wishes that got nothing yet

    def name(self, topic: bytes) -> bytes:
        """A topic as it is shown."""
        return topic.removesuffix(_END) if self.has_groups else topic

    def publish(self, first: bytes) -> None:
        """It sent a message that begins so."""
        if len(self.published) < _PUBLISHED:
            self.published[first[:_LONGEST]] = None

    @property
    def is_full(self) -> bool:
        """Whether it may have sent what is not remembered."""
        return len(self.published) >= _PUBLISHED

    def has_sent(self, topic: bytes) -> bool:
        """Whether it is known to have sent a message of a topic."""
        return any(one.startswith(topic[:_LONGEST]) for one in self.published)

    def want(self, topic: bytes, wish: _Wish) -> None:
        """Wait for a message of a topic."""
        self.open.setdefault(len(topic), {}).setdefault(topic, []).append(wish)

    def forget(self, topic: bytes, wish: _Wish) -> None:
        """Wait no longer; that it never waited does no harm."""
        wishes = self.open.get(len(topic), {})
        rest = [one for one in wishes.get(topic, ()) if one is not wish]
        if rest:
            wishes[topic] = rest
        elif wishes.pop(topic, None) is not None and not wishes:
            del self.open[len(topic)]

    def look(self, messages: Sequence[Message], server: str) -> None:
        """Tell the wishes that got nothing which messages others get."""
        for event in messages:
            if event.src == server and (self.has_groups or event.matched is not None):
                first = at_hand(event.frames[0]) + (_END if self.has_groups else b"")
                for length, wishes in self.open.items():
                    for wish in wishes.get(first[:length], ()):
                        wish.miss(event)


class _Subscriber(msgspec.Struct, eq=False):
    """One connection of a subscriber."""

    publisher: _Publisher
    server: str
    address: str
    repeats: bool = False  # it is an XSUB, which subscribes to what those behind it want
    topics: dict[bytes, _Wish] = {}
    matched: dict[bytes, None] = {}
    lengths: Counter[int] = msgspec.field(default_factory=Counter)  # of those, in octets
    last: bytes | None = None
    got: int = 0
    blind: bool = False

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
            topic, first = event.matched, event.frames[0]
            if type(first) is not bytes:
                first = at_hand(first)
            if publisher.has_groups:
                topic = first = first + _END
            if topic is not None and topic is not self.last:
                self._match(at_hand(topic))
            if first[:_LONGEST] not in published:
                publisher.publish(first)
        self.got += got
        publisher.copies += got
        if publisher.open:
            publisher.look(messages, server)

    def _match(self, topic: bytes) -> None:
        """A message matched a topic, which is named for the messages of all longer ones, too."""
        self.last = topic
        if topic not in self.matched:
            self._remember(topic)
            if len(self.publisher.matched) < _PUBLISHED:
                self.publisher.matched[topic] = None
            for wanted, wish in self.topics.items():
                if wanted.startswith(topic) and not wish.is_met:
                    wish.is_met = True
                    self.publisher.forget(wanted, wish)

    def _remember(self, topic: bytes) -> None:
        """A topic matched. Of very many the oldest is forgotten."""
        self.matched[topic] = None
        self.lengths[len(topic)] += 1
        if len(self.matched) > _MATCHED:
            oldest = next(iter(self.matched))
            del self.matched[oldest]
            self.lengths[len(oldest)] -= 1
            if not self.lengths[len(oldest)]:
                del self.lengths[len(oldest)]

    def want(self, topic: Octets | None, event: Subscription | Command) -> None:
        """Subscribe to a topic."""
        if isinstance(topic, bytes) and topic not in self.topics and len(self.topics) < _TOPICS:
            wish = self.topics[topic] = _Wish(topic, event, self.publisher)
            wish.is_met = any(topic[:length] in self.matched for length in self.lengths)
            if not wish.is_met:
                self.publisher.want(topic, wish)

    @property
    def met(self) -> set[bytes]:
        """The topics that it wants, and that came."""
        return {topic for topic, wish in self.topics.items() if wish.is_met}

    def cancel(self, topic: bytes) -> None:
        """Cancel a subscription; it may have been there for a moment only."""
        wish = self.topics.pop(topic, None)
        if wish is not None:
            self.publisher.forget(topic, wish)


_Reason = Literal["missed", "typo", "before", "never", "silence"]


class _Suspect(msgspec.Struct, eq=False):
    """A topic of which nothing came."""

    subscriber: _Subscriber
    topic: bytes
    address: str  # of who wants it: perhaps of one behind the subscriber
    sent: int  # messages to others meanwhile
    until_ns: int
    may_be_others: bool = False  # a subscriber behind it may want the topic, though the capture does not show that

    @property
    def wish(self) -> _Wish:
        """The subscription."""
        return self.subscriber.topics[self.topic]

    @property
    def waited_ns(self) -> int:
        """How long the subscriber waited."""
        return self.until_ns - self.wish.since_ns

    def judge(self) -> tuple[_Reason, bytes | None] | None:
        """Why nothing came, with the topic that was meant if it is likely a typo; None if it is too soon to ask."""
        wish = self.wish
        if wish.first_missed_ns is not None and self.until_ns - wish.first_missed_ns >= _LEAST_NS:
            return "missed", None
        if self.sent < _LEAST_MESSAGES:
            return ("silence", None) if self.waited_ns >= _IDLE_NS else None
        if self.waited_ns < _LEAST_NS:
            return None
        publisher = self.subscriber.publisher
        if wish.is_old or wish.first_missed_ns is not None or publisher.has_sent(self.topic):
            return ("before", None) if self.waited_ns >= _IDLE_NS else None
        sent = [*publisher.matched, *publisher.published]
        near = nearest(self.topic, sent, are_whole=publisher.has_groups)
        is_meant = near is not None and not any(map(near.startswith, self.subscriber.topics))
        return ("typo", near) if is_meant else ("never", None)


class Topics(Inquiry):
    """Subscriptions and what matches them."""

    def __init__(self) -> None:
        """Start without any."""
        self._publishers: Ledger[str, _Publisher] = Ledger(_Publisher, 1000)
        self._subscribers: dict[int, _Subscriber] = {}
        self._suspects: list[_Suspect] = []
        self._matched: Ledger[str, set[bytes]] = Ledger(set)  # by subscriber: topics that came on connections now over
        # By host and all its topics: of connections now over, when one of these was wanted, and which of them came.
        self._siblings: Ledger[tuple[str, frozenset[bytes]], list[tuple[int, set[bytes]]]] = Ledger(list)
        self._without: list[tuple[str, str, Dossier, int]] = []  # address, publisher, connection, its end
        self._origins: Ledger[bytes, str] = Ledger(str)  # by topic: who wanted it, and does not repeat what others want
        self._is_blind = False  # octets of a connection are missing: perhaps subscriptions

    def begin(self, dossier: Dossier) -> Listener | None:
        """Hear what a publisher sends."""
        of_kinds = {kind: address for address, kind in dossier.types.items()}
        has_groups = of_kinds.keys() == {"RADIO", "DISH"}
        ends = (of_kinds["RADIO"], of_kinds["DISH"]) if has_groups else dossier.publication
        if ends is None:
            return None
        made = self._subscribers[dossier.flow] = _Subscriber(self._publishers.at(ends[0]), *ends)
        made.publisher.has_groups = has_groups
        made.repeats = dossier.types[made.address] == "XSUB"
        made.blind = dossier.blind
        self._is_blind |= made.blind
        return made.take

    def lose(self, dossier: Dossier) -> None:
        """The missing messages may have matched."""
        subscriber = self._subscribers.get(dossier.flow)
        self._is_blind = True
        if subscriber is not None:
            subscriber.blind = True

    def subscription(self, dossier: Dossier, event: Subscription) -> None:
        """Remember a topic, and when it was subscribed to."""
        subscriber = self._subscribers.get(dossier.flow)
        if subscriber is None or event.src != subscriber.address:
            return
        if event.action == "cancel":
            subscriber.cancel(at_hand(event.topic))
        else:
            subscriber.want(event.topic, event)
            if not subscriber.repeats:
                self._origins[at_hand(event.topic)] = subscriber.address

    def command(self, dossier: Dossier, event: Command) -> None:
        """Remember a group, and when it was joined."""
        subscriber = self._subscribers.get(dossier.flow)
        if subscriber is None or event.src != subscriber.address or not isinstance(event.group, bytes):
            return
        if event.name == "LEAVE":
            subscriber.cancel(event.group + _END)
        elif event.name == "JOIN":
            subscriber.want(event.group + _END, event)

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Look for topics of which nothing came."""
        subscriber = self._subscribers.pop(event.flow, None)
        if subscriber is None:  # the capture may lack what its publisher announced
            for side in (event.client, event.server):
                if side.socket_type == "SUB":
                    self._origins.update(dict.fromkeys(map(at_hand, event.subscriptions), side.address))
            return
        for topic, wish in subscriber.topics.items():
            subscriber.publisher.forget(topic, wish)
        if dossier is None or subscriber.blind or event.handshake != "complete":
            return
        if not subscriber.topics and not subscriber.got and not event.subscriptions:
            lasted_ns = until_ns - event.start_ns
            says_topics = (event.version or "") >= "3"  # earlier ones keep their subscriptions to themselves
            kinds = (event.client.socket_type, event.server.socket_type)
            if says_topics and "SUB" in kinds and lasted_ns >= _IDLE_NS and len(self._without) < _SUSPECTS:
                self._without.append((subscriber.address, subscriber.server, dossier, until_ns))
        if has_bound_port(subscriber.address) and subscriber.matched:
            self._matched.at(subscriber.address).update(islice(subscriber.matched, _TOPICS))
        elif len(subscriber.topics) > 1 and subscriber.matched:
            siblings = self._siblings.at(_socket_of(subscriber))
            if len(siblings) < _SIBLINGS:
                siblings.append((_wanted_ns(subscriber), subscriber.met))
        subscriber.matched = {}  # it may be large, and suspects keep the subscriber
        for topic, wish in subscriber.topics.items():
            if not wish.is_met and len(self._suspects) < _SUSPECTS:
                sent = subscriber.publisher.copies - wish.before
                self._suspects.append(_Suspect(subscriber, topic, subscriber.address, sent, until_ns))

    # ------------------------------------------------------------------ results

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Topics of which nothing came. Those that are but notes are told together for each publisher and reason."""
        groups: dict[tuple[str, _Reason, bool, bytes | None], list[_Suspect]] = {}
        meant: dict[bytes, bytes] = {}
        matched = {address: set(topics) for address, topics in self._matched.items() if self._suspects}
        siblings = {one: [*those] for one, those in self._siblings.items() if self._suspects}
        for subscriber in self._subscribers.values() if self._suspects else ():
            matched.setdefault(subscriber.address, set()).update(subscriber.matched)
            if len(subscriber.topics) > 1 and subscriber.matched:
                sibling = _wanted_ns(subscriber), subscriber.met
                siblings.setdefault(_socket_of(subscriber), []).append(sibling)
        wanted = {suspect.topic for suspect in self._suspects if not suspect.subscriber.repeats}
        for suspect in self._suspects:
            judged, subscriber = suspect.judge(), suspect.subscriber
            if judged is None or (subscriber.repeats and suspect.topic in wanted and judged[0] in ("typo", "never")):
                continue
            together = [
                topics
                for wanted_ns, topics in siblings.get(_socket_of(subscriber), ())
                if abs(wanted_ns - _wanted_ns(subscriber)) < _TOGETHER_NS
            ]
            others = set(matched.get(subscriber.address, ())).union(*together)
            if judged[0] != "missed" and any(map(suspect.topic.startswith, others)):
                continue  # its socket has it from another publisher
            reason, near = judged
            if near is not None:
                meant[suspect.topic] = near
            if subscriber.repeats and reason in ("typo", "never"):  # octets of who wants it are missing
                suspect.may_be_others = self._is_blind and suspect.topic not in self._origins
                suspect.address = self._origins.get(suspect.topic, suspect.address)
            topic = suspect.topic if reason in ("missed", "typo") else None
            groups.setdefault((subscriber.server, reason, subscriber.got == 0, topic), []).append(suspect)
        for (server, reason, got_nothing, topic), suspects in groups.items():
            yield _claim(server, reason, got_nothing, suspects, meant.get(topic) if topic is not None else None)
        for address, server, dossier, end_ns in self._without:
            seen = Occurrences.of([(dossier.start_ns, dossier.packet, dossier.flow)])
            lasted = about(end_ns - dossier.start_ns)
            summary = f"the subscriber {address} of {server} has not subscribed to anything in {lasted}"
            advice = "Call zmq_setsockopt with ZMQ_SUBSCRIBE: a SUB socket gets nothing before. An empty topic is all."
            known = "its connection has no subscription"
            yield Claim("subscription-unmatched", summary, known, seen, [address, server], "note", advice=advice)


def _socket_of(one: _Subscriber) -> tuple[str, frozenset[bytes]]:
    """Facts that hold for all connections of one socket."""
    return host_of(one.address), frozenset(one.topics)


def _wanted_ns(one: _Subscriber) -> int:
    """When the first subscription came that is still there."""
    return next(iter(one.topics.values())).since_ns


_MISSED_ADVICE = (
    "Look at what the publisher does with this subscription: ZMQ_XPUB_MANUAL leaves it to the program. Behind one "
    "address there may be several publishers. A subscriber that is too slow gets nothing either."
)
_RARE_ADVICE = (
    "Nothing, if there was no such news yet. Else correct the topic: each octet of it counts, from the first on."
)
_GROUP_ADVICE = (
    "Correct the group. RADIO and DISH must name the same one, octet by octet: upper and lower case, blanks and "
    "separators count."
)
_WAITING_ADVICE = "Nothing, if there was no news. Else look at the publisher, or at what should publish through it."


def _claim(server: str, reason: _Reason, got_nothing: bool, suspects: list[_Suspect], near: bytes | None) -> Claim:
    wishes = [suspect.wish for suspect in suspects]
    addresses = dict.fromkeys(suspect.address for suspect in suspects)
    publisher = suspects[0].subscriber.publisher
    topics = list(dict.fromkeys(publisher.name(suspect.topic) for suspect in suspects))
    noun, every = ("group", '""') if publisher.has_groups else ("topic", '"" (everything)')
    named = (
        f"the {noun}{'s' if len(topics) > 1 else ''} {listed(quoted(topic) if topic else every for topic in topics)}"
    )
    waited = about(max(suspect.waited_ns for suspect in suspects))
    who = f"{listed(addresses)} got nothing"
    what = f"{who} of {named} in {waited}{'' if got_nothing else f', though others of its {noun}s match'}"
    copies = plural(max(suspect.sent for suspect in suspects), "message")
    whom, they_got = (" to others", "they got") if got_nothing else ("", "it sent")
    suggestion = None
    certainty: Certainty = "certain"
    severity: Severity | None = "note"
    advice: str | None = _WAITING_ADVICE
    if reason == "missed":
        missed = max(wish.missed for wish in wishes)
        what += f", while others got at least {plural(missed, 'message')} of it"
        known = f"messages of {server} that begin with {quoted(topics[0])} are on other connections, not on this one"
        severity, advice = None, _MISSED_ADVICE
    elif reason == "silence":
        known = f"{server} sent nothing, or nearly nothing{',' if whom else ''}{whom} meanwhile"
    elif reason == "before":
        known = f"{server} sent {copies}{whom} meanwhile, none of them of this {noun}; it may have sent some before"
    else:
        if got_nothing and len(topics) == 1:
            what = f"{who}: no message matches its {noun} {quoted(topics[0])}"
        certainty, advice = "possible", None if got_nothing or near is not None else _RARE_ADVICE
        if publisher.has_groups and advice is None:
            advice = _GROUP_ADVICE
        matches = "is of the group" if publisher.has_groups else "begins with"
        known = (
            f"{server} sent {copies}{whom} meanwhile, none of which {matches} "
            f"{listed((quoted(topic) for topic in topics), 1)}; {they_got} {listed(_examples(publisher))}"
        )
        if near is not None:
            near = publisher.name(near)
            what += f"; did you mean {quoted(near)}?"
            certainty, suggestion = "likely", near.decode(errors="backslashreplace")
            is_clear = not suspects[0].may_be_others and (got_nothing or _spelled_alike(topics[0], near))
            severity = None if is_clear else "note"
    return Claim(
        "subscription-unmatched",
        what,
        known,
        Occurrences.of((wish.since_ns, wish.packet, wish.flow) for wish in wishes),
        [*list(addresses)[:10], server],
        severity,
        certainty,
        suggestion,
        advice=advice,
    )


def nearest(topic: bytes, published: Iterable[bytes], *, are_whole: bool = False) -> bytes | None:
    """The published topic that the subscriber most likely meant; None if none is near enough.

    ``published`` are topics, or messages that begin with their topics, unless they ``are_whole``.
    """
    best: tuple[int, bytes] | None = None
    for one in published:
        for candidate in (one,) if are_whole else _beginnings(one, len(topic)):
            distance = _typo(topic, candidate)
            if distance is not None and (best is None or distance < best[0]):
                best = distance, candidate
    return None if best is None else best[1]


def _examples(publisher: _Publisher) -> list[str]:
    """The published topics: those of subscriptions that matched, otherwise the first words of messages."""
    topics = [publisher.name(topic) for topic in publisher.matched if topic]
    if not topics:
        found = (_WORDS.match(one) for one in publisher.published)
        topics = list(dict.fromkeys(one[0] for one in found if one))
    return [quoted(topic) for topic in topics] or ["messages without a topic"]


def _beginnings(one: bytes, length: int) -> Iterable[bytes]:
    """The beginning of a message that may be its topic: its first word, or about as long as the subscription.

    A beginning that is an octet shorter or two longer than the subscription ends with a separator.
    """
    found = _WORDS.match(one)
    seen = {one if len(one) <= length + 2 else b"", found[0] if found else b"", one[:length]}
    cuts = {one[:end] for end in range(1, length + 3) if end >= length - 1 and _SEPARATOR.match(one, end - 1)}
    return [*sorted(seen - {b""}, reverse=True), *sorted(cuts - seen)]


def _typo(topic: bytes, other: bytes) -> int | None:
    """How far two topics are from each other, if one may be the other with a typo; else None."""
    if topic == other or not topic.strip():
        return None
    if _spelled_alike(topic, other):
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


def _spelled_alike(topic: bytes, other: bytes) -> bool:
    """Whether two topics differ only in the case of letters, or in blanks and separators."""
    return topic.lower() == other.lower() or _bare(topic) == _bare(other) != b""


def _bare(topic: bytes) -> bytes:
    """A topic without blanks and separators, in lower case."""
    return _SEPARATOR.sub(b"", topic).lower()


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
