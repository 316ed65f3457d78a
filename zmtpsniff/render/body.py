"""The body of a frame in the tree: JSON in colours, text as text, the rest as a dump."""

import re

import msgspec

from dissectors.events import Octets
from zmtpsniff.render.look import Look
from zmtpsniff.render.palette import Palette
from zmtpsniff.words.counts import plural
from zmtpsniff.words.text import as_text, escape, hex_dump, quote, quote_text, shown_octets

# The first characters of JSON that is cut and so cannot be parsed. Arrays of numbers are left out: "[2024-05-01 ...".
_STARTS_LIKE_JSON = re.compile(r'\s*(?:\{\s*["}]|\[\s*[\[{"])')
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\],:]|[^\s{}\[\],:"]+')
_COLOURED = re.compile(r'(?P<key>"(?:[^"\\]|\\.)*"(?=\s*:))|(?P<text>"(?:[^"\\]|\\.)*"?)|(?P<word>[^\s{}\[\],:"]+)')
_LINE_ENDS = re.compile(r"[\r\n]+")
_MAY_BE_JSON = " {["  # first characters
_INDENT = " " * 80  # and no more, however deep a hostile document is


def body_lines(frame: Octets, look: Look) -> list[str]:
    """The lines that show the body of a frame, at least one.

    When it is verbose JSON is spread over lines, and text has its dump after it.
    """
    palette = look.palette
    most = look.text_octets
    if type(frame) is bytes and frame.isascii() and 0 < len(frame) <= (most or len(frame)) and not look.verbosity:
        # Nearly all octets come here, and are a text in which nothing is to be escaped.
        ascii_text = frame.decode()
        may_be_odd = '"' in ascii_text or "\\" in ascii_text or ascii_text[0] in _MAY_BE_JSON
        if not may_be_odd and ascii_text.isprintable():
            return [f'{palette.text}"{ascii_text}"{palette.reset}']
    data, length = shown_octets(frame, most)
    if data is None:
        return [palette.paint(palette.dim, quote(frame))]
    if not length:
        return [palette.paint(palette.dim, "(empty)")]
    text = as_text(data, len(data) == length)
    if text is None:
        data = data[: look.max_bytes] if look.max_bytes else data
        lines = _dump(data, palette)
    else:
        lines = _json(data, text, len(data) == length, look) or _text(text, look)
        if look.verbosity:
            lines += _dump(data, palette)
    if len(data) < length:
        left = length - len(data)
        lines.append(palette.paint(palette.dim, f"{look.signs.more} {plural(left, 'more octet')}"))
    return lines


def _text(text: str, look: Look) -> list[str]:
    palette, paint = look.palette, look.palette.paint
    if "\n" not in text.rstrip("\n"):
        # On one line, in quotes: a line end or a blank too many is what people look for.
        return [paint(palette.text, quote_text(text))]
    bar = paint(palette.dim, look.signs.bar)
    # A CR before a line end says how the lines end, not what is in them; escape() shows it.
    return [f"{bar} {paint(palette.text, escape(line))}" for line in text.split("\n")]


def _dump(data: bytes, palette: Palette) -> list[str]:
    paint = palette.paint
    return [
        f"{paint(palette.dim, offset)}  {paint(palette.hex, digits)}  {paint(palette.text, characters)}"
        for offset, digits, characters in hex_dump(data)
    ]


def _json(data: bytes, text: str, whole: bool, look: Look) -> list[str] | None:
    """The lines of a JSON object or array, or None if the text is not one."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    if whole:
        try:
            msgspec.json.decode(data)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None
    elif not _STARTS_LIKE_JSON.match(text):
        return None
    # Strings in JSON hold no line ends of their own, so what is between lines is layout and may change.
    lines = _spread(text) if look.verbosity else [" ".join([line.strip() for line in _LINE_ENDS.split(text)]).strip()]
    return [_coloured(escape(line), look.palette) for line in lines]


def _spread(text: str) -> list[str]:
    """JSON over several lines, by its tokens: numbers and strings stay as they were sent."""
    lines: list[str] = []
    depth = 0
    line = ""
    previous = ""
    for token in _TOKEN.findall(text):
        if token in ("}", "]"):
            depth = max(depth - 1, 0)
            if previous in ("{", "["):
                line += token
            else:
                lines.append(line)
                line = _INDENT[: 2 * depth] + token
        else:
            if previous in ("{", "["):
                lines.append(line)
                line = _INDENT[: 2 * depth]
            line += token + " " if token == ":" else token
            if token in ("{", "["):
                depth += 1
            elif token == ",":
                lines.append(line)
                line = _INDENT[: 2 * depth]
        previous = token
    lines.append(line.rstrip())
    return lines


def _coloured(line: str, palette: Palette) -> str:
    if not palette.reset:
        return line

    def paint(match: re.Match[str]) -> str:
        if match["key"]:
            return palette.paint(palette.key, match["key"])
        if match["text"]:
            return palette.paint(palette.text, match["text"])
        word = match["word"]
        return palette.paint(palette.constant if word in ("true", "false", "null") else palette.number, word)

    return _COLOURED.sub(paint, line)
