"""The tables in another format than Parquet, which Spark writes: made anew for the days that have changed.

    DIR/_parquet/                   the tables as a run writes them (see :mod:`zmtpsniff.spark.store`)
    DIR/_parquet/_exported.json     the format, and of which of those files each day of a table was made
    DIR/TABLE/date=DAY/             what Spark made of them

A day is written as a whole, and what it was made of is noted after all days are written: of a run that was killed, the
next one writes the days again.
"""

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from zmtpsniff.spark.session import SparkError, first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from zmtpsniff.spark.store import Store

PARQUET = "parquet"
_FOLDER = "_parquet"
_NOTE = "_exported.json"
_UNKNOWN = "DATA_SOURCE_NOT_FOUND"  # what Spark calls that


def open_store(session: "SparkSession", output: str, name: str) -> "Store":
    """The store for tables in the format ``name`` in ``output``; the names of formats are the same in any case.

    Nothing is left in ``output`` of a format that Spark cannot write. Raises SparkError for such a one, and if the
    tables there are in another format.
    """
    from zmtpsniff.spark.store import Store, delete_folder, is_there

    if not output:  # it would become the root of all
        raise SparkError("--output: it is empty; give a path or URL")
    folder = f"{output.rstrip('/')}/{_FOLDER}"
    is_other = is_there(f"{folder}/{_NOTE}")
    if is_parquet(name):
        if is_other:
            raise SparkError(f"--output {output}: has tables in another format: name that with --format")
        return Store(output)
    if not is_other and is_there(f"{output.rstrip('/')}/captures"):
        raise SparkError(f"--output {output}: has tables in Parquet: leave out --format {name}, or take another folder")
    store = Store(folder)
    note = None
    try:
        note = store.read_note(_NOTE)
        if note is None:
            _try(session, store, name)
            store.write_note(_NOTE, {"format": name, "made_of": {}})
        elif (known := note["format"]).lower() != name.lower():
            raise SparkError(f"--output {output}: has tables in {known}: say --format {known}, or take another folder")
    except SparkError:
        if note is None:  # without it there are no tables
            delete_folder(folder)
        store.close()
        raise
    return store


def is_parquet(name: str) -> bool:
    """Whether a format is the one that workers write themselves."""
    return name.lower() == PARQUET


def _try(session: "SparkSession", store: "Store", name: str) -> None:
    """See that Spark can write our columns, before anything is dissected."""
    from zmtpsniff.spark.tables import TABLES, ddl

    for table in TABLES:
        frame = session.createDataFrame([], ddl(table))
        try:
            frame.write.format(name).save(f"{store.staging}/_try/{table}")
        except Exception as error:  # a writer may raise what it likes
            text = " ".join(first_line(error).split())
            if _UNKNOWN in text:
                raise SparkError(f"--format {name}: Spark knows no such format") from error
            raise SparkError(f"--format {name}: Spark cannot write the tables so: {text}") from error


def export(session: "SparkSession", store: "Store", name: str) -> None:
    """Bring the tables beside ``store`` up to what it has; Spark's errors are raised as they are."""
    from zmtpsniff.spark.store import delete_folder
    from zmtpsniff.spark.tables import PARTITION, TABLES, ddl

    beside = store.root.rpartition("/")[0]
    done = store.read_note(_NOTE)["made_of"]
    made_of: dict[str, dict[str, list[str]]] = {}
    for table in TABLES:
        days: dict[str, list[str]] = defaultdict(list)
        for path in store.files(table):
            days[path.split("/")[1]].append(path)
        made_of[table] = dict(days)
        before = done.get(table, {})
        changed = [day for day, files in days.items() if before.get(day) != files]
        for day in before.keys() - days.keys():
            delete_folder(f"{beside}/{table}/{day}")
        if not changed:
            continue
        # The folders of days go to the reader, which may be many; their files, which may be far more, do not.
        frame = session.read.schema(ddl(table)).option("basePath", f"{store.root}/{table}")
        rows: Any = frame.parquet(*(f"{store.root}/{table}/{day}" for day in changed))
        writer = rows.write.format(name).mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy(PARTITION).save(f"{beside}/{table}")
    if made_of != done:
        store.write_note(_NOTE, {"format": name, "made_of": made_of})
