"""Display filters: what they mean, what is wrong with them, and that nothing else comes of them."""

import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissectors.events import (
    AnyEvent,
    Capture,
    Command,
    Connection,
    Cut,
    Greeting,
    Hidden,
    Message,
    Peer,
    Problem,
    Sides,
    Subscription,
    Work,
)
from tests.support.examples import examples
from tests.support.filter_texts import EVENTS, FILTERS
from zmtpsniff.filters import FilterError, compile_filter

PLACE = (1_700_000_000_500_000_000, 7, 3, "10.0.0.1:5555", "10.0.0.2:40000")
ORDER = Message(*PLACE, [b"orders", b"\x00\xff", b"12"], "PUB", latency_ns=2_500_000)
READY = Command(*PLACE, "READY", {"Socket-Type": b"REQ", "X-App": b"shop"})
PLAIN = Command(*PLACE, "HELLO", username=b"admin", password=Hidden(6))
GREETING = Greeting(*PLACE, "3.1", "NULL", False)
IPV6 = Subscription(1, 2, 3, "[fe80::1]:5555", "[::1]:6", "subscribe", b"abc", "command")
PROBLEM = Problem("warning", "slow-joiner", "something")
CONNECTION = Connection(
    3, "tcp", Peer("10.0.0.1:1"), Peer("10.0.0.2:2", "3.1"), Sides(1, 2), Sides(3, 4), 1, 2, "fin", subscriptions=[b"a"]
)
TOTALS = Capture(10, 0, 1, 1, 5, 0, 1)


