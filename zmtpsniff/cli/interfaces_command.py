"""``zmtpsniff interfaces``."""

from typing import IO, TYPE_CHECKING, Any

import click

from zmtpsniff.cli.help import CommandWithHelp
from zmtpsniff.cli.output import json_line, open_output, tell
from zmtpsniff.cli.shared_options import color, table_format

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from zmtpsniff.capture.interfaces import Interface
    from zmtpsniff.render.color import Color


@click.command(cls=CommandWithHelp, short_help="List interfaces to capture on.")
@table_format
@color
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also what the capture programs offer beside network interfaces: extcap, netfilter, Bluetooth.",
)
def interfaces(output_format: str, everything: bool, color: "Color") -> None:
    """List interfaces to capture on, and the engines that you may use.

    \b
    zmtpsniff interfaces
    zmtpsniff interfaces -T json | jq -r 'select(.up) | .name'
    """
    from zmtpsniff.capture.engines.engine import HOW_TO_BE_ALLOWED
    from zmtpsniff.capture.interfaces import allowed_engines, list_interfaces

    engines = allowed_engines()
    found = list_interfaces(engines, everything)
    with open_output(None, binary=False) as stream:
        stream.write(
            _json_lines(found) if output_format == "json" else _table(found, engines, stream, color, everything)
        )
    if not engines:
        tell(HOW_TO_BE_ALLOWED)


def _json_lines(found: "list[Interface]") -> str:
    """An object a line, without what does not apply."""
    return "".join(
        json_line("interface", {name: value for name, value in each._asdict().items() if value not in (None, "")})
        for each in found
    )


def _table(
    found: "list[Interface]", engines: tuple[str, ...], stream: IO[Any], color: "Color", with_engines: bool
) -> str:
    """A table as wide as the terminal at most, or as it wants to be where there is none."""

    from zmtpsniff.render.console import drawn, plain_table, unbroken

    table = plain_table()
    titles = ["Interface", "State", "Addresses", "Kind", "MTU"]
    titles += ["Description"] if any(each.description for each in found) else []
    titles += ["Engines"] if with_engines else []
    for title in titles:
        # An address that is broken in two cannot be copied; a description gives way.
        keeps = title not in ("Description", "Engines")
        table.add_column(title, justify="right" if title == "MTU" else "left", overflow="fold", no_wrap=keeps)
    for each in found:
        cells = _cells(each)
        table.add_row(*(cells[title] for title in titles), style=None if each.up is not False else "dim")

    def draw(console: "Console") -> None:
        console.print(table)
        if engines:
            console.print(f"\nYou may capture with: {', '.join(engines)}", soft_wrap=True)

    return drawn(stream, color, unbroken(stream), draw)


def _cells(each: "Interface") -> "dict[str, Text]":
    """The text of each column, by its title."""
    from rich.text import Text

    from zmtpsniff.words.text import escape

    state, style = "", ""
    if each.up is not None:
        state, style = ("up", "green") if each.running else ("up, no carrier", "yellow") if each.up else ("down", "")
    return {
        "Interface": Text(escape(each.name), "bold"),
        "State": Text(state, style),
        "Addresses": Text("\n".join(map(escape, each.addresses))),
        "Kind": Text(escape(each.kind or each.link_type)),
        "MTU": Text("" if each.mtu is None else str(each.mtu)),
        "Description": Text(escape(each.description)),
        "Engines": Text(", ".join(each.engines)),
    }
