"""Numbers that say where packets are."""

from zmtpsniff.spark.places import file_of, marked, marks, numbers_and_offsets, placed


def test_a_place_holds_the_file_the_number_and_the_offset() -> None:
    offset = 200 << 40  # of a capture of 200 TiB
    mark = marked(123_456, offset)
    place = placed(1_700_000_000_000_000_000, 77, mark)
    assert file_of(place) == 77
    assert numbers_and_offsets([mark, place, marked(7, 0)]) == ([123_456, 123_456, 7], [offset, offset, None])
    assert marks(41, [24, 96, 0]) == [marked(41, 24), marked(42, 96), marked(43, 0)]


def test_places_are_in_order() -> None:
    assert placed(5, 0, marked(9, 900)) < placed(6, 0, marked(1, 100))
    assert placed(5, 1, marked(9, 900)) < placed(5, 2, marked(1, 100))
    assert placed(5, 1, marked(9, 0)) < placed(5, 1, marked(10, 0))
    assert placed(5, 1, marked(9, 900)) < placed(5, 1, marked(10, 1000))
