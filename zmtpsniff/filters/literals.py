"""Turns the values written in a filter into values of the kind that they are compared with."""

import re
from datetime import datetime
from decimal import Decimal
from ipaddress import IPv4Network, IPv6Network
from typing import Any, NamedTuple, NoReturn

from lark import Token

from zmtpsniff.filters.filter_error import FilterError
from zmtpsniff.filters.paths import Kind
from zmtpsniff.filters.structures import NULL
from zmtpsniff.words.durations import unix_ns

_ESCAPE = re.compile(
    r'\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})|([abfnrtv\\"\'])|(.?))', re.DOTALL
)
_NAMED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_NUMBER = re.compile(r"(?P<sign>[-+]?)(?P<digits>.*?)(?P<unit>ns|us|ms|s)?")
_MOST_DIGITS = 40

KINDS: dict[Kind, str] = {
    "text": "a text",
    "number": "a number",
    "boolean": "true or false",
    "octets": "octets",
    "ip": "an IPv4 address",
    "ipv6": "an IPv6 address",
    "time": "a time",
    "object": "an object",
    "value": "what the message says",
}


class Range(NamedTuple):
    """All values from the first to the last."""

    first: Any
    last: Any


def fail(token: Token, reason: str) -> NoReturn:
    """Raise what is wrong with a token."""
    raise FilterError(reason, token.column or 1, token.line or 1)


def string(token: Token) -> bytes:
    """The octets of a text in quotes; characters are written as UTF-8, ``\\xff`` is one octet."""
    if token.type == "RAW":
        return token[2:-1].encode()
    made = bytearray()
    end = 0
    inner = str(token[1:-1])
    for match in _ESCAPE.finditer(inner):
        made += inner[end : match.start()].encode()
        end = match.end()
        octet, short, long, octal, named, other = match.groups()
        if octet is not None:
            made.append(int(octet, 16))
        elif octal is not None and int(octal, 8) < 256:
            made.append(int(octal, 8))
        elif named is not None:
            made += _NAMED.get(named, named).encode()
        elif other is None and octal is None:
            code = int(short or long, 16)
            if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                fail(token, f"{match[0]} is no character")
            made += chr(code).encode()
        else:
            fail(token, f'{match[0]} means nothing in a text; a backslash is written as "\\\\", or the text as r"..."')
    return bytes(made + inner[end:].encode())


def pattern(token: Token) -> str:
    """A regular expression as the user wrote it: its backslashes are its own."""
    if token.type not in ("STRING", "RAW"):
        fail(token, f'a regular expression is written in double quotes: "{token}"')
    return str(token[2:-1] if token.type == "RAW" else token[1:-1].replace('\\"', '"'))


def convert(token: Token, kind: Kind, field: str) -> Any:
    """The value of a token, or a Range, for a field of a kind. Raises FilterError if it has another kind."""
    made = _CONVERT[kind](token, field) if kind in _CONVERT else None
    if made is None:
        hint = f'; a text is written in double quotes: "{token}"' if kind == "text" and token.type == "NAME" else ""
        if kind == "value":
            fail(
                token, f'{token} is no text, number, true, false, null or octets; a text is in double quotes: "{token}"'
            )
        known = KINDS[kind]
        fail(token, f"{field} is {known}, {str(token)[:40]} is not{hint}")
    return made


def _text(token: Token, field: str) -> str | None:
    if token.type not in ("STRING", "RAW"):
        return None
    try:
        return string(token).decode()
    except UnicodeDecodeError:
        fail(token, f"{field} is a text, and these octets are no UTF-8")


def _decimal(token: Token) -> tuple[int | Decimal, str | None] | None:
    """The number of a token and its unit."""
    if token.type != "NUMBER":
        return None
    match = _NUMBER.fullmatch(token)
    assert match is not None
    digits = match["digits"]
    if len(digits) > _MOST_DIGITS or ("e" in digits.lower() and len(digits.lower().split("e")[1]) > 3):
        fail(token, "too large a number")
    number: int | Decimal
    if digits[:2] in ("0x", "0X"):
        number = int(digits, 16)
    elif digits.isdigit() and digits[0] == "0":
        if set(digits) & set("89"):
            fail(token, f"{token} begins with 0, so it is octal, and has no such digit")
        number = int(digits, 8)
    else:
        number = int(digits) if digits.isdigit() else Decimal(digits)
    return (-number if match["sign"] == "-" else number), match["unit"]


def _number(token: Token, field: str) -> int | float | None:
    parsed = _decimal(token)
    if parsed is None:
        return None
    number, unit = parsed
    if unit is not None:
        if not field.endswith("_ns"):
            fail(token, f"{field} is not in nanoseconds, so {token} needs no unit")
        number = Decimal(number) * _UNITS[unit]
    return int(number) if number == int(number) else float(number)


def _boolean(token: Token, field: str) -> bool | None:
    return {"true": True, "false": False, "1": True, "0": False}.get(token.lower())


def _octets(token: Token, field: str) -> bytes | None:
    if token.type in ("STRING", "RAW"):
        return string(token)
    digits = token[2:] if token[:2] in ("0x", "0X") else token.replace(":", "")
    pairs = re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2})*:?|0[xX]([0-9a-fA-F]{2})+", token)
    return bytes.fromhex(digits) if pairs else None


def _network(token: Token, of: type[IPv4Network] | type[IPv6Network]) -> Any:
    text = string(token).decode("utf-8", "replace") if token.type in ("STRING", "RAW") else str(token)
    try:
        network = of(text, strict=False)
    except ValueError:
        return None
    first, last = int(network.network_address), int(network.broadcast_address)
    return first if first == last else Range(first, last)


def _time(token: Token, field: str) -> int | float | None:
    if token.type in ("STRING", "RAW"):
        try:
            moment = datetime.fromisoformat(string(token).decode("utf-8", "replace"))
            return unix_ns(moment.astimezone())
        except (ValueError, OverflowError, OSError):
            fail(token, f'{field} is a time, written as "2026-11-21 18:00:00.5" or in seconds since 1970')
    parsed = _decimal(token)
    if parsed is None:
        return None
    nanoseconds = Decimal(parsed[0]) * _UNITS[parsed[1] or "s"]
    return int(nanoseconds) if nanoseconds == int(nanoseconds) else float(nanoseconds)


def _value(token: Token, field: str) -> Any:
    if token.type == "NUMBER":
        return _number(token, field)
    words = {"true": True, "false": False, "null": NULL}
    return words[token.lower()] if token.lower() in words else _octets(token, field)


_CONVERT: dict[Kind, Any] = {
    "text": _text,
    "number": _number,
    "boolean": _boolean,
    "octets": _octets,
    "ip": lambda token, _: _network(token, IPv4Network),
    "ipv6": lambda token, _: _network(token, IPv6Network),
    "time": _time,
    "value": _value,
}
