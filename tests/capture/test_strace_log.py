"""Unix domain sockets: logs of strace and captures of sockdump."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

import zmtpsniff
from dissectors.events import Connection, Message
from tests.support.examples import examples
from tests.support.live_program import wait_for
from tests.world.events import frames_of, problems, sniff
from tests.world.octets import frame, peers
from tests.world.tap import Packets
from zmtpsniff.capture.block import Packet
from zmtpsniff.capture.engines import strace
from zmtpsniff.capture.engines.strace import StraceEngine
from zmtpsniff.capture.files import open_captures, open_stream
from zmtpsniff.capture.source import CaptureError

SENT = [*peers(b"DEALER", b"ROUTER"), (0, frame(b"question")), (1, frame(b"some", 1) + frame(b"answer" * 100))]
FRAMES = [[b"question"], [b"some", b"answer" * 100]]


def read(log: bytes, size: int = 1 << 16) -> list[Packet]:
    chunks = (log[at : at + size] for at in range(0, len(log), size))
    return [packet for batch in open_stream("log", chunks, Packets([])) for packet in batch]


def hexed(octets: bytes) -> bytes:
    return b"".join(b"\\x%02x" % octet for octet in octets)


def escaped(octets: bytes) -> bytes:
    """As strace writes strings without -x."""
    letters = {9: b"\\t", 10: b"\\n", 11: b"\\v", 12: b"\\f", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}
    shown = [letters.get(o) or (bytes([o]) if 32 <= o < 127 else b"\\%03o" % o) for o in octets]
    return b"".join(shown)


def simple(side: int, octets: bytes) -> bytes:
    name = b"sendto" if side == 0 else b"recvfrom"
    return b'%s(9, "%s", %d, 0, NULL, NULL) = %d' % (name, hexed(octets), max(len(octets), 64), len(octets))


def plain(side: int, octets: bytes) -> bytes:
    return b'%s(9, "%s", 8192) = %d' % (b"write" if side == 0 else b"read", escaped(octets), len(octets))


def vectors(side: int, octets: bytes) -> bytes:
    parts = b", ".join(
        b'{iov_base="%s", iov_len=%d}' % (hexed(part), len(part)) for part in (octets[:7], octets[7:]) if part
    )
    name = b"sendmsg" if side == 0 else b"recvmsg"
    return b"%s(9<UNIX-STREAM:[1->2]>, {msg_name=NULL, msg_iov=[%s], msg_flags=0}, 0) = %d" % (name, parts, len(octets))


def resumed(side: int, octets: bytes) -> bytes:
    whole = simple(side, octets)
    cut = whole.index(b'"') if side else whole.index(b") =")
    name = whole[: whole.index(b"(")]
    return whole[
        :cut
    ] + b' <unfinished ...>\n4712  1700000000.5 read(3, "x", 1) = 1\n4711  1700000000.6 <... %s resumed>%s' % (
        name,
        whole[cut:],
    )


STYLES = {"sendto": simple, "write": plain, "sendmsg": vectors, "resumed": resumed}
WHEN = {"none": b"", "-tt": b"12:00:00.000001 ", "-ttt": b"1700000000.123456 "}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("size", [7, 1 << 16])
def test_logs(style: str, when: str, size: int) -> None:
    lines = [b"4711  %s%s\n" % (WHEN[when], STYLES[style](side, octets)) for side, octets in SENT]
    events = sniff(read(b"".join(lines), size))
    assert frames_of(events) == FRAMES
    assert problems(events) == []
    (summary,) = (event for event in events if isinstance(event, Connection))
    assert (summary.transport, summary.handshake, summary.end) == ("ipc", "complete", "open")
    assert summary.client.address == "pid-4711:9"
    assert summary.server.address == "peer-of-pid-4711:9"
    if when == "-ttt" and style != "resumed":
        assert summary.start_ns == 1_700_000_000_123_456_000


def test_a_descriptor_that_is_closed_and_used_again() -> None:
    lines = [simple(side, octets) for side, octets in SENT]
    end = [b'recvfrom(9, "", 8192, 0, NULL, NULL) = 0', b"close(9) = 0"]
    log = b"".join(b"[pid 4711] %s\n" % line for line in [*lines, *end, *lines, *end])
    connections = [event for event in sniff(read(log)) if isinstance(event, Connection)]
    assert [(event.end, event.handshake, event.messages.client) for event in connections] == [
        ("fin", "complete", 1)
    ] * 2


def test_strings_cut_short_are_told() -> None:
    lines = [simple(side, octets) for side, octets in SENT[:-1]]
    lines.append(b'recvfrom(9, "%s"..., 8192, 0, NULL, NULL) = %d' % (hexed(SENT[-1][1][:32]), len(SENT[-1][1])))
    lines.append(simple(1, frame(b"next")))
    events = sniff(read(b"".join(b"1 %s\n" % line for line in lines)))
    assert problems(events) == ["packets-cut"]
    found = [(event.frames[-1], event.incomplete) for event in events if isinstance(event, Message)]
    assert [incomplete for _, incomplete in found] == [False, True, False]
    assert found[-1][0] == b"next"


def test_files_and_wakings_are_no_flows() -> None:
    log = b'1 read(3, "\\x7fELF\\2\\1", 832) = 6\n1 write(8, "\\1\\0\\0\\0\\0\\0\\0\\0", 8) = 8\n'
    log += b'1 read(5</dev/zero>, "\\377\\377", 2) = 2\n1 openat(AT_FDCWD, "x", O_RDONLY) = 3\n'
    assert read(log) == []


def test_text_that_is_no_log(tmp_path: Path) -> None:
    file = tmp_path / "text"
    for text in (
        "hello world\n",
        "1234 5678\n",
        "[section]\n",
        "<... \n",
        "+++ exited with 0 +++\n",
        "read(",
        "read(file)\n",
        "close(it) = better\n",
        "sin(0) = 0\n" * 200,
        '4711  futex(0x7f, FUTEX_WAIT) = 0\nhello world\nread(3, "x", 1) = 1\n',
    ):
        file.write_text(text)
        with pytest.raises(CaptureError, match="not a capture file"):
            open_captures([str(file)])


@pytest.mark.parametrize(
    "first",
    [
        b"strace: Process 4711 attached\n[pid  4711] 12:00:00.5 futex(0x7f, FUTEX_WAIT, 2, NULL <unfinished ...>",
        b"--- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED} ---\n+++ exited with 0 +++",
        b"4711  1700000000.1 <... epoll_wait resumed>[], 256, 0) = 0",
        b"4711  mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, -1, 0) = 0x7fc8c5fb0000\n4711  exit_group(0) = ?",
        b'4711  openat(AT_FDCWD, "/etc/ld.so.preload", O_RDONLY) = -1 ENOENT (No such file or directory)',
    ],
)
@pytest.mark.parametrize("size", [7, 1 << 16])
def test_logs_that_begin_in_the_middle(first: bytes, size: int) -> None:
    assert len(read(first + b"\n4711  %s\n" % simple(*SENT[0]), size)) == 1
    assert len(read(first + b"\n4711  %s" % simple(*SENT[0]), size)) == 1  # the file ends without the end of a line


@pytest.mark.parametrize("part", [b">, ", b"<", b") = 5", b'"', b"\\x"])
def test_hostile_lines_take_linear_time(part: bytes) -> None:
    """Were one looked through again and again, this would take hours."""
    packets = read(b"1 close(9) = 0\n1 sendto(9<" + part * 200_000 + b'x\n1 sendto(9, "' + part * 200_000 + b"x\n")
    assert all(len(packet[2]) == 16 for packet in packets)  # no octets are made up


WORDS = b'read( sendto( 9, "\\xff\\x00 " ... <unfinished ...> <... read resumed> ) = 5 \n 1 < > 12:00:00 { iov_base='


@settings(deadline=None, max_examples=examples(200))
@given(st.lists(st.sampled_from(WORDS.split(b" "))))
def test_hostile_logs_raise_nothing(words: list[bytes]) -> None:
    sniff(read(b"1 close(9) = 0\n1 read(9, " + b" ".join(words)))


def sockdump(sent: list[tuple[int, bytes]], pids: tuple[int, int] = (31042, 13710)) -> Iterator[Packet]:
    for number, (side, octets) in enumerate(sent):
        data = pids[1 - side].to_bytes(8, "big") + pids[side].to_bytes(8, "big") + octets
        yield number * 1000, 147, data, len(data), None


def test_sockdump() -> None:
    packets = list(sockdump(SENT))
    events = sniff(packets)
    assert frames_of(events) == FRAMES
    (summary,) = (event for event in events if isinstance(event, Connection))
    assert (summary.client.address, summary.server.address) == ("pid-31042:0", "pid-13710:0")
    assert (summary.transport, summary.handshake) == ("ipc", "complete")
    time_ns, link, data, wire, _ = packets[-1]
    cut = sniff([*packets[:-1], (time_ns, link, data[:-50], wire, None)])
    assert problems(cut) == ["packets-cut"]


PEER = """
import sys, zmq
socket = zmq.Context().socket(zmq.REQ)
socket.connect(sys.argv[1])
for size in (1, 300, 100_000):
    socket.send_multipart([b"request", b"x" * size])
    socket.recv()
