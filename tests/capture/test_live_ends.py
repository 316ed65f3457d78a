"""Ends of live captures, and what they survive: interfaces that go, readers that are slow or gone, signals."""

import signal
import time

import pytest

from tests.support.conversation import check, check_end, closed, converse
from tests.support.examples import crossed
from tests.support.live_program import LiveProgram, Record, engine_names, engines, live, running, wait_for
from tests.support.namespaces import Side, needs_namespaces

pytestmark = needs_namespaces
SOME = ("push_pull", "req_rep")
# A program that captures, and scapy: the other programs end as dumpcap does.
SLOW = ("tcpdump", "tshark")
TELLS = {"scapy"}  # that an interface is down or up; the capture programs do not, and go on when it is up
GOES_ON = {"scapy"}  # on the other interfaces when one is gone; the capture programs end


def codes(records: list[Record]) -> list[str]:
    """The problems, but not that programs which try again were refused in between."""
    codes = [record["code"] for record in records if record["type"] == "problem"]
    return [code for code in codes if code != "connection-refused"]


def check_failure(program: LiveProgram, name: str) -> list[Record]:
    """It ends by itself, says why, and leaves nothing; returns the records."""
    children = program.children()
    records = program.read_all()
    assert program.process.wait(120) == 2
    assert running(children) == []
    *_, last = program.said().splitlines()
    assert last.startswith("zmtpsniff: ")
    assert name in last or "interface" in last or "device" in last
    # On a busy machine so much time may pass between its going down and its deletion that both are told.
    assert [code for code in codes(records) if code != "interface-down"] == ["capture-ended"]
    assert records[-1]["type"] == "capture"
    return records


@engines(slow=SLOW)
def test_an_interface_goes_down_and_comes_up(engine: str, sides: tuple[Side, Side]) -> None:
    here, there = sides
    with live("--engine", engine, "-i", here.interface, "-f", "tcp", prefix=here.command()) as program:
        before = converse(here, there, here.ipv4, SOME)
        program.read_until(closed(len(SOME) + 1, here.ipv4))
        seen = len(program.records)
        here.ip("link", "set", here.interface, "down")
        if engine in TELLS:
            program.read_until(lambda records: "interface-down" in codes(records))
        here.ip("link", "set", here.interface, "up")
        if engine in TELLS:
            program.read_until(lambda records: "interface-up" in codes(records))
        after = converse(here, there, here.ipv4, SOME)
        program.read_until(closed(2 * (len(SOME) + 1), here.ipv4))
        records = program.interrupt()
    check(records[:seen], before, here.ipv4, SOME)
    check(records[seen:], after, here.ipv4, SOME)


def test_a_filter_hides_no_fault_of_the_capture(sides: tuple[Side, Side]) -> None:
    here, _ = sides
    for shown, said in (('type == "message"', 1), ('severity == "warning"', 0)):
        with live("--engine", "scapy", "-i", here.interface, "-Y", shown, prefix=here.command()) as program:
            here.ip("link", "set", here.interface, "down")
            if said:
                wait_for(lambda: "went down" in program.said())
            else:
                program.read_until(lambda records: "interface-down" in codes(records))
            here.ip("link", "set", here.interface, "up")
            program.interrupt()
            assert program.said().count("went down") == said


@engines(slow=SLOW)
def test_an_interface_is_deleted(engine: str, sides: tuple[Side, Side]) -> None:
    here, there = sides
    with live("--engine", engine, "-i", here.interface, "-f", "tcp", prefix=here.command()) as program:
        logs = converse(here, there, here.ipv4, SOME)
        program.read_until(closed(len(SOME) + 1, here.ipv4))
        here.ip("link", "delete", here.interface)
        records = check_failure(program, here.interface)
    check(records, logs, here.ipv4, SOME)


@engines(slow=SLOW)
def test_an_interface_that_is_down_is_deleted(engine: str, sides: tuple[Side, Side]) -> None:
    # Whoever is slow to look sees the same when an interface is deleted at once.
    here, _ = sides
    with live("--engine", engine, "-i", here.interface, "-f", "tcp", prefix=here.command()) as program:
        here.ip("link", "set", here.interface, "down")
        if engine in TELLS:
            program.read_until(lambda records: "interface-down" in codes(records))
        here.ip("link", "delete", here.interface)
        if engine in TELLS:  # and are not misled by another that comes to have its name
            here.ip("link", "add", here.interface, "up", "type", "veth")
        records = program.read_all()
        assert program.process.wait(120) == 2
    assert codes(records) == ["interface-down"] * (engine in TELLS) + ["capture-ended"]


