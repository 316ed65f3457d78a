"""Reads policy files: TOML that becomes :class:`Rule` objects. An error names the line in the file."""

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from zmtpsniff.check.builtin import SETS
from zmtpsniff.check.endpoint_reader import PERCENTILES, EndpointReader, limit_words, limits_in
from zmtpsniff.check.endpoints import EndpointDemand, OnlyThese
from zmtpsniff.check.globs import AddressPattern
from zmtpsniff.check.lines import Lines, longest_key
from zmtpsniff.check.mistakes import check_keys, level_in, listed, name_in, suggest
from zmtpsniff.check.model import BY, PATTERNS, PER, Bounds, Filter, Latency, Rule, SequenceOf
from zmtpsniff.check.numbers import number_reader
from zmtpsniff.check.sight import Unseen, types_unknown, unseen_by
from zmtpsniff.errors import Error, naming

TOP_KEYS = ("include", "rule", "endpoint", "only_endpoints")
KINDS = ("expect", "forbid", "latency", "order", "sequence", "no_findings")
_BOUNDS = ("count", "min", "max", "per", "mean")
RULE_KEYS = ("name", *KINDS, *_BOUNDS, "connections", "where", "by", "level")
LATENCY_KEYS = ("pattern", *PERCENTILES, "where")
# By kind of rule: bounds that it cannot have, and why.
_MISPLACED = {
    "latency": (("count", "max", "per", "mean"), "says nothing about a latency; min is how many answers there must be"),
    "sequence": (("count", "min", "per", "mean"), "says nothing about sequence"),
    "no_findings": (_BOUNDS, "says nothing about no_findings"),
    "forbid": (("count", "min"), "contradicts forbid: use expect, or max for how many are tolerated"),
}
_MOST_OCTETS = 4 << 20  # of a policy file
_MOST_RULES = 10_000
_MOST_PARTS = 50  # parts of a key: the time and memory of tomllib grow with the square of their number


class PolicyError(Error, ValueError):
    """The policy cannot be used. The message is one line: the file, the line in it, and what is wrong."""


def read_policy(name: str) -> list[Rule]:
    """Read a policy file; raises PolicyError if it cannot be read or is wrong."""
    try:
        with naming(name, PolicyError), open(name, "rb") as file:
            data = file.read(_MOST_OCTETS + 1)
    except PolicyError:
        raise
    except ValueError as error:  # a name that no file can have
        raise PolicyError(f"{name!r}: {error}") from error
    if len(data) > _MOST_OCTETS:
        raise PolicyError(f"{name}: more than {_MOST_OCTETS >> 20} MiB: if it is a policy, split it")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PolicyError(f"{name}:{line}: not UTF-8, as TOML must be") from error
    return parse_policy(text, name)


def parse_policy(text: str, name: str) -> list[Rule]:
    """Read the text of a policy; ``name`` is the name of its file, for errors. Raises PolicyError."""
    line = longest_key(text, _MOST_PARTS)
    if line is not None:
        raise PolicyError(f"{name}:{line}: a key of more than {_MOST_PARTS} parts")
    try:
        document = tomllib.loads(text)
    except ValueError as error:  # a TOMLDecodeError, or a number of thousands of digits
        raise PolicyError(_syntax(text, name, error)) from error
    except RecursionError as error:
        raise PolicyError(f"{name}:1: too many brackets within each other") from error
    return _Reader(name, Lines(text)).rules(document)


def built_in(names: Iterable[str]) -> list[Rule]:
    """The rules of built-in sets, each once; raises PolicyError for an unknown name."""
    rules: list[Rule] = []
    for name in dict.fromkeys(names):
        if name not in SETS:
            raise PolicyError(f"{name!r} is no built-in set of rules{suggest(name, SETS)}; there are {listed(SETS)}")
        rules += SETS[name]
    return rules


def fail_if_twice(rules: Sequence[Rule]) -> None:
    """Raise PolicyError if two rules have the same name: reports tell them apart by it."""
    seen: dict[str, Rule] = {}
    for rule in rules:
        other = seen.setdefault(rule.name, rule)
        if other is not rule:
            first = f"{other.file}:{other.line}" if other.file else f"the built-in set {other.set_name}"
            raise PolicyError(f"{rule.file}:{rule.line}: rule {rule.name!r}: {first} has a rule of the same name")


def _syntax(text: str, name: str, error: ValueError) -> str:
    # Python 3.14 has attributes for it; before, the place is in the text only.
    message, _, place = str(error).rpartition(" (at ")
    words = place.rstrip(")").replace(",", "").split()
    if len(words) == 4 and words[0] == "line" and words[1].isdigit():
        return f"{name}:{words[1]}: {message} (column {words[3]})"
    return f"{name}:{text.count(chr(10)) + 1}: {message or error}"


