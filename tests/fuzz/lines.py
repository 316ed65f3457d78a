"""Which lines of the program inputs reach: the standard library's tracing, and a table of its counts."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.support.paths import PROJECT

ROOT = PROJECT
PACKAGES = ("dissectors", "zmtpsniff")


def reached(target: Callable[[bytes], None], inputs: Iterable[Path]) -> dict[str, list[int]]:
    """The lines of each module of ours that ``target`` reaches with ``inputs``, by the module's file."""
    found: dict[str, set[int]] = {}
    wanted: dict[str, set[int] | None] = {}

    def enter(frame: FrameType, event: str, argument: object) -> Any:
        name = frame.f_code.co_filename
        if name not in wanted:
            path = Path(name)
            ours = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES
            wanted[name] = found.setdefault(str(path.relative_to(ROOT)), set()) if ours else None
        numbers = wanted[name]
        if numbers is None:
            return None
        numbers.add(frame.f_lineno)

        def line(frame: FrameType, event: str, argument: object) -> Any:
            numbers.add(frame.f_lineno)
            return line

        return line

    for path in inputs:
        data = path.read_bytes()
        sys.settrace(enter)
        try:
            target(data)
        finally:
            sys.settrace(None)
    return {name: sorted(numbers) for name, numbers in found.items()}


def in_functions(path: Path) -> set[int]:
    """The lines of a module that belong to functions: those that run when it is imported say nothing."""
    found: set[int] = set()

    def walk(code: CodeType, inside: bool) -> None:
        if inside:
            found.update(number for _, _, number in code.co_lines() if number and number != code.co_firstlineno)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                walk(constant, inside or constant.co_flags & 0x02 != 0)  # CO_NEWLOCALS: a function, not a class

    walk(compile(path.read_text(), str(path), "exec"), False)
    return found


def table(of_targets: list[dict[str, list[int]]]) -> str:
    """The lines that all targets together reach: of each module that any target reaches, and in all."""
    together: dict[str, set[int]] = {}
    for found in of_targets:
        for name, numbers in found.items():
            together.setdefault(name, set()).update(numbers)
    rows = ["| module | lines in functions | reached |", "| :-- | --: | --: |"]
    lines = hit = 0
    for name, reached in sorted(together.items()):
        wanted = in_functions(ROOT / name)
        if not wanted:
            continue
        here = len(wanted & reached)
        lines, hit = lines + len(wanted), hit + here
        rows.append(f"| `{name}` | {len(wanted)} | {100 * here / len(wanted):.0f}% |")
    rows.append(f"| all {len(rows) - 2} | {lines} | {100 * hit / max(lines, 1):.0f}% |")
    return "\n".join(rows)
