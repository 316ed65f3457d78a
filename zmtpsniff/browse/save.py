"""Taking out of a capture what somebody found there."""

import errno
import io
import os
from pathlib import Path

from dissectors.events import AnyEvent, Message
from zmtpsniff import __version__
from zmtpsniff.browse.packet_store import PacketLog
from zmtpsniff.capture.block import Block
from zmtpsniff.capture.pcapng_writer import Provenance
from zmtpsniff.capture.saver import Saver
from zmtpsniff.errors import Error
from zmtpsniff.net.addresses import addresses
from zmtpsniff.net.networks import Networks
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.render.jsonl import JsonlRenderer
from zmtpsniff.render.payload import frames_to_show


def json_line(event: AnyEvent, show_secrets: bool = False) -> str:
    """A record as a line of JSON Lines, with all its octets but passwords."""
    if isinstance(event, Message) and not show_secrets:
        fields = {name: getattr(event, name) for name in event.__struct_fields__}
        event = Message(**{**fields, "frames": frames_to_show(event)})
    stream = io.BytesIO()
    JsonlRenderer(stream, max_bytes=0).write([event])
    return stream.getvalue().decode().rstrip("\n")


def save_octets(path: Path, octets: bytes) -> None:
    """Write octets to a new file; raises Error if there is one of that name, or it cannot be written."""
    try:
        with open(path, "xb") as file:
            file.write(octets)
    except OSError as error:
        raise Error(f"{error.strerror or error}: {path}") from error  # the reason is seen on a narrow line


def save_packets(path: Path, packets: PacketLog, pairs: set[frozenset[str]] | None) -> int:
    """Write packets to a new pcapng file: those between pairs of addresses, None for all. Returns how many.

    Whole conversations are saved, because a message can be read again only with the packets before it. Raises
    Error as save_octets() does.
    """
    if os.path.lexists(path):
        raise Error(f"{os.strerror(errno.EEXIST)}: {path}")
    saver = Saver(str(path), Provenance(f"zmtpsniff {__version__}"))
    decoder = HeaderDecoder(networks=Networks())
    for batch in packets.all():
        if pairs is None:
            saver.write(Block.of(batch))
            continue
        wanted = set()
        segments = decoder.segments(batch, 0)
        for number, key in [segment[1:3] for segment in segments] + [(each[1], each[3]) for each in decoder.datagrams]:
            if frozenset(end.text for end in addresses(key)) in pairs:
                wanted.add(number)
        saver.write(Block.of(batch[number] for number in sorted(wanted)))
    saver.close()
    if saver.faults:
        raise Error(saver.faults[0].detail)
    return saver.packets
