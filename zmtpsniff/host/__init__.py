"""The keys and processes of connections, as far as this machine knows those of its programs (Linux).

A helper process has the parts that need root's rights (helper.py). It imports nothing that reads octets of the
network.
"""
