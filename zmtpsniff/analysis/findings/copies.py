"""Messages that a publisher dropped: messages-dropped. The proof needs no numbers inside the messages.

Theory
------

A publisher sends a copy of each message to every subscriber that wants it. On each connection the copies come in the
order in which they were published. So two connections with the same subscriptions carry the same sequence, except for
dropped messages: if the queue for a subscriber is full (ZMQ_SNDHWM), libzmq silently drops messages until there is
room.

A comparison watches two connections. If a message has come on one of them only, it waits in a queue, since the other
one may be late. Once a message has come on both, everything before it must have come, too: messages that still wait
in front of it were dropped. A comparison leaves out messages to which only one of the two has subscribed.

To begin, a comparison needs a message that is certain to be the same on both: its contents have come only once on
each, within a second. From there on equal contents do no harm, since the sequences are compared in order. If a
subscription changes, nobody knows which message is the first that it affects, so the comparison begins anew. If
octets of a connection are missing, its comparison ends. When a connection ends, a waiting message counts as dropped
only if the other connection had it for long, and nothing kept this one from getting it.

A queue of ZMQ_SNDHWM messages that is full takes none before about half of them are sent. So a queue that loses
messages again and again, with few in between, is meant to be short, or to hold the last one only (ZMQ_CONFLATE): if
its subscriber never makes the publisher wait, that is a note.

A connection whose beginning the capture lacks has no subscriptions. But who gets a message of several frames wants all
with the same first frame: some beginning of that is the topic. That holds until the subscriber says something. So only
messages are compared whose first frame came before, on both connections.

All this holds for one publisher. If a message comes that counted as dropped, several publishers share one address and
do not send in one order: then the comparison ends, and its counts are forgotten.

Each connection is compared with one other of the same publisher that wants as much, else with a few that each want
another part of it. So the work grows with the number of connections, and not with its square. Where the topics of
two comparisons have nothing in common, no message is in both: what they count adds up.
"""

from collections import deque
from collections.abc import Iterable
from functools import partial

from dissectors.events import Connection, Message, Problem, Subscription
from dissectors.problems import BLINDING
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.compared_copies import SLOW_NS, ComparedPublisher, CopyRoom, CopyStream
from zmtpsniff.analysis.findings.finding import Claim
from zmtpsniff.analysis.findings.inquiry import Inquiry, Listener
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.net.witness import Stall
from zmtpsniff.words.counts import plural
from zmtpsniff.words.durations import about

_ENDED = 1000
_PROMPT_NS = 100_000_000  # who gets messages no later than that keeps up
_NO_TOPICS = "; its subscriptions came before the capture, but it got others with the same first frames"
_LATEST_ADVICE = (
    "Nothing, if the subscriber wants the latest value only: ZMQ_CONFLATE keeps one message, a small ZMQ_SNDHWM few. "
    "Otherwise raise ZMQ_SNDHWM at the publisher."
)


