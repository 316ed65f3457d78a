"""Keys of CURVE where captures become tables: given as an option, or inside the captures."""

from pathlib import Path

import pytest

from dissectors.events import Message
from tests.support.paths import FIXTURES
from tests.support.saved_files import without_keys
from zmtpsniff.engine.key_file import read_keys
from zmtpsniff.spark.open_states import ShardStates
from zmtpsniff.spark.options import Options, ShardSpec
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
