"""Statistics: who talks to whom, how much, how fast. One pass over the events, in memory that has a limit.

`Statistics` counts, `report` makes records of the counts, `draw` makes tables of the records.
"""
