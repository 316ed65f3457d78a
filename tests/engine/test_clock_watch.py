"""A clock that is set forward while packets are captured: waits and silences do not become longer by its jump."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pytest

from dissectors.events import AnyEvent, Capture, Connection, Message
from tests.support.examples import crossed
from tests.support.paths import FIXTURES
from tests.world.tap import Packets, load
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.findings.finding import Finding
from zmtpsniff.analysis.ways.way_records import Way
from zmtpsniff.analysis.ways.ways import Ways
from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.engine import clock_watch
from zmtpsniff.engine.settings import Settings
from zmtpsniff.engine.sniffer import Collaborators, Sniffer
from zmtpsniff.net.timestamps import Stamp, TimestampReader

SECOND = 1_000_000_000
TICK = 1_000_000  # of the timestamps of Linux: so exactly it is known by how much the clock was set
HOUR = 3600 * SECOND
OPTION = b"\x01\x01\x08\x0a"  # of TCP's timestamps
WAITING = 144  # packets of capture_socket behind which a request waits for its reply
NAMES = ("paranoid_pirate", "ventilator", "capture_socket", "clone")


def packets_of(name: str) -> list[Packet]:
    return load(FIXTURES / "healthy" / f"{name}.pcap.gz")


def moved(packets: Iterable[Packet], by_ns: int) -> list[Packet]:
    return [(time_ns + by_ns, *rest) for time_ns, *rest in packets]  # type: ignore[misc]


def later(packets: Iterable[Packet], by_ns: int, ticks: int) -> list[Packet]:
    """Packets that were sent so much later."""
    found = []
    for time_ns, link, octets, wire, comment in packets:
        before, option, rest = octets.partition(OPTION)
        if option:
            stamp = (int.from_bytes(rest[:4]) + ticks) % (1 << 32)
            octets = before + option + stamp.to_bytes(4) + rest[4:]
        found.append((time_ns + by_ns, link, octets, wire, comment))
    return found


def told(packets: Sequence[Packet], size: int = 200) -> tuple[list[AnyEvent], list[Finding]]:
    diagnosis = Diagnosis()
    collaborators = Collaborators(witness=diagnosis)
    events: list[AnyEvent] = []
    for batch in Sniffer(Packets(packets, size), Settings(), collaborators).events():
        diagnosis.take(batch)
        events += batch
    return events, diagnosis.findings()


def ways(packets: Sequence[Packet]) -> list[Way]:
    """In the order in which they begin."""
    follower = Ways()
    collaborators = Collaborators(witness=follower, acknowledge=follower.acknowledge)
    found = []
    for batch in Sniffer(Packets(packets, 200), Settings(), collaborators).events():
        found += follower.take(batch)
    records = [record for way in (*found, *follower.finish()) if (record := follower.record(way)) is not None]
    return sorted(records, key=lambda way: (way.time_ns, way.legs[0].packet, way.legs[0].part))


def words(packets: Sequence[Packet], size: int = 200) -> Counter[str]:
    return Counter(one.summary for one in told(packets, size)[1])


@pytest.mark.parametrize(("name", "by_ns"), crossed(NAMES, [HOUR, 50 * 365 * 24 * HOUR]))
def test_nobody_waited_for_as_long_as_the_clock_jumped(name: str, by_ns: int) -> None:
    packets = packets_of(name)
    usual = words(packets)
    for part in range(1, 6):
        at = len(packets) * part // 6
        assert words(packets[:at] + moved(packets[at:], by_ns), size=100 + part) == usual


@pytest.mark.parametrize("name", NAMES[:2])
def test_a_clock_that_jumps_twice_and_back(name: str) -> None:
    packets = packets_of(name)
    third = len(packets) // 3
    first, middle, last = packets[:third], packets[third : 2 * third], packets[2 * third :]
    usual = words(packets)
    assert words(first + moved(middle, HOUR) + moved(last, 3 * HOUR)) == usual
    assert words(first + moved(middle, HOUR) + last, size=third) == usual


def test_a_quiet_hour_is_told() -> None:
    """The clocks of the senders went on, too: what waited did so for an hour."""
    packets = packets_of("capture_socket")
    found = words(packets[:WAITING] + later(packets[WAITING:], HOUR, 3_600_000))
    assert "60 min" in next(iter(found))


def test_a_jump_that_nothing_proves_counts_as_a_quiet_hour() -> None:
    packets = [
        (time_ns, link, octets.replace(OPTION, bytes(4)), wire, comment)
        for time_ns, link, octets, wire, comment in packets_of("capture_socket")
    ]
    assert "60 min" in next(iter(words(packets[:WAITING] + moved(packets[WAITING:], HOUR))))


def test_records_have_the_times_of_the_capture() -> None:
    packets = packets_of("ventilator")
    at = len(packets) // 2
    events, _ = told(packets[:at] + moved(packets[at:], HOUR))
    times = {number: packet[0] + HOUR * (number > at) for number, packet in enumerate(packets, 1)}
    messages = [event for event in events if isinstance(event, Message)]
    assert {message.packet > at for message in messages} == {True, False}
    assert all(message.time_ns == times[message.packet] for message in messages)
    ends = {time_ns for event in events if isinstance(event, Connection) for time_ns in (event.start_ns, event.end_ns)}
    assert ends <= {*times.values()}
    (totals,) = [event for event in events if isinstance(event, Capture)]
    assert totals.end_ns == times[len(packets)]
    assert totals.duration_ns == times[len(packets)] - times[1]


def test_a_finding_has_the_time_of_the_capture() -> None:
    packets = load(FIXTURES / "rec_closing_worker.pcap")
    (usual,) = told(packets)[1]
    (found,) = told(packets[:20] + moved(packets[20:], HOUR))[1]
    assert usual.first_ns is not None
    assert found.first_ns == usual.first_ns + HOUR
    assert (found.summary, found.count) == (usual.summary, usual.count)


@pytest.mark.parametrize("name", ["paranoid_pirate", "capture_socket"])
def test_no_way_takes_as_long_as_the_jump(name: str) -> None:
    """Its first leg has the time of the capture, and the others follow as if the clock had not been set."""
    packets = packets_of(name)
    usual = ways(packets)
    for part in range(1, 6):
        at = len(packets) * part // 6
        set_ns = packets[at][0]
        found = ways(packets[:at] + moved(packets[at:], HOUR))
        for before, after in zip(usual, found, strict=True):
            assert after.time_ns == before.time_ns + HOUR * (before.time_ns >= set_ns)
            assert [leg.packet for leg in after.legs] == [leg.packet for leg in before.legs]
            assert after.legs[-1].time_ns - after.time_ns < before.legs[-1].time_ns - before.time_ns + TICK
            assert after.duration_ns < before.duration_ns + TICK


@pytest.mark.parametrize("is_set", [True, False])
def test_live_the_clock_that_nobody_sets_tells(is_set: bool) -> None:
    """An hour by both clocks has passed."""
    packets = packets_of("capture_socket")
    given = packets[:WAITING] + moved(packets[WAITING:], HOUR)
    place = 0

    class Live(Packets):
        def batches(self) -> Iterator[Block]:
            nonlocal place
            for place, block in enumerate(super().batches()):  # noqa: B007
                yield Block(block.octets.replace(OPTION, bytes(4)), block.rows)  # no other clock tells

    diagnosis = Diagnosis()
    collaborators = Collaborators(
        clock=lambda: given[place][0],
        monotonic=lambda: (packets if is_set else given)[place][0],
        witness=diagnosis,
    )
    for events in Sniffer(Live(given, 1), Settings(), collaborators).events():
        diagnosis.take(events)
    assert bool(diagnosis.jumps) == is_set
    assert (diagnosis.findings() == []) == is_set


@pytest.mark.parametrize("ticks", [15_000, 0], ids=["idle", "each gap a jump"])
def test_many_gaps_cost_as_much_as_their_packets(ticks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a connection that only sends a packet each 15 seconds, for a night."""
    read = 0

    class Counting(TimestampReader):
        def stamps(self, packets: Iterable[Packet]) -> dict[bytes, Stamp]:
            nonlocal read
            listed = list(packets)
            read += len(listed)
            return super().stamps(listed)

    monkeypatch.setattr(clock_watch, "TimestampReader", Counting)
    packets = packets_of("ventilator")[:20]
    packets += [packet for turn in range(1, 2000) for packet in later(packets[-1:], turn * 15 * SECOND, turn * ticks)]
    events, _ = told(packets, size=len(packets))
    assert 0 < read <= 2 * len(packets)
    (totals,) = [event for event in events if isinstance(event, Capture)]
    assert totals.end_ns == packets[-1][0]


def test_a_clock_that_is_set_back_and_forth_within_a_block() -> None:
    """As far as the times of a file can go, again and again: in all that is more than a time can have."""
    packets = packets_of("ventilator")
    latest_ns = 1 << 62
    given = [(latest_ns if place // 10 % 2 else SECOND, *packet[1:]) for place, packet in enumerate(packets)]
    events, _ = told(given, len(given))
    assert len([event for event in events if isinstance(event, Capture)]) == 1
