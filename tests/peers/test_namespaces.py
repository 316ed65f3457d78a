"""Live capture of pyzmq programs in network namespaces of their own: all they said, in order, once."""

import json
from contextlib import AbstractContextManager

import pytest

from tests.support.conversation import EVERYTHING, FEW, check, check_end, check_secrets, closed, converse
from tests.support.live_program import LiveProgram, engines, live
from tests.support.namespaces import Side, needs_namespaces

pytestmark = needs_namespaces


def capturing(engine: str, side: Side, *interfaces: str) -> AbstractContextManager[LiveProgram]:
    """A capture that shows whole messages, with room for a burst of 20 MiB, which loopback counts twice."""
    # tcpdump takes eight times as much, and seconds to get it.
    chosen = [word for interface in interfaces for word in ("-i", interface)]
    return live("--engine", engine, *chosen, "--max-bytes", "0", "-f", "tcp", prefix=side.command())


@engines(slow=("tcpdump", "scapy", "tshark"))  # on loopback most of them are quick
def test_all_exchanges_on_one_interface(engine: str, sides: tuple[Side, Side]) -> None:
    here, there = sides
    with capturing(engine, here, here.interface) as program:
        logs = converse(here, there, here.ipv4, EVERYTHING)
        program.read_until(closed(len(EVERYTHING) + 1, here.ipv4))
        more = converse(there, here, there.ipv6, FEW)
        program.read_until(closed(len(FEW) + 1, there.ipv6))
        records = program.interrupt()
    check(records, logs, here.ipv4, EVERYTHING)
    check(records, more, there.ipv6, FEW)
    check_secrets(json.dumps(records))
    check_end(records)


@pytest.mark.slow
@engines()
def test_any_interface_sees_the_network_and_loopback(engine: str, sides: tuple[Side, Side]) -> None:
    here, there = sides
    with capturing(engine, here, "any") as program:
        check_both(program, here, there)


@pytest.mark.slow
@engines(several_interfaces=True)
def test_two_interfaces_at_once(engine: str, sides: tuple[Side, Side]) -> None:
    here, there = sides
    with capturing(engine, here, here.interface, "lo") as program:
        check_both(program, here, there)


def check_both(program: LiveProgram, here: Side, there: Side) -> None:
    """What is said to another host and what is said on this one."""
    outside = converse(there, here, there.ipv4, FEW)
    inside = converse(here, here, "::1", EVERYTHING)
    program.read_until(closed(len(FEW) + 1, there.ipv4))
    program.read_until(closed(len(EVERYTHING) + 1, "::1"))
    records = program.interrupt()
    check(records, outside, there.ipv4, FEW)
    check(records, inside, "::1", EVERYTHING)
    check_secrets(json.dumps(records))
    check_end(records)


@engines(slow=("dumpcap", "tcpdump", "tshark"))
def test_all_exchanges_on_loopback(engine: str, sides: tuple[Side, Side]) -> None:
    here, _ = sides
    with capturing(engine, here, "lo") as program:
        logs = converse(here, here, "127.0.0.1", EVERYTHING)
        program.read_until(closed(len(EVERYTHING) + 1, "127.0.0.1"))
        records = program.interrupt()
    check(records, logs, "127.0.0.1", EVERYTHING)
    check_secrets(json.dumps(records))
    check_end(records)
