"""``zmtpsniff spark``."""

from typing import TYPE_CHECKING, Any

import click

from zmtpsniff.cli.help import Group
from zmtpsniff.cli.options import DecodeAsRule

if TYPE_CHECKING:
    from zmtpsniff.spark.options import Ports


class PortRanges(click.ParamType):  # type: ignore[type-arg]
    """Ports as ``5555,6000-6010``."""

    name = "ports"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "Ports":
        """Parse them; what is wrong with them becomes a usage error."""
        if isinstance(value, tuple):
            return value
        from zmtpsniff.spark.options import parse_ports

        try:
            return parse_ports(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.group(cls=Group, short_help="Dissect many captures on Spark, into tables.")
def spark() -> None:
    """Dissect the captures of many machines on Spark, into tables that can be queried.

    \b
    zmtpsniff spark ingest /captures --output /tables
    """


@spark.command(short_help="Add captures to the tables.")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--output", required=True, metavar="DIR", help="Folder of the tables, a path or URL; made if needed.")
@click.option(
    "--master",
    metavar="URL",
    help="local[2], spark://host:7077, sc://host ...; by default all processors of this machine.",
)
@click.option("--ports", type=PortRanges(), default=(), metavar="PORTS", help="Only these: 5555,6000-6010.")
@click.option(
    "--max-bytes",
    type=click.IntRange(0),
    default=65_536,
    show_default=True,
    metavar="N",
    help="Octets to keep of each body, 0 for all.",
)
@click.option(
    "--series",
    default="folder",
    show_default=True,
    metavar="RULE",
    help="Which files are one capture, cut: those of a folder, each file alone (file), or those for whose paths "
    "group 1 of a regular expression is the same.",
)
@click.option("-d", "rules", type=DecodeAsRule(), multiple=True, metavar="RULE", help="As of zmtpsniff read.")
@click.option("--show-secrets", is_flag=True, help="Keep passwords; else only their length.")
@click.option(
    "--format",
    "format_name",
    default="parquet",
    show_default=True,
    metavar="NAME",
    help="How the tables are written: parquet, or a format that Spark writes, such as orc or json. Parquet tables are "
    "then kept in DIR/_parquet, too.",
)
@click.option("--exact", is_flag=True, help="Shuffle every segment; slower, and simple: the reference.")
def ingest(inputs: tuple[str, ...], **options: Any) -> None:
    """Dissect captures and add what they hold to the tables in DIR, made if needed.

    INPUT is a file, a glob, a folder with all files in it, or a URL that Spark's file systems know. What is in the
    tables already is not read again.

    \b
    zmtpsniff spark ingest /captures --output /tables
    zmtpsniff spark ingest s3a://pcap --output s3://tables --master spark://h:7077
    """
    from zmtpsniff.spark.options import Options
    from zmtpsniff.spark.session import SparkError, get_session

    asked = Options(options["ports"], options["max_bytes"], options["rules"], options["show_secrets"])
    try:
        session = get_session(options["master"])
        from zmtpsniff.spark.ingest import ingest as run

        done = run(
            session, inputs, options["output"], asked, options["series"], options["exact"], options["format_name"]
        )
    except SparkError as error:
        raise click.ClickException(str(error)) from error
    known = f", {done.known:,} known" if done.known else ""
    click.echo(f"{done.files:,} files{known}: {done.rows:,} rows into {options['output']}", err=True)
