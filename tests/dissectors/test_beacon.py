"""Beacons of ZRE: those of real peers, those of every version, and datagrams that are none."""

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissectors.beacon import is_beacon
from dissectors.events import AnyEvent, Beacon, Capture, Connection, Message
from tests.analysis.test_payloads import read
from tests.net.test_datagram_table import udp
from tests.support.live_program import live, needs_privilege
from tests.support.paths import FIXTURES
from tests.support.runner import run
from tests.support.settings import WIRE
from tests.world.events import check_records
from tests.world.tap import Packets
from zmtpsniff.capture.block import Packet
from zmtpsniff.decode_as import parse
from zmtpsniff.engine.sniffer import Sniffer

UUID = bytes(range(1, 17))
FIRST = b"ZRE\x01" + UUID + b"\xc0\x01"


def sniff(*payloads: bytes, rules: tuple[str, ...] = (), cut: int | None = None) -> list[AnyEvent]:
    packets: list[Packet] = []
    for number, payload in enumerate(payloads):
        time_ns, link, data, wire, comment = udp(payload, number, 7000)
        packets.append((time_ns, link, data[:cut], wire, comment))
    sniffer = Sniffer(Packets(packets, 100), WIRE._replace(decode_as=tuple(map(parse, rules))))
    events = [event for batch in sniffer.events() for event in batch]
    check_records(events, packets)
    return events


def beacons(*payloads: bytes, **options: Any) -> list[Beacon]:
    return [event for event in sniff(*payloads, **options) if isinstance(event, Beacon)]


# ---------------------------------------------------------------------- real peers


def test_peers_of_pyre_announce_each_other() -> None:
    records = read(FIXTURES / "app_zre.pcap")
    announced = [record for record in records if record["type"] == "beacon"]
    assert {(record["version"], record["dst"]) for record in announced} == {("1", "10.77.1.255:5670")}
    first: dict[str, dict[str, Any]] = {}
    for record in announced:
        first.setdefault(record["uuid"], record)
    assert [[r["port"] for r in announced if r["uuid"] == uuid][-1] for uuid in first] == [0, 0]
    connections = [record for record in records if record["type"] == "connection"]
    assert len(connections) == 2
    by_address = {f"{r['src'].partition(':')[0]}:{r['port']}": r["packet"] for r in first.values()}
    by_identity = {f"01{uuid}": record["packet"] for uuid, record in first.items()}
    for connection in connections:
        assert connection["server"]["beacon"] == by_address[connection["server"]["address"]]
        assert connection["client"]["beacon"] == by_identity[connection["client"]["identity"]["hex"]]
    total = records[-1]
    assert (total["flows"], total["zmtp_flows"]) == (4, 2)


def test_only_beacons_of_zre_are_told_of_czmq() -> None:
    records = read(FIXTURES / "app_zbeacon.pcap")
    assert [(r["type"], r.get("uuid"), r.get("port")) for r in records] == [
        ("beacon", "01" * 16, 0xC000), ("beacon", "02" * 16, 0xC001),
    ] * 3 + [("capture", None, None)]  # fmt: skip
    assert records[-1]["packets"] == 12


def test_people_see_them() -> None:
    def shown(*options: str) -> str:
        done = run(*options, FIXTURES / "app_zbeacon.pcap")
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert shown("read", "-T", "summary").count(f" beacon         ZRE 1 port 49152 uuid {'01' * 16}\n") == 3
    assert shown("read").count("beacon ZRE 1 port 49153") == 3
    passed = shown("read", "-T", "json", "-Y", 'type == "beacon" && port == 49153 && uuid contains "0202"')
    assert [json.loads(line)["type"] for line in passed.splitlines()] == ["beacon"] * 3 + ["capture"]
    assert "6 beacons of 2 peers" in shown("stats")
    (total,) = [json.loads(line) for line in shown("stats", "-T", "json").splitlines() if "stats-total" in line]
    assert (total["beacons"], total["beacon_peers"]) == (6, 2)


@needs_privilege
def test_live() -> None:
    """A real socket sends one; what it sends besides is not told."""
    with live("-i", "lo", "-f", "udp") as program, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(50):
            sender.sendto(FIRST[:-1], ("127.0.0.1", 56_700))
            sender.sendto(FIRST, ("127.0.0.1", 56_700))
            time.sleep(0.01)
        records = program.read_until(lambda records: any(r["type"] == "beacon" for r in records))
        found = next(record for record in records if record["type"] == "beacon")
        assert (found["uuid"], found["port"], found["dst"]) == (UUID.hex(), 0xC001, "127.0.0.1:56700")
        program.interrupt()


# ---------------------------------------------------------------------- versions


def test_versions() -> None:
    first, third, later, leaving = beacons(
        FIRST, b"ZRE\x03" + FIRST[4:] + bytes(32), b"ZRE\x05" + FIRST[4:] + b"more", FIRST[:-2] + bytes(2)
    )
    assert (first.version, first.uuid, first.port) == ("1", UUID.hex(), 0xC001)
    assert (first.public_key, first.data) == (None, None)
    assert (third.version, third.public_key, third.data) == ("3", bytes(32), None)
    assert (later.version, later.public_key, later.data) == ("5", None, b"more")
    assert leaving.port == 0
    assert {event.flow for event in (first, third, later, leaving)} == {1}


@pytest.mark.parametrize(
    "payload",
    [
        FIRST[:-1],
        FIRST + b"\0",
        b"ZRE\x03" + FIRST[4:],
        b"ZRE\x00" + FIRST[4:],
        b"ZRE\t" + FIRST[4:],
        b"ZRE text of 22 octets.",
        b"ZRE\x02" + FIRST[4:] + bytes(69),
        b"ZRE\x01" + bytes(16) + b"\xc0\x01",
        b"",
    ],
)
def test_what_is_none(payload: bytes) -> None:
    assert beacons(payload) == []
    assert not is_beacon(payload)


def test_one_that_is_cut_is_none() -> None:
    assert beacons(FIRST, cut=14 + 20 + 8 + 21) == []


def test_a_port_named_for_radio_may_have_beacons_too() -> None:
    events = sniff(FIRST, b"\x05groupbody", rules=("udp.port==7000,zmtp",))
    assert [type(event) for event in events] == [Beacon, Message, Connection, Capture]


# ---------------------------------------------------------------------- what is none at all


@given(st.binary(max_size=100))
def test_random_datagrams_are_none(payload: bytes) -> None:
    """Only the prefix makes one: whatever does not begin so is none, and what does must have length and version."""
    assert is_beacon(payload) <= payload.startswith(b"ZRE")
    made = b"ZRE" + payload
    assert is_beacon(made) == (
        bool(any(made[4:20]))
        and (
            (made[3:4] == b"\1" and len(made) == 22)
            or (made[3:4] == b"\3" and len(made) == 54)
            or (made[3:4] in (b"\2", b"\4", b"\5", b"\6", b"\7", b"\x08") and 22 <= len(made) <= 90)
        )
    )


def test_other_captures_have_none() -> None:
    for path in [*sorted(Path(FIXTURES).glob("*udp*.pcap")), FIXTURES / "epgm_pub_sub.pcap"]:
        assert not [record for record in read(path) if record["type"] == "beacon"]
