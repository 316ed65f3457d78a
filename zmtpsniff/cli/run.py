"""From options to a Sniffer, and from its events to what is written."""

import gc
import io
from typing import TYPE_CHECKING, Any

import click

from zmtpsniff.cli.output import must_be_read, open_output, undisturbed
from zmtpsniff.render import make_renderer

if TYPE_CHECKING:
    from collections.abc import Callable

    from dissectors.events import AnyEvent
    from zmtpsniff.analysis.payloads import Payloads
    from zmtpsniff.capture.source import Source
    from zmtpsniff.cli.status import StatusLine
    from zmtpsniff.net.tls import Tls
    from zmtpsniff.sniffer import Sniffer


def make_sniffer(
    source: "Source", options: dict[str, Any], clock: "Callable[[], int] | None" = None, tls: "Tls | None" = None
) -> "Sniffer":
    """A Sniffer over the source, with what the options of `decoding` and `output` say, and what is decrypted."""
    from dissectors.zmtp.stream import Limits as DissectorLimits
    from zmtpsniff.analysis.patterns import Patterns
    from zmtpsniff.net.flows import FlowLimits
    from zmtpsniff.sniffer import Sniffer

    body_octets = options["max_bytes"]
    if body_octets is None:  # s_dump prints all
        body_octets = 0 if options["format"] == "dump" else DissectorLimits().body_octets
    # What is shown of a body must not change what passes, nor what messages say or mean to each other.
    if body_octets and (options.get("passes") is not None or options["patterns"] or options["payload"]):
        body_octets = max(body_octets, DissectorLimits().body_octets)
    waiting = options["max_waiting"] << 20
    return Sniffer(
        source,
        DissectorLimits(body_octets, options["show_secrets"]),
        FlowLimits(
            waiting_octets_per_direction=waiting // 16,
            waiting_octets=waiting,
            flows=options["max_flows"],
            idle_seconds=options["idle_timeout"],
        ),
        options["rules"],
        options["count"],
        clock,
        Patterns(options["timeout"]) if options["patterns"] else None,
        _make_payloads(options),
        tls,
    )


def _make_payloads(options: dict[str, Any]) -> "Payloads | None":
    """What recognises payloads, with the plug-ins; None if that is switched off."""
    from zmtpsniff.analysis.plugins import PluginError, load_dissectors

    if not options["payload"]:
        for name, option in (("plugins", "plugin"), ("decode_bodies", "decode-bodies")):
            if options.get(name):
                raise click.UsageError(f"--{option}: not with --no-payload")
        for rule in options["rules"]:
            if rule.payload:
                raise click.UsageError(f"-d {rule.payload}: not with --no-payload")
        return None
    from zmtpsniff.analysis.payloads import Payloads

    try:
        dissectors = load_dissectors(options["plugins"], options.get("entries"))
    except PluginError as error:
        raise click.UsageError(f"plug-in {error}") from None
    bodies = None
    if options["decode_bodies"]:
        from zmtpsniff.analysis.bodies import bodies_of

        bodies = bodies_of
    try:
        return Payloads(dissectors, options["rules"], options["show_secrets"], bodies)
    except ValueError as error:
        raise click.UsageError(f"-d: {error}") from None


def load(options: dict[str, Any]) -> None:
    """Import everything that make_sniffer() and run() need, but nothing of a plug-in.

    Once privileges are given up, where it is kept may be out of reach. The code of plug-ins must run only then, so what
    installed packages offer is looked up and put into ``options`` as ``entries``.
    """
    import zmtpsniff.sniffer
    from zmtpsniff.analysis.plugins import installed

    if options["payload"]:
        options["entries"] = installed()
    if options["decode_bodies"]:
        import cbor2  # noqa: F401
        import zstandard  # noqa: F401

        import zmtpsniff.analysis.bodies  # noqa: F401
    nowhere = io.TextIOWrapper(io.BytesIO())
    make_renderer(options["format"], nowhere, color="always").write([])


def run(sniffer: "Sniffer", options: dict[str, Any], status: "StatusLine | None" = None) -> None:
    """Write all events; an interrupt ends that with the totals, too.

    With a status line this is live: whether somebody still reads is seen even when there is nothing to write.
    """
    # Events and packets are many, short-lived and in no cycles, so looking for cycles among them is wasted time.
    gc.set_threshold(100_000, 20, 100)
    with open_output(options["output"], binary=options["format"] == "json") as stream:
        renderer = make_renderer(
            options["format"],
            stream,
            max_bytes=options["max_bytes"],
            verbosity=options["verbosity"],
            utc=options["utc"],
            color=options["color"],
            show_secrets=options["show_secrets"],
        )
        try:
            for events in sniffer.events():
                if status is not None:
                    must_be_read(stream)
                    status.see(events)
                with undisturbed():
                    renderer.write(_passing(events, options["passes"]))
                if options["format"] == "dump":
                    _tell_capture_problems(events)
                if status is not None:
                    status.draw()
        except KeyboardInterrupt:
            renderer.write(_passing(sniffer.finish(), options["passes"]))
            renderer.close()
            raise
        renderer.close()


def _passing(events: "list[AnyEvent]", passes: "Callable[[AnyEvent], bool] | None") -> "list[AnyEvent]":
    """The events that pass the display filter, if there is one, and the totals, which are the end of the output."""
    if passes is None:
        return events
    from dissectors.events import Capture

    return [event for event in events if passes(event) or type(event) is Capture]


def _tell_capture_problems(events: "list[AnyEvent]") -> None:
    """Tell what is wrong with the capture itself where the format has no place for it."""
    from dissectors.events import Problem

    for event in events:
        if isinstance(event, Problem) and event.flow is None and event.severity != "note":
            click.echo(f"zmtpsniff: {event.detail}", err=True)
