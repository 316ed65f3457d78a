"""Protocol Buffers are found where they are certain, and never in anything else."""

import json
import pickle
import struct
from typing import Any

import cbor2
import msgspec
import pytest
from google.protobuf import any_pb2, api_pb2, descriptor_pb2, struct_pb2, timestamp_pb2
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from zmtpsniff.analysis import protobuf
from zmtpsniff.analysis.bodies import decode

FILE = descriptor_pb2.FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
FILE.message_type.add(name="Order").field.add(name="number", number=1, type=5, label=1)


def test_file_description() -> None:
    assert decode(FILE.SerializeToString()) == (
        "protobuf",
        {
            "1": "shop/order.proto",
            "2": "shop",
            "4": {"1": "Order", "2": {"1": "number", "3": 1, "4": 1, "5": 5}},
            "12": "proto3",
        },
    )


def test_octets_repeated_and_large_numbers() -> None:
    api = api_pb2.Api(name="shop.Orders", version="v1")
    for name in ("GetOrder", "PutOrder", "DeleteOrder"):
        api.methods.add(name=name, request_type_url="type.example/shop.Order")
    found = decode(api.SerializeToString())
    assert found is not None
    assert [method["1"] for method in found[1]["2"]] == ["GetOrder", "PutOrder", "DeleteOrder"]
    wrapped = any_pb2.Any(type_url="type.example/google.protobuf.Timestamp")
    wrapped.value = timestamp_pb2.Timestamp(seconds=2**40, nanos=5).SerializeToString()
    assert decode(wrapped.SerializeToString()) == (
        "protobuf", {"1": "type.example/google.protobuf.Timestamp", "2": {"1": 2**40, "2": 5}},
    )  # fmt: skip
    negative = struct_pb2.Struct()
    negative.update({"temperature": -3.5, "place": "Zürich Hauptbahnhof"})
    found = decode(negative.SerializeToString())
    assert found is not None
    # One number inside a message is not told from octets.
    values = {each["1"]: each["2"] for each in found[1]["1"]}
    assert values == {"temperature": b"\x11" + struct.pack("<d", -3.5), "place": {"3": "Zürich Hauptbahnhof"}}


@pytest.mark.parametrize(
    "message",
    [
        timestamp_pb2.Timestamp(seconds=1_700_000_000, nanos=1),
        struct_pb2.Value(string_value="tea"),
        struct_pb2.ListValue(values=[struct_pb2.Value(number_value=1)] * 20),
    ],
    ids=["two numbers", "short text", "no word"],
)
def test_what_is_not_certain_is_left_alone(message: Any) -> None:
    assert decode(message.SerializeToString()) is None


@pytest.mark.parametrize(("kind", "octets"), [(5, b"\1\2\3\4"), (1, b"\1\2\3\4\5\6\7\x08")])
def test_numbers_of_a_fixed_size(kind: int, octets: bytes) -> None:
    """Of four octets (I32) and of eight (I64); what follows them is read, too."""
    text = "a text that says what it is"
    first, third = (bytes([number << 3 | 2, len(text)]) + text.encode() for number in (1, 3))
    assert protobuf.decode(first + bytes([2 << 3 | kind]) + octets + third) == {"1": text, "2": octets, "3": text}


def test_what_follows_or_is_missing() -> None:
    data = FILE.SerializeToString()
    assert decode(data + b"\0") is None
    assert decode(data[:-1]) is None
    assert decode(data[:1] + b"\x90\0" + data[2:]) is None  # a length that is longer than it must be
    assert protobuf.decode(b"\x0a\x80" * 100_000) is None
    deep = b"word"
    for _ in range(200):
        deep = (
            b"\x0a" + (bytes([len(deep)]) if len(deep) < 0x80 else struct.pack("BB", len(deep) & 127 | 128, 0)) + deep
        )
    protobuf.decode(deep)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner, max_size=6),
    max_leaves=20,
)


@settings(max_examples=examples(300), deadline=None)
@given(JSON)
@example([-3.221121146402767e16, 3.2211211464024584e16, "", "", "0\x1f¡\U00093100𐀀"])
def test_other_encodings_are_none(value: Any) -> None:
    for data in (
        json.dumps(value).encode(),
        json.dumps(value, ensure_ascii=False, indent=2).encode(),
        msgspec.msgpack.encode(value),
        cbor2.dumps(value),
        pickle.dumps(value),
        pickle.dumps(value, 2),
        struct.pack("<I", len(repr(value))) + repr(value).encode(),
        bytes([len(repr(value)) & 0xFF]) + repr(value).encode(),
    ):
        found = decode(data)
        assert found is None or found[0] != "protobuf"


@settings(max_examples=examples(300))
@given(st.text(st.characters(codec="utf-8"), max_size=300))
def test_text_is_none(text: str) -> None:
    if not any(char < " " and char not in "\t\n\r" for char in text):
        found = decode(text.encode())
        assert found is None or found[0] != "protobuf"


@given(st.sampled_from("BHIQbhiqfd"), st.sampled_from("<>"), st.data())
def test_arrays_of_numbers_are_none(kind: str, order: str, data: st.DataObject) -> None:
    size = struct.calcsize(kind) * 8
    bounds = (0, 2**size - 1) if kind.isupper() else (-(2 ** (size - 1)), 2 ** (size - 1) - 1)
    numbers: st.SearchStrategy[float] = (
        st.floats(width=32 if kind == "f" else 64) if kind in "fd" else st.integers(*bounds) | st.integers(0, 100)
    )
    values = data.draw(st.lists(numbers, max_size=60))
    found = decode(struct.pack(f"{order}{len(values)}{kind}", *values))
    assert found is None or found[0] != "protobuf"
