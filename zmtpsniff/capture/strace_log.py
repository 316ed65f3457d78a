"""Logs of strace as captures: everything that a program sends and receives on its sockets.

    strace -f -yy -ttt -xx -s 99999 -e trace=sendto,recvfrom,read,write,sendmsg,recvmsg,close -o FILE PROGRAM

Each call that moved octets becomes a packet as sockdump writes it, with sockdump's link type: 8 octets name the
receiver, 8 name the sender, and the octets that were sent follow. The end of a stream becomes a packet without octets.
If strace names the addresses of a TCP connection (-yy), the calls become segments of that (strace_tcp.py).
"""

import re
from collections.abc import Iterator
from contextlib import suppress

from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.capture.file_octets import FileOctets
from zmtpsniff.capture.source import SourceState
from zmtpsniff.capture.strace_tcp import TcpEnds, make_tcp_ends, pack_end
from zmtpsniff.words.link_types import USER0

PEER = 1 << 63  # set in the name of an end of another program than the traced one

_PIECE = 1 << 20
_LONGEST_LINE = 16 << 20
_MOST_REMEMBERED = 1 << 16  # descriptors, unfinished calls

_WHO = rb"(?:\[pid +(?P<pid>\d{1,9})\] |(?P<tid>\d{1,9}) +)?"
_WHEN = rb"(?:(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)|(?P<epoch>\d{1,12}))?(?:\.(?P<fraction>\d{1,9}))? *"
_START = re.compile(_WHO + _WHEN)
# How a line of a log begins, and what a whole line is.
_LINE_START = re.compile(
    _WHO + _WHEN + rb"(?:(?P<call>_?[a-z][a-z0-9_]*)\(|<\.\.\. [a-z0-9_]+ resumed>|\+\+\+ |--- S|--- stopped|strace: )"
)
_CALL_END = re.compile(rb".*(?:\) += (?:-?\d+|0x[0-9a-f]+|\?)(?![0-9a-z])|<unfinished \.\.\.>$)", re.S)
# The group is atomic. Otherwise a hostile line would be searched again from each place where a descriptor may end.
_CALL = re.compile(
    rb"(?P<name>[a-z]+\d?)\((?P<fd>\d{1,9})(?><(?P<what>.{0,400}?)>(?=, |\)))?"
    rb"(?:, (?P<given>.*))?\) += (?P<result>-?\d{1,12})",
    re.S,
)
_STRING = re.compile(rb'"((?:[^"\\]|\\.)*)"(\.\.\.)?')
_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|[0-7]{1,3}|.)", re.S)
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"v": b"\v", b"f": b"\f"}
_BASE = b"iov_base="
_SOCKET = re.compile(rb"UNIX|TCP|socket:|SOCK")

# Parts of descriptors that -yy shows: inodes of this end and the other; addresses of both.
_UNIX = re.compile(rb"(?:UNIX[A-Z-]*|socket):\[(\d+)(?:->(\d+))?")
_TCP = re.compile(rb"TCP(?:v6)?:\[([0-9a-f.:\[\]]+)->([0-9a-f.:\[\]]+)\]")
_PORT = re.compile(rb"sin6?_port=htons\((\d{1,5})\)")
_HOST = re.compile(rb'(inet_addr)\("([^"]*)"\)|inet_pton\(AF_INET6, "([^"]*)"')

_Key = bytes | tuple[int, int]
_At = tuple[int, int]
"""A thread and a descriptor of its process."""

_SENDING = frozenset({b"sendto", b"sendmsg", b"write", b"writev", b"send"})
_RECEIVING = frozenset({b"recvfrom", b"recvmsg", b"read", b"readv", b"recv"})
_MAKING = frozenset({b"connect", b"accept", b"accept4"})
_OF_ANYTHING = frozenset({b"read", b"write", b"readv", b"writev"})  # of files, too
_KNOWN = _SENDING | _RECEIVING | _MAKING | {b"close", b"execve"}  # every useful log has one of them

_LONGEST_START = 64  # octets at the beginning of a line that show what it is
_LONGEST_BEGINNING = 1 << 20  # a known call must come in so many octets


def find_log(stream: FileOctets, data: bytes) -> tuple[bytes, bool]:
    """Whether a stream that begins with ``data`` is a log of strace; also returns the octets read so far.

    It is one if its lines have strace's form, and one of them, within the first MiB, is a whole call on a socket. A few
    octets of that form prove nothing.
    """
    at = 0
    while at < _LONGEST_BEGINNING:
        data = stream.extend(data, at + _LONGEST_START)
        start = _LINE_START.match(data, at, at + _LONGEST_START)
        if start is None:
            break
        data, end = _end_of_line(stream, data, at)
        if start["call"]:
            if _CALL_END.match(data, start.end(), end) is None:
                break
            if start["call"] in _KNOWN:
                return data, True
        at = end + 1
    return data, False


