"""Key files and rings of keys."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissectors.zmtp import curve_keys
from dissectors.zmtp.curve_keys import (
    Key,
    KeyLineError,
    KeyRing,
    NoSodiumError,
    SecretKey,
    SharedKey,
    format_key,
    parse_key,
    public_of,
)
from tests.support.curve_octets import Curve
from tests.support.footprint import entries
from zmtpsniff.engine.key_file import KeyFileError, read_keys

A, B, C = (bytes([octet]) * 32 for octet in b"abc")
keys = st.binary(min_size=32, max_size=32)
shared = st.builds(SharedKey, st.none() | keys, st.none() | keys, keys)
secret = st.builds(SecretKey, st.none(), keys) | st.builds(SecretKey, keys, st.none())


@given(shared | secret)
def test_a_key_is_read_as_it_was_written(key: Key) -> None:
    assert parse_key(format_key(key)) == key
    assert parse_key(f"  {format_key(key).replace(' ', chr(9))}   # of nobody\n") == key


@pytest.mark.parametrize("line", ["", "   ", "# CURVE_SHARED_KEY", "\n", "\t# a"])
def test_lines_without_a_key(line: str) -> None:
    assert parse_key(line) is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("CURVE_SHARED_KEY", "takes 3 keys, not 0"),
        (f"CURVE_SHARED_KEY {A.hex()} {B.hex()}", "takes 3 keys, not 2"),
        (f"CURVE_SHARED_KEY - - {A.hex()} -", "takes 3 keys, not 4"),
        ("CURVE_SHARED_KEY - - -", "the precomputed key of CURVE_SHARED_KEY is missing"),
        (f"CURVE_SHARED_KEY - - {A.hex()[:-1]}", "64 hexadecimal digits"),
        (f"CURVE_SHARED_KEY - - {A.hex()[:-2]}zz", "64 hexadecimal digits"),
        (f"CURVE_SHARED_KEY - - {A.hex()[:-2]}  ", "64 hexadecimal digits"),
        (f"CURVE_SECRET_KEY {A.hex()}", "takes 2 keys, not 1"),
        ("CURVE_SECRET_KEY - -", "without a key"),
        (f"CURVE_SECRET_KEY {A.hex()} {B.hex()}", "does not belong to the public key"),
        (f"curve_shared_key - - {A.hex()}", "a line begins with"),
        ("CLIENT_RANDOM 00 00", "a line begins with"),
        ("x" * 5000, "a line of 5000 characters is no key"),
    ],
)
def test_what_is_wrong_with_a_line(line: str, reason: str) -> None:
    with pytest.raises(KeyLineError, match=reason) as caught:
        parse_key(line)
    assert A.hex()[:20] not in str(caught.value)


def test_a_file_says_which_line_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# ours\n{format_key(SharedKey(A, B, C))}\nrubbish\n")
    with pytest.raises(KeyFileError, match=r"keys: line 3: a line begins with CURVE_SHARED_KEY or CURVE_SECRET_KEY$"):
        read_keys(str(path))
    with pytest.raises(KeyFileError, match=r"nowhere: No such file or directory"):
        read_keys(str(tmp_path / "nowhere"))
    path.write_text(f"# ours\r\n{format_key(SharedKey(A, B, C))}\r\n\r\n")
    assert read_keys(str(path)) == (SharedKey(A, B, C),)
    path.write_bytes(b"\xff\xfe\0\1")
    with pytest.raises(KeyFileError, match="line 1"):
        read_keys(str(path))


def test_a_ring_finds_keys_by_what_a_connection_shows() -> None:
    ring = KeyRing([SharedKey(A, B, C), SharedKey(None, None, A), SecretKey(None, C), SecretKey(B, None)])
    assert ring.shared_by(A) == (SharedKey(A, B, C),)
    assert ring.shared_by(B) == ()
    assert ring.secret_of(public_of(C)) == C
    assert ring.secret_of(B) is None
    assert ring.added == len(ring) == 4


def test_a_ring_tells_what_is_new() -> None:
    ring = KeyRing([SharedKey(A, None, A), SharedKey(None, None, A)])
    before = ring.added
    ring.add(SharedKey(A, None, A))
    ring.add(SharedKey(None, None, A))
    assert ring.added == before  # nothing is
    ring.add_line(format_key(SharedKey(B, None, B)))
    ring.add_line("# nothing")
    assert ring.shared(before, 9) == [SharedKey(B, None, B)]
    assert ring.shared(0, 9) == [SharedKey(B, None, B), SharedKey(A, None, A)]
    assert ring.shared(0, 1) == [SharedKey(B, None, B)]
    ring.add(SharedKey(A, None, C))  # another for the same connection: either may be right
    assert ring.shared_by(A) == (SharedKey(A, None, C), SharedKey(A, None, A))
    ring.add(SecretKey(public_of(C), None))
    ring.add(SecretKey(None, C))  # now with its secret
    assert ring.secret_of(public_of(C)) == C


def test_a_ring_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve_keys, "MOST_KEYS", 10)
    ring = KeyRing()
    for number in range(30):
        name = number.to_bytes(32, "big")
        ring.add(SharedKey(name, None, A))
        ring.add(SharedKey(None, None, name))
        ring.add(SecretKey(name, None))
    assert len(ring) == 30
    assert ring.added == 90
    assert ring.shared_by(bytes(32)) == ()
    assert ring.shared_by((29).to_bytes(32, "big")) != ()
    assert entries(ring) <= 60  # each also has its place in the order in which they came


def test_lines_make_the_same_ring() -> None:
    ring = KeyRing([key for way in Curve().ways().values() for key in way])
    again = KeyRing()
    for line in ring.lines():
        again.add_line(line)
    assert again.lines() == ring.lines()
    assert len(again) == len(ring)


def test_without_pynacl_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "nacl.bindings", None)
    assert KeyRing().added == 0  # which needs nothing
    with pytest.raises(NoSodiumError, match=r"pip install 'zmtpsniff\[curve\]'$"):
        KeyRing([SharedKey(A, B, C)])
