"""A capture that may take too little of the processor and of memory loses packets, and nothing else happens."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.control_groups import ControlGroup
from tests.support.live_program import LiveProgram, Record, live, needs_privilege, silent
from tests.support.namespaces import Side, needs_namespaces

pytestmark = [needs_namespaces, needs_privilege, pytest.mark.slow]

CPU = 0.05  # of a core
MEMORY = 150 << 20
QUEUE = MEMORY // 4  # as LiveSource says
GROWTH = 20 << 20  # of all else, since the program has its whole share of the processor no more
RATE, SECONDS, OCTETS = 20_000, 20, 1000
FREE_S = 2  # the program takes what it needs, so that its modules are loaded and it sees the handshake
METRICS = "127.0.0.1:9464"
_ASK = f"import urllib.request as u; print(u.urlopen('http://{METRICS}/metrics', timeout=60).read().decode())"


def starve(
    group: ControlGroup, side: Side, *options: str, ask: Callable[[], None] = lambda: None, diagnoses: bool = False
) -> tuple[list[Record], int]:
    """Capture a flood within limits, and call ``ask`` after it; returns the records, and how many packets passed.

    The program is live, or ``diagnoses``.
    """
    group.limit_memory(MEMORY)
    # Not ip netns exec, which hides the control groups.
    prefix = group.run("nsenter", f"--net=/run/netns/{side.namespace}")
    started = silent(side, "diagnose", prefix=prefix) if diagnoses else live("-i", "lo", *options, prefix=prefix)
    with started as program:
        free, most = flood(group, side, program)
        ask()
        begin = time.monotonic()
        records = program.interrupt()
        assert time.monotonic() - begin < 60
    assert group.killed() == 0
    assert group.throttled() > SECONDS
    assert most < free + QUEUE + GROWTH
    listed = subprocess.run(side.command("cat", "/proc/net/dev"), capture_output=True, text=True, check=True)
    (loopback,) = [line for line in listed.stdout.splitlines() if line.lstrip().startswith("lo:")]
    return records, int(loopback.split()[2])


def flood(group: ControlGroup, side: Side, program: LiveProgram) -> tuple[int, int]:
    """Let peers talk; returns the memory of the program before it has little of the processor, and the most then."""
    seconds = str(FREE_S + SECONDS)
    peers = side.command(sys.executable, "-m", "tests.support.flood_peers", str(RATE), seconds, str(OCTETS))
    most = 0
    with subprocess.Popen(peers, stdout=subprocess.PIPE) as talking:
        time.sleep(FREE_S)
        free = group.memory()
        group.limit_cpu(CPU)  # not before, since it would start for a minute
        while talking.poll() is None:
            time.sleep(1)
            assert program.process.poll() is None, f"ended: {program.said()}"
            most = max(most, group.memory())
    return free, most


def check(records: list[Record], passed: int) -> None:
    """Packets that nobody looked at are counted, and told seldom."""
    totals = records[-1]
    assert totals["dropped"] > 0
    assert totals["packets"] + totals["dropped"] == pytest.approx(passed, rel=0.01)
    told = [one["detail"] for one in records if one.get("code") == "packets-dropped"]
    for where in ("the kernel", "zmtpsniff"):
        assert len([one for one in told if one.startswith(where)]) <= 1 + 1 + SECONDS // 60  # the last is at the end


def test_metrics(control_group: ControlGroup, side: Side) -> None:
    answers = []

    def ask() -> None:
        asked = side.command(sys.executable, "-c", _ASK)
        answers.append(subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout)

    options = ["--metrics", METRICS, "-Y", 'severity == "error"']
    records, passed = starve(control_group, side, *options, ask=ask)
    check(records, passed)
    samples = dict(line.rsplit(" ", 1) for line in answers[0].split("\n") if line[:1] not in ("", "#"))
    assert float(samples["zmtpsniff_packets_dropped_total"]) > 0
    findings = [sample for sample in samples if sample.startswith("zmtp_findings{")]
    assert [json.loads(one.partition("code=")[2].partition(",")[0]) for one in findings] == ["capture-lossy"]


def test_diagnosing(control_group: ControlGroup, side: Side) -> None:
    records, passed = starve(control_group, side, diagnoses=True)
    totals = records[-1]
    assert totals["dropped"] > 0
    assert totals["packets"] + totals["dropped"] == pytest.approx(passed, rel=0.01)
    assert {one["code"] for one in records[:-1]} == {"capture-lossy"}


def test_saving(control_group: ControlGroup, side: Side, tmp_path: Path) -> None:
    ring = ["-w", str(tmp_path / "saved.pcapng"), "-b", "filesize:20000", "-b", "files:3"]
    records, passed = starve(control_group, side, *ring)
    check(records, passed)
    files = list(tmp_path.glob("saved_*.pcapng"))
    assert len(files) == 3
    assert max(file.stat().st_size for file in files) <= 20_000_000
