"""What this machine knows of the connections of its programs: keys and processes (Linux).

A helper process has the parts that need root's rights (helper.py). It imports nothing that reads octets of the
network.
"""
