"""Records are the same with and without the native core, and the core does as its specification says."""

import io
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissectors.batches import MessageBatch
from dissectors.zmtp.limits import Limits
from tests.support.both_cores import BothCores
from tests.support.paths import PROJECT
from tests.world.conversation import (
    Conversation,
    Piece,
    binary_body,
    greetings,
    json_body,
    publications,
    pushes,
    request_reply,
    text_body,
)
from tests.world.network import SentSegment, duplicate, overlap, packets, reorder, resegment, segments
from tests.world.octets import COMMAND, frame, message
from tests.world.tap import Packets
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.findings import requests as requests_module
from zmtpsniff.analysis.patterns import patterns as patterns_module
from zmtpsniff.analysis.statistics import Statistics
from zmtpsniff.analysis.statistics import statistics as statistics_module
from zmtpsniff.analysis.statistics.report import report
from zmtpsniff.capture import files, pcap, pcapng
from zmtpsniff.capture.block import Packet
from zmtpsniff.capture.files import open_captures
from zmtpsniff.engine import settled, sniffer
from zmtpsniff.engine.settings import Settings
from zmtpsniff.engine.sniffer import Collaborators, Sniffer
from zmtpsniff.render import jsonl
from zmtpsniff.render.summary import SummaryRenderer

CAPTURES = sorted((PROJECT / "fixtures").glob("*.pcap*"))


@pytest.fixture(name="both")
def _both(monkeypatch: pytest.MonkeyPatch) -> BothCores:
    both = BothCores()
    for module in (sniffer, jsonl, patterns_module):
        monkeypatch.setattr(module, "core", both)
    for reader in (pcap, pcapng):
        monkeypatch.setattr(reader, "row_finder", both)
    monkeypatch.setattr(settled, "LONGEST_RUN", 1)
    monkeypatch.setattr(settled, "LEAST", 0)
    return both


def records(source: object, batches: bool = True, **more: object) -> bytes:
    """All records of a source, as JSON Lines."""
    out = io.BytesIO()
    renderer = jsonl.JsonlRenderer(out, 0)
    settings = Settings(batches=batches, limits=Limits(body_octets=0), **more)  # type: ignore[arg-type]
    for events in Sniffer(source, settings).events():  # type: ignore[arg-type]
        renderer.write(events)
    return out.getvalue()


def results(source: object) -> list[object]:
    """A summary, statistics and findings of a source."""
    diagnosis, statistics, out = Diagnosis(), Statistics(), io.StringIO()
    renderer = SummaryRenderer(out, 100, 0, True, "never", False, "absolute", None)
    for events in Sniffer(source, Settings(batches=True), Collaborators(witness=diagnosis)).events():  # type: ignore[arg-type]
        renderer.write(events)
        statistics.take(events)
        diagnosis.take(events)
    return [out.getvalue(), report(statistics, 100, "messages"), diagnosis.findings()]


