"""From the events of a dissection to what is written."""

import io
import sys
from contextlib import ExitStack
from functools import cache, partial
from typing import TYPE_CHECKING

from zmtpsniff.cli.output import PartialOutputError, must_be_read, open_output, tell, undisturbed
from zmtpsniff.cli.saver_options import tell_missing_packets
from zmtpsniff.render import TRAITS, make_renderer
from zmtpsniff.words.counts import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from typing import IO, Any

    import msgspec

    from dissectors.events import AnyEvent
    from dissectors.payloads import PayloadDissector
    from zmtpsniff.cli.progress_line import ProgressLine
    from zmtpsniff.cli.shared_options import Output
    from zmtpsniff.cli.status_line import StatusLine
    from zmtpsniff.dissection import Dissection
    from zmtpsniff.engine.selector import PacketSelector
    from zmtpsniff.engine.settings import Settings
    from zmtpsniff.export import Observer
    from zmtpsniff.render.renderer import Renderer


def keeping(settings: "Settings", output: "Output") -> "Settings":
    """The settings, but with as many octets of each body kept as the output shows."""
    octets = output.max_bytes
    if octets is None and TRAITS[output.format].shows_whole_bodies:
        octets = 0
    return settings if octets is None else settings._replace(limits=settings.limits._replace(body_octets=octets))


def reads_columns(output: "Output") -> bool:
    """Whether an output takes messages in columns: nobody looks at each of them before, or none of them passes."""
    if output.passes is not None:
        from dissectors.events import Message

        return Message not in output.passes.records
    return TRAITS[output.format].reads_columns and output.times != "delta"


def load_dissection(settings: "Settings") -> "Callable[[], Sequence[PayloadDissector]] | None":
    """Import everything that a Dissection needs, but nothing of a plug-in.

    Once privileges are given up, these modules may be out of reach. The code of plug-ins must run only after that. So
    this looks up which plug-ins installed packages offer, and returns a function that loads them, for the Dissection's
    collaborators.
    """
    import zmtpsniff.dissection
    import zmtpsniff.engine.settled
    from zmtpsniff.analysis.plugins import installed, load_dissectors

    if settings.decode_bodies:
        import cbor2  # noqa: F401

        import zmtpsniff.analysis.bodies
        import zmtpsniff.words.zstd  # noqa: F401
    return partial(load_dissectors, settings.plugins, installed()) if settings.payload else None


def load_renderer(output: "Output") -> None:
    """Import everything that run() needs to write what comes."""
    if output.passes is not None:
        import zmtpsniff.cli.empty_result  # noqa: F401
    nowhere = io.TextIOWrapper(io.BytesIO())
    make_renderer(output.format, nowhere, color="always").write([])


def open_records(output: "Output") -> "AbstractContextManager[IO[Any]]":
    """The stream that an output goes to; raises as open_output()."""
    return open_output(output.file, binary=TRAITS[output.format].is_binary)


def renderer_for(output: "Output", settings: "Settings", stream: "IO[Any]") -> "Renderer":
    """The renderer that writes events to the stream of an output, as its options ask."""
    return make_renderer(
        output.format,
        stream,
        max_bytes=output.max_bytes,
        verbosity=output.verbosity,
        utc=output.utc,
        times=output.times,
        color=output.color,
        show_secrets=settings.limits.show_secrets,
    )


def tell_sealed(capture: "Dissection", settings: "Settings") -> None:
    """Say how many CURVE connections have messages that no key opens, and what to do about it."""
    opened, sealed = capture.curve_connections
    if not sealed:
        return
    if opened or settings.curve_keys or settings.host_keys:
        tell(
            f"no key opens the messages of {sealed:,} of {opened + sealed:,} CURVE connections; a server's long-term "
            "key opens none, transient keys do, which zmtpsniff keys takes"
        )
    elif capture.is_mostly_sealed and not capture.key_faults:
        tell(
            f"the messages of {plural(sealed, 'CURVE connection')} are encrypted, so only their lengths and times are "
            "known; --curve-keys FILE opens them, with keys that zmtpsniff keys takes"
        )


@cache
def _tell_slow_way() -> None:
    """Say, once and only on a terminal, that the native core is missing where a wheel would have it."""
    from zmtpsniff.native import missing

    if sys.stderr is not None and sys.stderr.isatty() and (reason := missing()):
        tell(reason)


