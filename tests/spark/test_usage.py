"""``zmtpsniff spark`` refuses wrong options before anything of Spark runs, in one line that names the option."""

import click
import pytest
from click.testing import CliRunner

from tests.support.paths import FIXTURES
from zmtpsniff.cli.main import cli

CAPTURE = str(FIXTURES / "m31_push_pull.pcap")


SERIES = ["ingest", CAPTURE, "--output", "out", "--series"]
NO_GROUP = "is not folder or file, and has no group (...) that names the series"


@pytest.mark.parametrize(
    ("arguments", "name", "said"),
    [
        (["ingest", CAPTURE, "--output", ""], "'--output'", "it is empty; give a path or URL"),
        (["ingest", CAPTURE, "", "--output", "out"], "'INPUT...'", "it is empty; give a path or URL"),
        (["optimize", ""], "'DIR'", "it is empty; give a path or URL"),
        (["report", ""], "'DIR'", "it is empty; give a path or URL"),
        (
            [*SERIES, "("],
            "'--series'",
            "'(' is no regular expression: missing ), unterminated subpattern at position 0",
        ),
        ([*SERIES, "files"], "'--series'", f"'files' {NO_GROUP}"),
        ([*SERIES, ""], "'--series'", f"'' {NO_GROUP}"),
        (["ingest", CAPTURE, "--output", "out", "--max-bytes", "x"], "'--max-bytes'", "'x' is not a valid integer"),
        (["ingest", CAPTURE, "--output", "out", "--idle", "x"], "'--idle'", "'x' is not a valid number"),
    ],
)
def test_a_wrong_value_is_told(arguments: list[str], name: str, said: str) -> None:
    done = CliRunner().invoke(cli, ["spark", *arguments], standalone_mode=False)
    assert isinstance(done.exception, click.UsageError)
    assert done.exception.format_message().rstrip(".") == f"Invalid value for {name}: {said}"
