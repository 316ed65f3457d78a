"""Functions that compiled filters call with the values of a record.

Octets may be cut or hidden. Octets that are not at hand equal nothing, and nothing is found in them. Two values that
certainly differ differ, whatever follows. Each function takes None, for a field that is not there, and answers no.
"""

from functools import lru_cache
from ipaddress import ip_address

from dissectors.address import without_zone
from dissectors.events import Command, Cut, Hidden, Octets, at_hand
from zmtpsniff.words.text import as_text


def text_of(octets: Octets | None) -> str | None:
    """The ``text`` of octets in a record, from those at hand; None if they are no text."""
    if type(octets) is bytes:
        return as_text(octets)
    return as_text(octets.data, False) if isinstance(octets, Cut) else None


def whole_text_of(octets: Octets | None) -> str | None:
    """The text of octets that are all at hand."""
    return as_text(octets) if type(octets) is bytes else None


def hex_of(octets: Octets | None) -> str | None:
    """The ``hex`` of octets in a record; None if they are text."""
    if octets is None or isinstance(octets, Hidden) or text_of(octets) is not None:
        return None
    return at_hand(octets).hex()


def is_cut(octets: Octets) -> bool:
    """Whether not all octets are at hand, though they are not hidden."""
    return isinstance(octets, Cut)


def order(octets: Octets | None, other: Octets | None) -> int | None:
    """Below, at or above 0, as the first octets are before, equal to or after the others; None if unknown."""
    if octets is None or other is None or isinstance(octets, Hidden) or isinstance(other, Hidden):
        return None
    left, right = at_hand(octets), at_hand(other)
    if left == right and type(octets) is type(other) is bytes:
        return 0
    common = min(len(left), len(right))
    if left[:common] != right[:common]:
        return 1 if left > right else -1
    # All octets at hand are the same. So only a value that is whole, and ends here, is known to be less.
    if len(left) == common and type(octets) is bytes and len(other) > common:
        return -1
    if len(right) == common and type(other) is bytes and len(octets) > common:
        return 1
    return None


def equal(octets: Octets | None, other: Octets | None) -> bool:
    """Whether both are at hand and the same."""
    return type(octets) is bytes and octets == other


def differ(octets: Octets | None, other: Octets | None) -> bool:
    """Whether both are there and certain to differ."""
    if type(octets) is type(other) is bytes:
        return octets != other
    ordered = order(octets, other)
    if ordered is None:
        return isinstance(octets, bytes | Cut) and isinstance(other, bytes | Cut) and len(octets) != len(other)
    return ordered != 0


def contains(octets: Octets | None, part: Octets | None) -> bool:
    """Whether the part is found among the octets at hand."""
    if type(part) is not bytes:
        return False
    if type(octets) is bytes:
        return part in octets
    return isinstance(octets, Cut) and part in octets.data


def octets_slice(octets: Octets, start: int, length: int | None) -> Octets | None:
    """``length`` octets from ``start`` (negative: from the end); None if not so many are at hand.

    Without a length it is all from ``start`` on.
    """
    whole = len(octets)
    start += whole if start < 0 else 0
    end = whole if length is None else start + length
    if not 0 <= start <= end <= whole or isinstance(octets, Hidden):
        return None
    data = at_hand(octets)
    if end <= len(data):
        return data[start:end]
    return Cut(data[start:], whole - start) if length is None and start <= len(data) else None


def text_slice(text: str, start: int, length: int | None) -> str | None:
    """The same of a text, in characters."""
    start += len(text) if start < 0 else 0
    end = len(text) if length is None else start + length
    return text[start:end] if 0 <= start <= end <= len(text) else None


def recased(octets: Octets, upper: bool) -> Octets:
    """Octets with their ASCII letters in upper or lower case."""
    if isinstance(octets, Hidden):
        return octets
    data = at_hand(octets).upper() if upper else at_hand(octets).lower()
    return Cut(data, octets.length) if isinstance(octets, Cut) else data


def items(items: list[object] | None, start: int, length: int | None) -> list[object]:
    """Up to ``length`` items from ``start`` on (negative: from the end); all from there without a length."""
    if not items:
        return []
    start += len(items) if start < 0 else 0
    if start < 0:
        return []
    return items[start:] if length is None else items[start : start + length]


def named(properties: dict[str, Octets] | None, name: str) -> list[Octets]:
    """The values of the properties with a name in lower case (23/ZMTP: case does not matter in their names)."""
    return [value for key, value in properties.items() if key.lower() == name] if properties else []


@lru_cache(65_536)
def _place(place: str | None) -> tuple[int | None, int | None, int | None]:
    """Of ``address:port``: the address as a number, if it is of IPv4; the same of IPv6; the port."""
    if place is None:
        return None, None, None
    host, _, port = place.rpartition(":")
    number = int(port) if port.isascii() and port.isdecimal() and len(port) <= 5 else None
    try:
        address = ip_address(without_zone(host).strip("[]"))
    except ValueError:
        return None, None, number
    return (int(address), None, number) if address.version == 4 else (None, int(address), number)


def ip(place: str | None) -> int | None:
    """The IPv4 address of ``address:port``, as a number."""
    return _place(place)[0]


def ipv6(place: str | None) -> int | None:
    """The IPv6 address of ``[address]:port``, as a number."""
    return _place(place)[1]


def port(place: str | None) -> int | None:
    """The port of ``address:port``."""
    return _place(place)[2]


def part_of_version(version: str | None, part: int) -> int | None:
    """A number of a version such as ``3.1``: 0 for the first, 1 for the second; None if there is none."""
    numbers = version.split(".") if version else []
    if part >= len(numbers) or not numbers[part].isdecimal() or len(numbers[part]) > 10:
        return None
    return int(numbers[part])


def mechanism_of(command: Command) -> str | None:
    """The mechanism that a command is certain to belong to, by what it holds."""
    if command.username is not None or command.password is not None:
        return "PLAIN"
    if command.token is not None:
        return "GSSAPI"
    if command.nonce is not None or command.cookie is not None or command.client_key is not None:
        return "CURVE"
    return None
