"""Tables in bounded memory."""

from zmtpsniff.analysis.ledger import Ledger


def test_the_oldest_entry_gives_way() -> None:
    ledger: Ledger[str, int] = Ledger(limit=2)
    for number, key in enumerate("abc"):
        ledger[key] = number
    assert dict(ledger) == {"b": 1, "c": 2}
    ledger["b"] = 7  # which makes it no newer
    ledger["d"] = 3
    assert dict(ledger) == {"c": 2, "d": 3}


def test_to_ask_for_an_entry_makes_it_and_renews_it() -> None:
    ledger: Ledger[str, list[int]] = Ledger(list, 2)
    ledger.at("a").append(1)
    assert ledger["b"] == []
    ledger.at("a").append(2)
    ledger.at("c")
    assert dict(ledger) == {"a": [1, 2], "c": []}
