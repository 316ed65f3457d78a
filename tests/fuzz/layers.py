"""Targets of what lies between TCP and ZMTP: records of TLS, compressed messages of WebSocket."""

import zlib
from typing import NamedTuple

from dissectors.events import AnyEvent
from dissectors.zmtp import deflate as permessage
from dissectors.zmtp import websocket_frames as ws
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.limits import Limits
from tests.world.events import CLIENT, SERVER
from tests.world.listener import Listener
from zmtpsniff.capture.plaintexts import Plaintexts
from zmtpsniff.net.addresses import Address
from zmtpsniff.net.tls import StreamDissection, Tls, TlsHalf

from .connections import converse, same_however_cut, upgrade
from .octets import told, turns
from .output import shown

# ------------------------------------------------------------------ TLS

_ENDS = (b"\x0a\0\0\1", b"\x0a\0\0\2"), (b"\x9c\x40", b"\x15\xb3")
_KEYS = [b"".join((*hosts, *ports)) for hosts, ports in (_ENDS, (_ENDS[0][::-1], _ENDS[1][::-1]))]
_TAG = bytes(16)
_MOST_PLAINTEXT = 2000  # octets that wait for their records
_NUMBER = 4  # octets in front of a plaintext that say which it is
RAW, DECRYPTED, SEALED, HIDDEN, HOLE, WORDS, TWO, HELLO = range(8)
"""Kinds of turns: octets as they are, a record that is decrypted or is not, one of TLS 1.3 that is no application data,
octets that are missing, what tshark says alone, two records in one packet, a record of a handshake."""


class _Step(NamedTuple):
    """The effect of one packet."""

    side: int
    octets: bytes  # of the stream
    missing: bool
    words: list[list[str]] | None  # what tshark says of it


def tls(data: bytes) -> None:
    """Records in any order, decrypted or not, with holes; the first octet says whether there are keys, and which TLS.

    A turn's mark has the side in its lowest bit and a kind of turn above it.
    """
    choice = data[0] if data else 0
    listeners = Listener()
    steps = _steps(data[1:], bool(choice & 2), numbered=True)
    halves = _run(steps, choice, listeners)
    for side, (half, listener) in enumerate(zip(halves, (listeners.client, listeners.server), strict=True)):
        mine = [step for step in steps if step.side == side]
        pieces = [heard for heard in listener.heard if isinstance(heard, bytes)]
        assert {heard for heard in listener.heard if isinstance(heard, str)} <= {"tls-gap"}
        if half.passes:
            assert b"".join(pieces) == b"".join(step.octets for step in mine if not step.missing)
            missing = sum(heard for heard in listener.heard if isinstance(heard, int))
            assert missing + sum(map(len, pieces)) == sum(len(step.octets) for step in mine)
            continue
        # Nothing but what was decrypted of this side, each once, in the order of its records.
        numbers = [piece[:_NUMBER] for piece in pieces]
        assert numbers == sorted(set(numbers))
        assert all(int.from_bytes(number, "big") & 1 == side for number in numbers)
    out: list[AnyEvent] = []
    _run(
        _steps(data[1:], bool(choice & 2), numbered=False),
        choice,
        ZmtpConnection(out, 1, CLIENT, SERVER, (not choice & 4,) * 2, Limits()),
    )
    shown(out)


def _run(steps: list[_Step], choice: int, inner: StreamDissection) -> tuple[TlsHalf, TlsHalf]:
    """Both halves after all steps, which came out at ``inner``."""
    decrypted = Plaintexts(_MOST_PLAINTEXT) if choice & 1 else None
    table = Tls(decrypted)
    connection = table.connect(inner, Address(CLIENT, 40000), Address(SERVER, 5555))
    halves = connection.client, connection.server
    for number, step in enumerate(steps, 1):
        if decrypted is not None and step.words is not None:
            types, outer_types, lengths, records, plaintexts = step.words
            decrypted.put(_KEYS[step.side], types, outer_types, lengths, records, plaintexts)
            assert decrypted.octets <= _MOST_PLAINTEXT
        if connection.rejected or not step.octets:
            continue
        if step.missing:
            halves[step.side].gap(len(step.octets), False, number, number)
        else:
            halves[step.side].feed(step.octets, number, number)
    connection.finish("fin", 0, len(steps) + 1)
    connection.release()
    assert len(table.skipped()) <= 1
    if decrypted is not None:
        assert decrypted.octets >= 200 * decrypted.count
        assert (decrypted.octets == 0) == (decrypted.count == 0)
    return halves


def _steps(data: bytes, tls13: bool, numbered: bool) -> list[_Step]:
    """The packets that turns stand for; ``numbered`` plaintexts say which they are."""
    steps = []
    for number, (mark, octets) in enumerate(turns(data)):
        side, kind = mark & 1, mark >> 1 & 7
        words: list[list[str]] | None = None
        if kind in (DECRYPTED, TWO):
            half = len(octets) // 2 if kind == TWO else len(octets)
            parts = [part for part in (octets[:half], octets[half:]) if part]
            plain = [_name(2 * number + place, side) + part if numbered else part for place, part in enumerate(parts)]
            records = [_sealed(2 * number + place, part) for place, part in enumerate(parts)]
            outer = ["23"] * len(parts) if tls13 else []
            words = [
                ["23"] * len(parts),
                outer,
                [str(len(record)) for record in records],
                [record.hex() for record in records],
                [part.hex() for part in plain],
            ]
            octets = b"".join(record(23, each) for each in records)
        elif kind == SEALED:
            octets = record(23, _sealed(2 * number, octets))
        elif kind == HIDDEN:
            inside = _sealed(2 * number, octets)
            words = [["22"], ["23"], [str(len(inside))], [], []]
            octets = record(23, inside)
        elif kind == HELLO:
            octets = record(22, octets)
        elif kind == WORDS:
            fields = octets.split(b"|")
            numbers, texts = [list(map(str, part)) for part in fields[:3]], fields[3:]
            foreign = [(_name(2 * number, side) + part if numbered else part).hex() for part in texts[1:] if part]
            words = [*numbers, *[[]] * (3 - len(numbers)), [part.hex() for part in texts[:1] if part], foreign]
            octets = b""
        steps.append(_Step(side, octets, kind == HOLE, words))
    return steps


