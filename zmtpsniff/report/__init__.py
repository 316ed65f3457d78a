"""Reports: results of captures or of Spark's tables, as one page of HTML or as tables.

| module | what is in it |
| :-- | :-- |
| `results` | the results: records with types |
| `capture` | computes results from the events of captures, while they are read (`zmtpsniff report`) |
| `conversations` | chooses conversations to show, at the same time |
| `sections` | results as tables of text |
| `tables` | these tables for a terminal |
| `page`, `ladder`, `charts` | the page: its HTML, conversations in it, and the data of its charts |
| `assets` | its style and scripts |

:mod:`zmtpsniff.spark.report` computes results from tables (`zmtpsniff spark report`).
"""
