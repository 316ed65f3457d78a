"""Addresses as records have them."""

import pytest

from dissectors.address import host_of, is_loopback, port_of


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


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1:5555", True),
        ("127.8.9.1:1", True),
        ("[::1]:5555", True),
        ("[::ffff:127.0.0.1]:80", True),
        ("10.0.0.1:5555", False),
        ("[fe80::1%eth0]:1", False),
        ("[::ffff:10.0.0.1]:80", False),
        ("1270.0.0.1:5", False),
        ("", False),
    ],
)
def test_what_is_loopback(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback
