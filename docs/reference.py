"""Makes what is made from the code: docs/reference/, the manual pages in docs/man/, the scripts in docs/completion/.

Run it after changing options, records, filter fields or rules of policies; a test says when that was forgotten.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from dissectors.events import EVENT_TYPES
from dissectors.payloads.registry import built_in
from dissectors.problems import PROBLEMS
from dissectors.records import record_fields, summary
from zmtpsniff import __version__
from zmtpsniff.analysis.findings.catalogue import FINDINGS, findings_of, problems_of
from zmtpsniff.check import endpoint_reader, policy
from zmtpsniff.check.builtin import SETS
from zmtpsniff.check.model import BY, LEVELS, PATTERNS, PER
from zmtpsniff.cli.help import describe, details, sections, synopsis
from zmtpsniff.cli.main import cli
from zmtpsniff.filters.filter_fields import PART_MEANINGS, FieldInfo, fields_of_event, list_fields, payload_fields
from zmtpsniff.render.json_schema import VERSION
from zmtpsniff.spark.tables import OCTETS, TABLES

DOCS = Path(__file__).parent
EXIT = (
    ("0", "Done; for check: every rule is kept."),
    ("1", "A rule of a policy is broken, or captures differ (check)."),
    ("2", "Wrong usage, or input that cannot be read. One line on standard error says what is wrong and what to do."),
    ("130", "Interrupted."),
)
# The meaning of each key of a rule. A key that is not here cannot be published.
RULE_KEYS = {
    "name": "what reports call the rule; each has another name",
    "expect": "a filter: records that pass it must be there, at least one unless bounds say otherwise",
    "forbid": "a filter: records that pass it must not be there, or no more than `max`",
    "latency": "a table: how long answers may take (below)",
    "order": "a list of filters: records come in this order on a connection, others may be between them",
    "sequence": "where messages have a number, such as `frames[1]` or `body.seq`: there are no holes and no repeats",
    "no_findings": "a list of codes of `diagnose`, of which none may be found; `error`, `warning`: all of these",
    "count": "exactly so many",
    "min": "so many at least",
    "max": "so many at most",
    "per": "what the bounds are for (a rule for each connection holds where no connection counts)",
    "mean": 'true or false: with `per = "second"`, on average over the capture',
    "where": "a filter: only messages that pass it are in the sequence",
    "by": "what counts the numbers of a sequence",
    "connections": "a filter: only connections whose `connection` record passes it count",
    "level": "what a broken rule means: `warning` is reported, but does not fail the check",
}
ENDPOINT_KEYS = {
    "address": "the services that are meant, `HOST:PORT` or a list; `*` and `?` in the host, a port, a range, or `*`",
    "name": "what reports call the endpoint; without it, its address",
    "mechanism": "the security mechanism that its connections must have, or a list",
    "version": 'the version of ZMTP, or a list; `">=3.0"` is any from there on',
    "socket_type": "the type of the service's socket, or a list",
    "client_socket_type": "the types of its clients' sockets",
    "subscriptions": "topics that must be subscribed to",
    "subscriptions_allowed": "topics of which no others may be subscribed to",
    "topics": "topics that must be published",
    "topics_allowed": "topics of which no others may be published",
    "clients": "hosts that may connect",
    "min_clients": "how many clients there must be at the same time",
    "max_clients": "how many clients there may be at the same time",
    "server_rate": "a table with `min` and `max`: messages a second that the service sends, on average",
    "client_rate": "the same of what all its clients send",
    "latency": "a table with limits of the time to reply, as below, without `pattern` and `where`",
    "level": "as in a rule",
}
LATENCY_KEYS = {
    "pattern": "whose latency",
    "where": "a filter: only these answers count",
}


class DocumentedCommand(NamedTuple):
    """A command with the words that call it."""

    path: str
    command: click.Command
    context: click.Context


def commands(
    command: click.Command = cli, path: str = "zmtpsniff", parent: click.Context | None = None
) -> Iterator[DocumentedCommand]:
    """All commands, a group before those in it."""
    context = command.context_class(
        command, info_name=path.rpartition(" ")[2], parent=parent, **command.context_settings
    )
    yield DocumentedCommand(path, command, context)
    if isinstance(command, click.Group):
        for name, inner in _commands_in(command, context):
            yield from commands(inner, f"{path} {name}", context)


def _commands_in(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield name, command


def _page(title: str, *lines: str) -> str:
    return "\n".join((f"# {title}", "", "<!-- made by docs/reference.py -->", "", *lines)).rstrip("\n") + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _commented(example: str) -> list[str]:
    """An example; the comment behind it, which says what it does, comes first."""
    command, _, meaning = example.partition("   ")
    return [f"# {meaning.strip()}", command] if meaning else [command]


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _type(field: FieldInfo) -> str:
    return f"{field.kind}, {field.unit}" if field.unit else field.kind


def _table(head: str, rows: Sequence[tuple[str, ...]]) -> list[str]:
    columns = head.split(" | ")
    return [f"| {head} |", f"|{' :-- |' * len(columns)}", *(f"| {' | '.join(row)} |" for row in rows), ""]


def commands_page() -> str:
    """Every command with its options and examples."""
    lines = ["`--help-all` shows the same; `zmtpsniff COMMAND --help` fits a screen.", ""]
    for path, command, context in commands():
        described = describe(command)
        lines += [f"## {path}", ""]
        lines += [f"{_cell(paragraph)}\n" for paragraph in described.paragraphs]
        lines += ["```text", f"{path} {' '.join(command.collect_usage_pieces(context))}", "```", ""]
        if described.examples:
            if path.startswith("zmtpsniff spark"):
                lines += ["<!-- run by tests/spark/test_report.py -->"]
            elif path == "zmtpsniff browse":
                lines += ["<!-- run by tests/browse/test_app_terminal.py -->"]
            elif path == "zmtpsniff extcap":
                lines += ["<!-- run by tests/extcap/test_extcap.py -->"]
            elif path == "zmtpsniff keys":
                lines += ["<!-- run by tests/peers/test_curve_keys.py -->"]
            lines += ["```sh", *(line for example in described.examples for line in _commented(example)), "```", ""]
        if isinstance(command, click.Group):
            anchor = path.replace(" ", "-")
            inner = _commands_in(command, context)
            rows = [(f"[{name}](#{anchor}-{name})", _cell(one.get_short_help_str(200))) for name, one in inner]
            lines += _table("Command | What it does", rows)
        for title, options in sections(command, context):
            rows = [(_code(synopsis(option)), _cell(details(option))) for option in options]
            lines += _table(f"{title} | What it does", rows)
    lines += ["## Exit status", ""]
    lines += _table("Status | What it means", [(status, _cell(meaning)) for status, meaning in EXIT])
    return _page("Commands", *lines)


def records_page() -> str:
    """The records of the JSON output, with their fields."""
    lines = [
        f"Version {VERSION} of the records (`zmtpsniff schema --version`). `zmtpsniff schema` prints their JSON",
        "Schema, which says all of this to programs; the rows of `stats -T json` are in",
        "[Statistics](../stats.md#json).",
        "",
        "`-T json` writes one object a line. Fields marked *always* are in each record of the type; all others are",
        "left out where they do not apply, nothing is null. The unit of a number stands behind its type. Octets are an",
        'object: `{"length": 5, "text": "hello"}`, or `"hex"` where they are no text; with `"truncated": true` where',
        "not all are shown, and the length alone where they are hidden.",
        "",
        "## Versions",
        "",
        "The version is MAJOR.MINOR. Within one MAJOR, programs that read records may rely on this:",
        "",
        "- A record type, a field, a problem code and a value of a listed choice keeps its name and its meaning.",
        "- A field marked *always* stays so, and the type of a field stays what it is.",
        "- Record types, fields, problem codes and values may be added, so programs skip what they do not know. A",
        "  release that adds to the schema raises MINOR.",
        "",
        "Everything else raises MAJOR, is told in the changelog under *Changed* or *Removed*, and never comes with a",
        "release that only mends. Texts for people (`detail`, the payload's `summary`, trees, summaries) may change at",
        "any time.",
        "",
    ]
    for event in EVENT_TYPES:
        tag = str(event.__struct_config__.tag)
        required = {field.name for field in record_fields(event) if field.required} | {"type"}
        lines += [f"## {tag}", "", _cell(summary(event)), ""]
        rows = []
        for field in fields_of_event(event):
            meant = f"`{tag}`." if field.name == "type" else _cell(field.meaning)
            rows.append((_code(field.name), _type(field) + (", *always*" if field.name in required else ""), meant))
        lines += _table("Field | Type | What it is", rows)
    return _page("Records", *lines)


def fields_page() -> str:
    """The fields of display filters."""
    lines = ["Fields for `-Y` ([Filters in five minutes](../filters.md)); `zmtpsniff fields` prints this, too.", ""]
    listed = [*list_fields(), *payload_fields(built_in())]
    rows = [(_code(field.name), _type(field), ", ".join(field.records), _cell(field.meaning)) for field in listed]
    lines += _table("Field | Type | Records | What it is", rows)
    lines += ["Octets have parts:", ""]
    lines += _table("Part | What it is", [(_code(f".{part}"), meaning) for part, meaning in PART_MEANINGS.items()])
    return _page("Filter fields", *lines)


def policy_page() -> str:
    """The keys of a policy, and the built-in sets."""
    allowed = {"per": PER, "by": BY, "level": LEVELS, "pattern": tuple(PATTERNS)}

    def meaning(key: str, meanings: dict[str, str]) -> str:
        choices = ", ".join(f'`"{choice}"`' for choice in allowed.get(key, ()))
        return _cell(meanings[key]) + (f": {choices}" if choices else "")

    latency = {
        **LATENCY_KEYS,
        **{
            key: "the longest, in milliseconds"
            if percent == 100
            else f"{percent} of 100 are not slower, in milliseconds"
            for key, percent in endpoint_reader.PERCENTILES.items()
        },
    }
    kinds = ", ".join(f"`{kind}`" for kind in policy.KINDS)
    lines = [
        "A policy is a TOML file; [Captured traffic as a test](../check.md) explains it with examples.",
        "",
        f"At its top are {' and '.join(f'`{key}`' for key in policy.TOP_KEYS)}: `include` is a list of built-in sets,",
        "`[[rule]]` begins a rule, `[[endpoint]]` what is demanded of a service. With `only_endpoints = true` there",
        "may be no other service.",
        "",
        "## Keys of a rule",
        "",
        f"A rule has a `name`, and one of {kinds}.",
        "",
        *_table("Key | What it says", [(_code(key), meaning(key, RULE_KEYS)) for key in policy.RULE_KEYS]),
        "## Keys of an endpoint",
        "",
        *_table(
            "Key | What it says", [(_code(key), meaning(key, ENDPOINT_KEYS)) for key in endpoint_reader.ENDPOINT_KEYS]
        ),
        "## Keys of a latency",
        "",
        *_table("Key | What it says", [(_code(key), meaning(key, latency)) for key in policy.LATENCY_KEYS]),
        "## Built-in sets",
        "",
        *_table(
            "Set | Rule | What it forbids",
            [
                (_code(name), _cell(rule.name), _cell(rule.text.removeprefix("forbid ")))
                for name, rules in SETS.items()
                for rule in rules
            ],
        ),
    ]
    return _page("Policy rules", *lines)


def problems_page() -> str:
    """Each problem code: its severity on a line of its own, what was seen, what to do."""
    lines = [
        "A problem is one record that something is wrong with; `zmtpsniff read` shows it where it happens. A",
        "[finding](findings.md) of `diagnose` is what several records and packets show together.",
        "`zmtpsniff explain CODE` prints an entry of either. A code never changes its meaning.",
        "",
        *_table(
            "Word | What it means",
            [
                ("error", "it breaks the protocol, or octets are lost"),
                ("warning", "it is allowed, but something is wrong"),
                ("note", "it is normal, but worth knowing"),
                ("about", "a peer, the network, the capture, or what zmtpsniff can read; `diagnose` accuses nobody for "
                          "the last two"),
                ("hides: beginning", "what came on the connection before the problem may not all be shown"),
                ("hides: rest", "anything on the connection may not be shown; in the capture, if the record names no "
                                "connection"),
            ],
        ),
    ]  # fmt: skip
    for code, kind in PROBLEMS.items():
        about = kind.about if kind.about == "zmtpsniff" else f"the {kind.about}"
        hides = f" · hides: {kind.blinds}" if kind.blinds else ""
        lines += [f"## {code}", "", f"*{kind.severity} · about {about}{hides}*", ""]
        lines += [f"- Seen: {_cell(kind.meaning)}", f"- Advice: {_cell(kind.advice)}"]
        lines += [*_others("The finding", "findings.md", findings_of(code)), ""]
    return _page("Problem codes", *lines)


def findings_page() -> str:
    """Each finding, the most harmful first."""
    lines = [
        "`diagnose` shows [findings](../diagnose.md), here in the order of the harm that they do. A",
        "[problem](problems.md) is one record that something is wrong with; a problem that no finding explains is the",
        "finding `protocol-violated`. `zmtpsniff explain CODE` prints an entry. The severity is the usual one.",
        "",
    ]
    for code, kind in FINDINGS.items():
        lines += [f"## {code}", "", f"*{kind.severity}*", "", _cell(kind.meaning), ""]
        lines += [f"- How it is known: {_cell(kind.known)}", f"- What to do: {_cell(kind.advice)}"]
        lines += [*_others("The problem", "problems.md", problems_of(code)), ""]
    return _page("Findings", *lines)


def _others(what: str, page: str, codes: list[str]) -> list[str]:
    """A line with links to what the other page says of the same thing."""
    links = ", ".join(f"[{code}]({page}#{code})" for code in codes)
    return [f"- {what}{'s' if len(codes) > 1 else ''}: {links}"] if codes else []


def tables_page() -> str:
    """The tables that ``zmtpsniff spark`` writes."""
    lines = [
        "`zmtpsniff spark ingest` writes these tables of Delta Lake ([Many captures on Spark](../spark.md)).",
        f"`OCTETS` is `{OCTETS}`: how many there were on the wire, and those at hand.",
        "",
    ]
    for table, columns in TABLES.items():
        rows = [
            (_code(column.name), f"{column.sql.replace(OCTETS, 'OCTETS')}{column.unit and f', {column.unit}'}",
             _cell(column.meaning))
            for column in columns
        ]  # fmt: skip
        lines += [f"## {table}", "", *_table("Column | Type | What it is", rows)]
    return _page("Tables on Spark", *lines)


def _roff(text: str) -> str:
    """Text for a manual page: nothing in it is taken for a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq").replace("'", "\\(aq")
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


