"""A policy made from a capture: it allows the traffic of this capture, and reports whatever is new."""

import re
from collections.abc import Iterable, Sequence
from math import ceil, floor, log10

from zmtpsniff.check.profile import Profile

_LONGEST_FILTER = 8_000  # characters
_PLAIN = re.compile(r"[ !#-&(-\[\]-~]*")  # ASCII without escapes, in a filter and in a literal string of TOML


def policy_text(profile: Profile, sets: Sequence[str], subject: str, factor: float) -> str:
    """The text of a policy that the traffic of the profile passes.

    ``sets`` are the built-in sets that it passes, ``subject`` names the captures; rates and latencies may change by
    ``factor``.
    """
    lines = [
        f"# What {_comment(subject)} looks like, as zmtpsniff check --init wrote it down: its versions, mechanisms,",
        f"# socket types and topics, with rates and latencies within a factor of {factor:g}. Make it yours.",
        "",
        f"include = [{', '.join(_quoted(name) for name in sets)}]",
    ]
    for rule in _rules(profile, factor):
        lines += ["", *rule]
    return "\n".join(lines) + "\n"


def _rules(profile: Profile, factor: float) -> Iterable[list[str]]:
    yield from _only("versions", "version", {version for _, version in profile.versions})
    yield from _only("mechanisms", "mechanism", {mechanism for _, mechanism in profile.mechanisms})
    yield from _socket_types(profile)
    yield from _topics(profile)
    for socket_type, count in sorted(profile.messages.items(), key=lambda item: item[0] or ""):
        which = "of unknown senders" if socket_type is None else f"from {socket_type}"
        condition = "!socket_type" if socket_type is None else f"socket_type == {_quoted(socket_type)}"
        yield _rate(f"messages {which}", f'type == "message" && {condition}', count, profile, factor)
    if profile.encrypted:
        text = 'type == "command" && name == "MESSAGE"'
        yield _rate("encrypted messages", text, profile.encrypted, profile, factor)
    if profile.latencies.count:
        # The percentile is known to within 1 %.
        limit = _up(max(profile.latencies.at(99) * factor * 1.01 / 1e6, 0.001))
        latency = f'{{ pattern = "request-reply", p99_ms = {limit:f} }}'
        yield ["[[rule]]", 'name = "replies come as quickly as before"', f"latency = {_short(latency)}"]


def _only(what: str, field: str, values: set[str]) -> Iterable[list[str]]:
    if values:
        text = f'type == "connection" && {field} && !({field} in {_set(sorted(values))})'
        yield ["[[rule]]", f'name = "no other {what}"', f"forbid = '{text}'"]


def _socket_types(profile: Profile) -> Iterable[list[str]]:
    pairs = sorted({(each.client, each.server) for each in profile.services if each.client and each.server})
    if not pairs:
        return
    known = " || ".join(
        f"(client.socket_type == {_quoted(client)} && server.socket_type == {_quoted(server)})"
        for client, server in pairs
    )
    text = f'type == "connection" && client.socket_type && server.socket_type && !({known})'
    if len(text) <= _LONGEST_FILTER:
        yield ["[[rule]]", 'name = "no other socket types"', f"forbid = '{text}'"]
    for client, server in pairs[:100]:
        text = (
            f'type == "connection" && client.socket_type == {_quoted(client)} '
            f"&& server.socket_type == {_quoted(server)}"
        )
        yield ["[[rule]]", f"name = {_toml(f'{client} talks to {server}')}", f"expect = '{text}'"]


def _topics(profile: Profile) -> Iterable[list[str]]:
    if not profile.topics:
        return
    text = f'type == "subscription" && !incomplete && !(topic in {_set(sorted(profile.topics))})'
    if len(text) > _LONGEST_FILTER or profile.is_cut:
        yield [f"# {len(profile.topics):,} topics were subscribed to: too many for a rule that lists them."]
    else:
        yield ["[[rule]]", 'name = "no other topics"', f"forbid = '{text}'"]


def _rate(name: str, text: str, count: int, profile: Profile, factor: float) -> list[str]:
    rate = count / profile.span.seconds
    return [
        "[[rule]]",
        f"name = {_toml(name)}",
        f"expect = '{text}'",
        'per = "second"',
        "mean = true",
        f"min = {_short(f'{_down(rate / factor):f}')}",
        f"max = {_short(f'{_up(rate * factor):f}')}",
    ]


def _down(number: float) -> float:
    """Down to three digits that matter."""
    unit = 10.0 ** (floor(log10(number)) - 2)
    return floor(number / unit) * unit


def _up(number: float) -> float:
    unit = 10.0 ** (floor(log10(number)) - 2)
    return ceil(number / unit) * unit


def _short(number: str) -> str:
    """Without zeros that say nothing."""
    return re.sub(r"(\.\d*?)0+(?=\D|$)", lambda match: match[1] if match[1] != "." else ".0", number)


def _set(values: Iterable[str | bytes]) -> str:
    return "{" + ", ".join(map(_quoted, values)) + "}"


def _quoted(value: str | bytes) -> str:
    """A string of a filter that fits into a literal string of TOML."""
    octets = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    text = octets.decode("utf-8", "replace")
    if text.isprintable() and "\ufffd" not in text and all(_PLAIN.fullmatch(char) or char > "\x7f" for char in text):
        return f'"{text}"'
    return (
        '"'
        + "".join(char if _PLAIN.fullmatch(char) else f"\\x{ord(char):02x}" for char in octets.decode("latin-1"))
        + '"'
    )


def _toml(text: str) -> str:
    """A basic string of TOML."""
    return '"' + "".join(char if _PLAIN.fullmatch(char) else f"\\U{ord(char):08x}" for char in text) + '"'


def _comment(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
