"""Keys of CURVE where captures become tables: given as an option, or inside the captures; states hold none."""

from pathlib import Path

import pytest

from dissectors.events import Message
from dissectors.zmtp.curve import Curve as Opener
from dissectors.zmtp.curve_keys import KeyRing
from tests.support.curve_octets import Curve
from tests.support.paths import FIXTURES
from tests.support.saved_files import without_keys
from tests.world.conversation import Conversation, Piece
from tests.world.network import packets, segments
from zmtpsniff.engine.key_file import read_keys
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.spark.connections import Connections, Last
from zmtpsniff.spark.groups import ShardSpec
from zmtpsniff.spark.open_states import ShardStates
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.shard import Shard

CAPTURE = FIXTURES / "sec_curve_keys.pcapng"


def frames(path: Path, options: Options) -> list[object]:
    shard = Shard([str(path)], options, ShardStates(".", [], ""), ShardSpec())
    events = [event for some in (*shard.events(), *shard.last_events()) for event in some.events]
    return [event.frames for event in events if isinstance(event, Message)]


@pytest.fixture
def apart(tmp_path: Path) -> tuple[Path, Path]:
    """The capture without its keys, and a file with these."""
    return without_keys(CAPTURE, tmp_path)


def test_keys_as_an_option_and_inside_open_the_same(apart: tuple[Path, Path]) -> None:
    capture, keys = apart
    opened = frames(CAPTURE, Options())
    assert len(opened) == 7
    assert frames(capture, Options(curve_keys=read_keys(str(keys)))) == opened
    assert frames(capture, Options()) == []


def test_a_state_holds_no_key_and_goes_on() -> None:
    curve = Curve()
    sent = curve.handshake()
    for number in range(10):
        sent += curve.multipart(0, b"part", b"%d" % number)
    talk = Conversation("curve", tuple(Piece(side, octets) for side, octets in sent))
    given = HeaderDecoder().segments(packets(segments(talk)), 1)
    opener = Opener(KeyRing(curve.ways()["k"]))
    for place in range(5, len(given), 7):
        events: list[Last] = []
        first = Connections(Options().settings, curve=opener)
        first.take(given[:place])
        events += first.give()[0]
        state, final, _ = first.finish(given[place - 1][0])
        assert state is not None
        later = Connections(Options().settings, state, curve=Opener(KeyRing(curve.ways()["k"])))
        later.take(given[place:])
        events += [*final, *later.give()[0]]
        told = [event.frames for event in events if isinstance(event, Message)]
        assert told == [[b"part", b"%d" % number] for number in range(10)]
