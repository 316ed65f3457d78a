"""Records are the same with and without the native core, and the core does as its specification says."""

import io
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissectors.batches import MessageBatch
from dissectors.zmtp import usual
from dissectors.zmtp.limits import Limits
from tests.support.both_cores import BothCores, built_core
from tests.support.examples import examples, sampled
from tests.support.paths import PROJECT
from tests.support.tunnels import IN_IP, TUNNELS, in_ip, in_tunnel
from tests.world.busy_network import world
from tests.world.conversation import (
    Conversation,
    Piece,
    greetings,
)
from tests.world.events import events_of
from tests.world.network import packets, segments
from tests.world.octets import message
from tests.world.tap import Packets
from zmtpsniff.analysis.findings import Diagnosis, unanswered_requests
from zmtpsniff.analysis.patterns import batch_parts as batch_parts_module
from zmtpsniff.analysis.patterns import column_pairs
from zmtpsniff.analysis.statistics import statistics as statistics_module
from zmtpsniff.analysis.statistics.record_maker import report
from zmtpsniff.analysis.statistics.statistics import Statistics
from zmtpsniff.analysis.ways.way_records import Way
from zmtpsniff.analysis.ways.ways import Ways
from zmtpsniff.capture import files, pcap, pcapng
from zmtpsniff.capture.block import Block
from zmtpsniff.capture.files import open_captures
from zmtpsniff.engine import settled, sniffer
from zmtpsniff.engine.flow_engine import FlowEngine
from zmtpsniff.engine.settings import Settings
from zmtpsniff.engine.sniffer import Collaborators, Sniffer
from zmtpsniff.native import VARIABLE, WAY
from zmtpsniff.net import packets as packets_module
from zmtpsniff.render import batch_text, jsonl
from zmtpsniff.render.summary import SummaryRenderer
from zmtpsniff.render.tree import TreeRenderer

CAPTURES = sorted((PROJECT / "fixtures").glob("*.pcap*"))
BROKERS = PROJECT / "fixtures" / "brokers" / "two_brokers.pcap.gz"
SYSTEMS = [BROKERS, *sorted((PROJECT / "fixtures" / "systems").glob("*.pcap*"))]
BATCHES = Settings(batches=True)


@pytest.fixture(name="both")
def _both(monkeypatch: pytest.MonkeyPatch) -> BothCores:
    both = BothCores()
    for module in (sniffer, jsonl, packets_module, column_pairs, batch_parts_module):
        monkeypatch.setattr(module, "core", both)
    for reader in (pcap, pcapng):
        monkeypatch.setattr(reader, "file_records", both)
    monkeypatch.setattr(settled, "LONGEST_RUN", 1)
    monkeypatch.setattr(settled, "LEAST", 0)
    monkeypatch.setattr(column_pairs, "SHORTEST_PAIRED", 0)
    monkeypatch.setattr(usual, "MOST_PIECES", 6)  # greetings and READYs
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
    """A summary, a tree, statistics and findings of a source."""
    diagnosis, statistics, out = Diagnosis(), Statistics(), io.StringIO()
    renderers = [of(out, 100, utc=True, color="never") for of in (SummaryRenderer, TreeRenderer)]
    for events in Sniffer(source, Settings(batches=True), Collaborators(witness=diagnosis)).events():  # type: ignore[arg-type]
        for renderer in renderers:
            renderer.write(events)
        statistics.take(events)
        diagnosis.take(events)
    return [out.getvalue(), report(statistics, 100), diagnosis.findings()]