socket.close()
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_real_program(tmp_path: Path) -> None:
    log, endpoint = tmp_path / "calls.log", f"ipc://{tmp_path}/s"
    calls = "trace=sendto,recvfrom,read,write,sendmsg,recvmsg,close"
    with zmq.Context() as context, context.socket(zmq.REP) as socket:
        socket.linger = 0
        socket.rcvtimeo = 120_000
        socket.bind(endpoint)
        strace_words = ["strace", "-f", "-ttt", "-xx", "-s", "99999", "-e", calls, "-o", str(log)]
        command = [*strace_words, sys.executable, "-c", PEER, endpoint]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as program:
            try:
                received = []
                for _ in range(3):
                    received.append(socket.recv_multipart())
                    socket.send(b"reply" * 1000)
            except zmq.Again:
                program.kill()
                errors = program.communicate()[1].decode()
                if "ptrace" in errors or "not permitted" in errors:
                    pytest.skip(f"strace may not trace here: {errors.strip()[:100]}")
                raise
            program.wait(120)
    events = list(zmtpsniff.open(log, patterns=False, payload=False))
    requests = [e.frames[1:] for e in events if isinstance(e, Message) and e.socket_type == "REQ"]
    assert [
        [b"request", len(frames[1]) if isinstance(frames[1], bytes) else frames[1].length] for frames in requests
    ] == [[b"request", len(frames[1])] for frames in received]
    assert [e.frames for e in events if isinstance(e, Message) and e.socket_type == "REP"] == [
        [b"", b"reply" * 1000]
    ] * 3
    assert problems(events) == []
    (summary,) = (event for event in events if isinstance(event, Connection))
    assert (summary.transport, summary.handshake, summary.end) == ("ipc", "complete", "fin")


