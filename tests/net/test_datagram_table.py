"""RADIO over UDP, and PGM and EPGM: a real capture whose packets are disturbed, and datagrams that are not ours."""

import struct
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissectors.events import AnyEvent, Capture, Connection, Cut, Message, Problem
from tests.support.examples import examples
from tests.support.paths import FIXTURES
from tests.support.settings import WIRE
from tests.world.events import events_of, is_subsequence, problems, sniff
from tests.world.octets import frame_v1
from tests.world.tap import Packets, load
from zmtpsniff.capture.block import Packet
from zmtpsniff.decode_as import parse
from zmtpsniff.engine.sniffer import Sniffer
from zmtpsniff.net.limits import FlowLimits
from zmtpsniff.net.pgm import ODATA, RDATA, SPM

ETHERNET = 1
UDP_PAYLOAD = 14 + 20 + 8  # where it begins
ADDRESSES = bytes([10, 0, 0, 1, 239, 0, 0, 1])
SECOND = 1_000_000_000


def epgm() -> list[Packet]:
    return load(FIXTURES / "epgm_pub_sub.pcap")


def kind_of(packet: Packet) -> int:
    return packet[2][UDP_PAYLOAD + 4]


def messages(events: Sequence[AnyEvent]) -> list[list[Any]]:
    return [event.frames for event in events if isinstance(event, Message) and not event.incomplete]


ALL = messages(sniff(epgm()))
DATA = [index for index, packet in enumerate(epgm()) if kind_of(packet) == ODATA]


def checksum(octets: bytes) -> bytes:
    padded = octets + b"\0" if len(octets) % 2 else octets
    return (0xFFFF - int.from_bytes(padded, "big") % 0xFFFF).to_bytes(2, "big")


def summed(pgm: bytes) -> bytes:
    """A PGM packet with its checksum made right."""
    bare = pgm[:6] + b"\0\0" + pgm[8:]
    return pgm[:6] + checksum(bare) + pgm[8:]


def pgm(kind: int, sequence: int, tsdu: bytes = b"", trail: int = 0, options: bytes = b"", flags: int = 0) -> bytes:
    header = struct.pack("!HHBBH6sH", 27, 7500, kind, flags or bool(options), 0, b"sender", len(tsdu))
    return summed(header + struct.pack("!II", sequence, trail) + options + tsdu)


def spm(lead: int, trail: int = 0) -> bytes:
    header = struct.pack("!HHBBH6sH", 27, 7500, SPM, 0, 0, b"sender", 0)
    return summed(header + struct.pack("!IIIHH4s", 0, trail, lead, 1, 0, b"\x0a\0\0\1"))


def ip(payload: bytes, protocol: int, number: int = 0, fragment: int = 0) -> Packet:
    header = struct.pack("!BBHHHBBH8s", 0x45, 0, 20 + len(payload), 7, fragment, 1, protocol, 0, ADDRESSES)
    data = bytes(12) + b"\x08\x00" + header + payload
    return number * 1000, ETHERNET, data, len(data), None


def raw(payload: bytes, number: int = 0) -> Packet:
    """A packet of PGM itself, without UDP."""
    return ip(payload, 113, number)


def udp(payload: bytes, number: int = 0, port: int = 7500) -> Packet:
    return ip(struct.pack("!HHHH", 4000, port, 8 + len(payload), 0) + payload, 17, number)


def as_repair(packet: Packet, time_ns: int) -> Packet:
    data = packet[2]
    begin = data[UDP_PAYLOAD:]
    return time_ns, ETHERNET, data[:UDP_PAYLOAD] + summed(begin[:4] + bytes([RDATA]) + begin[5:]), len(data), None


def test_all_is_read() -> None:
    assert len(ALL) == 62
    events = sniff(epgm())
    assert problems(events) == []
    (summary,) = (event for event in events if isinstance(event, Connection))
    assert (summary.transport, summary.version, summary.handshake, summary.end) == ("epgm", "1.0", None, "open")
    assert (summary.client.address, summary.server.address) == ("10.77.0.1:27", "239.192.1.1:21418")


