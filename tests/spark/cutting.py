"""A capture cut into files, dissected file by file and joined without Spark: its rows, and what was redone."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice, pairwise
from typing import Any

import msgspec
from in_order import dissect_sorted, read_segments
from streams import RECORD, Packets

from dissectors.events import AnyEvent, Capture, Comment, Connection, Message, Octets, Problem
from zmtpsniff.capture.source import Packet
from zmtpsniff.decode_as import DecodeAs
from zmtpsniff.packets import HeaderDecoder
from zmtpsniff.sniffer import Sniffer
from zmtpsniff.spark.join import Join
from zmtpsniff.spark.pieces import Batch, Identity, Piece, Verdict, place
from zmtpsniff.spark.runs import Run
from zmtpsniff.spark.scan import Scan

_STREAMS = ("tcp", "ws", "ipc")


@dataclass
class Joined:
    rows: list[Any]
    fates: Counter[str] = field(default_factory=Counter)
    why: Counter[str] = field(default_factory=Counter)
    sizes: list[int] = field(default_factory=list)


def row(event: AnyEvent, who: tuple[Any, ...], packet: int | None) -> Any:
    """An event as what is compared: its fields, with the connection instead of the flow."""
    fields = msgspec.structs.asdict(event)
    fields.pop("flow", None)
    fields.pop("packet", None)
    return type(event).__name__, who, packet, repr(fields)


def whole(packets: Sequence[Packet], decode_as: Sequence[DecodeAs] = ()) -> list[Any]:
    """The rows of a capture that is dissected as a whole."""
    sniffer = Sniffer(Packets(packets), decode_as=decode_as)
    events = [event for batch in sniffer.events() for event in batch]
    return rows_of(events)


def rows_of(events: Sequence[AnyEvent]) -> list[Any]:
    who = {event.flow: _who(event.client.address, event.server.address, event.start_ns)
           for event in events if isinstance(event, Connection) and event.transport in _STREAMS}  # fmt: skip
    return sorted(
        row(event, who[event.flow], getattr(event, "packet", None))
        for event in events
        if not isinstance(event, Capture | Comment) and event.flow in who
    )


def _who(client: str, server: str, start_ns: int) -> tuple[Any, ...]:
    return client, server, start_ns


def merged(files: Sequence[Sequence[Packet]]) -> tuple[list[Packet], dict[tuple[int, int], int]]:
    """The packets of several files as ``read`` merges them, and the number there of each file's."""
    places = []
    for file, packets in enumerate(files):
        orders = accumulate((packet[0] for packet in packets), max)
        places += [(order_ns, file, number) for number, order_ns in enumerate(orders, 1)]
    places.sort()
    numbers = {(file, number): at for at, (_, file, number) in enumerate(places, 1)}
    return [files[file][number - 1] for _, file, number in places], numbers


def cut(packets: Sequence[Packet], places: Sequence[int]) -> list[list[Packet]]:
    edges = [0, *sorted(places), len(packets)]
    return [list(packets[begin:end]) for begin, end in pairwise(edges)]


def unrolled(events: Iterable[AnyEvent | Run]) -> Iterator[AnyEvent]:
    """The same events, with the messages of each run by themselves."""
    for event in events:
        if not isinstance(event, Run):
            yield event
            continue
        frames = iter(event.frames)
        for count in event.counts:
            mine: list[Octets] = [*islice(frames, count)]
            yield Message(event.time_ns, event.packet, event.flow, event.src, event.dst, mine, event.socket_type)


