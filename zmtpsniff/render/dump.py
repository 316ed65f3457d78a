"""Messages the way ``s_dump`` of the ZeroMQ guide's zhelpers prints them."""

from typing import TextIO

from dissectors.events import AnyEvent, Message, Octets
from zmtpsniff.render.payload import frames_to_show
from zmtpsniff.render.renderer import TextRenderer
from zmtpsniff.words.text import shown_octets

_RULE = "-" * 40


class DumpRenderer(TextRenderer):
    """Writes messages to a text stream: a rule, then a line for every frame; other events are left out."""

    def __init__(self, stream: TextIO, max_bytes: int = 0, show_secrets: bool = False) -> None:
        """Write to ``stream``, with ``max_bytes`` of every frame at most (0: all, as zhelpers does).

        Frames that hold a password are left out unless ``show_secrets``.
        """
        super().__init__(stream)
        self._show_secrets = show_secrets
        self._max_bytes = max_bytes

    def _add(self, event: AnyEvent, lines: list[str]) -> None:
        if type(event) is Message:
            lines.append(_RULE)
            lines += [self._line(frame) for frame in frames_to_show(event, self._show_secrets)]

    def _line(self, frame: Octets) -> str:
        data, length = shown_octets(frame, self._max_bytes)
        if data is None:
            return f"[{length:03d}]"
        text = data.decode() if data.isascii() else None
        shown = text if text is not None and text.isprintable() else data.hex().upper()
        return f"[{length:03d}] {shown}" + ("" if len(data) == length else "...")
