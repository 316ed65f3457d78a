"""New files of series that are followed, dissected by a task from what its state store keeps of each series.

What comes of them are staged files of the tables, the states that have changed among them, and what there is to commit.
The states in the store are used only if they are certain to be those that the tables' folder has: else they are read
from there, as are the names of the files. So whatever happens to the store, the folder is right.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from zmtpsniff.spark.connections import NO_STATE, spare_collector
from zmtpsniff.spark.groups import DATAGRAMS
from zmtpsniff.spark.ingest import Known, captures_of, is_late, known_files, latest_of
from zmtpsniff.spark.inputs import File, is_special, is_there
from zmtpsniff.spark.listing import Listed
from zmtpsniff.spark.open_states import GONE, OpenStates, prefix_of
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.reducing import OPEN, OPEN_SCHEMA, decode_state
from zmtpsniff.spark.rows import PROVISIONAL, Batch
from zmtpsniff.spark.shards import NEVER, Entries, Shards, is_kept
from zmtpsniff.spark.store import Folder
from zmtpsniff.spark.whole import Ended, Kept, Series, ToldRows
from zmtpsniff.spark.writing import Writer

_MOST_OCTETS = 16 << 20  # of rows that wait in memory
_MOST_STATES = 1000  # of a batch of rows


class Position(msgspec.Struct):
    """Where a micro-batch stands: what its tasks are told.

    ``root`` is the folder of the tables and ``staging`` where rows go; ``epoch`` names the time since which nobody else
    has written to the tables; ``number`` is that of the files of states.
    """

    root: str
    staging: str
    epoch: str
    number: int


class Note(msgspec.Struct):
    """What is kept of a series, beside its groups and the names of its files."""

    epoch: str
    next_no: int = 1  # the number of the next file
    end_ns: int = 0  # when the last segment came
    latest: tuple[int, int] | None = None  # when the last and the first packet came of the file that ends last
    anew: bool = False  # some state could not be kept: with the next file all of the series is dissected anew
    over_ns: dict[int, int] = {}  # of each shard


class Memory(Protocol):
    """What the state store keeps of a series."""

    shards: Entries

    def read_note(self) -> bytes | None:
        """The note, None if there is none."""
        ...

    def write_note(self, octets: bytes) -> None:
        """Change it."""
        ...

    def knows(self, path: str) -> bool:
        """Whether a file is known."""
        ...

    def know(self, paths: Iterable[str]) -> None:
        """These files are known."""
        ...

    def forget(self) -> None:
        """No file is known, and there are no shards."""
        ...


class Taken(NamedTuple):
    """A line of what there is to commit: ``what`` is a file that has ``rows`` of a series, or a count of files."""

    series: str
    what: str  # file, new, known, anew
    path: str
    rows: int


class _Changes:
    """The groups of a series, and which of them were changed."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self.names: dict[bytes, None] = {}

    def get(self, name: bytes) -> Kept | None:
        return self._shards.get(name)

    def put(self, name: bytes, kept: Kept | None) -> None:
        if kept is not None or self._shards.get(name) is not None:
            self.names[name] = None
            self._shards.put(name, kept)


class _Rows:
    """The rows of a series, which wait until it is certain that they hold."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._waiting: list[Batch] = []
        self._octets = 0
        self._own: Writer | None = None

    def add(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self._octets += batch[1].nbytes
            self._waiting.append(batch)
        if self._octets > _MOST_OCTETS:
            self._own = self._own or Writer(self._folder)
            self._write(self._own)

    def settle(self, shared: Writer) -> dict[str, int]:
        """Write them to the task's files, unless they have their own: the files, and how many rows each has of them."""
        if self._own is not None:
            self._write(self._own)
            return {row["path"]: row["rows"] for batch in self._own.close(0) for row in batch.to_pylist()}
        before = shared.counts()
        self._write(shared)
        counts = {path: rows - before.get(path, 0) for path, rows in shared.counts().items()}
        return {path: rows for path, rows in counts.items() if rows}

    def drop(self) -> None:
        """Forget them."""
        if self._own is not None:
            list(self._own.close(0))

    def _write(self, writer: Writer) -> None:
        for table, rows, prefix in self._waiting:
            writer.take(table, rows, prefix)
        self._waiting, self._octets = [], 0


