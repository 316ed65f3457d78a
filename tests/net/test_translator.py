"""Segments get the addresses that their connection has everywhere."""

from tests.net.test_views import BEFORE, BEHIND, CLIENT, MS, OWN, SERVER, key, segments, translations
from zmtpsniff.net.addresses import reverse
from zmtpsniff.net.segment import ACK, Segment
from zmtpsniff.net.translator import Translator

NEAR, FAR = segments(BEFORE), segments(BEHIND, 0, MS // 10)
OTHER = 0x7654_3210  # a number of another connection


def translator() -> Translator:
    """One that knows the connection of both files."""
    return Translator(translations(NEAR, FAR))


def keys(found: list[Segment]) -> set[bytes]:
    return {one[2] for one in found}


def test_both_views_are_one_connection() -> None:
    one = translator()
    assert keys(one.translated(NEAR) + one.translated(FAR)) == {OWN, reverse(OWN)}
    ((code, detail, _),) = one.problems()
    assert code == "addresses-translated"
    assert detail == "1 connection was captured before and after NAT: 10.96.0.1:5555 is 10.0.0.2:6000"


def test_nothing_else_changes() -> None:
    others = segments(key("10.0.0.7:40000", "10.0.0.8:5555"), isn=OTHER)
    one = translator()
    assert one.translated(others) is others
    assert one.problems() == []
    assert [found[3:] for found in one.translated(NEAR)] == [given[3:] for given in NEAR]


def test_a_key_that_another_connection_has_later() -> None:
    """The gateway uses its port again, for a client that no file shows."""
    one = translator()
    one.translated(FAR)
    later = segments(BEHIND, isn=OTHER, answered=OTHER + 1_000_000)
    assert keys(one.translated(later)) == {BEHIND, reverse(BEHIND)}
    assert keys(one.translated(FAR[-2:])) == {OWN, reverse(OWN)}  # late packets of the first one


def test_numbers_far_away_are_of_another_connection() -> None:
    one = translator()
    far_away: Segment = (0, 0, BEHIND, (CLIENT + (1 << 29)) % (1 << 32), SERVER, ACK, b"x", 0)
    assert one.translated([far_away]) == [far_away]


def test_a_long_connection_goes_on() -> None:
    one = translator()
    number = CLIENT
    for _ in range(100):  # in all over 4 GiB
        number = (number + 50_000_000) % (1 << 32)
        (found,) = one.translated([(0, 0, BEHIND, number, SERVER, ACK, b"x", 0)])
        assert found[2] == OWN


def test_a_connection_that_begins_later_is_one() -> None:
    """The file's beginning does not have it, but shows that the ends are those of one server."""
    one = translator()
    near, far = key("10.0.0.1:41000", "10.96.0.1:5555"), key("10.99.0.1:21000", "10.0.0.2:6000")
    first = one.translated(segments(near, isn=OTHER))
    assert keys(first) == {near, reverse(near)}
    assert keys(one.translated(segments(far, isn=OTHER))) == {near, reverse(near)}


def test_connections_of_one_client_are_others() -> None:
    one = translator()
    first, second = (key(f"10.0.0.7:4100{port}", "10.96.0.1:5555") for port in (0, 1))
    one.translated(segments(first, isn=OTHER))
    assert keys(one.translated(segments(second, isn=OTHER))) == {second, reverse(second)}


def test_a_connection_to_another_server_is_another_one() -> None:
    one = translator()
    near, far = key("10.0.0.1:41000", "10.96.0.1:5555"), key("10.99.0.1:21000", "10.0.0.3:6000")
    one.translated(segments(near, isn=OTHER))
    assert keys(one.translated(segments(far, isn=OTHER))) == {far, reverse(far)}
