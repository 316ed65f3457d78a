"""The tables of a folder as temporary views, so that they can be asked in SQL."""

from typing import TYPE_CHECKING

from zmtpsniff.spark.report.vantage import WORTH_KEEPING, views
from zmtpsniff.spark.session import NoTablesError, SparkError, first_line
from zmtpsniff.spark.tables import TABLES, ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# Views that are kept are in as few parts as their octets need. In 200 parts the first question takes twice the time of
# processors, and each later one three times.
_FEW_PARTS = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"


def open_tables(session: "SparkSession", folder: str) -> dict[str, "DataFrame"]:
    """The tables below ``folder``, a path or URL, as they are now, by name; makes a temporary view of each, too.

    They count each connection once, however many captured it; views named ``all_...`` have all rows, and others what
    two captures of a connection say together (see :func:`zmtpsniff.spark.report.vantage.views`).
    Raises SparkError if there is no table.
    """
    from zmtpsniff.spark.store import Store

    store = Store(folder)
    for table in TABLES:
        known = store.table(table)
        if known is None:
            raise NoTablesError(folder)
        frame = _read(session, f"{store.location}/{table}", store.paths(table), table)
        frame.createOrReplaceTempView(f"all_{table}")
    for name, query in views(unnest="explode").items():
        session.sql(query).createOrReplaceTempView(name)
    before = session.conf.get(_FEW_PARTS)
    session.conf.set(_FEW_PARTS, "true")
    try:
        for name in WORTH_KEEPING if store.paths("ways") else WORTH_KEEPING[:1]:  # the others are made of ways
            session.catalog.cacheTable(name)  # computed once, when it is asked for; to plan that takes half a second
    finally:
        session.conf.set(_FEW_PARTS, str(before))
    return {table: session.table(table) for table in TABLES}


def _read(session: "SparkSession", folder: str, paths: list[str], table: str) -> "DataFrame":
    """A table: those of its files that its log names now."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not paths:
        return session.createDataFrame([], ddl(table))
    try:
        frame = session.read.schema(ddl(table)).option("basePath", _of_hadoop(folder))
        found = frame.parquet(*(_of_hadoop(f"{folder}/{path}") for path in paths))
        found.schema  # noqa: B018  # a session of Spark Connect looks for the files only now
    except (PySparkException, Py4JError) as error:
        hint = "; Spark opens s3:// with spark.jars.packages org.apache.hadoop:hadoop-aws" * folder.startswith("s3:")
        raise SparkError(f"{folder}: {first_line(error)}{hint}") from error
    return found


def _of_hadoop(location: str) -> str:
    """A path or URL as Hadoop, which opens files for Spark, has it."""
    return f"s3a{location[2:]}" if location.startswith("s3:") else location
