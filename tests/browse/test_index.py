"""Records by number, and packets by number, are those of the capture."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import astuple

import zmtpsniff
from dissectors.batches import BatchSide, MessageBatch
from dissectors.columns import FRAME, MESSAGE, ROW
from dissectors.events import AnyEvent, Connection, Message
from tests.support.browse_terminal import read_index
from tests.support.examples import sampled
from tests.support.paths import FIXTURES, PROJECT
from tests.world.tap import load
from zmtpsniff.browse.blocks import ITEMS
from zmtpsniff.browse.index import RecordIndex
from zmtpsniff.browse.packet_store import PacketLog
from zmtpsniff.browse.selection import filtered_rows, rows_of_flows
from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.capture.files import open_captures
from zmtpsniff.filters import compile_filter

CAPTURES = sorted(FIXTURES.glob("*_*.pcap*"))


@pytest.mark.parametrize("path", sampled(CAPTURES), ids=lambda path: path.name)
def test_records_and_packets_are_those_of_the_capture(path: Path) -> None:
    index, packets = read_index(path)
    assert list(map(astuple, index.events(0, len(index)))) == list(map(astuple, zmtpsniff.open(path)))
    assert [index.event(row) for row in range(len(index))] == list(index.events(0, len(index)))
    expected = load(path)
    assert [packet for batch in packets.all() for packet in batch] == expected
    assert [packets.packet(number) for number in range(1, len(expected) + 1)] == expected
    assert packets.packet(0) is packets.packet(len(expected) + 1) is None


def messages(count: int) -> list[AnyEvent]:
    return [
        Message(number * 1000, number, number % 7 + 1, "10.0.0.1:40000", "10.0.0.2:5555", [b"%d" % number])
        for number in range(1, count + 1)
    ]


@pytest.mark.parametrize("batch", [1, ITEMS - 1, ITEMS, 3 * ITEMS + 5])
def test_rows_are_the_same_however_they_come(batch: int) -> None:
    index = RecordIndex()
    events = messages(4 * ITEMS + 3)
    for start in range(0, len(events), batch):
        index.take(events[start : start + batch])
        assert index.event(len(index) - 1) == events[len(index) - 1]
    assert list(index.events(0, len(index))) == events
    assert list(index.events(ITEMS - 2, ITEMS + 2)) == events[ITEMS - 2 : ITEMS + 2]
    assert index.row_of_packet(ITEMS + 1) == ITEMS
    assert index.row_of_packet(ITEMS + 1, 99) is None
    assert index.row_from_packet(0) == 0
    assert index.row_from_packet(len(events) + 1) is None


@given(counts=st.lists(st.sampled_from((0, 1, 3, ITEMS, 5 * ITEMS)), min_size=1, max_size=6))
@example(counts=[3, ITEMS, 0, 1, 5 * ITEMS, 2])
def test_rows_of_messages_in_columns_are_those_of_their_objects(counts: list[int]) -> None:
    """They come in batches of many sizes, between other records."""
    octets = b"".join(b"\x45" + bytes(39) for _ in range(9))
    side = BatchSide(7, "10.0.0.1:40000", "10.0.0.2:5555", "PUSH", False, False, True)
    events: list[AnyEvent] = []
    others = MESSAGE.unpack(bytes(MESSAGE.size))[5:]
    for number, count in enumerate(counts):
        rows = b"".join(ROW.pack(1000 * number + place + 1, 40 * place, 40, 40, 1) for place in range(9))
        columns = [MESSAGE.pack(place % 9, 1, 1, place % 9, 1, *others) for place in range(count)]
        frames = b"".join(FRAME.pack(40 * place, place) for place in range(9))
        batch = MessageBatch(octets, rows, 1 + 9 * number, b"".join(columns), frames, b"", [side, side])
        events += [*([batch] if count else []), *messages(number)]  # type: ignore[list-item]  # as a Sniffer gives it
    index, plain = RecordIndex(), RecordIndex()
    for some in (events[:1], events[1:9], events[9:]):
        index.take(some)
    objects = [one for event in events for one in (event.messages() if isinstance(event, MessageBatch) else [event])]
    plain.take(objects)
    assert list(index.events(0, len(index))) == objects
    assert [index.event(row) for row in range(len(index))] == objects
    assert (index.kinds, index.flows, index.packets) == (plain.kinds, plain.flows, plain.packets)
    assert (index.first_ns, index.talks.keys()) == (plain.first_ns, plain.talks.keys())
    rows_of_talks = [{talk.flow: talk.first_row for talk in one.talks.values()} for one in (index, plain)]
    assert rows_of_talks[0] == rows_of_talks[1]


def test_another_thread_reads_while_records_come() -> None:
    index = RecordIndex()
    events = messages(20_000)
    wrong: list[int] = []

    def look() -> None:
        while len(index) < len(events):
            row = len(index) - 1
            if row >= 0 and index.event(row) != events[row]:
                wrong.append(row)

    thread = threading.Thread(target=look)
    thread.start()
    for start in range(0, len(events), 77):
        index.take(events[start : start + 77])
    thread.join()
    assert wrong == []


def test_filters_and_flows_select_rows() -> None:
    index = RecordIndex()
    events = messages(10_000)
    index.take(events[:6000])
    filtered = filtered_rows(index, compile_filter("flow == 3 && packet > 100"))
    flows = rows_of_flows(index, {3, 5})
    while filtered.advance() or flows.advance():
        pass
    index.take(events[6000:])  # those that come later, too
    while filtered.advance() or flows.advance():
        pass
    assert list(filtered.rows) == [row for row, event in enumerate(events) if row % 7 == 1 and row >= 100]
    assert list(flows.rows) == [row for row in range(len(events)) if row % 7 in (1, 3)]
    assert filtered.place(filtered.row(5)) == 5
    assert filtered.place(filtered.row(5) + 1) == 6


def test_flows_know_their_sides() -> None:
    index, _ = read_index(FIXTURES / "m31_req_rep.pcap")
    talk = index.talks[1]
    summary = index.event(talk.summary or 0)
    assert isinstance(summary, Connection)
    assert (talk.client, talk.server) == (summary.client.address, summary.server.address)
    assert (talk.socket_type(talk.client), talk.socket_type(talk.server)) == ("REQ", "REP")


def test_packets_of_several_sections_are_those_of_the_file(tmp_path: Path) -> None:
    first, second = FIXTURES / "m31_pcapng_file.pcapng", FIXTURES / "mix_link_types.pcapng"
    both = tmp_path / "both.pcapng"
    both.write_bytes(first.read_bytes() + second.read_bytes())
    log = PacketLog()
    expected: list[Packet] = []
    for batch in open_captures([str(both)]).batches():
        log.take(batch)
        expected += batch
    assert [log.packet(number) for number in range(1, len(expected) + 1)] == expected
    assert [log.packet(number) for number in (0, len(expected) + 1)] == [None, None]
    assert [each for batch in log.all() for each in batch] == expected


def test_packets_in_blocks_of_any_size_are_kept() -> None:
    log = PacketLog()
    packets: list[Packet] = [(number, 1, b"%d" % number, 9, None) for number in range(1000)]
    log.take(Block.of(packets[:300]))
    log.take(Block.of([]))
    log.take(Block.of(packets[300:310]))
    log.take(Block.of(packets[310:]).part(0))
    assert [log.packet(number) for number in range(1, 1001)] == packets
    assert [each for batch in log.all() for each in batch] == packets


@pytest.mark.slow
def test_ten_million_records_take_less_than_300_mib() -> None:
    # Not its ru_maxrss, which begins with the size of the process that starts it.
    program = """
import re
from dissectors.events import Message
import zmtpsniff.browse.app
from zmtpsniff.browse.index import RecordIndex
index = RecordIndex()
for start in range(0, 10_000_000, 1000):
    index.take([
        Message(n * 1000, n, 1, "10.0.0.1:40000", "10.0.0.2:5555", [b"%d" % n]) for n in range(start, start + 1000)
    ])
assert index.event(9_999_999).frames == [b"9999999"] and index.event(5_000_000).frames == [b"5000000"]
print(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1])
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 300 << 10
