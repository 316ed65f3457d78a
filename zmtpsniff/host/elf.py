"""Where functions begin in an ELF file (System V ABI; elf(5)), as far as a probe needs it."""

import os
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

MACHINES: Mapping[int, str] = {62: "x86_64", 183: "aarch64"}  # EM_*, and what uname calls it

_HEADER = struct.Struct("<4sBBBB8xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_CLASS_64, _LITTLE = 2, 1
_LOAD, _EXECUTABLE = 1, 1  # PT_LOAD, PF_X
_SYMBOL_TABLES = (11, 2)  # SHT_DYNSYM, SHT_SYMTAB
_FUNCTION = 2  # STT_FUNC
_MOST_HEADERS = 4096  # segments, sections; a file that claims more is none that was ever linked
_MOST_OCTETS = 256 << 20  # of a table


class Program(NamedTuple):
    """What is needed of an ELF file."""

    machine: str  # as uname says it
    offsets: dict[str, int]  # of functions, by their names: octets from the beginning of the file


def find_functions(descriptor: int, names: Sequence[str]) -> Program | None:
    """Those of the functions ``names`` that the open file defines; none if it is no ELF file of 64 bits.

    A table that makes no sense counts as no table.
    """
    try:
        return _find(descriptor, names)
    except (OSError, OverflowError, struct.error):  # tables that end early, or lie where no file has octets
        return None


def _find(file: int, names: Sequence[str]) -> Program | None:
    header = _HEADER.unpack(_read(file, 0, _HEADER.size))
    magic, bits, order = header[:3]
    machine = MACHINES.get(header[6])
    if magic != b"\x7fELF" or (bits, order) != (_CLASS_64, _LITTLE) or machine is None:
        return None
    segments_at, sections_at = header[9:11]
    segment_count, section_count = header[14], header[16]
    if max(segment_count, section_count) > _MOST_HEADERS:
        return None
    segments = _SEGMENT.iter_unpack(_read(file, segments_at, segment_count * _SEGMENT.size))
    loads = [
        (address, size, offset)
        for kind, flags, offset, address, _, size, _, _ in segments
        if kind == _LOAD and flags & _EXECUTABLE
    ]
    sections = list(_SECTION.iter_unpack(_read(file, sections_at, section_count * _SECTION.size)))
    offsets: dict[str, int] = {}
    for table in sections:
        if table[1] in _SYMBOL_TABLES and table[6] < len(sections):
            strings = sections[table[6]]
            for name, address in _symbols(file, table[4:6], strings[4:6], names):
                for begin, size, offset in loads:
                    if begin <= address < begin + size:
                        offsets.setdefault(name, address - begin + offset)
    return Program(machine, offsets) if offsets else None


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
        for name, info, _, section, address, _ in _SYMBOL.iter_unpack(octets)
        if name in wanted and info & 15 == _FUNCTION and section
    ]
