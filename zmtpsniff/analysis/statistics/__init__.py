"""Statistics: who talks to whom, how much, how fast. One pass over the events, in memory that has a limit.

`Statistics` counts, `report` makes records of what it counted, `draw` tables of these.
"""

from zmtpsniff.analysis.statistics.statistics import Statistics

__all__ = ["Statistics"]
