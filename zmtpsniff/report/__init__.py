"""Reports: results of captures or of Spark's tables, as one page of HTML or as tables.

| module | what is in it |
| :-- | :-- |
| `results` | the results: records with types |
| `capture_report` | computes results from the events of captures, while they are read (`zmtpsniff report`) |
| `chosen_conversations`, `chosen_ways` | choose conversations and ways to show, at the same time |
| `sections` | results as tables of text |
| `terminal_tables` | these tables for a terminal |
| `page`, `charts` | the page: its HTML, and the data of its charts |
| `flow_ladder`, `waterfalls` | conversations and ways in the page |
| `assets` | its style and scripts |

:mod:`zmtpsniff.spark.report` computes results from tables (`zmtpsniff spark report`).
"""
