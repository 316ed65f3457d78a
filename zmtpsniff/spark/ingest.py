"""The job: capture files to tables in a folder."""

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple

from zmtpsniff.spark.inputs import is_there
from zmtpsniff.spark.listing import Listed, check_series, list_files, series_of, tables_of
from zmtpsniff.spark.options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from zmtpsniff.spark.judged import Written
    from zmtpsniff.spark.store import Folder, Store

_OVERLAP_NS = 100_000_000

FOLLOWED = "_followed"
"""The note, beside the tables, of the query in whose checkpoint the same states are; any other run removes it."""


class Ingested(NamedTuple):
    """What a run did: files that are new, files that were known, rows of all tables."""

    files: int
    known: int
    rows: int


class Known(NamedTuple):
    """A file that the tables have."""

    listed: Listed
    first_ns: int  # when its first packet came, 0 if there is none
    last_ns: int  # when its last packet came


def ingest(
    session: "SparkSession",
    inputs: Sequence[str],
    output: str,
    options: Options | None = None,
    series: str = "folder",
    exact: bool = False,
    format: str = "parquet",  # noqa: A002  # as Spark calls it
) -> Ingested:
    """Read the files that ``inputs`` name and that are not in the tables of ``output`` yet, and add them there.

    The files of these tables are none of them, wherever ``output`` is.
    ``series`` says which files are read as one capture (see series_of). With ``exact`` every segment is shuffled to
    the task of its connection. A ``format`` other than Parquet is written by Spark (see export). Where a new file is of
    a series that is known, connections go on where they were left; if it is older than what is known of its series, or
    a file has changed, all of the series is dissected anew. Raises SparkError, and ValueError for a ``series`` that is
    none.
    """
    listed = list_files(inputs, session, tables_of(output) if output else None)
    return add(session, listed, output, options, series, exact, format)


def add(
    session: "SparkSession",
    listed: Sequence[Listed],
    output: str,
    options: Options | None = None,
    series: str = "folder",
    exact: bool = False,
    format: str = "parquet",  # noqa: A002  # as Spark calls it
) -> Ingested:
    """Do the same with files that have been listed."""
    from zmtpsniff.spark.export import export, is_parquet, open_store

    check_series(series)
    store = open_store(session, output, format)
    try:
        store.check_columns(output)
        known = known_files(captures_of(store))
        there = {file.listed.path: (name, file.listed) for name, files in known.items() for file in files}
        new = [file for file in listed if file.path not in there or there[file.path][1] != file]
        if not new:
            if not is_parquet(format):  # which a run before may not have got to
                export(session, store, format)
            return Ingested(0, len(listed), 0)
        changed = {file.path for file in new if file.path in there}
        anew = {there[path][0] for path in changed}
        for name in anew:
            known[name] = [file for file in known[name] if file.listed.path not in changed]
        rows = _add(session, store, new, known, options or Options(), series, exact, anew)
        if not is_parquet(format):
            export(session, store, format)
        return Ingested(len(new), len(listed) - len(new), rows)
    finally:
        store.close()


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


def _add(
    session: "SparkSession",
    store: "Store",
    new: list[Listed],
    known: dict[str, list[Known]],
    options: Options,
    series: str,
    exact: bool,
    anew: set[str],
) -> int:
    """Dissect files, those of the series ``anew`` all, and commit what they lead to; returns the number of rows.

    Where a file is late and one that came before it is gone, it is dissected by itself.
    """
    from zmtpsniff.spark.job import Job
    from zmtpsniff.spark.open_states import OpenStates
    from zmtpsniff.spark.reducing import ANEW, decode_state

    alone: set[Listed] = set()
    lost: set[str] = set()  # series that cannot be dissected anew
    written: list[Written] = []
    touched: set[str] = set()
    files = sorted({*new, *(file.listed for name in anew for file in known[name])})
    log = OpenStates(store)
    states = {name: log.of(name) for name in sorted({series_of(file.path, series) for file in new})}
    referred = (max(decode_state(state).files, default=0) for some in states.values() for state in some.values())
    number = 1 + max(sum(map(len, known.values())), *referred, 0)
    while files:
        job = Job(session, files, options, series, number, store.staging)
        going_on = (name for name in states if name not in anew)
        job.begin_with((name, group, state) for name in going_on for group, state in states[name].items())
        written = job.run_exact() if exact else job.run()
        touched = set(job.series)
        captures = [row.path for row in written if row.path.startswith("captures/")]
        late = _late(store.staged(captures, ["series", "file", "first_ns", "last_ns"]).to_pylist(), known)
        wanted = set(late)
        unsure = [row.path for row in written if row.path.startswith(ANEW)]
        if unsure:
            wanted |= set(store.staged(unsure, ["series"]).column("series").to_pylist()) & known.keys()
        wanted -= anew | lost
        gone = {name for name in wanted if not all(is_there(file.listed.path) for file in known[name])}
        lost |= gone
        paths = {path for name in gone for path in late.get(name, ())}
        alone |= {file for file in files if file.path in paths}
        if wanted <= gone and not paths:
            break
        anew |= wanted - gone
        more = (file.listed for name in wanted - gone for file in known[name])
        files = sorted({*files, *more} - alone)
        store.restart()
        written, touched = [], set()
    if alone:
        job = Job(session, sorted(alone), options._replace(at_end="final"), series, number + len(files), store.staging)
        written += job.run_exact() if exact else job.run()
    written = [row for row in written if not row.path.startswith(ANEW)]
    removed, added = replaced(store, touched, anew)
    store.commit([*(row.path for row in written), *added], [*removed, FOLLOWED])
    return sum(row.rows for row in written if not row.path.startswith("_"))


def _late(captures: list[dict[str, Any]], known: dict[str, list[Known]]) -> dict[str, set[str]]:
    """The series that have new files which are to be read before some that are known, and these files."""
    late: dict[str, set[str]] = {}
    for row in captures:
        before = known.get(row["series"])
        latest = latest_of(before or ())
        if latest is not None and is_late(row["first_ns"], row["last_ns"], latest):
            late.setdefault(row["series"], set()).add(row["file"])
    return late


def latest_of(files: "Sequence[Known]") -> tuple[int, int] | None:
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


def replaced(
    store: "Store", touched: Set[str], anew: Set[str], stale: Set[str] | None = None
) -> tuple[list[str], list[str]]:
    """Files of the tables to remove, and staged ones with what is left of them.

    Nothing provisional is left of the series ``touched``, and nothing at all of those ``anew``; no states are left of
    those ``stale``, by default all that were touched.
    """
    from zmtpsniff.spark.reducing import OPEN
    from zmtpsniff.spark.rows import PROVISIONAL
    from zmtpsniff.spark.tables import TABLES

    removed: list[str] = []
    added: list[str] = []
    chosen = [(store.files(OPEN), touched if stale is None else stale)]
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