def _passes(text: str, event: AnyEvent) -> bool:
    return compile_filter(text)(event)


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ('type == "message"', ORDER),
        ('type eq "capture"', TOTALS),
        ('type[0:4] == "mess"', ORDER),
        ("zmtp && tcp && ip && !ipv6 && frame", ORDER),
        ("ipv6 && !ip", IPV6),
        ("!zmtp && !frame", CONNECTION),
        ('frames[0] == "orders"', ORDER),
        ("frames[0] == 6f:72:64:65:72:73", ORDER),
        ("frames[0] == 0x6f7264657273", ORDER),
        (r'frames[1] == "\x00\377"', ORDER),
        ("frames[1][0] == 00 && frames[1][1] == ff && frames[1][-1] == ff", ORDER),
        ('frames[0][1:2] == "rd" && frames[0][1-2] == "rd" && frames[0][:2] == "or" && frames[0][4:] == "rs"', ORDER),
        ('frames[0].text[-2:] == "rs"', ORDER),
        ('frames[1].hex == "00ff" && !frames[0].hex && !frames[1].text', ORDER),
        ("frames[1].length == 2 && len(frames[1]) == 2 && len(frames) == 3 && count(frames) == 3", ORDER),
        ('len(src) == 13 && upper(frames[0]) == "ORDERS" && lower(socket_type) == "pub"', ORDER),
        ('frames == "12" && frames[1:] == "12" && frames[-1] == "12" && frames[0:2] != "12"', ORDER),
        ('any frames != "12" && frames !== "12" && !(frames != "12") && !(all frames == "12")', ORDER),
        ("all frames.length >= 2 && frames.length > 5 && !(all frames.length > 5)", ORDER),
        ('frames contains "rder" && frames[0] contains 64:65 && src contains "5555"', ORDER),
        (r'frames matches "^ORD" && frames[1] ~ "\xff" && src matches r"^10\.0"', ORDER),
        ('packet in {1, 5 .. 9} && socket_type in {"SUB", "PUB"} && frames in {"x", "12"}', ORDER),
        ("packet not in {1 .. 6} && !(packet not in {7})", ORDER),
        ('socket_type in {"A" .. "Z"} && frames[2] in {"10" .. "13"}', ORDER),
        ("packet == 0x7 && packet == 07 && packet == 7.0 && -1 < packet && packet gt 6 && packet le 7", ORDER),
        ("latency_ns == 2.5ms && latency_ns < 1s && latency_ns > 2400us && latency_ns >= 2500000ns", ORDER),
        ("frame.time_epoch == 1700000000.5 && frame.time_epoch < 1700000000.500000001", ORDER),
        ('frame.time == "2023-11-14T22:13:20.5Z" && frame.time > "2023-11-14 22:13:20+00:00"', ORDER),
        ("ip.addr == 10.0.0.2 && ip.src == 10.0.0.1 && ip.dst in {10.0.0.2 .. 10.0.0.9}", ORDER),
        ("ip.addr == 10.0.0.0/31 && !(ip.addr != 10.0.0.0/31) && ip.addr != 192.168.0.0/16", ORDER),
        ('ip.dst > 10.0.0.1 && ip.src == "10.0.0.1" && ip.src != ip.dst', ORDER),
        ("tcp.port == 5555 && tcp.srcport == 5555 && tcp.dstport == 40000 && tcp.port > 5555", ORDER),
        ("tcp.stream == 2 && frame.number == packet", ORDER),
        ("frames[2].text < frames[0].text && src < frames[2].text", ORDER),
        ('zmtp.data.text == "orders" && zmtp.length == 6 && zmtp.data[1] == 00:ff', ORDER),
        ("ipv6.src == fe80::/10 && ipv6.addr == ::1 && tcp.port == 6", IPV6),
        ('topic == "abc" && topic.text == "abc" && topic[0:2] == "ab"', IPV6),
        ('properties.Socket-Type == "REQ" && properties["socket-type"].length == 3 && properties', READY),
        ('zmtp.metadata.key == "X-App" && zmtp.metadata.value == "shop" && count(zmtp.metadata.key) == 2', READY),
        ('zmtp.command-name == "READY" && zmtp.command-name.length == 5', READY),
        ('type == "command" && name == "HELLO" && mechanism == "PLAIN"', PLAIN),
        ('zmtp.version == "3.1" && zmtp.version.major == 3 && zmtp.version.minor == 1', GREETING),
        ("as_server == false && as_server && !(as_server == true)", GREETING),
        ("incomplete == false && !incomplete", ORDER),
        ('server.version == "3.1" && !client.version && messages.server == 2 && subscriptions == "a"', CONNECTION),
        ("ip.addr == 10.0.0.2 && tcp.port == 1 && src == src || flow == 3", CONNECTION),
        ("messages > 4 && messages == 5", TOTALS),
        ('severity in {"error", "warning"} && code contains "slow"', PROBLEM),
        ("packet xor packet xor packet", ORDER),
        ("!(packet ^^ packet)", ORDER),
        ("1 < packet <= 7 < tcp.port && !(1 < packet < 7) && !(7 < packet < 9)", ORDER),
        ("packet == 1 && packet == 2 || packet == 7", ORDER),
        ("packet == 7 || packet == 1 && packet == 2", ORDER),
        ("not packet == 1 and not packet == 2", ORDER),
        ('type\n==\n\t"message"', ORDER),
    ],
)
def test_what_passes(text: str, event: AnyEvent) -> None:
    assert _passes(text, event) is True
    assert _passes(f"!({text})", event) is False
    assert _passes(f"({text}) and not ({text})", event) is False


def test_a_field_that_is_missing_equals_nothing_and_differs_from_nothing() -> None:
    for text in (
        'identity == "a"',
        'identity != "a"',
        "identity.length < 5",
        'identity contains ""',
        "all identity == 61",
    ):
        assert _passes(text, GREETING) is False, text
        assert _passes(text, ORDER) is False, text
    assert _passes('!(identity == "a")', ORDER)


def test_lists_of_records() -> None:
    from dissectors.events import Share

    work = Work("10.0.0.1:5", 10, [Share("a:1", 7, 0.7), Share("b:2", 3, 0.3)])
    assert _passes('workers.address == "b:2" && workers[0].messages == 7 && workers[-1].share < 0.5', work)
    assert _passes("all workers.share > 0.2 && count(workers) == 2 && len(workers) == 2 && !workers[2]", work)


