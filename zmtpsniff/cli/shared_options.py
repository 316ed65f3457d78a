"""Options that several commands share.

Options that belong together are a group: a command gets their values as one object, which nobody changes.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dissectors.zmtp.limits import Limits
from zmtpsniff import decode_as
from zmtpsniff.analysis.defaults import REPLY_SECONDS
from zmtpsniff.cli.help import DECODING, OUTPUT, PACKETS
from zmtpsniff.engine.settings import Settings
from zmtpsniff.net.limits import FlowLimits
from zmtpsniff.render import FORMATS, TRAITS, Format
from zmtpsniff.render.clock import TIMES, Times
from zmtpsniff.render.color import Color

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from dissectors.zmtp.curve_keys import Key
    from zmtpsniff.filters import Filter

_Callback = Callable[..., Any]
_Decorator = Callable[[_Callback], _Callback]
_FLOWS = FlowLimits()
AUTO_KEYS = "auto"  # instead of a file of keys: those of this machine's programs


class Parsed(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on only
    """A value that a function parses. The function raises ValueError, which becomes a usage error."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        """Call the value ``name``, and parse it by ``parse``."""
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse a text; anything else is a value already."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


class DisplayFilter(click.ParamType):  # type: ignore[type-arg]
    """A display filter, compiled: a function that says whether an event passes."""

    name = "filter"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "Filter":
        """Compile a filter; what is wrong with it becomes a usage error."""
        if callable(value):
            return value  # type: ignore[no-any-return]
        from zmtpsniff.filters import FilterError, compile_filter

        try:
            return compile_filter(value)
        except FilterError as error:
            raise click.UsageError(f"-Y: {error}", ctx) from None

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        """The completions of the beginning of a filter: its last word becomes the name of a field."""
        from click.shell_completion import CompletionItem

        from zmtpsniff.filters.completion import FieldCompletion

        return [CompletionItem(text) for text in FieldCompletion().completions(incomplete)]


decode_as_rule = Parsed("rule", decode_as.parse)


class IntRange(click.IntRange):
    """A whole number in a range. Errors call it that; click calls it an integer range."""

    name = "integer"


class FloatRange(click.FloatRange):
    """A number in a range, called so where one is none."""

    name = "number"


class FilePath(click.Path):
    """The name of a file, which shells complete. A file that does not exist fails when it is opened."""

    def __init__(self) -> None:
        """Take any name."""
        super().__init__(readable=False)


class OptionGroup:
    """Several options as one decorator, in the order of the help."""

    def __init__(self, name: str, make: Callable[..., object], *options: _Decorator) -> None:
        """The command gets one object for all of them, as its argument ``name``.

        ``make`` makes the object from their values, which it gets under the names of their parameters. ``make`` may
        raise click.UsageError. An option may be a group, too.
        """
        self.name = name
        self._make = make
        self._options = options

    def __call__(self, command: _Callback) -> _Callback:
        """Add the options to a command."""
        parameters: list[str] = []

        @wraps(command)
        def grouped(*arguments: Any, **values: Any) -> Any:
            values[self.name] = self._make(**{parameter: values.pop(parameter) for parameter in parameters})
            return command(*arguments, **values)

        decorated: Any = grouped
        for option in reversed(self._options):
            decorated = option(decorated)
            added = option.name if isinstance(option, OptionGroup) else decorated.__click_params__[-1].name
            parameters.append(added)
        return decorated  # type: ignore[no-any-return]


def _make_settings(
    *,
    curve_keys: tuple[str, ...],
    max_flows: int,
    max_waiting: int,
    idle_timeout: float,
    show_secrets: bool = False,
    is_live: bool = False,
    **others: Any,
) -> Settings:
    """Make Settings of the options of a group; most have their names. Raises click.UsageError for contradictions."""
    if AUTO_KEYS in curve_keys and not is_live:
        raise click.UsageError(
            f"--curve-keys {AUTO_KEYS}: only with live and browse -i; a file of this name is ./{AUTO_KEYS}"
        )
    settings = Settings(
        **others,
        limits=Limits(show_secrets=show_secrets),
        flow_limits=FlowLimits(flows=max_flows, idle_seconds=idle_timeout).with_waiting(max_waiting << 20),
        curve_keys=read_curve_keys(key_files(curve_keys)),
        host_keys=AUTO_KEYS in curve_keys,
    )
    if not settings.payload:
        for given, option in ((settings.plugins, "--plugin"), (settings.decode_bodies, "--decode-bodies")):
            if given:
                raise click.UsageError(f"{option}: not with --no-payload")
        for rule in settings.decode_as:
            if rule.payload:
                raise click.UsageError(f"-d {rule.payload}: not with --no-payload")
    return settings


def key_files(names: tuple[str, ...]) -> tuple[str, ...]:
    """The files that ``--curve-keys`` names, without AUTO_KEYS."""
    return tuple(name for name in names if name != AUTO_KEYS)


def read_curve_keys(files: tuple[str, ...]) -> "tuple[Key, ...]":
    """The keys in the files of ``--curve-keys``; raises click.UsageError."""
    if not files:
        return ()
    from dissectors.zmtp.curve_keys import NoSodiumError, sodium
    from zmtpsniff.engine.key_file import KeyFileError, read_keys

    try:
        sodium()
        return tuple(key for file in files for key in read_keys(file))
    except (KeyFileError, NoSodiumError) as error:
        raise click.UsageError(f"--curve-keys: {error}") from None


curve_key_files = DECODING.rare(
    "--curve-keys", multiple=True, type=FilePath(), metavar="FILE",
    help="Decrypt CURVE with the keys in FILE, which zmtpsniff keys writes. live and browse -i: auto takes the "
    "keys of this machine's programs. Repeatable.",
)  # fmt: skip
_show_secrets = DECODING.option("--show-secrets", is_flag=True, help="Show passwords; else only their length.")

_dissection = (
    PACKETS.option("-c", "packets", type=IntRange(1), metavar="N", help="Stop after N packets."),
    DECODING.option(
        "-d", "decode_as", type=decode_as_rule, multiple=True, metavar="RULE",
        help="Read a port as ZMTP: tcp.port==5555,zmtp. Whatever its octets look like. 5555-5560 are several ports, "
        "zmtp1, zmtp2 and zmtp3 versions. RADIO and DISH over UDP: udp.port==5556,zmtp. The protocol inside messages: "
        "tcp.port==5557,mlm. The type of the bound socket: tcp.port==5557,zmtp/REP. Repeatable.",
    ),
    DECODING.rare(
        "--patterns/--no-patterns", default=True,
        help="Say what messages mean to each other: replies, subscriptions that match, what is missing.",
    ),
    DECODING.rare(
        "--timeout", "reply_seconds", type=FloatRange(0, min_open=True), default=REPLY_SECONDS, show_default=True,
        metavar="SECONDS", help="Report a request that waits longer for its reply.",
    ),
    DECODING.rare(
        "--payload/--no-payload", default=True, help="Recognise the protocols of applications inside messages."
    ),
    DECODING.rare(
        "--plugin", "plugins", multiple=True, type=FilePath(), metavar="FILE",
        help="A dissector of payloads, in Python. Repeatable."
    ),
    DECODING.rare(
        "--decode-bodies", is_flag=True,
        help="Show JSON, MessagePack, CBOR, Protocol Buffers as structure. Also compressed by zlib, gzip or zstd.",
    ),
    curve_key_files,
    DECODING.rare(
        "--max-flows", type=IntRange(1), default=_FLOWS.flows, show_default=True, metavar="N",
        help="Connections to follow at once; the one idle for longest gives way.",
    ),
    DECODING.rare(
        "--max-waiting", type=IntRange(1), default=_FLOWS.waiting_octets >> 20, show_default=True, metavar="MIB",
        help="Memory for segments that wait for a missing one. Each direction of a connection may use a sixteenth.",
    ),
    DECODING.rare(
        "--idle-timeout", type=FloatRange(1), default=_FLOWS.idle_seconds, show_default=True, metavar="SECONDS",
        help="End a connection that has had no packet for so long.",
    ),
)  # fmt: skip

dissection_options = OptionGroup("dissection", _make_settings, *_dissection, _show_secrets)
live_dissection_options = OptionGroup("dissection", partial(_make_settings, is_live=True), *_dissection, _show_secrets)
dissection_options_without_secrets = OptionGroup("dissection", _make_settings, *_dissection)


def filter_option(effect: str) -> _Decorator:
    """The option ``-Y``; ``effect`` is the sentence of help that says what a command does with the filter."""
    return OUTPUT.option(
        "-Y", "passes", type=DisplayFilter(), metavar="FILTER",
        help=f"{effect} zmtpsniff fields lists what can be asked.",
    )  # fmt: skip


display_filter = filter_option('Look only at records that pass: type == "message".')

color = OUTPUT.rare(
    "--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
    help="auto: on a terminal, unless NO_COLOR is set.",
)  # fmt: skip

utc = OUTPUT.rare("--utc", is_flag=True, help="Show times in UTC, not in local time.")

times_option = OUTPUT.rare(
    "--time", "times", type=click.Choice(TIMES), default="absolute", show_default=True,
    help="absolute: of day; relative: seconds since the first record; delta: since the record before.",
)  # fmt: skip


def records_format(name: str, words: str) -> _Decorator:
    """The option ``-T`` of a command whose output is of that name for people, or JSON Lines."""
    return OUTPUT.option(
        "-T", "output_format", type=click.Choice([name, "json"]), default=name, show_default=True,
        help=f"{name}: {words}; json: JSON Lines.",
    )  # fmt: skip


table_format = records_format("table", "for people")

capture_record = OUTPUT.rare(
    "--capture-record/--no-capture-record", default=True,
    help="Write the totals, which are the last record, whatever -Y says.",
)  # fmt: skip

output_file = OUTPUT.option(
    "-o", "file", type=FilePath(), metavar="FILE", help="Write to FILE; until complete it is FILE.partial."
)


class Output(NamedTuple):
    """Which events are shown, how, and where."""

    passes: "Filter | None"  # None: all
    format: Format
    max_bytes: int | None  # octets of each body; 0 for all, None for what suits the format
    file: str | None  # None or "-" is standard output
    verbosity: int
    utc: bool
    times: Times
    color: Color


output_options = OptionGroup(
    "output",
    Output,
    display_filter,
    OUTPUT.option(
        "-T", "format", type=click.Choice(FORMATS), default="tree", show_default=True,
        help=f"{'; '.join(f'{name}: {TRAITS[name].words}' for name in FORMATS)}.",
    ),
    OUTPUT.option(
        "--max-bytes", type=IntRange(0), metavar="N",
        help="Octets to show of each body, 0 for all. Default: a few dozen, or what fits a line of the terminal; 4,096 "
        "with -vv; 65,536 in JSON; all in dump.",
    ),
    output_file,
    OUTPUT.option(
        "-v", "verbosity", count=True,
        help="Show every field, frame and topic, and nanoseconds. In tree and summary; -vv: also up to 4,096 octets of "
        "each body.",
    ),
    utc,
    times_option,
    color,
)  # fmt: skip
