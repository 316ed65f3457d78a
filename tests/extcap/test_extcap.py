"""zmtpsniff extcap: its dialog with Wireshark, messages as exported PDUs, and tshark as what asks for them."""

import json
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import click
import pytest

import zmtpsniff
from dissectors.events import Cut, Hidden, Message
from dissectors.zmtp import wire
from tests.support.namespaces import needs_namespaces, separate_namespaces
from tests.support.paths import FIXTURES, fixtures
from tests.support.runner import run
from tests.world.tap import load
from zmtpsniff.capture.block import Packet
from zmtpsniff.cli.extcap_command import extcap
from zmtpsniff.errors import Error
from zmtpsniff.extcap.dialog import FILE, INTERFACES, LIVE, interface_lines, option_lines
from zmtpsniff.extcap.link import link, personal_folder
from zmtpsniff.extcap.pdus import LARGEST_PDU, PduEncoder
from zmtpsniff.words.link_types import WIRESHARK_UPPER_PDU

PROGRAM = [sys.executable, "-m", "zmtpsniff", "extcap"]
REQ_REP = FIXTURES / "m31_req_rep.pcap"
CAPTURES = [
    "m31_req_rep.pcap", "m31_ipv6.pcap", "x_435_to_220.pcap", "x_2111_xreq_xrep.pcap", "ws_pub_sub.pcap",
    "m31_heartbeat.pcap", "epgm_pub_sub.pcap", "sec_curve_keys.pcapng", "sec_plain_ok_435_435.pcap",
]  # fmt: skip


