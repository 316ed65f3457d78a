"""Numbers that say where packets are."""

from zmtpsniff.spark.places import places_of, where


def test_a_place_holds_the_file_the_number_and_the_offset() -> None:
    offset = 200 << 40  # of a capture of 200 TiB
    times = [1_700_000_000_000_000_000] * 3
    places = places_of(times, 77, 123_456, [24, offset, 0])
    found = [column.to_pylist() for column in where(places)]
    assert found == [[77] * 3, [123_456, 123_457, 123_458], [24, offset, None]]


def test_places_are_in_order() -> None:
    ascending = [
        *places_of([5], 0, 9, [900]),
        *places_of([5, 5], 1, 9, [900, 1000]),
        *places_of([5], 2, 9, [900]),
        *places_of([6], 0, 1, [100]),
    ]
    assert ascending == sorted(set(ascending))