def manual_page(made: DocumentedCommand) -> str:
    """The page of a command in section 1."""
    path, command, context = made
    described = describe(command)
    name = path.replace(" ", "-")
    lines = [
        '.\\" made by docs/reference.py',
        f'.TH {name.upper()} 1 "" "zmtpsniff {__version__}" "zmtpsniff"',
        ".ad l",
        ".SH NAME",
        _roff(f"{name} - {_first(described.paragraphs)}"),
        ".SH SYNOPSIS",
        f".B {_roff(path)}",
        _roff(" ".join(command.collect_usage_pieces(context))),
        ".SH DESCRIPTION",
    ]
    for paragraph in described.paragraphs:
        lines += [_roff(paragraph), ".PP"]
    lines.pop()
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for inner_name, inner in _commands_in(command, context):
            short = inner.get_short_help_str(200)
            lines += [".TP", f".B {_roff(f'{name}-{inner_name}')}(1)", _roff(short)]
    for title, options in sections(command, context):
        lines.append(f".SH {_roff(title.upper())}")
        for option in options:
            lines += [".TP", f".B {_roff(synopsis(option))}", _roff(details(option))]
    lines.append(".SH EXIT STATUS")
    for status, meaning in EXIT:
        lines += [".TP", f".B {status}", _roff(meaning)]
    if described.examples:
        lines += [".SH EXAMPLES", ".nf", *map(_roff, described.examples), ".fi"]
    lines.append(".SH SEE ALSO")
    others = [other.path.replace(" ", "-") for other in commands() if other.path != path]
    lines.append(", ".join(f"\\fB{_roff(other)}\\fR(1)" for other in sorted(others)) + ", tshark(1), tcpdump(1)")
    return "\n".join(lines) + "\n"