@pytest.fixture(scope="module", name="expected")
def _expected() -> dict[Path, bytes]:
    """The records of each capture without the core."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for module in (sniffer, jsonl):
            monkeypatch.setattr(module, "core", None)
        return {path: records(open_captures([str(path)])) for path in CAPTURES}


@pytest.mark.parametrize("octets", [files.CHUNK, 4000, 400])
def test_fixtures_say_the_same_in_pieces_of_any_size(
    octets: int, both: BothCores, expected: dict[Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CHUNK", octets)
    for path in CAPTURES:
        assert records(open_captures([str(path)])) == expected[path], path
        assert records(open_captures([str(path)]), batches=False) == expected[path], path
    assert both.packets > 1000
    assert both.messages > 500


def test_several_requests_at_once_are_paired_in_columns(both: BothCores) -> None:
    """A DEALER numbers its requests; nothing of that is unusual, so no message becomes an object."""
    pieces = greetings(3, b"DEALER", b"ROUTER")
    for side in (0, 1, 0, 1):
        pieces += [Piece(side, message(3, b"%d" % number, b"", b"body")) for number in range(20)]
    without = Settings(batches=True, payload=False)
    given = packets(segments(Conversation("several at once", tuple(pieces))), (1, 2), (40_000, 5555), 10**18, 10**5)
    events = [event for batch in Sniffer(Packets(given, 9), without).events() for event in batch]
    assert both.messages == 80
    assert sum(len(event.messages()) for event in events if isinstance(event, MessageBatch)) > 70
    replies = [one for event in events if isinstance(event, MessageBatch) for one in event.messages() if one.request]
    assert [reply.paired for reply in replies] == ["envelope"] * 40


BODIES = [json_body, text_body, binary_body]


def lock_step(version: int, seed: random.Random) -> Conversation:
    """REQ and REP, with a body of any size, a frame more, and what ends the step now and then."""
    pieces = greetings(version, b"REQ", b"REP")
    for _ in range(seed.randrange(30)):
        for side in (0, 1):
            bodies = [seed.choice(BODIES)(seed, seed.choice([1, 30, 300, 3000])) for _ in range(seed.randint(1, 2))]
            pieces.append(Piece(side, message(version, b"", *bodies)))
        if seed.random() < 0.1:
            pieces.append(Piece(0, seed.choice([message(version, b"", b"again"), message(version, b"no delimiter")])))
        if version == 3 and seed.random() < 0.1:
            pieces.append(Piece(seed.randrange(2), frame(b"\x04PING\0\0x", COMMAND)))
    return Conversation("lock step", tuple(pieces))


def several_at_once(version: int, seed: random.Random) -> Conversation:
    """DEALER and ROUTER, or two of them: several requests wait, and now and then something is unusual."""
    pieces = greetings(version, seed.choice([b"DEALER", b"DEALER", b"ROUTER"]), seed.choice([b"ROUTER", b"DEALER"]))
    envelopes = seed.choice([[[b""]], [[b"%d" % number, b""] for number in range(seed.choice([3, 50]))]])
    odd = [[b""], [b"no", b"delimiter"], [b"", b""], [b"\0\1\2\3\4", b"", b"relayed"], [b"%d" % 1, b"", b"unasked"]]
    waiting: list[list[bytes]] = []
    for number in range(seed.randrange(60)):
        if waiting and seed.random() < 0.5:
            side, envelope = 1, waiting.pop(seed.choice([0, 0, 0, -1]))
        else:
            side, envelope = 0, seed.choice(envelopes)
            waiting.append(envelope)
        frames = [*envelope, b"%d" % number]
        if seed.random() < 0.02:
            side, frames = seed.randrange(2), seed.choice(odd)
        pieces.append(Piece(side, message(version, *frames)))
    return Conversation("several at once", tuple(pieces))


def through_a_proxy(seed: random.Random) -> list[Packet]:
    """Some REQs ask a REP through ROUTER and DEALER; now and then a proxy loses something, or a REQ asks again."""
    fronts = [greetings(3, b"REQ", b"ROUTER") for _ in range(seed.randint(1, 3))]
    times = [[10**18 + number] * len(fronts[0]) for number in range(len(fronts))]
    back, back_ns = greetings(3, b"DEALER", b"REP"), [10**18] * len(fronts[0])
    now = 10**18 + 10**6
    waiting: list[tuple[int, bytes]] = []
    for number in range(seed.randrange(60)):
        client = seed.randrange(len(fronts))
        body = seed.choice([b"ping", b"%d" % number])
        identity = b"\0\0\0\1%c" % client if seed.random() < 0.97 else b"other"
        now += seed.choice([1000, 10**6, 10**9])
        is_free = all(client != one for one, _ in waiting)
        if is_free or seed.random() < 0.02:
            fronts[client].append(Piece(0, message(3, b"", body)))
            times[client].append(now)
            if seed.random() < 0.95:
                back.append(Piece(0, message(3, identity, b"", body)))
                back_ns.append(now + 100)
                waiting.append((client, identity))
        elif waiting:
            client, identity = waiting.pop(0 if seed.random() < 0.95 else -1)
            back.append(Piece(1, message(3, identity, b"", b"re " + body)))
            back_ns.append(now)
            if seed.random() < 0.95:
                fronts[client].append(Piece(1, message(3, b"", b"re " + body)))
                times[client].append(now + 100)
    found = []
    for number, (pieces, whens) in enumerate(zip([*fronts, back], [*times, back_ns], strict=True)):
        sent = segments(Conversation("through a proxy", tuple(pieces)))
        given = packets(sent, (1000, 2000), (41_000 + number, 5555 + (number == len(fronts))), 10**18, 1000)
        found += _at(given, whens)
    return sorted(found, key=lambda packet: packet[0])


def _at(given: list[Packet], times: list[int]) -> list[Packet]:
    """The packets of segments with an acknowledgment behind each, those of the pieces at these times."""
    whens = [times[0] - 3, times[0] - 2, times[0] - 1, *(when + late for when in times for late in (0, 1))]
    whens += [max(times) + 10 + more for more in range(3)]
    return [(when, *packet[1:]) for when, packet in zip(whens, given, strict=True)]


def conversation(seed: random.Random) -> Conversation:
    version = seed.choice([1, 2, 3, 3, 3])
    body = seed.choice(BODIES)
    match seed.randrange(5):
        case 0:
            return pushes(version, seed, seed.randrange(80), body, batch=seed.choice([50, 8192]), parts=3)
        case 1:
            return publications(version, seed, seed.randrange(40))
        case 2:
            return request_reply(version, seed, seed.randrange(30), body)
        case 3:
            return several_at_once(version, seed)
        case _:
            return lock_step(version, seed)


def disturbed(talk: Conversation, seed: random.Random) -> list[SentSegment]:
    """The segments of a conversation, cut anew, and mostly as they were sent."""
    sent = segments(talk)
    if seed.random() < 0.7:
        sizes = seed.choice([[20, 200], [1448], [60_000], [5, 10, 30]])
        sent = resegment(sent, lambda: seed.choice(sizes))
    match seed.randrange(6):
        case 0:
            sent = duplicate(sent, seed, 0.05)
        case 1:
            sent = overlap(sent, talk, seed, 0.05)
        case 2:
            sent = reorder(sent, seed, 3, across=seed.random() < 0.5)
        case 3:
            sent = [one for one in sent if seed.random() > 0.01]
    return sent


def world(seed: random.Random) -> list[Packet]:
    """Some conversations at once, in the order of their times."""
    found = through_a_proxy(seed) if seed.random() < 0.3 else []
    for number in range(seed.randint(0 if found else 1, 4)):
        sent = disturbed(conversation(seed), seed)
        isn = seed.choice([(1000, 500_000), ((1 << 32) - 3000, (1 << 32) - 20)])
        found += packets(
            sent, isn, (40_000 + number, 5555), 10**18 + seed.randrange(10**8), seed.choice([10**5, 10**7])
        )
    return sorted(found, key=lambda packet: packet[0])


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32), batch=st.sampled_from([1, 3, 40, 1000]), columns=st.booleans())
def test_any_conversation_says_the_same(seed: int, batch: int, columns: bool) -> None:
    given = world(random.Random(seed))
    with pytest.MonkeyPatch.context() as monkeypatch:
        modules = sniffer, jsonl, statistics_module, patterns_module, requests_module
        for module in modules:
            monkeypatch.setattr(module, "core", None)
        expected = records(Packets(given, batch)), results(Packets(given, batch))
        for module in modules:
            monkeypatch.setattr(module, "core", BothCores())
        monkeypatch.setattr(settled, "LONGEST_RUN", 1)
        monkeypatch.setattr(settled, "LEAST", 0)
        assert records(Packets(given, batch), columns) == expected[0]
        assert results(Packets(given, batch)) == expected[1]