def _cut(data: bytes, length: int) -> Message:
    return Message(*PLACE, [Cut(data, length)])


def test_octets_that_are_not_at_hand_are_not_equal_to_anything() -> None:
    cut = _cut(b"orders", 10)
    for text in ('frames == "orders"', 'frames.text == "orders"', 'frames in {"orders", "a"}', "frames == frames"):
        assert _passes(text, cut) is False, text
    # They are certain to differ from what has another length or begins otherwise, and only from that.
    assert _passes('frames != "orders" && frames.text != "orders" && frames != "pricesABCD"', cut)
    assert _passes('frames != "ordersABCD"', cut) is False
    assert _passes('frames > "orders" && frames > "orderrABCD" && frames < "ordert"', cut)
    assert _passes('frames > "ordersABCD" || frames <= "ordersABCD"', cut) is False
    assert _passes('frames[0][0:6] == "orders" && frames[0][-10:2] == "or"', cut)
    assert _passes('frames[0][-2:] == "rs" || frames[0][5:2] == "s"', cut) is False
    assert _passes('frames.length == 10 && len(frames[0]) == 10 && frames.truncated && upper(frames) > "ORDERS"', cut)
    assert _passes('frames contains "rder" && frames.text contains "rder"', cut)
    assert _passes('len(frames[0].text) > 0 || upper(frames[0].text) == "ORDERS"', cut) is False


def test_the_end_of_what_is_at_hand_is_not_the_end() -> None:
    for field in ("frames", "frames.text"):
        assert _passes(
            f'{field} matches "order" && {field} matches "s.*" && {field} matches "^ord"', _cut(b"orders", 9)
        )
        for pattern in ("orders$", r"orders\b", r"s\z", r"s\B"):
            assert _passes(f'{field} matches r"{pattern}"', _cut(b"orders", 9)) is False, pattern