class Copies(Inquiry):
    """The copies that publishers send of their messages."""

    def __init__(self) -> None:
        """Start without any."""
        room = CopyRoom()
        self._publishers: Ledger[str, ComparedPublisher] = Ledger(partial(ComparedPublisher, room), 1000)
        self._streams: dict[int, CopyStream] = {}
        self._stalled: set[int] = set()  # flows whose subscriber took nothing in the end
        self._paused: Ledger[int, None] = Ledger()  # flows whose subscriber took nothing for a while
        self._unheard: set[int] = set()  # flows whose subscriber is not heard: it is not the one that is slow
        # The last ones that lost messages or were slow, and how many they got.
        self._ended: deque[tuple[CopyStream, int]] = deque(maxlen=_ENDED)

    def begin(self, dossier: Dossier) -> Listener | None:
        """Hear what a publisher sends to a subscriber that connected to it."""
        ends = dossier.publication
        if ends is None or dossier.blind:
            return None
        publisher = self._publishers.at(ends[0])
        publisher.changes += 1
        stream = CopyStream(publisher, *ends, dossier.flow, publisher.take_place())
        self._streams[dossier.flow] = publisher.streams[dossier.flow] = stream
        return stream.take

    def begin_late(self, message: Message) -> Listener:
        """A publisher sends a copy, as its inferred type says. Hear what it sends from then on."""
        publisher = self._publishers.at(message.src)
        stream = CopyStream(publisher, message.src, message.dst, message.flow, publisher.take_place(), is_late=True)
        self._streams[message.flow] = publisher.streams[message.flow] = stream
        return stream.take

    def change_late(self, flow: int) -> None:
        """A subscription comes, or ends, on a connection that may be late."""
        stream = self._streams.get(flow)
        if stream is not None and stream.is_late:
            stream.forget_topics()

    def problem(self, event: Problem) -> None:
        """Octets of a late connection are missing."""
        stream = None if event.flow is None else self._streams.get(event.flow)
        if stream is not None and stream.is_late and BLINDING.get(event.code) == "rest":
            stream.leave()

    def subscription(self, dossier: Dossier, event: Subscription) -> None:
        """Take note of topics that come and go."""
        stream = self._streams.get(dossier.flow)
        if stream is None or event.src != stream.address:
            return
        topic = event.topic
        if event.incomplete or not isinstance(topic, bytes):
            stream.leave()
            return
        if event.action == "subscribe":
            stream.topics[topic] += 1
        elif stream.topics[topic] > 1:
            stream.topics[topic] -= 1
        else:
            del stream.topics[topic]
        stream.change()

    def lose(self, dossier: Dossier) -> None:
        """Missing octets end the comparisons of a connection."""
        stream = self._streams.get(dossier.flow)
        if stream is not None:
            stream.leave()

    def stall(self, stall: Stall) -> None:
        """Remember who took nothing in the end: messages may still wait for it."""
        if stall.flow not in self._streams:
            return
        self._paused.at(stall.flow)
        if not stall.is_open:
            self._stalled.add(stall.flow)
        if stall.cause == "unheard":
            self._unheard.add(stall.flow)

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Keep what a subscriber did not get."""
        stream = self._streams.pop(event.flow, None)
        if stream is None:
            return
        stream.end(until_ns, event.flow in self._stalled)
        self._stalled.discard(event.flow)
        if event.flow in self._unheard:
            self._unheard.remove(event.flow)
            stream.lag_ns = 0
        if stream.lost.count or stream.lag_ns >= SLOW_NS:
            got = event.messages.server if event.server.address == stream.server else event.messages.client
            self._ended.append((stream, got))

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Subscribers that did not get messages, or got them late."""
        for stream, got in self._ended:
            lost = stream.lost
            ends = [stream.address, stream.server]
            if lost.count and stream.is_shallow and stream.lag_ns < _PROMPT_NS and stream.flow not in self._paused:
                yield Claim(
                    "messages-dropped",
                    f"{stream.server} keeps few messages for its subscriber {stream.address}, or the last one only: "
                    f"others got {plural(lost.count, 'message')} more",
                    "few messages come between those that only others got, and the subscriber takes all at once",
                    lost,
                    ends,
                    "note",
                    advice=_LATEST_ADVICE,
                    subject=stream.address,
                )
            elif lost.count:
                yield Claim(
                    "messages-dropped",
                    f"{stream.server} dropped at least {plural(lost.count, 'message')} for its subscriber "
                    f"{stream.address}, which got {got:,}; others got them",
                    "others got copies between messages that this subscriber got, too"
                    + (_NO_TOPICS if stream.is_late else ""),
                    lost,
                    ends,
                    certainty="likely" if stream.is_late else "certain",
                    subject=stream.address,
                )
            if stream.lag_ns >= SLOW_NS:
                late = stream.late
                if not late.count:
                    late.add(stream.last_ns, stream.last_packet or None, stream.flow)
                summary = f"the subscriber {stream.address} is {about(stream.lag_ns)} behind others of {stream.server}"
                known = "others got the same messages so much earlier"
                yield Claim("subscriber-slow", summary, known, late, ends, subject=stream.address)