def ask(*arguments: str) -> str:
    done = run("extcap", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Pdu(NamedTuple):
    """An exported PDU, taken apart."""

    tags: dict[int, bytes]
    octets: bytes
    length: int  # octets there would be if all were at hand
    comment: str | None

    @property
    def dissector(self) -> str:
        return self.tags[12].rstrip(b"\0").decode()


def taken_apart(packets: Iterable[Packet]) -> list[Pdu]:
    found = []
    for _, link_type, octets, length, comment in packets:
        assert link_type == WIRESHARK_UPPER_PDU
        tags: dict[int, bytes] = {}
        place = 0
        while 0 not in tags:
            tag, size = struct.unpack_from(">HH", octets, place)
            tags[tag] = octets[place + 4 : place + 4 + size]
            place += 4 + size
            assert place % 4 == 0
        found.append(Pdu(tags, octets[place:], length - place, comment))
    return found


def pdus(name: str, dissector: str = "zmtp", show_secrets: bool = False) -> list[Pdu]:
    """The PDUs of a fixture."""
    with zmtpsniff.open(FIXTURES / name, show_secrets=show_secrets) as capture:
        return taken_apart(PduEncoder(dissector, show_secrets).packets(list(capture)))


def bodies(octets: bytes) -> list[bytes]:
    """The bodies of frames of messages, of ZMTP 2.0 and later; none of commands."""
    found = []
    place = 0
    while place < len(octets):
        flags = octets[place]
        head = 9 if flags & wire.LONG else 2
        size = int.from_bytes(octets[place + 1 : place + head], "big")
        if not flags & wire.COMMAND:
            found.append(octets[place + head : place + head + size])
        place += head + size
    assert place == len(octets)
    return found


# ---------------------------------------------------------------- what Wireshark asks


def test_interfaces_and_link_types() -> None:
    lines = ask("--extcap-interfaces", "--extcap-version=4.4").splitlines()
    assert lines[0] == f"extcap {{version={zmtpsniff.__version__}}}{{display=zmtpsniff}}"
    assert [re.match(r"interface \{value=(\w+)\}\{display=[^{}]+\}$", line)[1] for line in lines[1:]] == [LIVE, FILE]  # type: ignore[index]
    assert ask("--extcap-dlts", "--extcap-interface", FILE).startswith("dlt {number=252}{name=")


@pytest.mark.parametrize("interface", INTERFACES)
def test_all_that_the_dialog_offers_is_an_option(interface: str) -> None:
    lines = list(option_lines(interface, ["lo"]))
    offered = [found[1] for found in map(re.compile(r"arg \{number=\d\}\{call=(--[a-z-]+)\}").match, lines) if found]
    context = click.Context(extcap, **extcap.context_settings)  # which the command keeps its --help by
    parameters = extcap.get_params(context)
    assert set(offered) <= {name for parameter in parameters for name in parameter.opts}
    assert offered[0] == {LIVE: "--interface", FILE: "--file"}[interface]
    assert len(offered) == (6 if interface == LIVE and sys.platform == "linux" else 5)


def test_values_cannot_end_what_they_stand_in() -> None:
    (line,) = [line for line in option_lines(LIVE, ["}{value=x\nvalue"]) if line.startswith("value")]
    assert line == "value {arg=0}{value=  value=x value}{display=  value=x value}{default=true}"
    assert next(iter(interface_lines("1{}"))) == "extcap {version=1  }{display=zmtpsniff}"


def test_a_capture_filter_is_accepted() -> None:
    assert ask("--extcap-interface", LIVE, "--extcap-capture-filter", "tcp port 5555") == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give --link"),
        (["--extcap-config", "--extcap-interface", "eth0"], "must be one of zmtpsniff, zmtpsniff_file"),
        (["--capture"], "--fifo: missing"),
        (["--capture", "--fifo", "{}", "--file", "/no/such"], "/no/such: No such file"),
        (["--capture", "--fifo", "{}", "--file", "x", "--curve-keys", "auto"], "auto: only with --interface"),
        (["--capture", "--fifo", "{}", "--file", "x", "--auto-keys"], "auto: only with --interface"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(arguments: list[str], said: str, tmp_path: Path) -> None:
    arguments = [argument.format(tmp_path / "made") for argument in arguments]
    done = run("extcap", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "made").exists()


# ---------------------------------------------------------------- exported PDUs


@pytest.mark.parametrize("name", CAPTURES)
def test_every_message_is_there_with_its_addresses(name: str) -> None:
    with zmtpsniff.open(FIXTURES / name, where='type == "message"') as capture:
        messages = list(capture.messages())
        found = taken_apart(PduEncoder().packets(list(capture)))
    found = [pdu for pdu in found if pdu.dissector == "zmtp"]
    assert messages
    assert [bodies(pdu.octets) for pdu in found] == [message.frames for message in messages]
    for pdu, message in zip(found, messages, strict=True):
        assert pdu.length == len(pdu.octets)
        assert int.from_bytes(pdu.tags[25], "big") == int(message.src.rpartition(":")[2])
        assert int.from_bytes(pdu.tags[26], "big") == int(message.dst.rpartition(":")[2])
        assert int.from_bytes(pdu.tags[30], "big") == message.packet
        assert (22 in pdu.tags) == message.src.startswith("[")
        assert int.from_bytes(pdu.tags[24], "big") == (3 if name.startswith("epgm") else 2)


def test_each_connection_begins_with_a_header_that_says_it_is_made_up() -> None:
    """Without a conversation of TCP, the ZMTP dissector of Wireshark 4.4 shows nothing but a bug of its own."""
    found = pdus("m31_pub_sub.pcap")
    assert found[0].dissector == "tcp"
    made_up = [pdu for pdu in found if pdu.dissector == "tcp"]
    with zmtpsniff.open(FIXTURES / "m31_pub_sub.pcap") as capture:
        assert len(made_up) == len(list(capture.connections()))
    assert all("not captured" in (pdu.comment or "") for pdu in made_up)
    assert not any(pdu.comment for pdu in found if pdu.dissector == "zmtp")


def test_what_no_key_opens_and_passwords_are_left_out() -> None:
    assert not any(b"MESSAGE" in pdu.octets for pdu in pdus("sec_curve_ps_435_435.pcap"))
    # Octets that a key opened are there without their box.
    opened = [pdu.octets[2:] for pdu in pdus("sec_curve_keys.pcapng")]
    assert any(octets.startswith(b"\x05READY\x0bSocket-Type") for octets in opened)
    assert not any(octets.startswith((b"\x05HELLO", b"\x07WELCOME")) for octets in opened)
    name = "sec_plain_ok_435_435.pcap"
    assert not any(pdu.octets[2:].startswith(b"\x05HELLO") for pdu in pdus(name))
    assert any(pdu.octets[2:].startswith(b"\x05HELLO") for pdu in pdus(name, show_secrets=True))


@pytest.mark.parametrize("pattern", ["bad_*", "net_*", "sec_*", "zap_*", "draft_*", "raw_*"])
def test_whatever_comes_is_said_once_and_fits(pattern: str) -> None:
    for path in fixtures(f"{pattern}.pcap*"):
        for dissector in ("zmtp", "data"):
            for pdu in pdus(path.name, dissector):
                assert len(pdu.octets) <= pdu.length
                # These lack octets: packets that the capture cuts, and passwords.
                assert len(pdu.octets) == pdu.length or pattern in ("bad_*", "net_*", "zap_*"), path.name


def test_bodies_for_another_dissector() -> None:
    found = pdus("m31_req_rep.pcap", "json")
    with zmtpsniff.open(REQ_REP) as capture:
        assert [pdu.octets for pdu in found] == [frame for each in capture.messages() for frame in each.frames if frame]
    assert {pdu.dissector for pdu in found} == {"json"}


@pytest.mark.parametrize("filter_text", ["", 'socket_type == "REP"'])
def test_a_file_for_wireshark(filter_text: str, tmp_path: Path) -> None:
    out = tmp_path / "out.pcapng"
    ask("--capture", "--file", str(REQ_REP), "--fifo", str(out), *(["--filter", filter_text] if filter_text else []))
    with zmtpsniff.open(REQ_REP, where=filter_text or None) as capture:
        expected = list(PduEncoder().packets(list(capture)))
    assert load(out) == expected


def test_what_is_missing_or_too_long_has_its_length() -> None:
    def lengths(frames: list[bytes | Cut | Hidden]) -> tuple[int, int]:
        message = Message(0, 1, 1, "10.0.0.1:1", "10.0.0.2:2", frames, offset=99)
        _, (_, _, octets, length, _) = PduEncoder().packets([message])
        return len(octets), length

    whole, _ = lengths([b"a", b"b" * 300])
    assert lengths([b"a", Cut(b"b" * 10, 300)]) == (whole - 290, whole)
    assert lengths([Cut(b"", 1), b"b" * 300]) == (whole - 1 - 9 - 300, whole)
    assert lengths([b"a", Hidden(300)]) == (whole - 300, whole)
    assert lengths([bytes(1 << 20)]) == (LARGEST_PDU, whole - 3 - 300 + (1 << 20))


def test_a_peer_without_an_address() -> None:
    message = Message(0, 1, 1, "pid-9:3", "peer-of-pid-9:3", [b"a"], offset=9)
    (_, (_, _, octets, _, _)) = PduEncoder().packets([message])
    assert octets.endswith(b"\0\1a")


# ---------------------------------------------------------------- Wireshark's folder


def test_link(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "extcap"
    done = ask("--link", "--folder", str(folder))
    assert done == f"{folder / 'zmtpsniff'}\n"
    listed = subprocess.run([folder / "zmtpsniff", "--extcap-interfaces"], capture_output=True, text=True, check=True)
    assert listed.stdout == ask("--extcap-interfaces")
    assert link(folder) == folder / "zmtpsniff"  # once more: another Python may have it now
    (folder / "zmtpsniff").write_text("somebody else's")
    with pytest.raises(Error, match="something else of this name"):
        link(folder)
    (folder / "zmtpsniff").unlink()
    (folder / "zmtpsniff").symlink_to(tmp_path / "nothing")
    with pytest.raises(Error, match="something else of this name"):
        link(folder)


def test_the_personal_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WIRESHARK_EXTCAP_DIR", raising=False)
    assert personal_folder() == tmp_path / ".local/lib/wireshark/extcap"
    tshark = tmp_path / "tshark"
    tshark.write_text("#!/bin/sh\nprintf 'Extcap path:\\t/usr/lib/x\\n'\n")
    tshark.chmod(0o755)
    with pytest.raises(Error, match=r"--folder /usr/lib/x as root"):
        personal_folder()
    tshark.write_text("#!/bin/sh\nprintf 'Personal Extcap path:\\t/home/me/x\\nGlobal Extcap path:\\t/usr/lib/x\\n'\n")
    assert personal_folder() == Path("/home/me/x")
    monkeypatch.setenv("WIRESHARK_EXTCAP_DIR", "/somewhere")
    assert personal_folder() == Path("/somewhere")


# ---------------------------------------------------------------- tshark asks

needs_tshark = pytest.mark.skipif(
    shutil.which("tshark") is None or shutil.which("dumpcap") is None, reason="tshark is not installed"
)
# In a mount namespace of its own, the folder of all extcap programs is one with ours alone.
ALONE = 'mount --bind "$0" "$1" && shift && exec "$@"'
# A REP socket and a REQ socket that goes on asking.
TALK = """
import threading, zmq
context = zmq.Context()
service, client = context.socket(zmq.REP), context.socket(zmq.REQ)
client.connect(f"tcp://127.0.0.1:{service.bind_to_random_port('tcp://127.0.0.1')}")
def serve():
    while True:
        service.send(b"1.09" if service.recv() == b"price?" else b"?")
threading.Thread(target=serve, daemon=True).start()
while True:
    client.send(b"price?")
    client.recv()
    threading.Event().wait(0.1)
"""


def alone(folder: Path, *words: str) -> list[str]:
    """The command that runs tshark in a namespace where it has our extcap program."""
    link(folder)
    said = subprocess.run(["tshark", "-G", "folders"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"^(?:Global )?Extcap path:\s*(.+)$", said, re.MULTILINE)
    assert found is not None
    return ["sh", "-c", ALONE, str(folder), found[1], "timeout", "100", "tshark", *words]


FIELDS = ("-l", "-T", "fields", "-e", "exported_pdu.prot_name", "-e", "ip.src", "-e", "exported_pdu.exported_pdu")


@needs_tshark
@needs_namespaces
def test_tshark_gets_the_messages_of_a_file(tmp_path: Path) -> None:
    option = f"extcap.{FILE}.file:{REQ_REP}"
    command = ["unshare", "--mount", *alone(tmp_path / "extcap", "-i", FILE, "-o", option, *FIELDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    with zmtpsniff.open(REQ_REP) as capture:
        messages = list(capture.messages())
    got = [bodies(bytes.fromhex(row[2])) for row in rows if row[0] == "zmtp"]
    assert [frames for frames in got if frames] == [message.frames for message in messages], done.stderr
    assert {row[1] for row in rows} == {"127.0.0.1"}
    assert "Dissector bug" not in done.stderr


@needs_tshark
@needs_namespaces
@pytest.mark.slow
def test_tshark_tells_what_is_wrong(tmp_path: Path) -> None:
    command = ["unshare", "--mount", *alone(tmp_path / "extcap", "-i", FILE, "-o", f"extcap.{FILE}.file:/no/such")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "zmtpsniff: /no/such: No such file or directory" in done.stderr


@needs_tshark
@needs_namespaces
@pytest.mark.slow
def test_tshark_gets_live_messages(tmp_path: Path) -> None:
    with separate_namespaces() as (side, _):
        side.ip("link", "set", "lo", "up")
        talk = subprocess.Popen(side.command(sys.executable, "-c", TALK))
        try:
            options = ("-i", LIVE, "-f", "tcp", "-o", f"extcap.{LIVE}.interface:lo", "-c", "20")
            words = alone(tmp_path / "extcap", *options, *FIELDS)
            done = subprocess.run(side.command(*words), capture_output=True, text=True, check=False)
        finally:
            talk.kill()
            talk.wait()
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    said = [bodies(bytes.fromhex(row[2])) for row in rows if row[0] == "zmtp"]
    assert {json.dumps([frame.decode() for frame in frames]) for frames in said if frames} == {
        '["", "price?"]', '["", "1.09"]'
    }, done.stderr  # fmt: skip
    assert len(said) >= 19
