"""The conversations that recorded captures hold, taken out of them."""

import os
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.paths import PROJECT
from tests.world.conversation import CLIENT, SERVER, Conversation, Piece
from zmtpsniff.capture.files import open_captures
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.segment import ACK, FIN, RST, SYN


def folders() -> list[Path]:
    """Where captures are: fixtures, and those that ZMTPSNIFF_CAPTURES or a folder beside the checkout holds."""
    named = os.environ.get("ZMTPSNIFF_CAPTURES", "")
    places = [PROJECT / "fixtures", *(Path(name) for name in named.split(os.pathsep) if name)]
    if not named:
        places.append(PROJECT.parent / "shared" / "captures")
    return [place for place in places if place.is_dir()]


def captures() -> dict[str, Path]:
    """Captures by name, without what is no TCP and what has been disturbed already."""
    found: dict[str, Path] = {}
    for folder in folders():
        for path in sorted(folder.glob("*.pcap*")):
            name = path.name.split(".")[0]
            if not name.startswith(("net_", "mix_", "epgm_", "draft_radio_dish_udp", "ws_", "rec_tls_")):
                found.setdefault(name, path)
    return found


@cache
def from_capture(path: Path) -> tuple[Conversation, ...]:
    """The TCP connections of a capture that lacks nothing and is in order, but for retransmissions."""
    order: list[list[Any]] = []  # [key of the client, pieces, next sequence numbers, end, who ended first]
    open_: dict[bytes, tuple[int, int]] = {}
    decoder = HeaderDecoder()
    number = 1
    for batch in open_captures([str(path)]).batches():
        for time_ns, _, key, seq, _, flags, payload, missing in decoder.segments(batch, number):
            if missing:
                return ()
            if flags & SYN and not flags & ACK:
                size = (len(key) - 4) // 2
                back = key[size : 2 * size] + key[:size] + key[-2:] + key[-4:-2]
                open_[key] = len(order), CLIENT
                open_[back] = len(order), SERVER
                order.append([[], [(seq + 1) % 2**32, None], "open", CLIENT])
                continue
            if key not in open_:
                continue
            index, side = open_[key]
            pieces, expected, end, _ = order[index]
            if flags & SYN:
                expected[side] = (seq + 1) % 2**32
                continue
            if payload:
                skip = (expected[side] - seq) % 2**32
                if skip < len(payload):
                    pieces.append(Piece(side, payload[skip:], time_ns))
                    expected[side] = (seq + len(payload)) % 2**32
                elif skip >= 2**31:
                    return ()  # not in order
            if flags & RST:
                order[index][2] = "rst"
                if end == "open":
                    order[index][3] = side
            elif flags & FIN and end == "open":
                order[index][2:] = "fin", side
        number += len(batch)
    name = path.name.split(".")[0]
    return tuple(
        Conversation(f"{name}:{number}", tuple(pieces), end, first)
        for number, (pieces, _, end, first) in enumerate(order, 1)
    )


def conversations(least: int = 1, most: int = 1 << 30) -> list[Conversation]:
    """All conversations of the captures with so many octets."""
    found = [one for path in captures().values() for one in from_capture(path)]
    return [one for one in found if least <= sum(len(piece.data) for piece in one.pieces) <= most]