def _end_of_line(stream: FileOctets, data: bytes, at: int) -> tuple[bytes, int]:
    """The octets read of ``stream`` so far, and the place in them where the line from ``at`` on ends."""
    searched = at
    while (end := data.find(b"\n", searched)) < 0 and len(data) - at <= _LONGEST_LINE:
        searched = len(data)
        data = stream.extend(data, searched + 1 if searched < _PIECE else searched * 2)
        if len(data) == searched:
            break
    return data, end if end >= 0 else len(data)


def read_log(stream: FileOctets, data: bytes, source: SourceState) -> Iterator[Block]:
    """The packets of the calls in a log, a block for each piece of the log."""
    calls = _Calls()
    while True:
        end = data.rfind(b"\n") + 1
        yield Block.of(calls.packets(data[:end].split(b"\n")) if end else ())
        data = data[end:]
        if len(data) > _LONGEST_LINE:
            stream.corrupt(source, data, 0, f"a line of more than {_LONGEST_LINE} octets")
            return
        before = len(data)
        # Whole lines go on at once. A line that only grows is not searched again with each chunk.
        data = stream.extend(data, before + 1 if before < _PIECE else before * 2)
        if len(data) == before:
            break
    if data and stream.damage is None:
        yield Block.of(calls.packets([data]))
    else:
        stream.ended(source, data, 0, "line")


class _Stream:
    """A socket that a program speaks over, under one descriptor or several."""

    def __init__(self, end: int, at: _At, ends: TcpEnds | None) -> None:
        self.end = end  # its name
        self.users = {at[0]}  # threads that have spoken over it
        self.tcp = ends

    def packets(self, time_ns: int, sends: bool, octets: bytes, length: int) -> list[Packet]:
        """The packet of a call that moved octets; ``length`` of them passed."""
        if self.tcp is not None:
            return self.tcp.segments(time_ns, sends, octets, length)
        receiver, sender = (self.end | PEER, self.end) if sends else (self.end, self.end | PEER)
        return [_made(time_ns, receiver, sender, octets, length)]

    def over(self, time_ns: int) -> list[Packet]:
        """The packet of a stream's end. It ends both directions, since nobody sees more of them."""
        if self.tcp is not None:
            return self.tcp.fins(time_ns)
        return [
            _made(time_ns, self.end | PEER, self.end, b"", 0),
            _made(time_ns, self.end, self.end | PEER, b"", 0),
        ]


class _Calls:
    """The memory of the reader from one line to the next.

    With -yy strace names the socket of each descriptor. So threads, forked processes, and processes that got a
    descriptor from another one, are one end of one connection. Without -yy the thread and the descriptor name a socket.
    If both programs of a connection are traced, the reader takes only the calls of one of them.
    """

    def __init__(self) -> None:
        self._unfinished: dict[bytes, bytes] = {}  # by thread
        self._streams: dict[_Key, _Stream] = {}
        self._doubles: set[_Key] = set()  # the other ends of these streams
        self._ignored: set[_At] = set()
        self._servers: dict[bytes, None] = {}  # addresses that somebody connected to or accepted at
        self._ends = 0

    def packets(self, lines: list[bytes]) -> list[Packet]:
        found: list[Packet] = []
        for line in lines:
            start = _START.match(line)
            assert start is not None  # it matches nothing, too
            thread = start["pid"] or start["tid"] or b"0"
            call = line[start.end() :]
            if call.endswith(b"<unfinished ...>"):
                if len(self._unfinished) < _MOST_REMEMBERED:
                    self._unfinished[thread] = call[: -len(b"<unfinished ...>")]
                continue
            if call.startswith(b"<... "):
                call = self._unfinished.pop(thread, b"") + call[call.find(b"resumed>") + len(b"resumed>") :]
            match = _CALL.match(call)
            if match is None:
                if call.startswith((b"+++ exited", b"+++ killed")):
                    found += self._exit(int(thread), _time(start))
            elif match["name"] == b"close":
                found += self._close((int(thread), int(match["fd"])), match["what"], _time(start))
            elif match["name"] in _MAKING:
                self._note_server(match, call)
            else:
                found += self._moved(int(thread), _time(start), match)
        return found

    def _note_server(self, match: re.Match[bytes], call: bytes) -> None:
        """Remember which end is the server, from a call that made a connection."""
        if match["name"] == b"connect":
            port, host = _PORT.search(call), _HOST.search(call)
            server = None if port is None or host is None else _connected_to(host, port[1])
        else:
            ends = _TCP.search(call, match.end())
            server = None if ends is None else pack_end(ends[1])
        if server is not None and len(self._servers) < _MOST_REMEMBERED:
            self._servers[server] = None

    def _exit(self, thread: int, time_ns: int) -> list[Packet]:
        """A thread is gone. So are its sockets, unless another thread used them."""
        found = []
        for key, stream in list(self._streams.items()):
            if thread in stream.users:
                stream.users.discard(thread)
                if not stream.users:
                    del self._streams[key]
                    found += stream.over(time_ns)
        return found

    def _close(self, at: _At, what: bytes | None, time_ns: int) -> list[Packet]:
        """A program closes a descriptor. If it never used the socket, it has only inherited the descriptor."""
        self._ignored.discard(at)
        key, _ = _socket_of(at, what)
        stream = self._streams.get(key)
        if stream is None:
            self._doubles.discard(key)
            return []
        if at[0] not in stream.users:
            return []
        del self._streams[key]
        return stream.over(time_ns)

    def _moved(self, thread: int, time_ns: int, call: re.Match[bytes]) -> list[Packet]:
        """A call that sent or received."""
        name, result = call["name"], int(call["result"])
        at = thread, int(call["fd"])
        sends = name in _SENDING
        if result < 0 or not (sends or name in _RECEIVING) or at in self._ignored:
            return []
        key, peer = _socket_of(at, call["what"])
        stream = self._streams.get(key)
        if stream is None and (key in self._doubles or (peer is not None and peer in self._streams)):
            self._remember_double(key)
            return []
        octets = _octets((call["given"] or b"").lstrip(), b"msg" in name or name.endswith(b"v"), result)
        if stream is None:
            if not result:
                return []
            what = call["what"]
            if name in _OF_ANYTHING and not (octets[:1] == b"\xff" if what is None else _SOCKET.search(what)):
                if len(self._ignored) < _MOST_REMEMBERED:
                    self._ignored.add(at)
                return []
            stream = self._begin(at, key, peer, what)
        stream.users.add(thread)
        if not result and sends:
            return []
        return stream.packets(time_ns, sends, octets, result)

    def _begin(self, at: _At, key: _Key, peer: bytes | None, what: bytes | None) -> _Stream:
        if len(self._streams) >= _MOST_REMEMBERED:
            self._streams.pop(next(iter(self._streams)))
        self._ends += 1
        end = (at[0] & 0x3FFF_FFFF) << 32 | (self._ends & 0xFFFF) << 16 | at[1] & 0xFFFF
        ends = None if what is None else _TCP.fullmatch(what)
        tcp = None if ends is None else make_tcp_ends(ends[1], ends[2], self._servers)
        stream = self._streams[key] = _Stream(end, at, tcp)
        if peer is not None:
            self._remember_double(peer)
        return stream

    def _remember_double(self, key: _Key) -> None:
        if len(self._doubles) < _MOST_REMEMBERED:
            self._doubles.add(key)


