"""What events mean to each other: patterns, payloads, bodies, statistics."""
