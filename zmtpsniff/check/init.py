"""A policy made from a capture: it allows the traffic of this capture, and reports what changes.

A complete capture of the same system must keep the policy. So the policy has no rule about anything that this capture
may lack. If it is lossy, or begins after connections were made, it shows which services there are, and how many
clients they have at least. It does not show that there are no others.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from math import ceil, floor, log10

from zmtpsniff.check.globs import AddressPattern, escaped, literal
from zmtpsniff.check.services import NO_MECHANISM, ServiceProfile, Services, TopicCounter, Values
from zmtpsniff.words.counts import plural

_PLAIN = re.compile(r"[ !#-\[\]-~]*")  # ASCII without escapes, in a basic string of TOML
_MOST_TOPICS = 50  # in the list of a rule
_OFTEN = 3  # a topic that came so often will come again
_MOST_HOSTS = 50
_ENOUGH = 20  # messages for a rate, and replies for a latency
_LEAST_MS = {"p50_ms": 10.0, "p99_ms": 100.0}  # what is quicker differs from one run to the next
_CERTAIN = 2  # clients of one address, which are not all the server


def policy_text(services: Services, sets: Sequence[str], subject: str, factor: float) -> str:
    """The text of a policy that the traffic of a capture keeps.

    ``sets`` are the built-in sets that it keeps, ``subject`` names the captures. Rates and latencies may change by
    ``factor``.
    """
    lines = [f"# What {_comment(subject)} looks like, as zmtpsniff check --init wrote it down. Make it yours."]
    if services.is_lossy:
        lines.append("# Something is missing from the capture: what it may lack is left out here.")
    if services.unseen:
        lines.append(
            f"# {plural(services.unseen, 'connection')} began before the capture: what it may lack is left out here."
        )
    included = sets if services.is_whole else ()
    lines += ["", f"include = [{', '.join(map(_toml, included))}]"]
    known = [each for each in services.services.values() if each.working and _has_pattern(each.address)]
    if known and services.is_whole and not services.is_cut and all(service.has_fixed_port for service in known):
        lines.append("only_endpoints = true")
    for service in sorted(known, key=lambda each: each.address):
        keys = list(_keys(service, services, factor))
        if any(not key.startswith("#") for key in keys):
            lines += ["", "[[endpoint]]", f"address = {_toml(escaped(service.address))}", *keys]
    if any(re.match(r"\w+_rate = |latency = ", line) for line in lines):
        lines.insert(1, f"# Rates and latencies may change by a factor of {factor:g}.")
    return "\n".join(lines) + "\n"


def _keys(service: ServiceProfile, capture: Services, factor: float) -> Iterable[str]:
    yield from _agreed("mechanism", service.mechanisms, 1)
    whole = capture.is_whole
    most = None if whole else 1  # of a bound socket there is one; its clients may be of several kinds
    yield from _agreed("version", service.versions, None if whole else 0)
    yield from _agreed("socket_type", service.socket_types, most)
    yield from _agreed("client_socket_type", service.client_types, None if whole else 0)
    # A port that was free may be another one next time, and nobody may know which side is the server.
    certain = service.has_fixed_port and (whole or len(service.lifetimes) >= _CERTAIN)
    yield from _topics(service, whole, certain)
    yield from _clients(service, whole, certain)
    if not certain:
        return
    for side, count in (("server", service.messages.server), ("client", service.messages.client)):
        if count >= _ENOUGH:
            rate = count / capture.span.seconds
            most_words = f", max = {_short(_rounded(rate * factor, ceil))}" if whole else ""
            yield f"{side}_rate = {{ min = {_short(_rounded(rate / factor, floor))}{most_words} }}"
    if whole and service.latencies.count >= _ENOUGH:
        limits = [f"{key} = {_limit(service, key, factor)}" for key in _LEAST_MS]
        yield f"latency = {{ {', '.join(limits)} }}"


def _agreed(key: str, values: Values, most: int | None) -> Iterable[str]:
    """The values that connections have, unless there are more than ``most``, or some that a policy cannot demand."""
    known = values.known
    if known and (most is None or len(known) <= most) and not any(value.startswith(NO_MECHANISM) for value in known):
        yield f"{key} = {_listed(known)}"


def _topics(service: ServiceProfile, whole: bool, certain: bool) -> Iterable[str]:
    for kind, counter, often in (("subscriptions", service.subscriptions, 1), ("topics", service.topics, _OFTEN)):
        globs = _globs(counter)
        if isinstance(globs, str):
            yield f"# {len(counter.counts):,} {kind}, not listed: {globs}."
            continue
        required = [glob for glob, count in globs.items() if count >= often]
        if required and certain and not service.unseen:
            yield f"{kind} = {_listed(required)}"
        if whole and required and len(required) == len(globs):
            yield f"{kind}_allowed = {_listed(required)}"


def _globs(counter: TopicCounter) -> dict[str, int] | str:
    """The topics as patterns, with their numbers; or why they cannot be listed."""
    if len(counter.counts) > _MOST_TOPICS:
        return f"there are more than {_MOST_TOPICS}"
    if counter.is_cut:
        return "the capture does not have all octets of some"
    globs = {literal(topic): count for topic, count in sorted(counter.counts.items())}
    if None in globs:
        return "not all are text"
    return {glob: count for glob, count in globs.items() if glob is not None}


def _clients(service: ServiceProfile, whole: bool, certain: bool) -> Iterable[str]:
    if whole and len(service.clients) <= _MOST_HOSTS:
        yield f"clients = {_listed([escaped(host) for host in sorted(service.clients)])}"
    most = service.most_clients()
    if len(service.lifetimes) > 2 * most or service.lifetimes_cut:
        return  # they come and go
    if certain:
        yield f"min_clients = {most}"
    if whole:
        yield f"max_clients = {most}"


def _limit(service: ServiceProfile, key: str, factor: float) -> str:
    # The percentile is known to within 1 %.
    percent = int(key[1:3])
    return _short(_rounded(max(service.latencies.percentile(percent) * factor * 1.01 / 1e6, _LEAST_MS[key]), ceil))


def _rounded(value: float, up_or_down: Callable[[float], int]) -> float:
    """Up or down to three digits that matter."""
    unit = 10.0 ** (floor(log10(value)) - 2)
    return up_or_down(value / unit) * unit


def _short(value: float) -> str:
    """A number without zeros that say nothing."""
    return re.sub(r"(\.\d*?)0+$", lambda match: match[1] if match[1] != "." else ".0", f"{value:f}")


def _listed(values: Sequence[str]) -> str:
    """The strings as a list of TOML; a single one without brackets."""
    return _toml(values[0]) if len(values) == 1 else f"[{', '.join(map(_toml, values))}]"


def _toml(text: str) -> str:
    """A basic string of TOML."""
    octets = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return '"' + "".join(char if _PLAIN.fullmatch(char) else f"\\U{ord(char):08x}" for char in octets) + '"'


def _has_pattern(address: str) -> bool:
    """Whether a policy can name it: the address of a broken capture may be none."""
    try:
        AddressPattern(escaped(address))
    except ValueError:
        return False
    return True


def _comment(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
