"""The fixture zmtp_capture, in a run of pytest of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.namespaces import needs_namespaces
from tests.support.paths import PROJECT
from tests.support.shown_commands import blocks

(EXAMPLE,) = (block.text for block in blocks(PROJECT / "docs" / "python.md") if "zmtp_capture" in block.text)


def run(folder: Path, text: str, *prefix: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(text)
    command = [*prefix, sys.executable, "-m", "pytest", "-p", "zmtpsniff.pytest_plugin", "--strict-markers", "-rA"]
    command += ["--basetemp", str(folder / "temp"), "-p", "no:cacheprovider", *options, "test_it.py"]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


# On the loopback of a network of its own nobody else talks.
ALONE = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


@needs_namespaces
def test_the_example_of_the_page(tmp_path: Path) -> None:
    done = run(tmp_path, EXAMPLE, *ALONE)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


@needs_namespaces
def test_a_failed_test_has_its_capture(tmp_path: Path) -> None:
    done = run(tmp_path, EXAMPLE.replace('b"1.09" if', 'b"9.99" if'), *ALONE)
    assert done.returncode == 1
    path = tmp_path / "temp" / "test_the_service_replies0" / "zmtp.pcapng"
    assert f"ZeroMQ messages, captured in {path}" in done.stdout
    assert '"9.99"' in done.stdout.partition("ZeroMQ messages")[2]
    assert path.stat().st_size > 1000


@needs_namespaces
def test_a_failed_test_says_what_is_wrong_and_what_was_lost(tmp_path: Path) -> None:
    """The service gives no reply: it closes its socket."""
    silent = EXAMPLE.replace('service.send(b"1.09" if service.recv() == b"price?" else b"?")', "service.recv()")
    silent = silent.replace("        client.recv()\n", "        service.close()\n        client.close(linger=0)\n")
    done = run(tmp_path, silent, *ALONE)
    assert done.returncode == 1
    _, _, wrong = done.stdout.partition("What is wrong with the ZeroMQ messages")
    wrong, _, lost = wrong.partition("Not answered, not done with the ZeroMQ messages")
    assert "[request-unanswered]" in wrong
    assert "not answered" in lost


def test_who_may_not_capture_may_skip(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("""
import zmtpsniff
from zmtpsniff.capture.engines import choice

def refuse(*_):
    raise zmtpsniff.PrivilegeError("this needs root")

choice.make_engine = refuse
""")
    text = "def test_it(zmtp_capture): ...\n"
    assert "1 error" in run(tmp_path, text).stdout
    done = run(tmp_path, text, options=("--zmtp-skip-unprivileged",))
    assert "1 skipped" in done.stdout
    assert "zmtp_capture: this needs root" in done.stdout


@needs_namespaces
def test_findings_of_what_is_wrong(tmp_path: Path) -> None:
    """A subscriber that connects to where nobody listens: no connection, no message, no problem."""
    text = """
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
    done = run(tmp_path, text, *ALONE)
    assert done.returncode == 0, done.stdout


@needs_namespaces
def test_the_marker(tmp_path: Path) -> None:
    marker = "import pytest\n@pytest.mark.zmtp_capture(capture_filter='udp')\n"
    done = run(tmp_path, EXAMPLE.replace("def test", f"{marker}def test"), *ALONE)
    assert "1 failed" in done.stdout
    assert "assert [] == [" in done.stdout


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ("interface='nosuch0'", "nosuch0: no interface with this name"),
        ("interfaces=['lo']", "the marker takes interface= and capture_filter="),
        ("'lo'", "the marker takes interface= and capture_filter="),
    ],
)
def test_a_test_that_cannot_capture_says_why(marker: str, said: str, tmp_path: Path) -> None:
    text = f"""
import pytest

@pytest.mark.zmtp_capture({marker})
def test_it(zmtp_capture): ...
"""
    done = run(tmp_path, text)
    assert done.returncode == 1
    assert f"zmtp_capture: {said}" in done.stdout
    assert "Traceback" not in done.stdout
    assert "During handling" not in done.stdout


def test_it_costs_nothing_where_it_is_not_used() -> None:
    late = ("msgspec", "scapy", "dissectors.events", "zmtpsniff.dissection")
    code = f"import sys, zmtpsniff.pytest_plugin; print([name for name in {late} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
