"""``zmtpsniff schema``."""

import click


@click.command(short_help="Print the JSON Schema of the records.")
def schema() -> None:
    """Print the JSON Schema (2020-12) of the records that -T json writes."""
    import json

    from zmtpsniff.render.schema import json_schema

    click.echo(json.dumps(json_schema(), indent=2))
