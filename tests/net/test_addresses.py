"""Keys of directions: who they name, and the key of the other direction."""

from ipaddress import ip_address

import pytest

from zmtpsniff.net.addresses import addresses, reverse

PORTS = (49_152).to_bytes(2, "big"), (5555).to_bytes(2, "big")


@pytest.mark.parametrize(
    ("source", "destination", "texts"),
    [
        (ip_address("10.0.0.1").packed, ip_address("10.0.0.2").packed, ("10.0.0.1:49152", "10.0.0.2:5555")),
        (ip_address("::1").packed, ip_address("fe80::2").packed, ("[::1]:49152", "[fe80::2]:5555")),
        (bytes(7) + b"\7", b"\x80" + bytes(6) + b"\7", ("pid-7:0", "peer-of-pid-7:0")),
    ],
)
def test_both_directions_name_the_same_ends(source: bytes, destination: bytes, texts: tuple[str, str]) -> None:
    key = source + destination + PORTS[0] + PORTS[1]
    back = destination + source + PORTS[1] + PORTS[0]
    assert reverse(key) == back
    assert tuple(address.text for address in addresses(key)) == texts
    assert addresses(back) == addresses(key)[::-1]
