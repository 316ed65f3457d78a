"""Errors for things that a user asked for and that cannot be done."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder

_BUSY = re.compile(r"slow_?down|server ?busy|too many requests", re.IGNORECASE)  # S3, Azure, all others
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


class Error(Exception):
    """Something cannot be done. The text is one line, as the commands print it: what, why, and what to do."""


class PluginError(Error):
    """A plug-in cannot be used; the text says which and why, on one line."""

    def __init__(self, reason: str) -> None:
        """``reason`` begins with the plug-in's name."""
        super().__init__(f"plug-in {reason}")


@contextmanager
def naming(name: str, kind: Callable[[str], Exception] = Error) -> Iterator[None]:
    """Raise what the system refuses as an error of ``kind`` that names what it is about; a pipe may be closed."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise kind(f"{name}: {error.strerror or error}") from error


def one_line(error: BaseException) -> str:
    """The text of another library's error, on one line, without the colours that those of Delta Lake have."""
    text = " ".join(_COLOUR.sub("", str(error)).split())
    if busy := _BUSY.search(text):
        return f"the store gets too many requests, and answers {busy[0]}: run this again when it has less to do"
    return text


def fail_if_dissectors_are_foreign() -> None:
    """Raise Error if Python finds another package of the name ``dissectors`` than ours."""
    found = None if "dissectors" in sys.modules else PathFinder.find_spec("dissectors")
    if found is None:  # it is there already, or a hook of an installer finds it
        return
    ours = os.path.join(os.path.dirname(os.path.dirname(__file__)), "dissectors")
    folder = os.path.dirname(found.origin) if found.origin else next(iter(found.submodule_search_locations or [""]))
    if os.path.realpath(folder) != os.path.realpath(ours):
        raise Error(
            f"{found.origin or folder} hides the package dissectors, which is a part of zmtpsniff: rename it, or take "
            "it off Python's path"
        )
