"""Capture files to tables in a folder."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zmtpsniff.spark.known import captures_of, known_files, latest_of
from zmtpsniff.spark.listing import Listed, by_series, check_series, list_files, tables_of
from zmtpsniff.spark.options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from zmtpsniff.spark.committing import Ingested
    from zmtpsniff.spark.known import Known
    from zmtpsniff.spark.store import Store
    from zmtpsniff.spark.taking import Taken


def ingest(
    session: "SparkSession",
    inputs: Sequence[str],
    output: str,
    options: Options | None = None,
    series: str = "folder",
    format: str = "parquet",  # noqa: A002  # as Spark calls it
) -> "Ingested":
    """Read the files that ``inputs`` name and that are not in the tables of ``output`` yet, and add them there.

    The files of these tables are none of them, wherever ``output`` is.
    ``series`` says which files are read as one capture (see series_of); a task reads those of a series. A ``format``
    other than Parquet is written by Spark (see export). Where a new file is of a series that is known, connections go
    on where they were left; if it is older than what is known of its series, or a file has changed, all of the series
    is dissected anew. Raises SparkError, and ValueError for a ``series`` that is none.
    """
    listed = list_files(inputs, session, tables_of(output) if output else None)
    return add(session, listed, output, options, series, format)


def add(
    session: "SparkSession",
    listed: Sequence[Listed],
    output: str,
    options: Options | None = None,
    series: str = "folder",
    format: str = "parquet",  # noqa: A002  # as Spark calls it
) -> "Ingested":
    """Do the same with files that have been listed."""
    from zmtpsniff.spark.committing import Ingested, commit
    from zmtpsniff.spark.export import export, is_parquet, open_store

    check_series(series)
    store = open_store(session, output, format)
    try:
        store.check_columns(output)
        known = known_files(captures_of(store))
        there = {file.listed.path: (name, file.listed) for name, files in known.items() for file in files}
        new = [file for file in listed if file.path not in there or there[file.path][1] != file]
        rows = 0
        if new:
            rows = commit(store, _dissect(session, store, new, known, options or Options(), series))
        if not is_parquet(format):  # which a run before may not have got to
            export(session, store, format)
        return Ingested(len(new), len(listed) - len(new), rows)
    finally:
        store.close()


def _dissect(
    session: "SparkSession",
    store: "Store",
    new: Sequence[Listed],
    known: dict[str, list["Known"]],
    options: Options,
    rule: str,
) -> list["Taken"]:
    """Dissect new files, and all those of a series of which one has changed; what there is to commit."""
    from zmtpsniff.spark.committing import begin
    from zmtpsniff.spark.job import Part, run

    paths = {file.path for file in new}
    changed = {name for name, files in known.items() if any(file.listed.path in paths for file in files)}
    found = by_series(new, rule)

    def whole(name: str) -> Part:
        others = (file.listed for file in known.get(name, ()) if file.listed.path not in paths)
        return Part(name, sorted({*found.get(name, ()), *others}), anew=True)

    parts = [whole(name) for name in changed]
    for name, files in found.items():
        if name not in changed:
            before = known.get(name, ())
            parts.append(Part(name, files, known=len(before), latest=latest_of(before)))
    position = begin(store)
    lines = run(session, parts, options, position)
    wanting = {line.series for line in lines if line.what == "wanting"}
    if wanting:
        lines = [line for line in lines if line.series not in wanting]
        lines += run(session, [whole(name) for name in sorted(wanting)], options, position)
    return lines
