"""Findings in captures of programs with faults, and silence about healthy ones."""

import functools
import importlib
import re
from collections.abc import Callable
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zmtpsniff
from dissectors.events import AnyEvent, Command, Greeting, Message
from tests.analysis.findings.diagnoses import alarms, diagnose, diagnose_packets
from tests.capture_point.families import FAMILIES, make
from tests.support.examples import sampled
from tests.support.paths import CAPTURES, FIXTURES, PROJECT
from tests.support.settings import RELATIONS
from tests.world.tap import Packets, captured, joined, load, save
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.findings.catalogue import FINDINGS
from zmtpsniff.analysis.findings.exchanges import ServiceCount
from zmtpsniff.analysis.findings.finding import Occurrences
from zmtpsniff.analysis.findings.inquiry import Inquiry, WholeCaptureInquiry
from zmtpsniff.analysis.findings.slow_replies import slow_replies
from zmtpsniff.capture.block import Packet
from zmtpsniff.dissection import open_files
from zmtpsniff.engine.settings import Settings
from zmtpsniff.engine.sniffer import Collaborators, Sniffer
from zmtpsniff.net.witness import Attempt, Pause, Stall
from zmtpsniff.words.set_clocks import ForwardJumps

# Captures of the fixtures with faults, each with the codes of what is more than a note, the most harmful first.
FAULTY = {
    "app_salt": ["endpoint-refused", "endpoint-refused", "request-unanswered", "replies-slow"],  # its master stops
    "bad_http_on_zmq_port": ["protocol-violated"],
    "bad_ready_truncated": ["protocol-violated"],
    "bad_reserved_flags": ["protocol-violated"],
    "draft_silent_peer": ["request-unanswered", "request-unanswered", "request-unanswered"],
    "draft_silent_server": ["request-unanswered", "request-unanswered"],
    "draft_slow_server": ["replies-slow"],
    "rec_closing_worker": ["worker-closed"],
    "rec_cut_message": ["message-cut"],
    "rec_dealer_without_delimiter": ["protocol-violated"],
    "rec_frozen_peer": ["heartbeat-lost"],
    "rec_group_not_joined": ["protocol-violated"],
    "rec_late_reply": ["replies-slow"],
    "rec_manual_publisher": ["protocol-violated"],
    "rec_multipart_client": ["protocol-violated"],
    "rec_no_delimiter": ["protocol-violated"],
    "rec_numbered_messages": ["messages-dropped"],
    "rec_odd_subscriptions": ["protocol-violated"],
    "rec_plain_wrong_password": ["credentials-refused"],
    "rec_reconnect_storm": ["reconnect-storm"],
    "rec_relaxed_request": ["protocol-violated"],
    "rec_request_to_pull": ["sockets-mismatched"],
    "rec_returning_publisher": ["subscriptions-lost"],
    "rec_same_identity": ["identity-shared"],
    "rec_stolen_identity": ["identity-shared"],
    "rec_third_of_a_pair": ["protocol-violated"],
    "rec_two_replies": ["protocol-violated"],
    "rec_unanswered_request": ["request-unanswered"],
    "sec_curve_keys": ["server-key-wrong"],  # one of its clients, certain by the keys in the file
    "sec_mismatch_null_curve": ["mechanisms-differ"],
    "sec_mismatch_null_plain_omq": ["mechanisms-differ"],  # the server often says no word, which is no storm besides
    "sec_plain_refused_435": ["credentials-refused"],
    "sec_types_push_pub": ["sockets-mismatched"],
    "rec_growing_connections": ["connections-grow"],
}
# Of the recorded captures with known contents, those whose names say that something is wrong in them.
SHARED_FAULTY = re.compile("bad_|mix_|m31_backpressure|sec_(curve_refused|mismatch|plain_refused|types)")
PCAPS = sorted(FIXTURES.glob("*.pcap*"))


@pytest.mark.parametrize("path", PCAPS, ids=lambda path: path.stem)
def test_fixtures(path: Path) -> None:
    """The facts behind "seen" are no sentence of their own: the packets to look at follow them."""
    findings = diagnose(path)
    assert [code for code, _ in alarms(findings)] == FAULTY.get(path.name.partition(".")[0], [])
    for found in findings:
        assert found.evidence or found.code == "capture-lossy", found.summary
        assert not found.known.endswith(".")
        assert ".;" not in found.known


