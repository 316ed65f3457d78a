"""Keys of CURVE where captures become tables: given as an option, or inside the captures."""

from pathlib import Path
from typing import Any

from tests.spark.local_job import task_rows
from tests.support.paths import FIXTURES
from tests.support.saved_files import without_keys
from zmtpsniff.engine.key_file import read_keys

CAPTURE = FIXTURES / "sec_curve_keys.pcapng"


def frames(path: Path, **options: Any) -> list[Any]:
    return [row for table, batch, _ in task_rows([path], **options) if table == "messages" for row in batch["frames"]]


def test_keys_as_an_option_and_inside_open_the_same(tmp_path: Path) -> None:
    capture, keys = without_keys(CAPTURE, tmp_path)
    opened = frames(CAPTURE)
    assert len(opened) == 7
    assert frames(capture, curve_keys=read_keys(str(keys))) == opened
    assert frames(capture) == []
