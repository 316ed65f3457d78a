"""``zmtpsniff fields``."""

from typing import IO, TYPE_CHECKING, Any

import click

from zmtpsniff.cli.help import DECODING, CommandWithHelp
from zmtpsniff.cli.output import json_line, open_output
from zmtpsniff.cli.shared_options import FilePath, color, table_format

if TYPE_CHECKING:
    from rich.console import Console

    from zmtpsniff.filters.filter_fields import FieldInfo
    from zmtpsniff.render.color import Color


@click.command(cls=CommandWithHelp, short_help="List filter fields.")
@click.argument("word", required=False)
@DECODING.rare(
    "--plugin", "plugins", type=FilePath(), multiple=True, metavar="FILE",
    help="List what the payload dissectors in this Python file name, too. Repeatable.",
)  # fmt: skip
@table_format
@color
def fields(word: str | None, plugins: tuple[str, ...], output_format: str, color: "Color") -> None:
    """List the fields of display filters (-Y), or those with WORD in their name or meaning.

    \b
    zmtpsniff fields
    zmtpsniff fields latency
    zmtpsniff fields -T json | jq -r .name
    """
    from zmtpsniff.analysis.plugins import load_dissectors
    from zmtpsniff.filters.filter_fields import list_fields, payload_fields

    wanted = (word or "").lower()
    fields = [*list_fields(), *payload_fields(load_dissectors(plugins))]
    listed = [each for each in fields if wanted in each.name.lower() or wanted in each.meaning.lower()]
    if not listed:
        raise click.UsageError(f"no field has {word!r} in its name or meaning")
    with open_output(None, binary=False) as stream:
        stream.write(_json_lines(listed) if output_format == "json" else _table(listed, stream, color))


def _json_lines(listed: "list[FieldInfo]") -> str:
    """An object a line, without what does not apply."""
    from zmtpsniff.filters.filter_fields import PART_MEANINGS

    lines = []
    for each in listed:
        shown = {name: value for name, value in each._asdict().items() if value}
        if "octets" in each.kind:
            shown["parts"] = list(PART_MEANINGS)
        shown["kind"] = each.kind
        lines.append(json_line("field", shown))
    return "".join(lines)


def _table(listed: "list[FieldInfo]", stream: IO[Any], color: "Color") -> str:
    """A table as wide as the terminal at most, or with a line a field where there is none.

    The records stand behind the meaning: in a column of their own they would leave it no room on 80 columns.
    """
    from rich.text import Text

    from zmtpsniff.filters.filter_fields import PART_MEANINGS
    from zmtpsniff.render.console import drawn, plain_table, unbroken

    table = plain_table()
    for title in ("Field", "Type", "Meaning (records)"):
        table.add_column(title, overflow="fold", no_wrap=title == "Field")
    for each in listed:
        kind = f"{each.kind}, {each.unit}" if each.unit else each.kind
        meaning = Text.assemble(each.meaning, (f" ({', '.join(each.records)})", "dim"))
        table.add_row(Text(each.name, "bold"), Text(kind), meaning)

    def draw(console: "Console") -> None:
        console.print(table)
        if any("octets" in each.kind for each in listed):
            parts = "; ".join(f".{part}: {meaning}" for part, meaning in PART_MEANINGS.items())
            console.print(f"\nOctets have parts: {parts}.")

    return drawn(stream, color, unbroken(stream), draw)
