"""Addresses as records have them."""

import pytest

from dissectors.address import host_of, port_of


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("192.0.2.1:5555", "192.0.2.1", 5555),
        ("[2001:db8::1]:80", "[2001:db8::1]", 80),
        ("[2001:db8::1]", "[2001:db8::1]", 0),
        ("pid-12:0", "pid-12", 0),
        ("", "", 0),
    ],
)
def test_host_and_port(address: str, host: str, port: int) -> None:
    assert (host_of(address), port_of(address)) == (host, port)
