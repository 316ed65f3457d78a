"""Keys of CURVE connections, taken from the programs of this machine that have them (Linux).

Nothing in here reads an octet that came from the network: what it is given of a capture it only compares.
"""
