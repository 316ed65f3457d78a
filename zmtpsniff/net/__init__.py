"""TCP/IP: packets to segments and datagrams, segments to flows, flows to octets in causal order."""