@pytest.mark.parametrize(
    "text",
    ['password == "secret"', 'password != "secret"', 'password contains ""', 'password matches ""', 'password >= ""',
     'password[0] == "s"', "password[0:]", 'password in {"secret"}', "password.text", "password.hex",
     "password.truncated", "password == password", "password != username", 'upper(password) == "SECRET"'],
)  # fmt: skip
def test_what_is_hidden_answers_nothing(text: str) -> None:
    assert _passes(text, PLAIN) is False
    assert _passes("password && password.length == 6 && len(password) == 6", PLAIN)


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ('type == "command" && soket_type == "REQ"', 22, 'there is no field "soket_type"; did you mean "socket_type"?'),
        ('frames[0].txt == "a"', 1, 'did you mean "frames.text"?'),
        ("message", 1, 'did you mean type == "message"?'),
        ('type == "mesage"', 9, 'type is never "mesage"; did you mean "message"?'),
        ('type in {"message", "gretting"}', 21, 'did you mean "greeting"?'),
        ('socket_type == "PUBB"', 16, 'socket_type is never "PUBB"; did you mean "PUB"?'),
        ('client.socket_type == "DEALR"', 23, 'client.socket_type is never "DEALR"; did you mean "DEALER"?'),
        ('mechanism == "NUL"', 14, 'mechanism is never "NUL"; did you mean "NULL"?'),
        ('code == "request-unanswred"', 9, 'code is never "request-unanswred"; did you mean "request-unanswered"?'),
        ('"not seen" == handshake', 1, 'handshake is never "not seen"; did you mean "not-seen"?'),
        ('type == "message" || severity != "warn"', 34, 'did you mean "warning"?'),
        ("frame.time_relative > 5", 1, "use frame.time_epoch"),
        ("zmtp.flags.more == 1", 1, "a record with all its frames"),
        ('packet contains "x"', 1, 'packet is a number; "contains" takes texts and octets'),
        ('latency_ns == "abc"', 15, 'latency_ns is a number, "abc" is not'),
        ("socket_type == 5", 16, "socket_type is a text, 5 is not"),
        ("socket_type == REQ", 16, 'a text is written in double quotes: "REQ"'),
        ("socket_type == 'REQ'", 16, "texts are in double quotes"),
        ("as_server > true", 1, "as_server is true or false"),
        ("as_server == maybe", 14, 'there is no field "maybe"'),
        ("packet > 5ms", 10, "packet is not in nanoseconds"),
        ("frames[0] == 5", 14, "frames[0] is octets, 5 is not"),
        ('ip.addr == "ten"', 12, "ip.addr is an IPv4 address"),
        ("ip.addr < 10.0.0.0/8", 11, "is a network"),
        ("client == 5", 1, "client is an object"),
        ("packet == src", 11, "packet is a number, src is a text"),
        ("topic == identity", 10, "no record has both"),
        ("packet = 5", 8, 'equal is "=="'),
        ("packet &", 8, 'did you mean "&&"?'),
        ("packet AND flow", 8, 'did you mean "and"?'),
        ("packet ==", 10, "a field or a value is missing at the end"),
        ("packet packet", 8, "an operator should follow"),
        ("1 < packet < src", 14, "packet is a number, src is a text"),
        ("(packet", 1, '"(" is not closed'),
        ("packet in {1, 2", 11, '"{" is not closed'),
        ('src == "a', 8, "no closing quote"),
        ('src == "\\q"', 8, "means nothing in a text"),
        ('src == "\\xff"', 8, "no UTF-8"),
        ("packet == 08", 11, "octal"),
        ("packet in {5 .. 1}", 17, "from the lower to the higher"),
        ("frames[a] == 00", 7, "places are"),
        ("frames[2-1] == 00", 7, "from a place to a later one"),
        ("packet[0] == 1", 1, "a number has no places"),
        ("lenn(frames) == 1", 1, 'did you mean "len"?'),
        ("len(packet) == 1", 1, "len() takes no such field"),
        ("len(frames)", 1, "says nothing alone"),
        ("5", 1, "says nothing alone"),
        ("5 == 6", 1, "one side must be a field"),
        ('src matches "(a"', 13, "no regular expression of RE2: missing )"),
        (r'src matches r"(a)\1"', 13, "no regular expression of RE2: invalid escape"),
        ("src matches dst", 13, "takes a regular expression"),
        ("src matches 5", 13, "written in double quotes"),
        ('"REQ" contains socket_type', 1, 'a field must be in front of "contains"'),
        ('"REQ" in {"REQ"}', 1, 'a field must be in front of "in"'),
        ("packet in {flow}", 12, "a set holds values, not fields"),
        ("client in {1}", 1, "client is an object"),
        ("ip.addr in {10.0.0.0/8 .. 10.0.0.1}", 13, "a network is a range already"),
        ("as_server in {false .. true}", 15, "as_server is true or false"),
        ('src == "\\ud800"', 8, "is no character"),
        ('(src == "a)" && dst == "\\"{"', 1, '"(" is not closed'),
        ('len("x") == 1', 1, "len() takes a field"),
        ("frames[0:0] == 00", 7, "at least 1"),
        ("", 1, "empty"),
        (" \n ", 1, "empty"),
    ],
)
def test_mistakes(text: str, column: int, says: str) -> None:
    with pytest.raises(FilterError, match="column") as caught:
        compile_filter(text)
    assert says in str(caught.value)
    assert caught.value.column == column
    assert "\n" not in str(caught.value)


def test_a_mistake_in_a_later_line() -> None:
    with pytest.raises(FilterError) as caught:
        compile_filter('type == "message"\n&& soket_type == "a"')
    assert str(caught.value).startswith("line 2, column 4: ")
    assert (caught.value.line, caught.value.column) == (2, 4)


