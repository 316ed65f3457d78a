"""The greeting: what its octets say, and which version two greetings agree on.

Everything here is pure. The steps in which the two sides send their greetings, each waiting for the other, are in
:mod:`dissectors.zmtp.opening`.
"""

from functools import lru_cache
from typing import NamedTuple

from dissectors.events import text
from dissectors.zmtp import frame_headers, sockets, wire

# Most greetings repeat an earlier one. So many are remembered with what they say.
_ALIKE = 64


class Signature(NamedTuple):
    """The first 10 octets of a side that begins with FF (15/ZMTP, "Backwards Interoperability").

    To a ZMTP 1.0 peer they are the header of a long frame, so the length counts a flags octet. Bit 0 of the last octet
    tells a versioned peer from the flags of a 1.0 identity frame.
    """

    length: int  # what octets 1 to 8 give: one more than the identity has; padding of any value in 3.x
    last: int  # octet, 7F

    @property
    def is_versioned(self) -> bool:
        """Whether the sender continues with a version, if the other side has one, too."""
        return bool(self.last & 1)

    @property
    def is_certain(self) -> bool:
        """Whether nothing else begins so; azmq has a length of 0."""
        return self.last == wire.SIGNATURE_END and self.length <= wire.IDENTITY_LIMIT + 1

    @property
    def is_possible(self) -> bool:
        """Whether an odd peer may begin so: at least one of the two places is right."""
        return self.is_versioned and (self.last == wire.SIGNATURE_END or self.length <= wire.IDENTITY_LIMIT + 1)


class Rest(NamedTuple):
    """The rest of a 3.x greeting whose beginning is missing."""

    size: int  # of the rest, in octets
    revision: int | None
    after_revision: bytes  # empty if the first of them is missing


class GreetingV3(NamedTuple):
    """The 53 octets after the revision of a 3.x greeting. Fields that the capture lacks are None."""

    minor: int | None
    mechanism: str | None
    mechanism_is_legal: bool
    as_server: bool | None


def parse_signature(octets: bytes) -> Signature:
    """Read 10 octets that begin with FF."""
    return Signature(int.from_bytes(octets[1:9], "big"), octets[9])


@lru_cache(_ALIKE)
def parse_after_revision(octets: bytes) -> GreetingV3:
    """Read minor, mechanism, as-server and filler (23/ZMTP, "Greeting"); ``octets`` may be cut short."""
    mechanism: str | None = None
    legal = True
    if len(octets) > wire.MECHANISM_SIZE:
        mechanism, legal = parse_mechanism(octets[1 : 1 + wire.MECHANISM_SIZE])
    as_server = bool(octets[1 + wire.MECHANISM_SIZE]) if len(octets) > 1 + wire.MECHANISM_SIZE else None
    return GreetingV3(octets[0] if octets else None, mechanism, legal, as_server)


def is_greeting_v3(octets: bytes) -> bool:
    """Whether 53 octets are the rest of a 3.x greeting after its revision, and hardly anything else."""
    parsed = parse_after_revision(octets)
    return parsed.mechanism_is_legal and octets[1 + wire.MECHANISM_SIZE] <= 1 and not any(octets[-_FILLER_SIZE:])


def parse_mechanism(field: bytes) -> tuple[str, bool]:
    """The mechanism's name and whether it is a legal one: A-Z, 0-9, "-", "_", ".", "+", padded with zeros."""
    name = field.rstrip(b"\0")
    return text(name), bool(name) and wire.MECHANISM_CHARACTERS.issuperset(name)


@lru_cache(64)
def negotiated_v3(one: tuple[int, int], other: tuple[int, int]) -> str:
    """The version that two 3.x peers use: the lower one of theirs, at most 3.1, the highest one specified."""
    major, minor = min(one, other, (3, 1))
    return f"{major}.{minor}"


GUESS_SIZE = 4
_FILLER_SIZE = 31

_MECHANISMS = tuple(name.ljust(wire.MECHANISM_SIZE, b"\0") for name in (b"NULL", b"PLAIN", b"CURVE", b"GSSAPI"))


def find_rest(octets: bytes) -> Rest | int:
    """The rest of a 3.x greeting at the beginning of ``octets``; 0 if there is none, or how many octets it needs."""
    mechanism = find_mechanism(octets[: wire.GREETING_SIZE])
    if mechanism is not None:
        size = mechanism + wire.AFTER_REVISION_SIZE - 1
        if len(octets) < size:
            return size
        revision = octets[mechanism - 2] if mechanism >= 2 else None
        return Rest(size, revision, octets[mechanism - 1 : size] if mechanism else b"")
    end = find_end(octets)
    if end is None:
        return len(octets) + 1
    return Rest(end, None, b"") if end else 0


