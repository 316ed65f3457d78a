"""One connection may have most of all octets: a task never holds them all."""

import subprocess
from pathlib import Path

import pytest

from tests.spark import one_connection
from tests.support.paths import program

LIMIT = 512 << 20  # octets of a Python worker


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["run", "follow"])
@pytest.mark.parametrize(("messages", "octets"), [(800, 1 << 20), (200_000, 100)])
def test_a_task_holds_no_connection_as_a_whole(tmp_path: Path, stage: str, messages: int, octets: int) -> None:
    capture, folder = tmp_path / "one.pcap", tmp_path / "out"
    one_connection.make(capture, messages, octets)
    folder.mkdir()
    done = subprocess.run(
        [*program(one_connection), stage, str(capture), str(folder)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found, peak = map(int, done.stdout.split())
    assert found == messages
    assert peak < LIMIT
