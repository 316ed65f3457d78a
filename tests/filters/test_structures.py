"""Fields of bodies and payloads in filters, by the types that they have in each message."""

import json

import cbor2
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissectors.events import Body, Cut, Greeting, Hidden, Message, Payload
from tests.support.examples import examples
from zmtpsniff.analysis.bodies import bodies_of
from zmtpsniff.filters import FilterError, compile_filter

PLACE = (1_700_000_000_500_000_000, 7, 3, "10.0.0.1:5555", "10.0.0.2:40000")
ORDER = {
    "order": {
        "qty": 15001,
        "price": 1.5,
        "id": "17",
        "tags": ["new", "Tea", None],
        "paid": True,
        "note": None,
        "lines": [{"n": 1}, {"n": 2}],
        "text": "a key that octets have as a part",
        "rest": [],
        "odd name": {"a.b": -3},
    }
}
ENCODED = {
    "json": json.dumps(ORDER).encode(),
    "msgpack": msgspec.msgpack.encode(ORDER),
    "cbor": cbor2.dumps(ORDER),
}


def _message(body: bytes) -> Message:
    return Message(*PLACE, [b"orders", body])


PASSING = [
    "body.order.qty > 15000",
    "body.order.qty >= 15001 && body.order.qty <= 15001 && body.order.qty == 15001 && body.order.qty != 1",
    "15000 < body.order.qty < 15002.5",
    "body.order.price == 1.5 && body.order.price < 2 && body.order.price >= 1.5",
    'body.order.id == "17" && body.order.id < "2" && body.order.id == 31:37',
    'body.order.qty == "15001" && body.order.paid == "true"',
    'body.order.tags == "new" && body.order.tags contains "ea" && body.order.tags matches "^tea$"',
    "body.order.tags == null && count(body.order.tags) == 3 && len(body.order.tags) == 3",
    'body.order.tags[0] == "new" && body.order.tags[-1] == null && body.order.tags[1:] == "Tea"',
    "body.order.paid == true && body.order.paid != false",
    "body.order.note && body.order.note == null && !(body.order.note != null)",
    "body.order.lines.n == 2 && body.order.lines[0].n == 1 && all body.order.lines.n >= 1",
    'body.order.text contains "key" && body.order.id.length == 2',
    "body && body.order && body.order.rest && len(body.order) == 10",
    'body.order["odd name"]["a.b"] == -3',
    "body.order.qty in {1, 15000 .. 16000} && body.order.id in {\"17\", 4} && body.order.id in {\"1\" .. \"2\"}",
    'upper(body.order.tags) == "NEW" && body.order.id[0:1] == "1"',
    "body.order.qty > body.order.price && body.order.qty > packet && body.order.tags != frames[0]",
]  # fmt: skip
FAILING = [
    "body.order.qty > 15001",
    "body.order.id == 17",  # a text is no number
    "body.order.id > 5",
    'body.order.qty > "1"',
    "body.order.paid == 1",  # true is no number
    "body.order.paid > false",
    "body.order.none",
    "body.order.none == null",
    "body.order.none != 1",  # what is not there does not differ
    "body.order == 1",
    "body.order.rest == 1",
    "body.order.tags[7] == null",
    "body.order.qty.length > 0",
    "body.order.note < 1",
    'body.order.lines == "1"',
]


@pytest.mark.parametrize("encoding", ENCODED)
def test_types_of_what_is_in_bodies(encoding: str) -> None:
    alone, shown = _message(ENCODED[encoding]), _message(ENCODED[encoding])
    shown.bodies = bodies_of(shown)  # as with --decode-bodies
    assert [body.format for body in shown.bodies] == [encoding]
    for text in PASSING:
        passes = compile_filter(text)
        assert passes(alone) is passes(shown) is True, text
        assert compile_filter(f"!({text})")(alone) is False, text
    for text in FAILING:
        passes = compile_filter(text)
        assert passes(alone) is passes(shown) is False, text


def test_types_of_fields_of_payloads() -> None:
    fields = {**ORDER, "octets": b"\x00\xffa", "cut": Cut(b"abc", 9), "password": Hidden(6), "status_code": 404}
    message = Message(*PLACE, [b"x"], payload=Payload("shop", "an order", fields))
    for text in PASSING:
        if "body &&" not in text:
            assert compile_filter(text.replace("body", "payload"))(message) is True, text
    for text in (
        'payload.protocol == "shop" && payload.status_code == 404 && payload.status_code == "404"',
        "payload.octets == 00:ff:61 && payload.octets contains ff && payload.octets.hex == \"00ff61\"",
        'payload.cut != "abd" && payload.cut > "abb" && payload.cut.length == 9 && payload.cut.truncated',
        "payload.password.length == 6 && payload.password",
    ):  # fmt: skip
        assert compile_filter(text)(message) is True, text
    for text in (
        'payload.cut == "abc"',
        'payload.password == "secret" || payload.password != "secret" || payload.password != 1',
        "payload.nothing",
        "payload.nothing == payload.nothing",
    ):
        assert compile_filter(text)(message) is False, text


def test_only_messages_have_bodies_and_hidden_ones_are_not_looked_into() -> None:
    assert compile_filter("body || body.a != 1")(Greeting(*PLACE, "3.1", "NULL", False)) is False
    secret = _message(b'{"a":1}')
    passes = compile_filter("body.a == 1")
    assert passes(secret)
    secret = _message(b'{"a":1}')
    secret.payload = Payload("zap", "a request", {}, [1])
    assert not passes(secret)
    assert not passes(Message(*PLACE, [Cut(b'{"a":1}', 9)]))
    secret.bodies = [Body(0, "json", {"a": 1})]  # of a frame that is none of them
    assert passes(secret)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("body.address == 10.0.0.1", '10.0.0.1 is no text, number, true, false, null or octets; a text is in'),
        ("payload.name == tea", 'column 17: there is no field "tea"; a text is written in double quotes: "tea"'),
        ('body.a in {1 .. "x"}', "column 12: a range has two numbers, or two texts, at its ends"),
        ("body.wait == 5ms", "column 14: body.wait is not in nanoseconds, so 5ms needs no unit"),
        ('body.a matches "("', "column 16: no regular expression"),
        ("body.a.b.c.d.e.f.g.h.i == 1", "a field has 8 parts at most"),
    ],
)  # fmt: skip
def test_mistakes(text: str, words: str) -> None:
    with pytest.raises(FilterError) as raised:
        compile_filter(text)
    assert words in str(raised.value)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "text"]), inner, max_size=3),
    max_leaves=10,
)
_TESTS = [
    f"{path} {test}"
    for path in ("payload.a", "payload.a.b", "payload.a[0]", "payload.a[1:2]", "payload.a.text", "payload.a.hex")
    for test in ("== 1", '!= "a"', "< 1.5", '>= "a"', "contains 61", 'matches "a"', "== true", "!= null", "in {1 .. 3}")
]


@settings(max_examples=examples(60))
@given(value=_VALUES)
def test_a_filter_never_raises_whatever_the_value(value: object) -> None:
    message = Message(*PLACE, [b"x"], payload=Payload("made-up", "", {"a": value}))
    for passes in _COMPILED:
        assert passes(message) in (True, False)


_COMPILED = [compile_filter(text) for text in _TESTS]


def test_numbers_too_long_to_write_are_no_texts() -> None:
    message = Message(*PLACE, [b"x"], payload=Payload("made-up", "", {"a": 10**5000}))
    assert compile_filter("payload.a > 1e300")(message)
    assert not compile_filter('payload.a == "1"')(message)
    assert not compile_filter('payload.a matches "0"')(message)
