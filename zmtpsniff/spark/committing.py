"""What the tasks of a micro-batch have made becomes part of the tables, as one commit that names the micro-batch.

The note of the last commit, ``_followed``, says up to which micro-batch of which query all that was committed is in the
query's state store, too. If that is not the one before, or somebody else has written to the tables since, which takes
the note away, a new epoch begins: tasks go by the tables' folder.
"""

from collections.abc import Callable, Iterable
from uuid import uuid4

from zmtpsniff.spark.ingest import FOLLOWED, Ingested, replaced
from zmtpsniff.spark.open_states import OpenStates
from zmtpsniff.spark.store import Store
from zmtpsniff.spark.taking import Position, Taken


def commit_batch(output: str, query: str, number: int, take: Callable[[Position], Iterable[Taken]]) -> Ingested:
    """Have ``take`` dissect micro-batch ``number`` of a query, and commit what comes of it; raises SparkError."""
    store = Store(output)
    try:
        store.check_columns(output)
        note = store.read_note(FOLLOWED) or {}
        goes_on = note.get("query") == query and note["number"] < number
        epoch = note["epoch"] if goes_on else uuid4().hex
        log = OpenStates(store)
        lines = list(take(Position(store.root, store.staging, epoch, log.next_number)))
        series = {line.series for line in lines if line.what == "new"}
        anew = {line.series for line in lines if line.what == "anew"}
        files = [line for line in lines if line.what == "file"]
        removed, added = replaced(store, series, anew, anew) if series else ([], [])
        if not anew:
            merged, made = log.merge(store)
            removed, added = removed + merged, added + made
        store.stage_note(FOLLOWED, {"epoch": epoch, "query": query, "number": number})
        store.commit([FOLLOWED, *{line.path for line in files}, *added], removed)
    finally:
        store.close()
    new, known = (sum(line.rows for line in lines if line.what == what) for what in ("new", "known"))
    return Ingested(new, known, sum(line.rows for line in files if not line.path.startswith("_")))
