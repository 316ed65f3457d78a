"""Series of which no file comes any more: what is open in them is told, provisionally."""

import time
from collections.abc import Mapping

from zmtpsniff.spark.known import captures_of, known_files
from zmtpsniff.spark.open_states import OpenStates, decode_state
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.rows import PROVISIONAL
from zmtpsniff.spark.store import Store
from zmtpsniff.spark.whole import Left, Series, State, ToldRows
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
        writer = Writer(store.staging)
        for name, end_ns in quiet.items():
            _tell(name, log.of(name), end_ns, options, writer)
        writer.close()
        written = writer.counts()
        if written:
            store.commit(written)
        return sum(written.values())
    finally:
        store.close()


def _tell(name: str, states: Mapping[bytes, bytes], end_ns: int, options: Options, writer: Writer) -> None:
    series = Series({}, options, Left(end_ns), _Open(states))
    told = ToldRows(name, series, options)
    for group in states:
        for table, rows, prefix in told.take(series.end(group).provisional, PROVISIONAL):
            writer.take(table, rows, prefix)
    for table, rows, prefix in told.flush(PROVISIONAL):
        writer.take(table, rows, prefix)


class _Open:
    """The groups that are open, which stay as they are."""

    def __init__(self, states: Mapping[bytes, bytes]) -> None:
        self._states = states

    def get(self, name: bytes) -> State | None:
        return decode_state(self._states[name])

    def put(self, name: bytes, state: State | None, over_ns: int = 0) -> None:
        raise AssertionError("nothing comes of them")