def joined(files: Sequence[Sequence[Packet]], decode_as: Sequence[DecodeAs] = ()) -> Joined:
    """The rows of a capture that is dissected file by file."""
    _, numbers = merged(files)
    scans: list[Scan] = []
    batches: list[list[Batch]] = []
    pieces: dict[bytes, list[Piece]] = defaultdict(list)
    out = Joined([])
    end_ns = 0
    for number, packets in enumerate(files):
        scan = Scan(Packets(packets), number, decode_as=decode_as)
        scans.append(scan)
        batches.append(list(scan.batches()))
        if scan.summary.end_ns is not None:
            end_ns = max(end_ns, scan.summary.end_ns)
        for piece in scan.pieces:
            octets = piece.encode()
            out.sizes.append(len(octets))
            pieces[piece.key].append(Piece.decode(octets))

    def numbered(packet: int, file: int | None = None) -> int:
        """The number in all files of a packet of one file, or of what holds the file, too."""
        of, number, offset = place(packet)
        assert offset == RECORD * number
        return numbers[of if file is None else file, number]

    def add(rows: list[Any], events: Sequence[AnyEvent], identities: dict[int, Identity]) -> None:
        for event in events:
            one = identities[event.flow]
            packet = getattr(event, "packet", None)
            if packet is not None:
                packet = numbered(packet)
            rows.append(row(event, _who(one.client, one.server, one.start_ns), packet))

    def redo(key: bytes, wanted: Sequence[int], state: bytes | None) -> list[Any] | None:
        """The rows of a tuple dissected from some files; None if the state does not do."""
        segments = []
        decoder = HeaderDecoder()
        for number in sorted(set(wanted)):
            for found in read_segments(Packets(files[number]), number, {key}, decoder):
                segments += found
        segments.sort(key=lambda one: one.segment[1])
        rows: list[Any] = []
        for done in dissect_sorted(segments, lambda _: end_ns, lambda _: state, decode_as=decode_as):
            if done.unsure:
                assert state is not None
                return None
            add(rows, done.events, done.identities)
        return rows

    verdicts: dict[tuple[int, int], Verdict] = {}
    for key, mine in pieces.items():
        mine.sort(key=lambda piece: (piece.first_ns, piece.file))
        told: list[Any] = []
        join = Join(None, decode_as=decode_as)
        doubtful: Verdict | None = None
        for piece in mine:
            # Each goes on with the octets that the one before left, as in another run.
            state = join.state()
            join = Join(state, decode_as=decode_as)
            following = mine[mine.index(piece) + 1 : mine.index(piece) + 2]
            verdict, events = next(iter(join.take([piece, *following])))
            add(told, events, join.identities)
            verdicts[verdict.file, verdict.piece] = verdict
            if verdict.fate == "redo":
                out.why[verdict.why] += 1
                doubtful = verdict
                break
        if doubtful is None:
            add(told, join.finish(end_ns), join.identities)
        else:
            later = [piece.file for piece in mine if (piece.file, piece.number) not in verdicts]
            later.append(doubtful.file)
            for piece in mine:
                if piece.loose and piece.file in later:
                    later += [max(piece.file - 1, 0), min(piece.file + 1, len(files) - 1)]
            again = None if doubtful.anew else redo(key, later, doubtful.state)
            for piece in mine:
                if (piece.file, piece.number) not in verdicts or again is None:
                    verdicts[piece.file, piece.number] = doubtful._replace(file=piece.file, piece=piece.number)
            if again is None:
                told = []
                out.why["anew"] += 1
                again = redo(key, range(len(files)), None)
                assert again is not None
            told += again
        out.rows += told
    for verdict in verdicts.values():
        out.fates[verdict.fate] += 1
    for number, given in enumerate(batches):
        for batch in given:
            for event in unrolled(batch.events):
                if getattr(event, "flow", None) is None:
                    continue
                one = scans[number].identities[event.flow]
                verdict = verdicts[number, one.piece]
                if verdict.fate in ("redo", "told") or (batch.part == "alone" and verdict.fate != "alone"):
                    continue
                who = _who(one.client, one.server, one.start_ns)
                if batch.part == "stretch":
                    if verdict.fate == "passed":
                        continue
                    if verdict.fate == "joined":
                        assert verdict.client is not None
                        who = _who(verdict.client, verdict.server, verdict.start_ns)
                        if hasattr(event, "socket_type"):
                            assert verdict.socket_types is not None
                            event.socket_type = verdict.socket_types[event.src]
                packet = getattr(event, "packet", None)
                out.rows.append(row(event, who, None if packet is None else numbered(packet, number)))
    out.rows.sort()
    return out


__all__ = ["Joined", "Problem", "cut", "joined", "merged", "rows_of", "whole"]
