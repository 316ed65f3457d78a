"""Captures that a simulated capture point makes are shown as was sent (``capture_point``)."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.capture_point.families import FAMILIES, make
from tests.capture_point.oracle import Case, judge
from tests.support.examples import examples
from tests.support.paths import PROJECT
from tests.support.runner import read_json
from tests.world.conversation import CLIENT, SERVER
from tests.world.link import Link, Session, connect
from tests.world.protocols import PROTOCOLS
from tests.world.scripts import KnownConversation, SentMessage, converse, speak
from tests.world.tap import Records, captured, save, watch, without
from zmtpsniff.net.segment import FIN

# Of each family: those that are always judged, and the others.
_FEW, _MANY = range(40), range(40, 300)
_SMALL = settings(max_examples=examples(150))

seeds = st.integers(0, 60)


@pytest.mark.parametrize("cases", [_FEW, pytest.param(_MANY, marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_was_sent_is_shown(family: str, cases: range) -> None:
    failed = {}
    for seed in cases:
        faults = judge(make(family, seed)).faults
        if faults:
            failed[seed] = faults
    if failed:
        seed, faults = next(iter(failed.items()))
        said = f"{len(failed)} of {len(cases)}, the first with: python -m tests.capture_point --case {family}:{seed}"
        pytest.fail("\n".join([said, *faults[:10]]))


# Of cases that failed once, one of each cause.
_MENDED = [
    "reuse:9000381",  # octets after both SYNs, while one side's new numbers are shortly behind the old ones
    "reuse:9001052",  # a SYN after a minute, with a number before those of a connection without one
    "reuse:910070",  # the same after two seconds and many packets
    "reuse:9003168",  # octets before their SYN, after a RST that came early
    "reuse:30002406",  # numbers of which the SYN comes last
    "reuse:40004438",  # a segment in doubt, before late ones of the old connection
    "reuse:40005548",  # two connections without SYNs gathered as one
    "reuse:40009444",  # a RST before late octets, and the next connection between them
    "reuse:50000014",  # a late FIN whose number fits the next connection
    "reuse:50004051",  # a SYN whose octets look like old ones
    "reuse:70000739",  # an acknowledgment of the next connection before the RST
    "reuse:403145",  # the last acknowledgment of a connection, behind its FIN and the next one's SYN
    "reuse:110000134",  # octets of the next connection before the last FIN
    "reuse:210000982",  # octets before a RST that come later than those after it
    "holes:7001270",  # a PING before a large hole, and one segment behind that
    "holes:30006900",  # a request before a large hole
    "holes:30006135",  # two holes near each other
    "loss:30000513",  # nothing but a RST
    "loss:210000941",  # a hole before the greetings
    "loss:70000015",  # octets that read as items with a length of two octets
    "holes:30001259",  # octets that could all be flags
    "loss:85732",  # the frames of a side whose identity is lost, beside one of 1.0
    "loss:85702",  # a greeting whose revision is lost: the other side waits for that in vain
    "loss:94228",  # a hole behind the identity of 2.0, while the other side's version is not known
    "loss:82965",  # the end of a greeting of 2.0 that reads as the header of a frame of 2 GiB
    "loss:98677",  # the header of a command, and all of its body lost
    "loss:416287",  # a hole behind a greeting of 3.x, while the other side's greeting is not known
    "handshake:407541",  # the rest of a greeting of 2.0 behind a signature that is lost, beside a peer of 2.0
    "handshake:607305",  # the same, before the peer's revision comes
    "holes:404339",  # a copy that fills a hole in front of many segments that wait
    "holes:406284",  # a REQ whose first request behind a hole is a copy
]


@pytest.mark.parametrize("case", _MENDED)
def test_what_failed_once(case: str) -> None:
    family, seed = case.split(":")
    assert judge(make(family, int(seed))).faults == []


# ---------------------------------------------------------------------- what hypothesis makes as small as it can be


def small(seed: int) -> Session:
    """A short conversation over a plain link."""
    random = Random(seed)
    return connect(converse(random, count=3), random, Link(jitter_ns=1))


@_SMALL
@given(seeds, st.sets(st.integers(0, 60), max_size=4))
@example(27, {3, 8})  # what one side says about versions, and then a hole in the other one
def test_packets_that_are_lost(seed: int, lost: set[int]) -> None:
    session = small(seed)
    records = [record for place, record in enumerate(watch(0.5, session)) if place not in lost]
    assert judge(Case("", [session], [records])).faults == []


# ---------------------------------------------------------------------- the simulator itself


@pytest.mark.parametrize("seed", range(60))
def test_segments_carry_the_conversation_and_acknowledge_what_had_arrived(seed: int) -> None:
    random = Random(seed)
    session = connect(converse(random), random, Link.choose(random))
    talk = session.talk
    for side in (CLIENT, SERVER):
        stream = bytearray()
        for offset, payload in sorted((one.offset, one.payload) for one in session.segments if one.side == side):
            if payload:
                assert offset <= len(stream)
                assert stream[offset : offset + len(payload)] == payload[: len(stream) - offset]
                stream += payload[len(stream) - offset :]
        assert stream == talk.stream(side)
    for one in session.segments:
        if one.ack > 0:
            # A segment that arrives in the same nanosecond may have been read or not.
            assert arrived(session, one.side, one.time_ns - 1) <= one.ack <= arrived(session, one.side, one.time_ns)


def arrived(session: Session, side: int, now_ns: int) -> int:
    """How many octets a side has got in order; the FIN is one more."""
    came = [one for one in session.segments if one.side != side and one.reach == 1.0 and one.arrival_ns <= now_ns]
    reached = 0
    for begin, end in sorted((one.offset, one.offset + len(one.payload) + (one.flags & FIN)) for one in came):
        if begin <= reached:
            reached = max(reached, end)
    return reached


@pytest.mark.parametrize("seed", range(30))
def test_a_cause_passes_before_its_effect_wherever_the_capture_point_is(seed: int) -> None:
    """No packet acknowledges octets that did not pass before it."""
    random = Random(seed)
    session = connect(converse(random), random, replace(Link.choose(random), loss=0.0))
    for place in (0.0, 0.3, 1.0):
        passed = [0, 0]
        for _, one in watch(place, session):
            assert one.ack <= passed[1 - one.side]
            passed[one.side] = max(passed[one.side], one.offset + len(one.payload) + (one.flags & FIN))


def test_conversations_are_of_all_kinds() -> None:
    talks = [converse(Random(seed)) for seed in range(600)]
    types = {kind for talk in talks for kind in talk.types}
    assert types == {"REQ", "REP", "DEALER", "ROUTER", "PUB", "SUB", "XPUB", "XSUB", "PUSH", "PULL", "PAIR"}
    assert {talk.version for talk in talks} == {"1.0", "2.0", "3.0", "3.1"}
    assert len({talk.versions for talk in talks}) == 14
    assert {talk.mechanism for talk in talks} == {None, "NULL", "PLAIN"}
    commands = Counter(name for talk in talks for side in talk.commands for name in side)
    assert {"HELLO", "WELCOME", "INITIATE", "READY", "PING", "PONG"} == set(commands)
    changes = {(action, way) for talk in talks for side in talk.subscriptions for action, _, way in side}
    assert changes == {(action, way) for action in ("subscribe", "cancel") for way in ("message", "command")}
    assert {talk.end for talk in talks} == {"fin", "rst", "open"}


def test_a_case_comes_of_its_seed() -> None:
    for family in FAMILIES:
        one, other = make(family, 7), make(family, 7)
        assert one.how == other.how
        assert [captured(file) for file in one.files] == [captured(file) for file in other.files]


def test_protocols_go_both_ways_and_each_time_another() -> None:
    for name in PROTOCOLS:
        talks = [speak(name, Random(seed)) for seed in range(40)]
        assert len({talk.stream(CLIENT) + talk.stream(SERVER) for talk in talks}) >= 38, name
        assert all(talk.stream(CLIENT) and talk.stream(SERVER) for talk in talks), name


# ---------------------------------------------------------------------- the oracle itself


def told(session: Session, records: Records) -> str:
    return "\n".join(judge(Case("", [session], [records])).faults)


@pytest.fixture
def request_reply() -> Session:
    seed = next(
        seed
        for seed in range(1000)
        if (talk := converse(Random(seed))).types == ("REQ", "REP") and talk.version == "3.1" and len(talk.pairs) > 3
    )
    session = connect(converse(Random(seed)), Random(seed), Link())
    assert told(session, watch(0.5, session)) == ""
    return session


def changed(session: Session, talk: KnownConversation) -> Session:
    """The same packets with another truth."""
    other = replace(session, talk=talk)
    for one in other.segments:
        one.session = other
    return other


def test_the_oracle_finds_what_is_made_up_and_what_is_left_out(request_reply: Session) -> None:
    talk = request_reply.talk
    first, *others = talk.messages[CLIENT]
    other = SentMessage((b"", b"other"), first.begin, first.end)
    made_up = changed(request_reply, replace(talk, messages=([other, *others], talk.messages[SERVER])))
    found = told(made_up, watch(0.5, made_up))
    assert "the client never sent what packet" in found
    assert "1 of " in found


def test_the_oracle_finds_wrong_pairs(request_reply: Session) -> None:
    pairs = dict(request_reply.talk.pairs)
    pairs[0], pairs[1] = pairs[1], pairs[0]
    session = changed(request_reply, replace(request_reply.talk, pairs=pairs))
    verdict = judge(Case("", [session], [watch(0.5, session)]))
    assert verdict.count["wrong pairs"] == 2
    assert verdict.count["right pairs"] == len(pairs) - 2


def test_the_oracle_finds_other_ends_types_and_versions(request_reply: Session) -> None:
    talk = replace(request_reply.talk, end="rst", types=("DEALER", "REP"), versions=("3.0", "3.1"))
    session = changed(request_reply, replace(talk, end="open"))
    found = told(session, watch(0.5, session))
    for fault in ("client's type: REQ instead of DEALER", "version: 3.1 instead of 3.0", "end: "):
        assert fault in found


def test_the_oracle_knows_which_octets_are_missing(request_reply: Session) -> None:
    """Without a request nobody may be blamed; the one behind it, too, may have begun in what is missing."""
    begin = request_reply.talk.messages[CLIENT][1].begin
    records = without(watch(0.5, request_reply), lambda one: one.side == CLIENT and one.offset == begin)
    verdict = judge(Case("", [request_reply], [records]))
    assert verdict.faults == []
    assert verdict.count["shown"] == verdict.count["sent"] - 2


def test_the_oracle_finds_flows_that_are_no_zmtp(request_reply: Session) -> None:
    case = Case("", [request_reply], [watch(0.5, request_reply)], foreign=True, how="in order")
    assert "taken for ZMTP: in order" in judge(case).faults[0]


# ---------------------------------------------------------------------- as a program


def test_a_saved_case_is_read_as_it_was_judged(tmp_path: Path) -> None:
    """The command says of files what the oracle was told in memory."""
    for family, seed in (("order", 4), ("merge", 4)):
        case = make(family, seed)
        paths = []
        for number, file in enumerate(case.files):
            paths.append(str(tmp_path / f"{family}-{number}.pcap"))
            save(Path(paths[-1]), captured(file))
        records = read_json(*paths)
        assert records[-1]["packets"] == sum(map(len, case.files))
        shown = judge(case).count["shown"] + judge(case).count["incomplete"]
        assert sum(record["type"] == "message" for record in records) == shown


def test_the_program_says_how_to_run_a_case_again(tmp_path: Path) -> None:
    def run(*options: str) -> str:
        command = [sys.executable, "-m", "tests.capture_point", *options]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=PROJECT).stdout

    assert run("--family", "order", "--cases", "3").startswith("order           3 cases,     0 fail\n")
    path = tmp_path / "case.pcap"
    assert "in order" in run("--case", "order:1", "--save", str(path))
    assert path.stat().st_size > 1000
