"""The quick way, in C: `core` is the module that was built from ``core.c``, or None.

``capture_rows.py`` and ``reference.py`` have the same functions in plain Python. The environment variable
``ZMTPSNIFF_NATIVE`` may switch the module off (0), or insist on it (1).
"""

import os
import sys
import zlib
from importlib import import_module
from types import ModuleType

from zmtpsniff.errors import Error
from zmtpsniff.native import capture_rows

VARIABLE = "ZMTPSNIFF_NATIVE"
MOST_CARRY = 64 << 10
"""Octets of a message that is not over, at most; a side that has more is not settled."""


class NativeError(Error):
    """The user insists on the native core, and there is none."""


_WITH_WHEELS = {("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "x86_64"), ("darwin", "arm64")}


def _load() -> tuple[ModuleType | None, str]:
    wish = os.environ.get(VARIABLE, "")
    if wish == "0":
        return None, ""
    try:
        core = _built()
        if (digest := _digest()) and getattr(core, "DIGEST", 0) != digest:
            raise ImportError("it was built from another version of core.c")
    except (ImportError, OSError) as error:
        is_built = os.path.exists(os.path.join(os.path.dirname(__file__), "core.abi3.so"))  # pathlib is slow to import
        reason = f"the native core cannot be loaded ({error})" if is_built else "the native core was not built"
        remedy = "install zmtpsniff again where a C compiler and the header files of Python are"
        if wish == "1":
            raise NativeError(f"{VARIABLE}=1, but {reason}: {remedy}") from error
        return None, f"reads in the slow way, since {reason}: {remedy}; {VARIABLE}=0 says that this is meant"
    return core, ""


def _digest() -> int:
    """The digest of the source beside the module, as build.py computes it; 0 without a source."""
    try:
        with open(os.path.join(os.path.dirname(__file__), "core.c"), "rb") as file:
            return zlib.crc32(file.read())
    except OSError:
        return 0


def _built() -> ModuleType:
    """The module that was built; raises ImportError, OSError.

    No system loads it out of an archive, as executors of Spark have it: so it is copied.
    """
    name = "zmtpsniff.native.core"
    if not hasattr(__spec__.loader, "archive"):
        return import_module(name)
    from importlib.machinery import ExtensionFileLoader
    from importlib.util import module_from_spec, spec_from_file_location
    from pkgutil import get_data
    from tempfile import NamedTemporaryFile

    with NamedTemporaryFile(suffix=".so") as file:
        file.write(get_data(__name__, "core.abi3.so") or b"")
        file.flush()
        spec = spec_from_file_location(name, file.name, loader=ExtensionFileLoader(name, file.name))
        assert spec is not None
        core = module_from_spec(spec)
        spec.loader.exec_module(core)  # type: ignore[union-attr]  # it is the one above
    return core


def missing() -> str:
    """Why there is no native core, and what to do, where a wheel of this platform has one; else "".

    It is "" as well if the core is switched off.
    """
    if not _reason:
        return ""
    import platform

    is_expected = (sys.platform, platform.machine()) in _WITH_WHEELS and sys.implementation.name == "cpython"
    return _reason if is_expected else ""


core, _reason = _load()
"""The module of C functions; None if it was not built, or is switched off."""

WAY = "python" if core is None else "native"
"""How settled flows are read."""

file_records: ModuleType = capture_rows if core is None else core
"""The functions that read and write the records of capture files: those of the core, or the same in plain Python."""
