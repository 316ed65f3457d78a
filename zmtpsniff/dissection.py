"""Captures for programs: :func:`open` and the Dissection that it returns.

Everything here may be used in any thread. It prints nothing, catches no signals and gives up no privileges: the
program decides about that.
"""

import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from io import TextIOBase
from os import PathLike, fspath
from typing import IO, TYPE_CHECKING, NamedTuple, NoReturn, Protocol, Self, TypeVar

from dissectors.events import AnyEvent, Capture, Connection, Event, Message, Problem
from dissectors.zmtp.curve_keys import Key, NoSodiumError, sodium
from dissectors.zmtp.limits import Limits
from zmtpsniff.capture.files import Captures, open_captures
from zmtpsniff.capture.source import Source
from zmtpsniff.capture.time_window import TimeWindow
from zmtpsniff.decode_as import DecodeAs, DecodeAsError, parse
from zmtpsniff.engine.settings import Settings
from zmtpsniff.engine.sniffer import NOBODY, Collaborators, Sniffer
from zmtpsniff.errors import Error

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa

    from zmtpsniff.analysis.findings.finding import Finding
    from zmtpsniff.analysis.ways.way_records import Way
    from zmtpsniff.capture.engines.engine import EngineName
    from zmtpsniff.net.views import Translations

CaptureFile = str | PathLike[str] | IO[bytes]
"""The name of a capture file, or an object from which octets can be read; ``"-"`` is standard input."""

_Event = TypeVar("_Event", Message, Connection, Problem)
_Result = TypeVar("_Result")


class ClosableSource(Source, Protocol):
    """A Source that holds something open."""

    def close(self) -> None:
        """Close the files or the interface, at any time; may be called again."""


