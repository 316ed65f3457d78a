"""The whole program with keys of CURVE: the capture is of real libzmq peers, with its keys inside."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dissectors.events import AnyEvent, Message
from dissectors.zmtp.curve_keys import format_key
from tests.support import runner
from tests.support.curve_octets import Curve
from tests.support.paths import FIXTURES, PROJECT
from tests.support.saved_files import without_keys
from tests.support.settings import RELATIONS
from tests.world.conversation import Conversation, Piece
from tests.world.network import packets, segments
from tests.world.tap import Packets
from zmtpsniff.engine.sniffer import Sniffer

CAPTURE = FIXTURES / "sec_curve_keys.pcapng"


def run(*arguments: str | Path, status: int = 0, path: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Run the program; ``path`` is a folder whose modules come first."""
    if path is None:
        done = runner.run(*arguments)
    else:
        environment = {**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{PROJECT}"}
        command = [sys.executable, "-m", "zmtpsniff", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
    assert done.returncode == status, done.stderr
    return done


def records(*arguments: str | Path, path: Path | None = None) -> list[dict[str, Any]]:
    return list(map(json.loads, run("read", "-T", "json", *arguments, path=path).stdout.splitlines()))


def of(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [record for record in found if record["type"] == kind]


@pytest.fixture
def apart(tmp_path: Path) -> tuple[Path, Path]:
    """The capture without its keys, and a file with these."""
    return without_keys(CAPTURE, tmp_path)


@pytest.fixture
def no_sodium(tmp_path: Path) -> Path:
    """A folder in which PyNaCl is one that cannot be imported."""
    folder = tmp_path / "without"
    folder.mkdir()
    (folder / "nacl.py").write_text("raise ImportError")
    return folder


def test_keys_in_a_capture_and_in_a_file_open_the_same(apart: tuple[Path, Path]) -> None:
    capture, keys = apart
    opened = records("--curve-keys", keys, capture)
    assert opened == records(CAPTURE)
    messages = of(opened, "message")
    assert [message["frames"][-1]["text"] for message in messages[:2]] == ["what is 0 and 0?", "0"]
    assert all(message["encrypted"] is True for message in messages)
    assert messages[1]["request"] == messages[0]["packet"]
    assert messages[1]["latency_ns"] > 0
    assert messages[-1]["matched"] == {"length": 7, "text": "weather"}
    assert [problem["code"] for problem in of(opened, "problem")] == ["server-key-wrong"]
    assert not of(records(capture), "message")


@pytest.mark.parametrize("command", ["read", "stats", "diagnose"])
def test_messages_that_no_key_opens_are_counted_on_standard_error(apart: tuple[Path, Path], command: str) -> None:
    capture, keys = apart
    assert run(command, "--curve-keys", keys, capture).stderr == ""
    keys.write_text("CURVE_SECRET_KEY - " + 64 * "1" + "\n")
    (told,) = run(command, "--curve-keys", keys, capture).stderr.splitlines()
    assert told.startswith("zmtpsniff: no key opens the messages of 2 of 2 CURVE connections; ")
    (told,) = run(command, capture).stderr.splitlines()
    assert told.startswith("zmtpsniff: the messages of 2 CURVE connections are encrypted, ")


def test_tables_and_sums_do_not_say_that_there_are_no_messages_where_no_key_opens_them(
    apart: tuple[Path, Path],
) -> None:
    capture, keys = apart
    assert run("diagnose", capture).stdout.endswith(" 0 messages that can be read\n")
    assert run("diagnose", "--curve-keys", keys, capture).stdout.endswith(" messages\n")
    assert run("trace", capture).stdout == "no way to show: all messages are encrypted\n"
    tables = run("stats", capture).stdout
    assert "0/s" not in tables
    assert "Peer, and its service" not in tables
    assert "Peer, and its service" in run("stats", "--curve-keys", keys, capture).stdout


def test_no_secret_is_shown_unless_asked_for(apart: tuple[Path, Path]) -> None:
    capture, keys = apart
    secrets = [line.split()[-1] for line in keys.read_text().splitlines() if not line.startswith("#")]
    for form in ("tree", "json", "summary", "dump"):
        shown = run("read", "-T", form, "-vv", "--curve-keys", keys, capture).stdout
        assert not any(secret in shown for secret in secrets)
    shown = run("read", "-T", "json", "--show-secrets", "--curve-keys", keys, capture).stdout
    assert secrets[0] in shown  # the one that opens a connection
    assert secrets[1] not in shown


def test_filters_statistics_and_policies_see_what_was_in_boxes(tmp_path: Path) -> None:
    questions = records("-Y", 'encrypted && frames[1].text contains "what"', CAPTURE)
    assert len(of(questions, "message")) == 2
    rows = list(map(json.loads, run("stats", "-T", "json", CAPTURE).stdout.splitlines()))
    assert any(row.get("topic") == {"length": 7, "text": "weather"} for row in rows)
    policy = tmp_path / "policy.toml"
    policy.write_text(
        "[[rule]]\nname = 'nothing in clear'\nforbid = 'type == \"message\" && !encrypted'\n"
        "[[rule]]\nname = 'secret questions'\nexpect = 'type == \"message\" && encrypted'\nmin = 7\n"
    )
    run("check", "--policy", policy, CAPTURE)
    run("check", "--policy", policy, FIXTURES / "m31_req_rep.pcap", status=1)


def test_saving_with_keys_puts_them_into_the_file(apart: tuple[Path, Path], tmp_path: Path) -> None:
    capture, keys = apart
    saved, again = tmp_path / "saved.pcapng", tmp_path / "again.pcapng"
    first = records("--curve-keys", keys, "-w", saved, capture)
    assert saved.stat().st_mode & 0o777 == 0o600
    assert records(saved) == first
    records("-w", again, saved)  # what has keys keeps them
    assert records(again) == first
    assert of(records("-w", tmp_path / "without.pcapng", capture), "message") == []
    assert b"CURVE_" not in (tmp_path / "without.pcapng").read_bytes()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("rubbish\n", "line 1: a line begins with CURVE_SHARED_KEY or CURVE_SECRET_KEY"),
        ("\n\nCURVE_SECRET_KEY - -\n", "line 3: CURVE_SECRET_KEY without a key"),
    ],
)
@pytest.mark.parametrize("command", ["read", "stats", "check"])
def test_a_line_that_is_no_key_is_named(tmp_path: Path, command: str, content: str, reason: str) -> None:
    keys = tmp_path / "keys"
    keys.write_text(content)
    done = run(command, "--curve-keys", keys, CAPTURE, status=2)
    (line,) = done.stderr.splitlines()
    assert f"--curve-keys: {keys}: {reason}" in line
    assert done.stdout == ""


def test_without_pynacl_keys_are_refused_and_those_in_captures_noted(
    apart: tuple[Path, Path], no_sodium: Path
) -> None:  # fmt: skip
    capture, keys = apart
    done = run("read", "--curve-keys", keys, capture, status=2, path=no_sodium)
    (line,) = done.stderr.splitlines()
    assert "pip install 'zmtpsniff[curve]'" in line
    found = records(CAPTURE, path=no_sodium)
    (problem,) = of(found, "problem")[:1]
    assert (problem["code"], problem["severity"]) == ("keys-not-used", "note")
    assert of(found, "message") == []
    assert records(capture, path=no_sodium)  # nobody misses it


@pytest.mark.parametrize(
    "command", [["diagnose"], ["stats"], ["trace"], ["check", "--include", "protocol"]], ids=lambda command: command[0]
)
def test_without_pynacl_a_result_comes_with_a_line_on_keys_in_captures(command: list[str], no_sodium: Path) -> None:
    (line,) = run(*command, CAPTURE, path=no_sodium).stderr.splitlines()
    assert line.startswith("zmtpsniff: keys in the capture are not used: ")
    assert "pip install 'zmtpsniff[curve]'" in line
    assert run(*command, CAPTURE).stderr == ""


def test_pynacl_is_imported_only_with_keys(apart: tuple[Path, Path]) -> None:
    code = (
        "import atexit, sys; from zmtpsniff.cli.main import main; atexit.register(lambda: print('nacl' in sys.modules))"
    )
    code += "; main()"
    for more, wanted in (([], "False"), (["--curve-keys", str(apart[1])], "True")):
        command = [sys.executable, "-c", code, "read", "-o", os.devnull, *more, str(apart[0])]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=PROJECT)
        assert done.stdout.split()[-1] == wanted


