"""Whether a connection stands where a piece begins, and how it goes on where the piece ends."""

from collections import deque

from dissectors.events import Cut, Octets
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.half import Half
from dissectors.zmtp.security import counts_up
from zmtpsniff.flows import Flow
from zmtpsniff.reassembly import Direction, distance
from zmtpsniff.segment import SYN, Segment
from zmtpsniff.spark.pieces import Piece, Synced, placed

MODULO = 1 << 32  # of sequence numbers
# What a half knows of the octets that it reads, which goes on from where the piece ends. Not whether its message is
# damaged: one that is not is all that can be joined, and a piece that was not sure of its first says so.
_READING = (
    *("_between", "_body", "_chunks", "_cut", "_ends", "_flags", "_held", "_hole", "_kept", "_left", "_length"),
    *("_long_frames", "_message_octets", "_need", "_parts", "_parts_octets"),
    *("_searched", "_searching", "_starts", "_try_at"),
)


class DoubtError(Exception):
    """A piece cannot be joined; its text says why."""


def moved(segment: Segment, piece: Piece) -> Segment:
    """A segment that a piece names by its number, its packet numbered as here."""
    time_ns, packet, *rest = segment
    return (time_ns, piece.placed(packet), *rest)  # type: ignore[return-value]


def place_flow(flow: Flow, piece: Piece) -> None:
    """Number the packets that a flow knows of, by their marks, as those of ``piece``."""
    first_ns, file = piece.first_ns, piece.file
    flow.last_packet = placed(first_ns, file, flow.last_packet)
    for direction in (flow.client, flow.server):
        _place_direction(direction, piece)
    if isinstance(flow.dissection, ZmtpConnection):
        for half in flow.dissection.halves:
            half.packet = placed(first_ns, file, half.packet) if half.packet else 0


def _place_direction(direction: Direction, piece: Piece) -> None:
    first_ns, file = piece.first_ns, piece.file
    if direction.latest[0]:
        direction.latest = placed(first_ns, file, direction.latest[0]), direction.latest[1]
    direction.waiting = [one._replace(packet=placed(first_ns, file, one.packet)) for one in direction.waiting]
    if direction.pending is not None:
        time_ns, packet, *rest = direction.pending
        direction.pending = (time_ns, placed(first_ns, file, packet), *rest)  # type: ignore[assignment]


def sync_packets(piece: Piece) -> list[int]:
    """The last packet of each half's head, of those that have a sync point."""
    found = []
    for side, synced in enumerate(piece.synced):
        if synced is not None:
            found.append(max((head[0] for head in piece.heads or () if head[2] == side), default=0))
    return found


def check_direction(mine: Direction, theirs: Direction, piece: Piece) -> None:
    """Raise DoubtError unless segments were put in order in the piece as they are here."""
    if mine.waiting or mine.acked > mine.offset or mine.fin is not None or mine.pending is not None or not mine.seen:
        raise DoubtError("octets are waiting")
    if theirs.pending is not None:
        raise DoubtError("a SYN that does not fit")
    first = mine.isn if mine.next is None else (mine.next - mine.offset - 1) % MODULO
    for segment in piece.notable:
        if segment[2] == mine.key and segment[5] & SYN and segment[3] in (mine.isn, first):
            raise DoubtError("a SYN that comes again")
    if mine.next is None:
        dissection = mine.flow.dissection
        if isinstance(dissection, ZmtpConnection) and not dissection.accepted:
            raise DoubtError("a silent side")  # what is acknowledged counts, and a piece does not have that
        return
    base = piece.bases[mine.key][0]
    if base is None and theirs.next is not None:
        base = (theirs.next - theirs.offset) % MODULO
    if base is not None and base != mine.next:
        raise DoubtError("octets are missing or come again")
    top = piece.top_acks.get(mine.key)
    if top is not None and distance(top, mine.next) > 0:
        raise DoubtError("octets are acknowledged that are not there")


def transplant_direction(
    mine: Direction, theirs: Direction, offset: int, recent: list[tuple[int, bytes]], piece: Piece
) -> None:
    """Let a direction go on where the piece ends, which stood at ``offset`` before it and had delivered ``recent``."""
    if theirs.next is None:
        return
    _place_direction(theirs, piece)
    mine.next = theirs.next
    mine.offset = offset + theirs.offset
    mine.fin = None if theirs.fin is None else offset + theirs.fin
    mine.acked = offset + theirs.acked if theirs.acked else 0
    mine.doubts, mine.doubts_at, mine.doubts_since = theirs.doubts, offset + theirs.doubts_at, theirs.doubts_since
    mine.waiting = [one._replace(offset=offset + one.offset) for one in theirs.waiting]
    mine.waiting_octets = theirs.waiting_octets
    mine.flow.table.waiting_octets += theirs.waiting_octets
    mine.latest = max(mine.latest, theirs.latest)
    mine.notable = theirs.notable
    mine.reset, mine.reset_before, mine.reset_ns = theirs.reset, theirs.reset_before, theirs.reset_ns
    if mine.receiver is not None:
        merged = [segment for segment in recent if segment not in theirs.recent]
        mine.recent = deque([*merged, *theirs.recent], mine.recent.maxlen)
        mine.recent_until = 0


def check_half(half: Half, synced: Synced, piece: Piece) -> None:
    """Raise DoubtError unless a half stands at the sync point with nothing left over."""
    between = half._state in (half._frames_v1, half._frames_v2)
    if not between or half.framing != synced.framing or half._held or half._parts or half._damaged:
        raise DoubtError("not at the sync point")
    if not set(synced.told) <= half._told:
        raise DoubtError("problems that are told once")
    security = half.connection.security
    in_order = not synced.nonces or counts_up(security.last_nonce(half.side), synced.nonces[0])
    if security.mechanism == "CURVE" and not in_order:
        raise DoubtError("nonces")


def transplant_half(half: Half, theirs: Half, synced: Synced, piece: Piece) -> None:
    """Let a half go on where the piece ends, with what it read after the sync point added."""
    for name in _READING:
        setattr(half, name, getattr(theirs, name))
    half._state = getattr(half, theirs._state.__name__)
    half._told |= theirs._told
    half.octets += theirs.octets - synced.octets
    half.messages += theirs.messages - synced.messages
    if theirs.packet:
        half.time_ns, half.packet = theirs.time_ns, placed(piece.first_ns, piece.file, theirs.packet)
    if synced.nonces:
        half.connection.security.note_nonce(half.side, synced.nonces[1])
    for on, data, length in synced.topics:
        topic: Octets = data if length < 0 else Cut(data, length)
        if on:
            half.topics[topic] = None
        else:
            half.topics.pop(topic, None)
