"""Families of captures: what can happen to the order of packets, and to packets. Each case comes of its seed."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Literal

from tests.world.conversation import CLIENT, SERVER
from tests.world.link import CarriedSegment, Link, Session, connect
from tests.world.protocols import PROTOCOLS
from tests.world.scripts import MS, SECOND, US, KnownConversation, converse, speak
from tests.world.tap import Record, Records, duplicate, jitter, late, swap, watch, without
from zmtpsniff.net.segment import FIN, RST, SYN

from .oracle import Case

_PLACES = (0.0, 0.02, 0.5, 0.98, 1.0)  # of the capture point, from client to server
_ASKING = frozenset({"REQ", "DEALER"})


def _session(random: Random, kinds: frozenset[str] | None = None, greets: bool = False) -> Session:
    return connect(converse(random, kinds, greets), random, Link.choose(random))


def _several(random: Random, kinds: frozenset[str] | None = None) -> list[Session]:
    """Mostly one connection, now and then some at the same time."""
    count = random.choice([1, 1, 1, 2, 4])
    return [
        connect(
            converse(random, kinds), random, Link.choose(random), place, int(random.random() * 10 * MS) * (place > 0)
        )
        for place in range(count)
    ]


def _watched(random: Random, sessions: list[Session]) -> Records:
    return watch(random.choice(_PLACES), *sessions)


def _case(random: Random, how: str, sessions: list[Session], *files: Records) -> Case:
    live = len(files) == 1 and random.random() < 0.2
    return Case(
        "", sessions, list(files), random.choice([1, 7, 100, 100, 1000]), live, how=f"{how}, live" if live else how
    )


# ---------------------------------------------------------------------- order


def order(random: Random) -> Case:
    """Packets as they pass: what must be right before anything else can be."""
    sessions = _several(random)
    return replace(_case(random, "in order", sessions, _watched(random, sessions)), timely=True)


def pairs(random: Random) -> Case:
    """Requests and replies in some disorder: each reply belongs to its own request."""
    sessions = _several(random, _ASKING)
    records, how = _disorder(_watched(random, sessions), random)
    return _case(random, how, sessions, records)


def swaps(random: Random) -> Case:
    """Any conversation, its packets up to ten places off."""
    sessions = _several(random)
    records, how = _swapped(_watched(random, sessions), random, random.choice([2, 3, 4, 10]))
    return _case(random, how, sessions, records)


def skew(random: Random) -> Case:
    """Any conversation, one direction late or held up in queues."""
    sessions = _several(random)
    records = _watched(random, sessions)
    if random.random() < 0.7:
        records, how = _late(records, random, random.choice([1, 2, 5, 20, 50]) * MS)
    else:
        records, how = _queues(records, random, random.choice([50 * US, 1 * MS, 10 * MS]))
    return _case(random, how, sessions, records)


def storm(random: Random) -> Case:
    """Any conversations, one disorder upon the other."""
    sessions = _several(random)
    records = _watched(random, sessions)
    how = []
    for _ in range(random.randint(2, 4)):
        records, said = _disorder(records, random)
        how.append(said)
    return _case(random, ", ".join(how), sessions, records)


def _disorder(records: Records, random: Random, most_ns: int = 5 * MS) -> tuple[Records, str]:
    """Disorder of any kind in which no packet is lost; queues hold one for ``most_ns`` at most."""
    kind = random.choice(["swap", "swap", "late", "queues", "twice"])
    if kind == "swap":
        return _swapped(records, random, random.choice([2, 2, 3, 4, 10]))
    if kind == "late":
        return _late(records, random, random.choice([100 * US, 1 * MS, 5 * MS]))
    if kind == "queues":
        return _queues(records, random, min(random.choice([50 * US, 500 * US, 5 * MS]), most_ns))
    later = random.choice([1, 100 * US, 10 * MS])
    return duplicate(records, random, 0.2, later), f"twice within {later / MS} ms"


def _swapped(records: Records, random: Random, places: int) -> tuple[Records, str]:
    share = random.choice([1.0, 0.3, 0.05])
    stamps: Literal["move", "stay"] = random.choice(("move", "stay"))
    return swap(records, random, places, share, stamps), f"{share:.0%} swapped by {places}, stamps {stamps}"


def _late(records: Records, random: Random, late_ns: int) -> tuple[Records, str]:
    side = random.choice([CLIENT, SERVER])
    return late(records, side, late_ns), f"the {_name(side)} {late_ns / MS} ms late"


def _queues(records: Records, random: Random, most_ns: int) -> tuple[Records, str]:
    if random.random() < 0.7:
        return jitter(records, random, most_ns, lambda one: one.side), f"a queue of {most_ns / MS} ms for each side"
    return jitter(records, random, most_ns, id), f"every packet up to {most_ns / MS} ms late"


def _name(side: int) -> str:
    return ("client", "server")[side]


# ---------------------------------------------------------------------- the beginning


def _syn(segment: CarriedSegment) -> bool:
    return segment.side == CLIENT and bool(segment.flags & SYN)


def _syn_ack(segment: CarriedSegment) -> bool:
    return segment.side == SERVER and bool(segment.flags & SYN)


def _within(side: int, begin: int, end: int) -> Callable[[CarriedSegment], bool]:
    """Whether a segment has octets of a side between two offsets."""
    return lambda one: (
        one.side == side and bool(one.payload) and one.offset < end and one.offset + len(one.payload) > begin
    )


_OPENINGS: dict[str, Callable[[CarriedSegment], bool]] = {
    "SYN": _syn,
    "SYN-ACK": _syn_ack,
    "SYN and SYN-ACK": lambda one: bool(one.flags & SYN),
    "ACK": lambda one: not one.payload and one.offset == 0,
    "SYN-ACK and the server's greeting": lambda one: _syn_ack(one) or _within(SERVER, 0, 64)(one),
    "SYN and the client's greeting": lambda one: _syn(one) or _within(CLIENT, 0, 64)(one),
    "the server's greeting": _within(SERVER, 0, 64),
    "the client's greeting": _within(CLIENT, 0, 64),
    "the client's first octets": _within(CLIENT, 0, 1),
    "the server's first octets": _within(SERVER, 0, 1),
    "the server's second octets": _within(SERVER, 10, 11),
    "the client's READY": _within(CLIENT, 64, 90),
    "the server's READY": _within(SERVER, 64, 90),
}


def handshake(random: Random) -> Case:
    """The opening of a connection is not in order, or lacks parts."""
    session = _session(random)
    records = _watched(random, [session])
    how = []
    if random.random() < 0.6:
        what = random.choice(list(_OPENINGS))
        records = without(records, _OPENINGS[what])
        how.append(f"without {what}")
    if not how or random.random() < 0.5:
        places = random.choice([2, 3, 4, 10])
        first = random.choice([4, 8, 12, 20])
        stamps: Literal["move", "stay"] = random.choice(("move", "stay"))
        records = swap(records[:first], random, places, 1.0, stamps) + records[first:]
        how.append(f"the first {first} swapped by {places}, stamps {stamps}")
    return _case(random, ", ".join(how), [session], records)


# ---------------------------------------------------------------------- losses


def loss(random: Random) -> Case:
    """Packets are missing: nothing is invented, and no peer is accused."""
    # Octets that are sent again without need may come at any time: nobody waits for them.
    session = connect(converse(random), random, replace(Link.choose(random), spurious=0.0))
    records = _watched(random, [session])
    how = []
    if random.random() < 0.3:
        records, said = _disorder(records, random)
        how.append(said)
    records, said = random.choice(_LOSSES)(records, session, random)
    how.append(said)
    return _case(random, ", ".join(how), [session], records)


def _lose_some(records: Records, session: Session, random: Random) -> tuple[Records, str]:
    share = random.choice([0.01, 0.05, 0.2, 0.5])
    return without(records, lambda _: random.random() < share), f"{share:.0%} lost"


def _lose_of_one_side(records: Records, session: Session, random: Random) -> tuple[Records, str]:
    side, share = random.choice([CLIENT, SERVER]), random.choice([0.05, 0.3, 0.8, 1.0])
    return without(
        records, lambda one: one.side == side and random.random() < share
    ), f"{share:.0%} of {_name(side)} lost"


def _lose_a_burst(records: Records, session: Session, random: Random) -> tuple[Records, str]:
    begin = random.randrange(len(records))
    count = random.choice([1, 2, 5, 20])
    return records[:begin] + records[begin + count :], f"{count} lost from {begin} on"


def _lose_a_message(records: Records, session: Session, random: Random) -> tuple[Records, str]:
    """A message, or what is in its middle."""
    side = random.choice([CLIENT, SERVER])
    if not session.talk.messages[side]:
        side = 1 - side
    if not session.talk.messages[side]:
        return _lose_a_burst(records, session, random)
    number = random.randrange(len(session.talk.messages[side]))
    message = session.talk.messages[side][number]
    begin, end = message.begin, message.end
    if random.random() < 0.3:
        begin = (begin + end) // 2
        end = begin + 1
    return without(records, _within(side, begin, end)), f"{begin} to {end} of {_name(side)} lost"


def _start_late(records: Records, session: Session, random: Random) -> tuple[Records, str]:
    count = random.choice([1, 2, 3, 5, random.randrange(len(records))])
    return records[count:], f"from {count} on"


def _end_early(records: Records, session: Session, random: Random) -> tuple[Records, str]:
    count = random.randrange(1, len(records))
    return records[:-count], f"without the last {count}"


_LOSSES = [_lose_some, _lose_of_one_side, _lose_a_burst, _lose_a_message, _lose_a_message, _start_late, _end_early]


# ---------------------------------------------------------------------- several files


def merge(random: Random) -> Case:
    """Files of two hosts whose clocks differ, read together; each may lack packets that the other one has."""
    sessions = _several(random)
    skew_ns = random.choice([-1, 1]) * random.choice([0, 100 * US, 1 * MS, 5 * MS, 20 * MS, 50 * MS])
    files = [watch(0.0, *sessions), [Record(time + skew_ns, one) for time, one in watch(1.0, *sessions)]]
    kept = random.choice(["all", "sent", "received"])
    if kept != "all":
        files = [
            [record for record in file if (record.segment.side == side) == (kept == "sent")]
            for side, file in enumerate(files)
        ]
    how = f"two hosts, {skew_ns / MS} ms apart, each with what is {kept}"
    if random.random() < 0.4:
        disturbed = [_disorder(file, random) for file in files]
        files = [file for file, _ in disturbed]
        how += "".join(f", {said}" for _, said in disturbed)
    if random.random() < 0.5:
        files.reverse()
    case = replace(_case(random, how, sessions, *files), skew_ns=abs(skew_ns))
    # As with losses of one file: nobody waits for octets that are sent again without need.
    if random.random() < 0.5 and not any(session.link.spurious for session in sessions):
        share = random.choice([0.01, 0.03, 0.1])
        lossy = [without(file, lambda _: random.random() < share) for file in case.files]
        case = replace(case, files=lossy, how=f"{case.how}, each without {share:.0%}")
    return case


def holes(random: Random) -> Case:
    """Two files of one long connection; between them far more octets of one side passed than its numbers count."""
    session, number = _long_pause(random)
    talk, segments = session.talk, session.segments
    side = talk.pieces[number].side
    offset = _said(talk, number)[side]
    first_ns = next(one.time_ns for one in segments if one.side == side and one.offset == offset and one.payload)
    length = random.choice([1 << 20, 1 << 28, random.randrange(1 << 31, 1 << 32), random.randrange(1 << 31, 1 << 32)])
    # Numbers that come back to where they were before tell of octets that are sent again, not of others.
    length = min(length, (1 << 32) - len(talk.stream(side)))
    for one in segments:
        if one.time_ns >= first_ns:
            one.offset += length * (one.side == side)
            one.ack += length * (one.side != side and one.flags != RST)
    session.hole = side, offset, length
    records = _watched(random, [session])
    middle = next(place for place, record in enumerate(records) if record.segment.time_ns >= first_ns)
    files = [records[:middle], records[middle:]]
    how = f"{length / (1 << 30):.3f} GiB of the {_name(side)} missing"
    if random.random() < 0.5:  # the files end and begin anywhere
        cut = random.randrange(4)
        files = [files[0][: len(files[0]) - cut] if cut else files[0], files[1][random.randrange(4) :]]
        how += " and some packets around"
    if random.random() < 0.2:
        files = [_disorder(file, random)[0] for file in files]
        how += ", in disorder"
    if random.random() < 0.3:
        files = [files[0] + files[1]]
    # A live reader sees a reply overdue hours before anything tells that packets are missing.
    return replace(_case(random, how, [session], *files), live=False)


def _long_pause(random: Random) -> tuple[Session, int]:
    """A connection that is silent for hours, and the number of the write that comes then."""
    while True:
        talk = converse(random, greets=True)
        quiet = [place for place in range(talk.opening + 4, len(talk.pieces) - 2) if talk.is_quiet(_said(talk, place))]
        if quiet:
            break
    number = random.choice(quiet)
    first = talk.pieces[number]
    before = [sum(piece.side == side for piece in talk.pieces[:number]) for side in (CLIENT, SERVER)]
    pause_ns = random.randrange(60, 20 * 3600) * SECOND
    talk.pieces[number] = first._replace(needs=before[1 - first.side], pause_ns=pause_ns)
    for place, piece in enumerate(talk.pieces):
        if place > number and piece.side != first.side:  # the other side is silent, too
            talk.pieces[place] = piece._replace(needs=max(piece.needs, before[first.side] + 1))
    return connect(talk, random, Link.choose(random)), number


def _said(talk: KnownConversation, number: int) -> tuple[int, int]:
    """How many octets of both sides are in the first pieces."""
    octets = [0, 0]
    for piece in talk.pieces[:number]:
        octets[piece.side] += len(piece.data)
    return octets[CLIENT], octets[SERVER]


# ---------------------------------------------------------------------- ports that are used again


def reuse(random: Random) -> Case:
    """Connections one after the other on the same ports: the end of one or the SYN of the next is in the capture."""
    case, how = _one_after_the_other(random, announced=True)
    if random.random() < 0.3:
        case.files[0], said = _disorder(case.files[0], random, 500 * US)
        how += f"; {said}"
    return replace(case, how=how)


def unannounced(random: Random) -> Case:
    """The same, without both: only the numbers of both sides, and greetings, tell that it is another connection."""
    case, how = _one_after_the_other(random, announced=False)
    return replace(case, how=how)


def _one_after_the_other(random: Random, announced: bool) -> tuple[Case, str]:
    sessions: list[Session] = []
    kept: set[int] = set()
    how = []
    now = 0
    ended = False
    while len(sessions) < 2 or random.random() < 0.2:
        with_syn = not sessions or (announced and (not ended or random.random() < 0.5))
        session = connect(converse(random, greets=True), random, Link.choose(random), 0, now)
        if sessions:
            session.ports = sessions[-1].ports
            if with_syn and random.random() < 0.5:
                _number_by_clock(session, sessions[-1])
            # By chance its numbers may go on where others ended. Without a SYN that is a hole of both sides.
            if any(_near(session, one, 0 if with_syn else 1 << 30) for one in sessions):
                continue
        ended = announced and session.talk.end != "open" and random.random() < 0.6
        unseen = (0 if with_syn else SYN) | (0 if ended else FIN | RST)
        kept.update(id(one) for one in session.segments if not one.flags & unseen)
        how.append(
            f"{session.talk.name} {'with' if with_syn else 'without'} SYN, {session.talk.end if ended else 'no end'}"
        )
        now = max(one.arrival_ns for one in session.segments)
        now += random.choice([20 * MS, 200 * MS, 2 * SECOND, 90 * SECOND])
        sessions.append(session)
    records = [record for record in _watched(random, sessions) if id(record.segment) in kept]
    return _case(random, "", sessions, records), "; ".join(how)


def _number_by_clock(session: Session, before: Session) -> None:
    """Initial sequence numbers as Linux chooses them for a pair of addresses: one more every 64 ns."""
    later = (session.segments[0].time_ns - before.segments[0].time_ns) // 64
    session.isn = (before.isn[CLIENT] + later) % (1 << 32), (before.isn[SERVER] + later) % (1 << 32)


def _near(session: Session, before: Session, room: int) -> bool:
    """Whether numbers of a connection are those of one before, or that near to them."""
    for side in (CLIENT, SERVER):
        mine, theirs = len(session.talk.stream(side)) + 2, len(before.talk.stream(side)) + 2
        away = (session.isn[side] - before.isn[side]) % (1 << 32)
        if away <= theirs + room or away >= (1 << 32) - mine - room:
            return True
    return False


# ---------------------------------------------------------------------- other protocols


def protocols(random: Random) -> Case:
    """A flow that is not ZMTP, from its start or not, in some disorder."""
    name = random.choice(list(PROTOCOLS))
    session = connect(speak(name, random), random, Link.choose(random))
    whole = records = _watched(random, [session])
    how = name
    if random.random() < 0.5:
        count = random.choice([1, 2, 3, random.randrange(len(records))])
        records = whole[count:]
        how += f", from {count} on"
        if all(_chains(records, side) for side in (CLIENT, SERVER)):  # nobody could tell it from ZMTP
            records = whole
            how = name
    if random.random() < 0.2:
        records, said = _disorder(records, random)
        how += f", {said}"
    return replace(_case(random, how, [session], records), foreign=True)


def _chains(records: Records, side: int) -> bool:
    """Whether all that is seen of a side can be read as frames of ZMTP 2.0 and later."""
    seen = sorted((one.offset, one.payload) for _, one in records if one.side == side and one.payload)
    octets = b""
    begin = seen[0][0] if seen else 0
    for offset, payload in seen:
        octets += payload[max(begin + len(octets) - offset, 0) :]
    at = 0
    while at + 2 <= len(octets):
        if octets[at] > 7:
            return False
        long = octets[at] & 2
        at += 9 + int.from_bytes(octets[at + 1 : at + 9]) if long else 2 + octets[at + 1]
    return at - len(octets) < 1 << 20


FAMILIES: dict[str, Callable[[Random], Case]] = {
    "order": order,
    "pairs": pairs,
    "swaps": swaps,
    "skew": skew,
    "storm": storm,
    "handshake": handshake,
    "loss": loss,
    "merge": merge,
    "holes": holes,
    "reuse": reuse,
    "unannounced": unannounced,
    "protocols": protocols,
}


def make(family: str, seed: int) -> Case:
    """The case of a family that comes of a seed."""
    return replace(FAMILIES[family](Random(f"{family} {seed}")), name=f"{family}:{seed}")
