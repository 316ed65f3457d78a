"""Where functions begin in an ELF file, and where a core dump has memory (System V ABI; elf(5), core(5))."""

import contextlib
import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

_MACHINES = {"x86_64": 62, "aarch64": 183}  # what uname calls it, and EM_*
_HEADER = struct.Struct("<6s10xHH12xQQ8xH2xH2x")
_SEGMENT = struct.Struct("<IIQQ8xQ16x")
_SECTION = struct.Struct("<4xI16xQQI20x")
_SYMBOL = struct.Struct("<IBxHQ8x")
_MAGIC = b"\x7fELF\2\1"  # of 64 bits, little-endian
_CORE = 4  # ET_CORE
_LOAD = 1  # PT_LOAD
_EXECUTABLE, _WRITABLE = 1, 2  # PF_X, PF_W
_SYMBOL_TABLES = (11, 2)  # SHT_DYNSYM, SHT_SYMTAB
_FUNCTION = 2  # STT_FUNC
_MOST_SECTIONS = 4096  # a file that claims more is none that was ever linked
_MOST_OCTETS = 256 << 20  # of a table


class FilePart(NamedTuple):
    """A piece of an ELF file that is, or was, in memory."""

    offset: int  # in the file
    size: int
    address: int  # in memory


def find_functions(file: int, names: Sequence[str], machine: str) -> dict[str, int]:
    """Where an open file has those of the functions ``names`` that it defines: octets from its beginning.

    It has none if it is no ELF file of 64 bits for ``machine``, as uname calls it. A table that makes no sense counts
    as no table.
    """
    with contextlib.suppress(OSError, OverflowError, struct.error):  # tables that end early, or lie behind its end
        header = _HEADER.unpack(_read(file, 0, _HEADER.size))
        magic, _, made_for, segments_at, sections_at, segment_count, section_count = header
        if magic != _MAGIC or made_for != _MACHINES.get(machine) or section_count > _MOST_SECTIONS:
            return {}
        loads = _loaded(file, segments_at, segment_count, _EXECUTABLE)
        sections = list(_SECTION.iter_unpack(_read(file, sections_at, section_count * _SECTION.size)))
        offsets: dict[str, int] = {}
        for kind, *table, strings in sections:
            if kind in _SYMBOL_TABLES and strings < len(sections):
                for name, address in _symbols(file, table, sections[strings][1:3], names):
                    for load in loads:
                        if load.address <= address < load.address + load.size:
                            offsets.setdefault(name, address - load.address + load.offset)
        return offsets
    return {}


def core_memory(file: int) -> list[FilePart] | None:
    """The writable memory in an open core dump; none if it is no core dump of 64 bits."""
    try:
        magic, kind, _, segments_at, _, count, _ = _HEADER.unpack(_read(file, 0, _HEADER.size))
        return _loaded(file, segments_at, count, _WRITABLE) if (magic, kind) == (_MAGIC, _CORE) else None
    except (OSError, OverflowError, struct.error):
        return None


def _loaded(file: int, at: int, count: int, rights: int) -> list[FilePart]:
    """The segments with some rights, of so many of which the table is at a place."""
    return [
        FilePart(offset, size, address)
        for kind, flags, offset, address, size in _SEGMENT.iter_unpack(_read(file, at, count * _SEGMENT.size))
        if kind == _LOAD and flags & rights and size
    ]


def _read(file: int, at: int, size: int) -> bytes:
    """So many octets, or fewer where the file ends. Not mapped: its owner could shorten it meanwhile."""
    return os.pread(file, min(size, _MOST_OCTETS), at)


def _symbols(file: int, table: Sequence[int], strings: Sequence[int], names: Sequence[str]) -> list[tuple[str, int]]:
    """Names and addresses of those functions of a symbol table that are looked for; tables as offset and size."""
    wanted: dict[int, str] = {}  # by the place of the name in its table
    texts = _read(file, *strings)
    for name in names:
        # Linkers let a name share its octets with the end of a longer one.
        ending = name.encode() + b"\0"
        at = texts.find(ending)
        while at >= 0:
            wanted[at] = name
            at = texts.find(ending, at + 1)
    if not wanted:
        return []
    octets = _read(file, *table)
    octets = octets[: len(octets) // _SYMBOL.size * _SYMBOL.size]
    return [
        (wanted[name], address)
        for name, info, section, address in _SYMBOL.iter_unpack(octets)
        if name in wanted and info & 15 == _FUNCTION and section
    ]
