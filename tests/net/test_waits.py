"""Sides that let the other side wait: closed windows are in tests of findings, octets without acknowledgment here."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.analysis.findings.diagnoses import diagnose_packets
from tests.world.conversation import Conversation, Piece
from tests.world.network import SentSegment, packets, segments
from tests.world.octets import frame, greeting, ready
from tests.world.recordings import conversations
from zmtpsniff.analysis.findings.finding import Finding
from zmtpsniff.capture.block import Packet
from zmtpsniff.net.segment import ACK

MS = 1_000_000


def published() -> Conversation:
    return next(talk for talk in conversations() if talk.name == "m31_pub_sub:1")


def findings(given: Sequence[Packet], code: str = "subscriber-slow") -> list[Finding]:
    return [one for one in diagnose_packets(given) if one.code == code]


def timed(sent: Sequence[SentSegment], times_ms: Sequence[int]) -> list[Packet]:
    """Packets at times given."""
    made = packets(sent)
    start_ns = made[0][0]
    return [(start_ns + time_ms * MS, *packet[1:]) for time_ms, packet in zip(times_ms, made, strict=True)]


def resent(after_ms: Sequence[int], *, acknowledged: bool, answered: bool = True) -> list[Packet]:
    """The publisher sends a message again after each of these times; nothing acknowledges it until the last one."""
    sent = segments(published(), fin=False)
    place = max(place for place, one in enumerate(sent) if one.side == 1 and one.payload)
    message = sent[place]
    ack = sent[place + 1]
    assert ack.side == 0
    assert ack.ack == message.end
    before = [one for one in sent[:place] if answered or one.side == 1]
    lines = [*before, message, *[message] * len(after_ms)]
    times = [*range(len(before)), 1000, *[1000 + ms for ms in after_ms]]
    if acknowledged:
        lines.append(ack)
        times.append(times[-1] + 1)
    else:
        lines.append(replace(message, offset=message.end, payload=b"", flags=message.flags))
        times.append(times[-1] + 1000)
    return timed(lines, times)


@pytest.mark.parametrize("acknowledged", [True, False])
def test_octets_without_acknowledgment(acknowledged: bool) -> None:
    (found,) = findings(resent([200, 600, 1400, 3000], acknowledged=acknowledged))
    did = "acknowledged nothing for a while" if acknowledged else "acknowledges nothing any more"
    waited = "2.8 s" if acknowledged else "3.8 s"
    assert found.severity == "warning"
    assert found.summary == f"the SUB at 10.0.0.1:40000 {did}: 10.0.0.2:5555 waited {waited} for it"
    assert "sent again 4 times" in found.known
    assert found.first_ns is not None
    assert found.first_ns % 1_000_000_000 == 200 * MS


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(resent([200, 600], acknowledged=True), id="lost twice"),
        pytest.param(resent([0, 0, 0, 0], acknowledged=True), id="a capture point that sees packets several times"),
        pytest.param(resent([100, 300, 700], acknowledged=True), id="soon over"),
        pytest.param(resent([200, 600, 1400, 3000], acknowledged=False, answered=False), id="one direction only"),
    ],
)
def test_what_is_healthy(given: Sequence[Packet]) -> None:
    assert not findings(given)


def without_room(packet: Packet) -> Packet:
    """The packet, as that of a receiver that has no room: its window is 0."""
    time_ns, link, octets, *rest = packet
    at = 14 + 20 + 14  # Ethernet, IPv4, and TCP up to the window
    return (time_ns, link, octets[:at] + b"\0\0" + octets[at + 2 :], *rest)  # type: ignore[return-value]


def moments(closed_ms: int, then_ms: int, every_ms: int, times: int = 60) -> list[Packet]:
    """The window closes each ``every_ms`` for ``closed_ms``. The publisher sends more ``then_ms`` after it opens."""
    sent = segments(published(), fin=False)
    place = max(place for place, one in enumerate(sent) if one.side == 1 and one.payload)
    message, ack = sent[place], sent[place + 1]
    lines, times_ms, full = [*sent[:place]], [*range(place)], set()
    for number in range(times):
        begin_ms = 1000 + every_ms * number
        one = replace(message, offset=message.offset + 2 * number * len(message.payload))
        other = replace(one, offset=one.end)
        full.add(len(lines) + 1)
        lines += [one, replace(ack, ack=one.end), replace(ack, ack=one.end), other, replace(ack, ack=other.end)]
        open_ms = begin_ms + 1 + closed_ms
        times_ms += [begin_ms, begin_ms + 1, open_ms, open_ms + then_ms, open_ms + then_ms]
    return [without_room(one) if at in full else one for at, one in enumerate(timed(lines, times_ms))]


def test_a_receiver_that_has_no_room_for_a_moment_again_and_again() -> None:
    (found,) = findings(moments(20, 1, 23))
    assert found.severity == "warning"
    assert found.summary == "the SUB at 10.0.0.1:40000 takes messages too slowly: 10.0.0.2:5555 waited 1.2 s for it"
    assert "closed 60 times, for 20 ms on average in 1.4 s, and each time more came as soon as it opened" in found.known


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(moments(20, 1, 23, times=40), id="less than a second in all"),
        pytest.param(moments(20, 2, 300), id="seldom"),
        pytest.param(moments(20, 20, 45), id="nobody waited"),
        pytest.param(moments(3, 1, 6, times=500), id="no longer than a transfer takes"),
    ],
)
def test_moments_that_cost_nothing(given: Sequence[Packet]) -> None:
    assert not findings(given)


def test_the_first_copy_may_be_of_the_last_octets() -> None:
    """Linux probes so (RFC 8985, section 7) before it sends again from where nothing was acknowledged."""
    sent = segments(published(), fin=False)
    first, second = [place for place, one in enumerate(sent) if one.side == 1 and one.payload][-2:]
    before, tail = sent[first], sent[second]
    lines = [*sent[:first], before, tail, tail, *[before] * 4]
    times = [*range(first), 1000, 1001, 1020, 1220, 1640, 2500, 4100]
    (found,) = findings(timed(lines, times))
    assert "acknowledges nothing any more: 10.0.0.2:5555 waited 3.1 s for it" in found.summary


def unheard(after_ms: Sequence[int], more: int = 0) -> list[Packet]:
    """The publisher sends a message again after each of these times, though it was acknowledged each time."""
    sent = segments(published(), fin=False)
    places = [place for place, one in enumerate(sent) if one.side == 1 and one.payload]
    place = places[-1 - more]
    lines, times = [*sent[:place]], [*range(place)]
    for ms in (0, *after_ms):
        lines += sent[place : place + 2]
        times += [1000 + ms, 1001 + ms]
    rest = sent[place + 2 :]
    return timed([*lines, *rest], [*times, *(1100 + after_ms[-1] + number for number in range(len(rest)))])


@pytest.mark.parametrize("more", [0, 1])
def test_acknowledgments_that_do_not_arrive(more: int) -> None:
    given = unheard([200, 600, 1400, 3000, 6200], more)
    (found,) = findings(given, "network-one-way")
    does = "did not reach 10.0.0.2:5555 for a while" if more else "does not reach 10.0.0.2:5555"
    assert found.summary.startswith(f"what 10.0.0.1 sends {does}: octets that it had acknowledged were sent again 4 ")
    assert found.severity == ("warning" if more else "error")
    assert found.evidence
    assert not findings(given), "the subscriber is accused"


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(unheard([200, 600], 1), id="lost twice"),
        pytest.param(unheard([0, 0, 0, 0, 0, 0], 1), id="a capture point that sees packets several times"),
    ],
)
def test_acknowledgments_that_arrive(given: Sequence[Packet]) -> None:
    assert not findings(given, "network-one-way")


def several(count: int) -> list[Packet]:
    """Subscribers on one host, all of which go away."""
    silent = resent([200, 600, 1400, 3000], acknowledged=False)
    return [
        (time_ns, link, octets[:34] + (40_000 + number).to_bytes(2, "big") + octets[36:], length, comment)
        if octets[26:30] == bytes([10, 0, 0, 1])
        else (time_ns, link, octets[:36] + (40_000 + number).to_bytes(2, "big") + octets[38:], length, comment)
        for time_ns, link, octets, length, comment in silent
        for number in range(count)
    ]


def test_a_host_that_acknowledges_nothing_on_several_connections() -> None:
    (found,) = findings(several(3), "host-silent")
    assert found.summary == ("10.0.0.1 acknowledges nothing that 10.0.0.2 sends any more, for 3.8 s on 3 connections")
    assert not findings(several(1), "host-silent")


def test_a_slow_reply_whose_octets_were_sent_again() -> None:
    """The network lost the request: nobody says that the service is slow."""
    given = slow_reply(None, 600)
    place = max(range(1, len(given)), key=lambda at: given[at][0] - given[at - 1][0])
    request = given[place - 1]
    again = (given[place][0] - 2 * MS, *request[1:])
    (found,) = findings([*given[:place], again, *given[place:]], "replies-slow")
    assert found.known.endswith("were sent again: the network loses packets, and that takes 599 ms of the slowest")
    assert "loses packets" in found.advice


def slow_reply(
    acked_ms: int | None, replied_ms: int, syn_ms: int = 0, more: int = 0, every: bool = False
) -> list[Packet]:
    """Requests and replies, of which one takes long: its request is acknowledged then, if at all, and answered then.

    With ``every`` all of them do. There are ``more`` quick ones than in the fixture.
    """
    talk = next(talk for talk in conversations() if talk.name == "m31_req_rep:1")
    talk = replace(talk, pieces=(*talk.pieces, *talk.pieces[-2:] * more))
    sent = segments(talk, acks=False, fin=False)
    messages = [place for place, one in enumerate(sent) if one.payload and one.side == 1]
    slow = messages if every else messages[len(messages) // 2 :][:1]
    lines: list[SentSegment] = []
    times: list[int] = []
    now = 0
    for place, one in enumerate(sent):
        now += 1 + (syn_ms if place == 1 else 0)
        if place in slow and acked_ms is not None:
            lines.append(SentSegment(1, one.offset, b"", one.ack, ACK))
            times.append(now + acked_ms)
        now += replied_ms if place in slow else 0
        lines.append(one)
        times.append(now)
    return timed(lines, times)


@pytest.mark.parametrize(
    ("acked_ms", "replied_ms", "syn_ms", "words"),
    [
        (1, 600, 0, "after 2 ms, and the reply came 599 ms after that: the time passes in the service"),
        (40, 600, 0, "after 41 ms, and the reply came 560 ms after that: the time passes in the service"),
        (590, 600, 0, "after 591 ms, and the reply came 10 ms after that: the time passes on the network, before"),
        (190, 200, 180, "after 191 ms, and the reply came 10 ms after that: the time passes on the network, before"),
        (190, 200, 0, "after 191 ms, and the reply came 10 ms after that"),  # held back, as Windows does it
        (None, 600, 0, "its host answers a SYN after 1 ms, so the time passes in the service"),
    ],
)
def test_where_the_time_of_a_slow_reply_passes(acked_ms: int | None, replied_ms: int, syn_ms: int, words: str) -> None:
    (found,) = findings(slow_reply(acked_ms, replied_ms, syn_ms), "replies-slow")
    assert words in found.known
    assert ("passes" in found.known) == ("passes" in words)
    assert ("not at the service" in found.advice) == ("on the network" in words)


def test_a_service_is_not_slow_if_its_way_is() -> None:
    (found,) = findings(slow_reply(2900, 3000, every=True), "replies-slow")
    assert found.summary.startswith("the way of 10.0.0.2:5555 is slow")


def big_replies(first_ms: int, rate_ms: int) -> list[Packet]:
    """Replies of 200 kB: their first segment comes after that time, each of the others after that one."""
    ask, big = frame(b"", 1) + frame(b"question"), frame(b"", 1) + frame(bytes(200_000))
    replies = [Piece(1, big[at : at + 10_000]) for at in range(0, len(big), 10_000)]
    handshakes = [Piece(0, greeting()), Piece(1, greeting()), Piece(0, ready(b"REQ")), Piece(1, ready(b"REP"))]
    sent = segments(Conversation("big", (*handshakes, *[Piece(0, ask), *replies] * 4)), acks=False, fin=False)
    times = [0]
    for before, one in pairwise(sent):
        wait = 1 if one.side == 0 or len(one.payload) < 1000 else rate_ms if len(before.payload) == 10_000 else first_ms
        times.append(times[-1] + wait)
    return timed(sent, times)


def test_a_slow_transfer_is_not_blamed_on_the_service() -> None:
    (found,) = findings(big_replies(3, 70), "replies-slow")
    assert "the way of 10.0.0.2:5555 is slow: half of its 4 replies took over 1." in found.summary
    assert "the first octets of the slowest came after 3 ms, and the others took 1.3 s: the time passes in the tr" in (
        found.known
    )
    assert "smaller or compressed" in found.advice


def test_a_slow_service_with_big_replies() -> None:
    (found,) = findings(big_replies(1500, 2), "replies-slow")
    assert "10.0.0.2:5555 is slow" in found.summary
    assert "the time passes in the service" in found.known


@pytest.mark.parametrize(
    ("replied_ms", "more", "severity"), [(300, 100, "note"), (300, 0, "warning"), (1500, 100, "warning")]
)
def test_one_late_reply_of_many_is_a_note(replied_ms: int, more: int, severity: str) -> None:
    (found,) = findings(slow_reply(None, replied_ms, more=more), "replies-slow")
    assert found.severity == severity


def late(replied_ms: int) -> list[Packet]:
    """The capture begins after some replies; the client thinks for 5 ms each time. The last request has no reply."""
    talk = next(talk for talk in conversations() if talk.name == "m31_req_rep:1")
    longer = replace(talk, pieces=(*talk.pieces, *talk.pieces[-2:] * 9))
    sent = [one for one in segments(longer, fin=False) if one.offset > 200 or one.ack > 200]
    sent = sent[: max(place for place, one in enumerate(sent) if one.payload and one.side == 1)]
    slow = [place for place, one in enumerate(sent) if one.payload and one.side == 1][-1]
    times: list[int] = []
    now = 0
    for place, one in enumerate(sent):
        now += replied_ms if place == slow else 5 if one.payload and one.side == 0 else 1
        times.append(now)
    # Other packets come later, so that time passes.
    probe = SentSegment(0, sent[-1].ack - 1, b"", sent[-1].offset, ACK)
    return timed([*sent, *[replace(probe, offset=sent[-1].ack)] * 3], [*times, now + 1000, now + 20_000, now + 60_000])


def test_inferred_sockets_are_asked_too() -> None:
    (slow,) = findings(late(600), "replies-slow")
    assert slow.known.endswith("; that these sockets ask and reply is inferred from their messages")
    assert "the time passes in the service" in slow.known
    (silent,) = findings(late(600), "request-unanswered")
    assert silent.certainty == "likely"
    assert silent.summary.startswith("10.0.0.2:5555 does not answer 10.0.0.1:40000: 1 request without a reply for 60 s")
    assert silent.known.endswith("; that these sockets ask and reply is inferred from their messages")
    assert not findings(late(1), "replies-slow")


def test_an_unanswered_request_says_for_how_long() -> None:
    talk = next(talk for talk in conversations() if talk.name == "m31_req_rep:1")
    sent = segments(talk, fin=False)
    sent = sent[: max(place for place, one in enumerate(sent) if one.payload and one.side == 1)]
    idle = SentSegment(0, sent[-1].ack - 1, b"", sent[-1].offset, ACK)  # keeps the connection alive
    (found,) = findings(timed([*sent, idle], [*range(len(sent)), 12_000]), "request-unanswered")
    assert found.severity == "error"
    assert found.summary.endswith(" does not answer 10.0.0.1: 1 request without a reply for 12 s")
