"""Reports: results, whoever computed them, as one page of HTML or as tables.

| module | what is in it |
| :-- | :-- |
| `results` | the results: records with types |
| `capture` | computes them from the events of captures, while these are read (`zmtpsniff report`) |
| `conversations` | chooses conversations to show, beside that |
| `sections` | results as tables of text |
| `tables` | these for a terminal |
| `page`, `ladder`, `charts` | the page: its HTML, conversations in it, and the data of its charts |
| `assets` | its style and scripts |

:mod:`zmtpsniff.spark.report` computes results from tables (`zmtpsniff spark report`).
"""
