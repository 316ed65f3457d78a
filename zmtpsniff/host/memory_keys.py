"""Keys of connections that are open already, found in the memory of a program: of a process, or of its core dump.

Both ends of a CURVE connection keep its keys for as long as it is open. libzmq has them side by side:

    client: k, C c, C' c', S, S', the cookie          server: k, s, S' s' C', the key of cookies

Older ones have others behind each other: C c S, C' c' S', the cookie, k. So a connection is a public key with its
secret key, another public key behind, and the key near by that both are worth, which arithmetic proves.

HELLO shows C', else a box tells whose the key is. If nothing is proven, a search tries everything that looks like a key
on one box of the connection: 32 octets, aligned to 8, that look random. It only reads memory.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from msgspec import Meta

from dissectors.zmtp.curve_keys import KEY_SIZE, Key, SharedKey, Sodium, public_of
from zmtpsniff.host.elf import FilePart, core_memory
from zmtpsniff.host.processes import mappings

LONGEST_BOX = 1 << 16
SEARCH_SECONDS = 300.0

_SLICE = 4 << 20
_AROUND = 256  # octets on each side of C' in which its neighbours are; also how far slices overlap
_ALIGNMENT = 8
_LEAST_DISTINCT = 20  # of 32 octets; of random ones fewer are distinct in one case of 10^10
_LEAST_DISTINCT_OF_THREE = 60  # of 96 octets; likewise
_NOT_ZERO = bytes([0]) + bytes([1]) * 255
_SHIFTS = 0, 1  # of the keys of libzmq's clients and servers from what is aligned
_TELL_OCTETS = 64 << 20


class CapturedBox(NamedTuple):
    """Octets that the precomputed key of a connection opens (secretbox of NaCl)."""

    nonce: Annotated[bytes, Meta(min_length=24, max_length=24)]
    octets: Annotated[bytes, Meta(max_length=LONGEST_BOX)]


@dataclass(slots=True)
class SearchTarget:
    """A connection whose key is looked for."""

    client: Annotated[bytes, Meta(min_length=KEY_SIZE, max_length=KEY_SIZE)] | None = None  # C', if there is a HELLO
    boxes: list[CapturedBox] = field(default_factory=list)  # a key of the connection opens at least one of them


class SearchError(Exception):
    """Memory that cannot be read; its text is one line that says why."""


class MemorySearch:
    """A search for the keys of some connections, bounded in time."""

    def __init__(
        self,
        targets: Sequence[SearchTarget],
        seconds: float = SEARCH_SECONDS,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        """Look for so long at most. ``tell`` is called now and then with a line about the progress."""
        self.octets = 0  # looked through so far
        self.is_cut_short = False
        self._sodium = Sodium()
        self._left = list(targets)
        self._deadline = time.monotonic() + seconds
        self._tell = tell

    def process(self, pid: int) -> Iterator[Key]:
        """The keys in a running process; raises SearchError."""
        with _opened(f"/proc/{pid}/mem", f"process {pid}") as file:
            yield from self._search(file, _writable(pid), f"process {pid}")

    def connections(self, pid: int) -> Iterator[Key]:
        """The keys of all connections that a running process has by libzmq; raises SearchError."""
        with _opened(f"/proc/{pid}/mem", f"process {pid}") as file:
            for octets in self._slices(file, _writable(pid), f"process {pid}"):
                yield from connections(octets)

    def core(self, name: str) -> Iterator[Key]:
        """The keys in a core dump; raises SearchError."""
        with _opened(name, name) as file:
            if (memory := core_memory(file)) is None:
                raise SearchError(f"{name}: no core dump (ELF, 64 bits)")
            yield from self._search(file, memory, name)

    def _search(self, file: int, regions: Sequence[FilePart], title: str) -> Iterator[Key]:
        for octets in self._slices(file, regions, title):
            if any(target.client is None or target.client in octets for target in self._left):
                yield from self._fitting(connections(octets))
            if not self._left:
                return
        # Programs that are not libzmq may have their keys apart from each other.
        if any(target.boxes for target in self._left):
            for octets in self._slices(file, regions, title):
                yield from self._fitting(SharedKey(None, None, key) for key in candidates(octets))
                if not self._left:
                    return

    def _slices(self, file: int, regions: Sequence[FilePart], title: str) -> Iterator[bytes]:
        """The memory of all regions, in slices that overlap, until the search has taken too long."""
        whole = sum(region.size for region in regions)
        looked = told = 0
        for region in regions:
            for at in range(0, region.size, _SLICE):
                if time.monotonic() > self._deadline:
                    self.is_cut_short = True
                    return
                begin = max(0, at - _AROUND)
                size = min(_SLICE, region.size - at)
                try:
                    octets = os.pread(file, size + at - begin, region.offset + begin)
                except OSError:  # unmapped meanwhile, or a device's
                    break
                self.octets += size
                looked += size
                if self._tell is not None and looked - told >= _TELL_OCTETS:
                    told = looked
                    self._tell(f"{title}: {looked >> 20} of {whole >> 20} MiB looked through")
                yield octets

    def _fitting(self, keys: Iterable[SharedKey]) -> Iterator[Key]:
        """Those of the keys that a connection wants: the client's key says it, or a box that is opened."""
        for key in keys:
            for target in self._left:
                is_proven = any(self._sodium.open(key.key, box.nonce, box.octets) is not None for box in target.boxes)
                if key.client is None and is_proven:
                    yield SharedKey(target.client, None, key.key)
                elif key.client is not None and target.client in (None, key.client) and (is_proven or not target.boxes):
                    yield key
                else:
                    continue
                self._left.remove(target)
                break
            if not self._left:
                return


