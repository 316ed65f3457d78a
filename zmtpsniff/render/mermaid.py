"""Events as a sequence diagram of Mermaid: for tickets and READMEs, where many sites draw it."""

from typing import TextIO

from dissectors.events import AnyEvent, Beacon, Capture, Command, Connection, Greeting, Message, Problem, Subscription
from zmtpsniff.render.renderer import TextRenderer
from zmtpsniff.render.steps import step_words
from zmtpsniff.render.wording import ENDS, connection_words
from zmtpsniff.words.counts import plural
from zmtpsniff.words.text import escape

DEFAULT_MAX_BYTES = 32
_PLAIN = frozenset(" .,:_-/()'\"=+*!?|~^@[]")


class MermaidRenderer(TextRenderer):
    """Writes a line for every event to a text stream: an arrow from its sender to its receiver, or a note.

    A socket becomes a participant when it first says something. The drawing has no comments and no shares of workers.
    """

    def __init__(self, stream: TextIO, max_bytes: int = DEFAULT_MAX_BYTES, show_secrets: bool = False) -> None:
        """Write to ``stream``, ``max_bytes`` of every frame at most (0: no limit); no passwords without
        ``show_secrets``.
        """
        super().__init__(stream)
        self._max_bytes = max_bytes
        self._show_secrets = show_secrets
        self._participants: dict[str, str] = {}
        self._begun = False

    def _put(self, lines: list[str]) -> None:
        super()._put(lines if self._begun else ["sequenceDiagram", *lines])
        self._begun = True

    def _add(self, event: AnyEvent, lines: list[str]) -> None:
        if isinstance(event, Message | Command | Subscription | Greeting | Beacon):
            src, dst = self._participant(event.src, lines), self._participant(event.dst, lines)
            text = step_words(event, self._max_bytes, self._show_secrets)
            lines.append(f"    {src}->>{dst}: {_text(text or '')}")
        elif isinstance(event, Problem):
            text = _text(step_words(event, self._max_bytes) or "")
            if event.src is None or event.dst is None:
                lines.append(f"    %% {text}")
                return
            src, dst = self._participant(event.src, lines), self._participant(event.dst, lines)
            lines.append(f"    Note over {src},{dst}: {text}")
        elif isinstance(event, Connection):
            client = self._participant(event.client.address, lines)
            server = self._participant(event.server.address, lines)
            kinds = " - ".join(escape(peer.type_name or "?") for peer in (event.client, event.server))
            messages = plural(event.messages.client + event.messages.server, "message")
            text = f"{kinds}, {connection_words(event)}, {messages}, {ENDS[event.end]}"
            lines.append(f"    Note over {client},{server}: {_text(text)}")
        elif isinstance(event, Capture):
            lines.append(f"    %% {plural(event.packets, 'packet')}, {plural(event.messages, 'message')}")

    def _participant(self, address: str, lines: list[str]) -> str:
        name = self._participants.get(address)
        if name is None:
            name = self._participants[address] = f"p{len(self._participants) + 1}"
            lines.append(f"    participant {name} as {_text(escape(address))}")
        return name


def _text(text: str) -> str:
    """Text that is safe in Mermaid: every character with a meaning there becomes a number.

    Those are the signs that end a statement or a block of Markdown, markup, comments, formulas, and ``wrap:``.
    """
    shown = "".join(
        char if char.isalnum() or char in _PLAIN or not char.isascii() else f"#{ord(char)};" for char in text
    )
    return shown.replace("wrap:", "wrap#58;")
