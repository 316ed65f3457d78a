"""Evidence that two sides speak ZMTP 1.0, which has no mark at its beginning (13/ZMTP).

A frame of ZMTP 1.0 is one octet of length, one octet of flags and a body. Every protocol that sends a length of one
octet and then a 0 or a 1 looks the same. So only features count that other protocols have no reason to show: an
identity of no octets at the beginning, the flags that libzmq 2.1 leaves set, and as many frames in one message as in
the next.
"""

from dissectors.address import port_of
from dissectors.snapshots import Part
from dissectors.zmtp import frame_headers, wire

# Bits: of how many others at most one does so.
_ANONYMOUS_BITS = 8  # an identity of no octets
_GARBAGE_BITS = 6  # flags with the message-type mask of libzmq 2.1, in one frame
_LONG_BITS = 12  # a long frame, and another frame where it ends
_DELIMITER_BITS = 3  # a delimiter in a message, as all other messages of the side have it; up to two messages
_MOST_DELIMITERS = 2
# A bit for each frame that could have ended its message or not, up to this. Zeros alone are common.
_MOST_REGULAR_BITS = 12
_MOST_ZEROS_BITS = 5
_ENOUGH_BITS = 12
# The most octets of one side that wait for more.
UNPROVEN_LIMIT = 1 << 16
# Whole frames of both sides that are worth a note if nothing is certain; and the most notes.
_WORTH_A_NOTE = 6
_MOST_PORTS = 20


class EvidenceV1(Part, gc=False):
    """The evidence in the octets of one side: its identity, then frames."""

    begun: bool = False  # the header of a frame has come behind the identity
    count: int = 0  # of whole frames
    _after_long: bool = False  # the frame behind a long frame has not come yet
    _open_is_long: bool = False  # the frame that is not over is long
    _open_flags: int = 0  # its flags
    _rare: int = 0  # bits
    _of_first: int = 0  # frames of the first message
    _of_message: int = 0  # frames of the message that is not over
    _regular: int = 0  # frames of later messages
    _is_regular: bool = True  # later messages have as many frames as the first
    _messages: int = 0
    _delimited: int = 0  # messages that have a delimiter
    _has_delimiter: bool = False  # so has the message that is not over

    def identity(self, length: int, flags: int, is_long: bool) -> None:
        """Begin with an identity of ``length`` octets, in a frame with these flags; ``is_long`` if that is long."""
        self._after_long = is_long
        self._rare = _ANONYMOUS_BITS * (not length) + _GARBAGE_BITS * (flags > wire.MORE)

    def frames(self, octets: bytes, position: int) -> tuple[int, bool]:
        """Count the whole frames from ``position`` on; returns where they end, and whether what follows may be one."""
        end = len(octets)
        while position < end:
            header = frame_headers.read_v1(octets, position)
            if isinstance(header, int):
                return position, octets[position] > 0
            flags, begin, length = header
            if not 0 <= length < wire.MAX_LENGTH or flags not in wire.FLAGS_SEEN_V1:
                return position, False
            self.begun = True
            self._rare += _LONG_BITS * self._after_long
            self._after_long = False
            self._open_flags = flags
            self._open_is_long = begin - position > 2 and wire.LENGTH_ESCAPE_V1 <= length + 1 < wire.PLAUSIBLE_LENGTH
            if begin + length > end:
                break
            self.end_frame(not length)
            position = begin + length
        return position, True

    def end_frame(self, is_empty: bool = False) -> None:
        """Count the frame that came last: all its octets are there."""
        flags = self._open_flags
        self._after_long, self._open_is_long = self._open_is_long, False
        self.count += 1
        self._rare += _GARBAGE_BITS * (flags > wire.MORE)
        self._of_message += 1
        if flags & wire.MORE:
            self._has_delimiter = self._has_delimiter or is_empty
            return
        if not self._of_first:
            self._of_first = self._of_message
        else:
            self._regular += self._of_message
            self._is_regular = self._is_regular and self._of_message == self._of_first
        self._messages += 1
        self._delimited += self._has_delimiter
        self._of_message = 0
        self._has_delimiter = False

    @property
    def in_long(self) -> bool:
        """Whether a long frame has begun whose end will tell."""
        return self._open_is_long or self._after_long

    def bits(self, at_end: bool) -> int:
        """The bits of evidence for ZMTP 1.0; ``at_end``: no more octets will come."""
        bits = self._rare + _LONG_BITS * (at_end and self._after_long)
        if self._delimited == self._messages:
            bits += _DELIMITER_BITS * min(self._messages, _MOST_DELIMITERS)
        if self._is_regular:
            bits += min(self._regular, _MOST_REGULAR_BITS if self._of_first > 1 else _MOST_ZEROS_BITS)
        return bits


def are_certain(one: EvidenceV1, other: EvidenceV1, at_end: bool) -> bool:
    """Whether two sides certainly speak ZMTP 1.0. Identities alone count only ``at_end``."""
    return one.bits(at_end) + other.bits(at_end) >= _ENOUGH_BITS and (at_end or one.begun or other.begun)


def are_worth_a_note(one: EvidenceV1, other: EvidenceV1) -> bool:
    """Whether two sides that may speak ZMTP 1.0, or not, have sent enough to deserve a note."""
    return one.count + other.count >= _WORTH_A_NOTE


class Doubts:
    """Connections that may be ZMTP, but did not prove it."""

    def __init__(self) -> None:
        """Begin without any."""
        self._ports: dict[int, tuple[int, str]] = {}  # of the server: how many, and the first
        self._others = 0  # on ports that are too many

    def add(self, flow: int, client: str, server: str) -> None:
        """Take note of a connection, by its number and its ends, as ``address:port``."""
        port = port_of(server)
        if port in self._ports:
            count, first = self._ports[port]
            self._ports[port] = count + 1, first
        elif len(self._ports) < _MOST_PORTS:
            self._ports[port] = 1, f"connection {flow}, {client} to {server}"
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
