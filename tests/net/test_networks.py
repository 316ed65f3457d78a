"""Networks of one capture that have addresses in common, and labels that look so: VLANs, VNIs and keys of GRE."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import GRE, Dot1AD, Dot1Q, Ether
from scapy.packet import Raw

from dissectors.events import Connection, Problem
from tests.support.encapsulations import MAC, OUTER
from tests.support.paths import FIXTURES
from tests.support.runner import read_json, run
from tests.world.conversation import Conversation, Piece, greetings
from tests.world.events import events_of
from tests.world.network import packets, segments
from tests.world.octets import message
from tests.world.tap import load, save
from zmtpsniff.capture.block import Packet
from zmtpsniff.engine.settings import Settings
from zmtpsniff.net import networks

OVERLAY = FIXTURES / "networks" / "overlay.pcap.gz"
SERVERS = ("10.9.0.1:5555", "10.9.0.1:5556", "10.9.0.1:5557")
OUTER_HEADERS = 50  # Ethernet, IP, UDP, VXLAN


Wrap = Callable[[int, Ether], list[Ether]]
"""Makes the captured frames of a packet of network 7 or 8."""


def tagged(number: int, frame: Ether) -> Ether:
    return Ether(src=frame.src, dst=frame.dst) / Dot1Q(vlan=number) / frame.payload


def routed(frame: Ether) -> Ether:
    other = frame.copy()
    other[IP].ttl -= 1
    other.src = "02:00:00:00:00:fe"
    return other


def of_server(frame: Ether) -> bool:
    return bool(frame[IP].src == "10.9.0.1")


def written(path: Path, wrap: Wrap, networks: tuple[int, ...] = (7, 8), least: int = 0) -> Path:
    """The packets of the two networks, wrapped in another way; those from place ``least`` on."""
    packets: list[Packet] = []
    for time_ns, _, data, _, _ in load(OVERLAY)[least:]:
        frame = Ether(data[OUTER_HEADERS:])
        if data[23] == 17 and frame.haslayer(TCP) and data[48] in networks:
            octets = [bytes(one) for one in wrap(data[48], frame)]
            packets += [(time_ns + place, 1, one, len(one), None) for place, one in enumerate(octets)]
    save(path, packets)
    return path


def results(path: Path) -> tuple[set[str], list[str], list[str]]:
    """The addresses of servers, the codes of findings that accuse, and the notes that networks overlap."""
    records = read_json(path)
    servers = {record["server"]["address"] for record in records if record["type"] == "connection"}
    notes = [record["detail"] for record in records if record.get("code") == "networks-overlap"]
    told = map(json.loads, run("diagnose", path, "-T", "json").stdout.splitlines())
    found = [one["code"] for one in told if one.get("severity") in ("error", "warning")]
    return servers, found, notes


def zoned(zone: str) -> set[str]:
    return {server.replace(":", f"%{zone}:") for server in SERVERS}


def test_two_overlays_with_the_same_addresses() -> None:
    """Their peers have the same identity, and their publishers send different messages: nothing of that is wrong."""
    servers, found, notes = results(OVERLAY)
    assert servers == {*SERVERS, *zoned("vni8")}
    assert not found
    assert notes == ["10.9.0.1 is two hosts, one in vni7 and one in vni8: the latter is 10.9.0.1%vni8 here"]
    kept = read_json(OVERLAY, "-Y", 'type == "connection" && server.address ~ "%vni8"')
    assert len([record for record in kept if record["type"] == "connection"]) == 3


@pytest.mark.parametrize(
    ("wrap", "zone"),
    [
        (lambda number, frame: [tagged(number, frame)], "vlan8"),
        (lambda number, frame: [Ether(**MAC) / Dot1AD(vlan=number) / Dot1Q(vlan=5) / frame.payload], "vlan8.vlan5"),
        (lambda number, frame: [OUTER / GRE(key_present=1, key=number) / frame.payload], "gre8"),
        (
            lambda number, frame: [OUTER / GRE(key_present=1, proto=0x6558, key=number << 8 | 3) / Raw(bytes(frame))],
            "gre8",
        ),
    ],
    ids=["VLAN", "QinQ", "GRE", "NVGRE"],
)
def test_other_labels(tmp_path: Path, wrap: Wrap, zone: str) -> None:
    servers, found, notes = results(written(tmp_path / "labels.pcap", wrap))
    assert (servers, found, len(notes)) == ({*SERVERS, *zoned(zone)}, [], 1)


def test_a_late_capture(tmp_path: Path) -> None:
    """No SYN is in it. The first answer, or the first message of a server, shows the network."""
    servers, found, _ = results(
        written(tmp_path / "late.pcap", lambda number, frame: [tagged(number, frame)], least=160)
    )
    assert (servers, found) == ({*SERVERS, *zoned("vlan7")}, [])  # its packets come later


def test_connections_on_the_same_ports(tmp_path: Path) -> None:
    """Even the ports of both networks are the same, at the same time."""
    first: dict[tuple[int, int], int] = {}

    def same_ports(number: int, frame: Ether) -> list[Ether]:
        tcp = frame[TCP]
        name = "dport" if of_server(frame) else "sport"
        server = tcp.sport if of_server(frame) else tcp.dport
        setattr(tcp, name, first.setdefault((number, server), 40000 + server))
        if number == 8:
            setattr(frame[IP], "dst" if of_server(frame) else "src", "10.9.0.2")
        return [tagged(number, frame)]

    path = written(tmp_path / "ports.pcap", same_ports)
    assert results(path)[:2] == ({*SERVERS, *zoned("vlan8")}, [])
    whole = [body(record) for record in read_json(OVERLAY) if record["type"] == "message"]
    assert sorted(body(record) for record in read_json(path) if record["type"] == "message") == sorted(whole)


def body(record: dict[str, Any]) -> str:
    return str(record["frames"][-1])


@pytest.mark.parametrize(
    "wrap",
    [
        lambda number, frame: [tagged(100 if of_server(frame) else 101, frame)],
        lambda number, frame: [frame, tagged(7, frame)],
        lambda number, frame: [tagged(7, frame), frame],
        lambda number, frame: [tagged(7, frame), tagged(8, routed(frame))],
        lambda number, frame: [tagged(7, frame), tagged(9, frame)],
        lambda number, frame: [tagged(7, frame), Ether(**MAC) / Dot1AD(vlan=3) / Dot1Q(vlan=7) / frame.payload],
    ],
    ids=["one for each direction", "untagged first", "untagged behind", "routed", "bridged", "QinQ"],
)
def test_labels_of_one_network(tmp_path: Path, wrap: Wrap) -> None:
    """Each packet twice, or each direction in another VLAN: the connections are those of the packets without tags."""
    plain = written(tmp_path / "plain.pcap", lambda number, frame: [frame], (7,))
    wrapped = written(tmp_path / "wrapped.pcap", wrap, (7,))
    assert results(wrapped) == results(plain) == ({*SERVERS}, [], [])
    told = [[body(record) for record in read_json(path) if "frames" in record] for path in (plain, wrapped)]
    assert told[0] == told[1]


def test_a_server_behind_a_router(tmp_path: Path) -> None:
    """Its packets are captured in the VLAN of each client: it is one, and two peers of one identity are a fault."""
    path = written(
        tmp_path / "routed.pcap",
        lambda number, frame: [tagged(number, routed(frame) if of_server(frame) else frame)],
    )
    assert results(path) == ({*SERVERS}, ["identity-shared"], [])


def test_who_is_taken_apart_first_is_put_together_again(tmp_path: Path) -> None:
    """A bridge between two VLANs: packets of some connections are captured on both sides. The others are local."""
    bridged: dict[int, bool] = {}

    def wrap(number: int, frame: Ether) -> list[Ether]:
        port = frame[TCP].dport if of_server(frame) else frame[TCP].sport
        is_bridged = bridged.setdefault(port, bool(len(bridged) % 2))
        return [tagged(8, frame), tagged(7, frame)] if is_bridged else [tagged(7, frame)]

    servers, _, notes = results(written(tmp_path / "bridged.pcap", wrap))
    assert (servers, notes) == ({*SERVERS}, [])


def test_a_connection_that_goes_on_in_another_vlan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core has taken most of its packets, and looks at no tag; the last ones show that the networks are one."""
    monkeypatch.setattr(networks, "WINDOW", 1000)
    pieces = greetings(3, b"PAIR", b"PAIR") + [Piece(number % 2, message(3, bytes(200))) for number in range(400)]
    plain = packets(segments(Conversation("moves", tuple(pieces))), (1, 2), (40_000, 5555), 10**18, 10**5)
    given = [
        (time_ns, link, octets := bytes(tagged(7 if at < 300 else 8, Ether(data))), len(octets), source)
        for at, (time_ns, link, data, _, source) in enumerate(plain)
    ]
    events = events_of(given, Settings())
    assert [event.flow for event in events if isinstance(event, Connection)] == [1]
    assert not [event for event in events if isinstance(event, Problem)]
