"""Octets and strings from the network, made safe and readable."""

import sys
import unicodedata
from typing import Any

import pytest

from dissectors.events import Cut, Hidden
from zmtpsniff.words.text import encodable, escape, hex_dump, quote, wire_lengths


def test_every_unseen_character_is_escaped() -> None:
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp", "Cs"):
            assert escape(char).isascii()
            assert escape(char).isprintable()


def test_escape() -> None:
    assert escape("plain ünïcode 日本語 😀") == "plain ünïcode 日本語 😀"
    assert escape("\x1b[31m\n\t\r\x7f\x9b\u202e\ud800\U000e0041") == (
        "\\x1b[31m\\n\\t\\r\\x7f\\x9b\\u202e\\ud800\\U000e0041"
    )


@pytest.mark.parametrize(
    ("value", "max_bytes", "expected"),
    [
        (b"", 0, '""'),
        (b"hello", 0, '"hello"'),
        (b"hello world", 8, '"hello wo"...'),
        (b'{"a": 1}', 0, "'{\"a\": 1}'"),
        (b"'\"\\", 0, '"\'\\"\\\\"'),
        (b"\x00\xff", 0, "0x00ff"),
        (b"\x00" * 10, 2, "0x0000..."),
        ("aé".encode(), 2, '"a"...'),
        (Cut(b"ab", 5), 0, '"ab"...'),
        (Cut(b"", 5), 0, '""...'),
        (Hidden(6), 0, "(6 octets, not shown)"),
    ],
)
def test_quote(value: Any, max_bytes: int, expected: str) -> None:
    assert quote(value, max_bytes) == expected


def test_quote_says_how_many_are_left_out() -> None:
    assert quote(b"a" * 2000, 3, "… {} more") == '"aaa"… 1,997 more'


def test_hex_dump() -> None:
    assert hex_dump(b"") == []
    assert hex_dump(bytes(range(60, 78))) == [
        ("0000", "3c 3d 3e 3f 40 41 42 43  44 45 46 47 48 49 4a 4b", "|<=>?@ABCDEFGHIJK|"),
        ("0010", "4c 4d" + " " * 43, "|LM|"),
    ]
    assert hex_dump(bytes(0x10001))[-1][0] == "00010000"


def test_encodable() -> None:
    assert encodable("utf-8") is encodable("UTF8") is encodable(None) is str
    to_ascii = encodable("ascii")
    assert to_ascii("é→\n") == "\\xe9\\u2192\n"


def test_a_frame_may_claim_any_length() -> None:
    assert wire_lengths([]) == []
    assert wire_lengths([b"ab", Hidden(3), Cut(b"x", 1 << 40)]) == [2, 3, 1 << 40]
    assert wire_lengths([b"ab", Cut(b"x", (1 << 64) - 1), Hidden(3)]) == [2, (1 << 64) - 1, 3]
