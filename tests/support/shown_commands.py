"""The commands that README and docs show, and a folder in which they can be run."""

import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.support import runner
from tests.support.paths import FIXTURES, PROJECT
from tests.world.conversation import CLIENT
from tests.world.link import Link, connect
from tests.world.scripts import MS, converse
from tests.world.tap import captured, late, save, watch
from zmtpsniff.capture.block import Packet

PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
# Where a page says "capture.pcap", it is one of these.
_CAPTURES = {
    "capture.pcap": "m31_req_rep.pcap",
    "monday.pcap": "m31_req_rep.pcap",
    "tuesday.pcap": "m31_pub_sub.pcap",
    "yesterday.pcap": "m31_req_rep.pcap",
    "today.pcap": "m31_req_rep.pcap",
    "before.pcap": "m31_req_rep.pcap",
    "after.pcap": "m31_req_rep.pcap",
    "monday/1.pcap": "m31_req_rep.pcap",
    "tuesday/1.pcap": "m31_req_rep.pcap",
    "broker.pcap": "app_malamute.pcap",
    "worker.pcap": "m31_req_rep.pcap",
    "notebook.pcap": "app_jupyter.pcap",
    "shop.pcap": "m31_req_rep.pcap",
    "feed.pcapng": "rec_late_subscriber.pcap",
    "day.pcapng": "m31_pcapng_file.pcapng",
    "day_00001.pcapng": "m31_pcapng_file.pcapng",
    "night_00001.pcapng": "m31_pcapng_file.pcapng",
    "started-too-late.pcap": "net_zmtp1_gap.pcap",
    "capture.pcapng.gz": "m31_pcap_gz_file.pcap.gz",
    "tunnel.snoop": "m31_req_rep.pcap",
    "capture.snoop": "m31_req_rep.pcap",
    "FILE.pcap": "m31_req_rep.pcap",
    "lan.pcap": "app_zbeacon.pcap",
    "calls.pcap": "m31_req_rep.pcap",
}
_TWO_HOSTS_SEED = 0  # REQ and REP that both speak 3.1
POLICY = 'include = ["protocol"]\n'
_ALONE = r"zmtpsniff (?:[^|&;<>()$`*?~#\\'\"]|'[^']*'|\"[^$`\\\"]*\")+"
_BLOCK = re.compile(r"(?m)((?:^<!-- [^\n]* -->\n)*)^```([\w{}-]*)\n(.*?)^```$", re.DOTALL)
_TIMEOUT, _TCPDUMP = shutil.which("timeout"), shutil.which("tcpdump")
_PEER = f'"{sys.executable}" -m zmtpsniff replay capture.pcap --patience 60'  # the other side of it
# Stand-ins for programs that would never end or are of other machines.
_PROGRAMS = {
    "zmtpsniff": f"""
case " $* " in
    *" live "* | *" --live "*) set -- "$@" -a duration:0.4 ;;
    *" replay "*" --to "*)
        set -- "$@" --patience 60
        {_PEER} --bind tcp://127.0.0.1:5555 --as servers >/dev/null 2>&1 & ;;
    *" replay "*" --bind "*)
        set -- "$@" --patience 60
        {_PEER} --to tcp://127.0.0.1:5555 --as clients >/dev/null 2>&1 & ;;
esac
exec "{sys.executable}" -m zmtpsniff "$@"
""",
    "python": f'exec "{sys.executable}" "$@"',
    "sudo": '[ "$1" = -v ] || exec "$@"',
    "ssh": 'shift\nexec "$@"',
    # Slow machines have their time.
    "timeout": f'seconds=$(($1 * 3))\nshift\nZMTPSNIFF_TCPDUMP=$seconds exec "{_TIMEOUT}" "$seconds" "$@"',
    # It ends some time after it has begun to capture, which may take long.
    "tcpdump": f"""
said=$(mktemp)
"{_TCPDUMP}" "$@" 2>"$said" &
trap 'kill "$!"' TERM
until grep -q listening "$said" || ! kill -0 "$!" 2>/dev/null; do sleep 0.05; done
sleep "${{ZMTPSNIFF_TCPDUMP:-0.4}}"
kill "$!" 2>/dev/null
wait "$!"
status=$?
cat "$said" >&2
rm "$said"
exit "$status"
""",
}

_NETWORK = """
ip link set lo up
ip link add eth0 type veth peer name eth1
ip link set eth1 up
ip link set eth0 up
exec "$@"
"""