@pytest.mark.parametrize(
    "text",
    ["!" * 9_000 + "packet", "(!" * 3_000 + "packet" + ")" * 3_000, "len(" * 500 + "frames" + ")" * 500 + " == 1",
     "frames" + "[0]" * 500, "packet == " + "9" * 9_000, "packet == 1e" + "9" * 50, "x" * 10_001, "(" * 9_000,
     'src matches "' + "(a{1,1000}){1,1000}" + '"', "frames[" + "9" * 50 + "]", "\ud800", 'src == "\udcff"'],
    ids=range(12),
)  # fmt: skip
def test_what_goes_too_far_is_refused(text: str) -> None:
    with pytest.raises(FilterError):
        compile_filter(text)


def test_long_filters_and_many_parentheses_work() -> None:
    assert _passes("(" * 2_000 + "packet" + ")" * 2_000, ORDER)
    assert _passes(" || ".join(f"flow == {number}" for number in range(10, 300)) + " || flow == 3", ORDER)
    assert _passes("!" * 50 + "packet", ORDER)


def test_expressions_that_take_others_for_ever() -> None:
    message = Message(*PLACE, [b"a" * 50_000 + b"!"])
    began = time.process_time()
    assert _passes('frames matches "^(a+)+$" || frames.text matches "^(a|aa)+$" || frames ~ "(.*)*b"', message) is False
    assert time.process_time() - began < 30  # one that goes back does not end at all


def test_nothing_that_is_written_becomes_code() -> None:
    for text in ('src == "\\"); raise SystemExit #"', 'properties["__class__"] == "x"', 'properties.__class__ == "x"'):
        assert _passes(text, READY) is False
    for text in ("__class__", "e.__class__", "frames.__len__", "src.upper", "namespace", "properties.a.b.c"):
        with pytest.raises(FilterError):
            compile_filter(text)


@settings(max_examples=examples(300), deadline=None)
@given(FILTERS, st.lists(EVENTS, max_size=4))
def test_any_filter_says_yes_or_no_of_any_event(text: str, events: list[AnyEvent]) -> None:
    try:
        passes = compile_filter(text)
    except FilterError:
        return
    for event in events:
        assert passes(event) in (True, False)


@settings(max_examples=examples(150), deadline=None)
@given(FILTERS, FILTERS, st.lists(EVENTS, max_size=4))
def test_equivalences(one: str, other: str, events: list[AnyEvent]) -> None:
    try:
        first, second = compile_filter(one), compile_filter(other)
    except FilterError:
        return
    pairs: list[tuple[str, Callable[[AnyEvent], bool]]] = [
        (f"(({one}))", first),
        (f"!!({one})", first),
        (f"!({one})", lambda event: not first(event)),
        (f"({one}) and ({other})", lambda event: first(event) and second(event)),
        (f"({one}) or ({other})", lambda event: first(event) or second(event)),
        (f"({one}) xor ({other})", lambda event: first(event) != second(event)),
        (f"!(({one}) && ({other}))", lambda event: not first(event) or not second(event)),
        (f"!({one}) || !({other})", lambda event: not (first(event) and second(event))),
    ]
    for text, expected in pairs:
        passes = compile_filter(text)
        for event in events:
            assert passes(event) is expected(event), text


_PIECES = ['"a"', "packet", "frames", "==", "in", "{", "}", "(", ")", "[0]", ".text", "!", "&&", "or", "1", "..", "any"]
_PIECES += ["aa:bb", "10.0.0.1", "len(", "contains", "~", ",", "not", 'r"', "\\", "\n", "zmtp", "::", "-", "ff", "5ms"]
_ALMOST = FILTERS.flatmap(lambda text: st.integers(0, len(text)).map(lambda place: text[:place] + text[place + 1 :]))


@settings(max_examples=examples(500), deadline=None)
@given(st.text(max_size=40) | st.lists(st.sampled_from(_PIECES)).map(" ".join) | _ALMOST)
def test_any_text_is_a_filter_or_a_mistake(text: str) -> None:
    wrong: FilterError | None = None
    try:
        assert compile_filter(text)(ORDER) in (True, False)
    except FilterError as error:
        wrong = error
    if wrong is not None:
        assert "\n" not in str(wrong)
        assert wrong.column >= 1
