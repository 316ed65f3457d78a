"""The gossip protocol of CZMQ (zeromq/czmq, src/zgossip_msg.xml)."""

from dissectors.payloads.zproto import Codec

# Tuples that peers tell each other.
ZGOSSIP = Codec(
    "zgossip",
    b"\xaa\xa0",
    """
    1 HELLO
    2 PUBLISH key:string value:longstr ttl:number-4 | key value
    3 PING
    4 PONG
    5 INVALID
    """,
    version=1,
)
