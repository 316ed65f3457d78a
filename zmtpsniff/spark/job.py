"""The stages of a run on Spark: which rows go through which function, and what is collected in between."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from zmtpsniff.spark.inputs import is_readable_in_python
from zmtpsniff.spark.judged import PIECES_ORDER, Joined, Written, here, on_spark, shares_of, written, written_in
from zmtpsniff.spark.listing import Listed, series_of
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.tasks import is_local, run_here

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from zmtpsniff.spark.rows import Batch

_PART_OCTETS = 64 << 20  # of capture files whose segments a task gets
_PIECES_OCTETS = 1 << 30  # of capture files whose pieces a task gets
_PIECES_OCTETS_HERE = 128 << 20  # where nothing has to be brought to tasks, so that there may be many parts
_LEAST_PARTS = 4
_NEAR = 4  # files before and after one that fragments of its datagrams may be in
_TASK_OCTETS = 128 << 20  # of capture files that a task reads, unless one is larger
_TYPES = {"int32": "INT", "int64": "BIGINT", "binary": "BINARY", "string": "STRING"}


class Job:
    """A run over some files."""

    def __init__(
        self,
        session: "SparkSession",
        files: Sequence[Listed],
        options: Options,
        series: str,
        first_number: int = 1,
        folder: str = "",
    ) -> None:
        """Dissect ``files``, numbered from ``first_number``; tasks write into ``folder``.

        ``series`` is the rule that says which files are of one series.
        """
        self._session = session
        self._files = files
        self._options = options
        self._first_number = first_number
        self._folder = folder
        self._names = [series_of(file.path, series) for file in files]
        self.series = sorted(set(self._names))
        self._numbers = {name: number for number, name in enumerate(self.series)}
        self._tasks = _spread(files)
        self._octets = sum(file.size for file in files)
        self._states: list[tuple[bytes, bytes]] = []

    def begin_with(self, states: Iterable[tuple[str, bytes, bytes]]) -> None:
        """Go on from what an earlier run left open: series, group in it, state."""
        from zmtpsniff.spark.groups import name_of

        for series, name, state in states:
            if series in self._numbers:
                self._states.append((name_of(self._numbers[series], name), state))

    def _frame(self, numbers: Sequence[int] | None = None) -> "DataFrame":
        """The files, or those with some numbers, spread over tasks."""
        first = self._first_number
        chosen = range(len(self._files)) if numbers is None else [number - first for number in numbers]
        files = [self._files[index] for index in chosen]
        tasks = self._tasks if numbers is None else _spread(files)
        frame = self._session.createDataFrame(self._table(chosen, tasks))
        foreign = [file.path for file in files if not is_readable_in_python(file.path)]
        if foreign:  # Spark reads them, and gives their content
            content = self._session.read.format("binaryFile").load(foreign).select("path", "content")
            frame = frame.join(content, "path", "left")
        # Of one task it does not take a stage to bring files to it.
        return frame.repartitionById(tasks[-1] + 1, "task") if tasks[-1] else frame.coalesce(1)

    def _table(self, chosen: Sequence[int], tasks: Sequence[int]) -> "pa.Table":
        """Rows of FILE_SCHEMA of some files, by their places."""
        import pyarrow as pa

        from zmtpsniff.spark.exact import FILE_SCHEMA

        columns: list[Any] = [[*column] for column in zip(*(self._files[index] for index in chosen), strict=True)]
        columns += [[self._names[index] for index in chosen], [self._numbers[self._names[i]] for i in chosen]]
        columns += [[self._first_number + index for index in chosen], tasks]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, FILE_SCHEMA, strict=True)]
        return pa.table(arrays, schema=FILE_SCHEMA)

    # ------------------------------------------------------------------ every segment

    def run_exact(self) -> list[Written]:
        """Shuffle every segment; the files that were written."""
        return written(self._dissected(_into_files(self._folder), _manifest()))

    def rows(self) -> "DataFrame":
        """Shuffle every segment; rows of all tables, a struct column for each."""
        from zmtpsniff.spark.tables import TABLES, ddl

        return self._dissected(_into_rows, ", ".join(f"{table} STRUCT<{ddl(table)}>" for table in TABLES))

    def _dissected(
        self, into: Any, schema: str, wanted: Any = None, states: Any = None, ends_ns: dict[int, int] | None = None
    ) -> "DataFrame":
        """Segments, all or those wanted of some files, to the tasks of their groups; what ``into`` makes of rows."""
        from zmtpsniff.spark.exact import ORDER, SEGMENT_SCHEMA, dissected, segments, state_rows

        parts = max(_LEAST_PARTS, self._octets // _PART_OCTETS)
        options = self._options
        only = None if wanted is None else frozenset().union(*wanted.values())

        def read(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            return segments(batches, options, parts, wanted)

        def dissect(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            return into(dissected(batches, options, parts, only, ends_ns))  # type: ignore[no-any-return]

        frame = self._frame(None if wanted is None else sorted(wanted)).mapInArrow(read, _ddl(SEGMENT_SCHEMA))
        begin = self._states if states is None else states
        if begin:
            frame = frame.unionAll(self._session.createDataFrame(state_rows(begin, parts)))
        return frame.repartitionById(parts, "part").sortWithinPartitions(*ORDER).mapInArrow(dissect, schema)

    # ------------------------------------------------------------------ the map side

    def run(self) -> list[Written]:
        """Dissect each file where it is read, and shuffle only what goes on in another; the files that were written."""
        from zmtpsniff.spark.mapping import PIECES
        from zmtpsniff.spark.verdicts import ALONE, STRETCH

        scanned = self._scan()
        ends_ns: dict[int, int] = {}
        for row in scanned:
            if not row.path:
                ends_ns[row.rows] = max(ends_ns.get(row.rows, 0), row.octets)
        joined = self._join([row for row in scanned if row.path.startswith(PIECES)], ends_ns)
        try:
            told = joined.told()
            redone, tasks = self._fallen(joined)
            files = [row for row in scanned if row.path and not row.path.startswith(PIECES)]
            waiting = [
                row for row in files if row.task in tasks or row.path.rpartition("/")[2].startswith((ALONE, STRETCH))
            ]
            final = [row for row in files if row not in waiting]
            final += told
            if waiting:
                final += joined.apply(waiting)
        finally:
            joined.close()
        if redone:
            final += self._redo(redone, ends_ns)
        return final

    def _scan(self) -> list[Written]:
        from zmtpsniff.spark.mapping import scanned

        options, folder, parts, is_here = self._options, self._folder, self._parts, self._is_here

        def scan(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            return scanned(batches, options, parts, folder, apart=is_here)

        if is_here and all(is_readable_in_python(file.path) for file in self._files):
            table = self._table(range(len(self._files)), self._tasks)
            return written_in(run_here(self._session, table, scan))
        return written(self._frame().mapInArrow(scan, _manifest()))

    @property
    def _is_here(self) -> bool:
        return is_local(self._session)

    @property
    def _parts(self) -> int:
        return max(_LEAST_PARTS, self._octets // (_PIECES_OCTETS_HERE if self._is_here else _PIECES_OCTETS))

    def _join(self, pieces: list[Written], ends_ns: dict[int, int]) -> Joined:
        """Join pieces, those in some files and the states that this begins with."""
        import pyarrow as pa

        from zmtpsniff.spark.groups import part_of
        from zmtpsniff.spark.joining import JOIN, joined
        from zmtpsniff.spark.mapping import PIECE_SCHEMA

        options, folder, parts = self._options, self._folder, self._parts
        series = {number: (name, ends_ns.get(number, 0)) for name, number in self._numbers.items()}
        starts = [index for index, task in enumerate(self._tasks) if index == 0 or task != self._tasks[index - 1]]
        bounds = [self._first_number + index for index in starts]

        def join(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            return joined(batches, options, series, bounds, folder)

        rows = [
            {"part": part_of(group, parts), "group": group, "first_ns": -1, "file_no": 0, "path": "", "piece": state}
            for group, state in self._states
        ]
        states = pa.Table.from_pylist(rows, schema=PIECE_SCHEMA)
        if self._is_here:
            processors = self._session.sparkContext.defaultParallelism
            if shares := shares_of(folder, pieces, states, parts, processors):
                return here(self._session, folder, pieces, states, shares, join)
        frame = self._session.createDataFrame([], _ddl(PIECE_SCHEMA))  # Spark Connect makes none of an empty table
        if rows:
            frame = self._session.createDataFrame(states)
        if pieces:
            read = self._session.read.schema(_ddl(PIECE_SCHEMA)).parquet(*(f"{folder}/{row.path}" for row in pieces))
            frame = frame.unionAll(read) if rows else read
        frame = frame.repartitionById(parts, "part").sortWithinPartitions(*PIECES_ORDER).mapInArrow(join, JOIN)
        return on_spark(self._session, frame, folder, self._tasks[-1] + 1)

    def _fallen(self, joined: Joined) -> tuple[list[tuple[int, Any]], set[int]]:
        """The pieces that are dissected anew, with the number of their file, and tasks that wrote rows that fall."""
        from zmtpsniff.spark.joining import decode

        redone = []
        tasks = set()
        for task, key, encoded in joined.judged():
            judged = decode(encoded)
            if judged.ends:
                tasks.add(task)
            if judged.fate == "redo":
                redone.append((key >> 40, judged))
        return redone, tasks

    def _redo(self, redone: list[tuple[int, Any]], ends_ns: dict[int, int]) -> list[Written]:
        """Read again what could not be joined."""
        wanted: dict[int, set[bytes]] = {}
        states: dict[bytes, bytes] = {}
        for file_no, judged in redone:
            wanted.setdefault(file_no, set()).add(judged.group)
            if judged.loose:
                for near in self._near(file_no):
                    wanted.setdefault(near, set())
            if judged.state is not None:
                states[judged.group] = judged.state
        frame = self._dissected(_into_files(self._folder), _manifest(), wanted, list(states.items()), ends_ns)
        return written(frame)

    def _near(self, file_no: int) -> list[int]:
        """Files of the same series that fragments of a datagram may be in, of which this one has some."""
        index = file_no - self._first_number
        places = range(max(index - _NEAR, 0), min(index + _NEAR + 1, len(self._names)))
        return [self._first_number + place for place in places if self._names[place] == self._names[index]]


def _spread(files: Sequence[Listed]) -> list[int]:
    """A task for each file: those of one task have together about as many octets as those of another."""
    tasks, task, octets = [], -1, _TASK_OCTETS + 1
    for file in files:
        if octets + file.size > _TASK_OCTETS:
            task += 1
            octets = 0
        octets += file.size
        tasks.append(task)
    return tasks


def _ddl(schema: "pa.Schema") -> str:
    return ", ".join(f"`{field.name}` {_TYPES[str(field.type)]} NOT NULL" for field in schema)


def _manifest() -> str:
    from zmtpsniff.spark.writing import MANIFEST

    return MANIFEST


def _into_files(folder: str) -> Any:
    def write(batches: "Iterable[Batch]") -> "Iterator[pa.RecordBatch]":
        from zmtpsniff.spark.writing import write_rows

        return write_rows(batches, folder)

    return write


def _into_rows(batches: "Iterable[Batch]") -> "Iterator[pa.RecordBatch]":
    from zmtpsniff.spark.rows import wrap

    return (wrap(table, batch) for table, batch, _ in batches if not table.startswith("_"))
