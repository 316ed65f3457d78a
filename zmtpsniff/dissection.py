"""Captures for programs: :func:`open` and the Dissection that it returns.

Everything here may be used in any thread. It prints nothing, catches no signals and gives up no privileges: that is
for the program to decide.
"""

import asyncio
import importlib.util
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import closing
from os import PathLike, fspath
from typing import TYPE_CHECKING, BinaryIO, NoReturn, Self, TypeVar

from dissectors.events import AnyEvent, Capture, Connection, Event, Message, Problem
from dissectors.zmtp.curve_keys import Key, NoSodiumError, sodium
from dissectors.zmtp.limits import Limits
from zmtpsniff.analysis.plugins import PluginError
from zmtpsniff.assembly import make_sniffer
from zmtpsniff.capture.engines.engine import EngineName, LiveOptions
from zmtpsniff.capture.files import Captures, open_captures
from zmtpsniff.capture.source import ClosableSource, Fault, Packet, Source
from zmtpsniff.decode_as import DecodeAs, parse
from zmtpsniff.errors import Error
from zmtpsniff.filters import FilterError, compile_filter
from zmtpsniff.key_file import KeyFileError, read_keys
from zmtpsniff.net.witness import Witness
from zmtpsniff.settings import Settings
from zmtpsniff.sniffer import Sniffer

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa

    from zmtpsniff.analysis.findings.finding import Finding
    from zmtpsniff.host.local import LocalHost

CaptureFile = str | PathLike[str] | BinaryIO
"""The name of a capture file, or an object of which its octets can be read; ``"-"`` is standard input."""

_Event = TypeVar("_Event", Message, Connection, Problem)
_Result = TypeVar("_Result")


