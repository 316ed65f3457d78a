"""Every capture of the fixtures, damaged: cut anywhere, without any one packet, with any octet changed.

Nothing may fail or hang, and no message may be reported that was not sent. A part of it runs each time, chosen by a
seed; with ZMTPSNIFF_FAULTS=all all of it does (10,000 changed octets), in about a quarter of an hour.
"""

import os
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dissectors.events import AnyEvent, Greeting, Message, Subscription
from tests.support.paths import PROJECT
from tests.support.settings import WIRE
from tests.world.events import is_subsequence, sniff
from tests.world.tap import load
from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.capture.files import open_stream
from zmtpsniff.capture.source import CaptureError, SourceState
from zmtpsniff.decode_as import parse
from zmtpsniff.engine.sniffer import Sniffer
from zmtpsniff.net.addresses import addresses
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.segment import Segment

ALL = os.environ.get("ZMTPSNIFF_FAULTS") == "all"
CAPTURES = sorted(PROJECT.glob("fixtures/*.pcap*"))
FLIPS = 10_000  # of all captures together
SHARE = 40  # one of so many faults is looked at where not all are
STEP = 97  # octets
SETTINGS = WIRE._replace(decode_as=(parse("udp.port==5556,zmtp"),))

# Processor time, which other programs on the machine have no part in: what no capture takes even on a slow one.
MOST_SECONDS = 5.0
MOST_SECONDS_AN_OCTET = 0.001

each_capture = pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.name.partition(".")[0])


class Octets(SourceState):
    """A capture file that is at hand, as a source of packets."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._packets = open_stream("capture", (data[at : at + 1000] for at in range(0, len(data), 1000)), self)

    def batches(self) -> Iterator[Block]:
        yield from self._packets


packets_of = cache(load)
Said = dict[tuple[str, str], list[Any]]  # by sender and receiver


def whole_messages(events: Sequence[AnyEvent]) -> Said:
    """The frames of all messages that are not marked as incomplete."""
    out: Said = {}
    for event in events:
        if isinstance(event, Message) and not event.incomplete:
            out.setdefault((event.src, event.dst), []).append(event.frames)
    return out


@cache
def sent(path: Path) -> Said:
    """The messages of the capture, and the frames that count as messages if those before them are lost."""
    out: Said = {}
    for event in events_of(path.read_bytes()):
        frames: Sequence[Any]
        if isinstance(event, Message):
            frames = event.frames
        elif isinstance(event, Subscription) and event.encoding == "message":
            assert isinstance(event.topic, bytes)
            frames = [bytes([event.action == "subscribe"]) + event.topic]
        elif isinstance(event, Greeting) and event.identity is not None:
            frames = [event.identity]
        else:
            continue
        out.setdefault((event.src, event.dst), []).append(frames)
    return out


def chosen(faults: Sequence[int], path: Path, kind: str) -> list[int]:
    """All faults, or some of them, another choice for each capture and kind."""
    if ALL or len(faults) <= 2:
        return list(faults)
    return Random(f"{path.name} {kind}").sample(faults, max(len(faults) // SHARE, 2))


def events_of(data: bytes) -> list[AnyEvent]:
    """The events of a file; none if it is no capture."""
    try:
        source = Octets(data)
        return [event for some in Sniffer(source, SETTINGS).events() for event in some]
    except CaptureError:
        return []


class Watch:
    """Fails if what is done inside takes longer than so many octets may."""

    def __init__(self, octets: int) -> None:
        self._most = MOST_SECONDS + octets * MOST_SECONDS_AN_OCTET

    def __enter__(self) -> None:
        self._start = time.process_time()

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            assert time.process_time() - self._start < self._most


def invents_nothing(events: list[AnyEvent], path: Path, what: object) -> None:
    for ends, found in whole_messages(events).items():
        assert is_subsequence(found, sent(path).get(ends, [])), what


@each_capture
def test_cut_short(path: Path) -> None:
    data = path.read_bytes()
    for end in chosen(range(1, len(data), STEP), path, "cut"):
        with Watch(end):
            events = events_of(data[:end])
        invents_nothing(events, path, end)


@each_capture
def test_without_any_one_packet(path: Path) -> None:
    given = packets_of(path)
    for lost in chosen(range(len(given)), path, "dropped"):
        left = given[:lost] + given[lost + 1 :]
        with Watch(sum(len(packet[2]) for packet in left)):
            events = sniff(left)
        invents_nothing(events, path, lost)


@each_capture
def test_any_octet_of_the_file_changed(path: Path) -> None:
    data = path.read_bytes()
    for seed in chosen(range(FLIPS // 2 // len(CAPTURES) + 1), path, "file"):
        random = Random(f"{path.name} {seed}")
        octets = bytearray(data)
        octets[random.randrange(len(octets))] ^= random.randrange(1, 256)
        with Watch(len(data)):
            events_of(bytes(octets))


def ends_of(packet: Packet) -> set[str]:
    """Both ends of a packet's connection, as events name them."""
    return {end.text for segment in _segments(packet) for end in addresses(segment[2])}


def _segments(packet: Packet) -> list[Segment]:
    return HeaderDecoder().segments([packet], 1)


@each_capture
def test_any_octet_of_a_packet_changed(path: Path) -> None:
    """It may change what its own connection says, and what that it now claims to be of, but no other."""
    given = packets_of(path)
    whole = whole_messages(sniff(given))
    for seed in chosen(range(FLIPS // 2 // len(CAPTURES) + 1), path, "packet"):
        random = Random(f"{path.name} {seed} packet")
        place = random.randrange(len(given))
        time_ns, link, data, wire, comment = given[place]
        octets = bytearray(data)
        octets[random.randrange(len(octets))] ^= random.randrange(1, 256)
        changed = (time_ns, link, bytes(octets), wire, comment)
        mutated = [*given[:place], changed, *given[place + 1 :]]
        with Watch(sum(len(packet[2]) for packet in mutated)):
            events = sniff(mutated)
        if not (before := ends_of(given[place])):
            continue  # no TCP: PGM has ports of its own
        touched = before | ends_of(changed)
        found = whole_messages(events)
        for ends in found.keys() | whole.keys():
            if not set(ends) <= touched:
                assert found.get(ends, []) == whole.get(ends, []), (seed, ends)


def test_what_is_cut_or_lost_is_found() -> None:
    """The checks above would not pass if messages were made up, or taken from where they were not sent."""
    path = PROJECT / "fixtures" / "m31_push_pull.pcap"
    assert sum(map(len, sent(path).values())) > 10
    events = sniff(packets_of(path))
    message = next(event for event in events if isinstance(event, Message))
    message.frames = [b"nobody sent this"]
    with pytest.raises(AssertionError):
        invents_nothing(events, path, "made up")
