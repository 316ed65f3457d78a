"""Looking around in a capture: its records by number, the places of their octets, and a terminal to walk about in."""
