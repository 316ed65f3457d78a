"""What this machine knows of connections that its programs have: their keys, their processes (Linux).

What needs root's rights runs in a helper of its own (helper.py). It imports nothing that reads octets of the network.
"""
