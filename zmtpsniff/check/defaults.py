"""The defaults of checks."""

SHOWN = 5
"""Offending records of each rule that are kept to be shown."""
TOLD = 3  # faults of services, and reasons why nobody knows, in words
TOPIC_OCTETS = 64  # of a topic in words

FACTOR = 2.0
"""The factor by which rates and latencies may change under a policy that --init writes."""

TOLERANCE = 100.0
"""Percent by which rates and latencies may differ from those before."""
