"""Evidence that two sides speak ZMTP 1.0, which has no mark at its beginning (13/ZMTP).

A frame of ZMTP 1.0 is one octet of length, one octet of flags and a body. Every protocol that sends a length of one
octet and then a 0 or a 1 looks the same. So only features count that other protocols have no reason to show: an
identity of no octets at the beginning, the flags that libzmq 2.1 leaves set, and as many frames in one message as in
the next.
"""

from dissectors.snapshots import Part, fields_of, set_fields
from dissectors.zmtp import wire

# Bits: of how many others at most one does so.
_ANONYMOUS_BITS = 8  # an identity of no octets
_GARBAGE_BITS = 6  # flags with the message-type mask of libzmq 2.1, in one frame
_MOST_REGULAR_BITS = 5  # a bit for each frame that could have ended its message or not, up to this: zeros are common
_ENOUGH_BITS = 12
# Octets of one side that are held in wait for more of it.
UNPROVEN_LIMIT = 1 << 16
# Whole frames of both sides that are worth a note if nothing is certain; and the most notes.
_WORTH_A_NOTE = 6
_MOST_PORTS = 20


class EvidenceState(Part):
    """What the evidence of a side says of itself in a snapshot."""

    begun: bool
    count: int
    _rare: int
    _of_first: int
    _of_message: int
    _regular: int
    _is_regular: bool


class EvidenceV1:
    """What one side has sent: its identity, then frames."""

    __slots__ = ("_is_regular", "_of_first", "_of_message", "_rare", "_regular", "begun", "count")

    def __init__(self, identity: int, flags: int) -> None:
        """Begin with an identity of ``identity`` octets, in a frame with these flags."""
        self.begun = False  # the header of a frame has come behind the identity
        self.count = 0  # of whole frames
        self._rare = _ANONYMOUS_BITS * (not identity) + _GARBAGE_BITS * (flags > wire.MORE)
        self._of_first = 0  # frames of the first message
        self._of_message = 0  # frames of the message that is not over
        self._regular = 0  # frames of later messages
        self._is_regular = True  # later messages have as many frames as the first

    def frames(self, octets: bytes, position: int) -> tuple[int, bool]:
        """Count the whole frames from ``position`` on; returns where they end, and whether what follows may be one."""
        end = len(octets)
        while position < end:
            first = octets[position]
            size = 10 if first == wire.LENGTH_ESCAPE_V1 else 2
            if position + size > end:
                return position, first > 0
            length = int.from_bytes(octets[position + 1 : position + 9], "big") if size == 10 else first
            flags = octets[position + size - 1]
            if not 0 < length <= wire.MAX_LENGTH or flags not in wire.FLAGS_SEEN_V1:
                return position, False
            self.begun = True
            if position + size - 1 + length > end:
                break
            self._frame(flags)
            position += size - 1 + length
        return position, True

    def _frame(self, flags: int) -> None:
        self.count += 1
        self._rare += _GARBAGE_BITS * (flags > wire.MORE)
        self._of_message += 1
        if flags & wire.MORE:
            return
        if not self._of_first:
            self._of_first = self._of_message
        else:
            self._regular += self._of_message
            self._is_regular = self._is_regular and self._of_message == self._of_first
        self._of_message = 0

    @property
    def bits(self) -> int:
        """How much speaks for it."""
        return self._rare + (min(self._regular, _MOST_REGULAR_BITS) if self._is_regular else 0)

    def snapshot(self) -> EvidenceState:
        """What to go on from."""
        return fields_of(self, EvidenceState)

    @classmethod
    def restore(cls, state: EvidenceState) -> "EvidenceV1":
        """Evidence that goes on from there."""
        evidence = cls(0, 0)
        set_fields(evidence, state)
        return evidence


def are_certain(one: EvidenceV1, other: EvidenceV1, at_end: bool) -> bool:
    """Whether two sides certainly speak ZMTP 1.0. Identities alone count only ``at_end``."""
    return one.bits + other.bits >= _ENOUGH_BITS and (at_end or one.begun or other.begun)


def are_worth_a_note(one: EvidenceV1, other: EvidenceV1) -> bool:
    """Whether two sides that may speak ZMTP 1.0, or not, have sent enough to deserve a note."""
    return one.count + other.count >= _WORTH_A_NOTE


class Doubts:
    """Connections that may be ZMTP, but did not prove it."""

    def __init__(self) -> None:
        """Begin without any."""
        self._ports: dict[str, tuple[int, str]] = {}  # of the server: how many, and the first
        self._others = 0  # on ports that are too many

    def add(self, flow: int, client: str, server: str) -> None:
        """Take note of a connection, by its number and its ends, as ``address:port``."""
        port = server.rpartition(":")[2]
        if port in self._ports:
            count, first = self._ports[port]
            self._ports[port] = count + 1, first
        elif len(self._ports) < _MOST_PORTS:
            self._ports[port] = 1, f"flow {flow}, {client} to {server}"
        else:
            self._others += 1

    def problems(self) -> list[tuple[str, str]]:
        """The notes: a problem code and a sentence for each port, and one for the ports beyond the limit."""
        told = []
        for port, (count, first) in self._ports.items():
            many = "1 connection" if count == 1 else f"{count:,} connections"
            which = first if count == 1 else f"the first: {first}"
            told.append(
                f"{many} may be ZMTP ({which}): -d tcp.port=={port},zmtp shows {'it' if count == 1 else 'them'}"
            )
        if self._others:
            told.append(f"{self._others:,} more on other ports may be ZMTP, too")
        return [("perhaps-zmtp", detail) for detail in told]