def tcp_log(own: bytes, other: bytes, pid: int, mirrored: bool = False) -> bytes:
    """The conversation as strace -yy writes it of one of its ends."""
    lines = []
    for side, octets in SENT:
        name = b"sendto" if (side == 0) != mirrored else b"recvfrom"
        text = b'%s(9<TCP:[%s->%s]>, "%s", 64, 0, NULL, NULL) = %d' % (name, own, other, hexed(octets), len(octets))
        lines.append(b"%d 1700000000.1 %s\n" % (pid, text))
    lines.append(b"%d 1700000001.0 close(9<TCP:[%s->%s]>) = 0\n" % (pid, own, other))
    return b"".join(lines)


@pytest.mark.parametrize(
    ("one", "other"),
    [(b"127.0.0.1:40000", b"127.0.0.1:5555"), (b"[::1]:40000", b"[::1]:5555"), (b"10.0.0.1:5555", b"10.0.0.2:40000")],
)
def test_tcp_connections_have_their_addresses(one: bytes, other: bytes) -> None:
    for log in (tcp_log(one, other, 1), tcp_log(other, one, 1, mirrored=True)):
        events = sniff(read(log))
        assert frames_of(events) == FRAMES
        assert problems(events) == []
        (summary,) = (event for event in events if isinstance(event, Connection))
        assert (summary.transport, summary.handshake, summary.end) == ("tcp", "complete", "fin")
        assert {summary.client.address, summary.server.address} == {one.decode(), other.decode()}
        assert summary.server.address.endswith(":5555")