def find_mechanism(octets: bytes) -> int | None:
    """The place of the mechanism in the rest of a 3.x greeting; None if this is no greeting's rest."""
    for field in _MECHANISMS:
        at = octets.find(field, 0, wire.SIGNATURE_SIZE + 2 + wire.MECHANISM_SIZE)
        if at >= 0:
            return at
    return None


def find_end(octets: bytes) -> int | None:
    """The end of a 3.x greeting whose beginning ``octets`` lack. A command of the handshake follows there.

    Returns 0 if the octets are no end of a greeting, None if there are too few octets to tell.
    """
    undecided = False
    for end in range(1, min(len(octets), wire.GREETING_SIZE - 1) + 1):
        if _may_be_rest(octets, wire.GREETING_SIZE - end):
            begins = _begins_handshake(octets[end:])
            if begins:
                return end
            undecided = undecided or begins is None
    few = octets[: wire.GREETING_SIZE]
    return None if undecided or any(_may_be_rest(few, at) for at in range(1, wire.GREETING_SIZE - len(few))) else 0


def _may_be_rest(octets: bytes, begin: int) -> bool:
    """Whether octets may be a part of a 3.x greeting, from octet ``begin`` on. Octets behind it are not read."""

    def part(first: int, stop: int) -> bytes:
        return octets[max(first - begin, 0) : max(stop - begin, 0)]

    mechanism = wire.SIGNATURE_SIZE + 2
    as_server = mechanism + wire.MECHANISM_SIZE
    return (
        not any(part(1, 8))
        and part(9, 10) in (b"", b"\x7f")
        and part(10, 11) in (b"", b"\3")
        and part(11, 12) in (b"", b"\0", b"\1")
        and wire.MECHANISM_CHARACTERS.issuperset(part(mechanism, as_server).rstrip(b"\0"))
        and part(as_server, as_server + 1) in (b"", b"\0", b"\1")
        and not any(part(as_server + 1, wire.GREETING_SIZE))
    )


def _begins_handshake(octets: bytes) -> bool | None:
    """Whether octets begin with a command of a handshake; None if there are too few octets."""
    if octets[:1] not in (b"", b"\x04", b"\x06"):
        return False
    header = frame_headers.read_v2(octets, 0) if octets else 0
    body = b"" if isinstance(header, int) else octets[header[1] :]
    if body.startswith(wire.HANDSHAKE):
        return True
    return None if any(command.startswith(body) for command in wire.HANDSHAKE) else False


def version_shown(octets: bytes, identity: int) -> int | None:
    """The major version that the octets after a signature prove; None if they prove none.

    Returns 3 for a whole greeting, and 2 for a socket type and an identity frame. The signature announces ``identity``
    octets, and that frame has the same length. ``octets`` begin at the revision.
    """
    rest = octets[1 : 1 + wire.AFTER_REVISION_SIZE]
    if len(rest) == wire.AFTER_REVISION_SIZE and octets[0] > wire.REVISION_2 and is_greeting_v3(rest):
        return 3
    has_frame = len(octets) >= GUESS_SIZE and octets[0] <= wire.REVISION_3 and octets[1] < len(sockets.NAMES_V2)
    return 2 if has_frame and octets[2] == 0 and octets[3] == identity else None


def is_rest_v2(octets: bytes, known: bool) -> bool:
    """Whether octets after a signature are the revision, a socket type and an identity frame, and no frame of 1.0.

    In ZMTP 1.0 they would be a length, flags and a body, or another length, which is never zero. ``known`` says that
    the connection is 2.0.
    """
    if len(octets) < GUESS_SIZE or octets[0] not in (wire.REVISION_2, wire.REVISION_3):
        return False
    revision, number, flags, _ = octets[:GUESS_SIZE]
    is_v2 = known or revision == wire.REVISION_2 or number > wire.MORE
    return number < len(sockets.NAMES_V2) and not flags and is_v2


def guess_after_signature(octets: bytes) -> int | None:
    """Guess the major version from what follows a signature, where the other side was not captured.

    Returns 3 for a minor version and a mechanism, 2 for a socket type and an identity frame, 1 for an identity and
    frames of ZMTP 1.0, None if there are too few octets. ``octets`` begin at the revision.
    """
    if len(octets) < GUESS_SIZE:
        return None
    revision, _, first, second = octets[:GUESS_SIZE]
    if revision > wire.REVISION_2 and first in wire.MECHANISM_CHARACTERS and second in wire.MECHANISM_CHARACTERS:
        return 3
    if revision <= wire.REVISION_3 and first & ~wire.LONG == 0:
        return 2
    return 1
