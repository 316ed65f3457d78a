"""Reads an ``[[endpoint]]`` of a policy: what is demanded of a service."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dissectors.events import Side
from zmtpsniff.check.endpoints import (
    Agreed,
    AgreedOn,
    AllowedClients,
    AllowedTopics,
    ClientCount,
    Demand,
    EndpointDemand,
    Limits,
    Rate,
    ReplyTime,
    RequiredTopics,
)
from zmtpsniff.check.globs import AddressPattern, Glob
from zmtpsniff.check.mistakes import Fail, check_keys, level_in, listed, name_in
from zmtpsniff.check.model import Level
from zmtpsniff.check.services import TopicKind

PERCENTILES = {"p50_ms": 50, "p90_ms": 90, "p95_ms": 95, "p99_ms": 99, "max_ms": 100}
_AGREED: tuple[Agreed, ...] = ("mechanism", "version", "socket_type", "client_socket_type")
_TOPICS: tuple[TopicKind, ...] = ("subscriptions", "topics")
_SIDES: tuple[Side, ...] = ("server", "client")
_COUNTS = ("min_clients", "max_clients")
_DEMANDS = (
    *_AGREED,
    *(key for kind in _TOPICS for key in (kind, f"{kind}_allowed")),
    "clients",
    *_COUNTS,
    *(f"{side}_rate" for side in _SIDES),
    "latency",
)
ENDPOINT_KEYS = ("address", "name", *_DEMANDS, "level")
RATE_KEYS = ("min", "max")


class EndpointTable(NamedTuple):
    """An ``[[endpoint]]`` of a policy, as read."""

    name: str
    level: Level
    addresses: tuple[AddressPattern, ...]
    demands: list[tuple[str, str, EndpointDemand]]  # the key, what it says in words, and what it demands


class EndpointReader:
    """Makes demands of a table."""

    def __init__(self, fail: Fail) -> None:
        """``fail`` says what is wrong."""
        self._fail = fail

    def read(self, table: Mapping[str, Any]) -> EndpointTable:
        """Read the table."""
        check_keys(table, ENDPOINT_KEYS, self._fail)
        if "address" not in table:
            self._fail(None, 'it has no address, such as address = "10.0.0.5:5561"')
        texts = self._texts(table, "address")
        try:
            addresses = tuple(map(AddressPattern, texts))
        except ValueError as error:
            self._fail("address", f"address: {error}")
        name, level = name_in(table, ", ".join(texts), self._fail), level_in(table, self._fail)
        demands = [(key, text, EndpointDemand(addresses, demand)) for key, text, demand in self._demands(table)]
        if not demands:
            self._fail(None, f"it demands nothing; give one of {listed(_DEMANDS)}")
        return EndpointTable(name, level, addresses, demands)

    def _demands(self, table: Mapping[str, Any]) -> list[tuple[str, str, Demand]]:
        made: list[tuple[str, str, Demand]] = []
        for what in _AGREED:
            if what in table:
                values = self._texts(table, what)
                made.append((what, f"{what} {' or '.join(values)}", AgreedOn(what, values)))
        for kind in _TOPICS:
            if kind in table:
                topics = self._globs(table, kind)
                made.append((kind, f"{kind} {_shown(topics)}", RequiredTopics(kind, topics)))
            if (allowed := f"{kind}_allowed") in table:
                topics = self._globs(table, allowed)
                words = f"no other {kind} than {_shown(topics)}"
                made.append((allowed, words, AllowedTopics(kind, topics)))
        if "clients" in table:
            hosts = self._globs(table, "clients")
            words = f"no other clients than {_shown(hosts)}"
            made.append(("clients", words, AllowedClients(hosts)))
        counts = [key for key in _COUNTS if key in table]
        if counts:
            bounds = self._bounds(table, *counts, key=counts[0])
            least, most = bounds.get("min_clients"), bounds.get("max_clients")
            words = " and ".join(f"{key} {bounds[key]:g}" for key in counts)
            made.append((counts[0], words, ClientCount(least, most)))
        rates = [(f"{side}_rate", side) for side in _SIDES if f"{side}_rate" in table]
        made += [(key, *self._rate(table[key], key, side)) for key, side in rates]
        if "latency" in table:
            limits = self._latency(table["latency"])
            made.append(("latency", f"replies: {limit_words(limits)}", ReplyTime(limits)))
        return made

    def _rate(self, table: Any, key: str, side: Side) -> tuple[str, Demand]:
        if not isinstance(table, dict) or not table:
            self._fail(key, f"{key} is written as {{ min = 10, max = 200 }}, in messages a second")
        check_keys(table, RATE_KEYS, self._fail, key)
        bounds = self._bounds(table, *table, key=key)
        words = " and ".join(f"{name} {bound:g}" for name, bound in bounds.items())
        return f"messages a second by the {side}: {words}", Rate(side, bounds.get("min"), bounds.get("max"))

    def _latency(self, table: Any) -> Limits:
        if not isinstance(table, dict):
            self._fail("latency", "latency is written as { p99_ms = 50 }")
        check_keys(table, PERCENTILES, self._fail, "latency")
        return limits_in(table, self._fail)

    def _bounds(self, table: Mapping[str, Any], *names: str, key: str) -> dict[str, float]:
        """The numbers in a table, the lower one first."""
        for name in names:
            value = table[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
                self._fail(name if key == names[0] else key, f"{name} must be a number of 0 or more, not {value!r}")
        bounds: dict[str, float] = {name: table[name] for name in sorted(names, reverse=True)}
        values = list(bounds.values())
        if values != sorted(values):
            self._fail(key, f"{' is more than '.join(f'{name} ({bound:g})' for name, bound in bounds.items())}")
        return bounds

    def _globs(self, table: Mapping[str, Any], key: str) -> tuple[Glob, ...]:
        return tuple(map(Glob, self._texts(table, key, empty=True)))

    def _texts(self, table: Mapping[str, Any], key: str, *, empty: bool = False) -> Sequence[str]:
        """A text, or a list of them; topics may be ``empty``."""
        value = table[key]
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            self._fail(key, f"{key} must be text, or a list of texts")
        if not empty and (not texts or not all(text.strip() for text in texts)):
            self._fail(key, f"{key} must not be empty")
        return texts


def _shown(globs: Sequence[Glob]) -> str:
    return listed(f'"{glob.text}"' for glob in globs)


def limits_in(table: Mapping[str, Any], fail: Fail) -> Limits:
    """The limits of latencies in the table of the key ``latency``, which may have other keys, too."""
    limits = []
    for key, percent in PERCENTILES.items():
        if key in table:
            value = table[key]
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
                fail("latency", f"latency: {key} must be a number of milliseconds above 0, not {value!r}")
            limits.append((key.removesuffix("_ms"), percent, round(value * 1e6)))
    if not limits:
        fail("latency", f"latency: there is no limit; give one of {listed(PERCENTILES)}")
    return tuple(limits)


def limit_words(limits: Limits) -> str:
    """The limits of latencies in words, as in ``p99 50 ms at most``."""
    return ", ".join(f"{name} {limit / 1e6:g} ms at most" for name, _, limit in limits)
