"""Protocols that are not ZMTP: what their two sides send, made up octet by octet as real programs would.

Each is a function that yields ``(side, octets)`` in the order in which programs speak; what a side says, it says after
it has read all before. No two conversations are alike: numbers, lengths and texts come of the ``Random``.
"""

from . import device_protocols, framings, internet_protocols, service_protocols
from .protocol_octets import Speak

PROTOCOLS: dict[str, Speak] = {
    "bgp": internet_protocols.bgp,
    "telnet": internet_protocols.telnet,
    "dns": internet_protocols.dns,
    "ssh": internet_protocols.ssh,
    "tls": internet_protocols.tls,
    "http": internet_protocols.http,
    "http2": internet_protocols.http2,
    "rtmp": internet_protocols.rtmp,
    "smtp": internet_protocols.smtp,
    "bittorrent": internet_protocols.bittorrent,
    "smb": internet_protocols.smb,
    "redis": service_protocols.redis,
    "memcached": service_protocols.memcached,
    "mysql": service_protocols.mysql,
    "postgresql": service_protocols.postgresql,
    "mongodb": service_protocols.mongodb,
    "cassandra": service_protocols.cassandra,
    "kafka": service_protocols.kafka,
    "amqp 0-9-1": service_protocols.amqp_0_9,
    "mqtt": service_protocols.mqtt,
    "ldap": device_protocols.ldap,
    "rdp": device_protocols.rdp,
    "x11": device_protocols.x11,
    "vnc": device_protocols.vnc,
    "modbus": device_protocols.modbus,
    "dnp3": device_protocols.dnp3,
    "len8": framings.frames8,
    "len16": framings.frames16,
    "len32": framings.frames32,
    "random": framings.random_octets,
    "random after FF": framings.random_after_ff,
}