class Task:
    """What one task does with the series that it gets, one after the other."""

    def __init__(self, options: Options, position: Position) -> None:
        """Dissect with ``options``."""
        spare_collector()
        self._options = options
        self._position = position
        self._folder = Folder(position.root)
        self._writer = Writer(position.staging)
        self._log: OpenStates | None = None
        self._captures: list[Any] | None = None

    def take(self, series: str, files: Sequence[Listed], memory: Memory) -> Iterator[Taken]:
        """Dissect those files of a series that are new; what there is to commit. FIFOs and their like are left alone.

        Where one is older than what is known of the series, all of it is dissected anew; if files of it are gone, that
        one is dissected by itself.
        """
        octets = memory.read_note()
        note = None if octets is None else msgspec.msgpack.decode(octets, type=Note)
        if note is None or note.epoch != self._position.epoch:
            note = self._learn(series, memory)
        files = [file for file in files if not is_special(file.path)]
        paths = {file.path: file for file in sorted(files)}
        new = [file for path, file in paths.items() if not memory.knows(path)]
        yield Taken(series, "known", "", len(files) - len(new))
        if new:
            yield Taken(series, "new", "", len(new))
            yield from self._take(series, new, note, memory)
        memory.write_note(msgspec.msgpack.encode(note))

    def close(self) -> None:
        """Finish all files."""
        list(self._writer.close(0))

    def _learn(self, series: str, memory: Memory) -> Note:
        """What the tables' folder says of a series."""
        memory.forget()
        known = self._known(series)
        memory.know(file.listed.path for file in known)
        self._log = self._log or OpenStates(self._folder)
        note = Note(self._position.epoch, 1 + len(known), latest=latest_of(known))
        shards = Shards(memory.shards, note.over_ns)
        for name, octets in self._log.of(series).items():
            state = decode_state(octets)
            note.next_no = max(note.next_no, 1 + max(state.files, default=0))
            note.anew |= not is_kept(state.join)
            shards.put_octets(bytes(4) + name, octets, 0 if is_kept(state.join) else NEVER)
        shards.flush()
        return note

    def _known(self, series: str) -> list[Known]:
        if self._captures is None:
            self._captures = [captures_of(self._folder)]
        (table,) = self._captures  # of all series: it is read once
        mine = None if table is None else table.filter(pc.equal(table.column("series"), series))
        return known_files(mine).get(series, [])

    def _take(self, series: str, new: list[Listed], note: Note, memory: Memory) -> Iterator[Taken]:
        late = [file for file in new if note.latest is not None and is_late(*_span(file.path), note.latest)]
        known = self._known(series) if late or note.anew else []
        lost = not all(is_there(file.listed.path) for file in known)
        alone = late if lost else []
        anew = not lost and (bool(late) or note.anew)
        files = [file for file in new if file not in alone]
        rows, captures, unsure = self._dissect(series, files, known if anew else [], note, memory)
        if unsure and not anew and not lost:
            known = self._known(series)
            if known and all(is_there(file.listed.path) for file in known):
                rows.drop()
                anew = True
                rows, captures, _ = self._dissect(series, files, known, note, memory)
        if anew:
            yield Taken(series, "anew", "", 0)
        if alone:
            captures += self._dissect_alone(series, alone, note, rows)
        ends = [*captures] if anew else [*captures, *([note.latest] if note.latest else [])]
        note.latest = max(ends, default=None)
        memory.know(file.path for file in new)
        for path, count in rows.settle(self._writer).items():
            yield Taken(series, "file", path, count)

    def _dissect(
        self, name: str, new: list[Listed], known: list[Known], note: Note, memory: Memory
    ) -> tuple[_Rows, list[tuple[int, int]], bool]:
        """Dissect new files from where the series was left, or all of it if there are ``known`` ones, too.

        The rows, the ends of the files as Note has them, and whether a state had not kept enough.
        """
        shards = Shards(memory.shards, note.over_ns)
        files = sorted({*new, *(file.listed for file in known)})
        if known:
            shards.clear()
            note.next_no, note.end_ns, note.anew = 1, 0, False
        changes = _Changes(shards)
        numbered = {note.next_no + at: file.path for at, file in enumerate(files)}
        series = Series(numbered, self._options, keeper=changes, end_ns=note.end_ns)
        told, provisional = (ToldRows(name, series, self._options) for _ in range(2))
        rows = _Rows(self._position.staging)
        for one in series.events():
            rows.add(told.take(one))
        unsure = False
        for ended in series.ended():
            unsure |= ended.unsure
            rows.add(told.take(ended.final))
            kept = ended.kept
            if ended.name.startswith(DATAGRAMS, 4):  # which have no end
                rows.add(provisional.take(ended.provisional, PROVISIONAL))
                kept = Kept(NO_STATE, {}, NEVER)
            if kept is not None and not is_kept(kept.state):
                note.anew = True
                kept = kept._replace(over_ns=NEVER)
            changes.put(ended.name, kept)
        for group in shards.over(series.end_ns):
            ended = series.end(group)
            rows.add(told.take(ended.final))
            _put_unless_same(ended, shards, changes)
        rows.add(told.flush())
        rows.add(provisional.flush(PROVISIONAL))
        rows.add(told.of_captures({file.path: file for file in files}))
        rows.add(self._states(name, shards, changes))
        shards.flush()
        note.next_no += len(files)
        note.end_ns = series.end_ns
        return rows, _ends(series), unsure

    def _dissect_alone(self, name: str, files: list[Listed], note: Note, rows: _Rows) -> list[tuple[int, int]]:
        """Dissect files as if nothing of their series was known; their ends."""
        series = Series({note.next_no + at: file.path for at, file in enumerate(files)}, self._options)
        note.next_no += len(files)
        told = ToldRows(name, series, self._options)
        for one in series.events():
            rows.add(told.take(one))
        for one in series.finish()[1]:
            rows.add(told.take(one))
        rows.add(told.flush())
        rows.add(told.of_captures({file.path: file for file in files}))
        return _ends(series)

    def _states(self, series: str, shards: Shards, changes: _Changes) -> Iterator[Batch]:
        """The states that have changed, as rows."""
        names = [*changes.names]
        for begin in range(0, len(names), _MOST_STATES):
            some = names[begin : begin + _MOST_STATES]
            found = [shards.octets(name) or GONE for name in some]
            columns = [[series] * len(some), [name[4:] for name in some], found]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, OPEN_SCHEMA, strict=True)]
            batch = pa.RecordBatch.from_arrays(arrays, schema=OPEN_SCHEMA)
            yield OPEN, batch, prefix_of(self._position.number)


def _put_unless_same(ended: Ended, shards: Shards, changes: _Changes) -> None:
    """Keep a group that may have been over; if it is not, its state is the same, and only its time is now known."""
    octets = shards.octets(ended.name)
    if ended.kept is None or octets is None:
        changes.put(ended.name, None)
    else:
        shards.put_octets(ended.name, octets, ended.kept.over_ns)


def _ends(series: Series) -> list[tuple[int, int]]:
    return [(capture.last_ns or 0, capture.first_ns or 0) for capture in series.captures]


def _span(path: str) -> tuple[int | None, int]:
    """When the first packet of a file came, None if it has none, and the last one."""
    first_ns: int | None = None
    last_ns = 0
    for packets in File(path).batches():
        times = [packet[0] for packet in packets]
        first_ns = min(times) if first_ns is None else min(first_ns, min(times))
        last_ns = max(last_ns, max(times))
    return first_ns, last_ns
