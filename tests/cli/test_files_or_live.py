"""Commands with the captures of several hosts, whose clocks differ."""

import json
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.nat_hosts import hosts_of, translated_files
from tests.support.paths import FIXTURES
from tests.support.runner import run
from tests.world.tap import load, save
from zmtpsniff.capture.block import Packet

BROKERS = FIXTURES / "brokers" / "two_brokers.pcap.gz"
MS = 1_000_000
SECONDS = 1000 * MS
# Two brokers and two workers, and by how much the clock of each is ahead.
AHEAD_NS = {"10.9.0.42": 0, "10.9.0.37": -7 * MS, "10.9.0.48": 12 * MS, "10.9.0.44": -3 * MS}


def of_hosts(capture: Path, ahead_ns: Mapping[str, int], folder: Path) -> list[Path]:
    """The packets of the capture that each host saw, by its own clock.

    Octets that come to a host again had not come there: the network lost them behind the capture point.
    """
    packets = load(capture)
    files = []
    for host, ahead in ahead_ns.items():
        ends = socket.inet_aton(host)
        seen: dict[bytes | int, Packet] = {}
        for packet in packets:
            octets = packet[2]
            if ends in (octets[26:30], octets[30:34]):
                # Octets to this host are known by addresses, ports and sequence number.
                known = octets[26:42] if ends == octets[30:34] and len(octets) > 66 else len(seen)
                seen.pop(known, None)
                seen[known] = (packet[0] + ahead, *packet[1:])
        files.append(folder / f"{host}.pcap")
        save(files[-1], seen.values())
    return files


def legs(stdout: str) -> list[list[tuple[str, str]]]:
    ways = (json.loads(line) for line in stdout.splitlines())
    return sorted([(leg["src"], leg["dst"]) for leg in way["legs"]] for way in ways)


def test_clocks_are_put_right(tmp_path: Path) -> None:
    done = run("trace", "-T", "json", *of_hosts(BROKERS, AHEAD_NS, tmp_path))
    assert legs(done.stdout) == legs(run("trace", "-T", "json", BROKERS).stdout)
    told = done.stderr.splitlines()
    assert len(told) == 3
    assert "10.9.0.37.pcap: its clock is 7 ms behind that of" in told[0]
    assert "10.9.0.48.pcap: its clock is 12 ms ahead of that of" in told[1]


def test_files_without_a_common_connection_stay_as_they_are(tmp_path: Path) -> None:
    first, *_ = of_hosts(BROKERS, AHEAD_NS, tmp_path)
    done = run("trace", "-T", "json", first, FIXTURES / "m31_req_rep.pcap")
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.parametrize("ahead_ns", [-3 * SECONDS, 3 * SECONDS])
@pytest.mark.parametrize("late", ["10.9.0.1", "10.9.0.2"])
def test_publications_wait_in_no_proxy(late: str, ahead_ns: int, tmp_path: Path) -> None:
    """Only acknowledgments come back from a subscriber. They tell how far the clocks are apart."""
    clocks = {f"10.9.0.{host}": 0 for host in range(1, 6)} | {late: ahead_ns}
    files = of_hosts(FIXTURES / "healthy" / "chain_of_proxies.pcap.gz", clocks, tmp_path)
    found = [json.loads(line) for line in run("diagnose", "-T", "json", *files).stdout.splitlines()]
    assert [one["code"] for one in found if one["type"] == "finding"] == ["subscribed-late"]


@pytest.mark.parametrize("ahead_ns", [-3 * SECONDS, 0, 3 * SECONDS])
def test_a_network_that_loses_packets_is_found_by_any_clocks(ahead_ns: int, tmp_path: Path) -> None:
    clocks = {"10.7.0.3": 0, "10.7.0.4": ahead_ns, "10.7.0.5": 0}
    files = of_hosts(FIXTURES / "brokers" / "lossy_line.pcap.gz", clocks, tmp_path)
    found = [json.loads(line) for line in run("diagnose", "-T", "json", *files).stdout.splitlines()]
    (told,) = [one["summary"] for one in found if one.get("severity") == "warning"]
    assert told.startswith("the network loses packets on the way to 10.7.0.4:5551: 6 of 298 messages")


def ahead(by_ns: int, after_ns: int = 0) -> Callable[[int], int]:
    """A clock that is ahead by so much, and gains 50 us a second after that time."""
    return lambda time_ns: time_ns + by_ns + (time_ns - after_ns) // 20_000


def translated(capture: Path, folder: Path) -> list[Path]:
    """The files of all hosts, with NAT between them and clocks that differ by seconds."""
    begin_ns = load(capture)[0][0]
    return translated_files(
        capture,
        {host: ahead((place % 3 - 1) * 2 * SECONDS, begin_ns) for place, host in enumerate(hosts_of(capture))},
        folder,
    )


def messages(*captures: Path) -> Counter[tuple[str, str, str]]:
    """How often each message is told, by its ends."""
    records = map(json.loads, run("read", "-T", "json", "--max-bytes", 0, *captures).stdout.splitlines())
    return Counter((one["src"], one["dst"], json.dumps(one["frames"])) for one in records if one["type"] == "message")


def warnings(*captures: Path) -> list[tuple[str, list[str]]]:
    found = map(json.loads, run("diagnose", "-T", "json", *captures).stdout.splitlines())
    return sorted((one["code"], one["endpoints"]) for one in found if one.get("severity") in ("warning", "error"))


@pytest.mark.parametrize("part", [0, 0.3])  # of the packets, before all files begin
def test_nat_between_hosts_changes_nothing(part: float, tmp_path: Path) -> None:
    """Each connection has the addresses that its programs have, and each message is told once."""
    plain = tmp_path / "plain.pcap"
    packets = load(BROKERS)
    save(plain, packets[int(part * len(packets)) :])
    files = translated(plain, tmp_path)
    assert messages(*files) == messages(plain)
    (without := tmp_path / "without").mkdir()
    others = of_hosts(plain, dict.fromkeys(hosts_of(plain), 0), without)
    assert legs(run("trace", "-T", "json", *files).stdout) == legs(run("trace", "-T", "json", *others).stdout)
    assert warnings(*files) == warnings(plain)


def test_nat_on_a_line_that_loses_packets(tmp_path: Path) -> None:
    capture = FIXTURES / "brokers" / "lossy_line.pcap.gz"
    files = translated(capture, tmp_path)
    assert warnings(*files) == warnings(capture)


def test_a_check_counts_a_message_of_two_hosts_once(tmp_path: Path) -> None:
    """Though NAT is between them; and it says which file has what is wrong."""

    def checked(*captures: Path) -> dict[str, Any]:
        policy = tmp_path / "policy.toml"
        policy.write_text("[[rule]]\nname = 'no message'\nforbid = 'type == \"message\"'\n")
        found: dict[str, Any] = json.loads(run("check", "-T", "json", "--policy", policy, *captures).stdout)
        return found

    files = translated(BROKERS, tmp_path)
    found, plain = checked(*files), checked(BROKERS)
    assert found["totals"]["messages"] == plain["totals"]["messages"]
    assert {str(path) for path in files} >= {one["file"] for one in found["rules"][0]["offences"]} != set()
