"""The page on Spark has the tables as they are."""

import pytest

from tests.support.paths import PROJECT
from zmtpsniff.spark.tables import OCTETS, TABLES, ddl

PAGE = PROJECT / "docs" / "spark.md"
BEGIN, END = "<!-- tables: begin -->\n", "<!-- tables: end -->\n"


def tables() -> str:
    parts = [f"`OCTETS` is `{OCTETS}`: how many there were on the wire, and those at hand.\n"]
    for table, columns in TABLES.items():
        rows = "".join(
            f"| `{column.name}` | {column.sql.replace(OCTETS, 'OCTETS')}{column.unit and f', {column.unit}'} "
            f"| {column.meaning} |\n"
            for column in columns
        )
        parts.append(f"### {table}\n\n| column | type | what it is |\n| :-- | :-- | :-- |\n{rows}")
    return "\n".join(parts)


def test_the_page_has_the_tables(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    whole = f"{before}{BEGIN}\n{tables()}\n{END}{after}"
    if request.config.getoption("--renew-golden"):
        PAGE.write_text(whole)
    assert PAGE.read_text() == whole


def test_ddl_names_every_column() -> None:
    for table, columns in TABLES.items():
        text = ddl(table)
        assert all(f"`{column.name}` {column.sql}" in text for column in columns)
