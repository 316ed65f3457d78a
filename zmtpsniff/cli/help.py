"""How commands say what they can do: on one screen with ``--help``, everything with ``--help-all``."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from zmtpsniff.decode_as import DecodeAsError
from zmtpsniff.errors import PluginError

_ROOM = 24  # columns for the names of options; a longer name has a line of its own
_LAST = "Other options"
HELP_NAMES = ["-h", "--help"]
_F = TypeVar("_F", bound=Callable[..., Any])


class HelpSection:
    """A section of the help. Its options are declared by it."""

    def __init__(self, title: str) -> None:
        """Make a section. Sections stand in the help in the order in which they were made."""
        self.title = title
        _sections.append(self)

    def option(self, *names: str, rare: bool = False, **attributes: Any) -> Callable[[_F], _F]:
        """Declare an option of this section, as click.option does."""
        return click.option(*names, cls=SectionedOption, section=self, rare=rare, **attributes)

    def rare(self, *names: str, **attributes: Any) -> Callable[[_F], _F]:
        """Declare an option that is seldom needed: ``--help`` only names it."""
        return self.option(*names, rare=True, **attributes)


class SectionedOption(click.Option):
    """An option that knows the section of the help that it stands in."""

    def __init__(self, *arguments: Any, section: HelpSection, rare: bool, **attributes: Any) -> None:
        """Make an option as click does."""
        super().__init__(*arguments, **attributes)
        self.section = section
        self.rare = rare


_sections: list[HelpSection] = []
# In the order of the help. An option that no section declares is in the last.
TASKS = HelpSection("What to do")
MONITORS = HelpSection("For monitoring")
SETUP = HelpSection("For you")
DIALOG = HelpSection("What Wireshark's dialog offers")
ASKED = HelpSection("What Wireshark asks")
TARGET = HelpSection("Where to")
FILES = HelpSection("Files")
SEND = HelpSection("Sending")
TABLES = HelpSection("Tables")
SPARK = HelpSection("Spark")
COMING = HelpSection("Files that come")
COUNTS = HelpSection("What to count")
PACKETS = HelpSection("Packets")
DECODING = HelpSection("Decoding")
OUTPUT = HelpSection("Output")


class OptionSection(NamedTuple):
    """Options that stand together."""

    title: str
    options: list[click.Option]


class Description(NamedTuple):
    """The docstring of a command, taken apart."""

    paragraphs: list[str]  # each on one line
    examples: list[str]  # command lines


def describe(command: click.Command) -> Description:
    """Split the text of a command: the lines after a line ``\b`` are examples, as click keeps such lines."""
    paragraphs: list[str] = []
    examples: list[str] = []
    for paragraph in (command.help or "").split("\n\n"):
        lines = [line.strip() for line in paragraph.strip().splitlines()]
        if lines and lines[0] == "\b":
            examples += lines[1:]
        elif lines:
            paragraphs.append(" ".join(lines))
    return Description(paragraphs, examples)


def sections(command: click.Command, context: click.Context) -> list[OptionSection]:
    """All options of a command in their sections, in the order of the help; a section without options is left out."""
    made: dict[HelpSection | None, list[click.Option]] = {section: [] for section in _sections}
    others = made.setdefault(None, [])
    for option in command.get_params(context):
        if isinstance(option, click.Option) and not option.hidden:
            made[option.section if isinstance(option, SectionedOption) else None].append(option)
    last = _LAST if any(options is not others and options for options in made.values()) else "Options"
    return [OptionSection(section.title if section else last, options) for section, options in made.items() if options]


def is_rare(option: click.Option) -> bool:
    """Whether ``--help`` only names the option."""
    return option.rare if isinstance(option, SectionedOption) else not {"--help", "--help-all"}.isdisjoint(option.opts)


def synopsis(option: click.Option, *, short: bool = False) -> str:
    """The names of an option, or the first, with what it takes: ``-o FILE``, ``--patterns / --no-patterns``."""
    names = option.opts[0] if short else ", ".join(option.opts)
    if option.secondary_opts:
        return f"{names} / {', '.join(option.secondary_opts)}"
    if option.is_flag or option.count:
        return names
    # Not make_metavar(), which click 8.1 calls in another way than later versions, and which lists all choices.
    known_by_name = isinstance(option.type, click.Choice)
    called = (option.name or "").rpartition("_")[2] if known_by_name else option.type.name
    return f"{names} {option.metavar or called.upper()}"


def details(option: click.Option) -> str:
    """The whole help of an option, with its default and its values."""
    text = option.help or ""
    if isinstance(option.type, click.Choice) and option.metavar is None:
        text += f" One of {', '.join(map(str, option.type.choices))}."
    kind = option.type
    if isinstance(kind, click.IntRange | click.FloatRange) and not option.count:
        low = f"{'more than' if kind.min_open else 'at least'} {kind.min:,}" if kind.min or kind.min_open else ""
        high = "" if kind.max is None else f"at most {kind.max:,}"
        if low or high:
            text += f" {', '.join(filter(None, (low, high))).capitalize()}."
    if option.show_default and option.default is not None and not option.is_flag:
        default = option.default
        text += f" Default: {f'{default:,g}' if isinstance(default, int | float) else default}."
    return text.strip()


def first_sentence(text: str) -> str:
    """The text up to the first full stop that ends a sentence."""
    head, stop, _ = text.partition(". ")
    return head + "." if stop else text


def _show_all(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        command = context.command
        formatter = context.make_formatter()
        command.format_usage(context, formatter)
        _write_text(command, formatter)
        for title, listed in sections(command, context):
            with formatter.section(title):
                formatter.write_dl([(synopsis(option), details(option)) for option in listed], _ROOM)
        click.echo(formatter.getvalue().rstrip("\n"))
        context.exit()


def _write_text(command: click.Command, formatter: click.HelpFormatter) -> None:
    described = describe(command)
    for paragraph in described.paragraphs:
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(paragraph)
    if described.examples:
        with formatter.section("Examples"):
            for line in described.examples:
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class CommandWithHelp(click.Command):
    """A command whose ``--help`` fits a screen: options in sections, a sentence each; the rest is in ``--help-all``."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Make a command as click does."""
        super().__init__(*arguments, **options)
        self.context_settings.setdefault("help_option_names", HELP_NAMES)
        self._help_all = click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_all,
            help="Show all options with all that there is to say.",
        )

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; a plug-in or a rule that cannot be used is wrong usage."""
        try:
            return super().invoke(ctx)
        except PluginError as error:
            raise click.UsageError(str(error), ctx) from None
        except DecodeAsError as error:
            raise click.UsageError(f"-d: {error}", ctx) from None

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its own options, ``--help`` and ``--help-all``."""
        return [*super().get_params(ctx), self._help_all]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the short help."""
        self.format_usage(ctx, formatter)
        _write_text(self, formatter)
        made = sections(self, ctx)
        rare = [option.opts[-1] for section in made for option in section.options if is_rare(option)]
        rare.remove("--help-all")
        all_fit = rare == ["--help"]
        for title, listed in made:
            shown = [option for option in listed if all_fit or not is_rare(option)]
            if shown:
                with formatter.section(title):
                    rows = [(synopsis(option, short=True), first_sentence(option.help or "")) for option in shown]
                    formatter.write_dl(rows, _ROOM)
        if all_fit:
            return
        with formatter.section("More, explained by --help-all"):
            import textwrap

            lines = textwrap.wrap(", ".join(rare), formatter.width - 2, break_on_hyphens=False)
            formatter.write("".join(f"{'':{formatter.current_indent}}{line}\n" for line in lines))


class Group(click.Group):
    """A group of commands, with examples, and each command on a line. No argument means ``--help``."""

    command_class = CommandWithHelp

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Make a group as click does."""
        super().__init__(*arguments, **options)
        # For each group itself: click keeps the option that it makes at first, with or without a parent.
        self.context_settings.setdefault("help_option_names", HELP_NAMES)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Ask for help if there is nothing else: click calls that a mistake."""
        return super().parse_args(ctx, args or ["--help"])

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the text, the commands and the options."""
        self.format_usage(ctx, formatter)
        _write_text(self, formatter)
        self.format_options(ctx, formatter)
        self.format_epilog(ctx, formatter)
