"""Packets in, events out: the engine of flows and dissectors, the pump that drives it, and its settings."""