def test_pgm_without_udp_is_the_same() -> None:
    packets = [
        (time_ns, link, data[:23] + b"\x71" + data[24:34] + data[UDP_PAYLOAD:], wire, comment)
        for time_ns, link, data, wire, comment in epgm()
    ]
    packets = [
        (time_ns, link, data[:16] + (len(data) - 14).to_bytes(2, "big") + data[18:], len(data), comment)
        for time_ns, link, data, _, comment in packets
    ]
    events = sniff(packets)
    assert messages(events) == ALL
    assert [event.transport for event in events if isinstance(event, Connection)] == ["pgm"]


@settings(deadline=None, max_examples=examples(50))
@given(st.integers(0, 1 << 32), st.sampled_from([1, 5, 30]))
def test_order_does_not_matter(seed: int, distance: int) -> None:
    """Packets that others overtake, and some that come twice."""
    random = Random(seed)
    packets = epgm()
    first = DATA[0] + 1
    late = [(index + random.random() * distance * (index >= first), packet) for index, packet in enumerate(packets)]
    late += [(index + 3.5, packets[index]) for index in random.sample(DATA[5:], 5)]
    times = sorted(packet[0] for _, packet in late)
    ordered = [packet for _, packet in sorted(late, key=lambda item: item[0])]
    events = sniff([(time_ns, *packet[1:]) for time_ns, packet in zip(times, ordered, strict=True)])
    assert messages(events) == ALL
    assert problems(events) == []


@settings(deadline=None, max_examples=examples(50))
@given(st.sets(st.sampled_from(DATA[1:]), min_size=1, max_size=20), st.booleans())
def test_lost_packets_cost_their_messages_only(lost: set[int], repaired: bool) -> None:
    packets = epgm()
    last = packets[-1][0]
    kept = [packet for index, packet in enumerate(packets) if index not in lost]
    if repaired:
        kept += [as_repair(packets[index], last + index) for index in sorted(lost, reverse=True)]
        assert messages(sniff(kept)) == ALL
        assert problems(sniff(kept)) == ["multicast-repaired"]
        return
    events = sniff(kept)
    assert is_subsequence(messages(events), ALL)
    assert len(messages(events)) >= len(ALL) - 2 * len(lost)
    assert set(problems(events)) <= {"multicast-lost", "capture-ends-inside"}
    assert "multicast-lost" in problems(events)


@settings(deadline=None, max_examples=examples(20))
@given(st.sampled_from(DATA[:20]))
def test_a_capture_that_starts_later(first: int) -> None:
    events = sniff(epgm()[first:])
    assert problems(events) == []
    assert messages(events) == ALL[len(ALL) - len(messages(events)) :]
    assert len(messages(events)) >= len(ALL) - (first - DATA[0]) - 2


def test_what_waits_for_a_repair_is_given_up_in_the_end() -> None:
    packets = epgm()
    hole = DATA[20]
    end = packets[-1]
    kept = [packet for index, packet in enumerate(packets) if index != hole]
    later = (end[0] + 11 * SECOND, *end[1:])
    sniffer = Sniffer(Packets([*kept, later]), WIRE)
    batches = [*sniffer.events()]
    assert "multicast-lost" in problems(batches[0])  # not at the end of the capture only
    assert len(messages(batches[0])) == len(ALL) - 1


def test_a_repair_is_waited_for_while_other_packets_come() -> None:
    packets = epgm()
    hole = DATA[20]
    end = packets[-1]
    kept = [packet for index, packet in enumerate(packets) if index != hole]
    soon = (end[0] + 9 * SECOND, *end[1:])
    events = sniff([*kept, soon, as_repair(packets[hole], soon[0] + 1)], batch=1)
    assert messages(events) == ALL
    assert problems(events) == ["multicast-repaired"]


def test_the_trailing_edge_says_that_nothing_will_be_repaired() -> None:
    message = b"\0\0" + frame_v1(b"hello")
    packets = [raw(pgm(ODATA, 5, message)), raw(pgm(ODATA, 9, message), 1), raw(pgm(ODATA, 10, message, trail=9), 2)]
    packets += [raw(spm(lead=15, trail=12), 3), raw(pgm(ODATA, 12, message), 4)]
    events = sniff(packets)
    assert messages(events) == [[b"hello"]] * 4
    lost = [event for event in events if isinstance(event, Problem) and event.code == "multicast-lost"]
    assert [event.detail.split(" are")[0] for event in lost] == [
        "3 data packets",
        "1 data packet is not in the capture, nor is a repair",
        "3 data packets",
    ]


