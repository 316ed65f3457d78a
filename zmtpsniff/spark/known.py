"""The files that the tables have, and whether a new one is to be read before some of them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zmtpsniff.spark.listing import Listed

if TYPE_CHECKING:
    from zmtpsniff.spark.store import Folder

_OVERLAP_NS = 100_000_000


class Known(NamedTuple):
    """A file that the tables have."""

    listed: Listed
    first_ns: int  # when its first packet came, 0 if there is none
    last_ns: int  # when its last packet came


def captures_of(folder: "Folder") -> Any:
    """What :func:`known_files` reads of the files that the tables have, as an Arrow table; None if they have none."""
    return folder.read("captures", ["series", "file", "size", "modified_ns", "first_ns", "last_ns"])


def known_files(captures: Any) -> dict[str, list[Known]]:
    """The files that the tables have, by series."""
    found: dict[str, list[Known]] = {}
    for row in [] if captures is None else captures.to_pylist():
        listed = Listed(row["file"], row["size"], row["modified_ns"])
        file = Known(listed, row["first_ns"] or 0, row["last_ns"] or 0)
        found.setdefault(row["series"], []).append(file)
    return found


def latest_of(files: Sequence[Known]) -> tuple[int, int] | None:
    """When the last and the first packet came of that of some files which ends last; None of no files."""
    return max(((file.last_ns, file.first_ns) for file in files), default=None)


def is_late(first_ns: int | None, last_ns: int, latest: tuple[int, int]) -> bool:
    """Whether a file with packets from ``first_ns`` (None: it has none) to ``last_ns`` is to be read before another.

    ``latest`` is what :func:`latest_of` says of those that are known. Packets of several queues are written a little
    out of order: where a file begins and ends after the latest one, an overlap of _OVERLAP_NS does not count.
    """
    if first_ns is None:
        return False
    follows = first_ns >= latest[1] and last_ns >= latest[0]
    return first_ns < latest[0] - (_OVERLAP_NS if follows else 0)