class Block(NamedTuple):
    """A block of code in a page."""

    page: Path
    line: int
    kind: str  # "sh", "console", "python", "toml", ...
    text: str
    # Comments in front of it: "not run: why", "run by tests/x.py", "exit 1", "file: name"; "as: command" names one that
    # says the same of a recorded capture, where the block has one that needs traffic.
    marks: tuple[str, ...]

    def mark(self, name: str) -> str | None:
        """The words of a mark behind its colon, or "" without one; None if it is not there."""
        for mark in self.marks:
            if mark.startswith(name):
                return mark.removeprefix(name).lstrip(": ")
        return None

    @property
    def is_elsewhere(self) -> bool:
        """Whether something else runs it, or nothing can."""
        return self.mark("not run") is not None or self.mark("run by") is not None

    def steps(self) -> Iterator[tuple[str, str | None]]:
        """Its commands, and their output where that is shown."""
        if self.kind == "sh":
            yield self.text, None
            return
        for part in re.split(r"(?m)^\$ ", self.text)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    text = page.read_text()
    return [
        Block(
            page,
            text.count("\n", 0, found.start()) + 1,
            found[2],
            found[3],
            tuple(re.findall(r"<!-- (.*) -->", found[1])),
        )
        for found in _BLOCK.finditer(text)
    ]


def without_blocks(page: Path) -> str:
    """The text of a page without its blocks and tables of benchmarks, whose rows are called as commands."""
    text = _BLOCK.sub("", page.read_text())
    return re.sub(r"<!-- [a-z ]*benchmarks: begin.*?benchmarks: end -->", "", text, flags=re.DOTALL)


def inline_commands(page: Path) -> list[str]:
    """Command lines in the midst of text, such as in tables."""
    found = re.findall(r"`((?:sudo )?zmtpsniff [^`]+)`", without_blocks(page))
    return [command.replace("\\|", "|") for command in found]


def folder(path: Path) -> dict[str, str]:
    """Fill a folder with what the pages speak of; returns the environment to run their commands in."""
    programs = path.parent / f"{path.name}-bin"
    for made in (path, programs):
        made.mkdir()
    for name, lines in _PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{lines}\n")
        (programs / name).chmod(0o755)
    for name, fixture in _CAPTURES.items():
        (path / name).parent.mkdir(exist_ok=True)
        shutil.copy(FIXTURES / fixture, path / name)
    (path / "fixtures").symlink_to(FIXTURES)
    (path / "examples").symlink_to(PROJECT / "examples")
    keys = re.search(rb"(?:[A-Z_0-9]+ [0-9a-f]{64} [0-9a-f]+\r?\n)+", (FIXTURES / "rec_tls_1_3.pcapng").read_bytes())
    assert keys
    (path / "keys.log").write_bytes(keys[0])
    (path / "keys").write_text(f"CURVE_SHARED_KEY - - {bytes(32).hex()}\n")
    (path / "tls.pcap").write_bytes(_tls_without_keys())
    save(path / "two-hosts.pcap", _of_two_hosts())
    for name in ("policy.toml", "FILE"):
        (path / name).write_text(POLICY)
    return {
        # Pages show what a pipe gets, and workers of tests may have a width.
        **{name: value for name, value in os.environ.items() if name != "COLUMNS"},
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(PROJECT),
        "NO_COLOR": "1",
        "HOME": str(path),
        "TZ": "UTC",  # so that what is shown is the same everywhere
    }


@lru_cache(1)
def _tls_without_keys() -> bytes:
    """The packets of a capture that has its keys, alone, as pcap."""
    from scapy.utils import RawPcapNgReader

    made = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, 1)
    with RawPcapNgReader(str(FIXTURES / "rec_tls_1_3.pcapng")) as packets:
        for number, (data, _) in enumerate(packets):
            made += struct.pack("<IIII", 1_795_000_000, number * 1000, len(data), len(data)) + data
    return made


@lru_cache(1)
def _of_two_hosts() -> list[Packet]:
    """Requests and replies captured by two hosts: the clock of the one who asks is 50 ms fast."""
    random = Random(_TWO_HOSTS_SEED)
    session = connect(converse(random, frozenset({"REQ"}), greets=True, count=30), random, Link())
    return captured(late(watch(0.5, session), CLIENT, 50 * MS))


@lru_cache(1)
def can_capture() -> bool:
    """Whether commands that capture can be run: as root, in a network namespace of their own."""
    if os.geteuid() != 0 or not all(shutil.which(name) for name in ("unshare", "ip", "tcpdump", "tshark", "jq")):
        return False
    return subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode == 0


def run(
    command: str, path: Path, environment: dict[str, str], network: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a command line with bash, in a ``network`` of its own where that can be; it is ended if it takes for ever.

    If it needs no network, the server of runs runs zmtpsniff, unless a word in front of the first pipe is for a shell.
    """
    given = said = ""
    if not network and (found := re.fullmatch(rf"({_ALONE})(?:\| (.+))?", command)):
        alone = runner.run(*shlex.split(found[1])[1:], cwd=path, env=environment)
        if found[2] is None:
            return alone
        given, said, command = alone.stdout, alone.stderr, found[2]
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command]
    if network and can_capture():
        shell = ["unshare", "-n", "sh", "-c", _NETWORK, "sh", *shell]
    done = subprocess.run(
        shell, cwd=path, env=environment, capture_output=True, text=True, input=given, check=False, timeout=300
    )
    done.stderr = said + done.stderr
    return done
