"""What passes from the scan of one file to the join of a tuple: pieces, verdicts, and the names of connections."""

from collections.abc import Sequence
from hashlib import sha256
from operator import add
from typing import Literal, NamedTuple

import msgspec

from dissectors.events import AnyEvent
from zmtpsniff.flows import End
from zmtpsniff.segment import Segment
from zmtpsniff.spark.runs import Run

Part = Literal["born", "alone", "stretch"]
Fate = Literal["alone", "joined", "passed", "told", "redo"]

_FILE_BITS = 24
_NUMBER_BITS = 40
_OFFSET_BITS = 48
_MARK_BITS = _NUMBER_BITS + _OFFSET_BITS
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


class Identity(NamedTuple):
    """Which connection a flow is."""

    conn_id: str  # 16 hexadecimal digits
    tuple_key: bytes  # the same for both directions
    client: str  # "10.0.0.1:49152"
    server: str
    start_ns: int
    piece: int  # number of the piece in its file; 0 in a join


class Batch(NamedTuple):
    """Events of one part, in order."""

    part: Part
    piece: int  # 0 if they are of several
    events: Sequence[AnyEvent | Run]  # runs in stretches alone


class Synced(msgspec.Struct, array_like=True):
    """Where a half stood at its sync point, by the count of its own file."""

    framing: int
    octets: int
    messages: int
    told: list[str]  # codes of problems that are told once
    subscribes: bool
    topics: list[tuple[bool, bytes, int]]  # subscribed to (true) and cancelled since then; length if cut, else -1
    nonces: list[bytes]  # of the first and the last box since then, if there are any


class Piece(msgspec.Struct, array_like=True):
    """What one file has of a tuple, as far as files before or after it need to know.

    The segments and heads in it have the numbers of their packets, since a mark is more than MessagePack has room for.
    """

    file: int
    number: int  # of the piece in its file, from 1
    key: bytes  # the tuple
    first_ns: int  # when the first segment came, and no more than its order_ns
    last_ns: int  # no less than the order_ns of the last one
    seen_ns: int  # when the last segment came
    plain: bool  # all of it begins here and nothing goes on
    birth: list[Segment] = []
    answered: bool = False
    start: list[Segment] = []  # the first segments, if it does not begin here
    is_start: bool = False  # there are no more than those
    bases: dict[bytes, tuple[int | None, int]] = {}  # next and offset of each direction after them
    reasons: list[str] = []
    opened: int = 0  # flows
    others: int = 0  # flows but the first that begin here
    heads: list[tuple[int, int, int, bytes]] | None = None  # None: not kept; packet, time, half, octets
    has_octets: bool = False  # the first flow
    synced: tuple[Synced | None, Synced | None] = (None, None)  # client, server
    seen: list[tuple[str, str]] = []
    assumed: str | None = None  # mechanism
    top_acks: dict[bytes, int] = {}
    notable: list[Segment] = []
    end: End | None = None  # how the first flow ended here
    discarded: bool = False
    first: bytes | None = None  # the state of the first flow where it ended, if it did
    last: bytes | None = None  # the state of the flow that is known where the file ends
    lost: bool = False  # the state of what goes on cannot be told
    loose: bool = False  # a fragmented datagram begins or ends in another file
    offsets: dict[int, int] = {}  # of the records of the packets that it has the numbers of

    def kept(self, mark: int) -> int:
        """The number of a marked packet, whose offset is kept."""
        _, number, self.offsets[number] = place(mark)
        return number

    def placed(self, number: int) -> int:
        """The packet with a number that was kept, as ``placed`` numbers those of this piece."""
        return placed(self.first_ns, self.file, marked(number, self.offsets[number]))

    def encode(self) -> bytes:
        """As octets."""
        return _ENCODER.encode(self)

    @classmethod
    def decode(cls, octets: bytes) -> "Piece":
        """The piece of :meth:`encode`; raises msgspec.DecodeError if it is none."""
        return _DECODER.decode(octets)


class Verdict(NamedTuple):
    """What becomes of the rows that a scan gave out for a piece."""

    file: int
    piece: int
    fate: Fate
    conn_id: str | None = None  # of the stretch, if joined
    client: str | None = None
    server: str | None = None
    start_ns: int | None = None
    socket_types: dict[str, str | None] | None = None  # by address, if joined
    state: bytes | None = None  # to redo from
    around: bool = False  # the files before and after this one are to be read as well
    anew: bool = False  # all rows of the tuple fall, and it is dissected from its first file on
    why: str = ""  # it is redone, for logs


class Outcome(NamedTuple):
    """What a piece led to."""

    verdict: Verdict
    events: list[AnyEvent]  # told by the join itself


def connection_id(transport: str, client: str, server: str, start_ns: int) -> str:
    """The name of a connection, the same in whatever files and runs it is seen.

    ``transport`` is tcp (also of ws), ipc, udp, pgm or epgm; for udp and PGM the client is the sender.
    """
    return sha256(f"{transport}|{client}|{server}|{start_ns}".encode()).hexdigest()[:16]


def marked(number: int, offset: int) -> int:
    """The mark of a packet, which is its number among those of one file: it grows with the true number, from 1, and
    holds that and the offset of the packet's record (0: it has none)."""
    return number << _OFFSET_BITS | offset


def marks(first: int, offsets: Sequence[int]) -> list[int]:
    """The marks of packets whose numbers count up from ``first``."""
    step = 1 << _OFFSET_BITS
    return list(map(add, range(first * step, (first + len(offsets)) * step, step), offsets))


def placed(order_ns: int, file: int, mark: int) -> int:
    """A packet number that grows in the order in which files are merged, and holds where the packet is."""
    return order_ns << _FILE_BITS + _MARK_BITS | file << _MARK_BITS | mark


def place(packet: int) -> tuple[int, int, int]:
    """The file of :func:`placed` (0 for a mark), the number of the packet in it, and the offset of its record."""
    number = packet >> _OFFSET_BITS & (1 << _NUMBER_BITS) - 1
    return packet >> _MARK_BITS & (1 << _FILE_BITS) - 1, number, packet & _OFFSET_MASK


def numbers_and_offsets(packets: Sequence[int]) -> tuple[list[int], list[int | None]]:
    """What :func:`place` says of many packets or marks, but their files; None for packets without a record."""
    most = (1 << _NUMBER_BITS) - 1
    numbers = [packet >> _OFFSET_BITS & most for packet in packets]
    return numbers, [packet & _OFFSET_MASK or None for packet in packets]


def file_of(packet: int) -> int:
    """The file of :func:`placed`."""
    return packet >> _MARK_BITS & (1 << _FILE_BITS) - 1


def _refuse(value: object) -> object:
    raise TypeError(f"{type(value).__name__} does not belong in a piece")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_refuse)
_DECODER = msgspec.msgpack.Decoder(Piece)