def _first(paragraphs: list[str]) -> str:
    """The first sentence, as the index of manuals has it: without capital and full stop."""
    sentence = paragraphs[0].split(". ")[0].split(": ")[0].rstrip(".")
    return sentence[0].lower() + sentence[1:]


def completion_script(shell: str) -> str:
    """The script by which a shell completes command lines of zmtpsniff; click makes it."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    # Not source(), which looks for the shell on this machine.
    made = kind(cli, {}, "zmtpsniff", "_ZMTPSNIFF_COMPLETE")
    return (made.source_template % made.source_vars()).strip("\n") + "\n"


def pages() -> dict[Path, str]:
    """All files that are made, and what is in them."""
    made = {
        DOCS / "reference" / "commands.md": commands_page(),
        DOCS / "reference" / "records.md": records_page(),
        DOCS / "reference" / "fields.md": fields_page(),
        DOCS / "reference" / "policy.md": policy_page(),
        DOCS / "reference" / "problems.md": problems_page(),
        DOCS / "reference" / "findings.md": findings_page(),
        DOCS / "reference" / "tables.md": tables_page(),
    }
    for command in commands():
        made[DOCS / "man" / f"{command.path.replace(' ', '-')}.1"] = manual_page(command)
    return made


def scripts() -> dict[Path, str]:
    """The scripts for completion; another version of click may make others."""
    names = {"bash": "zmtpsniff.bash", "zsh": "_zmtpsniff", "fish": "zmtpsniff.fish"}
    return {DOCS / "completion" / name: completion_script(shell) for shell, name in names.items()}


def main() -> None:
    """Write all files, and take away manual pages of commands that are no more."""
    made = pages()
    for old in (DOCS / "man").glob("*.1"):
        if old not in made:
            old.unlink()
    for path, text in (made | scripts()).items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        print(path.relative_to(DOCS.parent), file=sys.stderr)


if __name__ == "__main__":
    main()
