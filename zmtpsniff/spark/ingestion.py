"""Capture files to tables in a folder, once or as they come."""

import time
from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from zmtpsniff.capture.file_list import FileInfo, list_files
from zmtpsniff.capture.locations import can_open
from zmtpsniff.spark import job
from zmtpsniff.spark.open_states import LOST, OPEN, STATES
from zmtpsniff.spark.options import MOST_FILES, Options
from zmtpsniff.spark.series import by_series, known_files, oldest, shard_counts, shard_task
from zmtpsniff.spark.session import SparkError
from zmtpsniff.spark.stages import Stages
from zmtpsniff.spark.store import ConflictError, Store
from zmtpsniff.spark.tables import tables_of
from zmtpsniff.spark.task import Job, ShardTask
from zmtpsniff.words.durations import nanoseconds

if TYPE_CHECKING:
    import pyarrow.compute as pc
    from pyspark.sql import SparkSession

_Outcome = TypeVar("_Outcome")
_TRIES = 5  # against another run on the same series
_EVERY_SECONDS = 10.0
_QUIET_SECONDS = 60.0  # at least, between two looks at quiet series


class UnreadableStatesError(Exception):
    """Another version wrote states of these series, and this one cannot read them. The argument has the series."""


class IngestOutcome(NamedTuple):
    """The results of a run: new files, known files, rows of all tables.

    ``unreadable`` are the new files that could not be read, or not to their ends: path, condition, why. The condition
    ``changed`` names a file that was read before, and cannot be read again, since others of its series are gone, and
    ``late`` one that was read by itself for that reason.
    """

    files: int
    known: int
    rows: int
    unreadable: tuple[tuple[str, str, str], ...] = ()


class IngestRun(NamedTuple):
    """The options of a run, beside its input.

    ``series`` says which files are read as one capture (see series_of), ``shards`` how many tasks share one (None: as
    many as keep all cores at work). With ``anew`` a series is dissected anew if this version cannot read its states.
    """

    output: str
    options: Options = Options()
    series: str = "folder"
    shards: int | None = None
    anew: bool = False


def ingest(session: "SparkSession", inputs: Sequence[str], run: IngestRun) -> IngestOutcome:
    """Read the files that ``inputs`` name and that are not in the tables yet, and add them there.

    The files of these tables do not count, wherever they are. If a new file belongs to a known series, connections go
    on where they were left. If the file is older than the known files of its series, or if a file has changed, all of
    the series is dissected anew. Raises SparkError, LocationError, and ValueError for a wrong rule of series, or
    of ``-d``.
    """
    return add(session, list_files(inputs, tables_of(run.output)), run)


def add(session: "SparkSession", listed: Sequence[FileInfo], run: IngestRun, most: int | None = None) -> IngestOutcome:
    """Do the same with files that have been listed; at most the ``most`` oldest ones."""

    def attempt(base: Base) -> IngestOutcome:
        known = [file for files in base.known.values() for file in files]
        again = {one.listed.path for one in known if most is None and one.is_missing and can_open(one.listed.path)}
        there = {one.listed.path: one.listed for one in known if one.listed.path not in again}
        new = oldest([file for file in listed if there.get(file.path) != file], most)
        count = len(listed) - len(new)
        lost = base.series_with(LOST) | base.lost
        seen = {file.path for file in listed}
        series = by_series(new, run.series).items()
        tasks = [shard_task(name, some, base.known.get(name, []), name in lost, seen) for name, some in series]
        tasks = [task for task in tasks if task.files or task.alone]
        taken = {file for task in tasks for file in (*task.files, *task.alone)} & {*new}
        left = tuple((file.path, "changed", "others of its series are gone") for file in new if file not in taken)
        if not tasks:
            return IngestOutcome(0, count, 0, left)
        octets = {task.series: task.octets for task in tasks}
        counts = {} if run.shards is not None else shard_counts(octets, job.cores(session))
        rows = base.dissect(
            session, [part for task in tasks for part in task.parts(run.shards or counts[task.series])], run.options
        )
        left += tuple((file.path, "late", "others of its series are gone") for task in tasks for file in task.alone)
        unreadable = base.store.unreadable([file.path for file in taken])
        return IngestOutcome(len(taken), count, rows, left + unreadable)

    return _until_done(run, attempt)


