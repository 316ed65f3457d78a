"""Builds the native core when the package is built or installed: one call of the C compiler.

Without a compiler, or without the header files of Python, it says so, and the package is pure Python. hatchling calls
this (pyproject.toml).
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

_FOLDER = Path("zmtpsniff", "native")
_COMPILERS = ("cc", "gcc", "clang")
_OPTIONS = ("-std=c11", "-O3", "-g0", "-fPIC", "-fstack-protector-strong", "-fvisibility=hidden")
_SHARED = ("-bundle", "-undefined", "dynamic_lookup") if sys.platform == "darwin" else ("-shared",)
_SECONDS = 120


class BuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the native core to a wheel, or puts it beside the source of an editable installation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; ``version`` is "standard" or "editable"."""
        if self.target_name != "wheel" or os.environ.get("ZMTPSNIFF_NATIVE") == "0":
            return
        output = Path(self.root) / _FOLDER / "core.abi3.so"
        reason = compile_core(Path(self.root) / _FOLDER / "core.c", output)
        if reason is not None:
            self.app.display_warning(f"zmtpsniff is built without its native core, and will be slower: {reason}")
            return
        build_data["artifacts"].append(str(_FOLDER / output.name))
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{next(sys_tags()).platform}"


def compile_core(source: Path, output: Path, *options: str) -> str | None:
    """Compile the core; returns why it could not be done, or None."""
    compiler = shlex.split(os.environ.get("CC", "")) or [name for name in _COMPILERS if shutil.which(name)][:1]
    if not compiler:
        return f"there is no C compiler ({', '.join(_COMPILERS)}, or $CC)"
    headers = sysconfig.get_paths()["include"]
    if not Path(headers, "Python.h").exists():
        return f"the header files of Python are not installed ({headers}/Python.h)"
    # Under another name first: a process may have the old one in its memory.
    unfinished = output.with_suffix(f".{os.getpid()}")
    digest = f"-DDIGEST={zlib.crc32(source.read_bytes())}"  # tells whether a core is of the source beside it
    places = f"-ffile-prefix-map={source.parent}=.", f"-I{headers}"
    command = [*compiler, *_OPTIONS, *_SHARED, digest, *places, *options]
    try:
        done = subprocess.run(
            [*command, str(source), "-o", str(unfinished), "-lm"],
            capture_output=True, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{compiler[0]}: {error}"
    if done.returncode:
        unfinished.unlink(missing_ok=True)
        return f"{compiler[0]} failed: {(done.stderr.strip().splitlines() or ['it says nothing'])[0]}"
    unfinished.replace(output)
    return None
