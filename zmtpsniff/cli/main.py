"""The command line: its commands, and the only place that ends the program."""

import importlib
import os
import signal
import sys

import click

from zmtpsniff import __version__
from zmtpsniff.cli.help import Group
from zmtpsniff.cli.output import PartialOutputError, buffer_standard_output, discard_standard_output, tell
from zmtpsniff.engine.memory import dismiss_collector
from zmtpsniff.errors import Error

# Each is made by its module, such as interfaces_command.py, which is imported when the command is asked for.
_NAMES = (
    *("browse", "check", "diagnose", "diff", "explain", "extcap", "extract", "fields", "interfaces", "keys", "live"),
    *("read", "replay", "report", "schema", "spark", "stats", "trace"),
)
_FAILED = 2  # wrong usage, or what cannot be read or written
_INTERRUPTED = 130  # 128 + SIGINT, what shells expect
_COMPLETION = "_ZMTPSNIFF_COMPLETE"  # the name that click derives for its scripts


class Commands(Group):
    """All commands. A capture in place of a command means ``read``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in the order of the alphabet."""
        return list(_NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, None if there is none."""
        if cmd_name not in _NAMES:
            return None
        command: click.Command = getattr(importlib.import_module(f"zmtpsniff.cli.{cmd_name}_command"), cmd_name)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put in what goes without saying."""
        if args and args[0] not in _NAMES and (args[0] == "-" or os.path.isfile(args[0])):
            args = ["read", *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names. Raises click.UsageError if it names no command and no file."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            name = args[0]
            if name.startswith("-"):
                raise
            from zmtpsniff.check.mistakes import suggest

            if os.path.isdir(name):
                raise click.UsageError(f"{name!r} is a folder; name the captures in it", ctx) from error
            if "." in name or "/" in name:
                raise click.UsageError(f"No such file {name!r}", ctx) from error
            raise click.UsageError(f"No such command {name!r}{suggest(name, _NAMES)}", ctx) from error


def _tell_version(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not context.resilient_parsing:
        from zmtpsniff.native import WAY

        click.echo(f"zmtpsniff {__version__} ({WAY})")
        context.exit()


@click.group(cls=Commands, context_settings={"max_content_width": 100})
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_tell_version,
    help="Show the version, and whether the native core is used; then exit.",
)
def cli() -> None:
    """See what ZeroMQ programs say to each other.

    \b
    zmtpsniff read capture.pcap                  a tree of all that was said
    zmtpsniff read -T json capture.pcap | jq .   JSON Lines for programs
    sudo zmtpsniff live -i any -T summary        as it happens, a line each
    zmtpsniff diagnose capture.pcap              what is wrong here
    zmtpsniff trace capture.pcap                 where each request went
    zmtpsniff stats capture.pcap                 who talks to whom, how fast
    zmtpsniff diff before.pcap after.pcap        what changed
    zmtpsniff check capture.pcap --policy FILE   traffic as a test
    """


def main() -> None:
    """Run the program: exit status 0 done, 2 wrong usage or unreadable input, with one line that says why.

    If a shell asks for completions, the program only answers that.
    """
    if instruction := os.environ.get(_COMPLETION):
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(cli, {}, "zmtpsniff", _COMPLETION, instruction))
    buffer_standard_output()
    try:
        # Not cli.main(): click handles closed pipes and interrupts in another way.
        with cli.make_context("zmtpsniff", sys.argv[1:]) as context:
            cli.invoke(context)
        status = 0
    except click.exceptions.Exit as done:
        status = done.exit_code
    except click.UsageError as error:
        # An option without its argument has no context.
        asked = [name for name in sys.argv[1:2] if name in _NAMES]
        command = error.ctx.command_path if error.ctx else " ".join(["zmtpsniff", *asked])
        tell(f"{error.format_message().rstrip('.')} (see {command} --help)")
        status = _FAILED
    except (click.ClickException, Error) as error:
        tell(error.format_message() if isinstance(error, click.ClickException) else str(error))
        status = _FAILED
    except BrokenPipeError:
        discard_standard_output()
        status = 0
    except KeyboardInterrupt as interrupt:
        if isinstance(interrupt, PartialOutputError):
            tell(str(interrupt))
        status = _INTERRUPTED
    # Everything is out: while the interpreter ends, a second Ctrl-C would kill it and change the status.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    dismiss_collector()
    sys.exit(status)