class Dissection:
    """The events of a capture; made by :func:`open`.

    Each iteration reads files from their beginning. What cannot be read again (an interface, a pipe) can be iterated
    over once.
    """

    def __init__(
        self,
        source: ClosableSource,
        settings: Settings,
        *,
        again: Callable[[], ClosableSource],
        stop: Callable[[], None] | None = None,
        where: Callable[[AnyEvent], bool] | None = None,
        clock: Callable[[], int] | None = None,
        tap: Callable[[list[Packet]], None] | None = None,
        witness: Witness | None = None,
        host: "LocalHost | None" = None,
    ) -> None:
        """Dissect what ``source`` gives, and then, for each further iteration, what ``again`` returns or raises.

        ``stop`` ends the capture of a source that is live. ``where`` says which events to give, None for all.
        ``clock`` tells the time, in nanoseconds since 1970, where packets come as they pass. ``tap`` is given each list
        of packets just before it is dissected, and ``witness`` is told what connections show below their octets.
        ``host`` knows keys and processes of the connections of a live capture.
        """
        self._source: ClosableSource | None = source  # until somebody iterates over it
        self._settings = settings
        self._again = again
        self._stop = stop
        self._where = where
        self._clock = clock
        self._tap = tap
        self._witness = witness
        self._host = host
        self._current: ClosableSource | None = None  # that is iterated over
        self._totals: Capture | None = None

    def __enter__(self) -> Self:
        """The dissection itself; leaving the ``with`` statement closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """As :meth:`close`."""
        self.close()

    def __iter__(self) -> Iterator[AnyEvent]:
        """All events that pass the filter, in their order; the last is the Capture with the totals, if it passes.

        Raises Error, in mid-way too, if the capture cannot be read (again).
        """
        for events in self.batches():
            yield from events

    async def __aiter__(self) -> AsyncIterator[AnyEvent]:
        """The same in asyncio: a thread waits for packets, so other tasks go on meanwhile."""
        batches = self.batches()
        try:
            while (events := await _in_thread(lambda: next(batches, None))) is not None:
                for event in events:
                    yield event
        finally:
            await _in_thread(batches.close)

    def batches(self) -> Generator[list[AnyEvent], None, None]:
        """The events in lists, as soon as they are known; of a live capture a list comes every 50 ms, empty or not.

        Raises as iterating does.
        """
        with closing(self._all_batches(self._witness)) as batches:
            for events in batches:
                yield events if self._where is None else list(filter(self._where, events))

    def _all_batches(self, witness: Witness | None) -> Generator[list[AnyEvent], None, None]:
        """The events in lists, whatever the filter."""
        source, self._source = self._source, None
        if source is None:
            source = self._again()
        self._current = source
        try:
            tapped = source if self._tap is None else _TappedSource(source, self._tap)
            for events in self._sniffer(tapped, witness).events():
                if events and isinstance(events[-1], Capture):
                    self._totals = events[-1]
                yield events
        finally:
            source.close()

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
        """What is wrong, the most harmful first, as ``zmtpsniff diagnose`` tells it (docs/diagnose.md).

        Reads the capture to its end, whatever the filter: of a live capture until stop(). Raises as iterating does.
        """
        from zmtpsniff.analysis.findings import Diagnosis

        diagnosis = Diagnosis(self._settings.decode_as, self._settings.reply_seconds)
        for events in self._all_batches(diagnosis):
            diagnosis.take(events)
        return diagnosis.findings()

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
        """How many octets of the files have been read, and how many there are; None where nobody knows."""
        return self._current.position() if isinstance(self._current, Captures) else None

    @property
    def dropped(self) -> int:
        """How many packets are known so far to be lost before they reached us."""
        return 0 if self._current is None else self._current.dropped

    def to_arrow(self, kind: type[Event] = Message) -> "pa.Table":
        """The events of one type as a table of Arrow, with a column for each field of their records.

        What messages hold beside octets (``payload``, ``bodies``) is JSON. Raises Error without pyarrow, and as
        iterating does.
        """
        from zmtpsniff.arrow import to_table

        return to_table(kind, (event for events in self.batches() for event in events if isinstance(event, kind)))

    def to_pandas(self, kind: type[Event] = Message) -> "pd.DataFrame":
        """The same for pandas. Raises Error without pyarrow or pandas, and as iterating does."""
        if importlib.util.find_spec("pandas") is None:
            raise Error("pandas is not installed: pip install pandas pyarrow")
        return self.to_arrow(kind).to_pandas()

    def stop(self) -> None:
        """End a live capture: what has come is still given, and the totals. May be called in any thread."""
        if self._stop is not None:
            self._stop()

    def close(self) -> None:
        """Let go of the files or the interface; an iteration that still goes on in another thread comes to its end."""
        self.stop()
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _sniffer(self, source: Source, witness: Witness | None) -> Sniffer:
        try:
            return make_sniffer(source, self._settings, clock=self._clock, witness=witness, host=self._host)
        except PluginError as error:
            raise Error(f"plug-in {error}") from None
        except ValueError as error:
            raise Error(f"decode_as: {error}") from None

    def _only(self, kind: type[_Event]) -> Iterator[_Event]:
        for events in self.batches():
            for event in events:
                if isinstance(event, kind):
                    yield event


def open(  # noqa: A001  # it is zmtpsniff.open
    *captures: CaptureFile | Sequence[CaptureFile],
    interface: str | Sequence[str] = (),
    where: str | None = None,
    decode_as: str | Sequence[str] = (),
    patterns: bool = True,
    payload: bool = True,
    plugins: Sequence[str] = (),
    decode_bodies: bool = False,
    curve_keys: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    show_secrets: bool = False,
    max_bytes: int = 0,
    count: int | None = None,
    capture_filter: str = "",
    seconds: float | None = None,
    engine: EngineName = "auto",
) -> Dissection:
    """Open capture files, which are read as one capture, or begin to capture at interfaces.

    ``where`` is a display filter (docs/filters.md), ``decode_as`` one or more rules such as ``tcp.port==5555,zmtp``.
    Without ``patterns`` messages are not related to each other, without ``payload`` no protocol of applications is
    looked for; ``plugins`` are files with dissectors of such protocols, ``decode_bodies`` takes JSON, MessagePack and
    the like apart. ``curve_keys`` are files with keys that open what CURVE encrypts (docs/curve.md). ``show_secrets``
    gives passwords, too. Frames are ``bytes``, all of them unless ``max_bytes`` says how many octets of each are kept.
    ``count`` packets are read, None for all.

    Of an interface ``capture_filter`` (in libpcap's language) says what is captured, ``seconds`` for how long (None:
    until ``stop()``), and ``engine`` by what. Packets that pass before the first iteration wait in the kernel.

    Raises Error for a file, an interface, a filter or a rule that cannot be used, and for missing privileges.
    """
    files: list[CaptureFile] = []
    for each in captures:
        if isinstance(each, Sequence) and not isinstance(each, str):
            files += each
        else:
            files.append(each)
    interfaces = [interface] if isinstance(interface, str) else list(interface)
    if bool(files) == bool(interfaces):
        raise Error("open() takes either capture files or interface=")
    passes = None if where is None else _filter(where)
    settings = Settings(
        count=count,
        decode_as=tuple(_rules([decode_as] if isinstance(decode_as, str) else decode_as)),
        limits=Limits(max_bytes, show_secrets),
        patterns=patterns,
        payload=payload,
        plugins=tuple(plugins),
        decode_bodies=decode_bodies,
        curve_keys=tuple(_keys([curve_keys] if isinstance(curve_keys, (str, PathLike)) else curve_keys)),
    )
    if files:
        reader = _FileReader(files)
        return Dissection(reader.open(), settings, again=reader.open, where=passes)
    from zmtpsniff.capture.engines.choice import make_engine
    from zmtpsniff.capture.live import LiveSource

    live = LiveSource(make_engine(engine, LiveOptions(interfaces, capture_filter)), seconds=seconds)
    return Dissection(live, settings, again=_no_second_time, stop=live.stop, where=passes, clock=time.time_ns)


class _TappedSource:
    """A Source that shows its packets to somebody on their way."""

    def __init__(self, source: Source, tap: Callable[[list[Packet]], None]) -> None:
        self.dropped = source.dropped
        self.faults: list[Fault] = source.faults  # lists that only grow
        self.comments: list[str] = source.comments
        self.key_lines: list[str] = source.key_lines
        self._source = source
        self._tap = tap

    def batches(self) -> Iterator[list[Packet]]:
        for packets in self._source.batches():
            self.dropped = self._source.dropped
            self._tap(packets)
            yield packets
        self.dropped = self._source.dropped


class _FileReader:
    """Opens files, as often as they can be read."""

    def __init__(self, files: Sequence[CaptureFile]) -> None:
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
        return open_captures(self._files)


def _no_second_time() -> NoReturn:
    raise Error("this capture cannot be read twice: keep what the first iteration gives")


def _filter(text: str) -> Callable[[AnyEvent], bool]:
    try:
        return compile_filter(text)
    except FilterError as error:
        raise Error(f"where: {error}") from None


def _keys(files: Sequence[str | PathLike[str]]) -> Iterator[Key]:
    try:
        if files:
            sodium()
        for file in files:
            yield from read_keys(fspath(file))
    except (KeyFileError, NoSodiumError) as error:
        raise Error(f"curve_keys: {error}") from None


def _rules(texts: Sequence[str]) -> Iterator[DecodeAs]:
    for text in texts:
        try:
            yield parse(text)
        except ValueError as error:
            raise Error(f"decode_as: {error}") from None


async def _in_thread(work: Callable[[], _Result]) -> _Result:
    """What ``work`` returns, in a thread; a task that is cancelled waits for it, since nothing can interrupt it."""
    waiting = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        await asyncio.wait([waiting])
        raise
