"""``zmtpsniff schema``."""

import click


@click.command(short_help="Print the JSON Schema of the records.")
@click.option("--stats", is_flag=True, help="Of the records of zmtpsniff stats.")
def schema(stats: bool) -> None:
    """Print the JSON Schema (2020-12) of the records that -T json writes."""
    import json

    from zmtpsniff.render.schema import json_schema

    if stats:
        from zmtpsniff.stats.records import AnyRecord

        made = json_schema(AnyRecord, "zmtpsniff statistics", "One line of the output of `zmtpsniff stats -T json`.")
    else:
        made = json_schema()
    click.echo(json.dumps(made, indent=2))
