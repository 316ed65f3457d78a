"""Networks that have addresses in common: a capture of a trunk or an overlay may hold several.

Theory
------

VLAN tags, VXLAN, Geneve and keys of GRE name the network of a packet by labels. Other labels need not mean another
network: a router passes a packet on with other labels, two directions of a connection may have different ones (private
VLANs, asymmetric routes), and a server is seen in the VLAN of each of its clients where the capture point is in front
of the router. So labels alone tell nothing:

- Labels are of *one* network if a connection goes on in them: the same addresses and ports, with numbers that fit.
- Labels are of *two* networks if a host is local to both, and nothing shows that they are one. A host is local where
  its packets have the number of hops that hosts begin with: no router has passed them on.

Hardware addresses tell nothing: containers make theirs from their IP addresses.

The network that shows itself second becomes a *zone*: its connections have its labels before their keys, and so they
have other addresses everywhere behind this module. A connection keeps what it began with. Its network is known once the
other side answers, when copies of its first packet have come. Then the register of flows moves it, if need be
(FlowRegister.find()).
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from dissectors.address import host_of
from zmtpsniff.net.addresses import GRE_KEY, LABEL, MOST_LABELS, VLAN, VNI, addresses, reverse, zone_name
from zmtpsniff.net.encapsulation import (
    GENEVE_PORT,
    GRE,
    IP_PROTOCOL,
    OLD_VXLAN_PORT,
    TRANSPARENT_ETHERNET,
    UDP_PORT,
    VXLAN_PORT,
)
from zmtpsniff.net.reassembly import WINDOW, distance
from zmtpsniff.net.segment import ACK, SYN
from zmtpsniff.words import link_types

_GRE_HEADER = IP_PROTOCOL | GRE
_VNI_HEADERS = frozenset(UDP_PORT | port for port in (VXLAN_PORT, OLD_VXLAN_PORT, GENEVE_PORT))
LABELLED = link_types.VLAN_TAGS | {_GRE_HEADER} | _VNI_HEADERS
_FIRST_HOPS = frozenset((64, 128, 255))  # with which systems send packets
_MOST = 1 << 16  # directions, and hosts, that are remembered
_MOST_LABELS = 16  # of packets of one direction
_MOST_NETWORKS = 1 << 10  # of one address


def labels_behind(labels: bytes, kind: int, data: bytes, start: int) -> bytes:
    """The labels of a packet behind a header of this kind, which begins at ``start``; before it they were ``labels``.

    A tunnel has a network of its own, wherever it passes.
    """
    if kind in link_types.VLAN_TAGS:
        number = int.from_bytes(data[start : start + 2], "big") & 0xFFF
        return (labels + LABEL.pack(VLAN, number))[-MOST_LABELS * LABEL.size :] if number else labels  # 0: a priority
    if kind in _VNI_HEADERS:
        return LABEL.pack(VNI, int.from_bytes(data[start + 4 : start + 7], "big"))
    flags, protocol = struct.unpack("!HH", data[start : start + 4].ljust(4, b"\0"))
    if not flags & 0x2000:  # RFC 2890
        return labels
    place = start + (8 if flags & 0x8000 else 4)  # behind a checksum
    number = int.from_bytes(data[place : place + 4], "big")
    return LABEL.pack(GRE_KEY, number >> 8 if protocol == TRANSPARENT_ETHERNET else number)  # RFC 7637: with a flow


class _Place(msgspec.Struct, array_like=True):
    """A direction of a connection, as packets with one stack of labels show it."""

    zone: bytes
    is_local: bool  # no router has passed its packets on
    is_alone: bool  # nothing of the other direction has come
    number: int = 0  # of its last segment


class NetworkFacts(msgspec.Struct, array_like=True):
    """The facts of all networks of a capture, for another run."""

    places: dict[bytes, dict[bytes, _Place]] = {}  # by key without zone, and labels
    local: dict[bytes, dict[bytes, None]] = {}  # a host's address to the labels where it is local
    joined: dict[bytes, bytes] = {}  # labels to others of the same network
    zones: set[bytes] = set()
    is_told: bool = False  # a run has told of two networks


class Networks:
    """Gives the segments of networks that have addresses in common different keys."""

    def __init__(
        self, number_of: Callable[[bytes], int | None] = lambda key: None, facts: NetworkFacts | None = None
    ) -> None:
        """Start with one network, or with ``facts``, which change.

        ``number_of`` says which sequence number follows in the direction with a key; None if it is not known. Not all
        segments of a direction come here.
        """
        self._number_of = number_of
        self._facts = facts = NetworkFacts() if facts is None else facts
        self._places, self._local, self._joined, self._zones = facts.places, facts.local, facts.joined, facts.zones
        self._example: tuple[str, bytes, bytes] | None = None

    def key(self, labels: bytes, key: bytes, hops: int, seq: int, ack: int, flags: int) -> bytes:
        """The key of a segment's direction, in front of which the packet has labels."""
        places = self._places.get(key)
        place = None if places is None else places.get(labels)
        if place is None or (flags & SYN and place.number != seq):
            place = self._meet(labels, key, hops, seq, ack, flags)
        place.number = seq
        return place.zone + key

    def zone(self, labels: bytes) -> bytes:
        """The labels before the keys of new connections in this network; empty for the first network."""
        network = self._network(labels)
        return network if network in self._zones else b""

    def problems(self) -> list[tuple[str, str]]:
        """The problem to tell at the end of the capture, once."""
        if self._example is None or self._facts.is_told:
            return []
        self._facts.is_told = True
        host, first, second = self._example
        zone = zone_name(second)
        detail = f"{host} is two hosts, one in {zone_name(first)} and one in {zone}: the latter is {host}%{zone} here"
        return [("networks-overlap", detail)]

    def _meet(self, labels: bytes, key: bytes, hops: int, seq: int, ack: int, flags: int) -> _Place:
        """Take the first segment of a direction with these labels."""
        back = reverse(key)
        twin = next(self._twins(labels, key, seq), None)
        other = None
        if flags & ACK:
            twin = twin or next(self._twins(labels, back, ack), None)
            other = self._places.get(back, {}).get(labels)
        place = _Place(self.zone(labels), hops in _FIRST_HOPS, other is None)
        if twin is not None:
            place.zone = twin.zone
        elif other is not None:
            if other.is_alone and not other.zone:
                self._see_local(labels, back, other)
                self._see_local(labels, key, place)
                other.zone = self.zone(labels)
            place.zone = other.zone
        if other is not None:
            other.is_alone = False
        _make_room(self._places, _MOST)
        places = self._places.setdefault(key, {})
        _make_room(places, _MOST_LABELS)
        places[labels] = place
        return place

    def _twins(self, labels: bytes, key: bytes, number: int) -> Iterator[_Place]:
        """The same connection with other labels, which are of the same network."""
        for other, place in self._places.get(key, {}).items():
            if other == labels:
                continue
            numbers = place.number, self._number_of(place.zone + key)
            if any(one is not None and abs(distance(number, one)) <= WINDOW for one in numbers):
                self._join(other, labels)
                yield place

    def _network(self, labels: bytes) -> bytes:
        """The labels that stand for all of the same network."""
        while (other := self._joined.get(labels)) is not None:
            labels = other
        return labels

    def _join(self, labels: bytes, others: bytes) -> None:
        """Labels are of one network; it is the first one, if one of them is."""
        one, other = self._network(labels), self._network(others)
        if one != other and len(self._joined) < _MOST:
            if one in self._zones:
                one, other = other, one
            self._joined[other] = one
            self._zones.discard(other)

    def _see_local(self, labels: bytes, key: bytes, place: _Place) -> None:
        """A connection has both directions. If its sender is local, no other network's host of that address is it."""
        if not place.is_local:
            return
        host = key[: len(key) // 2 - 2]
        _make_room(self._local, _MOST)
        known = self._local.setdefault(host, {})
        if labels in known or len(known) >= _MOST_NETWORKS:
            return
        network = self._network(labels)
        others = {self._network(other) for other in known} - {network} - self._zones
        if others and network not in self._zones:
            self._zones.add(network)
            text = host_of(addresses(key)[0].text)
            self._example = self._example or (text, min(others), network)
        known[labels] = None


def _make_room(known: dict[bytes, Any], most: int) -> None:
    """Forget what came first, if there is as much as there may be."""
    if len(known) >= most:
        del known[next(iter(known))]
