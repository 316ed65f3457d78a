"""Statistics and reports of the files of several hosts have one clock."""

import json
from pathlib import Path

from tests.support.nat_hosts import hosts_of, translated_files
from tests.support.paths import FIXTURES
from tests.support.runner import run

CAPTURE = FIXTURES / "brokers" / "lossy_line.pcap.gz"
MS = 1_000_000


def files(folder: Path, by_ns: int) -> list[Path]:
    """Those of all hosts; all clocks but the first are ahead by so much."""
    folder.mkdir()

    def ahead(time_ns: int) -> int:
        return time_ns + by_ns

    first, *others = hosts_of(CAPTURE)
    return translated_files(CAPTURE, {first: lambda time_ns: time_ns, **dict.fromkeys(others, ahead)}, folder)


def findings(records: list[dict[str, object]]) -> list[str]:
    return sorted(str((one["severity"], one["code"], one["endpoints"])) for one in records if one["type"] == "finding")


def test_statistics_have_the_times_of_one_clock(tmp_path: Path) -> None:
    done = run("stats", "-T", "json", *files(tmp_path / "ahead", 3200 * MS))
    *found, total = map(json.loads, done.stdout.splitlines())
    *expected, whole = map(json.loads, run("stats", "-T", "json", *files(tmp_path / "right", 0)).stdout.splitlines())
    assert abs(total["duration_ns"] - whole["duration_ns"]) < MS
    assert total["messages"] == whole["messages"]
    assert findings(found) == findings(expected)
    assert "its clock is 3.2 s ahead of that of" in done.stderr


def test_a_report_says_which_clocks_differ(tmp_path: Path) -> None:
    done = run("report", *files(tmp_path / "ahead", 3200 * MS), "-o", tmp_path / "report.html")
    assert done.returncode == 0
    assert "its clock is 3.2 s ahead of that of" in done.stderr
    assert (tmp_path / "report.html").stat().st_size
