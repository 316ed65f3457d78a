"""``zmtpsniff schema``."""

from typing import Any

import click

from zmtpsniff.cli.help import CommandWithHelp


@click.command(cls=CommandWithHelp, short_help="Print the JSON Schema of the records.")
@click.option("--stats", is_flag=True, help="Print that of the records of zmtpsniff stats.")
@click.option("--diagnose", is_flag=True, help="Print that of the records of zmtpsniff diagnose.")
@click.option("--trace", is_flag=True, help="Print that of the records of zmtpsniff trace.")
@click.option("--diff", is_flag=True, help="Print that of the records of zmtpsniff diff.")
@click.option("--report", is_flag=True, help="Print that of the records of zmtpsniff spark report.")
@click.option("--version", "version", is_flag=True, help="Print only the version of the records.")
def schema(stats: bool, diagnose: bool, trace: bool, diff: bool, report: bool, version: bool) -> None:
    """Print the JSON Schema (2020-12) of the records that -T json writes.

    Their version is MAJOR.MINOR: records and fields that are new raise MINOR, what programs that read them may trip
    over raises MAJOR.

    \b
    zmtpsniff schema > record.schema.json
    zmtpsniff schema --stats
    zmtpsniff schema --diagnose
    zmtpsniff schema --trace
    zmtpsniff schema --diff
    zmtpsniff schema --report
    zmtpsniff schema --version
    """
    import json

    from zmtpsniff.render.json_schema import VERSION, json_schema

    if version:
        click.echo(VERSION)
        return
    if stats + diagnose + trace + diff + report > 1:
        raise click.UsageError("--stats, --diagnose, --trace, --diff and --report: give one of them")
    wanted: tuple[Any, str, str] | None = None  # the types of records, their name, the command that writes them
    if stats:
        from zmtpsniff.analysis.findings.finding import Finding
        from zmtpsniff.analysis.statistics.records import AnyRecord

        wanted = AnyRecord | Finding, "statistics", "stats"
    elif diagnose:
        from dissectors.events import Capture
        from zmtpsniff.analysis.findings.finding import Finding

        wanted = Finding | Capture, "findings", "diagnose"
    elif trace:
        from zmtpsniff.analysis.ways.records import Way

        wanted = Way, "ways", "trace"
    elif diff:
        from zmtpsniff.check.difference import ComparisonSum, Difference

        wanted = Difference | ComparisonSum, "differences", "diff"
    elif report:
        from zmtpsniff.report.results import AnyReportRecord

        wanted = AnyReportRecord, "report", "spark report"
    if wanted is None:
        made = json_schema()
    else:
        records, name, command = wanted
        made = json_schema(records, f"zmtpsniff {name}", f"One line of the output of `zmtpsniff {command} -T json`.")
    click.echo(json.dumps(made, indent=2))