def test_who_accepts_is_the_server_whatever_its_port() -> None:
    server, client = b"127.0.0.1:50000", b"127.0.0.1:40000"
    accept = b"1 accept4(7<TCP:[0.0.0.0:50000]>, NULL, NULL, SOCK_CLOEXEC) = 9<TCP:[%s->%s]>\n" % (server, client)
    connect = b"1 connect(9<TCP:[77]>, {sa_family=AF_INET, sin_port=htons(50000), "
    connect += b'sin_addr=inet_addr("127.0.0.1")}, 16) = -1 EINPROGRESS (Operation now in progress)\n'
    for log in (accept + tcp_log(server, client, 1, mirrored=True), connect + tcp_log(client, server, 1)):
        (summary,) = (event for event in sniff(read(log)) if isinstance(event, Connection))
        assert summary.server.address == server.decode()


def test_two_programs_of_one_connection_show_it_once() -> None:
    one, other = b"127.0.0.1:40000", b"127.0.0.1:5555"
    lines = zip(
        tcp_log(one, other, 1).splitlines(True), tcp_log(other, one, 2, mirrored=True).splitlines(True), strict=True
    )
    events = sniff(read(b"".join(line for pair in lines for line in pair)))
    assert frames_of(events) == FRAMES
    unix = [
        b'%d sendto(9<UNIX-STREAM:[11]>, "%s", 9, 0, NULL, 0) = %d\n' % (1, hexed(SENT[0][1]), len(SENT[0][1])),
        b'%d sendto(8<UNIX-STREAM:[22->11,"/x"]>, "%s", 9, 0, NULL, 0) = %d\n'
        % (2, hexed(SENT[1][1]), len(SENT[1][1])),
        b'%d recvfrom(8<UNIX-STREAM:[22->11]>, "%s", 99, 0, NULL, 0) = %d\n' % (2, hexed(SENT[0][1]), len(SENT[0][1])),
        b'%d recvfrom(9<UNIX-STREAM:[11->22]>, "%s", 99, 0, NULL, 0) = %d\n' % (1, hexed(SENT[1][1]), len(SENT[1][1])),
    ]
    assert len(read(b"".join(unix))) == 2


def test_descriptors_inherited_and_passed_on_are_one_end() -> None:
    """A thread, a child and who is handed the descriptor speak over it; a child that only closes it ends nothing."""
    calls = [simple(side, octets).replace(b"(9,", b"(9<UNIX-STREAM:[1->2]>,") for side, octets in SENT]
    log = [b"%d %s\n" % (pid, call) for pid, call in zip((1, 1, 1, 1, 2, 3, 3, 3), calls, strict=False)]
    log.insert(3, b"9 close(9<UNIX-STREAM:[1->2]>) = 0\n")
    log.append(b"1 +++ exited with 0 +++\n")
    events = sniff(read(b"".join(log)))
    assert frames_of(events) == FRAMES
    (summary,) = (event for event in events if isinstance(event, Connection))
    assert summary.end == "open"


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_command_that_nobody_looks_at_is_ended() -> None:
    """As with Ctrl-C before the dissection begins."""
    engine = StraceEngine(["sleep", "600"], [])
    engine.start()
    engine.close()
    assert engine.said == "sleep was ended by SIGTERM"


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_command_is_ended_by_a_signal_that_came_before_its_start() -> None:
    engine = StraceEngine(["sleep", "600"], [])
    engine.stop()
    engine.start()
    assert b"execve" in b"".join(piece.payload for piece in engine.pieces())  # which end with it
    engine.close()
    assert engine.said == "sleep was ended by SIGTERM"


# Neither it nor its child wants to end; each makes a file once it does not.
STUBBORN = """trap '' TERM; (: >"$0/child"; exec sleep 600) & : >"$0/parent"; exec sleep 600"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize(
    ("stop_seconds", "times"), [(600.0, 2), (0.1, 1)], ids=["who asks twice is in a hurry", "patience ends"]
)
def test_a_command_that_does_not_want_to_end_is_killed(
    stop_seconds: float, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strace, "_STOP_SECONDS", stop_seconds)
    monkeypatch.setattr(strace, "_HURRY_SECONDS", -1.0)  # however soon the second wish comes
    engine = StraceEngine(["sh", "-c", STUBBORN, str(tmp_path)], [])
    engine.start()
    wait_for(lambda: {path.name for path in tmp_path.iterdir()} == {"parent", "child"})
    for _ in range(times):
        engine.stop()
    engine.close()
    assert engine.said == "sh was ended by SIGKILL"


def test_a_command_that_ends_before_strace_writes_says_nothing() -> None:
    """As with Ctrl-C right after the start."""
    assert list(StraceEngine(["true"], []).packets(iter([]))) == []