@pytest.mark.parametrize(
    "name",
    [
        "app_salt.pcap",
        "brokers/two_brokers.pcap.gz",
        "rec_late_reply.pcap",
        "rec_reconnect_storm.pcap",
        "rec_proxy.pcap",
        "systems/broker_sleeps.pcap.gz",
        "systems/worker_dies.pcap.gz",
        "work/rec_growing_queue.pcap",
    ],
)
def test_to_ask_before_the_end_changes_nothing(name: str) -> None:
    events = list(zmtpsniff.open(FIXTURES / name))
    once, often = Diagnosis(), Diagnosis()
    once.take(events)
    for start in range(0, len(events), 7):
        often.take(events[start : start + 7])
        if not start % 10:
            often.findings()
    assert often.findings() == once.findings()


@pytest.mark.parametrize("name", ["app_salt", "rec_late_reply", "rec_odd_subscriptions", "rec_proxy", "m31_pub_sub"])
@given(st.lists(st.integers(1, 60), min_size=1), st.booleans())
def test_batches_change_nothing(name: str, sizes: list[int], is_late: bool) -> None:
    """Wherever a batch ends, also if somebody begins to want messages in the midst of one, or nobody yet has."""
    path = next(FIXTURES.glob(f"{name}.pcap*"))
    told, events = _heard(path)
    if is_late:  # as if the capture began behind the handshakes
        events = [event for event in events if not isinstance(event, (Greeting, Command))]
    alone, together = Diagnosis(), Diagnosis()
    for diagnosis in (alone, together):
        for method, what in told:
            getattr(diagnosis, method)(what)
    rare = [one for event in events for one in alone.take([event])]
    begin, found = 0, []
    for size in chain(sizes, repeat(len(events))):
        found += together.take(events[begin : begin + size])
        begin += size
        if begin >= len(events):
            break
    assert list(map(id, found)) == list(map(id, rare))
    assert together.findings() == alone.findings()
    wanted = [event for event in events if not isinstance(event, Message) or event.latency_ns is not None]
    assert list(map(id, rare)) == list(map(id, wanted))


@functools.cache
def _heard(path: Path) -> tuple[list[tuple[str, Any]], list[AnyEvent]]:
    """The notes of a witness of a capture, and its events."""
    told: list[tuple[str, Any]] = []

    class Recorder:
        jumps = ForwardJumps()

        def attempt(self, attempt: Attempt) -> None:
            told.append(("attempt", attempt))

        def stall(self, stall: Stall) -> None:
            told.append(("stall", stall))

        def pause(self, pause: Pause) -> None:
            told.append(("pause", pause))

    return told, list(open_files([path], Settings(), Collaborators(witness=Recorder())))


def test_turns_alone_show_no_slow_service() -> None:
    """Two programs that tell each other something every three seconds take turns, too."""
    service = ServiceCount(by_turns=True)
    for _ in range(10):
        service.latencies.add(2 * 10**9)
    assert list(slow_replies("10.0.0.1:5555", service, None)) == []


def test_every_faulty_capture_is_there() -> None:
    assert FAULTY.keys() <= {path.name.partition(".")[0] for path in PCAPS}


@pytest.mark.parametrize("path", sorted((FIXTURES / "healthy").iterdir()), ids=lambda path: path.name.partition(".")[0])
def test_known_patterns_and_applications_are_healthy(path: Path) -> None:
    assert alarms(diagnose(path)) == []
    if not path.name.startswith("app_") or "pyre" in path.name:  # others say some things that nobody answers
        with zmtpsniff.open(path) as capture:
            assert [way for way in capture.ways() if way.ended is not None or way.answered is False] == []


_HEALTHY = sorted(path.name.partition(".")[0] for path in (FIXTURES / "healthy").iterdir())
# But for programs that wait at their start for those that come later, as the packets before show.
_PATTERNS = [name for name in _HEALTHY if not name.startswith("app_") and name not in ("titanic", "ventilator")]
_KEPT: dict[str, Callable[[int, Packet, int], bool]] = {
    "late": lambda place, _, count: place >= count // 10,
    "very late": lambda place, _, count: place >= count * 4 // 5,
    "some lost": lambda place, *_: place % 100 != 99,
    "to servers": lambda _, packet, __: int.from_bytes(packet[2][34:36]) > int.from_bytes(packet[2][36:38]),
}


@pytest.mark.parametrize("cut", _KEPT)
@pytest.mark.parametrize("name", ["chain_of_proxies", *sampled(_PATTERNS, len(_PATTERNS))])
def test_what_a_capture_lacks_accuses_nobody(name: str, cut: str, tmp_path: Path) -> None:
    packets, path = load(FIXTURES / f"healthy/{name}.pcap.gz"), tmp_path / "cut.pcap"
    save(path, [packet for place, packet in enumerate(packets) if _KEPT[cut](place, packet, len(packets))])
    assert alarms(diagnose(path)) == []
    with zmtpsniff.open(path) as capture:
        assert [way for way in capture.ways() if way.ended is not None or way.answered is False] == []


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="needs the recorded captures (ZMTPSNIFF_CAPTURES)")
def test_recorded_captures_that_are_healthy() -> None:
    found = {}
    for path in sorted(CAPTURES.glob("*.pcap*")):
        if not SHARED_FAULTY.match(path.name) and (told := alarms(diagnose(path))):
            found[path.name] = told
    assert found == {}


