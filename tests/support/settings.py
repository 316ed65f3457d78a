"""How tests have captures dissected that look at one part of it."""

from zmtpsniff.engine.settings import Settings

WIRE = Settings(patterns=False, payload=False)
"""What the wire says."""
RELATIONS = Settings(payload=False)
"""And what messages mean to each other."""
