"""zmtpsniff browse refuses some options, in one line."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.support.paths import FIXTURES
from zmtpsniff.cli import browse_command
from zmtpsniff.cli.main import cli

CAPTURE = str(FIXTURES / "m31_req_rep.pcap")


def refused(*arguments: str) -> str:
    done: Result = CliRunner().invoke(cli, ["browse", *arguments])
    assert done.exit_code != 0
    return done.stderr.strip().splitlines()[-1]


def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browse_command, "find_spec", lambda name: None)
    assert "pip install 'zmtpsniff[browse]'" in refused(CAPTURE)


def test_it_needs_a_terminal() -> None:
    assert "needs a terminal" in refused(CAPTURE)


def test_it_looks_at_files_or_at_interfaces(tmp_path: Path) -> None:
    assert "either CAPTURE... or -i" in refused()
    assert "either CAPTURE... or -i" in refused("-i", "lo", CAPTURE)
    assert "-w" in refused("-w", str(tmp_path / "x"), CAPTURE)
    assert "standard input" in refused("-")
