"""The tree and the dump come from one description: a field's octets are where it says."""

from pathlib import Path

import pytest

from dissectors.events import Command, Cut, Greeting, Message, Subscription, at_hand
from tests.support.browse_terminal import read_index
from tests.support.examples import sampled
from tests.support.paths import FIXTURES
from zmtpsniff.browse.sheet import Sheet, make_sheet
from zmtpsniff.browse.wire_image import WireFinder

CAPTURES = sorted(FIXTURES.glob("*_*.pcap*"))


def sheets(path: Path, show_secrets: bool = False) -> list[tuple[object, Sheet]]:
    index, packets = read_index(path, show_secrets=show_secrets)
    finder = WireFinder(index, packets)
    rows = range(len(index))
    return [(index.event(row), make_sheet(index.event(row), finder.image(row), "", show_secrets)) for row in rows]


def octets_of(sheet: Sheet, label: str) -> bytes:
    (field,) = [field for field in sheet.fields if field.label == label][:1]
    return sheet.octets[field.start : field.stop]


@pytest.mark.parametrize("path", sampled(CAPTURES), ids=lambda path: path.name)
def test_fields_are_where_they_are_said_to_be(path: Path) -> None:
    found = sheets(path)
    assert found
    for event, sheet in found:
        assert all(0 <= field.start <= field.stop <= len(sheet.octets) for field in sheet.fields)
        assert sheet.fields[0].start == 0
        assert sheet.fields[0].stop == len(sheet.octets)
        for octet in range(len(sheet.octets)):
            number = sheet.field_at(octet)
            assert number is not None
            assert sheet.fields[number].start <= octet < sheet.fields[number].stop
        if isinstance(event, Message) and sheet.is_whole:
            for place, frame in enumerate(event.frames):
                assert octets_of(sheet, f"frames[{place}]").endswith(frame)  # type: ignore[arg-type]
        if isinstance(event, Subscription) and sheet.is_whole:
            assert octets_of(sheet, "topic") == event.topic


@pytest.mark.parametrize("name", ["m31_req_rep", "m31_pub_sub", "m31_heartbeat", "raw_sub_commands", "app_malamute"])
def test_a_whole_capture_is_found_in_its_packets(name: str) -> None:
    found = sheets(FIXTURES / f"{name}.pcap")
    shown = [sheet for event, sheet in found if isinstance(event, Message | Command | Greeting | Subscription)]
    assert shown
    assert all(sheet.is_whole for sheet in shown)


def test_a_greeting_is_put_together_from_its_packets() -> None:
    greeting = next(sheet for event, sheet in sheets(FIXTURES / "m31_req_rep.pcap") if isinstance(event, Greeting))
    assert len(greeting.octets) == 64
    assert octets_of(greeting, "signature") == b"\xff\0\0\0\0\0\0\0\x01\x7f"
    assert octets_of(greeting, "mechanism") == b"NULL".ljust(20, b"\0")


def test_properties_have_their_octets() -> None:
    ready = next(sheet for event, sheet in sheets(FIXTURES / "m31_req_rep.pcap") if isinstance(event, Command))
    assert octets_of(ready, "Socket-Type") == b"\x0bSocket-Type\0\0\0\x03REQ"
    assert octets_of(ready, "name") == b"\x05READY"


def test_what_is_not_in_the_packets_is_not_shown_as_if_it_were() -> None:
    """Packets of 96 octets lack the ends of long messages."""
    cut = [sheet for event, sheet in sheets(FIXTURES / "net_snaplen96.pcap") if isinstance(event, Message)]
    assert any(not sheet.is_whole for sheet in cut)
    for event, sheet in sheets(FIXTURES / "net_snaplen96.pcap"):
        if isinstance(event, Message) and not sheet.is_whole:
            bodies = [frame.data if isinstance(frame, Cut) else frame for frame in event.frames]
            assert sheet.octets == b"".join(bodies)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "secret"), [("sec_plain_ok_435_435", b"s3cret!"), ("zap_over_tcp", b""), ("rec_zap_by_tcp", b"")]
)
def test_passwords_are_in_no_octets(name: str, secret: bytes) -> None:
    path = FIXTURES / f"{name}.pcap"
    secret = secret or next(
        at_hand(event.frames[-1])
        for event, _ in sheets(path)
        if isinstance(event, Message) and event.frames[-3:-2] == [b"PLAIN"]
    )
    assert any(secret in sheet.octets for _, sheet in sheets(path, show_secrets=True))
    for _, sheet in sheets(path):
        text = "".join([f"{field.label} {field.value}" for field in sheet.fields]).encode()
        assert secret not in sheet.octets
        assert secret not in text
