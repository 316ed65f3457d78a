"""``zmtpsniff schema``."""

import click

from zmtpsniff.cli.help import CommandWithHelp

_DIFF = "zmtpsniff.check.difference"
_FINDING = "zmtpsniff.analysis.findings.finding:Finding"
# By option: the name of the records, the command that writes them, and their types.
_RECORDS = {
    "stats": ("statistics", "stats", "zmtpsniff.analysis.statistics.stats_records:AnyRecord", _FINDING),
    "diagnose": ("findings", "diagnose", _FINDING, "dissectors.events:Capture"),
    "trace": ("ways", "trace", "zmtpsniff.analysis.ways.way_records:Way"),
    "diff": ("differences", "diff", f"{_DIFF}:Difference", f"{_DIFF}:ComparisonSum"),
    "report": ("report", "spark report", "zmtpsniff.report.results:AnyReportRecord"),
}


@click.command(cls=CommandWithHelp, short_help="Print the JSON Schema of the records.")
@click.option("--stats", is_flag=True, help="Print that of the records of zmtpsniff stats.")
@click.option("--diagnose", is_flag=True, help="Print that of the records of zmtpsniff diagnose.")
@click.option("--trace", is_flag=True, help="Print that of the records of zmtpsniff trace.")
@click.option("--diff", is_flag=True, help="Print that of the records of zmtpsniff diff.")
@click.option("--report", is_flag=True, help="Print that of the records of zmtpsniff spark report.")
@click.option("--version", "version", is_flag=True, help="Print only the version of the records.")
def schema(version: bool, **options: bool) -> None:
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
    from functools import reduce
    from operator import or_
    from pkgutil import resolve_name

    from zmtpsniff.render.json_schema import VERSION, json_schema

    if version:
        click.echo(VERSION)
        return
    given = [option for option, is_given in options.items() if is_given]
    if len(given) > 1:
        raise click.UsageError("--stats, --diagnose, --trace, --diff and --report: give one of them")
    made = json_schema()
    if given:
        name, command, *types = _RECORDS[given[0]]
        records = reduce(or_, map(resolve_name, types))
        made = json_schema(records, f"zmtpsniff {name}", f"One line of the output of `zmtpsniff {command} -T json`.")
    click.echo(json.dumps(made, indent=2))
