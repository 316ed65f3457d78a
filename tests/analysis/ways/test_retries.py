"""Requests that clients gave up and sent again."""

from tests.analysis.ways.scenes import MS, Scene


def test_who_asks_again_is_told_apart_from_others_on_its_host() -> None:
    """The connection that a client closed just before it made a new one is its own."""
    scene = Scene()
    for number in (1, 2):
        scene.connect(number, f"127.0.0.1:4000{number}", "127.0.0.1:5555", types=("REQ", "ROUTER"))
        scene.say(number, b"", b"price?")
    for number in (2, 1):
        scene.now_ns += 500 * MS
        scene.close(number)
        scene.connect(10 + number, f"127.0.0.1:4100{number}", "127.0.0.1:5555", types=("REQ", "ROUTER"))
        asked = scene.say(10 + number, b"", b"price?")
        scene.say(10 + number, b"", b"42", by_server=True, answers=asked)
    again = {way.legs[0].flow: way.again.flow for way in scene.ways() if way.again is not None}
    assert again == {11: 1, 12: 2}


def test_of_clients_that_gave_up_at_once_nobody_knows_which_asks_again() -> None:
    scene = Scene()
    for number in (1, 2):
        scene.connect(number, f"127.0.0.1:4000{number}", "127.0.0.1:5555", types=("REQ", "ROUTER"))
        scene.say(number, b"", b"price?")
    scene.now_ns += 500 * MS
    for number in (1, 2):
        scene.close(number)
    scene.connect(11, "127.0.0.1:41001", "127.0.0.1:5555", types=("REQ", "ROUTER"))
    scene.say(11, b"", b"price?")
    assert [way.again for way in scene.ways()] == [None] * 3
