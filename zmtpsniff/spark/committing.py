"""What tasks have made of files becomes part of the tables, as one commit.

That of a micro-batch names it: the note of the last commit, ``_followed``, says up to which micro-batch of which query
all that was committed is in the query's state store, too. If that is not the one before, or somebody else has written
to the tables since, which takes the note away, or it is of another version, a new epoch begins: tasks go by the tables'
folder.
"""

from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, NamedTuple
from uuid import uuid4

from zmtpsniff import __version__
from zmtpsniff.spark.open_states import OPEN, OpenStates
from zmtpsniff.spark.rows import PROVISIONAL
from zmtpsniff.spark.store import Store
from zmtpsniff.spark.tables import TABLES
from zmtpsniff.spark.taking import Position, Taken

FOLLOWED = "_followed"
"""The note, beside the tables, of the query in whose checkpoint the same states are; any other run removes it."""


class Ingested(NamedTuple):
    """What a run did: files that are new, files that were known, rows of all tables."""

    files: int
    known: int
    rows: int


def begin(store: Store, epoch: str = "") -> Position:
    """Where tasks stand that are to make something of files, in an epoch that goes on or a new one.

    The log of states is merged before that if it has many files, which each task would have to look into.
    """
    log = OpenStates(store)
    removed, added = log.merge(store)
    if added:
        store.commit(added, removed)
    return Position(store.root, store.staging, epoch or uuid4().hex, log.next_number)


def commit(store: Store, lines: Sequence[Taken], note: Any = None) -> int:
    """Commit what tasks have taken, with a note on the micro-batch if it is one; returns the number of rows."""
    anew = {line.series for line in lines if line.what == "anew"}
    touched = anew | {line.series for line in lines if line.what == "new"}
    files = [line for line in lines if line.what == "file"]
    removed, added = _replaced(store, touched, anew) if touched else ([], [])
    if note is None:
        removed.append(FOLLOWED)
    else:
        store.stage_note(FOLLOWED, note)
        added.append(FOLLOWED)
    store.commit([*{line.path for line in files}, *added], removed)
    return sum(line.rows for line in files if not line.path.startswith("_"))


def commit_batch(output: str, query: str, number: int, take: Callable[[Position], Iterable[Taken]]) -> Ingested:
    """Have ``take`` dissect micro-batch ``number`` of a query, and commit what comes of it; raises SparkError."""
    store = Store(output)
    try:
        store.check_columns(output)
        note = store.read_note(FOLLOWED) or {}
        goes_on = note.get("query") == query and note["number"] < number and note.get("version") == __version__
        position = begin(store, note["epoch"] if goes_on else "")
        lines = list(take(position))
        made = {"epoch": position.epoch, "query": query, "number": number, "version": __version__}
        rows = commit(store, lines, made)
    finally:
        store.close()
    new, known = (sum(line.rows for line in lines if line.what == what) for what in ("new", "known"))
    return Ingested(new, known, rows)


def _replaced(store: Store, touched: Set[str], anew: Set[str]) -> tuple[list[str], list[str]]:
    """Files of the tables to remove, and staged ones with what is left of them.

    Nothing provisional is left of the series ``touched``, and nothing at all of those ``anew``.
    """
    removed: list[str] = []
    added: list[str] = []
    chosen = [(store.files(OPEN), anew)]
    for table in TABLES:
        names = store.files(table)
        provisional = [name for name in names if name.rpartition("/")[2].startswith(PROVISIONAL)]
        chosen += [(provisional, touched), ([name for name in names if name not in provisional], anew)]
    for some, gone in chosen:
        if some and gone:
            out, left = store.left(some, gone)
            removed += out
            added += left
    return removed, added
