"""The programs in examples/: each runs and says what it should. docs/examples.md shows what they print."""

import struct
import subprocess
import sys

import pytest

from tests.support.paths import FIXTURES, PROJECT
from tests.support.shown_commands import blocks
from zmtpsniff.testing import dissect_capture, dissect_message

EXAMPLES = PROJECT / "examples"
PAGE = PROJECT / "docs" / "examples.md"


def test_the_walk_is_through_the_file() -> None:
    (block,) = [block for block in blocks(PAGE) if block.kind == "python"]
    assert block.text == (EXAMPLES / "rates_by_topic.py").read_text()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_the_page_names_each(path: object) -> None:
    assert getattr(path, "name", "") in PAGE.read_text()


def test_rates_are_those_of_the_capture() -> None:
    command = [sys.executable, str(EXAMPLES / "rates_by_topic.py"), str(FIXTURES / "rec_late_subscriber.pcap")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 5
    assert done.stdout.splitlines()[0].endswith("b'news 3'")


def test_a_plugin_for_json() -> None:
    result = dissect_capture(str(EXAMPLES / "quotes.py"), FIXTURES / "m31_pub_sub.pcap")
    assert {payload.fields["bid"] for payload in result.payloads} == {101.25}
    assert result.unknown


def test_a_plugin_for_binary() -> None:
    from zmtpsniff.analysis.plugins import load_file

    (readings,) = load_file(str(EXAMPLES / "readings.py"))
    payload = dissect_message(readings, [b"hall", struct.pack("!2sHId", b"RD", 7, 1_700_000_000, 21.5)])
    assert payload
    assert payload.fields == {"sensor": 7, "seconds": 1_700_000_000, "value": 21.5}
    assert dissect_message(readings, [b"RD, but not one of ours"]) is None
