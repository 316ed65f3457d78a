"""``zmtpsniff trace`` with the captures of several hosts, whose clocks differ."""

import json
import socket
from pathlib import Path

from tests.support.paths import FIXTURES
from tests.support.runner import run
from tests.support.saved_files import save
from zmtpsniff.capture.block import Packet
from zmtpsniff.capture.files import open_captures

BROKERS = FIXTURES / "brokers" / "two_brokers.pcap.gz"
MS = 1_000_000
# Two brokers and two workers, and by how much the clock of each is ahead.
AHEAD_NS = {"10.9.0.42": 0, "10.9.0.37": -7 * MS, "10.9.0.48": 12 * MS, "10.9.0.44": -3 * MS}


def of_hosts(folder: Path) -> list[Path]:
    """The packets of the capture that each host saw, by its own clock."""
    packets = [packet for batch in open_captures([str(BROKERS)]).batches() for packet in batch]
    files = []
    for host, ahead_ns in AHEAD_NS.items():
        ends = socket.inet_aton(host)
        seen: list[Packet] = [
            (packet[0] + ahead_ns, *packet[1:]) for packet in packets if ends in (packet[2][26:30], packet[2][30:34])
        ]
        files.append(folder / f"{host}.pcap")
        save(files[-1], [seen])
    return files


def legs(stdout: str) -> list[list[tuple[str, str]]]:
    ways = (json.loads(line) for line in stdout.splitlines())
    return sorted([(leg["src"], leg["dst"]) for leg in way["legs"]] for way in ways)


def test_clocks_are_put_right(tmp_path: Path) -> None:
    done = run("trace", "-T", "json", *of_hosts(tmp_path))
    assert legs(done.stdout) == legs(run("trace", "-T", "json", BROKERS).stdout)
    told = done.stderr.splitlines()
    assert len(told) == 3
    assert "10.9.0.37.pcap: its clock is 7 ms behind that of" in told[0]
    assert "10.9.0.48.pcap: its clock is 12 ms ahead of that of" in told[1]


def test_files_without_a_common_connection_stay_as_they_are(tmp_path: Path) -> None:
    first, *_ = of_hosts(tmp_path)
    done = run("trace", "-T", "json", first, FIXTURES / "m31_req_rep.pcap")
    assert done.returncode == 0
    assert done.stderr == ""
