"""Keys in memory: what looks like one, and what is found around a client's key."""

import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.bindings import crypto_box_beforenm, crypto_box_seed_keypair, crypto_secretbox

from dissectors.zmtp.curve_keys import Key, SharedKey
from zmtpsniff.host.memory_keys import (
    CapturedBox,
    MemorySearch,
    SearchError,
    SearchTarget,
    candidates,
    connections,
    looks_random,
)

# The same each time: one key in some thousands has zeros where addresses have them, and is taken for those.
random_octets = random.Random(1).randbytes
CLIENT, CLIENT_SECRET = crypto_box_seed_keypair(random_octets(32))
SERVER, SERVER_SECRET = crypto_box_seed_keypair(random_octets(32))
SHARED = crypto_box_beforenm(CLIENT, SERVER_SECRET)
NONCE = b"CurveZMQMESSAGEC" + bytes(8)
BOX = CapturedBox(NONCE, crypto_secretbox(b"\0hello", NONCE, SHARED))
OTHER = CapturedBox(NONCE, crypto_secretbox(b"\0hello", NONCE, random_octets(32)))
# As libzmq has them side by side.
LONG_TERM = b"".join(crypto_box_seed_keypair(random_octets(32)))
IN_CLIENT = SHARED + bytes(8) + LONG_TERM + CLIENT + CLIENT_SECRET + random_octets(32) + SERVER + random_octets(96)
IN_OLD_CLIENT = LONG_TERM + random_octets(32) + CLIENT + CLIENT_SECRET + SERVER + random_octets(96) + SHARED
IN_SERVER = SHARED + bytes(9) + random_octets(32) + SERVER + SERVER_SECRET + CLIENT + random_octets(32)


def core(tmp_path: Path, memory: bytes) -> Path:
    """A core dump with memory that may be written, behind some that may not."""
    header = struct.pack("<4sBBBB8xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0, 4, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    segments = struct.pack("<IIQQQQQQ", 1, 5, 0x1000, 0, 0, 16, 16, 0x1000)
    segments += struct.pack("<IIQQQQQQ", 1, 6, 0x1010, 0x2000, 0, len(memory), len(memory), 0x1000)
    file = tmp_path / "core"
    file.write_bytes((header + segments).ljust(0x1010, b"\0") + memory)
    return file


def search(tmp_path: Path, memory: bytes, target: SearchTarget) -> list[Key]:
    return list(MemorySearch([target]).core(str(core(tmp_path, memory))))


@pytest.mark.parametrize("keys", [IN_CLIENT, IN_OLD_CLIENT, IN_SERVER], ids=["client", "old client", "server"])
@pytest.mark.parametrize("before", [1 << 20, (4 << 20) - 200], ids=["inside a slice", "across two slices"])
def test_a_connection_of_libzmq(tmp_path: Path, keys: bytes, before: int) -> None:
    memory = bytes(before) + keys + bytes(1000)
    for target in (SearchTarget(CLIENT, [OTHER, BOX]), SearchTarget(CLIENT)):
        assert search(tmp_path, memory, target) == [SharedKey(CLIENT, SERVER, SHARED)]
    assert set(connections(memory)) == {SharedKey(CLIENT, SERVER, SHARED)}
    assert set(connections(memory.replace(SHARED, random_octets(32)))) == set()


def test_a_client_key_that_lies_about_misleads_nobody(tmp_path: Path) -> None:
    """The received octets hold C', too, and a key that is not this connection's opens nothing."""
    memory = random_octets(3) + (random_octets(40) + CLIENT + random_octets(40)) * 5 + bytes(1005) + IN_SERVER
    assert search(tmp_path, memory, SearchTarget(CLIENT, [BOX])) == [SharedKey(CLIENT, SERVER, SHARED)]
    assert search(tmp_path, memory, SearchTarget(CLIENT, [OTHER])) == []


def test_without_hello_by_a_box(tmp_path: Path) -> None:
    filler = bytes(range(256)) * 400 + random_octets(3200)
    memory = filler + SHARED + filler
    assert search(tmp_path, memory, SearchTarget(None, [BOX])) == [SharedKey(None, None, SHARED)]
    assert search(tmp_path, memory, SearchTarget(None, [OTHER])) == []
    # A program that has them apart from each other.
    assert search(tmp_path, memory, SearchTarget(CLIENT, [BOX])) == [SharedKey(CLIENT, None, SHARED)]


def test_own_memory_is_searched_as_any() -> None:
    """That of a small program: the one that runs the tests has gigabytes."""
    code = f"""
import ctypes, os
from zmtpsniff.host.memory_keys import CapturedBox, MemorySearch, SearchTarget

shared = bytes.fromhex("{SHARED.hex()}")
kept = ctypes.create_string_buffer(bytes(8) + shared, 64)
box = CapturedBox({BOX.nonce!r}, {BOX.octets!r})
for key in MemorySearch([SearchTarget(None, [box])], 60).process(os.getpid()):
    print(type(key).__name__, key.client, key.server, key.key == shared)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["SharedKey", "None", "None", "True"]


def test_it_ends_in_time_and_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    looks = MemorySearch([SearchTarget(None, [OTHER])], 0.0, said.append)
    assert list(looks.core(str(core(tmp_path, random_octets(1 << 20))))) == []
    assert looks.is_cut_short
    looks = MemorySearch([SearchTarget(None, [OTHER])], 60, said.append)
    assert list(looks.core(str(core(tmp_path, bytes(200 << 20))))) == []
    assert (looks.is_cut_short, looks.octets) == (False, 400 << 20)  # by what is proven, then by its box
    assert len(said) == 6
    assert said[0].endswith("64 of 200 MiB looked through")


@pytest.mark.parametrize("data", [b"", b"\x7fELF" + bytes(60), b"not a core dump at all" * 10])
def test_what_is_no_core_dump(data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(data)
    with pytest.raises(SearchError, match="no core dump"):
        list(MemorySearch([SearchTarget(None, [BOX])]).core(str(file)))


def test_process_that_is_not_there() -> None:
    with pytest.raises(SearchError, match="process 4194303: No such file"):
        list(MemorySearch([SearchTarget(None, [BOX])]).process(4194303))


@given(st.integers(), st.lists(st.sampled_from(["zero", "random", "pointer", "text", "odd"]), max_size=20))
def test_candidates_are_those_of_a_plain_loop(seed: int, kinds: list[str]) -> None:
    source = random.Random(seed)
    pieces = {
        "zero": lambda: bytes(8 * source.randrange(6)),
        "random": lambda: source.randbytes(8 * source.randrange(7)),
        "pointer": lambda: source.randbytes(6) + bytes(2),
        "text": lambda: b"this is text, and no key at all." * 2,
        "odd": lambda: source.randbytes(source.randrange(8)),
    }
    data = b"".join(pieces[kind]() for kind in kinds)
    plain = []
    for at in range(0, len(data) // 8 * 8 - 31, 8):
        key = data[at : at + 32]
        if all(key[word + 6] or key[word + 7] for word in range(0, 32, 8)) and looks_random(key):
            plain.append(key)
    assert list(candidates(data)) == plain


def test_keys_look_random() -> None:
    assert sum(looks_random(random_octets(32)) for _ in range(10_000)) == 10_000
    assert not looks_random(b"abcdefghijklmnopqrstuvwxyz012345")
    assert not looks_random(bytes(range(16)) * 2)
