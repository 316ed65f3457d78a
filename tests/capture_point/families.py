"""Families of captures: what can happen to the order of packets, and to the packets. Each case comes of its seed."""

from collections.abc import Callable
from random import Random

from .conversations import CLIENT, MS, SERVER, US, converse
from .network import Link, Session, connect
from .oracle import Case
from .tap import Records, duplicate, jitter, late, swap, watch

_ASKING = frozenset({"REQ", "DEALER"})


def _session(random: Random, place: int = 0, kinds: frozenset[str] | None = None) -> Session:
    return connect(converse(random, kinds), random, Link.choose(random), place)


def _case(random: Random, how: str, sessions: list[Session], *files: Records) -> Case:
    return Case("", sessions, list(files), random.choice([1, 7, 100, 100, 1000]), how=how)


def in_order(random: Random) -> Case:
    """Packets as they pass: what must be right before anything else can be."""
    session = _session(random)
    return _case(random, "in order", [session], watch(session))


def pairs(random: Random) -> Case:
    """Requests and replies, swapped a few places or one side late: each reply belongs to its own request."""
    session = _session(random, kinds=_ASKING)
    records, how = _disorder(watch(session), random)
    return _case(random, how, [session], records)


def skew(random: Random) -> Case:
    """Any conversation, one direction late or held up in queues."""
    session = _session(random)
    records = watch(session)
    side = random.choice([CLIENT, SERVER])
    if random.random() < 0.7:
        late_ns = random.choice([1, 2, 5, 20, 50]) * MS
        return _case(random, f"side {side} {late_ns / MS} ms late", [session], late(records, side, late_ns))
    most = random.choice([50 * US, 1 * MS, 10 * MS])
    return _case(random, f"queues of {most / MS} ms", [session], jitter(records, random, most, lambda one: one.side))


def _disorder(records: Records, random: Random) -> tuple[Records, str]:
    """Disorder of any kind in which no packet is lost."""
    kind = random.choice(["swap", "swap", "late", "queues", "twice"])
    if kind == "swap":
        places = random.choice([2, 2, 3, 4, 10])
        share = random.choice([1.0, 0.3, 0.05])
        stamps = random.choice(["move", "stay"])
        return swap(records, random, places, share, stamps), f"{share:.0%} swapped by {places}, stamps {stamps}"  # type: ignore[arg-type]
    if kind == "late":
        side = random.choice([CLIENT, SERVER])
        late_ns = random.choice([100 * US, 1 * MS, 5 * MS])
        return late(records, side, late_ns), f"side {side} {late_ns / MS} ms late"
    if kind == "queues":
        most = random.choice([50 * US, 500 * US, 5 * MS])
        return jitter(records, random, most, lambda one: one.side), f"queues of {most / MS} ms"
    later = random.choice([1, 100 * US, 10 * MS])
    return duplicate(records, random, 0.2, later), f"twice within {later / MS} ms"


FAMILIES: dict[str, Callable[[Random], Case]] = {
    "order": in_order,
    "pairs": pairs,
    "skew": skew,
}


def make(family: str, seed: int) -> Case:
    """The case of a family that comes of a seed."""
    case = FAMILIES[family](Random(f"{family} {seed}"))
    case.name = f"{family}:{seed}"
    return case
