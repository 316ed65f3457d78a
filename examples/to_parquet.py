"""The messages of a capture as a table in a file of Parquet: python to_parquet.py CAPTURE FILE.parquet.

It needs pyarrow: pip install 'zmtpsniff[arrow]'. Then in DuckDB, for example:
SELECT topic, count(*) FROM 'FILE.parquet' GROUP BY topic.
"""

import sys

import pyarrow.parquet

import zmtpsniff


def main(path: str, target: str) -> None:
    """Write the table."""
    with zmtpsniff.open(path) as capture:
        table = capture.to_arrow()
    pyarrow.parquet.write_table(table, target)
    print(f"{table.num_rows} messages, columns {', '.join(table.column_names)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
