"""Two captures compared: what is new, gone or changed, as outcomes that every report format can show."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from zmtpsniff.check.model import Offence, Outcome, Rule
from zmtpsniff.check.profile import ConnectionKind, Profile
from zmtpsniff.render.clock import duration
from zmtpsniff.render.text import escape, quote
from zmtpsniff.render.wording import number

_LEAST_ANSWERS = 10  # answers: with fewer the longest latency is chance, and comparing says nothing
_TOPIC_OCTETS = 64
_Key = TypeVar("_Key")


def compare(old: Profile, new: Profile, factor: float, shown: int) -> list[Outcome]:
    """An outcome for each thing that is compared; its offences are the differences, ``shown`` of them at most.

    Rates and latencies differ if they change by more than ``factor``.
    """
    outcomes = []
    for name, text, lines in (
        ("connections", "which sockets talk to which, and where", _present(old.services, new.services, _service)),
        ("versions", "versions agreed on", _of_services(old, new, old.versions, new.versions)),
        ("mechanisms", "security mechanisms agreed on", _of_services(old, new, old.mechanisms, new.mechanisms)),
        ("handshakes", "how handshakes ended", _of_services(old, new, old.handshakes, new.handshakes)),
        ("topics", "topics subscribed to", _present(old.topics, new.topics, lambda topic: quote(topic, _TOPIC_OCTETS))),
        ("messages", "which sockets send messages of how many frames", _present(old.shapes, new.shapes, _shape)),
        ("rates", f"messages a second, within a factor of {factor:g}", _rates(old, new, factor)),
        ("latencies", f"time to reply, within a factor of {factor:g}", _latencies(old, new, factor)),
        ("problems", "problems of severity error and warning", _present(old.problems, new.problems, escape)),
    ):
        differences = list(lines)
        found = number(len(differences), "difference")
        offences = [Offence(line) for line in differences[:shown]]
        rule = Rule(name, "baseline", text)
        outcomes.append(Outcome(rule, not differences, found, offences, len(differences) - len(offences)))
    return outcomes


def _present(old: Mapping[_Key, int], new: Mapping[_Key, int], words: Callable[[_Key], str]) -> Iterable[str]:
    """What only one of the captures has."""
    yield from [f"new: {words(key)}" for key in new if key not in old]
    yield from [f"gone: {words(key)}" for key in old if key not in new]


def _of_services(
    old: Profile,
    new: Profile,
    before: Mapping[tuple[ConnectionKind, str], int],
    after: Mapping[tuple[ConnectionKind, str], int],
) -> Iterable[str]:
    """What is different on connections that both captures have."""
    for service in new.services:
        if service not in old.services:
            continue
        was = sorted(value for each, value in before if each == service)
        is_now = sorted(value for each, value in after if each == service)
        if was != is_now:
            yield f"changed: {_service(service)}: {_values(was)}, now {_values(is_now)}"


def _rates(old: Profile, new: Profile, factor: float) -> Iterable[str]:
    for service in new.services:
        if service not in old.services:
            continue
        for side in ("client", "server"):
            was, is_now = old.sent[service, side] / old.span.seconds, new.sent[service, side] / new.span.seconds
            if was != is_now and (min(was, is_now) == 0 or max(was, is_now) / min(was, is_now) > factor):
                yield f"changed: {_service(service)}: {side} sent {was:,.2f} messages a second, now {is_now:,.2f}"


def _latencies(old: Profile, new: Profile, factor: float) -> Iterable[str]:
    if min(old.latencies.count, new.latencies.count) < _LEAST_ANSWERS:
        return
    for percent in (50, 99):
        was, is_now = old.latencies.at(percent), new.latencies.at(percent)
        if min(was, is_now) > 0 and max(was, is_now) / min(was, is_now) > factor:
            yield f"changed: p{percent} was {duration(was)}, now {duration(is_now)}"


def _service(service: ConnectionKind) -> str:
    client, server = (escape(kind) if kind else "?" for kind in (service.client, service.server))
    return f"{client} > {server} at {escape(service.address)}"


def _shape(shape: tuple[str | None, int]) -> str:
    kind, frames = shape
    return f"messages of {number(frames, 'frame')} from {escape(kind) if kind else 'unknown senders'}"


def _values(values: list[str]) -> str:
    return " and ".join(map(escape, values)) or "none"
