"""TCP proxies: two connections that carry one conversation, and the messages that come over both."""

import struct
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dissectors.events import Command, Greeting
from tests.analysis.findings.diagnoses import alarms, diagnose
from tests.analysis.ways.test_ways import message_of, number, traced
from tests.support.paths import FIXTURES
from tests.support.tcp_proxy import PROXY, behind_proxy
from tests.world.tap import load, save
from zmtpsniff.analysis.ways.hops import Hop
from zmtpsniff.analysis.ways.tcp_proxies import TcpProxies

SYSTEMS = FIXTURES / "systems"


def saved_behind_proxy(source: Path, folder: Path) -> Path:
    """Write a capture as if a TCP proxy stood in front of each socket."""
    path = folder / "proxied.pcap"
    save(path, behind_proxy(load(source)))
    return path


def test_requests_cross_brokers_and_the_proxy_in_front_of_each(tmp_path: Path) -> None:
    """Each leg is two, and the proxy is never taken for a broker, though it has the address of all of them."""
    ways, messages = traced(saved_behind_proxy(FIXTURES / "brokers" / "two_brokers.pcap.gz", tmp_path))
    lengths = Counter(len(way.legs) for way in ways)
    assert lengths.most_common(1)[0][0] == 12
    told = [(leg.flow, leg.packet, leg.part, leg.src) for way in ways for leg in way.legs]
    assert len(told) == len(set(told))
    for way in ways:
        assert len({number(message_of(leg, messages)) for leg in way.legs}) == 1
        assert all(leg.certain for leg in way.legs)
        assert all(PROXY in leg.src or PROXY in leg.dst for leg in way.legs)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("broker_sleeps", "10.9.0.35:8274"),
        ("proxy_stops", "10.9.0.39:6171"),
        ("topic_misspelt", "10.9.0.28:57246"),
        ("asking_worker_dies", "10.9.2.12:45794"),
    ],
)
def test_the_proxy_is_not_accused_of_what_programs_do(name: str, fault: str, tmp_path: Path) -> None:
    """Also a program that seems to do it on both of two connections is named once, by its own address."""
    (found,) = [one for one in diagnose(saved_behind_proxy(SYSTEMS / f"{name}.pcap.gz", tmp_path)) if _is_alarm(one)]
    assert found.endpoints[0] == fault


@pytest.mark.parametrize("name", ["workers_ask_again", "chain_of_proxies", "work_stealing"])
def test_a_healthy_system_stays_healthy_behind_a_proxy(name: str, tmp_path: Path) -> None:
    path = saved_behind_proxy(FIXTURES / "healthy" / f"{name}.pcap.gz", tmp_path)
    assert alarms(diagnose(path)) == []


def test_a_proxy_whose_server_is_away_accepts_and_closes() -> None:
    """Its clients connect again and again. The server is to blame, and neither they nor the proxy."""
    found = diagnose(FIXTURES / "networks" / "tcp_proxy_alone.pcap.gz")
    assert [(one.code, one.endpoints[0]) for one in found if _is_alarm(one)] == [("endpoint-refused", "10.8.0.2:5555")]
    storms = [one for one in found if one.code == "reconnect-storm"]
    assert len(storms) == 3
    assert all("10.8.0.1 itself waits for 10.8.0.2:5555 in vain" in one.summary for one in storms)


def test_a_server_that_comes_back_excuses_the_clients_of_its_proxy(tmp_path: Path) -> None:
    packets = load(FIXTURES / "networks" / "tcp_proxy_alone.pcap.gz")
    time_ns, link, syn, length, _ = next(one for one in reversed(packets) if one[2][30:34] == b"\x0a\x08\0\2")
    answer = bytearray(syn[:26] + syn[30:34] + syn[26:30] + syn[36:38] + syn[34:36] + syn[38:])
    answer[38:46] = struct.pack(">II", 1, struct.unpack_from(">I", syn, 38)[0] + 1)  # sequence and acknowledgment
    answer[47] |= 16
    again = [(time_ns + 10**8, link, syn, length, None), (time_ns + 10**8 + 1, link, bytes(answer), length, None)]
    save(tmp_path / "back.pcap", [*packets[:-20], *again])
    found = diagnose(tmp_path / "back.pcap")
    assert [one.code for one in found if _is_alarm(one)] == []
    assert [one.code for one in found].count("reconnect-storm") == 3


