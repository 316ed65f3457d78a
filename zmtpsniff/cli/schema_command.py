"""``zmtpsniff schema``."""

import click

from zmtpsniff.cli.help import CommandWithHelp


@click.command(cls=CommandWithHelp, short_help="Print the JSON Schema of the records.")
@click.option("--stats", is_flag=True, help="Print that of the records of zmtpsniff stats.")
@click.option("--diagnose", is_flag=True, help="Print that of the records of zmtpsniff diagnose.")
@click.option("--trace", is_flag=True, help="Print that of the records of zmtpsniff trace.")
@click.option("--report", is_flag=True, help="Print that of the records of zmtpsniff spark report.")
@click.option("--version", "version", is_flag=True, help="Print only the version of the records.")
def schema(stats: bool, diagnose: bool, trace: bool, report: bool, version: bool) -> None:
    """Print the JSON Schema (2020-12) of the records that -T json writes.

    Their version is MAJOR.MINOR: records and fields that are new raise MINOR, what programs that read them may trip
    over raises MAJOR.

    \b
    zmtpsniff schema > record.schema.json
    zmtpsniff schema --stats
    zmtpsniff schema --diagnose
    zmtpsniff schema --trace
    zmtpsniff schema --report
    zmtpsniff schema --version
    """
    import json

    from zmtpsniff.render.json_schema import VERSION, json_schema

    if version:
        click.echo(VERSION)
        return
    if stats + diagnose + trace + report > 1:
        raise click.UsageError("--stats, --diagnose, --trace and --report: give one of them")
    if stats:
        from zmtpsniff.analysis.findings.finding import Finding
        from zmtpsniff.analysis.statistics.records import AnyRecord

        made = json_schema(
            AnyRecord | Finding, "zmtpsniff statistics", "One line of the output of `zmtpsniff stats -T json`."
        )
    elif diagnose:
        from dissectors.events import Capture
        from zmtpsniff.analysis.findings.finding import Finding

        made = json_schema(
            Finding | Capture, "zmtpsniff findings", "One line of the output of `zmtpsniff diagnose -T json`."
        )
    elif trace:
        from zmtpsniff.analysis.ways.records import Way

        made = json_schema(Way, "zmtpsniff ways", "One line of the output of `zmtpsniff trace -T json`.")
    elif report:
        from zmtpsniff.report.results import AnyReportRecord

        made = json_schema(
            AnyReportRecord, "zmtpsniff report", "One line of the output of `zmtpsniff spark report -T json`."
        )
    else:
        made = json_schema()
    click.echo(json.dumps(made, indent=2))
