"""The program as its users and their scripts meet it: exit status, errors of one line, pipes, files, interrupts."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from dissectors.events import Capture
from tests.support.examples import sampled
from tests.support.interrupts import interrupt_at_end
from tests.support.live_program import wait_for
from tests.support.paths import FIXTURES
from tests.support.runner import assert_refused, run
from tests.world.conversation import pushes
from tests.world.network import packets, segments
from tests.world.tap import save
from zmtpsniff.analysis.findings.finding import Finding
from zmtpsniff.analysis.ways.way_records import Way
from zmtpsniff.check.difference import ComparisonSum, Difference
from zmtpsniff.cli.main import cli
from zmtpsniff.render.json_schema import json_schema

PROGRAM = [sys.executable, "-m", "zmtpsniff"]
REQ_REP = FIXTURES / "m31_req_rep.pcap"
SHOP = FIXTURES / "shop"
ALL_FIXTURES = sorted(path for path in FIXTURES.iterdir() if ".pcap" in path.name)


def records(*arguments: object) -> list[dict[str, object]]:
    done = run("read", "-T", "json", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def records_here(capture: Path) -> list[dict[str, object]]:
    """The same without a process of its own, for what all captures are tried with."""
    done = CliRunner().invoke(cli, ["read", "-T", "json", str(capture)])
    told = done.stderr.splitlines()  # nothing, but what to do about messages that need a key
    assert done.exit_code == 0
    assert all("--curve-keys FILE opens them" in line for line in told)
    assert len(told) <= ("curve" in capture.name)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["read"], "Missing argument 'CAPTURE...'"),
        (["read", "--nonsense", REQ_REP], "No such option '--nonsense'"),
        (["read", "-T", "xml", REQ_REP], "'xml' is not one of"),
        (["read", "--max-bytes", "-1", REQ_REP], "-1 is not in the range"),
        (["read", "-c", "0", REQ_REP], "0 is not in the range"),
        (["read", "-d", "5555", REQ_REP], "no rule like tcp.port==5555,zmtp"),
        (["read", "-d", "tcp.port==5555,http", REQ_REP], "'http' is none of zmtp"),
        (["read", "-d", "tcp.port==9-1,zmtp", REQ_REP], "no range of ports"),
        (["read", "no-such-file.pcap"], "no-such-file.pcap: "),
        (["read", FIXTURES], "fixtures: "),
        (["read", __file__], "not a capture file"),
        (["read", REQ_REP, "no-such-file.pcap"], "no-such-file.pcap: "),
        (["read", "-o", "/no/such/folder/out", REQ_REP], "/no/such/folder/out: "),
        (["dance"], "No such command 'dance'"),
        (["raed", REQ_REP], "No such command 'raed'; did you mean 'read'?"),
        (["no-such-file.pcap"], "No such file 'no-such-file.pcap'"),
        ([FIXTURES], "is a folder; name the captures in it"),
        (["read", "-o", "", REQ_REP], "-o: the name of a file is missing"),
        (["read", "-o", REQ_REP, REQ_REP], "this is one of the captures to read"),
        (["stats"], "Missing argument 'CAPTURE...'"),
        (["stats", "--sort", "colour", REQ_REP], "'colour' is not one of 'messages', 'octets', 'rate', 'duration'"),
        (["stats", "--top", "0", REQ_REP], "0 is not in the range"),
        (["stats", "--interval", "0", REQ_REP], "0.0 is not in the range"),
        (["stats", "-T", "tree", REQ_REP], "'tree' is not one of 'table', 'json'"),
        (["stats", "-Y", "nonsense ==", REQ_REP], "-Y: "),
        (["stats", "-o", "/no/such/folder/out", REQ_REP], "/no/such/folder/out: "),
        *(([name, "-o", REQ_REP, REQ_REP], "this is one of the captures") for name in ("stats", "diagnose", "trace")),
        *(
            ([name, *more], "")
            for name in ("diagnose", "trace")
            for more in ([], ["--live", REQ_REP], ["-i", "lo", REQ_REP], ["--live"])
        ),
        (["diagnose", "--sequence", "number", REQ_REP], ""),
        (["trace", "--slowest", "0", REQ_REP], ""),
        (["trace", REQ_REP, "--slowest"], "requires an argument (see zmtpsniff trace --help)"),
        (["diff", REQ_REP], ""),
        (["diff", REQ_REP, REQ_REP, REQ_REP], ""),
        (["diff", "--live", "-i", "lo"], ""),
        (["diff", "-i", "lo", REQ_REP, REQ_REP], ""),
        (["diff", "-", "-"], ""),
        (["diff", REQ_REP, "missing/*.pcap"], ""),
    ],
)
def test_wrong_usage_is_told_in_one_line(arguments: list[object], said: str) -> None:
    done = run(*arguments)
    assert_refused(done, said)
    assert done.stderr.startswith("zmtpsniff: ")


def test_help_and_version() -> None:
    assert run("--version").stdout.startswith("zmtpsniff ")
    for arguments in (["--help"], ["read", "--help"]):
        done = run(*arguments)
        assert done.returncode == 0
        assert "read" in done.stdout
    for group in ([], ["spark"]):
        assert (run(*group).returncode, run(*group).stdout) == (0, run(*group, "--help").stdout)


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads(run("schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("capture", sampled(ALL_FIXTURES), ids=lambda path: path.name)
def test_every_record_is_valid_by_the_schema(validator: jsonschema.Draft202012Validator, capture: Path) -> None:
    found = records_here(capture)
    for record in found:
        validator.validate(record)
    totals, kinds = found[-1], [record["type"] for record in found]
    assert (totals["type"], kinds.count("capture")) == ("capture", 1)
    for name, kind in (("messages", "message"), ("problems", "problem"), ("zmtp_flows", "connection")):
        assert totals[name] == kinds.count(kind)


@pytest.mark.parametrize(
    ("option", "kinds", "arguments"),
    [
        ("--diagnose", Finding | Capture, ["diagnose", FIXTURES / "rec_request_to_pull.pcap"]),
        ("--diff", Difference | ComparisonSum, ["diff", SHOP / "none.pcap.gz", SHOP / "null.pcap.gz"]),
        ("--trace", Way, ["trace", FIXTURES / "brokers" / "two_brokers.pcap.gz"]),
    ],
)
def test_results_in_json_are_valid_by_their_schemas(option: str, kinds: Any, arguments: list[object]) -> None:
    schema = json.loads(run("schema", option).stdout)
    assert schema == json_schema(kinds, schema["title"], schema["description"])
    rows = [json.loads(line) for line in run(*arguments, "-T", "json").stdout.splitlines()]
    assert len(rows) > 1
    validator = jsonschema.Draft202012Validator(schema)
    for row in rows:
        validator.validate(row)


def test_a_cut_file_is_read_as_far_as_it_goes_and_is_no_failure(tmp_path: Path) -> None:
    whole = records(REQ_REP)
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(REQ_REP.read_bytes()[:-20])
    found = records(cut)
    assert [record["code"] for record in found if record["type"] == "problem"][-1] == "capture-truncated"
    assert [r for r in found if r["type"] == "message"] == [r for r in whole if r["type"] == "message"]


def test_what_is_wrong_with_the_capture_is_told_even_where_the_format_has_no_place_for_it(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(REQ_REP.read_bytes()[:-20])
    done = run("read", "-T", "dump", cut)
    assert done.returncode == 0
    assert done.stderr.startswith(f"zmtpsniff: {cut}: cut short")


def test_comments_come_where_they_belong(tmp_path: Path) -> None:
    import scapy.utils

    packets = list(scapy.utils.RawPcapReader(str(REQ_REP)))
    target = tmp_path / "commented.pcapng"
    writer = scapy.utils.PcapNgWriter(str(target))
    with writer:
        for number, packet in enumerate(scapy.utils.PcapReader(str(REQ_REP)), 1):
            if number == 10:
                packet.comments = [b"look here"]
            writer.write(packet)
    found = records(target)
    place = next(number for number, record in enumerate(found) if record["type"] == "comment")
    assert (found[place]["text"], found[place]["packet"]) == ("look here", 10)
    assert found[place - 1]["packet"] == 9
    assert found[place + 1]["packet"] == 10
    assert found[-1]["packets"] == len(packets)


def test_stop_after_some_packets() -> None:
    assert records("-c", "13", REQ_REP)[-1]["packets"] == 13


def test_a_closed_pipe_ends_quietly() -> None:
    command = f"{' '.join(PROGRAM)} read -T json {REQ_REP} {REQ_REP} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.splitlines()[1] in ("0", "141")


def test_a_full_disk_is_told() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*PROGRAM, "read", str(REQ_REP)], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr == "zmtpsniff: standard output: No space left on device\n"


def test_output_file_has_its_name_only_when_complete(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert run("read", "-T", "json", "-o", out, REQ_REP).stdout == ""
    assert [json.loads(line) for line in out.read_text().splitlines()] == records(REQ_REP)
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


@contextmanager
def writing(out: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program while it writes records to a file, and waits for more packets from a pipe."""
    command = [*PROGRAM, "read", "-T", "json", "-o", str(out), "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdin
        program.stdin.write(REQ_REP.read_bytes())
        program.stdin.flush()
        partial = out.with_name(f"{out.name}.partial")
        wait_for(lambda: partial.exists() and partial.stat().st_size > 0)
        yield program


def test_a_killed_run_leaves_no_file_that_looks_complete(tmp_path: Path) -> None:
    with writing(tmp_path / "out.json") as program:
        program.kill()
    assert [path.name for path in tmp_path.iterdir()] == ["out.json.partial"]


def test_standard_input_is_read_as_it_comes() -> None:
    capture = REQ_REP.read_bytes()
    with subprocess.Popen(
        [*PROGRAM, "read", "-T", "json", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdin
        assert program.stdout
        position, packets = 24, 0
        while packets < 13:  # the 13th packet holds the first message
            position += 16 + int.from_bytes(capture[position + 8 : position + 12], "little")
            packets += 1
        program.stdin.write(capture[:position])
        program.stdin.flush()
        # All that these packets hold must come although the pipe stays open.
        first = [json.loads(program.stdout.readline()) for _ in range(5)]
        assert [record["type"] for record in first] == ["greeting", "greeting", "command", "command", "message"]
        program.stdin.write(capture[position:])
        program.stdin.close()
        rest = program.stdout.read().splitlines()
        assert [*first, *map(json.loads, rest)] == records(REQ_REP)
        assert program.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["stats", "-T", "json"], "statistics"), (["diagnose", "--utc"], "findings"), (["trace", "--utc"], "ways")],
)
def test_an_interrupt_tells_what_was_found_until_then(arguments: list[str], told: str) -> None:
    capture = FIXTURES / "rec_proxy_ok.pcap"
    done = interrupt_at_end([*PROGRAM, *arguments, "-"], capture.read_bytes())
    said = f"zmtpsniff: interrupted: the {told} are those of what was read until then\n"
    assert (done.returncode, done.stderr.decode()) == (130, said)
    assert done.stdout.decode() == run(*arguments, capture).stdout


