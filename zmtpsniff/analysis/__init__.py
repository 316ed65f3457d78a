"""Relations between events: patterns, payloads, bodies, statistics."""