def candidates(octets: bytes) -> Iterator[bytes]:
    """The possible keys in some octets whose first is aligned: 32 that look random, aligned to 8."""
    for at in _places(octets, 1):
        key = octets[at : at + KEY_SIZE]
        if looks_random(key):
            yield key


def connections(octets: bytes) -> Iterator[SharedKey]:
    """The keys of libzmq's connections in some octets whose first is aligned."""
    sodium = Sodium()
    for shift in _SHIFTS:
        for at in _places(octets[shift:], 3):
            if (found := _connection(sodium, octets, at + shift)) is not None:
                yield found


def _connection(sodium: Sodium, octets: bytes, at: int) -> SharedKey | None:
    """The key of a connection, if the own transient public key of one of its ends is at a place."""
    keys = octets[at : at + 4 * KEY_SIZE]
    if at < 3 * KEY_SIZE or len(keys) < 3 * KEY_SIZE:  # another slice has it whole
        return None
    # A public key is a number below 2^255.
    if keys[KEY_SIZE - 1 : KEY_SIZE] > b"\x7f" or len(set(keys[: 3 * KEY_SIZE])) < _LEAST_DISTINCT_OF_THREE:
        return None
    own, secret, *others = (keys[begin : begin + KEY_SIZE] for begin in range(0, 4 * KEY_SIZE, KEY_SIZE))
    if public_of(secret) == own:
        for other in others:
            key = sodium.shared(other, secret) if len(other) == KEY_SIZE else None
            if key is not None and key in octets[max(0, at - _AROUND) : at + _AROUND]:
                # A client has its long-term keys before, a server only its secret one.
                before = (octets[at - back : at] for back in (2 * KEY_SIZE, 3 * KEY_SIZE))
                if any(public_of(pair[KEY_SIZE : 2 * KEY_SIZE]) == pair[:KEY_SIZE] for pair in before):
                    return SharedKey(own, other, key)
                return SharedKey(other, own, key)
    return None


def _places(octets: bytes, keys: int) -> Iterator[int]:
    """Where so many keys may be, one behind the other."""
    size = len(octets) // _ALIGNMENT
    octets = octets[: size * _ALIGNMENT]
    # A pointer, a length or a small number has two zeros at its end.
    tops = int.from_bytes(octets[7::8], "little") | int.from_bytes(octets[6::8], "little")
    words, wanted = tops.to_bytes(size, "little").translate(_NOT_ZERO), bytes([1]) * (keys * KEY_SIZE // _ALIGNMENT)
    word = words.find(wanted)
    while word >= 0:
        yield word * _ALIGNMENT
        word = words.find(wanted, word + 1)


def looks_random(key: bytes) -> bool:
    """Whether octets may be a key: neither text nor regular."""
    return len(set(key)) >= _LEAST_DISTINCT and not key.isascii()


@contextmanager
def _opened(name: str, title: str) -> Iterator[int]:
    """A descriptor of a file; raises SearchError."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        hint = "; root may read it" if isinstance(error, PermissionError) else ""
        raise SearchError(f"{title}: {error.strerror}{hint}") from error
    try:
        yield file
    finally:
        os.close(file)


def _writable(pid: int) -> list[FilePart]:
    """The private writable memory of a process: the heap first, memory of files last."""
    found = [area for area in mappings(pid) if area.rights.startswith("rw") and area.rights.endswith("p")]
    found.sort(key=lambda area: (not area.path.startswith("[heap"), bool(area.file[1])))
    return [FilePart(area.begin, area.end - area.begin, area.begin) for area in found]
