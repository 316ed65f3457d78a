"""Real peers on a network that delays, reorders, duplicates and loses, captured at both ends and in between.

The logs of the programs are the truth. TCP mends what the network does, so no capture of it may show a fault. Captures
that lost packets themselves, and several that are read together, are families of the oracle (``tests/capture_point``).
"""

import fcntl
import os
import pickle
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from dissectors.events import Command
from tests.support.conversation import Logs, check, check_end, closed, converse, wrong
from tests.support.impaired_link import (
    LEFT,
    RIGHT,
    DroppedError,
    Impairment,
    LostEndError,
    impaired_link,
    needs_tap,
    needs_tcpdump,
)
from tests.support.live_program import Record, live
from tests.support.namespaces import needs_namespaces
from tests.support.runner import read_json
from tests.support.ticker import StandstillError
from tests.world.conversation import CLIENT, SERVER, pushes
from tests.world.events import complaints, sniff
from tests.world.network import SentSegment, packets, segments
from tests.world.octets import COMMAND, frame
from tests.world.tap import load, save_pcapng
from zmtpsniff.capture.block import Packet
from zmtpsniff.net.segment import ACK, FIN, RST

EXCHANGES = ("push_pull", "req_rep", "req_router", "parts", "dealer_router", "topics")
IMPAIRMENTS = {
    "jitter": Impairment(delay=0.002, jitter=0.005),
    "duplicates": Impairment(delay=0.002, jitter=0.001, duplication=0.1),
    "loss": Impairment(delay=0.003, loss=0.02),
    "everything": Impairment(delay=0.001, jitter=0.004, loss=0.02, duplication=0.05),
}
POINTS = ("left", "middle", "right")
ENDS = ("fin", "rst")  # a heartbeat that comes when its receiver has left is answered by a RST


class Recording(NamedTuple):
    """A conversation, with the packets that each point captured."""

    logs: Logs
    client: str  # its address
    server: str
    captured: dict[str, list[Packet]]
    live: list[Record]  # what zmtpsniff showed while it went on, on the side of the server


_TRIES = 4  # to capture all of a conversation on a busy machine: its packets, its ends, and no standstill


def record(impairment: Impairment, folder: Path) -> Recording:
    for seed in range(1, _TRIES):
        try:
            return record_once(impairment, seed, folder)
        except (DroppedError, LostEndError, StandstillError):
            pass
    return record_once(impairment, _TRIES, folder)


def record_once(impairment: Impairment, seed: int, folder: Path) -> Recording:
    with impaired_link(impairment, seed, folder) as link:
        client, server = link.sides
        options = ("--engine", "tcpdump", "-i", server.interface, "--max-bytes", "0", "-f", "tcp")
        with live(*options, prefix=server.command()) as program:
            logs = converse(server, client, server.ipv4, EXCHANGES, heartbeat_ms=200)
            link.finish()
            program.read_until(closed(len(EXCHANGES) + 1, server.ipv4))
            shown = program.interrupt()
    # Each of it happened, or nothing is tested.
    assert (link.wire.overtaken > 0) == (impairment.jitter > 0)
    assert (link.wire.lost > 0) == (impairment.loss > 0)
    assert (link.wire.duplicated > 0) == (impairment.duplication > 0)
    left, right = (load(link.captures[side]) for side in (LEFT, RIGHT))
    captured = {"left": left, "middle": link.wire.middle, "right": right}
    return Recording(logs, client.ipv4, server.ipv4, captured, shown)


