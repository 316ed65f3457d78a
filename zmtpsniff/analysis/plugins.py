"""Plug-ins: dissectors of payloads from files and from installed packages."""

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

from dissectors.payloads import PayloadDissector, fields_of
from dissectors.payloads.registry import built_in
from zmtpsniff.errors import PluginError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from pathlib import Path

ENTRY_POINTS = "zmtpsniff.dissectors"


def load_dissectors(files: Sequence[str] = (), entries: "Sequence[EntryPoint] | None" = None) -> list[PayloadDissector]:
    """All dissectors: those of ``files`` first, then those of installed packages, then the built-in ones.

    ``entries`` are the entry points of installed packages, if somebody has looked them up already. Raises PluginError
    if a plug-in cannot be loaded.
    """
    found = [dissector for name in files for dissector in load_file(name)]
    return [*found, *_of_packages(installed() if entries is None else entries), *built_in()]


def load_file(name: str) -> list[PayloadDissector]:
    """The dissectors in a Python file: an object of each class that has the attributes of a dissector.

    Raises PluginError if the file fails or has none.
    """
    from pathlib import Path

    path = Path(name).absolute()
    try:
        path.stat()
    except OSError as error:
        words = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise PluginError(f"{name}: {words}") from error
    if path.suffix != ".py":
        hint = "; compile it to Python first: ksc -t python" if path.suffix == ".ksy" else ""
        raise PluginError(f"{name}: not a Python file (.py){hint}")
    module_name = f"zmtpsniff_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    # A plug-in may have files beside it, such as a parser that Kaitai Struct made.
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
        made = [
            kind()
            for kind in vars(module).values()
            if isinstance(kind, type) and kind.__module__ == module_name and is_dissector(kind)
        ]
        for dissector in made:
            fields_of(dissector)
    except Exception as error:  # it may raise anything, and may not be readable
        raise PluginError(f"{name}: {_in_words(error, path)}") from error
    finally:
        sys.path.remove(str(path.parent))
    if not made:
        raise PluginError(f"{name}: no class in it has name, match and dissect")
    return made


def is_dissector(thing: object) -> bool:
    """Whether a class or an object has the attributes of a dissector."""
    name = getattr(thing, "name", None)
    return isinstance(name, str) and bool(name) and all(callable(getattr(thing, a, None)) for a in ("match", "dissect"))


def installed() -> "list[EntryPoint]":
    """The entry points of installed packages in the group ``zmtpsniff.dissectors``; this runs none of their code."""
    if not _is_anything_offered():
        return []
    from importlib.metadata import entry_points

    return sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name)


def _is_anything_offered() -> bool:
    """Whether any package may have such an entry point.

    Nearly nobody has one, and importlib.metadata takes as long as a capture of some thousand packets.
    """
    if any(finder is not PathFinder and hasattr(finder, "find_distributions") for finder in sys.meta_path):
        return True
    group = ENTRY_POINTS.encode()
    for folder in sys.path:
        try:
            names = [name for name in os.listdir(folder or ".") if name.lower().endswith("-info")]
        except FileNotFoundError:
            continue
        except OSError:  # not a folder, but perhaps an archive that has packages
            return True
        for name in names:
            try:
                with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                    if group in file.read():
                        return True
            except OSError:
                pass
    return False


def _of_packages(entries: "Sequence[EntryPoint]") -> list[PayloadDissector]:
    found: list[PayloadDissector] = []
    for entry in entries:
        try:
            kind = entry.load()
            dissector = kind() if isinstance(kind, type) else kind
            fields_of(dissector)
        except Exception as error:
            raise PluginError(f"{entry.name} of an installed package ({entry.value}): {_in_words(error)}") from error
        if not is_dissector(dissector):
            raise PluginError(f"{entry.name} of an installed package ({entry.value}): has no name, match and dissect")
        found.append(dissector)
    return found


def place_of(error: Exception, path: "Path | None" = None) -> str | None:
    """The place where the code of a plug-in failed, as ``FILE, line N``; None if the error does not show it.

    It is the last line that ran in the file at ``path``; without ``path``, the last line in any file.
    """
    from pathlib import Path

    place = None
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{Path(error.filename).name}, line {error.lineno}"
    trace = error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if path is None or file == path:
            place = f"{file.name}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return place


def file_of(dissector: PayloadDissector) -> "Path | None":
    """The file that the class of a dissector is in."""
    from pathlib import Path

    file = getattr(sys.modules.get(type(dissector).__module__), "__file__", None)
    return None if file is None else Path(file)


def _in_words(error: Exception, path: "Path | None" = None) -> str:
    """An error as one line, with the place in the file at ``path`` that caused it, if that file ran."""
    place = place_of(error, path)
    if place is not None and path is not None:
        place = place.removeprefix(f"{path.name}, ")  # which the caller names
    reason = str(error.msg if isinstance(error, SyntaxError) else error).partition("\n")[0]
    return f"{f'{place}: ' if place else ''}{type(error).__name__}: {reason}"
