"""Conversations as ladders: a line for each of the two sockets, with their records between the lines."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from zmtpsniff.analysis.statistics.severities import Severities, worst
from zmtpsniff.report.results import ReportConversation, ReportStep
from zmtpsniff.report.sections import moment, severity_words
from zmtpsniff.words.counts import plural
from zmtpsniff.words.durations import brief
from zmtpsniff.words.text import escape as safe


def ladders(conversations: Sequence[ReportConversation], anchors: Mapping[str, str]) -> Iterator[str]:
    """The ladders, the first one open; ``anchors`` has the ids of the services that have a place in the page."""
    for place, conversation in enumerate(conversations):
        yield from _ladder(conversation, anchors, is_open=not place)


def severity_mark(problems: Severities) -> str:
    """Numbers of problems behind a comma, in the colour of the worst; empty without any."""
    words = severity_words(problems)
    return f', <span class="{worst(problems)}">{words}</span>' if words else ""


def _ladder(conversation: ReportConversation, anchors: Mapping[str, str], is_open: bool) -> Iterator[str]:
    client, server = escape(safe(conversation.client)), escape(safe(conversation.server))
    kinds = (escape(safe(conversation.client_socket_type or "?")), escape(safe(conversation.server_socket_type or "?")))
    yield f'<details class="ladder"{" open" if is_open else ""}>\n<summary>{client} {kinds[0]} - {server} {kinds[1]}, '
    yield f"{plural(conversation.messages, 'message')}{severity_mark(conversation.problems)}</summary>\n"
    anchor = anchors.get(conversation.server)
    link = f'<a href="#{anchor}">{server}</a>' if anchor else server
    yield f'<p class="dim">Connection {conversation.flow}, from {moment(conversation.start_ns)} on, '
    yield f"for {escape(brief(conversation.end_ns - conversation.start_ns))}.</p>\n"
    yield f'<div class="rungs">\n<div class="ends"><b>{client}<br>{kinds[0]}</b><b>{link}<br>{kinds[1]}</b></div>\n'
    for step in conversation.steps:
        if step.left_out:
            yield f'<div class="rung left-out"><span>{step.left_out:,} more</span></div>\n'
        yield _rung(step, conversation.start_ns)
    yield "</div>\n</details>\n"


def _rung(step: ReportStep, start_ns: int) -> str:
    way: str = step.severity or ("from-client" if step.is_from_client else "from-server")
    packet = "" if step.packet is None else f" #{step.packet}"
    time = f'<time title="{moment(step.time_ns)}{packet}">+{escape(brief(max(step.time_ns - start_ns, 0)))}</time>'
    return f'<div class="rung {step.kind} {way}">{time}<span>{escape(step.text)}</span></div>\n'
