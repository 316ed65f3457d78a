"""The questions of the page on Spark, asked of tables: the answers stand there."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars
import pytest

from tests.spark.local_job import local_session, take
from tests.spark.spark_tables import database_of
from tests.support.golden import hold
from tests.support.paths import FIXTURES, PROJECT
from tests.support.shown_commands import blocks
from zmtpsniff.spark.report.vantage import views
from zmtpsniff.spark.tables import TABLES

PAGE = PROJECT / "docs" / "spark.md"
CAPTURES = {"broker": ("rec_proxy", "m31_req_rep"), "prices": ("m31_pub_sub", "net_zmtp1_gap")}
PERCENTILE = "percentile_disc(0.99) WITHIN GROUP (ORDER BY latency_ns)", "quantile_disc(latency_ns, 0.99)"
MOST_LINES, LONGEST_LINE = 5, 100


def questions() -> list[str]:
    return [block.text for block in blocks(PAGE) if block.mark("run by") == "tests/spark/test_tables_questions.py"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of two hosts."""
    folder = tmp_path_factory.mktemp("questions")
    for host, names in CAPTURES.items():
        (folder / host).mkdir()
        for name in names:
            (folder / host / f"{name}.pcap").write_bytes((FIXTURES / f"{name}.pcap").read_bytes())
    take([folder / host for host in CAPTURES], folder / "tables", local_session(), ways=True)
    return folder / "tables"


def shown(columns: list[str], rows: list[tuple[Any, ...]]) -> str:
    """An answer as the page has it."""
    lines = [columns, *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n" for line in lines
    )


def _cell(value: Any) -> str:
    return re.sub(r"\.\d+", "", f"{value:%Y-%m-%d %H:%M}") if isinstance(value, datetime) else str(value)


def test_there_are_six_and_they_are_short() -> None:
    found = questions()
    assert len(found) == 6
    for one in found:
        lines = one.splitlines()
        assert len(lines) <= MOST_LINES
        assert max(map(len, lines)) <= LONGEST_LINE


def test_the_page_has_the_answers(tables: Path, request: pytest.FixtureRequest) -> None:
    database = database_of(tables)
    page = PAGE.read_text()
    for one in questions():
        found = database.execute(one)
        answer = shown([column[0] for column in found.description], found.fetchall())
        before, after = page.split(f"```sql\n{one}```\n\n```text\n")
        _, rest = after.split("```", 1)
        page = f"{before}```sql\n{one}```\n\n```text\n{answer}```{rest}"
    hold(request, PAGE, page)


@pytest.fixture(name="answers")
def _answers(tables: Path) -> list[list[tuple[Any, ...]]]:
    database = database_of(tables)
    return [database.execute(one).fetchall() for one in questions()]


def test_polars_says_the_same(tables: Path, answers: list[list[tuple[Any, ...]]]) -> None:
    context = polars.SQLContext({table: polars.scan_delta(f"{tables}/{table}") for table in TABLES})
    spark, own = PERCENTILE
    assert sum(spark in one for one in questions()) == 1
    assert f"`{own}`" in PAGE.read_text()
    for one, wanted in zip(questions(), answers, strict=True):
        assert context.execute(one.replace(spark, own)).collect().rows() == wanted


def test_requests_are_answered_or_not(tables: Path) -> None:
    database = database_of(tables, "all_")
    for name, query in views().items():
        database.execute(f"CREATE VIEW {name} AS {query}")
    found = database.execute("SELECT service, answered, count(*) FROM requests GROUP BY ALL ORDER BY ALL").fetchall()
    assert found == [
        ("127.0.0.1:20205", True, 12),
        ("127.0.0.1:5572", False, 1),
        ("127.0.0.1:5572", True, 5),
        ("127.0.0.1:59040", False, 1),
        ("127.0.0.1:59040", True, 5),
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("spark_installed")
def test_spark_says_the_same(tables: Path, answers: list[list[tuple[Any, ...]]]) -> None:
    from zmtpsniff.spark import open_tables
    from zmtpsniff.spark.session import get_session

    spark = get_session("local[1]")
    open_tables(spark, str(tables))
    for one, wanted in zip(questions(), answers, strict=True):
        found = [tuple(map(_without_zone, row)) for row in spark.sql(one).collect()]
        assert found == [tuple(map(_without_zone, row)) for row in wanted]


def _without_zone(value: Any) -> Any:
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value
