"""The quick way, in C: `core` is the module that was built from ``core.c``, or None.

``reference.py`` has the same functions in plain Python. The environment variable ``ZMTPSNIFF_NATIVE`` may switch the
module off (0), or insist on it (1).
"""

import os
from types import ModuleType

from zmtpsniff.errors import Error

VARIABLE = "ZMTPSNIFF_NATIVE"


class NativeError(Error):
    """The user insists on the native core, and there is none."""


def _load() -> ModuleType | None:
    wish = os.environ.get(VARIABLE, "")
    if wish == "0":
        return None
    try:
        from zmtpsniff.native import core
    except ImportError as error:
        if wish == "1":
            raise NativeError(
                f"{VARIABLE}=1, but the native core was not built: install zmtpsniff again where a C compiler "
                "and the header files of Python are"
            ) from error
        return None
    assert isinstance(core, ModuleType)
    return core


core = _load()
"""The module of C functions; None if it was not built, or is switched off."""

WAY = "python" if core is None else "native"
"""How settled flows are read."""
