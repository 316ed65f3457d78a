"""Patterns: what messages mean to each other. They add to events, and find problems that one message does not show."""

from zmtpsniff.analysis.patterns.patterns import NO_HORIZONS, Patterns

__all__ = ["NO_HORIZONS", "Patterns"]