@pytest.mark.skipif(not (CAPTURES.parent / "disorder").is_dir(), reason="needs the recorded captures")
def test_captures_out_of_order_are_healthy() -> None:
    paths = sorted((CAPTURES.parent / "disorder").glob("*.pcap"))
    assert paths
    assert {path.name: told for path in paths if (told := alarms(diagnose(path)))} == {}


@pytest.mark.parametrize("seeds", sampled([range(15), range(15, 60)]), ids=["few", "many"])
@pytest.mark.parametrize("family", FAMILIES)
def test_no_capture_point_makes_an_alarm(family: str, seeds: range) -> None:
    for seed in seeds:
        case = make(family, seed)
        source = Packets(joined([captured(records) for records in case.files]), case.batch, case.live)
        diagnosis = Diagnosis()
        clock = source.clock if case.live else None
        for events in Sniffer(source, RELATIONS, Collaborators(clock=clock, witness=diagnosis)).events():
            diagnosis.take(events)
        assert alarms(diagnosis.findings()) == [], f"{family}:{seed}"


def test_a_shorter_timeout_finds_more() -> None:
    found = diagnose(FIXTURES / "rec_late_reply.pcap", settings=Settings(reply_seconds=0.3))
    assert [code for code, _ in alarms(found)] == ["request-unanswered", "replies-slow"]
    assert found[0].severity == "warning"
    assert found[0].summary == "127.0.0.1:5560 answered 1 request of 127.0.0.1 late, after 600 ms"


def test_every_code_is_used_and_every_used_code_is_in_the_catalogue() -> None:
    paths = [path for path in (PROJECT / "zmtpsniff/analysis/findings").glob("*.py") if path.name != "catalogue.py"]
    text = "".join(path.read_text() for path in paths)
    unused = [code for code in FINDINGS if f'"{code}"' not in text]
    assert not unused, "no inquiry claims these findings of the catalogue"
    claimed = set(re.findall(r'\bClaim\(\s*"([^"]+)"', text))
    assert len(claimed) > 10
    assert claimed <= FINDINGS.keys(), "describe each in zmtpsniff/analysis/findings/catalogue.py"
    for kind in FINDINGS.values():
        assert all(sentence.endswith((".", "`.", ")")) for sentence in (kind.meaning, kind.known, kind.advice))


def test_every_inquiry_is_asked() -> None:
    """A family of findings that Diagnosis does not make finds nothing, and nothing else would say so."""
    modules = [path.stem for path in (PROJECT / "zmtpsniff/analysis/findings").glob("[a-z]*.py")]
    for module in modules:
        importlib.import_module(f"zmtpsniff.analysis.findings.{module}")
    inquiries = {*Inquiry.__subclasses__(), *WholeCaptureInquiry.__subclasses__()} - {WholeCaptureInquiry}
    forgotten = inquiries - set(map(type, Diagnosis().inquiries))
    assert not forgotten, "add each to Diagnosis in zmtpsniff/analysis/findings/diagnosis.py"


@pytest.mark.parametrize("name", ["sec_curve_ps_435_435", "sec_plain_ok_435_435", "m31_req_rep", "m31_pub_sub"])
@pytest.mark.parametrize("snaplen", [*range(68, 100, 4), 120, 160])
def test_packets_cut_short_accuse_nobody(name: str, snaplen: int) -> None:
    """Not even of which security mechanism it is, if the greetings are what is cut."""
    cut = [
        (time_ns, link, octets[:snaplen], length, None)
        for time_ns, link, octets, length, _ in load(FIXTURES / f"{name}.pcap")
    ]
    assert alarms(diagnose_packets(cut)) == []


@pytest.mark.parametrize(("name", "is_left"), [("rec_same_identity", False), ("rec_reconnect_storm", True)])
def test_a_sample_of_connections_is_not_compared(name: str, is_left: bool) -> None:
    diagnosis = Diagnosis(sampled=True)
    diagnosis.take(list(zmtpsniff.open(FIXTURES / f"{name}.pcap")))
    assert ([one.code for one in diagnosis.findings() if one.severity != "note"] == FAULTY[name]) == is_left


def test_a_packet_that_shows_two_faults_is_named_once() -> None:
    both = Occurrences.all_of([Occurrences.of([(1, 82, 3), (2, 382, 2)]), Occurrences.of([(1, 82, 3), (5, 400, 2)])])
    assert (both.count, [one.packet for one in both.evidence]) == (4, [82, 382, 400])
