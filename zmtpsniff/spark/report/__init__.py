"""What tables say: the questions of ``zmtpsniff stats``, asked of what ``zmtpsniff spark ingest`` wrote.

| module | what is in it |
| :-- | :-- |
| `views` | the tables of a folder as temporary views; times as the command line has them |
| `queries` | the questions in Spark's SQL |
| `asking` | `report`: asks them, and makes records of the answers |
| `records` | the records, which are the lines of `-T json` |
| `draw` | tables for a terminal |
| `page`, `plots` | the page: HTML, and drawings in it made by matplotlib |

As a library::

    from zmtpsniff.spark import get_session
    from zmtpsniff.spark.report import make_views, report

    spark = get_session("local[2]")
    records = report(spark, "/tables", top=5)
    make_views(spark, "/tables")
    spark.sql("SELECT server, count(*) FROM connections GROUP BY server").show()
"""

from zmtpsniff.spark.report.asking import report
from zmtpsniff.spark.report.views import make_views

__all__ = ["make_views", "report"]
