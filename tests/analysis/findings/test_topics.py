"""Topics that are nearly those that are published."""

import pytest

from zmtpsniff.analysis.findings.topics import nearest


@pytest.mark.parametrize(
    ("topic", "published", "meant"),
    [
        (b"prices.GPB", b"prices.GBP", b"prices.GBP"),
        (b"prices.GBO", b"prices.GBP", b"prices.GBP"),
        (b"price.GBP", b"prices.GBP", b"prices.GBP"),
        (b"prices.gbp", b"prices.GBP", b"prices.GBP"),
        (b"prices/GBP", b"prices.GBP", b"prices.GBP"),
        (b" prices.GBP", b"prices.GBP", b"prices.GBP"),
        (b"prices.GBP\0", b"prices.GBP", b"prices.GBP"),
        (b"wether", b"weather 10001 27 48", b"weather"),
        (b"Weather", b"weather 10001 27 48", b"weather"),
    ],
)
def test_typos(topic: bytes, published: bytes, meant: bytes) -> None:
    assert nearest(topic, [b"something else", published]) == meant


@pytest.mark.parametrize(
    ("topic", "published"),
    [
        (b"prices.EUR", b"prices.GBP"),
        (b"sensor2", b"sensor1"),
        (b"sensor12", b"sensor3"),
        (b"topicA", b"topicB"),
        (b"news.us", b"news.uk"),
        (b"a", b"b"),
        (b"weather", b"wx"),
        (b"", b"everything"),
        (b"\xff\xfe\xfd\xfc", b"\x01\x02\x03\x04"),
        (b"orders.new", b"prices.GBP"),
    ],
)
def test_names_that_are_meant(topic: bytes, published: bytes) -> None:
    assert nearest(topic, [published]) is None
