"""zmtpsniff: see what ZeroMQ programs say to each other."""

__version__ = "0.9.0"
