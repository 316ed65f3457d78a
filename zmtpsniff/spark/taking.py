"""New files of a series, dissected by a task from what is open in the series.

What comes of them are staged files of the tables, the states that have changed among them, and what there is to commit.
A run reads the states from the tables' folder, a stream keeps them in a state store. Those are used only if they are
certain to be what the folder has: else they are read from there, as are the names of the files. So whatever happens to
the store, the folder is right.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from zmtpsniff.collector import spare_collector
from zmtpsniff.spark.connections import NO_STATE
from zmtpsniff.spark.groups import DATAGRAMS
from zmtpsniff.spark.inputs import File, is_readable_in_python, is_special, is_there
from zmtpsniff.spark.known import Known, captures_of, is_late, known_files, latest_of
from zmtpsniff.spark.listing import Listed
from zmtpsniff.spark.open_states import GONE, OPEN, OPEN_SCHEMA, OpenStates, decode_state, prefix_of
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.rows import PROVISIONAL, Batch
from zmtpsniff.spark.shards import NEVER, Entries, Shards
from zmtpsniff.spark.store import Folder
from zmtpsniff.spark.whole import Ended, Left, Series, State, ToldRows, rows_of
from zmtpsniff.spark.writing import Writer

_MOST_STATES = 1000  # of a batch of rows


class Position(msgspec.Struct):
    """Where a run or a micro-batch stands: what its tasks are told.

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
    count: int = 0  # groups so far
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
    """A line of what there is to commit: ``what`` is a file that has ``rows`` of a series, or a count of files.

    A series that is ``wanting`` must be dissected anew, from files that only Spark can open: nothing was done.
    """

    series: str
    what: str  # file, new, known, anew, wanting
    path: str
    rows: int


class _Changes:
    """The groups of a series, and which of them were changed."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self.names: dict[bytes, None] = {}

    def get(self, name: bytes) -> State | None:
        return self._shards.get(name)

    def put(self, name: bytes, state: State | None, over_ns: int = 0) -> None:
        if state is not None or self._shards.octets(name) is not None:
            self.names[name] = None
            self._shards.put(name, state, over_ns)


class _Files:
    """Entries in a folder of this machine."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def get(self, number: int) -> bytes | None:
        path = self._folder / str(number)
        return path.read_bytes() if path.exists() else None

    def put(self, number: int, octets: bytes | None) -> None:
        path = self._folder / str(number)
        if octets is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(octets)


