"""ZMTP, the ZeroMQ Message Transport Protocol, versions 1.0 to 3.1."""
