"""Looking around in a capture: its records by number, where their octets are, and a terminal to walk about in."""
