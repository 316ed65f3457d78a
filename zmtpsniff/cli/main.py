"""The command line: its commands, and the only place that ends the program."""

import os
import signal
import sys

import click

from zmtpsniff import __version__
from zmtpsniff.cli.browse import browse
from zmtpsniff.cli.check import check
from zmtpsniff.cli.diagnose import diagnose
from zmtpsniff.cli.extcap import extcap
from zmtpsniff.cli.extract import extract
from zmtpsniff.cli.fields import fields
from zmtpsniff.cli.help import Group
from zmtpsniff.cli.interfaces import interfaces
from zmtpsniff.cli.keys import keys
from zmtpsniff.cli.live import live
from zmtpsniff.cli.output import PartialOutputError, discard_standard_output
from zmtpsniff.cli.read import read
from zmtpsniff.cli.replay import replay
from zmtpsniff.cli.report import report
from zmtpsniff.cli.schema import schema
from zmtpsniff.cli.spark import spark
from zmtpsniff.cli.stats import stats
from zmtpsniff.collector import dismiss_collector
from zmtpsniff.errors import Error

_INTERRUPTED = 130  # 128 + SIGINT, what shells expect
_COMPLETION = "_ZMTPSNIFF_COMPLETE"  # the name that click derives for its scripts


class Commands(Group):
    """All commands; a capture in place of a command is to be read, and nothing at all asks for help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put in what goes without saying."""
        if not args:
            args = ["--help"]
        elif args[0] not in self.commands and (args[0] == "-" or os.path.isfile(args[0])):
            args = ["read", *args]
        return super().parse_args(ctx, args)


@click.group(cls=Commands, no_args_is_help=False, context_settings={"max_content_width": 100})
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
def cli() -> None:
    """See what ZeroMQ programs say to each other.

    \b
    zmtpsniff read capture.pcap                  a tree of all that was said
    zmtpsniff read -T json capture.pcap | jq .   JSON Lines for programs
    sudo zmtpsniff live -i any -T summary        as it happens, a line each
    zmtpsniff diagnose capture.pcap              what is wrong here
    zmtpsniff stats capture.pcap                 who talks to whom, how fast
    zmtpsniff report capture.pcap -o FILE.html   one page to pass on
    zmtpsniff check capture.pcap --policy FILE   traffic as a test
    """


for _command in (
    read,
    live,
    browse,
    diagnose,
    check,
    stats,
    report,
    extract,
    replay,
    keys,
    extcap,
    interfaces,
    fields,
    schema,
    spark,
):
    cli.add_command(_command)


def main() -> None:
    """Run the program: 0 done, 2 wrong usage or unreadable input with one line that says why.

    If a shell asks how a command line could go on, that is all it does.
    """
    if instruction := os.environ.get(_COMPLETION):
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(cli, {}, "zmtpsniff", _COMPLETION, instruction))
    try:
        # Not cli.main(): click has its own mind about closed pipes and interrupts.
        with cli.make_context("zmtpsniff", sys.argv[1:]) as context:
            cli.invoke(context)
        status = 0
    except click.exceptions.Exit as done:
        status = done.exit_code
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "zmtpsniff"
        status = _fail(f"{error.format_message().rstrip('.')} (see {command} --help)")
    except (click.ClickException, Error) as error:
        status = _fail(error.format_message() if isinstance(error, click.ClickException) else str(error))
    except BrokenPipeError:
        discard_standard_output()
        status = 0
    except KeyboardInterrupt as interrupt:
        if isinstance(interrupt, PartialOutputError):
            _tell(str(interrupt))
        status = _INTERRUPTED
    # Everything is out: while the interpreter ends, a second Ctrl-C would kill it and change the status.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    dismiss_collector()
    sys.exit(status)


def _fail(reason: str) -> int:
    _tell(reason)
    return 2


def _tell(text: str) -> None:
    from zmtpsniff.render.text import escape

    # It may name a file or an interface, whose name may hold anything.
    click.echo(f"zmtpsniff: {escape(' '.join(text.split()))}", err=True)
