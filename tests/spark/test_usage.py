"""``zmtpsniff spark`` refuses wrong options before anything of Spark runs, in one line that names the option."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.support.paths import FIXTURES
from zmtpsniff.cli.main import cli

CAPTURE = str(FIXTURES / "m31_push_pull.pcap")


def refused(*arguments: str) -> str:
    """The error for a command line that is refused."""
    done = CliRunner().invoke(cli, ["spark", *arguments], standalone_mode=False)
    assert isinstance(done.exception, click.UsageError)
    return done.exception.format_message()


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["ingest", CAPTURE, "--output", ""], "'--output'"),
        (["ingest", CAPTURE, "", "--output", "out"], "'INPUT...'"),
        (["optimize", ""], "'DIR'"),
        (["report", ""], "'DIR'"),
    ],
)
def test_a_place_that_is_empty(tmp_path: Path, arguments: list[str], name: str) -> None:
    assert refused(*arguments) == f"Invalid value for {name}: it is empty; give a path or URL"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("(", "'(' is no regular expression: missing ), unterminated subpattern at position 0"),
        ("files", "'files' is not folder or file, and has no group (...) that names the series"),
        ("", "'' is not folder or file, and has no group (...) that names the series"),
    ],
)
def test_a_series_that_is_none(rule: str, said: str) -> None:
    line = f"Invalid value for '--series': {said}"
    assert refused("ingest", CAPTURE, "--output", "out", "--series", rule) == line


@pytest.mark.parametrize(("option", "kind"), [("--max-bytes", "integer"), ("--idle", "number")])
def test_a_number_that_is_none(option: str, kind: str) -> None:
    line = f"Invalid value for '{option}': 'x' is not a valid {kind}"
    assert refused("ingest", CAPTURE, "--output", "out", option, "x").rstrip(".") == line
