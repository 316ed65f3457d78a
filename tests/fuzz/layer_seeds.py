"""The first inputs of the targets in ``layers.py``: TLS that tshark decrypts, and compressed WebSocket of wsproto."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from unittest.mock import patch

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, Request
from wsproto.extensions import PerMessageDeflate

from tests.support.settings import WIRE
from zmtpsniff.capture.files import open_captures
from zmtpsniff.capture.plaintexts import Plaintexts
from zmtpsniff.engine.sniffer import Collaborators, Sniffer
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.tls import Tls

from .layers import (
    COMPRESSED,
    DECRYPTED,
    DEFLATED,
    GOES_ON,
    HIDDEN,
    HOLE,
    LOST,
    PLAIN,
    RAW,
    SEALED,
    STREAM,
    TWO,
    WORDS,
    record,
)
from .octets import packed

_MOST = 600  # octets of a turn
_READY = b"\2\5READY\x0bSocket-Type\0\0\0\6DEALER\x08Identity\0\0\0\0"
_BODIES = (b"weather", b"", b"the same again and again " * 12, b"the same again and again " * 13, b"end")

# ------------------------------------------------------------------ TLS


class _NotedPlaintexts(Plaintexts):
    """Keeps what was taken out, in order: which side's, how long its record was, and the plaintext."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[int, int, bytes | None]] = []

    def take(self, key: bytes, record: bytes) -> bytes | None:
        plaintext = super().take(key, record)
        ports = int.from_bytes(key[-4:-2], "big"), int.from_bytes(key[-2:], "big")
        self.taken.append((int(ports[0] < ports[1]), len(record), plaintext))
        return plaintext


def tls(path: Path) -> Iterator[bytes]:
    """A recorded conversation, whose keys are inside: as it was on the wire, and as tshark decrypted its records."""
    from zmtpsniff.capture.tshark import open_with_tshark

    wire = []
    decoder = HeaderDecoder()
    for batch in open_captures([str(path)]).batches():
        for segment in decoder.segments(batch, 1):
            key, payload = segment[2], segment[6]
            if payload:
                wire.append((int(key[-4:-2] < key[-2:]), payload[:_MOST]))
    choice = 3 if "1_3" in path.name else 1
    noted = _NotedPlaintexts()
    for _ in Sniffer(open_with_tshark([str(path)], decrypted=noted), WIRE, Collaborators(tls=Tls(noted))).events():
        pass
    assert any(plaintext for _, _, plaintext in noted.taken), "tshark decrypts nothing"
    # Both begin as they did; the turns that follow stand for the records of application data.
    begin = [(side | RAW << 1, next(octets for other, octets in wire if other == side)) for side in (0, 1)]
    begin = [(mark, octets[: 5 + int.from_bytes(octets[3:5], "big")]) for mark, octets in begin]
    told = [
        (side | (SEALED if plaintext is None else DECRYPTED if plaintext else HIDDEN) << 1,
         (plaintext or bytes(max(length - 20, 1)))[:_MOST])
        for side, length, plaintext in noted.taken
    ]  # fmt: skip
    yield bytes([choice]) + packed(begin + told)
    yield bytes([choice]) + packed((side | RAW << 1, octets) for side, octets in wire)
    yield bytes([choice & 2]) + packed(begin + told)  # without keys
    yield bytes([choice | 4]) + packed(told)  # from the middle
    holes = [((mark & 1) | HOLE << 1, octets) if place % 4 == 3 else (mark, octets) for place, (mark, octets) in
             enumerate(told)]  # fmt: skip
    yield bytes([choice]) + packed(begin + holes)
    both = [(mark & 1 | TWO << 1, octets + octets) for mark, octets in told if mark >> 1 == DECRYPTED]
    # What tshark says of several records at once, of the same ones again, of an alert; more than may wait.
    words = [b"\x17|\x17|\x20|sealed, longer than its tag is|plain"] * 2 + [b"\x17\x16\x15|\x17"]
    words += [
        b"\x16\x16|\x17|\x05\x30||",
        b"\x16\x16|\x17|\x05\x30||",
        b"\x17|\x17|\x11|alert|",
        b"|||not sealed|plain",
    ]
    words += [b"\x17|\x17|\x20|%d sealed, longer than its tag is|plain" % number for number in range(10)]
    hidden = [(HIDDEN << 1, bytes(28))] * 3
    yield bytes([choice]) + packed([*begin, *((WORDS << 1, octets) for octets in words), *hidden, *both])
    # Records that nobody decrypts, some of whose octets are missing, and what is no record at all; a hole at once.
    whole = record(23, bytes(range(40)))
    parts = [(RAW << 1, whole[:20]), (HOLE << 1, whole[20:30]), (RAW << 1, whole[30:]), (RAW << 1, b"no record")]
    sealed = [(SEALED << 1, bytes(9)), told[-1], (RAW << 1 | 1, whole[:12]), told[-2], (RAW << 1, whole[:15])]
    yield bytes([choice]) + packed(begin + told[-4:] + parts + sealed)
    yield bytes([choice]) + packed([(HOLE << 1, b"gone"), (RAW << 1, whole)])


