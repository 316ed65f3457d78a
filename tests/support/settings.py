"""Settings of tests that look at one part of a dissection."""

from zmtpsniff.engine.settings import Settings

WIRE = Settings(patterns=False, payload=False)
"""Facts of the wire alone."""
RELATIONS = Settings(payload=False)
"""And what messages mean to each other."""
