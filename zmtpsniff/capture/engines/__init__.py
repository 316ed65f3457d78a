"""Engines: what captures packets from interfaces while they pass.

- ``engine.py`` says what an engine is and has to do.
- ``process.py`` runs dumpcap or tcpdump. ``guard.py`` is a shell beside it that waits on a pipe from us: whatever
  happens to us, it ends the program and all that the program has started.
- ``scapy.py`` opens sockets with scapy, attaches the filter (``bpf.py``) and reads the sockets through a ring that the
  kernel fills (``packet_ring.py``).
- ``tshark.py`` puts tshark behind dumpcap. For extcap programs it puts tshark behind another tshark, which runs them.

Everything that needs root happens in ``Engine.start()``. Then ``drop_privileges()`` gives root up, and only then
``Engine.pieces()`` looks at what came from the network.
"""
