"""The folder that tables are kept in: what a run adds and removes happens as a whole, or when the next run starts.

    DIR/TABLE/date=DAY/*.parquet    the tables; files whose names begin with "open-" hold provisional rows
    DIR/_open/*.parquet             the states of connections that are open: where the next run goes on (open_states)
    DIR/_followed                   which query has the same states in its checkpoint, up to which micro-batch (follow)
    DIR/_staging/RUN/               what a run writes before it is done
    DIR/_journal/RUN.json           what a run that is done adds and removes; there only while that happens
    DIR/_lock                       held by the run that writes

A run that was killed before its journal was written left nothing but a staging folder, which the next run deletes; of
one that was killed later the next run does what is left of its journal.
"""

import json
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyarrow.fs import FileSelector, FileSystem, FileType

from zmtpsniff.spark.inputs import local_path
from zmtpsniff.spark.session import SparkError
from zmtpsniff.spark.tables import PARTITION, TABLES

if TYPE_CHECKING:
    import pyarrow as pa

_STAGING, _JOURNAL, _LOCK = "_staging", "_journal", "_lock"


class Folder:
    """The folder of the tables, to read; what is read is what the last run that is done has left."""

    def __init__(self, location: str) -> None:
        """Read the folder ``location``, a path or URL; raises OSError or ValueError if nothing opens that."""
        if not location:
            raise ValueError("it is empty; give a path or URL")
        self.location = location.rstrip("/") or "/"
        self._system, self._root = _file_system(self.location)

    def read_note(self, name: str) -> Any:
        """What :meth:`write_note` wrote, None if it never did."""
        path = f"{self._root}/{name}"
        return json.loads(self._system.open_input_stream(path).read()) if self._exists(path) else None

    def files(self, table: str) -> list[str]:
        """The Parquet files of a table, below the folder."""
        found = self._list(table, recursive=True)
        return [path[len(self._root) + 1 :] for path in found if path.endswith(".parquet")]

    def read(self, table: str, columns: list[str], series: Set[str] | None = None) -> Any:
        """Columns of a table, or of its rows of ``series``, as an Arrow table; None if the table has no file."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.dataset as ds

        files = [f"{self._root}/{name}" for name in self.files(table)]
        if not files:
            return None
        wanted = None if series is None else pc.field("series").isin(pa.array(sorted(series), pa.string()))
        return ds.dataset(files, format="parquet", filesystem=self._system).to_table(columns, filter=wanted)

    def parquet(self, name: str) -> Any:
        """A Parquet file that is named below the folder, open; whoever asks for it closes it."""
        import pyarrow.parquet as pq

        return pq.ParquetFile(self._system.open_input_file(f"{self._root}/{name}"))

    def size(self, name: str) -> int:
        """The octets of a file that is named below the folder."""
        return int(self._system.get_file_info(f"{self._root}/{name}").size or 0)

    def _exists(self, path: str) -> bool:
        return bool(self._system.get_file_info(path).type != FileType.NotFound)

    def _list(self, folder: str, recursive: bool = False) -> list[str]:
        selector = FileSelector(f"{self._root}/{folder}", allow_not_found=True, recursive=recursive)
        found = [info.path for info in self._system.get_file_info(selector) if info.type == FileType.File]
        return sorted(path for path in found if not path.endswith(".partial"))


class Store(Folder):
    """The folder of one output, for one run."""

    def __init__(self, location: str) -> None:
        """Open the folder ``location``, a path or URL, and finish what an earlier run began.

        Raises SparkError if it cannot be written to, or another run writes to it.
        """
        try:
            super().__init__(location)
            local = local_path(self.location)
            self._system.create_dir(self._root)
            self._lock = None if local is None else _lock(local)
        except (OSError, ValueError) as error:
            raise SparkError(f"--output {location}: {' '.join(str(error).split())}") from error
        self.run = uuid4().hex
        for journal in self._list(_JOURNAL):
            self._apply(json.loads(self._system.open_input_stream(journal).read()))
            self._system.delete_file(journal)
        self._delete(_STAGING)
        self._system.create_dir(f"{self._root}/{_STAGING}/{self.run}")

    @property
    def root(self) -> str:
        """The folder, a path or URL that tasks know, too."""
        local = local_path(self.location)
        return self.location if local is None else absolute(local)

    @property
    def staging(self) -> str:
        """Where tasks write: a path or URL."""
        return f"{self.root}/{_STAGING}/{self.run}"

    def write_note(self, name: str, value: Any) -> None:
        """Keep a value in a file, in place of what it held."""
        self._replace(f"{self._root}/{name}", value)

    def check_columns(self, output: str) -> None:
        """Raise SparkError if tables that are there lack columns, as those of an earlier version do.

        ``output`` is what the user calls the folder. Rows of both would not be read as one table, and what that
        version left open is not laid out as it is now.
        """
        import pyarrow.parquet as pq

        for table, columns in TABLES.items():
            for name in self.files(table)[:1]:
                with self._system.open_input_file(f"{self._root}/{name}") as file:
                    known = {PARTITION, *pq.ParquetFile(file).schema_arrow.names}
                missing = [column.name for column in columns if column.name not in known]
                if missing:
                    raise SparkError(
                        f"--output {output}: an earlier version made its tables, {table} without "
                        f"{', '.join(missing)}: take another folder, and ingest the captures again"
                    )

    def left(self, names: Iterable[str], series: Set[str]) -> tuple[list[str], list[str]]:
        """Those of some files that have rows of ``series``, and staged ones that have their other rows."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        gone = pa.array(sorted(series), pa.string())
        removed, added = [], []
        for name in names:
            with self._system.open_input_file(f"{self._root}/{name}") as file:
                parquet = pq.ParquetFile(file)
                found = parquet.read(["series"]).column("series")
                if not pc.any(pc.is_in(found, value_set=gone)).as_py():
                    continue
                removed.append(name)
                if pc.all(pc.is_in(found, value_set=gone)).as_py():
                    continue
                folder, _, title = name.rpartition("/")
                begin, dash, _ = title.rpartition("-")  # provisional or numbered, as it was
                with self.write(f"{folder}/{begin}{dash}", parquet.schema_arrow) as (target, writer):
                    for rows in parquet.iter_batches():
                        writer.write_batch(rows.filter(pc.invert(pc.is_in(rows.column("series"), value_set=gone))))
                added.append(target)
        return removed, added

    @contextmanager
    def write(self, begin: str, schema: "pa.Schema") -> Iterator[tuple[str, Any]]:
        """A new staged file whose name, below the folder, begins so: its name, and what writes it."""
        import pyarrow.parquet as pq

        target = f"{begin}{uuid4().hex}.parquet"
        path = f"{self._root}/{_STAGING}/{self.run}/{target}"
        self._system.create_dir(path.rpartition("/")[0])
        with (
            self._system.open_output_stream(path) as sink,
            pq.ParquetWriter(sink, schema, compression="zstd") as writer,
        ):
            yield target, writer

    def stage_note(self, name: str, value: Any) -> None:
        """Write a value into a file of the staging folder, to be added by :meth:`commit`."""
        folder = f"{self._root}/{_STAGING}/{self.run}"
        self._system.create_dir(folder)
        self._replace(f"{folder}/{name}", value)

    def series_in(self, names: Iterable[str]) -> set[str]:
        """The series that files of the tables have rows of."""
        import pyarrow.dataset as ds

        files = [f"{self._root}/{name}" for name in names]
        if not files:
            return set()
        found = ds.dataset(files, format="parquet", filesystem=self._system).to_table(["series"])
        return set(found.column("series").unique().to_pylist())

    def commit(self, added: Iterable[str], removed: Iterable[str] = ()) -> None:
        """Make files of the staging folder part of the tables, and remove others; both are named below the folder."""
        journal = {"run": self.run, "added": sorted(added), "removed": sorted(removed)}
        path = f"{self._root}/{_JOURNAL}/{self.run}.json"
        self._system.create_dir(f"{self._root}/{_JOURNAL}")
        self._replace(path, journal)
        self._apply(journal)
        self._system.delete_file(path)
        self._delete(_STAGING)

    def close(self) -> None:
        """Let others write."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _apply(self, journal: dict[str, Any]) -> None:
        """Do what a journal says, as far as it is not done."""
        staging = f"{self._root}/{_STAGING}/{journal['run']}"
        for name in journal["added"]:
            source, target = f"{staging}/{name}", f"{self._root}/{name}"
            if self._exists(source):
                self._system.create_dir(target.rpartition("/")[0])
                self._system.move(source, target)
        for name in journal["removed"]:
            if self._exists(f"{self._root}/{name}"):
                self._system.delete_file(f"{self._root}/{name}")

    def _replace(self, path: str, value: Any) -> None:
        with self._system.open_output_stream(f"{path}.partial") as file:
            file.write(json.dumps(value).encode())
        self._system.move(f"{path}.partial", path)

    def _delete(self, folder: str) -> None:
        if self._exists(f"{self._root}/{folder}"):
            self._system.delete_dir(f"{self._root}/{folder}")


def is_there(location: str) -> bool:
    """Whether there is a file or folder at a path or URL; raises SparkError if that cannot be told."""
    try:
        system, path = _file_system(location)
        return bool(system.get_file_info(path).type != FileType.NotFound)
    except (OSError, ValueError) as error:
        raise SparkError(f"{location}: {' '.join(str(error).split())}") from error


def delete_folder(location: str) -> None:
    """Delete the folder at a path or URL if it is there."""
    if is_there(location):
        system, path = _file_system(location)
        system.delete_dir(path)


def _file_system(location: str) -> tuple[FileSystem, str]:
    local = local_path(location)
    return FileSystem.from_uri(location if local is None else absolute(local))  # type: ignore[no-any-return]


def absolute(path: str) -> str:
    """A local path as every program understands it."""
    import os

    return os.path.abspath(path)


def _lock(folder: str) -> Any:
    import fcntl

    file = open(f"{folder}/{_LOCK}", "w")  # noqa: SIM115  # closed with the store
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise SparkError(f"--output {folder}: another run is writing to it; wait until it is done") from error
    return file
