"""``zmtpsniff replay``."""

import sys
from typing import TYPE_CHECKING

import click

from dissectors.zmtp.sockets import SENDING
from zmtpsniff.cli.help import SEND, TARGET, CommandWithHelp
from zmtpsniff.cli.output import fail_if_overwritten, undisturbed
from zmtpsniff.cli.run import open_records, renderer_for
from zmtpsniff.cli.shared_options import FilePath, FloatRange, IntRange, Output, dissection_options, output_options
from zmtpsniff.engine.settings import Settings
from zmtpsniff.errors import Error
from zmtpsniff.words.counts import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dissectors.events import AnyEvent
    from zmtpsniff.replay.endpoint import Endpoint
    from zmtpsniff.replay.plan import Plan
    from zmtpsniff.replay.player import Score

PATIENCE = 5.0  # seconds
SIDES = ("clients", "servers")
_DIFFERENT = 1  # exit status


@click.command(cls=CommandWithHelp, short_help="Send messages of a capture again, to a real peer.")
@click.argument("captures", nargs=-1, required=True, type=FilePath(), metavar="CAPTURE...")
@TARGET.option("--to", metavar="ENDPOINT", help="Connect to tcp://HOST:PORT or ipc://PATH.")
@TARGET.option("--bind", metavar="ENDPOINT", help="Bind one socket there, and wait for a peer.")
@SEND.option(
    "--as",
    "as_whom",
    type=click.Choice((*SENDING, *SIDES), case_sensitive=False),
    metavar="TYPE",
    help="Send what sockets of this type sent: REQ, SUB. clients and servers are all of a side; by default clients, or "
    "servers if clients sent nothing.",
)
@SEND.option(
    "--speed",
    type=FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    metavar="N",
    help="N times as fast as in the capture.",
)
@SEND.rare(
    "--rate", type=FloatRange(0, min_open=True), metavar="N", help="N messages a second, whatever the capture's times."
)
@SEND.rare("--loop", type=IntRange(1), default=1, show_default=True, metavar="N", help="Send all N times.")
@SEND.option("--wait-replies", is_flag=True, help="Where the capture has a reply, wait for one before going on.")
@SEND.rare(
    "--patience",
    type=FloatRange(0, min_open=True),
    default=PATIENCE,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for a peer, a reply, or a request to reply to.",
)
@TARGET.option("--yes", is_flag=True, help="Do not ask before something is sent to another host.")
@dissection_options
@output_options
def replay(
    captures: tuple[str, ...],
    to: str | None,
    bind: str | None,
    as_whom: str | None,
    speed: float,
    rate: float | None,
    loop: int,
    wait_replies: bool,
    patience: float,
    yes: bool,
    dissection: Settings,
    output: Output,
) -> None:
    """Send messages of a capture again, and compare what comes back.

    Exit status 1: something could not be sent, or something else came back.

    \b
    zmtpsniff replay capture.pcap --to tcp://127.0.0.1:5555 --wait-replies
    zmtpsniff replay capture.pcap --as REP --bind tcp://127.0.0.1:5555
    """
    if (to is None) == (bind is None):
        raise click.UsageError("say where to: either --to ENDPOINT or --bind ENDPOINT")
    if "-" in captures:
        raise click.UsageError("-: standard input cannot be read twice; save the capture in a file")
    fail_if_overwritten(captures, output.file)
    try:
        import zmq
    except ImportError:
        raise Error("replay needs pyzmq, which is not installed: pip install 'zmtpsniff[replay]'") from None
    from zmtpsniff.dissection import open_files
    from zmtpsniff.replay.endpoint import parse_endpoint
    from zmtpsniff.replay.plan import make_plan
    from zmtpsniff.replay.player import Player, Tempo

    capture = open_files(captures, dissection._replace(limits=dissection.limits._replace(body_octets=0)))
    endpoint = parse_endpoint(to or bind or "", bind is not None)
    plan = make_plan(capture.batches(), output.passes, as_whom, bind is not None)
    if not endpoint.is_local and not yes:
        _ask(plan, endpoint)
    with open_records(output) as stream:
        renderer = renderer_for(output, dissection, stream)

        def show(events: "Sequence[AnyEvent]") -> None:
            with undisturbed():
                renderer.write(events)

        with zmq.Context() as context:
            tempo = Tempo(speed, rate, loop, wait_replies, patience)
            player = Player(context, plan, endpoint, bind is not None, tempo, show)
            try:
                player.play(capture.batches, output.passes)
            except KeyboardInterrupt:
                renderer.finish()
                click.echo(summary(player.score), err=True)
                raise
        renderer.finish()
    click.echo(summary(player.score), err=True)
    if not player.score.is_as_captured:
        raise click.exceptions.Exit(_DIFFERENT)


def _ask(plan: "Plan", endpoint: "Endpoint") -> None:
    """Ask whether to send to another host. Raises Error if the answer is no, or if nobody can answer."""
    what = f"{plural(plan.messages + plan.subscriptions, 'message')} as {' and '.join(plan.socket_types)}"
    where = endpoint.name if endpoint.shown in endpoint.name else f"{endpoint.name} ({endpoint.shown})"
    if not sys.stdin.isatty():
        raise Error(f"{where} can be reached by other hosts: say --yes to send {what}")
    if not click.confirm(f"Send {what} to {where}, which other hosts can reach?", err=True):
        raise Error("nothing was sent")


def summary(score: "Score") -> str:
    """The results of a replay, on one line."""
    parts = [f"{plural(score.sent, 'message')} sent in {score.seconds:.1f} s"]
    if score.subscriptions:
        parts.append(f"{score.subscriptions:,} subscriptions and cancellations sent")
    if score.incomplete:
        parts.append(f"{score.incomplete:,} left out, since the capture has only parts of them")
    if score.unsent:
        parts.append(f"{score.unsent:,} not taken by the peer")
    came = score.same + score.others
    if came or score.missing:
        parts.append(f"{came:,} came back, {score.same:,} of them as in the capture")
    if score.missing:
        parts.append(f"{score.missing:,} of the capture did not come")
    return "; ".join(parts)
