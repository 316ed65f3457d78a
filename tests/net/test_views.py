"""Connections that files have with different addresses are known by their numbers and octets."""

from collections.abc import Iterable

import pytest

from zmtpsniff.net.addresses import reverse
from zmtpsniff.net.segment import ACK, RST, SYN, Segment
from zmtpsniff.net.views import AddressAlias, Translations, ViewCollection

MS = 1_000_000
CLIENT, SERVER = 0x1234_5678, 0xFFFF_FFF0  # first numbers


def key(client: str, server: str) -> bytes:
    """The client's key; each end as in ``10.0.0.1:5555``."""
    ends = [end.split(":") for end in (client, server)]
    hosts = b"".join(bytes(map(int, host.split("."))) for host, _ in ends)
    return hosts + b"".join(int(port).to_bytes(2) for _, port in ends)


BEFORE = key("10.0.0.1:40000", "10.96.0.1:5555")
BEHIND = key("10.99.0.1:20000", "10.0.0.2:6000")
OWN = key("10.0.0.1:40000", "10.0.0.2:6000")


def segments(
    client: bytes,
    ahead_ns: int = 0,
    way_ns: int = 0,
    *,
    isn: int = CLIENT,
    answered: int = SERVER,
    octets: bytes = b"ab",
) -> list[Segment]:
    """A connection with its handshake and three requests, as a host sees it to which the way takes so long."""
    server = reverse(client)
    found: list[Segment] = [
        (0, 0, client, isn, 0, SYN, b"", 0),
        (0, 0, server, answered, isn + 1, SYN | ACK, b"", 0),
    ]
    for place in range(3):
        asked, replied = (isn + 1 + 2 * place) % (1 << 32), (answered + 1 + 2 * place) % (1 << 32)
        found.append((0, 0, client, asked, replied, ACK, octets, 0))
        found.append((0, 0, server, replied, asked + 2, ACK, b"cd", 0))
    return [
        (place * MS + ahead_ns + (way_ns if one[2] == client else -way_ns), place, *one[2:])
        for place, one in enumerate(found)
    ]


def translations(*files: Iterable[Segment]) -> Translations:
    views = ViewCollection()
    for place, file in enumerate(files):
        views.take(list(file), place)
    return views.translations()


def keys(found: Translations) -> dict[bytes, set[bytes]]:
    return {one: {alias.key for alias in aliases} for one, aliases in found.aliases.items()}


BOTH = {BEFORE: {OWN}, BEHIND: {OWN}, reverse(BEFORE): {reverse(OWN)}, reverse(BEHIND): {reverse(OWN)}}


@pytest.mark.parametrize("ahead_ns", [-3000 * MS, 0, 3000 * MS])
@pytest.mark.parametrize("begin", [0, 1, 2])  # the files begin with the SYN or behind it
def test_each_end_has_the_address_that_its_own_side_shows(ahead_ns: int, begin: int) -> None:
    near, far = segments(BEFORE)[begin:], segments(BEHIND, ahead_ns, MS // 10)[begin:]
    assert keys(translations(near, far)) == BOTH
    assert keys(translations(far, near)) == BOTH


def test_where_the_way_takes_no_time_the_first_file_has_the_addresses() -> None:
    assert set.union(*keys(translations(segments(BEFORE), segments(BEHIND))).values()) == {BEFORE, reverse(BEFORE)}


@pytest.mark.parametrize(
    "other",
    [
        segments(BEHIND, isn=CLIENT + 1),
        segments(BEHIND, answered=SERVER + 1),
        segments(BEHIND, octets=b"xy"),  # others at the same numbers
        segments(BEHIND)[:4],  # too few
    ],
)
def test_other_connections_stay_others(other: list[Segment]) -> None:
    assert not translations(segments(BEFORE), other).aliases


def test_connections_between_the_same_hosts_are_others() -> None:
    """A program made up the capture, with one number for all."""
    assert not translations(segments(BEFORE), segments(key("10.0.0.1:40001", "10.96.0.1:5556"))).aliases


def test_many_files_may_have_a_view() -> None:
    near, far = segments(BEFORE), segments(BEHIND, 0, MS // 10)
    assert keys(translations(*[near] * 9, *[far] * 9)) == BOTH


def test_a_chain_of_many_views_is_made_up() -> None:
    """Each one has some numbers of the one before it, and some of the next one."""
    files = []
    for place in range(20):
        many = [*segments(BEFORE, isn=CLIENT + 1000 * place), *segments(BEFORE, isn=CLIENT + 1000 * (place + 1))]
        own = key(f"10.1.{place}.1:40000", f"10.2.{place}.1:5555")
        ends = {BEFORE: own, reverse(BEFORE): reverse(own)}
        files.append([(*one[:2], ends[one[2]], *one[3:]) for one in many if not one[5] & SYN])
    assert not translations(*files).aliases
    assert translations(*files[:8]).aliases


def test_small_numbers_prove_nothing() -> None:
    assert not translations(segments(BEFORE, isn=1000, answered=1), segments(BEHIND, isn=1000, answered=1)).aliases


def test_numbers_that_many_have_prove_nothing() -> None:
    many = [one for port in range(9) for one in segments(key(f"10.0.0.{port + 1}:4000{port}", "10.0.0.99:5555"))]
    assert not translations(many).aliases


def attempts(client: str, server: str, count: int) -> list[Segment]:
    """SYNs that a RST answers, each from the next port."""
    host, port = client.split(":")
    found: list[Segment] = []
    for place in range(count):
        one, isn = key(f"{host}:{int(port) + place}", server), CLIENT + 7919 * place
        found.append((place * MS, 0, one, isn, 0, SYN, b"", 0))
        found.append((place * MS, 0, reverse(one), 0, isn + 1, RST | ACK, b"", 0))
    return found


def test_attempts_have_the_ends_of_connections_that_came_about() -> None:
    near = [*segments(BEFORE), *attempts("10.0.0.1:50000", "10.96.0.1:5555", 1)]
    far = [*segments(BEHIND, 0, MS // 10), *attempts("10.99.0.1:30000", "10.0.0.2:6000", 1)]
    own = key("10.0.0.1:50000", "10.0.0.2:6000")
    found = translations(near, far).aliases
    assert found[key("10.96.0.1:5555", "10.0.0.1:50000")] == [AddressAlias(reverse(own), None, CLIENT + 1, CLIENT)]
    assert found[key("10.99.0.1:30000", "10.0.0.2:6000")] == [AddressAlias(own, CLIENT, None, CLIENT)]


def test_attempts_at_another_port_have_the_hosts_of_connections_that_came_about() -> None:
    near = [*segments(BEFORE), *attempts("10.0.0.1:50000", "10.96.0.1:5556", 3)]
    far = [*segments(BEHIND, 0, MS // 10), *attempts("10.99.0.1:30000", "10.0.0.2:6001", 3)]
    for found in (translations(near, far), translations(far, near)):
        assert keys(found)[key("10.0.0.1:50001", "10.96.0.1:5556")] == {key("10.0.0.1:50001", "10.0.0.2:6001")}


@pytest.mark.parametrize(("count", "are_same"), [(2, False), (3, True)])
def test_one_number_may_be_chance_and_several_are_none(count: int, are_same: bool) -> None:
    found = translations(
        attempts("10.0.0.1:50000", "10.96.0.1:5555", count), attempts("10.99.0.1:30000", "10.0.0.2:6000", count)
    )
    assert bool(found.aliases) is are_same