def test_sequence_numbers_wrap() -> None:
    message = b"\0\0" + frame_v1(b"hello")
    numbers = [0xFFFF_FFFE, 0, 0xFFFF_FFFF, 1]
    events = sniff([raw(pgm(ODATA, number, message, 0xFFFF_FFF0), index) for index, number in enumerate(numbers)])
    assert messages(events) == [[b"hello"]] * 4
    assert problems(events) == []


def test_fragments_of_an_apdu_have_one_offset() -> None:
    apdu = b"\0\0" + frame_v1(b"x" * 3000) + frame_v1(b"end")
    packets = []
    for number, at in enumerate(range(0, len(apdu), 1000)):
        option = struct.pack("!BBHBBBxIII", 0, 4, 20, 0x80 | 1, 16, 0, 0, at, len(apdu))
        packets.append(raw(pgm(ODATA, number, apdu[at : at + 1000], options=option), number))
    assert messages(sniff(packets)) == [[b"x" * 3000], [b"end"]]


def test_options_may_take_more_than_255_octets() -> None:
    of_another_kind = bytes([0x7D, 252, *bytes(250)])
    fragment = struct.pack("!BBBxIII", 0x80 | 1, 16, 0, 0, 0, 9)
    options = struct.pack("!BBH", 0, 4, 4 + 252 + 16) + of_another_kind + fragment
    packets = [raw(pgm(ODATA, 0, b"\0\0" + frame_v1(b"hello"), options=options))]
    assert messages(sniff(packets)) == [[b"hello"]]


def test_parity_is_told_but_not_used() -> None:
    message = b"\0\0" + frame_v1(b"hello")
    packets = [
        raw(pgm(ODATA, 1, message)),
        raw(pgm(RDATA, 1, bytes(20), flags=0x80), 1),
        raw(pgm(ODATA, 2, message), 2),
    ]
    events = sniff(packets)
    assert messages(events) == [[b"hello"]] * 2
    assert problems(events) == ["multicast-parity"]
    assert "does not use 1 packet of parity:" in next(event.detail for event in events if isinstance(event, Problem))


def test_what_only_parity_could_repair_is_lost() -> None:
    message = b"\0\0" + frame_v1(b"hello")
    packets = [raw(pgm(ODATA, number, message), number) for number in (1, 2, 4)]
    events = sniff([*packets, raw(pgm(ODATA, 1, bytes(20), flags=0x80), 5)])
    assert messages(events) == [[b"hello"]] * 3
    assert problems(events) == ["multicast-lost", "multicast-parity"]


FOREIGN = [b"\0\0" + bytes(20), b"\0\0some text that is no ZMTP", b"\x7f\xff", b"\0", b"", b"\0\4" + bytes(6)]


@pytest.mark.parametrize("tsdu", FOREIGN)
@pytest.mark.parametrize("wrap", [raw, udp])
def test_other_pgm_is_not_told(tsdu: bytes, wrap: Any) -> None:
    events = sniff([wrap(spm(0)), *(wrap(pgm(ODATA, number, tsdu), number) for number in range(1, 5))])
    assert [type(event) for event in events] == [Capture]


def test_other_udp_is_not_told() -> None:
    damaged = bytearray(pgm(ODATA, 1, b"\0\0" + frame_v1(b"hello")))
    damaged[-1] ^= 1
    packets = [udp(bytes(damaged)), udp(b""), udp(b"x" * 40), udp(b"\x03abc hello")]
    told, _ = sniff(packets)
    assert isinstance(told, Problem)
    assert (told.severity, told.detail) == ("note", "no connection is in the capture; other packets: 4 UDP")


def test_packets_cut_by_the_snaplen() -> None:
    packets = [(time_ns, link, data[:300], wire, comment) for time_ns, link, data, wire, comment in epgm()]
    events = sniff(packets)
    assert set(problems(events)) == {"packets-cut", "multicast-lost"}
    assert is_subsequence(messages(events), ALL)
    assert len(messages(events)) == len(ALL) - 2


def radio(packets: list[Packet], rule: str = "udp.port==7500,zmtp") -> list[AnyEvent]:
    return sniff(packets, settings=WIRE._replace(decode_as=(parse(rule),)))


