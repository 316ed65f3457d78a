"""Reports from tables: the questions of ``zmtpsniff stats``, asked of what ``zmtpsniff spark ingest`` wrote.

| module | what is in it |
| :-- | :-- |
| `answers` | `report`: asks the questions, and makes results of the answers (:mod:`zmtpsniff.report`) |
| `queries` | the questions in SQL |
| `snapshot` | the tables of a folder as DuckDB has them, which answers |
| `vantage` | SQL that counts each connection once, however many captured it, and tells network from service |
| `views` | the tables of a folder as temporary views of Spark, for questions of one's own |

As a library::

    from zmtpsniff.spark import get_session, open_tables
    from zmtpsniff.spark.report import report

    results = report("/tables", top=5)
    spark = get_session("local[2]")
    open_tables(spark, "/tables")
    spark.sql("SELECT server, count(*) FROM connections GROUP BY server").show()
"""

from zmtpsniff.spark.report.answers import report

__all__ = ["report"]
