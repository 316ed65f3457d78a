"""Files are read, checked and reported without what only Linux has; docs/supported.md says what this shows."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import FIXTURES, PROJECT

REQ_REP = str(FIXTURES / "m31_req_rep.pcap")
COMMANDS = [
    ["read", "--utc", REQ_REP],
    ["read", "-T", "json", str(FIXTURES / "sec_curve_keys.pcapng")],
    ["read", "-T", "summary", "--color", "always", "-Y", 'name == "READY"', str(FIXTURES / "m31_pcap_gz_file.pcap.gz")],
    ["read", "-T", "json", "--decode-bodies", "-o", "{}/records.jsonl", "-w", "{}/saved.pcapng", REQ_REP],
    ["stats", REQ_REP],
    ["check", "--policy", str(PROJECT / "tests/check/policy.toml"), REQ_REP],
    ["diagnose", str(FIXTURES / "rec_reconnect_storm.pcap")],
    ["report", "-o", "{}/report.html", REQ_REP],
    ["extract", "--to", "{}/bodies", REQ_REP],
    ["extcap", "--capture", "--file", REQ_REP, "--fifo", "{}/messages.pcapng"],
]  # fmt: skip


def run(system: str, folder: Path) -> tuple[list[int], dict[str, bytes]]:
    """The exit status of each command, and what it wrote; the folder's name does not count."""
    folder.mkdir()
    commands = [[word.replace("{}", str(folder)) for word in command] for command in COMMANDS]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.other_system", system, str(folder)],
        input=json.dumps(commands), capture_output=True, text=True, cwd=PROJECT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return json.loads(done.stdout), {name: text.replace(str(folder).encode(), b"") for name, text in files.items()}


@pytest.mark.slow
@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_files_show_the_same_without_what_other_systems_lack(system: str, tmp_path: Path) -> None:
    statuses, files = run(system, tmp_path / system)
    for command, status, number in zip(COMMANDS, statuses, range(len(COMMANDS)), strict=True):
        assert status == (command[0] == "check"), files[f"{number}.err"].decode()
        assert b"Traceback" not in files[f"{number}.err"], command
    assert (statuses, files) == run("linux", tmp_path / "linux")
    assert {"records.jsonl", "saved.pcapng", "report.html", "bodies/index.jsonl", "messages.pcapng"} <= set(files)


@pytest.mark.parametrize("name", ["fcntl", "termios", "pwd"])
def test_the_stand_in_lacks_what_windows_lacks(name: str) -> None:
    """Else the test above would show nothing."""
    code = f"from tests.support.other_system import pretend; pretend('win32'); import {name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PROJECT, check=False)
    assert f"No module named '{name}'" in done.stderr