# ------------------------------------------------------------------ keys that come with the packets


class Late(Packets):
    """Packets whose keys come after them."""

    lines: list[str]
    after: int

    def batches(self) -> Any:
        for number, batch in enumerate(super().batches()):
            if number == self.after:
                self.key_lines += self.lines
            yield batch


def sniffed(source: Packets, host_keys: bool = False) -> list[AnyEvent]:
    sniffer = Sniffer(source, RELATIONS._replace(host_keys=host_keys))
    return [event for events in sniffer.events() for event in events]


def talk(curve: Curve) -> Conversation:
    sent = curve.handshake(b"REQ", b"REP")
    for number in range(20):
        sent += curve.multipart(0, b"", b"ask %d" % number) + curve.multipart(1, b"", b"tell %d" % number)
    return Conversation("curve", tuple(Piece(side, octets) for side, octets in sent))


@pytest.mark.parametrize("after", [0, 1, 3, 30, 100])
def test_keys_may_come_after_what_they_open(after: int) -> None:
    curve = Curve()
    given = packets(segments(talk(curve)))
    source = Late(given, batch=1)
    source.lines, source.after = [format_key(curve.ways()["k"][0])], after
    events = sniffed(source, host_keys=True)
    messages = [event for event in events if isinstance(event, Message)]
    assert len(messages) == 40
    replies = messages[1::2]
    assert all(reply.request == question.packet for question, reply in zip(messages[::2], replies, strict=True))


def test_a_bad_line_in_a_capture_is_told_once() -> None:
    source = Late(packets(segments(talk(Curve()))), batch=10)
    source.lines, source.after = ["rubbish"] * 5, 0
    events = sniffed(source)
    told = [event for event in events if getattr(event, "code", None) == "keys-not-used"]
    assert len(told) == 1