@engines(several_interfaces=True, slow=SLOW)
def test_one_of_two_interfaces_is_deleted(engine: str, sides: tuple[Side, Side]) -> None:
    here, there = sides
    with live("--engine", engine, "-i", here.interface, "-i", "lo", "-f", "tcp", prefix=here.command()) as program:
        logs = converse(here, there, here.ipv4, SOME)
        program.read_until(closed(len(SOME) + 1, here.ipv4))
        here.ip("link", "delete", here.interface)
        if engine not in GOES_ON:
            records = check_failure(program, here.interface)
        else:
            program.read_until(lambda records: "capture-ended" in codes(records))
            more = converse(here, here, "127.0.0.1", SOME)
            program.read_until(closed(len(SOME) + 1, "127.0.0.1"))
            records = program.interrupt()
            check(records, more, "127.0.0.1", SOME)
    check(records, logs, here.ipv4, SOME)


@engines(slow=SLOW)
def test_a_closed_pipe_ends_it_quietly_although_nothing_more_comes(engine: str, sides: tuple[Side, Side]) -> None:
    here, _ = sides
    with live("--engine", engine, "-i", "lo", "-f", "tcp", prefix=here.command(), reads=False) as program:
        children = program.children()
        converse(here, here, "127.0.0.1", ("req_rep",))
        assert program.process.stdout
        for _line in range(3):
            assert program.process.stdout.readline()
        program.process.stdout.close()
        assert program.process.wait(120) == 0
        assert running(children) == []
        assert len(program.said().splitlines()) == 1  # what -v says


def test_head_ends_it(sides: tuple[Side, Side]) -> None:
    here, _ = sides
    pipeline = here.command("bash", "-c", '"$@" | head -n 3; echo "${PIPESTATUS[0]}"', "bash")
    with live("-i", "lo", prefix=pipeline, reads=False) as program:
        converse(here, here, "127.0.0.1", ("req_rep",))
        assert program.process.stdout
        *_, status = lines = program.process.stdout.read().splitlines()
        assert program.process.wait(120) == 0
        assert len(program.said().splitlines()) == 1  # what -v says
    assert (len(lines), status) == (4, b"0")


@engines()
def test_killed_it_leaves_no_process(engine: str, sides: tuple[Side, Side]) -> None:
    here, _ = sides
    with live("--engine", engine, "-i", "lo", prefix=here.command()) as program:
        children = program.children()
        assert running(children) == children
        program.process.kill()
        wait_for(lambda: not running(children))


@pytest.mark.parametrize(
    ("engine", "numbers"),
    crossed(engine_names(("dumpcap", "scapy", *SLOW), SLOW), [[signal.SIGTERM], [signal.SIGINT] * 2]),
)
def test_signals_end_it_with_totals(engine: str, numbers: list[signal.Signals], sides: tuple[Side, Side]) -> None:
    here, _ = sides
    with live("--engine", engine, "-i", "lo", "-f", "tcp", prefix=here.command()) as program:
        children = program.children()
        converse(here, here, "127.0.0.1", ("req_rep",))
        program.read_until(closed(2, "127.0.0.1"))
        for number in numbers:
            program.process.send_signal(number)
            time.sleep(0.05)
        records = program.read_all()
        assert program.process.wait(120) == 0
        assert running(children) == []
        assert len(program.said().splitlines()) == 1
    assert [record["type"] for record in records].count("capture") == 1
    assert records[-1]["type"] == "capture"
    assert records[-1]["messages"] == sum(record["type"] == "message" for record in records)


@engines(only=("dumpcap", "scapy"), slow=("scapy",))  # one beside us, one within
def test_a_slow_reader_gets_everything(engine: str, sides: tuple[Side, Side]) -> None:
    here, _ = sides
    with live("--engine", engine, "-i", "lo", "-f", "tcp", prefix=here.command(), reads=False) as program:
        began = time.monotonic()
        logs = converse(here, here, "127.0.0.1", ("flood",))
        time.sleep(max(0.0, 1 - (time.monotonic() - began)))
        program.start_reading()
        program.read_until(closed(2, "127.0.0.1"))
        records = program.interrupt()
    check(records, logs, "127.0.0.1", ("flood",))
    check_end(records)
