"""Replies that another connection brings: an id tells whose they are."""

import json
from itertools import count

import pytest

import zmtpsniff
from dissectors.events import Message, Process
from tests.analysis.ways.scenes import Scene
from tests.support.paths import FIXTURES

IDS = [f"{number:08x}-0d1b-4e5f-9c7a-{number:012x}" for number in range(8)]


class Engine(Scene):
    """A front asks an engine by a ROUTER, and gets replies by a PULL."""

    def __init__(self, front: str = "10.0.0.1", engine: str = "10.0.0.2") -> None:
        """Connect both."""
        super().__init__()
        self._numbers = count()
        self.connect(1, f"{engine}:40001", f"{front}:5801", types=("DEALER", "ROUTER"))
        self.connect(2, f"{engine}:40002", f"{front}:5802", types=("PUSH", "PULL"))

    def ask(self, *ids: str, form: bytes = b"ask") -> None:
        """Ask for something, and name it."""
        for one in ids:
            self.say(1, form, json.dumps({"id": one, "number": next(self._numbers)}).encode(), by_server=True)

    def reply(self, *ids: str) -> Message:
        """Give the replies to several requests in one message."""
        return self.say(2, json.dumps([{"id": one, "number": next(self._numbers)} for one in ids]).encode())

    def requests(self) -> list[tuple[bool | None, int, bool]]:
        """Of each request: whether it is answered, in which packet, and whether that is certain."""
        ways = [way for way in self.ways() if way.kind == "request"]
        return [(way.answered, way.legs[-1].packet, way.legs[-1].certain) for way in ways]


def test_one_message_has_the_replies_to_several_requests() -> None:
    engine = Engine()
    engine.ask(*IDS[:3])
    first, second = engine.reply(IDS[2], IDS[0]), engine.reply(IDS[0], IDS[1])  # one has several replies
    assert engine.requests() == [(True, first.packet, True), (True, second.packet, True), (True, first.packet, True)]


def test_a_request_without_a_reply_is_not_answered() -> None:
    engine = Engine()
    engine.ask(*IDS[:3])
    engine.reply(*IDS[:3])
    engine.ask(IDS[3])
    assert [answered for answered, *_ in engine.requests()] == [True, True, True, False]


@pytest.mark.parametrize("form", [b"ask", b"tell"])
def test_what_is_told_of_a_request_or_beside_it_asks_for_nothing(form: bytes) -> None:
    engine = Engine()
    engine.ask(*IDS[:3])
    engine.reply(*IDS[:3])
    engine.ask(IDS[3 if form == b"tell" else 0], form=form)  # else it may be dropped
    assert all(answered for answered, *_ in engine.requests())


def test_a_request_that_may_be_dropped_waits_for_nothing() -> None:
    engine = Engine()
    engine.ask(*IDS[:4])
    engine.reply(*IDS[:3])
    engine.ask(IDS[3], form=b"drop")
    assert [answered for answered, *_ in engine.requests()] == [True, True, True]


def test_times_and_numbers_name_no_request() -> None:
    engine = Engine()
    for name in ("2026-11-26", "1764196957", "engine7"):
        engine.ask(name)
        engine.reply(name)
    assert engine.requests() == []


def test_programs_of_one_address_are_told_apart_by_their_processes() -> None:
    engine = Engine("127.0.0.1", "127.0.0.1")
    engine.reply(IDS[7])  # by then its process is known
    engine.ask(*IDS[:3])
    engine.reply(*IDS[:3])
    assert engine.requests() == []
    owners = {"127.0.0.1:40001": 2, "127.0.0.1:40002": 2, "127.0.0.1:5801": 1, "127.0.0.1:5802": 1}
    found = engine.ways(process_of=lambda _, address: Process(owners[address], "python"))
    assert [way.answered for way in found if way.kind == "request"] == [True] * 3


def test_engines_answer_what_they_were_asked() -> None:
    """Each reply names the request, and no message before it does."""
    with zmtpsniff.open(FIXTURES / "healthy" / "engines_push.pcap.gz", max_bytes=0) as capture:
        said = {(one.flow, one.packet, one.part): one for one in capture if isinstance(one, Message)}
    with zmtpsniff.open(FIXTURES / "healthy" / "engines_push.pcap.gz") as capture:
        ways = [way for way in capture.ways() if way.kind == "request" and way.answered]
    assert len(ways) > 50
    for way in ways:
        request, reply = (said[leg.flow, leg.packet, leg.part] for leg in way.legs)
        name = json.loads(bytes(request.frames[-1]))["request_id"].encode()  # type: ignore[arg-type]
        named = [one for one in said.values() if name in one.frames[-1] and one.src.startswith(reply.src[:9])]  # type: ignore[operator]
        assert named[0] is reply
