"""Protocol dissectors: octets in, events out, without any input or output of their own."""