def _connected_to(host: re.Match[bytes], port: bytes) -> bytes | None:
    address = _unescaped(host[2]) if host[1] else b"[%s]" % _unescaped(host[3])
    return pack_end(address + b":" + port)


def _socket_of(at: _At, what: bytes | None) -> tuple[_Key, bytes | None]:
    """The names of a socket and of its other end, if the log shows them."""
    if what is not None:
        if found := _UNIX.match(what):
            return found[1], found[2]
        if found := _TCP.fullmatch(what):
            return b"%s->%s" % (found[1], found[2]), b"%s->%s" % (found[2], found[1])
    return at, None


def _made(time_ns: int, receiver: int, sender: int, octets: bytes, length: int) -> Packet:
    data = receiver.to_bytes(8, "big") + sender.to_bytes(8, "big") + octets
    return time_ns, USER0, data, 16 + length, None


def _time(start: re.Match[bytes]) -> int:
    """Nanoseconds since the Unix epoch; with -t and -tt, which leave the date out, since midnight; else 0."""
    if start["epoch"]:
        seconds = int(start["epoch"])
    elif start["hour"]:
        seconds = int(start["hour"]) * 3600 + int(start["minute"]) * 60 + int(start["second"])
    else:
        return 0
    return seconds * 1_000_000_000 + int((start["fraction"] or b"0").ljust(9, b"0"))


def _octets(given: bytes, several: bool, length: int) -> bytes:
    """The octets in the arguments of a call, ``length`` at most, up to the place where the log cuts them (-s)."""
    if not several:
        # A call may pass only a part of its octets, again and again. With -xx the log shows how many.
        digits = given[1 : 1 + 4 * length]
        if given[:3] == b'"\\x' and digits.count(b"\\x") * 4 == len(digits) == 4 * length:
            return _unescaped(digits)
        match = _STRING.match(given)
        return _unescaped(match[1])[:length] if match else b""
    parts = []
    at = given.find(_BASE)
    while at >= 0:
        match = _STRING.match(given, at + len(_BASE))
        if match is None:
            break
        parts.append(_unescaped(match[1]))
        if match[2]:
            break
        at = given.find(_BASE, match.end())
    return b"".join(parts)[:length]


def _unescaped(text: bytes) -> bytes:
    """The octets of a string of the log. With -xx all of them are hexadecimal digits."""
    if text[:2] == b"\\x" and text.count(b"\\x") * 4 == len(text):
        with suppress(ValueError):  # it only looked so
            return bytes.fromhex(text.replace(b"\\x", b"").decode())
    return _ESCAPE.sub(_meaning, text)


def _meaning(escape: re.Match[bytes]) -> bytes:
    what = escape[1]
    if what[:1] == b"x":
        return bytes([int(what[1:], 16)]) if len(what) == 3 else what
    if what.isdigit() and what < b"8":
        return bytes([int(what, 8) & 0xFF])
    return _ESCAPES.get(what, what)
