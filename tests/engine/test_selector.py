"""Saving the packets of what passes a filter: read again with the same filter, the file gives the same records."""

import io
import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dissectors.events import AnyEvent, Capture
from tests.support.examples import sampled
from tests.support.paths import CAPTURES, FIXTURES
from tests.support.saved_files import ORIGIN, program, read, records
from tests.world.conversation import CLIENT, SERVER, Conversation, End, Piece, greetings
from tests.world.network import START_NS, packets, segments
from tests.world.octets import message
from tests.world.tap import Packets
from zmtpsniff.capture.block import Packet
from zmtpsniff.capture.files import open_captures
from zmtpsniff.capture.saver import Saver, SavingSource
from zmtpsniff.capture.source import Source
from zmtpsniff.engine import selector as selector_module
from zmtpsniff.engine.selector import HELD_OCTETS, PacketSelector
from zmtpsniff.engine.settings import Settings
from zmtpsniff.engine.sniffer import Collaborators, Sniffer
from zmtpsniff.filters import compile_filter
from zmtpsniff.render.jsonl import JsonlRenderer

FILTERS = [
    'type == "message"',
    'type == "connection"',
    'severity in {"error", "warning"}',
    'name == "READY" && properties.Socket-Type == "REP"',
    "latency_ns > 100us",
    "forwards",
    'type == "beacon"',
    "packet == 0",
]
FILES = [
    FIXTURES / f"{name}.pcap"
    for name in ("m31_req_rep", "m31_pub_sub", "m31_ipv6", "rec_proxy", "rec_same_identity", "rec_third_of_a_pair",
                 "rec_reconnect_storm", "rec_refused", "app_zre", "app_zbeacon", "epgm_pub_sub", "net_zmtp1_gap",
                 "sec_plain_ok_435_435", "bad_reserved_flags")
] + [CAPTURES / f"{name}.pcap" for name in ("net_ip_fragments", "mix_21_cases_interleaved")]  # fmt: skip
# Numbers that count within a file differ in a smaller one.
_NUMBERS = frozenset({"packet", "flow", "request", "forwards", "beacon", "detail"})


def _without_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_numbers(each) for name, each in value.items() if name not in _NUMBERS}
    return [_without_numbers(each) for each in value] if isinstance(value, list) else value


def _shown(events: Sequence[AnyEvent]) -> list[dict[str, Any]]:
    stream = io.BytesIO()
    JsonlRenderer(stream, 0).write(events)
    return [_without_numbers(json.loads(line)) for line in stream.getvalue().splitlines()]


def _passing(source: Source, passes: Callable[[AnyEvent], bool]) -> list[dict[str, Any]]:
    found = [event for events in Sniffer(source, Settings()).events() for event in events if passes(event)]
    return _shown(found)


def select(
    source: Source,
    path: Path,
    passes: Callable[[AnyEvent], bool],
    *,
    packets_only: bool = False,
    held_octets: int = HELD_OCTETS,
) -> tuple[list[dict[str, Any]], PacketSelector]:
    """Save what passes, and return it."""
    saver = Saver(str(path), ORIGIN, comments=source.comments)
    source = SavingSource(source, saver, keys_only=True)
    selector = PacketSelector(saver, source, packets_only=packets_only, held_octets=held_octets)
    found = []
    for events in Sniffer(source, Settings(), Collaborators(selector=selector)).events():
        passing = [event for event in events if passes(event) or type(event) is Capture]
        selector.judge(events, passing)
        found += [event for event in passing if type(event) is not Capture]
    selector.finish()
    assert saver.faults == []
    return _shown(found), selector


@pytest.mark.parametrize("path", sampled(FILES, 2), ids=lambda path: path.stem)
def test_the_file_gives_the_same_records(path: Path, tmp_path: Path) -> None:
    if not path.exists():
        pytest.skip(f"no {path}")
    saved = tmp_path / "saved.pcapng"
    whole, _ = read(path)
    for text in FILTERS:
        passes = compile_filter(text)
        found, selector = select(open_captures([str(path)]), saved, passes)
        assert _passing(open_captures([str(saved)]), passes) == found, text
        kept, _ = read(saved)
        assert kept == sorted(kept, key=whole.index), text  # in the order of the capture
        assert bool(kept) == bool(found), text
        assert selector.missing == 0


def _connection(port: int, count: int, start_ns: int, marked: bool = False, end: End = "fin") -> list[Packet]:
    pieces = greetings(3, b"PUSH", b"PULL")
    pieces += [Piece(CLIENT, message(3, b"number %d" % number + bytes(500))) for number in range(count)]
    if marked:
        pieces.append(Piece(CLIENT, message(3, b"wanted")))
    sent = segments(Conversation("made up", tuple(pieces), end=end))
    return packets(sent, ports=(port, 5555), start_ns=start_ns)


WANTED = compile_filter('frames == "wanted"')


def test_only_the_connections_that_pass_are_saved_and_others_let_go(tmp_path: Path) -> None:
    given = [_connection(40_000 + number, 20, START_NS + number * 10**9, marked=number == 3) for number in range(6)]
    everything = [packet for one in given for packet in one]
    found, selector = select(Packets(everything), tmp_path / "saved.pcapng", WANTED, held_octets=60_000)
    assert len(found) == 1
    assert selector.missing == 0
    kept, _ = read(tmp_path / "saved.pcapng")
    assert kept == given[3]


