"""PUB and SUB of the installed libzmq over PGM and EPGM, captured live on a network that loses packets."""

import json
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support import draft_sockets, multicast_peers
from tests.support.conversation import octets, wrong
from tests.support.draft_peers import fingerprint
from tests.support.live_program import Record, live, needs_privilege
from tests.support.namespaces import Side, joined_namespaces, needs_namespaces
from tests.support.paths import program
from tests.world.events import is_subsequence
from tests.world.tap import load

GROUP = "239.192.7.7"
PORT = 5800
SPM, ODATA, RDATA, NAK, NCF = 0x00, 0x04, 0x05, 0x08, 0x0A
PARITY = 0x80
_LIBRARY = draft_sockets.installed()

pytestmark = [
    needs_namespaces,
    needs_privilege,
    pytest.mark.skipif(_LIBRARY is None, reason="no libzmq with PGM is installed; Debian's libzmq5 has it"),
]
needs_nft = pytest.mark.skipif(shutil.which("nft") is None, reason="losing packets needs nft (nftables)")


def address(side: Side, transport: str) -> str:
    return f"{transport}://{side.ipv4};{GROUP}:{PORT}"


def start(side: Side, role: str, transport: str) -> subprocess.Popen[bytes]:
    command = [*program(multicast_peers), str(_LIBRARY), role, address(side, transport)]
    return subprocess.Popen(side.command(*command), stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def converse(publisher: Side, subscriber: Side, transport: str) -> tuple[list[Any], list[Any]]:
    """The messages that one logged as sent, and the other as received, though packets are lost once both are there."""
    with start(subscriber, "sub", transport) as sub, start(publisher, "pub", transport) as pub:
        assert sub.stdin
        assert sub.stdout
        assert pub.stdin
        try:
            ready = sub.stdout.readline()
            assert json.loads(ready) == "ready"
            lose(publisher, transport)
            pub.stdin.write(b"go\n")
            pub.stdin.flush()
            received, _ = sub.communicate(timeout=120)
            sent, _ = pub.communicate(b"stop\n", timeout=120)
        finally:
            sub.kill()
            pub.kill()
    assert (sub.returncode, pub.returncode) == (0, 0)
    return list(map(json.loads, sent.splitlines())), list(map(json.loads, received.splitlines()))


def lose(side: Side, transport: str) -> None:
    """Every seventh data packet that the side sends is lost before it is on the network, and none of the repairs."""
    kind = f"udp dport {PORT} @th,96,8 4" if transport == "epgm" else "ip protocol 113 @th,32,8 4"
    rules = f"""
        table netdev loss {{
            chain out {{
                type filter hook egress device "{side.interface}" priority 0;
                {kind} numgen inc mod 7 == 3 counter drop
            }}
        }}"""
    done = subprocess.run(side.command("nft", "-f", "-"), input=rules.encode(), capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"nft cannot lose packets here: {done.stderr.decode().strip()}")


def messages(records: list[Record]) -> list[Any]:
    return [
        fingerprint(list(map(octets, record["frames"])))
        for record in records
        if record["type"] == "message" and not record.get("incomplete")
    ]


@needs_nft
@pytest.mark.parametrize("transport", ["epgm", "pgm"])
def test_what_is_lost_and_repaired_is_told_in_order(transport: str, tmp_path: Path) -> None:
    saved = tmp_path / "saved.pcap"
    end = fingerprint(multicast_peers.END)
    with joined_namespaces() as (here, there):
        options = ("-i", here.interface, "--max-bytes", "0", "-w", str(saved))
        with live(*options, prefix=here.command()) as program:
            sent, received = converse(there, here, transport)
            program.read_until(lambda records: messages(records[-1:]) == [end])
            records = program.interrupt()
    # Messages after the end do not count, as the SUB is gone.
    until_end = records[: next(number for number, record in enumerate(records) if messages([record]) == [end]) + 1]
    captured = messages(until_end)
    sent = sent[: sent.index(end) + 1]
    assert is_subsequence(captured, sent)
    assert is_subsequence(received, captured)
    # OpenPGM now and then does not ask for the first packet that it lacks: that is lost for the capture, too.
    assert received
    assert {problem["code"] for problem in wrong(until_end)} == (set() if captured == sent else {"multicast-lost"})
    # How many packets were lost depends on how many messages libzmq put into each.
    (repaired,) = (record for record in records if record.get("code") == "multicast-repaired")
    assert int(repaired["detail"].split()[0]) == only_repairs(packets_of(saved))
    (connection,) = (record for record in records if record["type"] == "connection")
    assert (connection["transport"], connection["version"]) == (transport, "1.0")
    kinds = set(map(kind_of, packets_of(saved)))
    assert {ODATA, RDATA, NAK, NCF, SPM} <= kinds


def packets_of(saved: Path) -> list[bytes]:
    """The PGM packets of a capture."""
    frames = [packet[2] for packet in load(saved)]
    ip = [frame[14:] for frame in frames if frame[12:14] == b"\x08\x00" and frame[23] in (17, 113)]
    return [packet[(packet[0] & 15) * 4 + (8 if packet[9] == 17 else 0) :] for packet in ip]


def only_repairs(packets: Iterable[bytes]) -> int:
    """How many data packets first came as a repair."""
    first: dict[bytes, int] = {}
    for packet in packets:
        if kind_of(packet) in (ODATA, RDATA):
            first.setdefault(packet[16:20], kind_of(packet))  # by sequence number
    return list(first.values()).count(RDATA)


def kind_of(pgm: bytes) -> int:
    assert not pgm[5] & PARITY  # libzmq never asks OpenPGM for forward error correction
    return pgm[4]