class _Reader:
    """Makes rules of a parsed document, and says where it is wrong."""

    def __init__(self, name: str, lines: Lines) -> None:
        self._name = name
        self._lines = lines
        self._table = "rule"  # or "endpoint": what is looked at
        self._place = 0  # of it
        self._title = ""

    def rules(self, document: dict[str, Any]) -> list[Rule]:
        """All rules, those of included sets first."""
        for key in document:
            if key not in TOP_KEYS:
                why = f"unknown key {key!r}{suggest(key, (*TOP_KEYS, *RULE_KEYS))}"
                if key in RULE_KEYS:
                    why = f"{key!r} belongs to a rule: write [[rule]] and a name above it"
                self._fail_at(self._lines.of_key(key), why)
        rules = self._included(document.get("include", []))
        rules += [self._rule(table) for table in self._tables(document, "rule")]
        rules += self._endpoints(document)
        if not rules:
            self._fail_at(1, "there is no rule in it: add a [[rule]], an [[endpoint]], or include a built-in set")
        fail_if_twice(rules)
        return rules

    def _tables(self, document: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
        """The tables of one name, each while it is looked at."""
        tables = document.get(name, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            self._fail_at(self._lines.of_key(name), f"{name}s are written as [[{name}]], with two brackets")
        if len(tables) > _MOST_RULES:
            self._fail_at(self._lines.of_listed(name, _MOST_RULES), f"more than {_MOST_RULES:,} {name}s")
        self._table = name
        for self._place, table in enumerate(tables):
            self._title = f"{name} {self._place + 1}"
            yield table

    def _endpoints(self, document: dict[str, Any]) -> list[Rule]:
        rules: list[Rule] = []
        known: list[AddressPattern] = []
        for table in self._tables(document, "endpoint"):
            made = EndpointReader(self._fail).read(table)
            known += made.addresses
            for key, text, endpoint in made.demands:
                line = self._lines.of_listed("endpoint", self._place, key)
                rules.append(
                    Rule(
                        f"{made.name}: {key}", "endpoint", text, level=made.level, file=self._name, line=line,
                        endpoint=endpoint, group=made.name, needs_patterns=key == "latency",
                    )
                )  # fmt: skip
        only = document.get("only_endpoints", False)
        line = self._lines.of_key("only_endpoints")
        if not isinstance(only, bool):
            self._fail_at(line, "only_endpoints must be true or false")
        if only:
            everything = EndpointDemand((AddressPattern("*:*"),), OnlyThese(tuple(known)))
            text = "no service but those of [[endpoint]]"
            rules.append(Rule("no other endpoints", "endpoint", text, file=self._name, line=line, endpoint=everything))
        return rules

    def _included(self, names: Any) -> list[Rule]:
        line = self._lines.of_key("include")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            self._fail_at(
                line, f'include must be a list of built-in sets, such as ["protocol"]; there are {listed(SETS)}'
            )
        try:
            return built_in(names)
        except PolicyError as error:
            self._fail_at(line, f"include: {error}")

    def _rule(self, table: dict[str, Any]) -> Rule:
        check_keys(table, RULE_KEYS, self._fail)
        if "name" not in table:
            self._fail(None, "it has no name")
        name = name_in(table, "", self._fail)
        self._title = f"rule {name!r}"
        kinds = [kind for kind in KINDS if kind in table]
        if len(kinds) != 1:
            has = f"it has {' and '.join(kinds)}" if kinds else "it has none of them"
            self._fail(kinds[1] if kinds else None, f"a rule needs one of {listed(KINDS)}; {has}")
        kind = kinds[0]
        bounds = self._bounds(table, kind)
        connections = None
        if "connections" in table:
            if bounds.per != "connection" and kind != "order":
                self._fail("connections", 'connections says which of them count, so it needs per = "connection"')
            connections = self._filter("connections", table["connections"])
        level = level_in(table, self._fail)
        latency = None
        unseen: Unseen | None = None
        sequence: SequenceOf | None = None
        codes: tuple[str, ...] = ()
        if kind == "latency":
            latency, filters, text = self._latency(table[kind])
            unseen = types_unknown if latency.pattern == "request-reply" else None
        elif kind == "order":
            filters, text = self._order(table[kind])
        elif kind == "sequence":
            sequence, filters, text = self._sequence(table)
        elif kind == "no_findings":
            codes, filters = self._codes(table[kind]), ()
            text = f"no findings: {listed(codes)}"
        else:
            filters, text = (self._filter(kind, table[kind]),), f"{kind} {table[kind].strip()}"
            unseen = unseen_by(table[kind])
        line = self._lines.of_listed("rule", self._place)
        return Rule(
            name, kind, text, filters, bounds, latency, connections, level, None, self._name, line,  # type: ignore[arg-type]
            unseen=unseen, sequence=sequence, codes=codes, needs_patterns=kind in ("latency", "no_findings"),
        )  # fmt: skip

    def _bounds(self, table: dict[str, Any], kind: str) -> Bounds:
        per = table.get("per", "capture")
        if per not in PER:
            self._fail("per", f"per must be one of {listed(PER)}, not {per!r}")
        keys, why = _MISPLACED.get(kind, ((), ""))
        for key in keys:
            if key in table:
                self._fail(key, f"{key} {why}")
        for key in ("where", "by"):
            if key in table and kind != "sequence":
                self._fail(key, f"{key} belongs to a sequence")
        if kind == "order" and per == "second":
            self._fail("per", 'records have an order per "connection" or, without per, in the whole capture')
        mean = table.get("mean", False)
        if not isinstance(mean, bool):
            self._fail("mean", "mean must be true or false")
        if mean and per != "second":
            self._fail("mean", 'mean needs per = "second"')
        count, least, most = (self._number(table, key, whole=not mean) for key in ("count", "min", "max"))
        if count is not None:
            if least is not None or most is not None:
                self._fail("count", "count is an exact number, so min and max must not be there")
            least = most = count
        if least is not None and most is not None and least > most:
            self._fail("min", f"min ({least:g}) is more than max ({most:g})")
        if kind == "forbid" and most is None:
            most = 0
        if kind in ("expect", "latency", "order") and least is None and most is None:
            least = 1
        return Bounds(least, most, per, mean)

    def _number(self, table: dict[str, Any], key: str, whole: bool) -> float | None:
        value = table.get(key)
        if value is None:
            return None
        kinds = (int,) if whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value < 1e18:
            self._fail(key, f"{key} must be a {'whole ' if whole else ''}number of 0 or more, not {value!r}")
        return value

    def _latency(self, table: Any) -> tuple[Latency, tuple[Filter, ...], str]:
        if not isinstance(table, dict):
            self._fail("latency", 'latency is written as { pattern = "request-reply", p99_ms = 50 }')
        check_keys(table, LATENCY_KEYS, self._fail, "latency")
        pattern = table.get("pattern")
        if pattern not in PATTERNS:
            given = "is missing" if pattern is None else f"{pattern!r} is none{suggest(str(pattern), PATTERNS)}"
            self._fail("latency", f"latency: pattern {given}; there are {listed(PATTERNS)}")
        limits = limits_in(table, self._fail)
        filters = (self._filter("where", table["where"], "latency"),) if "where" in table else ()
        text = f"latency of {pattern}: {limit_words(limits)}"
        if filters:
            text += f", where {table['where'].strip()}"
        return Latency(pattern, limits), filters, text

    def _order(self, texts: Any) -> tuple[tuple[Filter, ...], str]:
        if not isinstance(texts, list) or len(texts) < 2:
            self._fail("order", "order must be a list of two filters or more")
        filters = tuple(
            [self._filter(f"order, filter {number}", text, "order") for number, text in enumerate(texts, 1)]
        )
        return filters, "order " + ", then ".join(text.strip() for text in texts)

    def _sequence(self, table: dict[str, Any]) -> tuple[SequenceOf, tuple[Filter, ...], str]:
        text = table["sequence"]
        if not isinstance(text, str):
            self._fail("sequence", "sequence must be text, such as 'frames[1]'")
        try:
            read = number_reader(text.strip())
        except ValueError as error:
            self._fail("sequence", f"sequence: {error}")
        by = table.get("by", "sender")
        if by not in BY:
            self._fail("by", f"by must be one of {listed(BY)}, not {by!r}")
        filters = (self._filter("where", table["where"]),) if "where" in table else ()
        words = f"numbers at {text.strip()} in sequence, by {by}"
        if filters:
            words += f", where {table['where'].strip()}"
        return SequenceOf(text.strip(), read, by), filters, words

    def _codes(self, codes: Any) -> tuple[str, ...]:
        from zmtpsniff.check.diagnoses import FINDING_NAMES  # knows all that a diagnosis does

        if not isinstance(codes, list) or not codes or not all(isinstance(code, str) for code in codes):
            self._fail("no_findings", 'no_findings must be a list of codes, such as ["subscriber-slow"]')
        for code in codes:
            if code not in FINDING_NAMES:
                self._fail("no_findings", f"no_findings: there is no finding {code!r}{suggest(code, FINDING_NAMES)}")
        return tuple(codes)

    def _filter(self, what: str, text: Any, key: str | None = None) -> Filter:
        # Importing the parser of filters takes longer than reading a policy that has only built-in sets.
        from zmtpsniff.filters import FilterError, compile_filter

        if not isinstance(text, str) or not text.strip():
            self._fail(key or what, f"{what} must be a filter in quotes, as for -Y")
        try:
            return compile_filter(text)
        except FilterError as error:
            self._fail(key or what, f"{what}: {error}")

    def _fail(self, key: str | None, reason: str) -> NoReturn:
        line = self._lines.of_listed(self._table, self._place, key)
        self._fail_at(line, f"{self._title}: {reason}")

    def _fail_at(self, line: int, reason: str) -> NoReturn:
        raise PolicyError(f"{self._name}:{line}: {reason}")
