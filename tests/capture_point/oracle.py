"""The judge of events: holds them against what was sent.

The oracle knows what was sent, and which octets of it are in the capture. Where all are, what is shown must be all of
it, and nothing may be told but what would be told of the same packets in order. Where octets are missing, what is shown
must have been sent, what came before the first of them must be shown, and nobody but the capture may be blamed.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from dissectors.events import AnyEvent, Capture, Command, Connection, Message, Problem, Subscription
from tests.support.settings import RELATIONS
from tests.world.conversation import CLIENT, SERVER
from tests.world.events import check_records
from tests.world.link import CarriedSegment, Session
from tests.world.scripts import SentMessage
from tests.world.tap import Packets, Records, captured, joined
from zmtpsniff.capture.block import Packet
from zmtpsniff.engine.sniffer import Collaborators, Sniffer
from zmtpsniff.net.limits import FlowLimits
from zmtpsniff.net.reassembly import MODULO
from zmtpsniff.net.segment import FIN, RST, SYN

# Notes on what peers really said. Every other problem of a healthy connection that was captured whole is wrong.
TRUE_NOTES = frozenset({"plain-credentials", "heartbeat-inside-message", "older-peer", "slow-joiner"})
# A note on the capture, which packets in order must not have.
DISORDER = "capture-disorder"
# Of more than notes, what may be told of a capture that misses octets.
BLAMES_CAPTURE = frozenset({"capture-gap", "frames-lost"})
# One of these must be told if octets in the middle are missing.
TELLS_LOSS = BLAMES_CAPTURE | {"frames-found-again", "no-greeting", "one-direction", "capture-ends-inside"}
_PAST = 16 << 20  # octets
_IDLE_NS = int(FlowLimits().idle_seconds * 1e9)
_ENOUGH = 10  # messages behind a hole, among which the next frame must be found
_SIGNATURE = 10  # octets
_GREETING_V2 = _SIGNATURE + 4  # with an identity of no octets
_ENOUGH_BITS = 40.0  # of evidence that they are frames
_MOST_FLAGS = 0.4  # the part of octets that could be flags; with more, false frames follow each other for as long
_FLAGS = {True: b"\x00\x01\x7e\x7f", False: b"\x00\x01\x02\x03\x04\x06"}  # by whether it is ZMTP 1.0


@dataclass
class Case:
    """A capture, and what was really sent."""

    name: str
    sessions: list[Session]
    files: list[Records]
    batch: int = 100
    live: bool = False  # read while it is captured, so that time passes without packets, too
    foreign: bool = False  # another protocol than ZMTP
    timely: bool = False  # stamped as it passed, in order
    skew_ns: int = 0  # by which the clocks of two files differ
    how: str = ""  # what was done to it


@dataclass
class Verdict:
    """The faults of the events, a line each, and how much of what was sent they show."""

    faults: list[str] = field(default_factory=list)
    count: Counter[str] = field(default_factory=Counter)


def sniff(given: Sequence[list[Packet]], batch: int = 100, live: bool = False) -> list[AnyEvent]:
    """All events of packets of these files, as `zmtpsniff read` gets them, or `zmtpsniff live`."""
    source = Packets(joined(given), batch, live)
    sniffer = Sniffer(source, RELATIONS, Collaborators(clock=source.clock if live else None))
    return [event for events in sniffer.events() for event in events]


def judge(case: Case) -> Verdict:
    """Show a case, and hold what is shown against what was sent."""
    files = [captured(records) for records in case.files]
    verdict = Verdict()
    try:
        events = sniff(files, case.batch, case.live)
        check_records(events, joined(files))
    except Exception as error:  # whatever it is, the other cases are to be judged, too
        verdict.faults.append(f"{type(error).__name__}: {error}")
        return verdict
    if case.foreign:
        _check_foreign(case, events, verdict)
        return verdict
    flows = _by_connection(case, events, verdict)
    for session, shown in zip(case.sessions, flows, strict=True):
        _Judge(case, session, shown, verdict).judge()
    return verdict


# ---------------------------------------------------------------------- which connection


def _check_foreign(case: Case, events: Sequence[AnyEvent], verdict: Verdict) -> None:
    total = events[-1]
    assert isinstance(total, Capture)
    verdict.count["flows"] += total.flows
    if total.zmtp_flows:
        verdict.faults.append(f"{case.sessions[0].talk.name} taken for ZMTP: {case.how}")
    shown = [event for event in events[:-1] if not (isinstance(event, Problem) and event.code == DISORDER)]
    if shown and not total.zmtp_flows:
        verdict.faults.append(f"{case.sessions[0].talk.name} has records: {shown[0]}")


def _is_true_of_clocks(event: Problem, case: Case) -> bool:
    """Whether a problem says that the clocks of two capture points differ, and by how much, if that is known.

    A point that is 5 ms late with one direction says half of that too much or too little. One that is late with all
    packets, each by another time, is as one with another clock.
    """
    if event.code != "clocks-differ":
        return False
    said = re.search(r"clocks differ by about ([\d.]+) ms$", event.detail)
    return len(case.files) > 1 if said is None else abs(float(said[1]) * 1e6 - case.skew_ns) <= 5e6


def _by_connection(case: Case, events: Sequence[AnyEvent], verdict: Verdict) -> list[list[AnyEvent]]:
    """The events of each connection; those on the same addresses are told by the order of their flows."""
    by_flow: dict[int, list[AnyEvent]] = {}
    unproven = any(_is_hard_to_prove(case, one) for one in case.sessions)
    ends: dict[int, frozenset[str]] = {}
    for event in events:
        flow = getattr(event, "flow", None)
        if flow is None:
            disorder = isinstance(event, Problem) and event.code == DISORDER and not case.timely
            perhaps = isinstance(event, Problem) and event.code == "perhaps-zmtp" and unproven
            clocks = isinstance(event, Problem) and _is_true_of_clocks(event, case)
            verdict.count["clocks"] += clocks
            # A RST with nothing before it is of no connection: there is nothing else in the capture to be told.
            lone = isinstance(event, Problem) and event.code == "no-flows" and _has_resets_alone(case)
            if (
                isinstance(event, Problem)
                and event.code not in TRUE_NOTES
                and not (disorder or perhaps or lone or clocks)
            ):
                verdict.faults.append(f"{event.severity} {event.code}, of no flow")
            continue
        by_flow.setdefault(flow, []).append(event)
        if isinstance(event, Connection):
            ends[flow] = frozenset((event.client.address, event.server.address))
    out = []
    places: Counter[frozenset[str]] = Counter()
    pairs = [frozenset((one.address(CLIENT), one.address(SERVER))) for one in case.sessions]
    for pair in pairs:
        flows = sorted(flow for flow, addresses in ends.items() if addresses == pair)
        number = pairs.count(pair)
        if len(flows) > number:
            verdict.faults.append(f"{number} connections on one pair of addresses shown as {len(flows)}")
        mine = flows[places[pair] : places[pair] + 1] if places[pair] < number - 1 else flows[places[pair] :]
        places[pair] += 1
        out.append([event for flow in mine for event in by_flow[flow]])
    return out


def _has_resets_alone(case: Case) -> bool:
    return all(record.segment.flags & RST for file in case.files for record in file)


def _is_hard_to_prove(case: Case, session: Session) -> bool:
    """Whether a connection may be said to be perhaps ZMTP: it is 1.0, or its first octets are not in the capture."""
    begin = {
        one.side
        for file in case.files
        for _, one in file
        if one.session is session and one.offset <= 0 < len(one.payload)
    }
    return "1.0" in session.talk.versions or len(begin) < 2


def _has_early_packets(case: Case, session: Session) -> bool:
    """Whether a packet without octets comes before the SYN of its connection, on ports that are used again.

    Nothing in such an acknowledgment or FIN shows that it is not of the connection before.
    """
    for other in case.sessions:
        if other is not session and other.ports == session.ports:
            for one in (other, session):
                segments = [record.segment for file in case.files for record in file if record.segment.session is one]
                syn = next((place for place, segment in enumerate(segments) if segment.flags & SYN), 0)
                if any(not segment.payload for segment in segments[:syn]):
                    return True
    return False


# ---------------------------------------------------------------------- one connection


class _Judge:
    """Holds what is shown of one connection against it."""

    def __init__(self, case: Case, session: Session, shown: list[AnyEvent], verdict: Verdict) -> None:
        self.session = session
        self.talk = session.talk
        self.shown = shown
        self.faults = verdict.faults
        self.count = verdict.count
        records = [record.segment for file in case.files for record in file if record.segment.session is session]
        self.records = records
        self.flags = {(one.side, one.flags & (SYN | FIN | RST)) for one in records}
        self.lengths = [len(self.talk.stream(side)) for side in (CLIENT, SERVER)]
        self.timely = case.timely
        times = [record.time_ns for file in case.files for record in file if record.segment.session is session]
        self.last_ns = max(times, default=0)
        # A RST that the capture has before anything else of a connection is taken for one that has long been over.
        self.rst_is_first = bool(records) and bool(records[0].flags & RST)
        # On the same addresses another one follows, so much later that this one was given up before.
        self.is_left = any(
            record.segment.session.ports == session.ports and record.time_ns - self.last_ns > _IDLE_NS
            for file in case.files
            for record in file
        )
        self.has_early_packets = _has_early_packets(case, session)
        self.runs = [self._runs(records, side) for side in (CLIENT, SERVER)]
        self.first_lost = [runs[0][1] if runs and runs[0][0] == 0 else 0 for runs in self.runs]
        self.seen = [runs[-1][1] if runs else 0 for runs in self.runs]
        # That a frame of ZMTP 1.0 is the first, and so an identity, nothing but a SYN tells. That of the server tells
        # where both begin.
        self.start_known = self.talk.version != "1.0" or (SERVER, SYN) in self.flags
        # Nothing is missing but what comes after the end of the capture.
        reached = [max((one.ack for one in records if one.side != side), default=0) for side in (CLIENT, SERVER)]
        ends = [max((one.offset for one in records if one.side == side), default=0) for side in (CLIENT, SERVER)]
        known = [max(reached[side] - 1, ends[side]) for side in (CLIENT, SERVER)]
        self.gapless = (
            self.start_known
            and self.first_lost == self.seen
            and all(self.seen[side] >= known[side] for side in (CLIENT, SERVER))
        )
        self.whole = self.first_lost == self.lengths and self.start_known
        # For each message shown which one of those sent it is, -1 if it is not known; for both sides.
        self.which: list[list[int]] = [[], []]
        self.messages: list[list[Message]] = [[], []]
        self.misses = False  # messages, though there are octets behind them

    def _runs(self, records: list[CarriedSegment], side: int) -> list[tuple[int, int]]:
        """Where the octets of a side are that are in the capture, without what lies between them."""
        hole, length = self.lengths[side], 0
        if self.session.hole is not None and self.session.hole[0] == side:
            hole, length = self.session.hole[1:]
        runs: list[tuple[int, int]] = []
        for one in sorted((one for one in records if one.side == side and one.payload), key=lambda one: one.offset):
            passed = one.offset > hole  # the hole, whose octets nobody sent
            begin = one.offset - length * passed
            end = begin + len(one.payload)
            if runs and begin <= runs[-1][1] and not (passed and runs[-1][1] <= hole):
                runs[-1] = runs[-1][0], max(runs[-1][1], end)
            else:
                runs.append((begin, end))
        return runs

    def judge(self) -> None:
        for side in (CLIENT, SERVER):
            address = self.session.address(side)
            self.messages[side] = [one for one in self.shown if isinstance(one, Message) and one.src == address]
            self._check_messages(side)
        self._check_subscriptions()
        self._check_commands()
        self._check_pairs()
        self._check_problems()
        if self.whole:
            self._check_connection()

    def _check_messages(self, side: int) -> None:
        """Each message shown was sent, in that order; each that must be seen is shown."""
        sent, shown = self.talk.messages[side], self.messages[side]
        who = ("client", "server")[side]
        places: dict[tuple[bytes, ...], int] = {one.frames: place for place, one in enumerate(sent)}
        subscribed = [
            [bytes([action == "subscribe"]) + topic]
            for action, topic, encoding in self.talk.subscriptions[side]
            if encoding == "message"
        ]
        last = -1
        for event in shown:
            if event.incomplete:
                self.which[side].append(-1)
                self.count["incomplete"] += 1
                if self.whole:
                    self.faults.append(f"a message of the {who} in packet {event.packet} is marked as incomplete")
                continue
            place = places.get(tuple(event.frames), -1)  # type: ignore[arg-type]
            self.which[side].append(place)
            if place < 0 and not self.whole and event.frames in subscribed:
                continue  # nothing tells any more what the socket is
            if place < 0 and event.offset < _GREETING_V2 and self._begins_inside_greeting(side):
                continue
            if place < 0:
                self.faults.append(f"the {who} never sent what packet {event.packet} shows: {_brief(event.frames)}")
            elif place <= last:
                self.faults.append(f"message {place} of the {who} is shown after {last}")
            else:
                last = place
        found = set(self.which[side]) - {-1}
        for begin, end in self.runs[side][self.first_lost[side] > 0 :]:
            behind = [place for place, one in enumerate(sent) if begin <= one.begin and one.end <= end]
            proven = (self.talk.version != "1.0" or self.shown) and not self._is_single_far(side, begin)
            # The first ones may be marked as incomplete, where octets chain in more than one way.
            shown_behind = len(found.intersection(behind)) + self.which[side].count(-1)
            proven = proven and self._is_evident(side, begin, end, behind) and not self._is_proven_late(side, end)
            if proven and len(behind) >= _ENOUGH and 2 * shown_behind < len(behind):
                self.faults.append(f"of {len(behind)} messages of the {who} behind a hole most are not shown")
        self.misses |= any(one.end <= self.seen[side] and place not in found for place, one in enumerate(sent))
        self.count["sent"] += len(sent)
        self.count["shown"] += len(found)
        lost = [place for place, one in enumerate(sent) if self._must_be_shown(side, one) and place not in found]
        if lost:
            self.faults.append(
                f"{len(lost)} of {len(sent)} messages of the {who} are not shown, the first is {lost[0]}"
            )

    def _is_evident(self, side: int, begin: int, end: int, behind: list[int]) -> bool:
        """Whether octets behind a hole show that they are frames.

        A frame shows that as far as an octet with legal flags is rare where it must stand. Where many octets could be
        flags, as in short frames of small numbers, few frames prove nothing: other octets form as good a chain. And
        without a greeting, frames that are messages of their own with less than 256 octets are, octet for octet, those
        of any protocol that writes a length of two octets in front of each item.
        """
        octets = self.talk.stream(side)[begin:end]
        flags = sum(octets.count(bytes([one])) for one in _FLAGS[self.talk.version == "1.0"])
        share = max(flags, 1) / len(octets)
        frames = sum(len(self.talk.messages[side][place].frames) for place in behind)
        if share > _MOST_FLAGS or frames * -math.log2(share) < _ENOUGH_BITS:
            return False
        return bool(self.shown) or not all(self._are_items(other) for other in (CLIENT, SERVER))

    def _are_items(self, side: int) -> bool:
        """Whether all that the capture has of a side are messages of one short frame, or parts of them."""
        sent = self.talk.messages[side]
        short = [one for one in sent if len(one.frames) == 1 and len(one.frames[0]) < 256]
        # Four octets follow the signature in a greeting of 2.0, and anything may begin with those.
        first = sent[0].begin if sent and self.talk.version == "2.0" else 0
        return all(
            sum(max(min(one.end, end) - max(one.begin, begin), 0) for one in short)
            == end - (begin if begin < _SIGNATURE else max(begin, first))
            for begin, end in self.runs[side]
        )

    def _is_proven_late(self, side: int, end: int) -> bool:
        """Whether another hole may come before the proof of ZMTP 1.0, which has no mark."""
        return self.talk.version == "1.0" and end < self.seen[side]

    def _begins_inside_greeting(self, side: int) -> bool:
        """Whether the first octets of a side are the rest of a greeting of 2.0, which may read as frames."""
        begins = [begin for begin, _ in self.runs[side][:1]]
        return self.talk.version == "2.0" and any(_SIGNATURE <= begin < _GREETING_V2 for begin in begins)

    def _is_single_far(self, side: int, begin: int) -> bool:
        """Whether but one segment has come behind a hole of more than a GiB: anybody can forge one."""
        hole = self.session.hole
        if hole is None or hole[0] != side or hole[2] < 1 << 30 or begin < hole[1]:
            return False
        return (
            len({one.offset for one in self.records if one.side == side and one.payload and one.offset > hole[1]}) < 2
        )

    def _must_be_shown(self, side: int, message: SentMessage) -> bool:
        if self.whole:
            return True
        # ZMTP 1.0 has no mark. Nothing proves it where octets are missing, and nothing is shown without proof.
        if not self.start_known or (self.talk.version == "1.0" and not self.gapless):
            return False
        return message.end <= self.first_lost[side]

    def _check_subscriptions(self) -> None:
        for side in (CLIENT, SERVER):
            address = self.session.address(side)
            sent = self.talk.subscriptions[side]
            shown = [
                (one.action, one.topic, one.encoding)
                for one in self.shown
                if isinstance(one, Subscription) and one.src == address and not one.incomplete
            ]
            rest = iter(sent)
            if self.whole and shown != sent:
                self.faults.append(f"subscriptions {shown} instead of {sent}")
            elif not all(any(one == other for other in rest) for one in shown):
                self.faults.append(f"subscriptions {shown} that are not in {sent}")

    def _check_commands(self) -> None:
        """Each command shown was sent by its side; each PONG names the packet of its own PING."""
        pings: list[list[Command]] = [[], []]
        pongs: list[list[Command]] = [[], []]
        for side in (CLIENT, SERVER):
            address = self.session.address(side)
            shown = [
                one for one in self.shown if isinstance(one, Command) and one.src == address and not one.incomplete
            ]
            names = [one.name for one in shown]
            sent = self.talk.commands[side]
            rest = iter(sent)
            if self.whole and names != sent:
                self.faults.append(f"commands {names} instead of {sent}")
            elif not all(name in rest for name in names):
                self.faults.append(f"commands {names} that are not in {sent}")
            pings[side] = [one for one in shown if one.name == "PING"]
            pongs[side] = [one for one in shown if one.name == "PONG"]
        if not self.whole:
            return
        for side in (CLIENT, SERVER):
            for ping, pong in zip(pings[side], pongs[1 - side], strict=False):
                if pong.request != ping.packet:
                    self.faults.append(
                        f"the PONG in packet {pong.packet} is shown with packet {pong.request} instead of {ping.packet}"
                    )

    def _check_pairs(self) -> None:
        """Each reply names the packet of its own request."""
        talk = self.talk
        asks, answers = talk.requester, 1 - talk.requester
        by_place = {
            which: event for which, event in zip(self.which[asks], self.messages[asks], strict=True) if which >= 0
        }
        packet_of = {which: event.packet for which, event in by_place.items()}
        of_others = {event.packet for event in self.messages[asks] if event.incomplete}
        unclear = self._unclear(by_place)
        for which, event in zip(self.which[answers], self.messages[answers], strict=True):
            if which < 0:
                continue
            request = talk.pairs.get(which)
            if request is None:
                if event.request is not None:
                    self.faults.append(f"message {which} in packet {event.packet} answers nothing, but is shown to")
                continue
            if event.request is None:
                self.count["unpaired"] += 1
                if self.gapless and talk.pairs_shown and request in packet_of and request not in unclear:
                    self.faults.append(f"reply {which} in packet {event.packet} is shown without its request")
            elif event.request == packet_of.get(request) or (request not in packet_of and event.request in of_others):
                self.count["right pairs"] += 1
                asked = by_place.get(request)
                if event.latency_ns is not None:
                    if asked is not None and event.latency_ns != event.time_ns - asked.time_ns:
                        self.faults.append(f"the latency in packet {event.packet} is not what lies between the two")
                elif self.timely:
                    self.faults.append(f"packet {event.packet} has no latency")
            else:
                self.count["wrong pairs"] += 1
                if talk.types[asks] == "DEALER" and self.first_lost == [0, 0]:
                    continue  # no type is known, and a DEALER that takes turns for long enough looks like a REQ
                self.faults.append(
                    f"reply {which} in packet {event.packet} is shown with the request of {event.request}"
                )

    def _unclear(self, asked: dict[int, Message]) -> set[int]:
        """The requests that nothing joins with their replies, by place.

        Any socket but REP may answer in any order. So while several requests with one envelope wait, none of their
        replies says which it answers; nor does one without an envelope. A request does not wait any more if its sender
        had seen the reply before the next one with that envelope.
        """
        talk = self.talk
        if talk.types[1 - talk.requester] == "REP":
            return set()
        answers = dict(zip(self.which[1 - talk.requester], self.messages[1 - talk.requester], strict=True))
        answered = {request: answers[reply].offset for reply, request in talk.pairs.items() if reply in answers}
        unclear: set[int] = set()
        waiting: dict[tuple[bytes, ...], list[int]] = {}
        for place, event in sorted(asked.items()):
            frames = talk.messages[talk.requester][place].frames
            if b"" not in frames:
                unclear.add(place)
                continue
            alike = waiting.setdefault(frames[: frames.index(b"")], [])
            if all(answered.get(one, event.seen) < event.seen for one in alike):
                alike.clear()
            alike.append(place)
            if len(alike) > 1:
                unclear.update(alike)
        return unclear

    def _check_problems(self) -> None:
        loss_told = False
        for event in self.shown:
            if not isinstance(event, Problem):
                continue
            loss_told = loss_told or event.code in TELLS_LOSS
            allowed = event.severity == "note" and event.code in TRUE_NOTES
            if self.has_early_packets:
                allowed = allowed or event.code in BLAMES_CAPTURE
            if not self.whole:
                allowed = event.severity == "note" or event.code in BLAMES_CAPTURE
                allowed = allowed or (event.code == "ping-unanswered" and self._is_hole_at_end())
                if event.code == "implausible-length" and self.talk.version == "1.0" and not self.start_known:
                    allowed = True  # the first frames in the capture may read as those of 2.0, too
                if event.code == "handshake-incomplete" and self.first_lost == self.seen:
                    allowed = True  # the capture ended before the handshake did
            if not allowed:
                self.faults.append(f"{event.severity} {event.code} in packet {event.packet}: {event.detail}")
        # Numbers shortly before 4 GiB later are those of octets that came already.
        wraps = self.session.hole is not None and self.session.hole[2] > MODULO - _PAST
        if self.shown and self.misses and not (loss_told or wraps):
            self.faults.append("nothing tells of the octets that are missing")

    def _is_hole_at_end(self) -> bool:
        """Whether no octets behind the hole are in the capture. Only the number of a RST shows such a hole."""
        hole = self.session.hole
        return hole is not None and self.seen[hole[0]] <= hole[1]

    def _check_connection(self) -> None:
        """The connection record of a capture that has all octets."""
        records = [one for one in self.shown if isinstance(one, Connection)]
        if not records:
            self.faults.append("no connection is shown")
            return
        record, talk = records[0], self.talk
        has_syn = any(flags & SYN for _, flags in self.flags)
        if has_syn or self.session.ports[CLIENT] > self.session.ports[SERVER]:
            shown = record.client.address, record.server.address
            if shown != (self.session.address(CLIENT), self.session.address(SERVER)):
                self.faults.append("client and server are taken for each other")
                return
        else:
            return
        wanted: dict[str, str | None] = {"handshake": "complete", "version": talk.version, "mechanism": talk.mechanism}
        if talk.version != "1.0":
            wanted["client's type"], wanted["server's type"] = talk.types
        wanted["client's version"], wanted["server's version"] = map(self._announced, (CLIENT, SERVER))
        if talk.end == "rst" and any(flags & RST for _, flags in self.flags):
            wanted["end"] = "rst"
        elif talk.end == "open" or all((side, FIN) in self.flags for side in (CLIENT, SERVER)):
            wanted["end"] = talk.end
        told = {
            "handshake": record.handshake,
            "version": record.version,
            "mechanism": record.mechanism,
            "client's type": record.client.socket_type,
            "server's type": record.server.socket_type,
            "client's version": record.client.version,
            "server's version": record.server.version,
            "end": record.end,
        }
        for name, value in wanted.items():
            if name == "end" and self.has_early_packets:
                continue
            if name == "end" and told[name] == ("timeout" if self.is_left else "open" if self.rst_is_first else value):
                continue
            if told[name] != value:
                self.faults.append(f"{name}: {told[name]} instead of {value}")
        octets = [record.octets.client, record.octets.server]
        if octets != self.lengths and not self.has_early_packets:
            self.faults.append(f"octets: {octets} instead of {self.lengths}")

    def _announced(self, side: int) -> str | None:
        """The version that a side says: it is silent on what the other is too old for."""
        mine, other = self.talk.versions[side], self.talk.versions[1 - side]
        if other == "1.0" and mine != "1.0":
            return None
        return "3" if other == "2.0" and mine[0] == "3" else mine


def _brief(frames: Sequence[object]) -> str:
    text = repr(frames)
    return text if len(text) < 100 else f"{text[:100]}..."