_NEEDS = (needs_namespaces, needs_tap, needs_tcpdump)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=_NEEDS if name == "jitter" else [*_NEEDS, pytest.mark.slow]) for name in IMPAIRMENTS
    ],
)
def recording(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """One of the conversations; the worker of pytest-xdist that needs it first records it for all."""
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    saved = shared / f"{request.param}.pickle"
    with (shared / f"{request.param}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not saved.exists():
            made = record(IMPAIRMENTS[request.param], tmp_path_factory.mktemp(request.param))
            saved.write_bytes(pickle.dumps(made))
    found: Recording = pickle.loads(saved.read_bytes())
    return found


def check_all(records: list[Record], recording: Recording) -> None:
    """All that was said is shown and nothing is wrong; each reply and each PONG knows what it answers."""
    check(records, recording.logs, recording.server, EXCHANGES, ENDS)
    assert wrong(records) == []
    replies = list(filter(is_reply, records))
    pongs = [record for record in records if record.get("name") == "PONG"]
    assert len(replies) == 100
    assert len(pongs) > 10
    assert all("request" in record for record in (*replies, *pongs))
    check_requests(records)


def is_reply(record: Record) -> bool:
    return bool(record["type"] == "message" and record["frames"][1:2] == [{"length": 8, "text": "reply to"}])


def check_requests(records: list[Record]) -> None:
    """The request that a reply is said to answer is the one that it repeats, and no reply is before its request."""
    said = defaultdict(list)
    for record in records:
        if record["type"] == "message":
            said[record["flow"], record["src"], record["packet"]].append(record)
    for reply in filter(is_reply, records):
        if "request" in reply:
            asked = said[reply["flow"], reply["dst"], reply["request"]]
            _, _, *repeated = reply["frames"]
            assert any(request["frames"][1:] == repeated for request in asked), reply
        assert reply.get("latency_ns", 0) >= 0


@pytest.mark.parametrize("point", POINTS)
def test_what_tcp_mends_is_no_problem(point: str, recording: Recording, tmp_path: Path) -> None:
    check_all(read_json(save_pcapng(tmp_path / "point.pcapng", recording.captured[point])), recording)


def test_what_tcp_mends_is_no_problem_live(recording: Recording) -> None:
    check_all(recording.live, recording)


def test_a_check_that_fails_says_which_problem_it_found() -> None:
    problem = {"type": "problem", "severity": "warning", "code": "capture-gap"}
    with pytest.raises(AssertionError, match="capture-gap"):
        check_end([problem, {"type": "capture", "dropped": 0}])


def test_what_never_arrived_was_not_lost_by_the_capture() -> None:
    """A heartbeat that the network loses while its receiver leaves, captured where that one is: nobody got it."""
    heartbeat = frame(b"\4PING\0\0", COMMAND)
    sent = segments(pushes(3, Random(1), 20), fin=False)
    client, server = (max(segment.end for segment in sent if segment.side == side) for side in (CLIENT, SERVER))
    after = server + len(heartbeat)
    sent += [
        SentSegment(CLIENT, client, b"", server, FIN | ACK),
        SentSegment(SERVER, after, b"", client + 1, ACK),
        SentSegment(SERVER, after, b"", client + 1, FIN | ACK),
        SentSegment(CLIENT, client + 1, b"", 0, RST),
    ]
    assert complaints(sniff(packets(sent))) == []


@pytest.mark.parametrize("resets", [(CLIENT,), (SERVER,), (CLIENT, SERVER)])
def test_what_a_reset_leaves_lost_was_not_lost_by_the_capture(resets: Sequence[int]) -> None:
    """The network loses a PING, the PONG behind it comes, and a RST ends the connection before TCP can mend that."""
    ping, pong = frame(b"\4PING\0\0", COMMAND), frame(b"\4PONG", COMMAND)
    sent = segments(pushes(3, Random(1), 20), fin=False)
    client, server = (max(segment.end for segment in sent if segment.side == side) for side in (CLIENT, SERVER))
    after = server + len(ping)
    sent += [
        SentSegment(SERVER, after, pong, client, ACK),
        SentSegment(CLIENT, client, b"", server, ACK),
        SentSegment(SERVER, after + len(pong), b"", client, FIN | ACK),
        *[SentSegment(side, client if side == CLIENT else server, b"", 0, RST) for side in resets],
    ]
    events = sniff(packets(sent))
    assert complaints(events) == []
    assert [event for event in events if isinstance(event, Command) and event.name in ("PING", "PONG")] == []