# ------------------------------------------------------------------ WebSocket


def compressed_websocket(takeover: bool) -> list[tuple[int, bytes]]:
    """The octets of two sides that agree on compression, as wsproto writes them."""
    extension = PerMessageDeflate(
        client_no_context_takeover=not takeover, server_no_context_takeover=not takeover, client_max_window_bits=10
    )
    with patch.object(os, "urandom", Random(5).randbytes):  # the same seeds each time
        ends = WSConnection(ConnectionType.CLIENT), WSConnection(ConnectionType.SERVER)
        sent = [(0, ends[0].send(Request("a:5555", "/", subprotocols=["ZWS2.0/NULL"], extensions=[extension])))]
        ends[1].receive_data(sent[0][1])
        list(ends[1].events())
        sent.append((1, ends[1].send(AcceptConnection("ZWS2.0/NULL", extensions=[PerMessageDeflate()]))))
        ends[0].receive_data(sent[1][1])
        list(ends[0].events())
        assert b"permessage-deflate" in sent[1][1]
        for body in (_READY, *(b"\0" + body for body in _BODIES)):
            sent += [(side, ends[side].send(BytesMessage(body))) for side in (0, 1)]
        for part, finished in ((b"\0in parts, ", False), (b"in parts, ", False), (b"the last", True)):
            sent.append((1, ends[1].send(BytesMessage(part, message_finished=finished))))
    return sent


def deflate() -> Iterable[bytes]:
    """The same conversation, made by the target itself, with each answer; wsproto's frames as they are."""
    said = [(side | COMPRESSED << 1, body) for body in (_READY, *(b"\0" + body for body in _BODIES)) for side in (0, 1)]
    parts = [(1 | GOES_ON, b"\0in parts, "), (1 | GOES_ON, b"in parts, "), (1, b"the last"), (PLAIN << 1, b"\0plain")]
    for choice in range(4):
        yield bytes([choice | 4]) + packed(said + parts)
    yield bytes([0]) + packed([(0, b"first"), (1, b"second"), *said[2:]])  # identities come first
    lost = [(mark | LOST if place in (4, 7) else mark, octets) for place, (mark, octets) in enumerate(said + parts)]
    for choice in (4, 5):
        yield bytes([choice]) + packed(lost)
    for takeover in (True, False):
        frames = compressed_websocket(takeover)[2:]
        yield bytes([4 | (not takeover)]) + packed((side | STREAM << 1, octets) for side, octets in frames)
    wrong = [(1 | DEFLATED << 1, octets) for octets in (b"\xff", b"\x4b\x04\x00", b"", b"\x63\0\x03\0", bytes(9))]
    yield bytes([5]) + packed([*said[:4], *wrong, *said[4:6]])
