"""The statements that make the tables name every column."""

from zmtpsniff.spark.tables import TABLES, ddl


def test_ddl_names_every_column() -> None:
    for table, columns in TABLES.items():
        text = ddl(table)
        assert all(f"`{column.name}` {column.sql}" in text for column in columns)