@pytest.mark.parametrize(
    ("octets", "share"),
    [(400, 4), (4000, 4), *(pytest.param(octets, 1, marks=pytest.mark.slow) for octets in (400, 4000, files.CHUNK))],
)
def test_fixtures_say_the_same_in_pieces_of_any_size(
    octets: int, share: int, both: BothCores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place of a problem that time alone shows may be another one where pieces are of another size."""
    monkeypatch.setattr(files, "CHUNK", octets)
    captures = CAPTURES[::share]
    for path in captures:
        with pytest.MonkeyPatch.context() as plain:
            for module in (sniffer, jsonl, packets_module):
                plain.setattr(module, "core", None)
            expected = records(open_captures([str(path)]))
        assert records(open_captures([str(path)])) == expected, path
        assert records(open_captures([str(path)]), batches=False) == expected, path
    assert both.packets > 10 * len(captures)
    assert both.messages > 5 * len(captures)


def test_these_tests_go_the_way_that_is_meant() -> None:
    """Native, unless plain Python is asked for."""
    built_core()  # it was built
    assert ("python" if os.environ.get(VARIABLE) == "0" else "native") == WAY


def test_several_requests_at_once_are_paired_in_columns(both: BothCores) -> None:
    """A DEALER numbers its requests; nothing of that is unusual, so no message becomes an object."""
    pieces = greetings(3, b"DEALER", b"ROUTER")
    for side in (0, 1, 0, 1):
        pieces += [Piece(side, message(3, b"%d" % number, b"", b"body")) for number in range(20)]
    without = Settings(batches=True, payload=False)
    given = packets(segments(Conversation("several at once", tuple(pieces))), (1, 2), (40_000, 5555), 10**18, 10**5)
    events = events_of(given, without, 9)
    assert both.messages == 80
    assert sum(len(event.messages()) for event in events if isinstance(event, MessageBatch)) > 70
    replies = [one for event in events if isinstance(event, MessageBatch) for one in event.messages() if one.request]
    assert [reply.paired for reply in replies] == ["envelope"] * 40


def test_messages_behind_a_handshake_in_the_same_block_stay_in_columns(both: BothCores) -> None:
    """Patterns hear of both only after the block; those of a PUSH mean nothing to each other."""
    pieces = (*greetings(3, b"PUSH", b"PULL"), *(Piece(0, message(3, b"%d" % number)) for number in range(50)))
    given = packets(segments(Conversation("pushed at once", pieces)), (1, 2), (40_000, 5555), 10**18, 10**5)
    events = events_of(given, Settings(batches=True, payload=False), len(given) // 2)
    assert both.messages == 50
    assert sum(len(event) for event in events if isinstance(event, MessageBatch)) == 50


@pytest.mark.parametrize("odd", [False, True], ids=["in step", "asks twice"])
def test_requests_behind_a_handshake_in_the_same_block_stay_in_columns(odd: bool, both: BothCores) -> None:
    """Another connection cuts them into parts. Those behind a request that keeps no step come one by one."""
    turns = [Piece(turn % 2, message(3, b"", b"%d" % turn)) for turn in range(60)]
    if odd:
        turns[40:40] = [Piece(0, message(3, b"", b"before the reply"))] * 2
    asking = Conversation("asks at once", (*greetings(3, b"REQ", b"REP"), *turns))
    other = Conversation("begins meanwhile", greetings(3, b"PUSH", b"PULL"))
    given = packets(segments(asking), (1, 2), (40_000, 5555), 10**18, 10**5)
    given += packets(segments(other), (3, 4), (40_000, 5556), 10**18 + 15 * 10**5, 2 * 10**5)
    given.sort()
    events = events_of(given, Settings(batches=True, payload=False), len(given) * 3 // 4)
    batches = [event for event in events if isinstance(event, MessageBatch)]
    replies = [one for batch in batches for one in batch.messages() if one.request is not None]
    assert len(batches) > 3
    assert 0 < len(replies) < 21 if odd else len(replies) == 30
    one_by_one = records(Packets(given, len(given)), batches=False)
    with pytest.MonkeyPatch.context() as plain:
        plain.setattr(sniffer, "core", None)
        assert records(Packets(given, len(given))) == one_by_one == records(Packets(given, 1))


def test_messages_between_brokers_are_paired_in_columns(both: BothCores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply that a broker sends on answers the request that it is known to answer on the other side."""
    monkeypatch.setattr(files, "CHUNK", 4000)
    found = [event for batch in Sniffer(open_captures([str(BROKERS)]), BATCHES).events() for event in batch]
    columns = [one for event in found if isinstance(event, MessageBatch) for one in event.messages()]
    assert sum(one.paired == "forwards" for one in columns) > 40


def test_closer_looks_cost_as_much_with_many_connections(both: BothCores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a broker each message has a client's id in front, and needs a look if nobody knows where it came from."""
    connections, rounds = 60, 10
    pieces = greetings(3, b"DEALER", b"ROUTER")
    pieces += [Piece(0, message(3, b"\0abcd", b"", b"%d" % turn)) for turn in range(rounds)]
    sent = segments(Conversation("asks", tuple(pieces)))
    given = [
        packet
        for number in range(connections)
        for packet in packets(sent, (1, 2), (40_000 + number, 5555), 10**18 + number, 10**6)
    ]
    pair, facts = both.pair, []

    def counting(*arguments: Any) -> Any:
        facts.append(len(arguments[7]))
        return pair(*arguments)

    monkeypatch.setattr(both, "pair", counting)
    events_of(sorted(given, key=lambda packet: packet[0]), Settings(batches=True, payload=False), 17 * connections)
    assert 0 < sum(facts) <= 2 * connections * rounds


def test_blocks_of_short_connections_are_hardly_ever_cut() -> None:
    """The core looks for settled flows now and then, also where connections do not come whole."""
    visit = segments(Conversation("visit", (*greetings(3, b"REQ", b"REP"), Piece(0, message(3, b"", b"x" * 64)))))
    times = range(10**18, 10**18 + 130 * 10**6, 10**6)
    block = Block.of([one for time in times for one in packets(visit, (1, 2), (time // 10**6 % 1000, 5555), time)])
    flows = settled.SettledFlows(built_core(), FlowEngine(Settings(sample=2)))
    pieces = [len(list(flows.others(block, range(1, 1 + len(block))))) for _ in range(40)]
    assert max(pieces[:20]) > 2, "the block is worth a look"
    assert sum(pieces[20:]) <= 20 + 20 * len(block) // 4000


@pytest.mark.parametrize(("messages", "in_columns"), [(150, 12_000), (5, 400)], ids=["large packets", "full packets"])
def test_full_packets_between_short_connections_are_read_in_columns(
    messages: int, in_columns: int, both: BothCores
) -> None:
    """Each of them holds several messages, though nearly all packets are of connections that begin and end."""
    busy = [*greetings(3, b"PUSH", b"PULL"), *[Piece(0, message(3, b"x" * 32) * messages) for _ in range(100)]]
    visit = Conversation("visit", (*greetings(3, b"PUSH", b"PULL"), Piece(0, message(3, b"hello"))))
    given = packets(segments(Conversation("busy", tuple(busy))), (1, 2), (40_000, 5555), 10**18, 10**7)
    for number in range(200):
        given += packets(segments(visit), (1, 2), (41_000 + number, 6666), 10**18 + number * 10**7 + 1, 10**4)
    found = records(Packets(sorted(given, key=lambda packet: packet[0]), 200))
    assert found.count(b'"type":"message"') == 100 * messages + 200
    assert both.messages > in_columns


@pytest.mark.parametrize(
    "wrap",
    [
        lambda data: data[:12] + bytes.fromhex("8100 0007") + data[12:],
        lambda data: data[:12] + bytes.fromhex("88a8 0003 8100 0007") + data[12:],
        lambda data: in_tunnel(data, *TUNNELS["VXLAN"]),
        lambda data: in_tunnel(data, *TUNNELS["Geneve with an option"], ipv6=True),
        lambda data: in_ip(data, *IN_IP["IP in IP"]),
        lambda data: in_ip(data, *IN_IP["GRE"], ipv6=True),
    ],
    ids=["VLAN", "QinQ", "VXLAN", "Geneve", "IP in IP", "GRE"],
)
def test_packets_with_tags_and_in_tunnels_are_read_in_columns(wrap: Callable[[bytes], bytes], both: BothCores) -> None:
    """Their records are those of the same packets without tags and tunnels."""
    pieces = greetings(3, b"DEALER", b"ROUTER")
    for side in (0, 1):
        pieces += [Piece(side, message(3, b"", b"%d" % number)) for number in range(20)]
    plain = packets(segments(Conversation("tagged", tuple(pieces))), (1, 2), (40_000, 5555), 10**18, 10**5)
    tagged = [(time_ns, link, octets := wrap(data), len(octets), source) for time_ns, link, data, _, source in plain]
    assert records(Packets(tagged, 9)) == records(Packets(plain, 9))
    assert both.messages > 2 * 35


@pytest.mark.parametrize("copies", [1, 2])
def test_copies_are_read_in_columns(copies: int, both: BothCores) -> None:
    """A host with a bridge, captured on all interfaces: each packet is there again, some microseconds later."""
    pieces = greetings(3, b"DEALER", b"ROUTER")
    for side in (0, 1):
        pieces += [Piece(side, message(3, b"", b"%d" % number)) for number in range(40)]
    once = packets(segments(Conversation("bridged", tuple(pieces))), (1, 2), (40_000, 5555), 10**18, 10**5)
    given = [(one[0] + 10**3 * copy, *one[1:]) for one in once for copy in range(1 + copies)]
    found = records(Packets(given, 7))
    assert b'"type":"problem"' not in found
    assert told(found) == told(records(Packets(once, 7)))
    assert both.messages > 2 * 70


def told(found: bytes) -> list[tuple[str, ...]]:
    """The messages of records, without their packets."""
    lines = map(json.loads, found.splitlines())
    return [(one["src"], str(one["frames"]), one.get("paired")) for one in lines if one["type"] == "message"]


def ways(path: Path) -> list[Way | None]:
    """The ways of a capture."""
    found, ways = [], Ways()
    sniffer_ = Sniffer(open_captures([str(path)]), BATCHES, Collaborators(acknowledge=ways.acknowledge))
    for events in sniffer_.events():
        found += ways.take(events)
    return [ways.record(way) for way in [*found, *ways.finish()]]


@pytest.mark.parametrize("path", sampled(SYSTEMS), ids=lambda path: path.name)
def test_ways_and_messages_are_the_same_in_columns(
    path: Path, both: BothCores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ways with their legs, and when those were acknowledged; each message as an object."""
    monkeypatch.setattr(files, "CHUNK", 4000)
    found = ways(path), records(open_captures([str(path)]), batches=False)
    assert both.messages > 30  # some systems stop early
    monkeypatch.setattr(sniffer, "core", None)
    assert found == (ways(path), records(open_captures([str(path)]), batches=False))


@pytest.mark.parametrize("size", [1, 7, 40])
def test_a_long_message_of_many_frames_is_read_as_objects(size: int, both: BothCores) -> None:
    """It is not over where a batch ends, and longer than the core keeps of one."""
    octets = message(3, *[b"x" * 4000] * 40)
    sent = [Piece(0, octets[begin : begin + 1400]) for _ in range(3) for begin in range(0, len(octets), 1400)]
    conversation = Conversation("long", (*greetings(3, b"PUSH", b"PULL"), *sent))
    given = packets(segments(conversation), (1, 2), (40_000, 5555), 10**18, 10**5)
    found = [json.loads(line) for line in records(Packets(given, size)).splitlines()]
    messages = [record for record in found if record["type"] == "message"]
    assert [[frame["length"] for frame in record["frames"]] for record in messages] == [[4000] * 40] * 3
    assert not [record for record in found if record["type"] == "problem"]


@settings(max_examples=examples(40), deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    batch=st.sampled_from([1, 3, 40, 1000]),
    columns=st.booleans(),
    shortest=st.sampled_from([0, 4, 16]),
)
def test_any_conversation_says_the_same(seed: int, batch: int, columns: bool, shortest: int) -> None:
    given = world(random.Random(seed))
    with pytest.MonkeyPatch.context() as monkeypatch:
        before, behind = (sniffer, jsonl, packets_module), (statistics_module, column_pairs, batch_parts_module)
        modules = *before, *behind, unanswered_requests
        for module in modules:
            monkeypatch.setattr(module, "core", None)
        expected = records(Packets(given, batch)), results(Packets(given, batch))
        for module in modules:
            monkeypatch.setattr(module, "core", BothCores())
        monkeypatch.setattr(settled, "LONGEST_RUN", 1)
        monkeypatch.setattr(settled, "LEAST", 0)
        monkeypatch.setattr(batch_text, "core", built_core())
        monkeypatch.setattr(batch_text, "SHORTEST", 0)
        monkeypatch.setattr(column_pairs, "SHORTEST_PAIRED", shortest)
        assert records(Packets(given, batch), columns) == expected[0]
        assert results(Packets(given, batch)) == expected[1]
