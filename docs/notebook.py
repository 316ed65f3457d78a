"""The cells of notebook.ipynb; make_notebook.py makes the notebook from them, with what they print."""
# ruff: noqa: E402  # each cell imports what it needs

# %% [markdown]
# # ZeroMQ traffic in a notebook
#
# `zmtpsniff.open()` gives Python what `zmtpsniff read` shows: typed events, with frames as `bytes`. The capture here is
# one of those in the repository: clients ask a service through a proxy of ROUTER and DEALER. Put your own in its place.

# %%
from pathlib import Path

import zmtpsniff

CAPTURE = next(path for path in (Path("../fixtures"), Path("fixtures")) if path.is_dir()) / "rec_proxy_ok.pcap"
capture = zmtpsniff.open(CAPTURE)
totals = capture.totals
print(f"{totals.packets} packets, {totals.zmtp_flows} connections, {totals.messages} messages")

# %% [markdown]
# Every loop reads the file from its beginning, so that there is nothing to keep. Who is connected to whom?

# %%
for connection in capture.connections():
    client, server = connection.client, connection.server
    print(f"{client.socket_type:7} {client.address:21} to {server.socket_type:7} {server.address:21}", end=" ")
    print(f"{connection.messages.client:3} messages there, {connection.messages.server:3} back")

# %% [markdown]
# `where` is a [display filter](filters.md), as after `-Y`. What does the service answer? In front of what it says
# stands an envelope of identities, which ends with an empty frame.

# %%
from itertools import islice

for message in islice(zmtpsniff.open(CAPTURE, where='socket_type == "REP"').messages(), 5):
    print(message.src, message.frames, f"{(message.latency_ns or 0) / 1e6:.3f} ms after packet {message.request}")

# %% [markdown]
# A field that analysis found out, such as `latency_ns`, is `None` where it does not apply.

# %%
from collections import defaultdict
from statistics import median

latencies = defaultdict(list)
for message in capture.messages():
    if message.latency_ns is not None:
        latencies[message.socket_type].append(message.latency_ns / 1e6)
for kind, found in sorted(latencies.items()):
    print(f"{kind:7} {len(found):4} replies: half within {median(found):.3f} ms, all within {max(found):.3f} ms")

# %% [markdown]
# `forwards` names the message that a proxy got and sent on, so that a request can be followed to its service.

# %%
messages = {(message.flow, message.packet): message for message in capture.messages()}
message, got = next((message, message.forwards) for message in messages.values() if message.forwards is not None)
origin = messages[got.flow, got.packet]
print(f"{origin.src} to {origin.dst}, then {message.src} to {message.dst}")
print(f"{(message.time_ns - origin.time_ns) / 1e3:.0f} µs in the proxy: {message.frames[-1]!r}")

# %% [markdown]
# What is wrong is what [diagnose](diagnose.md) says; nothing is, here. In the next capture a client is in a hurry.

# %%
print(capture.findings())
for finding in zmtpsniff.open(CAPTURE.with_name("rec_reconnect_storm.pcap")).findings():
    print(f"{finding.severity}: {finding.summary}")
    print(f"    {finding.advice}")

# %% [markdown]
# With pandas and pyarrow (`pip install pandas pyarrow`) `capture.to_pandas()` is a data frame of all messages, and
# `capture.to_pandas(Connection)` one of the connections. [Python](python.md) has all that there is;
# [the other notebook](spark-notebook.ipynb) asks tables of many captures.
