"""The fixture zmtp_capture, in a run of pytest of its own."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.namespaces import needs_namespaces
from tests.support.paths import PROJECT
from tests.support.shown_commands import blocks

(EXAMPLE,) = (block.text for block in blocks(PROJECT / "docs" / "python.md") if "zmtp_capture" in block.text)


def run(folder: Path, tests: dict[str, str], *prefix: str, options: tuple[str, ...] = ()) -> dict[str, str]:
    """Run tests in one pytest; returns the outcome of each with its part of the output, or with all."""
    for name, text in tests.items():
        (folder / f"test_{name}.py").write_text(re.sub(r"def test_\w+", f"def test_{name}", text))
    command = [*prefix, sys.executable, "-m", "pytest", "-p", "zmtpsniff.pytest_plugin", "--strict-markers", "-rA"]
    command += ["--basetemp", str(folder / "temp"), "-p", "no:cacheprovider", *options, "."]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert "Traceback" not in done.stdout
    assert "During handling" not in done.stdout
    outcomes = re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED).*?test_(\w+)\.py", done.stdout, re.MULTILINE)
    told = re.split(r"^_+ (?:ERROR at setup of )?test_(\w+) _+$|^=+ .* =+$", done.stdout, flags=re.MULTILINE)
    texts = {name: text for name, text in zip(told[1::2], told[2::2], strict=True) if name}
    assert {name for _, name in outcomes} == set(tests), done.stdout + done.stderr
    return {name: f"{outcome}\n{texts.get(name, done.stdout)}" for outcome, name in outcomes}


# On the loopback of a network of its own nobody else talks.
ALONE = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
# The service gives no reply: it closes its socket.
SILENT = EXAMPLE.replace('service.send(b"1.09" if service.recv() == b"price?" else b"?")', "service.recv()")
SILENT = SILENT.replace("        client.recv()\n", "        service.close()\n        client.close(linger=0)\n")
# A subscriber that connects to where nobody listens: no connection, no message, no problem.
REFUSED = """
import socket, time

def test_it(zmtp_capture):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        for _ in range(12):
            with socket.socket() as client:
                client.connect_ex(closed.getsockname())
            time.sleep(0.1)
    assert [finding.code for finding in zmtp_capture.findings] == ["endpoint-refused"]
    assert "nobody listens" in zmtp_capture.findings[0].summary
    assert not zmtp_capture.connections
"""
MARKED = "import pytest\n@pytest.mark.zmtp_capture({})\n"


@needs_namespaces
def test_what_is_captured_and_told(tmp_path: Path) -> None:
    tests = {
        "example": EXAMPLE,
        "wrong": EXAMPLE.replace('b"1.09" if', 'b"9.99" if'),
        "silent": SILENT,
        "refused": REFUSED,
        "of_udp": EXAMPLE.replace("def test", MARKED.format("capture_filter='udp'") + "def test"),
    }
    told = run(tmp_path, tests, *ALONE)
    assert {name: text.split()[0] for name, text in told.items()} == {
        "example": "PASSED", "wrong": "FAILED", "silent": "FAILED", "refused": "PASSED", "of_udp": "FAILED",
    }  # fmt: skip
    path = tmp_path / "temp" / "test_wrong0" / "zmtp.pcapng"
    assert f"ZeroMQ messages, captured in {path}" in told["wrong"]
    assert '"9.99"' in told["wrong"].partition("ZeroMQ messages")[2]
    assert path.stat().st_size > 1000
    _, _, wrong = told["silent"].partition("What is wrong with the ZeroMQ messages")
    wrong, _, lost = wrong.partition("Not answered, not done with the ZeroMQ messages")
    assert "[request-unanswered]" in wrong
    assert "not answered" in lost
    assert "assert [] == [" in told["of_udp"]


REFUSE = """
import zmtpsniff
from zmtpsniff.capture.engines import choice

def refuse(*_):
    raise zmtpsniff.PrivilegeError("this needs root")

choice.make_engine = refuse
"""


def test_who_may_not_capture_may_skip(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(REFUSE)
    tests = {"it": "def test_it(zmtp_capture): ...\n"}
    assert run(tmp_path, tests)["it"].startswith("ERROR")
    told = run(tmp_path, tests, options=("--zmtp-skip-unprivileged",))["it"]
    assert told.startswith("SKIPPED")
    assert "zmtp_capture: this needs root" in told


def test_a_test_that_cannot_capture_says_why(tmp_path: Path) -> None:
    test = "def test_it(zmtp_capture): ...\n"
    markers = {"no_interface": "interface='nosuch0'", "no_such_argument": "interfaces=['lo']", "no_name": "'lo'"}
    told = run(tmp_path, {name: MARKED.format(marker) + test for name, marker in markers.items()})
    assert all(text.startswith("ERROR") for text in told.values())
    assert "zmtp_capture: nosuch0: no interface with this name" in told.pop("no_interface")
    assert all("zmtp_capture: the marker takes interface= and capture_filter=" in text for text in told.values())


def test_it_costs_nothing_where_it_is_not_used() -> None:
    late = ("msgspec", "scapy", "dissectors.events", "zmtpsniff.dissection")
    code = f"import sys, zmtpsniff.pytest_plugin; print([name for name in {late} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
