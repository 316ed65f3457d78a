"""Records as a few words beside an arrow, for ladders and diagrams. The words are safe to show."""

from dissectors.events import AnyEvent, Beacon, Command, Greeting, Message, Problem, Subscription
from zmtpsniff.render.payload import frames_to_show, payload_words
from zmtpsniff.render.wording import (
    beacon_words,
    command_words,
    greeting_words,
    relation_words,
    shown_type,
    topic_words,
)
from zmtpsniff.words.counts import plural
from zmtpsniff.words.text import escape, quote

_FRAMES = 4  # of a message
_MORE = "…"


def step_words(event: AnyEvent, max_bytes: int, show_secrets: bool = False) -> str | None:
    """The words for a record, with ``max_bytes`` of octets of each frame; None for a record that no side sent."""
    match event:
        case Message():
            kind = escape(shown_type(event) or "message")
            return " ".join(filter(None, (kind, message_text(event, max_bytes, show_secrets))))
        case Command():
            reason = "" if event.reason is None else f" {quote(event.reason, max_bytes, _MORE)}"
            group = "" if event.group is None else f" {quote(event.group, max_bytes, _MORE)}"
            return " ".join([command_words(event) + reason + group, *_in_brackets(relation_words(event))])
        case Subscription():
            return f"{event.action} {topic_words(event, max_bytes, _MORE)}"
        case Greeting():
            return f"greeting {greeting_words(event)}".rstrip()
        case Beacon():
            return f"beacon {beacon_words(event)}"
        case Problem():
            return f"{event.severity} {escape(event.code)}: {escape(event.detail)}"
    return None


def message_text(event: Message, max_bytes: int, show_secrets: bool, most: int = _FRAMES) -> str:
    """The first frames of a message, at most ``most``, or its payload, and its relations to others."""
    if event.payload is not None:
        said = [payload_words(event.payload)]
    else:
        frames = frames_to_show(event, show_secrets)
        said = [quote(frame, max_bytes, _MORE) for frame in frames[:most]]
        if len(frames) > most:
            said.append(f"{_MORE} {plural(len(frames) - most, 'more frame')}")
    remarks = relation_words(event)
    if event.incomplete:
        remarks.append("incomplete")
    return " ".join([*said, *_in_brackets(remarks)])


def _in_brackets(words: list[str]) -> list[str]:
    return [f"({', '.join(words)})"] if words else []