def pump(
    capture: "Dissection",
    settings: "Settings",
    take: "Callable[[list[AnyEvent]], object]",
    file: str | None = None,
    status: "StatusLine | None" = None,
) -> None:
    """Give all events to ``take``. A line on the terminal tells how much of files is read, unless ``file`` goes there.

    ``file`` is where the output goes, None or "-" for standard output. A live capture has the line ``status`` instead.
    """
    from zmtpsniff.cli.progress_line import make_progress_line

    _tell_slow_way()
    line = make_progress_line(capture, file) if status is None else status
    try:
        for events in capture.batches():
            if status is not None:
                status.see(events, ())
            take(events)
            if line is not None:
                line.draw()
    finally:
        if line is not None:
            line.erase()
        for fault in capture.key_faults:  # results do not have the records of problems
            tell(fault)
        tell_sealed(capture, settings)


def pump_and_write(
    capture: "Dissection",
    settings: "Settings",
    take: "Callable[[list[AnyEvent]], object]",
    write: "Callable[[], None]",
    results: str,
    file: str | None,
    status: "StatusLine | None" = None,
) -> None:
    """Give all events to ``take``, then ``write``; after an interrupt, what was read until then.

    ``results`` is the name of what is written, ``file`` and ``status`` are those of pump(). Raises PartialOutputError
    after an interrupt.
    """
    try:
        pump(capture, settings, take, file, status)
    except KeyboardInterrupt as interrupt:
        take(capture.finish())
        write()
        raise PartialOutputError(f"interrupted: the {results} are those of what was read until then") from interrupt
    write()


def write_structs(stream: "IO[Any]", structs: "Sequence[msgspec.Struct]") -> None:
    """Write structs of any type as JSON Lines."""
    from zmtpsniff.render.jsonl import JsonlRenderer

    JsonlRenderer(stream).write(structs)  # type: ignore[arg-type]


def run(
    capture: "Dissection",
    settings: "Settings",
    output: "Output",
    line: "StatusLine | ProgressLine | None" = None,
    is_live: bool = False,
    observers: "Sequence[Observer]" = (),
    selector: "PacketSelector | None" = None,
    capture_record: bool = True,
) -> None:
    """Write all events; an interrupt ends that with the totals, too.

    ``line`` is kept up to date, and erased in the end. If ``is_live``, whether somebody still reads is seen even when
    there is nothing to write. ``observers`` are told everything, whatever the filter, and closed in the end.
    ``selector`` saves the packets of what passes; its file is complete in the end. ``capture_record`` says whether the
    totals are written.
    """
    _tell_slow_way()
    with ExitStack() as closing:
        for observer in observers:
            closing.callback(observer.close)
        stream = closing.enter_context(open_records(output))
        renderer = renderer_for(output, settings, stream)
        empty = None
        if output.passes is not None:
            from zmtpsniff.cli.empty_result import EmptyResult

            empty = EmptyResult(output.passes)
        try:
            for events in capture.batches():
                if is_live:
                    must_be_read(stream)
                for observer in observers:
                    observer.take(events)
                shown = _shown(events, output.passes, capture_record)
                if selector is not None:
                    selector.judge(events, shown)
                if empty is not None:
                    empty.see(events, shown)
                if line is not None:
                    line.see(events, shown)
                if shown:
                    with undisturbed():
                        renderer.write(shown)
                if not TRAITS[output.format].shows_problems:
                    _tell_capture_problems(events, line)
                elif is_live and output.passes is not None:
                    _tell_capture_problems(events, line, output.passes)
                if line is not None:
                    line.draw()
        except KeyboardInterrupt:
            if line is not None:
                line.erase()
            events = capture.finish()
            shown = _shown(events, output.passes, capture_record)
            if selector is not None:
                selector.judge(events, shown)
            renderer.write(shown)
            renderer.finish()
            raise
        finally:
            if selector is not None:
                selector.finish()
            if line is not None:
                line.erase()
            tell_sealed(capture, settings)
        renderer.finish()
        if empty is not None and (reason := empty.reason()):
            tell(reason)
    if selector is not None:
        tell_missing_packets(selector)


def _shown(
    events: "list[AnyEvent]", passes: "Callable[[AnyEvent], bool] | None", capture_record: bool
) -> "list[AnyEvent]":
    """The events that pass the display filter, if there is one, and the totals, if they end the output."""
    from dissectors.events import Capture

    if not capture_record and events and type(events[-1]) is Capture:
        events = events[:-1]
    return events if passes is None else [event for event in events if passes(event) or type(event) is Capture]


def _tell_capture_problems(
    events: "list[AnyEvent]",
    line: "StatusLine | ProgressLine | None",
    passes: "Callable[[AnyEvent], bool]" = lambda event: False,
) -> None:
    """Report what is wrong with the capture itself, if the output has no place for it: nothing there ``passes``."""
    from dissectors.events import Problem

    for event in events:
        if isinstance(event, Problem) and event.flow is None and event.severity != "note" and not passes(event):
            if line is not None:
                line.erase()
            tell(event.detail)