def _is_alarm(one: Any) -> bool:
    return bool(one.severity != "note")


class _Wire:
    """Announcements and messages of connections over a proxy, at made-up times."""

    def __init__(self) -> None:
        self.proxies = TcpProxies()
        self._packet = 0

    def announce(self, flow: int, src: str, dst: str, kind: str, time_ns: int) -> None:
        """A side greets and is ready at once, in two packets."""
        common = {"flow": flow, "src": src, "dst": dst}
        self.proxies.announce(Greeting(time_ns, 1, version="3.1", mechanism="NULL", **cast(Any, common)))
        self.proxies.announce(Command(time_ns, 1, name="READY", socket_type=kind, **cast(Any, common)))

    def say(self, flow: int, src: str, dst: str, body: bytes) -> tuple[Hop, Hop | None]:
        """A side sends a message. Returns it, and the one that a proxy passes on with it."""
        self._packet += 1
        stream = SimpleNamespace(shared=SimpleNamespace(has_ready_worker=False))
        hop = SimpleNamespace(
            flow=flow, src=src, dst=dst, frames=[body], time_ns=10**6 + self._packet, packet=self._packet,
            stream=stream, way=SimpleNamespace(is_over=False),
        )  # fmt: skip
        return cast(Hop, hop), self.proxies.forwarded(cast(Hop, hop))


FRONT, SERVER = "10.0.0.9:5000", "10.0.0.5:6000"


def opened(nested: bool = True) -> _Wire:
    """Clients 1 and 2 connect at once; the proxy's connections 3 and 4 to the server lie inside theirs, or do not."""
    wire = _Wire()
    for flow in (1, 2):
        wire.announce(flow, f"10.0.0.{flow}:4000", FRONT, "REQ", 10)
    for flow in (3, 4):
        wire.announce(flow, f"10.0.0.9:400{flow}", SERVER, "REQ", 20 if nested else 5)
        wire.announce(flow, SERVER, f"10.0.0.9:400{flow}", "ROUTER", 30)
    for flow in (1, 2):
        wire.announce(flow, FRONT, f"10.0.0.{flow}:4000", "ROUTER", 40)
    return wire


def test_a_message_parts_connections_that_seemed_to_be_one_conversation() -> None:
    wire = opened()
    asked = {flow: wire.say(flow, f"10.0.0.{flow}:4000", FRONT, b"of %d" % flow)[0] for flow in (1, 2)}
    for flow, far in ((2, 3), (1, 4)):
        _, original = wire.say(far, f"10.0.0.9:400{far}", SERVER, b"of %d" % flow)
        assert original is asked[flow]
    assert wire.proxies.behind("10.0.0.9:4003") == "10.0.0.2:4000"
    assert wire.proxies.behind("10.0.0.9:4004") == "10.0.0.1:4000"
    assert wire.proxies.behind(FRONT) == SERVER
    reply, _ = wire.say(3, SERVER, "10.0.0.9:4003", b"yes")
    originals = [wire.say(2, FRONT, "10.0.0.2:4000", b"yes")[1] for _ in range(2)]
    assert originals == [reply, None], "it has passed that on"


def test_a_broker_that_greets_before_its_client_does_is_no_proxy() -> None:
    wire = opened(nested=False)
    asked, _ = wire.say(1, "10.0.0.1:4000", FRONT, b"?")
    passed, original = wire.say(3, "10.0.0.9:4003", SERVER, b"?")
    assert asked.frames == passed.frames
    assert original is None
    assert wire.proxies.behind("10.0.0.9:4003") == "10.0.0.9:4003"
