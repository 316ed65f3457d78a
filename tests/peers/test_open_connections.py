"""A short look at peers that have talked for a while: what both say is shown, in the order in which they said it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

import zmtpsniff
from dissectors.events import Message, Problem
from tests.support.examples import sampled
from tests.support.live_program import live, needs_privilege

pytestmark = needs_privilege

_BEFORE = 20


class Pair:
    """A REQ and a REP whose connection is open."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        self._client, self._server = context.socket(zmq.REQ), context.socket(zmq.REP)
        self.port = self._server.bind_to_random_port("tcp://127.0.0.1")
        self._client.connect(f"tcp://127.0.0.1:{self.port}")

    def ask(self, request: bytes, reply: list[bytes]) -> None:
        """One request and its reply."""
        self._client.send(request)
        self._server.recv()
        self._server.send_multipart(reply)
        self._client.recv_multipart()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with zmq.Context() as context:
        pair = Pair(context)
        yield pair
        context.destroy(linger=0)


def _look(pair: Pair, reply: list[bytes], turns: int, to: Path, *options: str) -> list[tuple[bool, list[bytes]]]:
    """Capture so many turns of peers that have had some before. Returns who said what: the client's is true."""
    for number in range(_BEFORE):
        pair.ask(b"order %d" % number, reply)
    said = []
    with live("-i", "lo", "-f", f"tcp port {pair.port}", "-w", str(to), *options) as program:
        for number in range(_BEFORE, _BEFORE + turns):
            request = b"order %d" % number
            pair.ask(request, reply)
            said += [(True, [b"", request]), (False, [b"", *reply])]
        program.read_until(lambda records: len(records) >= turns)
        program.interrupt()
    return said


def _messages(path: Path, *named: str) -> list[Message]:
    return [one for one in zmtpsniff.open(path, decode_as=named) if isinstance(one, Message)]


@pytest.mark.parametrize("reply", sampled([[b"ok"], [b"it is done"], [b"\1", b"\0\0\2"], [b"\0"]], 2), ids=repr)
def test_short_replies_are_shown(pair: Pair, reply: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "look.pcapng"
    said = _look(pair, reply, 8, path)
    shown = _messages(path)
    assert [(one.dst.endswith(f":{pair.port}"), list(one.frames)) for one in shown] == said
    assert [one.time_ns for one in shown] == sorted(one.time_ns for one in shown)
    assert [one.incomplete for one in shown[1:]] == [False] * 15  # a request may have begun before the capture
    assert not [one for one in zmtpsniff.open(path) if isinstance(one, Problem) and one.code == "frames-lost"]


def test_a_named_port_needs_two_turns(pair: Pair, tmp_path: Path) -> None:
    path = tmp_path / "look.pcapng"
    named = f"tcp.port=={pair.port},zmtp/REP"
    said = _look(pair, [b"ok"], 2, path, "-d", named)
    shown = _messages(path, named)
    assert [(one.dst.endswith(f":{pair.port}"), list(one.frames)) for one in shown] == said
    assert [one.incomplete for one in shown] == [True, False, False, False]
    assert [one.request for one in shown if one.request is not None] == [shown[0].packet, shown[2].packet]
