"""Topics as they are published, and how long idle connections lasted."""

from dissectors.events import Capture, Connection, Message, Peer, Sides
from zmtpsniff.analysis.statistics.record_maker import report
from zmtpsniff.analysis.statistics.statistics import Statistics
from zmtpsniff.analysis.statistics.stats_records import ConnectionRow, PublicationRow, SocketRow

SECOND = 1_000_000_000


def _message(*frames: bytes, src: str = "10.0.0.1:5556", matched: bytes | None = b"") -> Message:
    return Message(SECOND, 1, 1, src, "10.0.0.2:40000", list(frames), "PUB", matched=matched)


def _published(*messages: Message) -> list[tuple[object, int, int, bool]]:
    statistics = Statistics()
    for message in messages:
        statistics.take([message])
    rows = [row for row in report(statistics) if isinstance(row, PublicationRow)]
    return [(row.topic, row.messages, row.octets, row.prefix) for row in rows]


def test_the_first_frame_is_the_topic_whatever_was_subscribed_to() -> None:
    given = [_message(b"prices.EUR", b"1.2")] * 3 + [_message(b"prices.GBP", b"1.3", matched=b"prices.")]
    assert _published(*given) == [(b"prices.EUR", 3, 39, False), (b"prices.GBP", 1, 13, False)]


def test_messages_of_one_frame_have_what_all_begin_with() -> None:
    weather = [_message(b"10001 %d 50" % number, matched=b"10001 ") for number in (20, 21, 30)]
    prices = [_message(b"prices.%b 1.2" % name, src="10.0.0.9:1") for name in (b"EUR", b"GBP")]
    assert _published(*weather, *prices) == [(b"10001 ", 3, 33, True), (b"prices.", 2, 28, True)]


def test_publishers_of_the_same_are_one() -> None:
    given = [_message(b"tick %d" % number, src=f"10.0.0.{number % 3}:5556") for number in range(10, 40)]
    assert _published(*given) == [(b"tick ", 30, 210, True)]
    assert _published(_message(b"a", src="x:1"), _message(b"b", src="x:1")) == [(b"", 2, 2, True)]


def test_a_message_that_may_lack_its_first_frame_says_nothing_of_topics() -> None:
    message = _message(b"rest", b"of it")
    message.incomplete = True
    assert _published(message) == []


def _connection(end: str, start_ns: int, end_ns: int) -> Connection:
    client, server = Peer("10.0.0.2:40000"), Peer("10.0.0.1:5556")
    return Connection(1, "tcp", client, server, Sides(0, 2), Sides(100, 200), start_ns, end_ns, end)  # type: ignore[arg-type]


def _rows(*events: Connection | Capture, passes: bool = True) -> tuple[ConnectionRow, SocketRow]:
    statistics = Statistics()
    statistics.take(events, None if passes else lambda event: isinstance(event, Connection))
    connection, socket, *_ = report(statistics)
    assert isinstance(connection, ConnectionRow)
    assert isinstance(socket, SocketRow)
    return connection, socket


TOTALS = Capture(10, 0, 1, 1, 2, 0, 100 * SECOND, 100 * SECOND)


def test_a_connection_that_is_still_open_lasts_to_the_end_of_the_capture() -> None:
    for passes in (True, False):
        idle, socket = _rows(_connection("open", 50 * SECOND, 50 * SECOND + 4_000_000), TOTALS, passes=passes)
        assert idle.duration_ns == socket.duration_ns == 50 * SECOND
        assert (idle.messages_per_s, idle.octets_per_s) == (0.04, 6.0)


def test_one_that_is_over_lasted_as_long_as_its_packets() -> None:
    closed, socket = _rows(_connection("fin", 0, 4 * SECOND), TOTALS)
    assert closed.duration_ns == socket.duration_ns == 4 * SECOND
    assert closed.messages_per_s == 0.5


def test_one_that_fell_silent_after_a_moment_has_no_rate() -> None:
    silent, _ = _rows(_connection("timeout", 0, 4_000_000), TOTALS)
    assert (silent.duration_ns, silent.messages_per_s, silent.octets_per_s) == (4_000_000, None, None)
    silent, _ = _rows(_connection("timeout", 0, 4 * SECOND), TOTALS)
    assert silent.messages_per_s == 0.5


def test_another_capture_does_not_make_open_connections_longer() -> None:
    statistics = Statistics()
    statistics.take([_connection("open", 0, SECOND), Capture(1, 0, 1, 1, 2, 0, SECOND, SECOND)])
    statistics.take([TOTALS])
    connection, *_ = report(statistics)
    assert isinstance(connection, ConnectionRow)
    assert connection.duration_ns == SECOND
