"""The list of zmtpsniff interfaces is that of the system."""

import json
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support import runner
from tests.support.live_program import needs_privilege, wait_for
from tests.support.namespaces import Side, needs_namespaces
from zmtpsniff.capture import interfaces
from zmtpsniff.capture.engines.engine import ENGINES
from zmtpsniff.words.text import CONTROL_OR_UNSEEN

PROGRAM = [sys.executable, "-m", "zmtpsniff", "interfaces"]
WITHOUT_PRIVILEGE = ["setpriv", "--bounding-set=-net_raw,-net_admin", "--inh-caps=-all"]
STRANGE = [b"z\x1b[31mq", b"z\xff\xfeq", "z\u202eq\u00e9".encode()]
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")


def run(*options: str, prefix: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    if prefix:
        done = subprocess.run([*prefix, *PROGRAM, *options], capture_output=True, text=True, check=False, timeout=120)
    else:
        done = runner.run("interfaces", *options)
    assert done.returncode == 0, done.stderr
    return done


def listed(*options: str, prefix: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    return interfaces_in(run("-T", "json", *options, prefix=prefix).stdout)


def interfaces_in(told: str) -> dict[str, dict[str, Any]]:
    """Interfaces by their names, as JSON tells them."""
    records = list(map(json.loads, told.splitlines()))
    assert {record.pop("type") for record in records} == {"interface"}
    found = {record["name"]: record for record in records}
    assert len(found) == len(records)
    return found


@on_linux
def test_loopback_and_all() -> None:
    found = listed()
    assert {"any", "lo"} <= set(found)  # others may come and go
    assert {key: value for key, value in found["lo"].items() if key not in ("addresses", "engines", "mtu")} == {
        "name": "lo",
        "up": True,
        "running": True,
        "loopback": True,
        "link_type": "loopback",
    }
    assert "127.0.0.1" in found["lo"]["addresses"]
    assert not {"up", "running", "mtu", "kind"} & set(found["any"])


def told_by_ip(side: Side) -> dict[str, Any]:
    told = subprocess.run(side.command("ip", "-j", "-d", "address"), capture_output=True, check=True)
    return {each["ifname"]: each for each in json.loads(told.stdout)}


@needs_namespaces
def test_it_says_what_ip_says(sides: tuple[Side, Side]) -> None:
    here, there = sides
    here.ip("address", "add", "10.78.0.1/16", "dev", here.interface)
    here.ip("link", "add", "bare", "mtu", "1400", "type", "bridge")
    here.ip("link", "set", here.interface, "alias", "to the other [bold]side[/]")
    # The kernel gives it an address of its own a while after both ends are up.
    wait_for(lambda: any(each["scope"] == "link" for each in told_by_ip(here)[here.interface]["addr_info"]))
    there.ip("link", "set", there.interface, "down")
    # The kernel tells that the other end is down a while after it is.
    wait_for(lambda: "NO-CARRIER" in told_by_ip(here)[here.interface]["flags"])
    found = listed(prefix=here.command())
    assert found.pop("any")["description"] == "all interfaces"
    expected = told_by_ip(here)
    assert set(found) == set(expected) == {"lo", "bare", here.interface}
    for name, interface in found.items():
        ip = expected[name]
        assert interface["up"] == ("UP" in ip["flags"])
        assert interface["running"] == (interface["up"] and "NO-CARRIER" not in ip["flags"])
        assert interface["loopback"] == ("LOOPBACK" in ip["flags"])
        assert interface["mtu"] == ip["mtu"]
        assert interface.get("kind") == ip.get("linkinfo", {}).get("info_kind")
        scoped = {True: f"%{name}", False: ""}
        addresses = [each["local"] + scoped[each["family"] == "inet6" and each["scope"] == "link"]
                     for each in ip["addr_info"]]  # fmt: skip
        assert sorted(interface["addresses"]) == sorted(addresses)
    veth = found[here.interface]
    assert {here.ipv4, here.ipv6, "10.78.0.1"} < set(veth["addresses"])
    assert any(re.fullmatch(f"fe80::.*%{here.interface}", address) for address in veth["addresses"])
    assert (veth["up"], veth["running"]) == (True, False)  # the other end is down
    assert veth["description"] == "to the other [bold]side[/]"
    assert (found["bare"]["up"], found["bare"]["addresses"], found["bare"]["engines"]) == (False, [], [])
    table = run(prefix=here.command()).stdout
    assert re.search(
        rf"^{here.interface} +up, no carrier +10\.77\.0\.1 +veth +1500 +to the other \[bold]side", table, re.M
    )
    assert re.search(r"^bare +down +bridge +1400$", table, re.M)
    assert re.search(r"^lo +up +127\.0\.0\.1 +loopback +65536$", table, re.M)


@needs_namespaces
def test_names_of_any_octets_do_not_reach_the_terminal(sides: tuple[Side, Side]) -> None:
    here, _ = sides
    for name in STRANGE:
        subprocess.run(here.command("ip", "link", "add", "name", os.fsdecode(name), "type", "bridge"), check=True)
    given = (["-T", "json", "--all"], ["--color", "never"], ["--color", "never", "--all"])
    told, table, whole_table = (run(*options, prefix=here.command()).stdout for options in given)
    assert {os.fsdecode(name) for name in STRANGE} < set(interfaces_in(told))
    for output in (told, table, whole_table):
        assert not CONTROL_OR_UNSEEN.search(output.replace("\n", ""))
    for shown in (r"z\x1b[31mq", r"z\udcff\udcfeq", r"z\u202eqé"):
        assert f"{shown} " in table


@needs_namespaces
def test_an_interface_with_such_a_name_can_be_captured_on(sides: tuple[Side, Side]) -> None:
    here, _ = sides
    name = os.fsdecode(STRANGE[0])
    here.ip("link", "set", here.interface, "down")
    here.ip("link", "set", here.interface, "name", name)
    here.ip("link", "set", name, "up")
    command = here.command(sys.executable, "-m", "zmtpsniff", "live", "-v", "-i", name)
    done = subprocess.run([*command, "-a", "duration:0.2"], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(r"zmtpsniff: capturing on z\x1b[31mq with ")
    assert not CONTROL_OR_UNSEEN.search((done.stdout + done.stderr).replace("\n", ""))


@needs_privilege
@on_linux
def test_engines_are_those_that_may_capture() -> None:
    expected = {name for name in ENGINES if name == "scapy" or shutil.which(name)} - {"auto"}
    if not shutil.which("dumpcap"):
        expected.discard("tshark")
    assert set(listed()["lo"]["engines"]) == expected
    assert f"You may capture with: {', '.join(e for e in ENGINES if e in expected)}\n" in run().stdout


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="giving up a privilege needs root and setpriv"
)
def test_without_privilege_they_are_listed_all_the_same() -> None:
    done = run("-T", "json", prefix=WITHOUT_PRIVILEGE)
    records = list(map(json.loads, done.stdout.splitlines()))
    assert {"lo", "any"} <= {record["name"] for record in records}
    assert all(record["engines"] == [] for record in records)
    assert len(done.stderr.splitlines()) == 1
    assert "sudo" in done.stderr
    assert "wireshark" in done.stderr
    assert "You may" not in run(prefix=WITHOUT_PRIVILEGE).stdout


def told_by_tcpdump() -> set[str]:
    told = subprocess.run(["tcpdump", "-D"], capture_output=True, text=True, check=True)
    return {line.split(".", 1)[1].split()[0] for line in told.stdout.splitlines()}


@pytest.mark.skipif(shutil.which("tcpdump") is None, reason="tcpdump is not installed")
def test_all_are_those_that_tcpdump_lists_at_least() -> None:
    before, found, after = told_by_tcpdump(), set(listed("--all")), told_by_tcpdump()
    assert before & after <= found  # others may come and go
    assert re.search(r"^Interface .*Engines$", run("--all").stdout, re.M)


@on_linux
def test_scapy_tells_the_same_where_there_is_no_netlink(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {each.name: each for each in interfaces.list_interfaces(())}
    with monkeypatch.context() as patched:
        patched.setattr(interfaces, "_ON_LINUX", False)
        theirs = {each.name: each for each in interfaces.list_interfaces(())}
    later = {each.name: each for each in interfaces.list_interfaces(())}
    assert "lo" in theirs
    for name in ours.keys() & theirs.keys():
        if ours[name] != later.get(name):
            continue  # others may come, go and change
        each, same = theirs[name], ours[name]
        assert (each.up, each.running, each.loopback) == (same.up, same.running, same.loopback)
        assert sorted(each.addresses) == sorted(same.addresses)


@on_linux
def test_names_come_quickly_for_completion() -> None:
    before, names, after = socket.if_nameindex(), interfaces.interface_names(), socket.if_nameindex()
    assert names[:2] == ["any", "lo"]
    assert {name for _, name in {*before} & {*after}} <= {*names} <= {"any", *(name for _, name in before + after)}


@needs_namespaces
@pytest.mark.parametrize("columns", [80, 120])
def test_a_table_fits_its_terminal(columns: int, sides: tuple[Side, Side]) -> None:
    here, _ = sides
    here.ip("address", "add", "2001:db8:1234:5678:9abc:def0:1234:5678/64", "dev", here.interface)
    here.ip("link", "set", here.interface, "alias", "a description that is longer than what is left of any line")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(here.command(*PROGRAM), stdout=theirs, env=environment) as program:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 65_536):
                shown += piece
        except OSError:  # how Linux says that nobody has the other end any more
            pass
        assert program.wait(120) == 0
    os.close(ours)
    assert b"\x1b[32m" in shown  # up is green
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).splitlines()
    assert max(map(len, lines)) <= columns
    assert any("2001:db8:1234:5678:9abc:def0:1234:5678" in line for line in lines)
