"""Costs of hostile captures and policies: a fiftieth of every other one, a twentieth of each if slow tests are run.

All of it with ZMTPSNIFF_ATTACKS=all.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dissectors.events import AnyEvent, Command, Cut, Message, Problem
from dissectors.zmtp import deflate
from tests.support import attacks
from tests.support.examples import sampled
from tests.support.settings import WIRE
from tests.world.events import events_of
from tests.world.octets import frame

ALL = os.environ.get("ZMTPSNIFF_ATTACKS") == "all"
OURS = 60  # MiB and seconds that the program needs for whatever it does, on a machine that does much else


@pytest.mark.parametrize(
    ("name", "percent"),
    [
        *((name, 2) for name in [*attacks.ATTACKS][1::2] if not ALL),
        *(pytest.param(name, 100 if ALL else 5, marks=[] if ALL else [pytest.mark.slow]) for name in attacks.ATTACKS),
    ],
)
def test_cost_is_bounded(name: str, percent: int, tmp_path: Path) -> None:
    attack = attacks.ATTACKS[name]
    cost = attacks.run(attack, percent, tmp_path)
    assert "Traceback" not in cost.errors
    assert cost.mib <= attack.mib
    assert cost.seconds <= (attack.seconds if ALL else attack.seconds * percent / 100 + OURS)
    if ALL or attack.status != 2:  # a small policy may be allowed
        assert cost.status == attack.status, cost.errors
    if attack.arguments[0] == "read":
        assert json.loads(cost.output.splitlines()[-1])["type"] == "capture"


def sniffed(packets: Iterator[bytes]) -> list[AnyEvent]:
    numbered = [(number, 1, octets, len(octets), None) for number, octets in enumerate(packets)]
    return events_of(numbered, WIRE)


@pytest.mark.parametrize("takeover", sampled([True, False]))
def test_compressed_messages_are_inflated_as_far_as_they_may(takeover: bool) -> None:
    events = sniffed(attacks.inflating(takeover)(1))
    (message,) = [event for event in events if isinstance(event, Message)]
    (body,) = message.frames
    assert isinstance(body, Cut)
    assert body.length == deflate.INFLATED_LIMIT - 1  # without the flags octet
    assert [event.code for event in events if isinstance(event, Problem)] == ["websocket-compression"]


def test_attacks_are_what_they_say() -> None:
    """Handshakes are understood where a connection continues, so that the reader looks at the rest."""
    events = sniffed(attacks.stream(frame(b"a" * 300) + b"\1\0\0\0"))
    assert [event.name for event in events if isinstance(event, Command)] == ["READY", "READY"]
    assert [event.frames for event in events if isinstance(event, Message)] == [[b"a" * 300], [b"", b""]]