def test_radio_messages() -> None:
    whole = udp(b"\x05group" + b"x" * 100, 2)
    cut = (3000, ETHERNET, whole[2][:-40], whole[3], None)
    events = radio([udp(b"\x05grouphello"), udp(b"\0", 1), whole, cut, udp(b"\x05other", 4, port=7501)])
    found = [(event.frames, event.incomplete) for event in events if isinstance(event, Message)]
    assert found == [
        ([b"group", b"hello"], False),
        ([b"", b""], False),
        ([b"group", b"x" * 100], False),
        ([b"group", Cut(b"x" * 60, 100)], True),
    ]
    assert problems(events) == ["packets-cut"]
    (summary,) = (event for event in events if isinstance(event, Connection))
    assert (summary.transport, summary.octets.client, summary.messages.client) == ("udp", 11 + 1 + 106 + 106, 4)


def test_datagrams_that_cannot_hold_their_group() -> None:
    events = radio([udp(b"\x05grou"), udp(b"")])
    assert problems(events) == ["bad-radio-datagram"] * 2
    assert messages(events) == []


def test_a_datagram_in_fragments() -> None:
    body = bytes(range(256)) * 20
    datagram = struct.pack("!HHHH", 4000, 7500, 14 + len(body), 0) + b"\x05group" + body
    packets = [
        ip(datagram[at : at + 800], 17, at, at // 8 | 0x2000 * (at + 800 < len(datagram)))
        for at in range(0, len(datagram), 800)
    ]
    assert messages(radio(packets)) == [[b"group", body]]


@pytest.mark.parametrize(
    ("limits", "told_at"), [(FlowLimits(waiting_octets_per_direction=1000), 6), (FlowLimits(), 19)]
)
def test_what_waits_for_a_repair_is_bounded(limits: FlowLimits, told_at: int) -> None:
    sent = [raw(pgm(ODATA, number, b"\0\0" + frame_v1(bytes(200))), number) for number in range(20) if number != 1]
    events = events_of(sent, WIRE._replace(flow_limits=limits))
    assert len(messages(events)) == len(sent)
    (lost,) = (event for event in events if isinstance(event, Problem))
    assert (lost.code, lost.packet) == ("multicast-lost", told_at)


def test_senders_that_are_idle_end_and_the_oldest_make_room() -> None:
    def ends(limits: FlowLimits, ports: Sequence[int], step: int = 1) -> list[tuple[str, str]]:
        sent = [udp(b"\x05group%d" % port, number * step, port) for number, port in enumerate(ports)]
        chosen = WIRE._replace(
            flow_limits=limits, decode_as=tuple(parse(f"udp.port=={port},zmtp") for port in {*ports})
        )
        events = events_of(sent, chosen)
        assert len(messages(events)) == len(ports)
        return [(event.server.address[-1], event.end) for event in events if isinstance(event, Connection)]

    timeout, last = "timeout", "open"
    assert ends(FlowLimits(flows=2), [1, 2, 1, 3]) == [("2", timeout), ("1", last), ("3", last)]
    idle = FlowLimits(idle_seconds=2)
    assert ends(idle, [1, 2, 2, 2], SECOND // 1000) == [("1", timeout), ("2", last)]
    assert ends(idle, [1, 1], 3 * SECOND // 1000) == [("1", timeout), ("1", last)]


@pytest.mark.parametrize("rule", ["udp.port==5,zmtp2", "udp.port==5,http", "sctp.port==5,zmtp"])
def test_rules_that_make_no_sense(rule: str) -> None:
    with pytest.raises(ValueError, match=r"udp|http|rule"):
        parse(rule)


@settings(deadline=None, max_examples=examples(200))
@given(
    st.lists(st.tuples(st.binary(max_size=60), st.integers(0, 0xFFFF_FFFF), st.sampled_from([ODATA, RDATA, SPM, 9])))
)
def test_hostile_packets_raise_nothing(given_: list[tuple[bytes, int, int]]) -> None:
    packets = [raw(pgm(ODATA, 1, b"\0\0" + frame_v1(b"hello")))]
    for number, (octets, sequence, kind) in enumerate(given_):
        packets.append(raw(pgm(kind, sequence, octets, trail=sequence // 2), number))
        packets.append(raw(octets, number))
        packets.append(udp(octets, number))
    radio(packets)
