"""A record on a line: its kind, how the kind looks, and its content."""

from typing import NamedTuple

from dissectors.events import (
    AnyEvent,
    Beacon,
    Capture,
    Command,
    Comment,
    Connection,
    Greeting,
    Message,
    Problem,
    Subscription,
    Work,
)
from zmtpsniff.render.palette import STYLES
from zmtpsniff.render.steps import message_text
from zmtpsniff.render.wording import (
    beacon_words,
    connection_words,
    end_words,
    field_words,
    greeting_words,
    shown_type,
    topic_words,
)
from zmtpsniff.words.counts import plural
from zmtpsniff.words.text import escape

_MORE = "…"
_FRAMES = 12  # of a message on one line


class RecordWords(NamedTuple):
    """A record in words that are safe to show."""

    kind: str
    style: str  # of the kind, in rich's words
    text: str


def record_words(event: AnyEvent, octets: int = 80, show_secrets: bool = False) -> RecordWords:
    """The content of a record, with at most so many octets of each frame or value."""
    match event:
        case Message():
            return RecordWords(
                escape(shown_type(event) or "message"), "bold", message_text(event, octets, show_secrets, _FRAMES)
            )
        case Command():
            return RecordWords(escape(event.name), "bright_blue", field_words(event, octets, _MORE))
        case Subscription():
            return RecordWords(event.action, "green", topic_words(event, octets, _MORE))
        case Greeting():
            return RecordWords("greeting", "bright_blue", greeting_words(event))
        case Beacon():
            return RecordWords("beacon", "green", f"{beacon_words(event)} uuid {escape(event.uuid)}")
        case Problem():
            return RecordWords(event.severity, getattr(STYLES, event.severity), escape(f"{event.code}: {event.detail}"))
        case Comment():
            return RecordWords("comment", "cyan", f'"{escape(event.text)}"')
        case Connection():
            sent = f"{plural(event.messages.client, 'message')} and {plural(event.messages.server, 'message')}"
            text = f"{event.transport} {connection_words(event)}, {sent}, {end_words(event)}"
            return RecordWords("connection", "bold", text)
        case Work():
            shares = ", ".join([f"{escape(share.address)} {share.share:.1%}" for share in event.workers[:_FRAMES]])
            return RecordWords("work", "bold", f"of {escape(event.address)}: {shares}")
        case Capture():
            text = (
                f"{plural(event.packets, 'packet')}, {event.dropped:,} dropped, {plural(event.flows, 'connection')}, "
            )
            text += f"{plural(event.messages, 'message')}, {plural(event.problems, 'problem')}"
            return RecordWords("capture", "bold", text)
