"""Numbers that say where packets are."""

from zmtpsniff.spark.places import places_of, where


def test_a_place_holds_the_file_the_number_and_the_offset() -> None:
    offset = 200 << 40  # of a capture of 200 TiB
    times = [1_700_000_000_000_000_000] * 3
    places = [*places_of(77, [123_456, 123_457, 123_458], times, [24, offset, 0]), 0]
    found = [column.to_pylist() for column in where(places)]
    assert found == [[77, 77, 77, None], [123_456, 123_457, 123_458, None], [24, offset, None, None]]


def test_places_are_in_order() -> None:
    ascending = [
        *places_of(0, [9], [5], [900]),
        *places_of(1, [9, 10], [5, 5], [900, 1000]),
        *places_of(2, [9], [5], [900]),
        *places_of(0, [1], [6], [100]),
    ]
    assert ascending == sorted(set(ascending))