def _until_done(run: IngestRun, attempt: Callable[["Base"], _Outcome]) -> _Outcome:
    """The result of the first attempt that no other run disturbs."""
    Stages(run.options.settings)  # raises for rules that name unknown protocols
    store = Store(run.output)
    store.open()
    lost: set[str] = set()
    for _ in range(_TRIES):
        try:
            with store.at_work():
                return attempt(Base(store, lost))
        except UnreadableStatesError as error:
            (series,) = error.args
            if not run.anew:
                raise SparkError(
                    f"--output {run.output}: another version of zmtpsniff left connections open in {min(series)} "
                    "that this one cannot go on with: --anew dissects such series anew"
                ) from error
            lost |= series
        except ConflictError:
            continue
    raise SparkError(f"--output {run.output}: other runs add files of the same series all the time: run this again")


class Base:
    """The contents of the tables when an attempt begins."""

    def __init__(self, store: Store, lost: Set[str]) -> None:
        """Find out what there is. States of series that are ``lost`` need not be readable."""
        self.store = store
        self.lost = lost
        self._number = store.last_commit().number
        self.known = known_files(store.captures())
        self._states = store.dataset(STATES)

    def series_with(self, wanted: "pc.Expression") -> set[str]:
        """The series with such rows of states."""
        return set(self._states.to_table(["series"], filter=wanted).column("series").unique().to_pylist())

    def dissect(self, session: "SparkSession", shards: Sequence[ShardTask], options: Options) -> int:
        """Dissect shards and commit the results. Returns how many rows these have.

        Raises ConflictError and UnreadableStatesError.
        """
        outcomes = job.run(session, Job(self.store.location, self._states.files, options), shards)
        unreadable = {series for one in outcomes for series in one.unreadable} - self.lost
        if unreadable:
            raise UnreadableStatesError(unreadable)
        files = [file for one in outcomes for file in one.files]
        touched = {one.series for one in shards}
        mine = {name: sorted(self.known[name]) for name in touched & self.known.keys()}

        def same() -> bool:
            now = known_files(self.store.captures([*touched]))
            return {name: sorted(some) for name, some in now.items()} == mine

        self.store.commit(self._number, files, touched, {one.series for one in shards if one.anew}, same)
        return sum(file.rows for file in files if file.table != STATES)


def follow(
    session: "SparkSession",
    inputs: Sequence[str],
    run: IngestRun,
    report: Callable[[IngestOutcome], None],
    once: bool = False,
    every_seconds: float = _EVERY_SECONDS,
) -> None:
    """Add the files that are in folders, and those that will be, until the thread is interrupted.

    A file is taken as soon as it is seen, so it must be renamed into its folder when it is whole. The row of a
    connection comes once it is over, or idle for ``run.options.idle_seconds``. ``report`` is called after each run that
    found something. With ``once`` it ends when what is there has been taken. Raises as :func:`ingest`.

    The tables are the only record of the files, so no other one can differ from them.
    """
    run = run._replace(options=run.options._replace(tells_open=False))
    quiet_at = time.monotonic()
    while True:
        done = add(session, list_files(inputs, tables_of(run.output), empty=True), run, MOST_FILES)
        if done.files or done.unreadable:
            report(done)
        if done.files:
            continue
        if once or time.monotonic() >= quiet_at:
            tell_quiet(session, run)
            quiet_at = time.monotonic() + max(_QUIET_SECONDS, run.options.idle_seconds / 10)
        if once:
            return
        time.sleep(every_seconds)


def tell_quiet(session: "SparkSession", run: IngestRun, now_ns: int | None = None) -> int:
    """Add provisional rows on open connections of series whose latest file was written ``idle_seconds`` ago.

    ``now_ns`` is the time now, nanoseconds since the Unix epoch, by default the clock's. Rows that the tables have are
    not told again; the next file of the series replaces it. Returns the number of rows. Raises SparkError.
    """
    before_ns = (time.time_ns() if now_ns is None else now_ns) - nanoseconds(run.options.idle_seconds)

    def attempt(base: Base) -> int:
        quiet = base.series_with(OPEN) - base.store.provisional_series()
        shards = [
            shard_task(name, [], files, name in base.lost, set())
            for name, files in base.known.items()
            if max(file.listed.modified_ns for file in files) < before_ns and name in quiet
        ]
        return base.dissect(session, shards, run.options._replace(tells_open=True)) if shards else 0

    return _until_done(run, attempt)