def test_an_interrupt_ends_with_the_totals() -> None:
    with subprocess.Popen(
        [*PROGRAM, "read", "-T", "json", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdin
        assert program.stdout
        assert program.stderr
        program.stdin.write(REQ_REP.read_bytes())
        program.stdin.flush()
        program.stdout.readline()
        program.send_signal(signal.SIGINT)
        last = json.loads(program.stdout.read().splitlines()[-1])
        assert last["type"] == "capture"
        assert program.wait(60) == 130
        assert program.stderr.read() == b""


def test_an_interrupt_tells_where_the_file_is_that_is_not_complete(tmp_path: Path) -> None:
    out, partial = tmp_path / "out.json", tmp_path / "out.json.partial"
    with writing(out) as program:
        assert program.stderr
        program.send_signal(signal.SIGINT)
        said = program.stderr.read().decode()
        assert program.wait(60) == 130
    assert said == f"zmtpsniff: interrupted: {partial} has the output so far\n"
    assert json.loads(partial.read_text().splitlines()[-1])["type"] == "capture"
    assert not out.exists()


FULL_PIPE = 60_000  # octets; there may be gaps at the ends of pages


def waiting_octets(pipe: int) -> int:
    """The octets that have been written to a pipe and not been read."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.fixture(scope="module")
def long_capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One with so many messages that their records fill a pipe."""
    capture = tmp_path_factory.mktemp("long") / "long.pcap"
    save(capture, packets(segments(pushes(3, Random(1), 3000, batch=200))))
    return capture


def test_an_interrupt_while_the_reader_is_slow_breaks_no_line(long_capture: Path) -> None:
    with subprocess.Popen(
        [*PROGRAM, "read", "-T", "json", str(long_capture)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as program:
        assert program.stdout
        pipe = program.stdout.fileno()
        wait_for(lambda: waiting_octets(pipe) > FULL_PIPE)  # now it waits for room, or is about to
        program.send_signal(signal.SIGINT)
        time.sleep(0.2)
        output = program.stdout.read()
        assert len(output) > FULL_PIPE
        numbers = [json.loads(line)["packet"] for line in output.splitlines() if b'"message"' in line]
        assert numbers == sorted(numbers)
        assert json.loads(output.splitlines()[-1])["type"] == "capture"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_nothing_is_lost_while_it_is_stopped(unbuffered: str, long_capture: Path) -> None:
    """As by Ctrl-Z and fg: the kernel then takes a part of what is being written, whatever buffers Python has."""
    command = [*PROGRAM, "read", "-T", "json", str(long_capture)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": unbuffered}
    ) as program:
        assert program.stdout
        pipe = program.stdout.fileno()
        wait_for(lambda: waiting_octets(pipe) > FULL_PIPE)
        program.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, program.pid, os.WSTOPPED)
        program.send_signal(signal.SIGCONT)
        os.waitid(os.P_PID, program.pid, os.WCONTINUED)
        time.sleep(0.2)
        assert program.stdout.read().decode() == run(*command[3:]).stdout
        assert program.wait(60) == 0


def test_decode_as_reads_one_side_that_proves_nothing(tmp_path: Path) -> None:
    # Only what the client of a ZMTP 1.0 connection sends: a chain of frames, but by itself no proof.
    capture = FIXTURES / "net_zmtp1_gap.pcap"
    assert any(record["type"] == "message" for record in records("-d", "tcp.port==5555,zmtp1", capture))
    assert records("-d", "tcp.port==1-2,zmtp", capture) == records(capture)


def test_colours_only_where_they_are_wanted() -> None:
    assert "\x1b" not in run("read", REQ_REP).stdout
    assert "\x1b[" in run("read", "--color", "always", REQ_REP).stdout
    script = f"{' '.join(PROGRAM)} read {REQ_REP}"
    for variables, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        environment = {**os.environ, "TERM": "xterm-256color", **variables}
        if "NO_COLOR" not in variables:
            environment.pop("NO_COLOR", None)
        done = subprocess.run(["script", "-qec", script, "/dev/null"], capture_output=True, env=environment, check=True)
        assert (b"\x1b[" in done.stdout) == coloured, variables
