"""Live capture of pyzmq programs in network namespaces of their own: all they said, in order, once."""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import pytest

from tests.support.conversation import EVERYTHING, FEW, check, check_end, check_secrets, closed, converse
from tests.support.live_program import LiveProgram, engines, live
from tests.support.namespaces import Side, needs_namespaces

pytestmark = needs_namespaces
_TRIES = 3  # a machine may be too busy to capture all packets


class Talk(NamedTuple):
    """A conversation: who serves, who connects, at which address, and what they say."""

    server: Side
    client: Side
    host: str
    exchanges: Sequence[str]


def capturing(engine: str, side: Side, *interfaces: str) -> AbstractContextManager[LiveProgram]:
    """A capture that shows whole messages, with room for a burst of 20 MiB, which loopback counts twice."""
    # tcpdump takes eight times as much, and seconds to get it.
    chosen = [word for interface in interfaces for word in ("-i", interface)]
    return live("--engine", engine, *chosen, "--max-bytes", "0", "-f", "tcp", prefix=side.command())


@engines(slow=("tcpdump", "scapy", "tshark"))  # on loopback most of them are quick
def test_all_exchanges_on_one_interface(engine: str, sides: tuple[Side, Side]) -> None:
    here, there = sides
    talks = [Talk(here, there, here.ipv4, EVERYTHING), Talk(there, here, there.ipv6, FEW)]
    check_all(engine, here, [here.interface], talks)


@pytest.mark.slow
@engines()
def test_any_interface_sees_the_network_and_loopback(engine: str, sides: tuple[Side, Side]) -> None:
    here, there = sides
    check_all(engine, here, ["any"], outside_and_inside(here, there))


@pytest.mark.slow
@engines(several_interfaces=True)
def test_two_interfaces_at_once(engine: str, sides: tuple[Side, Side]) -> None:
    here, there = sides
    check_all(engine, here, [here.interface, "lo"], outside_and_inside(here, there))


@engines(slow=("dumpcap", "tcpdump", "tshark"))
def test_all_exchanges_on_loopback(engine: str, sides: tuple[Side, Side]) -> None:
    here, _ = sides
    check_all(engine, here, ["lo"], [Talk(here, here, "127.0.0.1", EVERYTHING)])


def outside_and_inside(here: Side, there: Side) -> list[Talk]:
    """A conversation with another host, and one on this host."""
    return [Talk(there, here, there.ipv4, FEW), Talk(here, here, "::1", EVERYTHING)]


def check_all(engine: str, side: Side, interfaces: Sequence[str], talks: Sequence[Talk]) -> None:
    """Capture conversations, and hold the records against what the programs logged."""
    for _ in range(_TRIES):
        with capturing(engine, side, *interfaces) as program:
            logs = [converse(*talk) for talk in talks]
            for talk in talks:
                program.read_until(closed(len(talk.exchanges) + 1, talk.host))
            records = program.interrupt()
        if not records[-1]["dropped"]:
            break
    for talk, log in zip(talks, logs, strict=True):
        check(records, log, talk.host, talk.exchanges)
    check_secrets(json.dumps(records))
    check_end(records)
