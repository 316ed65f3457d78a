"""Tables in bounded memory."""

import pickle

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


def test_a_copy_has_the_same_limit_and_all_entries() -> None:
    ledger: Ledger[int, None] = Ledger(limit=20_000)
    for number in range(20_001):
        ledger[number] = None
    copy = pickle.loads(pickle.dumps(ledger))
    assert list(copy) == list(ledger)
    copy[0] = None
    assert len(copy) == 20_000
