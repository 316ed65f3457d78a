"""What passes from the scan of one file to the join of a tuple: pieces, verdicts, and states as octets."""

from typing import Literal, NamedTuple

from dissectors.events import AnyEvent

Part = Literal["born", "alone", "stretch"]
Fate = Literal["alone", "joined", "passed", "redo"]


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
    events: list[AnyEvent]


class Verdict(NamedTuple):
    """What becomes of the rows that a scan gave out for a piece."""

    file: int
    piece: int
    fate: Fate
    conn_id: str | None = None  # of the stretch, if joined
    client: str | None = None
    server: str | None = None
    start_ns: int | None = None
    socket_types: dict[str, str | None] = {}  # by address, if joined
    state: bytes | None = None  # to redo from
    before: bool = False  # the file before this one is to be read as well
    why: str = ""  # it is redone, for logs


class Outcome(NamedTuple):
    """What a piece led to."""

    verdict: Verdict
    events: list[AnyEvent]  # told by the join itself
