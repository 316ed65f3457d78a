"""Fuzz targets for keys of CURVE: lines of key files, and what opened boxes hold."""

from dissectors.events import AnyEvent, Command, Message
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.curve import Curve as Opener
from dissectors.zmtp.curve_keys import KeyLineError, KeyRing, format_key, parse_key
from tests.support.curve_octets import Curve, Sent
from tests.world.events import CLIENT, SERVER
from tests.world.octets import frame, peers

from .octets import turns
from .output import is_safe, shown

_COMMAND, _HOLE, _DAMAGE = 2, 4, 8  # bits of a mark, beside MORE and, the highest, the side


def curve_keys(data: bytes) -> None:
    """A line of a key file is a key, written as it was read, or none; what is wrong with it names no key."""
    ring = KeyRing()
    for line in data.decode("ascii", "replace").splitlines():
        try:
            key = parse_key(line)
            ring.add_line(line)
        except KeyLineError as error:
            _names_no_key(str(error), line)
            continue
        assert key is None or parse_key(format_key(key)) == key
    again = KeyRing()
    for line in ring.lines():
        again.add_line(line)
    assert again.lines() == ring.lines()


def _names_no_key(text: str, line: str) -> None:
    is_safe(text, lines=1)
    assert not any(len(word) > 20 and word in text for word in line.split())


def curve_plaintexts(data: bytes) -> None:
    """Whatever is in boxes is read as the same frames are in clear; holes and damage between them raise nothing."""
    said = [(mark >> 7, mark, octets) for mark, octets in turns(data)][:100]
    curve = Curve()
    sealed, clear = curve.handshake(), peers()
    marks = [0] * len(sealed)
    for side, mark, body in said:
        flags = mark & 3
        octets = curve.message(side, body, flags)
        if mark & _DAMAGE:
            octets = octets[:-1] + bytes([octets[-1] ^ 1])
        sealed.append((side, octets))
        marks.append(mark)
        clear.append((side, frame(body, flags & 1 | (flags & _COMMAND) << 1)))
    events = _dissect(sealed, marks, curve)
    shown(events)
    if not any(mark & (_HOLE | _DAMAGE) for mark in marks):
        assert _contents(events) == _contents(_dissect(clear, [0] * len(clear), curve))


def _dissect(sent: Sent, marks: list[int], curve: Curve) -> list[AnyEvent]:
    out: list[AnyEvent] = []
    opener = Opener(KeyRing(curve.ways()["k"]))
    connection = ZmtpConnection(out, 1, CLIENT, SERVER, curve=opener)
    for number, ((side, octets), mark) in enumerate(zip(sent, marks, strict=True), 1):
        if mark & _HOLE:
            connection.halves[side].gap(len(octets), False, number, number)
        else:
            connection.halves[side].feed(octets, number, number)
    connection.finish("fin", 0, len(sent) + 1)
    connection.release()
    return out


def _contents(events: list[AnyEvent]) -> list[object]:
    return [
        (event.src, event.frames) if isinstance(event, Message) else (event.src, event.name, event.data)
        for event in events
        if isinstance(event, Message) or (isinstance(event, Command) and event.name not in _HANDSHAKE)
    ]


_HANDSHAKE = frozenset({"HELLO", "WELCOME", "INITIATE", "READY"})
