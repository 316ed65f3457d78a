"""Settings of tests that look at one part of a dissection."""

from zmtpsniff.engine.settings import Settings

WIRE = Settings(patterns=False, payload=False)
"""What the wire says."""
RELATIONS = Settings(payload=False)
"""And what messages mean to each other."""