class Task:
    """What one task does with the series that it gets, one after the other."""

    def __init__(self, options: Options, position: Position, copies: Mapping[str, str] | None = None) -> None:
        """Dissect with ``options``; of files that only Spark can open ``copies`` are there, by their paths.

        None if there are never any.
        """
        spare_collector()
        self._options = options
        self._position = position
        self._copies = copies
        self._folder = Folder(position.root)
        self._writer = Writer(position.staging)
        self._log: OpenStates | None = None
        self._captures: list[Any] | None = None

    def add(
        self,
        series: str,
        files: Sequence[Listed],
        anew: bool = False,
        known: int = 0,
        latest: tuple[int, int] | None = None,
    ) -> Iterator[Taken]:
        """Dissect files of a series that are new, or with ``anew`` all that it has; what there is to commit.

        Where one is older than what is known of the series, all of it is dissected anew; if files of it are gone, that
        one is dissected by itself. The series has ``known`` files, and ``latest`` is what latest_of() says of them.
        """
        with TemporaryDirectory(prefix="zmtpsniff-") as folder:
            entries = _Files(folder)
            note = Note(self._position.epoch) if anew else self._learn(series, known, latest, entries)
            yield Taken(series, "new", "", len(files))
            yield from self._take(series, files, note, entries, anew)

    def take(self, series: str, files: Sequence[Listed], memory: Memory) -> Iterator[Taken]:
        """Do the same with those files of a series that ``memory`` does not know, and keep there what is open.

        FIFOs and their like are left alone.
        """
        octets = memory.read_note()
        note = None if octets is None else msgspec.msgpack.decode(octets, type=Note)
        if note is None or note.epoch != self._position.epoch:
            memory.forget()
            known = self._known(series)
            memory.know(file.listed.path for file in known)
            note = self._learn(series, len(known), latest_of(known), memory.shards)
        files = [file for file in files if not is_special(file.path)]
        paths = {file.path: file for file in sorted(files)}
        new = [file for path, file in paths.items() if not memory.knows(path)]
        yield Taken(series, "known", "", len(files) - len(new))
        if new:
            yield Taken(series, "new", "", len(new))
            yield from self._take(series, new, note, memory.shards)
            memory.know(file.path for file in new)
        memory.write_note(msgspec.msgpack.encode(note))

    def close(self) -> None:
        """Finish all files."""
        self._writer.close()

    def _learn(self, series: str, known: int, latest: tuple[int, int] | None, entries: Entries) -> Note:
        """What the tables' folder says of a series that has so many files."""
        self._log = self._log or OpenStates(self._folder)
        note = Note(self._position.epoch, 1 + known, latest=latest)
        shards = Shards(entries, note.over_ns)
        for name, octets in self._log.of(series).items():
            state = decode_state(octets)
            note.next_no = max(note.next_no, 1 + max(state.files, default=0))
            note.count = max(note.count, 1 + state.number)
            note.anew |= not state.is_good
            shards.put_octets(name, octets, 0 if state.is_good else NEVER)
        shards.flush()
        return note

    def _known(self, series: str) -> list[Known]:
        if self._captures is None:
            self._captures = [captures_of(self._folder)]
        (table,) = self._captures  # of all series: it is read once
        mine = None if table is None else table.filter(pc.equal(table.column("series"), series))
        return known_files(mine).get(series, [])

    def _take(
        self, series: str, new: Sequence[Listed], note: Note, entries: Entries, anew: bool = False
    ) -> Iterator[Taken]:
        late = [file for file in new if note.latest is not None and is_late(*self._span(file.path), note.latest)]
        known = self._known(series) if late or note.anew else []
        closed = [file for file in known if not is_readable_in_python(file.listed.path)]
        if closed and self._copies is not None:
            yield Taken(series, "wanting", "", 0)
            return
        lost = bool(closed) or not all(is_there(file.listed.path) for file in known)
        alone = late if lost else []
        before = self._writer.counts()
        shards = Shards(entries, note.over_ns)
        if anew or (known and not lost):
            yield Taken(series, "anew", "", 0)
            shards.clear()
            note.next_no, note.end_ns, note.anew, note.latest = 1, 0, False, None
        files = sorted({*(file for file in new if file not in alone), *(file.listed for file in known if not lost)})
        captures = self._dissect(series, files, note, shards)
        if alone:
            captures += self._dissect_alone(series, alone, note)
        note.latest = max([*captures, *([note.latest] if note.latest else [])], default=None)
        for path, count in self._writer.counts().items():
            if count > before.get(path, 0):
                yield Taken(series, "file", path, count - before.get(path, 0))

    def _dissect(self, name: str, files: Sequence[Listed], note: Note, shards: Shards) -> list[tuple[int, int]]:
        """Dissect files from where the series was left; the ends of the files as Note has them."""
        changes = _Changes(shards)
        numbered = {note.next_no + at: file.path for at, file in enumerate(files)}
        series = Series(numbered, self._options, Left(note.end_ns, note.count), changes, self._copies or {})
        told, provisional = (ToldRows(name, series, self._options) for _ in range(2))
        for one in series.events():
            self._write(told.take(one))
        done: set[bytes] = set()
        for ended in series.ended():
            done.add(ended.name)
            self._write(told.take(ended.final))
            is_datagrams = ended.name.startswith(DATAGRAMS)  # which have no end
            if is_datagrams or self._options.tells_open:
                self._write(provisional.take(ended.provisional, PROVISIONAL))
            state = State(0, NO_STATE) if is_datagrams else ended.state
            is_bad = state is not None and not state.is_good
            note.anew |= is_bad
            changes.put(ended.name, state, NEVER if is_bad else ended.over_ns)
        # All that is open, but for datagrams, has rows; else what may be over.
        for group in shards.over(NEVER - 1 if self._options.tells_open else series.end_ns):
            if group in done:
                continue
            ended = series.end(group)
            self._write(told.take(ended.final))
            if self._options.tells_open:
                self._write(provisional.take(ended.provisional, PROVISIONAL))
            _put_unless_same(ended, shards, changes)
        self._write(told.flush())
        self._write(provisional.flush(PROVISIONAL))
        self._write(told.of_captures({file.path: file for file in files}))
        self._write(self._states(name, shards, changes))
        shards.flush()
        note.next_no += len(files)
        note.end_ns, note.count = series.end_ns, series.count
        return [(capture.last_ns or 0, capture.first_ns or 0) for capture in series.captures]

    def _dissect_alone(self, name: str, files: Sequence[Listed], note: Note) -> list[tuple[int, int]]:
        """Dissect files as if nothing of their series was known; their ends."""
        self._write(rows_of(name, files, self._options, self._copies or {}, note.next_no, stays=True))
        note.next_no += len(files)
        return [(last_ns, first_ns or 0) for first_ns, last_ns in (self._span(file.path) for file in files)]

    def _write(self, batches: Iterable[Batch]) -> None:
        for table, rows, prefix in batches:
            self._writer.take(table, rows, prefix)

    def _states(self, series: str, shards: Shards, changes: _Changes) -> Iterator[Batch]:
        """The states that have changed, as rows."""
        names = [*changes.names]
        for begin in range(0, len(names), _MOST_STATES):
            some = names[begin : begin + _MOST_STATES]
            found = [shards.octets(name) or GONE for name in some]
            columns = [[series] * len(some), some, found]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, OPEN_SCHEMA, strict=True)]
            batch = pa.RecordBatch.from_arrays(arrays, schema=OPEN_SCHEMA)
            yield OPEN, batch, prefix_of(self._position.number)

    def _span(self, path: str) -> tuple[int | None, int]:
        """When the first packet of a file came, None if it has none, and the last one."""
        first_ns: int | None = None
        last_ns = 0
        for packets in File(path, (self._copies or {}).get(path)).batches():
            times = [packet[0] for packet in packets]
            first_ns = min(times) if first_ns is None else min(first_ns, min(times))
            last_ns = max(last_ns, max(times))
        return first_ns, last_ns


def _put_unless_same(ended: Ended, shards: Shards, changes: _Changes) -> None:
    """Keep a group that may have been over; if it is not, its state is the same, and only its time is now known."""
    octets = shards.octets(ended.name)
    if ended.state is None or octets is None:
        changes.put(ended.name, None)
    else:
        shards.put_octets(ended.name, octets, ended.over_ns)