class Dissection:
    """The events of a capture; made by :func:`open`.

    Each iteration reads files from their beginning. An interface or a pipe can be iterated over only once.
    """

    def __init__(
        self,
        source: ClosableSource,
        settings: Settings,
        collaborators: Collaborators = NOBODY,
        *,
        again: Callable[[], ClosableSource] | None = None,
        through: Callable[[Source], Source] | None = None,
        where: Callable[[AnyEvent], bool] | None = None,
        stop: Callable[[], None] | None = None,
        name: str = "a capture",
    ) -> None:
        """Dissect the packets of ``source``. Each further iteration takes the source that ``again`` returns, or raises
        its error.

        ``through`` may put another Source in front of that: one that saves packets, or makes them wait. ``where`` says
        which events to give, None for all. ``stop`` ends the capture of a source that is live. ``name`` is shown.

        Raises PluginError, NoSodiumError and DecodeAsError as Sniffer does; then the source is closed.
        """
        self._settings = settings
        self._collaborators = collaborators
        self._again = again or _no_second_time
        self._through = through
        self._where = where
        self._stop = stop
        self._name = name
        self._run = self._begin(source, collaborators)  # the last one
        self._first: _Run | None = self._run  # until it is iterated over
        self._totals: Capture | None = None

    def __enter__(self) -> Self:
        """The dissection itself; leaving the ``with`` statement closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """As :meth:`close`."""
        self.close()

    async def __aenter__(self) -> Self:
        """The same in asyncio."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """As :meth:`close`."""
        await _in_thread(self.close)

    def __repr__(self) -> str:
        """How much has been read so far."""
        return f"<zmtpsniff.Dissection of {self._name}, {self.packets:,} packets so far>"

    def __iter__(self) -> Iterator[AnyEvent]:
        """All events that pass the filter, in their order; the last is the Capture with the totals, if it passes.

        Raises Error, in mid-way too, if the capture cannot be read (again).
        """
        for events in self.batches():
            yield from events

    async def __aiter__(self) -> AsyncIterator[AnyEvent]:
        """The same in asyncio: a thread waits for packets, so other tasks run meanwhile."""
        batches = self.batches()
        try:
            while (events := await _in_thread(lambda: next(batches, None))) is not None:
                for event in events:
                    yield event
        finally:
            await _in_thread(batches.close)

    def batches(self) -> Generator[list[AnyEvent], None, None]:
        """The events in lists, as soon as they are known. A live capture gives a list every 100 ms, empty or
        not, and once a second after some seconds without packets.

        Raises as iterating does.
        """
        with closing(self._all_batches(self._collaborators)) as batches:
            for events in batches:
                yield self._passing(events)

    def _all_batches(self, collaborators: Collaborators) -> Generator[list[AnyEvent], None, None]:
        """The events in lists, whatever the filter."""
        run, self._first = self._first, None
        if run is None or collaborators is not self._collaborators:
            source = self._again() if run is None else run.source
            run = self._run = self._begin(source, collaborators)
        try:
            for events in run.sniffer.events():
                self._note_totals(events)
                yield events
        finally:
            run.source.close()

    def finish(self) -> list[AnyEvent]:
        """End an iteration that was broken off. Returns the events that it would still give for the packets so far."""
        events = self._run.sniffer.finish()
        self._note_totals(events)
        return self._passing(events)

    def messages(self) -> Iterator[Message]:
        """The messages that pass the filter. Raises as iterating does."""
        return self._only(Message)

    def connections(self) -> Iterator[Connection]:
        """The summaries of the connections, each once it is over. Raises as iterating does."""
        return self._only(Connection)

    def problems(self) -> Iterator[Problem]:
        """The problems. Raises as iterating does."""
        return self._only(Problem)

    def findings(self) -> "list[Finding]":
        """The findings, the most harmful first, as ``zmtpsniff diagnose`` tells them.

        Reads the capture to its end, whatever the filter: of a live capture until stop(). Raises as iterating does.
        """
        from zmtpsniff.analysis.findings import Diagnosis

        diagnosis = Diagnosis(self._settings.decode_as, self._settings.reply_seconds)
        for events in self._all_batches(self._collaborators._replace(witness=diagnosis)):
            diagnosis.take(events)
        return diagnosis.findings()

    def ways(self) -> "list[Way]":
        """The way of each request, job and publication, as ``zmtpsniff trace`` tells them.

        Reads the capture to its end, as :meth:`findings` does, and raises as iterating does.
        """
        from zmtpsniff.analysis.ways.ways import Ways

        ways = Ways()
        found = []
        for events in self._all_batches(self._collaborators._replace(acknowledge=ways.acknowledge, witness=ways)):
            found += ways.take(events)
        return [record for way in (*found, *ways.finish()) if (record := ways.record(way)) is not None]

    @property
    def totals(self) -> Capture:
        """The totals of the whole capture, whatever the filter.

        Reads the capture to its end, unless that has been done. Raises as iterating does.
        """
        if self._totals is None:
            for _ in self.batches():
                pass
        assert self._totals is not None
        return self._totals

    @property
    def position(self) -> tuple[int, int] | None:
        """The octets of the files that have been read, and all octets; None if they are unknown."""
        source = self._run.source
        return source.position() if self._first is None and isinstance(source, Captures) else None

    @property
    def curve_connections(self) -> tuple[int, int]:
        """How many connections keys have opened so far, and how many had messages that no key opens."""
        return self._run.sniffer.curve_connections

    @property
    def is_mostly_sealed(self) -> bool:
        """Whether most ZMTP connections so far had messages that no key opens."""
        return self._run.sniffer.is_mostly_sealed

    @property
    def key_faults(self) -> list[str]:
        """Sentences that say why keys that came with the packets are not used, for each reason once."""
        return self._run.sniffer.key_faults

    @property
    def packets(self) -> int:
        """The number of packets that have been dissected so far."""
        return self._run.sniffer.packets

    @property
    def dropped(self) -> int:
        """The number of packets so far that are known to be lost before they reached us."""
        return self._run.sniffer.dropped

    def open_connections(self) -> Iterator[Connection]:
        """Summaries so far of the open ZMTP connections over TCP."""
        return self._run.sniffer.open_connections()

    def server(self, flow: int) -> str | None:
        """The address and port of the server of a TCP connection, None once it is over."""
        return self._run.sniffer.server(flow)

    def to_arrow(self, kind: type[Event] = Message) -> "pa.Table":
        """The events of one type as a table of Arrow, with a column for each field of their records.

        Times since 1970 are timestamps in UTC. The columns ``payload`` and ``bodies`` of messages are JSON; ``topic``
        is that of a publisher's messages, ``text`` has their frames where they are text. Raises Error without pyarrow,
        and as iterating does.
        """
        from zmtpsniff.render.arrow import to_table

        return to_table(kind, (event for events in self.batches() for event in events if isinstance(event, kind)))

    def to_pandas(self, kind: type[Event] = Message) -> "pd.DataFrame":
        """The same for pandas. Raises Error without pyarrow or pandas, and as iterating does."""
        from importlib.util import find_spec

        if find_spec("pandas") is None:
            raise Error("pandas is not installed: pip install pandas 'zmtpsniff[arrow]'")
        return self.to_arrow(kind).to_pandas()

    def stop(self) -> None:
        """End a live capture: the packets so far are still dissected, and the totals come.

        May be called in any thread.
        """
        if self._stop is not None:
            self._stop()

    def close(self) -> None:
        """Release the files or the interface. An iteration in another thread ends."""
        self.stop()
        run, self._first = self._first, None
        if run is not None:
            run.source.close()

    def _begin(self, source: ClosableSource, collaborators: Collaborators) -> "_Run":
        packets: Source = source if self._through is None else self._through(source)
        try:
            if collaborators.translations is None and isinstance(source, Captures) and (files := source.again()):
                collaborators = collaborators._replace(translations=_translations(files))
            return _Run(source, Sniffer(packets, self._settings, collaborators))
        except Exception:
            source.close()
            raise

    def _note_totals(self, events: list[AnyEvent]) -> None:
        if events and isinstance(events[-1], Capture):
            self._totals = events[-1]

    def _passing(self, events: list[AnyEvent]) -> list[AnyEvent]:
        return events if self._where is None else list(filter(self._where, events))

    def _only(self, kind: type[_Event]) -> Iterator[_Event]:
        for events in self.batches():
            for event in events:
                if isinstance(event, kind):
                    yield event


def _several(paths: str | PathLike[str] | Sequence[str | PathLike[str]]) -> Sequence[str | PathLike[str]]:
    """Paths, of which there may be one alone."""
    return [paths] if isinstance(paths, (str, PathLike)) else paths


def open(  # noqa: A001  # it is zmtpsniff.open
    *captures: CaptureFile | Sequence[CaptureFile],
    interface: str | Sequence[str] = (),
    where: str | None = None,
    decode_as: str | Sequence[str] = (),
    patterns: bool = True,
    payload: bool = True,
    plugins: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    decode_bodies: bool = False,
    curve_keys: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    show_secrets: bool = False,
    max_bytes: int = 0,
    count: int | None = None,
    capture_filter: str = "",
    seconds: float | None = None,
    engine: "EngineName" = "auto",
) -> Dissection:
    """Open capture files, which are read as one capture, or begin to capture at interfaces.

    ``where`` is a display filter, as of ``-Y``, ``decode_as`` one or more rules such as ``tcp.port==5555,zmtp``.
    Without ``patterns`` messages are not related to each other, without ``payload`` no protocol of applications is
    looked for; ``plugins`` are files with dissectors of such protocols, ``decode_bodies`` takes JSON, MessagePack and
    the like apart. ``curve_keys`` are files with keys that open what CURVE encrypts, as ``zmtpsniff keys`` writes them.
    ``show_secrets`` gives passwords, too. Frames are ``bytes``, all of them unless ``max_bytes`` says how many octets
    of each are kept. ``count`` packets are read, None for all.

    Of an interface, and only of one, ``capture_filter`` (in libpcap's language) says what is captured, ``seconds`` for
    how long (None: until ``stop()``), and ``engine`` by what. Packets that pass before the first iteration wait in the
    kernel.

    Raises Error for a file, an interface, a filter, a rule, a plug-in or a number that cannot be used, and for missing
    privileges.
    """
    files = list(_files(captures))
    interfaces = [interface] if isinstance(interface, str) else list(interface)
    if bool(files) == bool(interfaces):
        raise Error("open() takes either capture files or interface=")
    for name, is_given in (
        ("capture_filter", capture_filter != ""),
        ("seconds", seconds is not None),
        ("engine", engine != "auto"),
    ):
        if files and is_given:
            raise Error(f"{name}: only with interface=, not with capture files")
    for name, value, is_right, must in (
        ("count", count, count is None or count > 0, "1 or more"),
        ("max_bytes", max_bytes, max_bytes >= 0, "0 for all, or more"),
        ("seconds", seconds, seconds is None or seconds > 0, "over 0"),
    ):
        if not is_right:
            raise Error(f"{name}: must be {must}, not {value!r}")
    passes = None if where is None else _filter(where)
    settings = Settings(
        packets=count,
        decode_as=tuple(_rules([decode_as] if isinstance(decode_as, str) else decode_as)),
        limits=Limits(max_bytes, show_secrets),
        patterns=patterns,
        payload=payload,
        plugins=tuple(fspath(path) for path in _several(plugins)),
        decode_bodies=decode_bodies,
        curve_keys=tuple(_keys(_several(curve_keys))),
    )
    try:
        if files:
            return open_files(files, settings, where=passes)
        from zmtpsniff.capture.engines.choice import make_engine
        from zmtpsniff.capture.engines.engine import ENGINES, LiveOptions
        from zmtpsniff.capture.live import LiveSource

        if engine not in ENGINES:
            raise Error(f"engine: must be one of {', '.join(ENGINES)}, not {engine!r}")
        live = LiveSource(make_engine(engine, LiveOptions(interfaces, capture_filter)), seconds=seconds)
        name = ", ".join(interfaces)
        return Dissection(live, settings, Collaborators(clock=time.time_ns), where=passes, stop=live.stop, name=name)
    except DecodeAsError as error:
        raise Error(f"decode_as: {error}") from None


def open_files(
    files: Sequence[CaptureFile],
    settings: Settings,
    collaborators: Collaborators = NOBODY,
    *,
    through: Callable[[Source], Source] | None = None,
    where: Callable[[AnyEvent], bool] | None = None,
) -> Dissection:
    """Open capture files, which are read as one capture, as settings ask.

    ``through`` and ``where`` are those of Dissection. Raises CaptureError, and as Dissection does.
    """
    reader = _FileReader(files, settings.window)
    name = ", ".join(fspath(file) if isinstance(file, (str, PathLike)) else repr(file) for file in files)
    return Dissection(
        reader.open(), settings, collaborators, again=reader.open, through=through, where=where, name=name
    )


def _translations(files: Sequence[Captures]) -> "Translations":
    """The connections that files have with different addresses; closes the files."""
    from zmtpsniff.net.skew import translations_of

    try:
        return translations_of([file.batches() for file in files])
    finally:
        for file in files:
            file.close()


class _Run(NamedTuple):
    """One iteration."""

    source: ClosableSource
    sniffer: Sniffer


class _FileReader:
    """Opens files, as often as they can be read."""

    def __init__(self, files: Sequence[CaptureFile], window: TimeWindow | None) -> None:
        self._window = window
        self._files = [fspath(file) if isinstance(file, (str, PathLike)) else file for file in files]
        self._starts = [None if isinstance(file, str) or not file.seekable() else file.tell() for file in self._files]
        self._opened = False

    def open(self) -> Captures:
        """All of them as one source; raises Error."""
        for file, start in zip(self._files, self._starts, strict=True):
            if not isinstance(file, str) and start is not None:
                file.seek(start)
            elif self._opened and (file == "-" or not isinstance(file, str)):
                _no_second_time()
        self._opened = True
        return open_captures(self._files, self._window)


def _no_second_time() -> NoReturn:
    raise Error("this capture cannot be read twice: keep what the first iteration gives")


def _filter(text: str) -> Callable[[AnyEvent], bool]:
    from zmtpsniff.filters import FilterError, compile_filter

    try:
        return compile_filter(text)
    except FilterError as error:
        raise Error(f"where: {error}") from None


def _keys(files: Sequence[str | PathLike[str]]) -> Iterator[Key]:
    from zmtpsniff.engine.key_file import KeyFileError, read_keys

    try:
        if files:
            sodium()
        for file in files:
            yield from read_keys(fspath(file))
    except (KeyFileError, NoSodiumError) as error:
        raise Error(f"curve_keys: {error}") from None


def _files(captures: Iterable[CaptureFile | Sequence[CaptureFile]]) -> Iterator[CaptureFile]:
    for each in captures:
        if isinstance(each, TextIOBase):
            raise Error("a capture file must be opened with mode 'rb', not as text")
        if isinstance(each, Sequence) and not isinstance(each, (str, bytes)):
            yield from _files(each)
        elif isinstance(each, (str, PathLike)) or hasattr(each, "read"):
            yield each
        else:
            raise Error(f"a capture file must be a name or an open file, not {each!r}")


def _rules(texts: Sequence[str]) -> Iterator[DecodeAs]:
    for text in texts:
        try:
            yield parse(text)
        except DecodeAsError as error:
            raise Error(f"decode_as: {error}") from None


async def _in_thread(work: Callable[[], _Result]) -> _Result:
    """The result of ``work``, in a thread. A task that is cancelled waits for it, since nothing can interrupt it."""
    import asyncio  # which takes longer than to read most captures

    waiting = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        await asyncio.wait([waiting])
        raise
