"""``--on-finding``: a program gets findings, and nobody waits for it."""

import json
import sys
from pathlib import Path

import pytest

from tests.analysis.findings.test_finding_watch import refused
from zmtpsniff.errors import Error
from zmtpsniff.export import finding_calls
from zmtpsniff.export.finding_calls import FindingCalls

KEEPS = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read())"


def program(text: str, *arguments: object) -> str:
    import shlex

    return shlex.join([sys.executable, "-c", text, *map(str, arguments)])


def test_each_call_gets_a_finding(tmp_path: Path) -> None:
    kept = tmp_path / "kept with a space"
    calls = FindingCalls(program(KEEPS, kept))
    calls.call([refused(1), refused(2)])
    calls.close()
    records = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [(one["type"], one["code"], one["count"]) for one in records] == [
        ("finding", "endpoint-refused", 1),
        ("finding", "endpoint-refused", 2),
    ]
    assert (calls.missed, calls.failures) == (0, [])


def test_a_program_that_hangs_is_ended() -> None:
    calls = FindingCalls(program("import time; time.sleep(1000)"), patience=0.2)
    calls.call([refused(1)])
    calls.close()
    assert calls.failures == ["it took more than 0.2 s, and was ended"]


def test_calls_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding_calls, "MOST_WAITING", 3)
    monkeypatch.setattr(finding_calls, "_LAST_PATIENCE", 0.1)
    calls = FindingCalls(program("import time; time.sleep(30)"), patience=20)
    calls.call([refused(number) for number in range(10)])
    assert calls.missed in (6, 7)
    calls.close()


def test_what_fails_is_told() -> None:
    calls = FindingCalls("/there/is/no/such/program")
    calls.call([refused(1), refused(2)])
    calls.close()
    assert calls.failures == ["No such file or directory"]
    calls = FindingCalls(program("import sys; sys.exit(3)"))
    calls.call([refused(1)])
    calls.close()
    assert calls.failures == ["it ended with status 3"]


@pytest.mark.parametrize("command", ["", "  ", "'"])
def test_no_program(command: str) -> None:
    with pytest.raises(Error, match="--on-finding"):
        FindingCalls(command)
