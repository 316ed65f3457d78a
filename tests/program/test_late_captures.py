"""Captures that begin too late show the same as whole ones, as far as they reach."""

from itertools import pairwise
from pathlib import Path

import pytest

import zmtpsniff
from dissectors.events import Connection, Message
from tests.support.check_program import without_packets
from tests.support.late_captures import without_beginnings
from tests.support.paths import FIXTURES
from tests.support.runner import run
from tests.support.settings import RELATIONS
from tests.world.events import events_of

CAPTURES = [
    *((f"{name}.pcap", share) for name in ("m31_req_rep", "m31_push_pull", "m31_pub_sub", "x_325_to_435")
      for share in (0.0, 0.5)),
    ("rec_proxy.pcap", 0.0),
    ("ws_pub_sub.pcap", 0.0),
    ("running/jobs_for_three.pcap.gz", 0.5),
]  # fmt: skip


def _place(event: Message) -> tuple[str, str, int, str]:
    return event.src, event.dst, event.time_ns, repr(event.frames)


@pytest.mark.parametrize(("name", "share"), CAPTURES)
def test_messages_have_the_packets_that_completed_them(name: str, share: float) -> None:
    """Though many packets came before it was certain where frames begin."""
    path = FIXTURES / name
    shown = {_place(event) for event in zmtpsniff.open(path, payload=False) if isinstance(event, Message)}
    late = events_of(without_beginnings(path, share), RELATIONS)
    messages = [event for event in late if isinstance(event, Message)]
    assert messages
    for event in messages:
        assert event.incomplete or _place(event) in shown
    for sender in {(event.flow, event.src) for event in messages}:
        own = [event for event in messages if (event.flow, event.src) == sender]
        assert all(one.packet <= other.packet for one, other in pairwise(own))


@pytest.mark.parametrize(
    "command", ["read -T tree", "read -T summary", "read -T mermaid", "read -T dot", "stats"], ids=lambda text: text
)
def test_people_see_what_a_socket_may_be(command: str, tmp_path: Path) -> None:
    late = without_packets("m31_req_rep.pcap", range(1, 14), tmp_path)
    shown = run(*command.split(), late).stdout
    assert "REQ or DEALER" in shown
    assert "REP or ROUTER" in shown


def test_programs_get_both_apart(tmp_path: Path) -> None:
    late = without_packets("m31_req_rep.pcap", range(1, 14), tmp_path)
    with zmtpsniff.open(late, where='server.lookalike == "ROUTER"') as capture:
        (connection,) = [event for event in capture if isinstance(event, Connection)]
    assert (connection.client.socket_type, connection.client.lookalike) == ("REQ", "DEALER")
    assert connection.server.inferred
