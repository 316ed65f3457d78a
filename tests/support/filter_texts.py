"""Events of all kinds and texts of filters, made at random for tests of display filters."""

from types import NoneType
from typing import Any

from hypothesis import strategies as st

from dissectors.events import Cut, Hidden
from tests.support.made_up_events import Strategies, made_up_events
from zmtpsniff.filters.filter_fields import list_fields

WORDS = ["orders", "", "REQ", "a", "é", "127.0.0.1:5555", "[::1]:80", "3.1", "NULL", "\x00x", "READY", "Socket-Type"]


_OCTETS = st.sampled_from([word.encode() for word in WORDS]) | st.binary(max_size=6)
_ORDINARY: Strategies = {
    NoneType: st.none(),
    bool: st.booleans(),
    int: st.integers(-1, 6) | st.integers(0, 2**63),
    float: st.floats(0, 1),
    str: st.sampled_from(WORDS) | st.text(max_size=5) | st.just("\udcff"),
    Any: st.sampled_from(WORDS),
    bytes: _OCTETS,
    Cut: st.builds(lambda data, more: Cut(data, len(data) + more), _OCTETS, st.integers(1, 1000)),
    Hidden: st.builds(Hidden, st.integers(0, 20)),
}
EVENTS = made_up_events(_ORDINARY)

_SUBSCRIPTS = ["", "", "", "[0]", "[-1]", "[0:2]", "[1:]", "[:1]", "[0-1]", "[-2:2]", "[0][0:1]"]
_TEXTS = [r'"orders"', '"REQ"', '""', '"a"', r'"\x00x"', r'r"\d"', r'"\u00e9"', '"127.0.0.1:5555"']
_LITERALS = {
    "text": _TEXTS,
    "number": ["0", "1", "-1", "0x10", "010", "1.5", "1e3", "5555", "9223372036854775807"],
    "boolean": ["true", "false", "1", "0", "True"],
    "octets": [*_TEXTS, "61", "ff", "6f:72", "0x6f72", r'"\xff"'],
    "ip": ["127.0.0.1", "127.0.0.0/8", '"10.0.0.1"', "0.0.0.0/0"],
    "ipv6": ["::1", "fe80::/10", '"::1"', "::"],
    "time": ["0", "1.5", '"2026-11-21"', '"2026-11-21 18:00:00.5Z"', "4ms"],
    "object": ["0"],
    "value": [*_TEXTS, "0", "1.5", "true", "null", "61", "6f:72"],
}
_RELATIONS = {
    "ordered": ["==", "!=", "===", "!==", "<", "<=", ">", ">=", "eq", "ne", "lt", "le", "gt", "ge", "any_eq", "all_ne"],
    "equal": ["==", "!=", "===", "!=="],
    "searched": ["contains", "matches", "~"],
}
_PATTERNS = ['"^o"', '"."', r'r"\x00"', '"(a|aa)+$"', '"é"', r'"[^a]\b"']


@st.composite
def tests(draw: st.DrawFn) -> str:
    """One test of a field; most of them are right."""
    info = draw(st.sampled_from(list_fields()))
    name, kind = info.name, info.kind.split(" or ")[-1]
    if kind == "properties":
        name, kind = name + draw(st.sampled_from([".Socket-Type", '["A b"]', ""])), "octets"
    if kind.startswith("list of "):
        name += draw(st.sampled_from(_SUBSCRIPTS))
        kind = kind.removeprefix("list of ")
        kind = kind if kind == "octets" else kind.removesuffix("s")
    if kind in ("octets", "text"):
        name += draw(st.sampled_from(_SUBSCRIPTS))
    if kind == "octets":
        part, kind = draw(
            st.sampled_from(
                [
                    ("", kind),
                    ("", kind),
                    (".text", "text"),
                    (".hex", "text"),
                    (".length", "number"),
                    (".truncated", "boolean"),
                ]
            )
        )
        name += part
    function = draw(st.sampled_from(["", "", "", "len", "count", "upper", "lower"]))
    if function:
        name = f"{function}({name})"
        kind = "number" if function in ("len", "count") else kind
    quantifier = draw(st.sampled_from(["", "", "any ", "all "]))
    shape = draw(st.sampled_from(["presence", "compare", "compare", "search", "set", "field"]))
    if shape == "presence" and not function:
        return name
    literals = _LITERALS.get(kind, ["0"])
    if shape == "search" and kind in ("text", "octets"):
        relation = draw(st.sampled_from(_RELATIONS["searched"]))
        return f"{quantifier}{name} {relation} {draw(st.sampled_from(_PATTERNS))}"
    if shape == "set":
        chosen = draw(st.lists(st.sampled_from(literals), min_size=1, max_size=3))
        if kind == "number":
            chosen.append("2 .. 5")
        return f"{quantifier}{name} {draw(st.sampled_from(['in', 'not in']))} {{{', '.join(chosen)}}}"
    relation = draw(st.sampled_from(_RELATIONS["equal" if kind == "boolean" else "ordered"]))
    other = draw(st.sampled_from(literals)) if shape != "field" else draw(st.sampled_from(list_fields())).name
    return f"{quantifier}{name} {relation} {other}"


def _joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    joints = st.sampled_from(["&&", "||", "^^", "and", "or", "xor"])
    return st.builds("{} {} {}".format, inner, joints, inner) | st.builds(
        "{}({})".format, st.sampled_from(["", "!", "not "]), inner
    )


FILTERS = st.recursive(tests(), _joined, max_leaves=5)
