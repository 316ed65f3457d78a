"""Octets and strings from the network, made safe and readable for people.

Octets from the network may hold anything: escape sequences that recolour or rewrite a terminal, characters that
turn the direction of the text, characters nobody can see. Such characters must not reach a terminal, so all that is
shown to a person passes through :func:`escape` (strings) or :func:`quote` and :func:`hex_dump` (octets) on its way out.
"""

import codecs
import re
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from dissectors.events import Cut, Octets

_Texts = TypeVar("_Texts", bound=tuple[str, ...])

# Unicode's format characters (Cf), line and paragraph separators (Zl, Zp), lone surrogates (Cs) and noncharacters, with
# the marks that a terminal draws as nothing at all. Python's own tables are slow to ask which characters are Cf.
_UNSEEN = (
    "\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000110bd\U000110cd\U00013430-\U0001345f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\ufdd0-\ufdef"
    + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000))
)
CONTROL_OR_UNSEEN = re.compile(f"[\x00-\x1f\x7f-\x9f{_UNSEEN}]")
UNSEEN_IN_JSON = f"[\x7f-\x9f{_UNSEEN}]"  # JSON itself escapes the rest; compiled when the first text needs it
_NOT_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # Unicode category Cc without tab, LF and CR

_IN_SENTENCE = 48  # octets
_NAMED = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def as_text(data: bytes, whole: bool = True) -> str | None:
    """The text that octets hold, or None when they are no text.

    Text is UTF-8 without control characters other than tab, LF and CR. With ``whole`` false the octets are the first
    of more, and a character that they end in the middle of is left out.
    """
    if 0 in data:  # the quickest answer for nearly all that is no text
        return None
    try:
        text = data.decode() if whole else codecs.utf_8_decode(data, "strict", False)[0]
    except UnicodeDecodeError:
        return None
    if text.isprintable() or not _NOT_TEXT.search(text):
        return text
    return None


def shown_octets(octets: Octets, max_bytes: int) -> tuple[bytes | None, int]:
    """The octets that may be shown, at most ``max_bytes`` (0: no limit), and how many there were on the wire.

    The first is None for octets that must not be shown at all.
    """
    if isinstance(octets, bytes):
        data, length = octets, len(octets)
    elif isinstance(octets, Cut):
        data, length = octets.data, octets.length
    else:
        return None, octets.length
    return (data[:max_bytes] if max_bytes else data), length


def wire_lengths(frames: Sequence[Octets]) -> list[int]:
    """How many octets each frame had on the wire; len() gives no more than Python takes for a length."""
    lengths = [*map(len, frames)]
    return lengths if max(lengths, default=0) < sys.maxsize else [shown_octets(frame, 0)[1] for frame in frames]


def common_start(one: bytes, other: bytes) -> bytes:
    """The octets with which both begin."""
    length = next((place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    return one[: min(len(one), len(other))] if length is None else one[:length]


def escape(text: str) -> str:
    """A string on one line: control and unseen characters as ``\\n``, ``\\x1b``, ``\\u202e``, all else as it is."""
    if text.isascii() and text.isprintable():
        return text
    return CONTROL_OR_UNSEEN.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    if named := _NAMED.get(char):
        return named
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def quote(octets: Octets, max_bytes: int = 0, more: str = "...") -> str:
    """Octets on one line: text in quotes, else ``0x`` and hexadecimal digits, ``more`` after them if they are cut.

    ``max_bytes`` is the limit of octets to show (0: none). ``more`` may hold ``{}`` for the number of octets left out.
    Text is in single quotes if it holds double ones only; its backslashes are doubled, so that what was escaped can
    be told from what was sent.
    """
    if type(octets) is bytes:
        # Nearly all octets come here, and are ASCII without anything to escape.
        data = octets[:max_bytes] if max_bytes else octets
        if data.isascii() and (text := data.decode()).isprintable():
            quoted = _in_quotes(text)
            left = len(octets) - len(data)
            if not left:
                return quoted
            return quoted + (more.format(f"{left:,}") if "{" in more else more)
    first, length = shown_octets(octets, max_bytes)
    if first is None:
        return f"({length} octets, not shown)"
    whole = len(first) == length
    readable = as_text(first, whole)
    shown = f"0x{first.hex()}" if readable is None else quote_text(readable)
    return shown if whole else shown + more.format(f"{length - len(first):,}")


def quoted(octets: Octets) -> str:
    """The first octets of a topic or a name, as a sentence quotes them."""
    return quote(octets, _IN_SENTENCE)


def quote_text(text: str) -> str:
    """Text on one line in quotes, as :func:`quote` shows octets that hold it."""
    return escape(_in_quotes(text))


def _in_quotes(text: str) -> str:
    """A string with its backslashes doubled. If possible, the quotes around it are of a kind that it does not have."""
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if '"' not in text:
        return f'"{text}"'
    if "'" not in text:
        return f"'{text}'"
    text = text.replace('"', '\\"')
    return f'"{text}"'


def hex_dump(data: bytes) -> list[tuple[str, str, str]]:
    """Octets in lines of 16: their place in the data, hexadecimal digits, and the characters that are ASCII."""
    digits = 4 if len(data) <= 0x10000 else 8
    lines = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        # The gap in the middle is what the eye counts by.
        columns = f"{row[:8].hex(' '):23}  {row[8:].hex(' '):23}"
        characters = "".join([chr(octet) if 32 <= octet < 127 else "." for octet in row])
        lines.append((f"{start:0{digits}x}", columns, f"|{characters}|"))
    return lines


def encodable(encoding: str | None) -> Callable[[str], str]:
    """The function that escapes those characters of a text that a stream of that encoding cannot show.

    A stream whose encoding is not known (a string in memory) takes anything.
    """
    if encoding is None or codecs.lookup(encoding).name.startswith("utf"):
        return str
    return lambda text: text.encode(encoding, "backslashreplace").decode(encoding)


def shown_by(encoding: str | None, fine: _Texts, plain: _Texts) -> _Texts:
    """The fine texts if a stream of that encoding can show them, else the plain ones."""
    try:
        "".join(fine).encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return plain
    return fine