def record(kind: int, octets: bytes) -> bytes:
    """A record of TLS; none of no octets, which there is not."""
    octets = octets or b"\0"
    return bytes([kind, 3, 3]) + len(octets).to_bytes(2, "big") + octets


def _sealed(number: int, octets: bytes) -> bytes:
    return number.to_bytes(_NUMBER, "big") + _TAG + octets


def _name(number: int, side: int) -> bytes:
    return (2 * number + side).to_bytes(_NUMBER, "big")


# ------------------------------------------------------------------ permessage-deflate

_ANSWERS = (
    b"permessage-deflate",
    b"permessage-deflate; server_no_context_takeover; client_no_context_takeover",
    b"permessage-deflate; client_no_context_takeover; server_max_window_bits=10",
    b"x-other; a=1, permessage-deflate; server_no_context_takeover",
)
COMPRESSED, PLAIN, DEFLATED, STREAM = range(4)
"""Kinds of turns: a message to compress, one that is not compressed, octets as if they were, octets of the stream."""
GOES_ON, LOST = 8, 16
"""In a mark: the message continues in the next frame of that side; the capture lacks the frame."""
_MASK = b"\x11\x22\x33\x44"


class _Writer:
    """One side's messages of WebSocket."""

    def __init__(self, side: int, takeover: bool, compresses: bool) -> None:
        self._side = side
        self._takeover = takeover
        self._compresses = compresses
        self._compressor = self._anew()
        self._open: int | None = None  # the kind of the message that goes on

    @staticmethod
    def _anew() -> "zlib._Compress":
        return zlib.compressobj(wbits=-9)

    def frame(self, kind: int, octets: bytes, goes_on: bool) -> bytes:
        """The frame that a turn stands for."""
        first = 0 if self._open is not None else ws.BINARY
        kind = kind if self._open is None else self._open
        if kind == COMPRESSED and self._compresses:
            octets = self._compressor.compress(octets) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
            if not goes_on:
                octets = octets.removesuffix(b"\0\0\xff\xff") or b"\0"
                if not self._takeover:
                    self._compressor = self._anew()
        if first and (kind == DEFLATED or (kind == COMPRESSED and self._compresses)):
            first |= ws.COMPRESSED
        self._open = kind if goes_on else None
        length = len(octets)
        size = bytes([length]) if length < 126 else b"\x7e" + length.to_bytes(2, "big")
        begin = bytes([first | (0 if goes_on else ws.FINAL)])
        if self._side:
            return begin + size + octets
        return begin + bytes([size[0] | 0x80]) + size[1:] + _MASK + ws.unmask(octets, _MASK)


def deflate(data: bytes) -> None:
    """Messages after an upgrade that agrees on compression; the first octet says on what.

    Cutting changes nothing, and neither does compression: without it the same is said. A turn's mark has the side in
    its lowest bit and a kind of turn above it.
    """
    choice = data[0] if data else 0
    protocol = b"ZWS2.0/NULL" if choice & 4 else b"ZWS2.0"
    opening = upgrade(protocol, _ANSWERS[choice % 4])
    said = list(turns(data[1:]))
    sent = _framed(said, choice, True)
    if any(mark & LOST for mark, _ in said):
        shown(converse(opening + sent, 0, holes=True))
        shown(converse(opening + sent, 1 + len(data), holes=True))
        return
    same_however_cut(opening + sent, len(data))
    if all(mark >> 1 & 3 in (COMPRESSED, PLAIN) for mark, _ in said):
        plain, compressed = (
            told(converse(upgrade(protocol) + _framed(said, choice, False), 0)),
            told(converse(upgrade(protocol, _ANSWERS[choice % 4]) + sent, 0)),
        )
        for events in (plain, compressed):
            events.pop("", None)  # the summary counts the octets of the stream
        assert plain == compressed


def _framed(said: list[tuple[int, bytes]], choice: int, compresses: bool) -> list[tuple[int, bytes]]:
    """The octets of the two sides; bit 1 of a mark says that they are missing."""
    parameters = permessage.parameters(_ANSWERS[choice % 4].decode().split(", "))
    assert parameters is not None
    writers = [
        _Writer(side, f"{name}_no_context_takeover" not in parameters, compresses)
        for side, name in enumerate(("client", "server"))
    ]
    sent = []
    for mark, octets in said:
        side, kind = mark & 1, mark >> 1 & 3
        if kind != STREAM:
            octets = writers[side].frame(kind, octets, bool(mark & GOES_ON))
        sent.append((side | (2 if mark & LOST else 0), octets))
    return sent
