"""Series of which no file comes any more: what is open in them is told, provisionally."""

import time

from zmtpsniff.spark.ingest import captures_of, known_files
from zmtpsniff.spark.open_states import OpenStates
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.reducing import Groups
from zmtpsniff.spark.rows import PROVISIONAL
from zmtpsniff.spark.store import Store
from zmtpsniff.spark.writing import Writer


def tell_quiet(output: str, options: Options, now_ns: int | None = None) -> int:
    """Add provisional rows on what is open in series whose latest file was written ``options.idle_seconds`` ago.

    ``now_ns`` is the time now, nanoseconds since the Unix epoch, by default the clock's. What has been told is not told
    again; the next file of the series replaces it. Returns the number of rows. Raises SparkError.
    """
    before_ns = (time.time_ns() if now_ns is None else now_ns) - int(options.idle_seconds * 1e9)
    store = Store(output)
    try:
        quiet = {
            name: max(file.last_ns for file in files)
            for name, files in known_files(captures_of(store)).items()
            if max(file.listed.modified_ns for file in files) < before_ns
        }
        told = (file for file in store.files("connections") if file.rpartition("/")[2].startswith(PROVISIONAL))
        for name in store.series_in(told):
            quiet.pop(name, None)
        log = OpenStates(store)
        groups = Groups(options._replace(at_end="provisional"))
        for number, (name, end_ns) in enumerate(quiet.items()):
            groups.series[number], groups.ends_ns[number] = name, end_ns
        writer = Writer(store.staging)
        for number, series in groups.series.items():
            for group, state in log.of(series).items():
                groups.begin(number.to_bytes(4, "big") + group, state)
                groups.finish()
                _write(writer, groups)
        _write(writer, groups, at_end=True)
        written = [row for batch in writer.close(0) for row in batch.to_pylist()]
        if written:
            store.commit([row["path"] for row in written])
        return sum(row["rows"] for row in written)
    finally:
        store.close()


def _write(writer: Writer, groups: Groups, at_end: bool = False) -> None:
    for table, rows, prefix in groups.rows(at_end):
        if prefix == PROVISIONAL:
            writer.take(table, rows, prefix)