def test_memory_is_bounded_and_what_lacks_is_counted(tmp_path: Path) -> None:
    long = _connection(40_000, 1000, START_NS, marked=True)
    others = [_connection(41_000 + number, 50, START_NS + number * 10**5, end="open") for number in range(4)]
    given = sorted([*long, *(packet for one in others for packet in one)], key=lambda packet: packet[0])
    most = 0

    class CountedPackets(Packets):
        def batches(self) -> Any:
            nonlocal most
            for batch in super().batches():
                yield batch
                most = max(most, selector.octets)

    saved = tmp_path / "saved.pcapng"
    saver = Saver(str(saved), ORIGIN)
    source = CountedPackets(given)
    selector = PacketSelector(saver, source, held_octets=400_000)
    for events in Sniffer(source, Settings(), Collaborators(selector=selector)).events():
        selector.judge(events, list(filter(WANTED, events)))
    selector.finish()
    assert most <= 400_000 * 9 / 8 + 100 * 1000  # and what comes in one go
    kept, _ = read(saved)
    # Its handshake, a hole, and what was held back when it passed. The record is the same.
    assert [packet for packet in long if packet not in kept] != []
    assert len(long) - len(kept) == selector.missing
    assert kept[:10] == long[:10]
    assert kept[-50:] == long[-50:]
    again = [event for events in Sniffer(open_captures([str(saved)]), Settings()).events() for event in events]
    assert [event.socket_type for event in filter(WANTED, again)] == ["PUSH"]  # type: ignore[union-attr]


def test_what_is_no_zmtp_is_given_up_first(tmp_path: Path) -> None:
    pieces = [Piece(CLIENT, b"GET / HTTP/1.1\r\n" * 60), Piece(SERVER, b"HTTP/1.1 200 OK\r\n")] * 200
    noise = packets(segments(Conversation("noise", tuple(pieces))))
    wanted = _connection(41_000, 60, START_NS - 1000, marked=True)
    given = sorted([*noise, *wanted], key=lambda packet: packet[0])
    found, selector = select(Packets(given), tmp_path / "saved.pcapng", WANTED, held_octets=120_000)
    assert len(found) == 1
    assert selector.missing == 0
    assert read(tmp_path / "saved.pcapng")[0] == wanted


def test_of_many_conversations_those_without_held_packets_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selector_module, "_CONVERSATIONS", 4)
    given = [
        _connection(40_000 + number, 3, START_NS + number * 10**9, marked=number % 20 == 19) for number in range(40)
    ]
    found, selector = select(
        Packets([packet for one in given for packet in one], batch=20), tmp_path / "saved.pcapng", WANTED
    )
    assert len(found) == 2
    assert selector.missing == 0
    assert read(tmp_path / "saved.pcapng")[0] == [*given[19], *given[39]]
    assert len(vars(selector)["_by_ends"]) < 20


def test_packets_only(tmp_path: Path) -> None:
    path = FIXTURES / "m31_req_rep.pcap"
    whole, _ = read(path)
    saved = tmp_path / "saved.pcapng"
    done = program("read", path, "-T", "json", "-Y", "latency_ns", "--packets-only", "-w", saved)
    said = "zmtpsniff: -w: saves only the packets that completed records that pass -Y\n"
    assert (done.returncode, done.stderr) == (0, said)
    numbers: list[int] = [record["packet"] for record in records(done.stdout) if "packet" in record]
    assert read(saved)[0] == [whole[number - 1] for number in sorted(set(numbers))]


def test_the_program_saves_whole_connections(tmp_path: Path) -> None:
    saved = tmp_path / "saved.pcapng"
    options = ("-T", "json", "-Y", 'frames contains "request 3"')
    done = program("read", FIXTURES / "m31_req_rep.pcap", *options, "-w", saved)
    said = "zmtpsniff: -w: saves only the whole connections of records that pass -Y\n"
    assert (done.returncode, done.stderr) == (0, said)
    again = program("read", saved, *options)
    *found, _ = records(done.stdout)
    assert [_without_numbers(record) for record in records(again.stdout)[:-1]] == list(map(_without_numbers, found))
    assert found != []
    *_, totals = records(program("read", saved, "-T", "json").stdout)
    assert totals["zmtp_flows"] == len({record["flow"] for record in found})


@pytest.mark.parametrize(
    "options", [("-w", "FILE"), ("-Y", "packet"), ()], ids=["without a filter", "without a file", "alone"]
)
def test_packets_only_needs_both(options: tuple[str, ...], tmp_path: Path) -> None:
    given = [str(tmp_path / "out") if option == "FILE" else option for option in options]
    done: subprocess.CompletedProcess[str] = program("read", FIXTURES / "m31_req_rep.pcap", "--packets-only", *given)
    assert done.returncode == 2
    assert "--packets-only: needs -w FILE, and -Y FILTER" in done.stderr
    assert not (tmp_path / "out").exists()
