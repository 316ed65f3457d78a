"""Counts and lists of names in sentences."""

from zmtpsniff.words.counts import again, listed, plural, were


def test_plural() -> None:
    assert [plural(count, "frame") for count in (0, 1, 1200)] == ["0 frames", "1 frame", "1,200 frames"]
    assert plural(2, "reply") == "2 replies"
    assert plural(2, "key") == "2 keys"


def test_the_subject_of_a_sentence() -> None:
    assert were(1, "packet") == "1 packet was"
    assert were(1204, "packet", " of IP protocol 50") == "1,204 packets of IP protocol 50 were"


def test_how_often() -> None:
    assert [again(count) for count in (1, 2)] == ["", ", 2 times"]


def test_lists() -> None:
    names = "abcde"
    assert [listed(names[:count]) for count in range(6)] == [
        "", "a", "a and b", "a, b and c", "a, b, c and 1 other", "a, b, c and 2 others",
    ]  # fmt: skip
