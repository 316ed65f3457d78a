"""A simulated capture point."""
