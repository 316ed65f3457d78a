"""Where the time of a way went, and where and why it ended."""

import pytest

from dissectors.events import Message, Problem
from tests.analysis.ways.scenes import MS, Scene
from tests.support.footprint import entries
from zmtpsniff.analysis.ways.endings import Endings
from zmtpsniff.analysis.ways.programs import Programs
from zmtpsniff.analysis.ways.way_records import Terminus, Way
from zmtpsniff.analysis.ways.ways import Ways

ID = b"\0\x01\x02\x03\x04"
FRONT, BACK, WORKER = "10.0.1.1:5555", "10.0.1.1:5556", "10.0.2.1:40000"


def broker() -> Scene:
    """A client (flow 1), a broker and a worker (flow 2); one request has gone there and back."""
    scene = Scene()
    scene.connect(1, "10.0.0.1:40000", FRONT, types=("REQ", "ROUTER"))
    scene.connect(2, WORKER, BACK, types=("REP", "DEALER"))
    request(scene)
    return scene


def request(scene: Scene, *, forward: bool = True, answer: bool = True, back: bool = True, ms: float = 1) -> None:
    """A request on its way, as far as that."""
    asked = scene.say(1, b"", b"%d" % scene.now_ns)
    if not forward:
        return
    passed = scene.say(2, ID, *asked.frames, by_server=True, after_ms=ms)
    if not answer:
        return
    scene.say(2, ID, b"", b"re %d" % scene.now_ns, answers=passed)
    if back:
        scene.say(1, *scene.events[-1].frames[1:], by_server=True, answers=asked)  # type: ignore[union-attr]


def last(scene: Scene, wait_ms: float = 10_000) -> Way:
    return scene.ways(wait_ms=wait_ms)[-1]


@pytest.mark.parametrize(
    ("forward", "answer", "expected"),
    [
        (False, False, Terminus(FRONT, "not-forwarded")),
        (True, False, Terminus(WORKER, "not-answered")),
        (True, True, Terminus(BACK, "reply-not-forwarded")),
    ],
)
def test_a_request_ends_where_nothing_comes_of_it(forward: bool, answer: bool, expected: Terminus) -> None:
    scene = broker()
    request(scene, forward=forward, answer=answer, back=False)
    assert last(scene).ended == expected
    assert last(scene).answered is False


@pytest.mark.parametrize("answer", [False, True])
def test_a_capture_that_ends_accuses_nobody(answer: bool) -> None:
    scene = broker()
    request(scene, answer=answer, back=False)
    assert str(last(scene, wait_ms=20).ended and last(scene, wait_ms=20).ended.why) == "capture-ended"  # type: ignore[union-attr]


def test_holes_in_the_capture_explain_all() -> None:
    """The octets that the capture lacks may be the message that the broker passed on."""
    scene = broker()
    request(scene, forward=False)
    scene.events.append(Problem("error", "capture-gap", "octets are missing", 1, 1, 2, BACK, WORKER))
    assert last(scene).ended is None


@pytest.mark.parametrize(
    ("since_ms", "until_ms", "found_ms", "why"),
    [
        (0, 1, None, "not-forwarded"),
        (900, 1000, None, None),  # before the message, up to when it may have gone on
        (1005, 1100, None, None),
        (3000, 3100, None, "not-forwarded"),
        (None, 3100, None, None),  # at any time before
        (900, 950, 1100, None),  # what followed could not be read at first
    ],
)
def test_a_hole_explains_what_passed_in_its_time(
    since_ms: int | None, until_ms: int, found_ms: int | None, why: str | None
) -> None:
    """Octets between the broker and its worker are missing, when nothing was there or when a message may have been."""
    scene = broker()
    for _ in range(60):
        request(scene)
    scene.say(1, b"", b"lost", after_ms=1000 - scene.now_ns // MS)
    scene.say(1, b"", b"later", after_ms=4000)
    since_ns = None if since_ms is None else since_ms * MS
    place = 1, 2, BACK, WORKER
    scene.events.append(Problem("error", "capture-gap", "", until_ms * MS, *place, since_ns=since_ns))
    if found_ms is not None:
        scene.events.append(Problem("note", "frames-found-again", "", found_ms * MS, *place))
    lost = next(way for way in scene.ways() if way.legs[0].time_ns == 1000 * MS)
    assert (lost.ended and lost.ended.why) == why


def test_a_reply_that_follows_a_hole_may_answer_any_request() -> None:
    """Nothing tells two requests of one client apart. Then it is not known which of them has no reply."""
    scene = broker()
    for _ in range(20):
        request(scene)
    place = scene.now_ns, 1, 2, WORKER, BACK
    scene.events.append(Problem("error", "capture-gap", "", *place, since_ns=scene.now_ns))
    scene.say(1, b"", b"the same", after_ms=1000)
    scene.say(2, ID, b"", b"the same", by_server=True)
    scene.say(2, ID, b"", b"the same", by_server=True)
    scene.say(2, ID, b"", b"reply")
    assert not any(way.ended for way in scene.ways(wait_ms=20_000))


@pytest.mark.parametrize(
    ("problems_say_ns", "explains_ns", "may_mistake"),
    [
        ((), 0, False),
        ((1 * MS,), 9 * MS, False),
        ((1 * MS, 2 * MS), 19 * MS, False),
        ((20 * MS,), 190 * MS, True),  # a message may come longer behind the next leg than anybody looks for it
        ((1 * MS, None), None, True),  # clocks differ, nobody knows by how much
        ((0,), None, True),  # the packets are in another order than their times, and no message tells more
    ],
)
def test_disorder_explains_times_that_are_about_as_long(
    problems_say_ns: tuple[int | None, ...], explains_ns: int | None, may_mistake: bool
) -> None:
    endings = Endings(Programs())
    for by_ns in problems_say_ns:
        endings.disorder(by_ns)
    longest_ns = 3600 * 1000 * MS if explains_ns is None else explains_ns
    assert endings.may_be_disorder(longest_ns) == (explains_ns != 0)
    assert endings.may_be_disorder(2 * longest_ns + MS) == (explains_ns is None)
    assert endings.may_mistake == may_mistake


@pytest.mark.parametrize("has_hole", [False, True])
def test_messages_tell_the_disorder_of_packets_whose_times_are_right(has_hole: bool) -> None:
    """But one may have waited for octets that the capture lacks."""
    scene = broker()
    place = scene.now_ns, 1, 2, BACK, WORKER
    if has_hole:
        scene.events.append(Problem("error", "capture-gap", "octets are missing", *place))
    scene.say(1, b"", b"late").time_ns -= 3 * MS
    scene.events.append(Problem("note", "capture-disorder", "20 packets came late", by_ns=0))
    ways = Ways()
    ways.take(scene.events)
    assert ways.endings.disorder_ns == (None if has_hole else 2 * MS)


def test_holes_that_are_too_many_may_be_anywhere() -> None:
    endings = Endings(Programs())
    for number in range(1000):
        endings.see_hole(number, number, "10.0.0.1")
        assert not endings.has_hole("10.0.0.1:5555", 2000, 3000)
    endings.see_hole(1, 1, "10.0.0.1")
    assert endings.has_hole("10.0.0.1:5555", 2000, 3000)


def test_a_broker_whose_other_workers_are_not_captured_is_not_accused() -> None:
    scene = broker()
    asked = scene.say(1, b"", b"to another worker")
    scene.say(1, b"", b"of another worker", by_server=True, answers=asked)
    request(scene, forward=False)
    assert last(scene).ended == Terminus(FRONT, "not-answered")


def test_jobs_whose_numbers_are_too_short_to_be_found_again_are_not_lost() -> None:
    """Until the first result that is joined to its job, nobody knows what came of the jobs before."""
    scene = Scene()
    scene.connect(1, "10.0.2.1:40000", "10.0.0.1:5555", types=("PULL", "PUSH"))
    scene.connect(2, "10.0.2.1:40001", "10.0.3.1:5556", types=("PUSH", "PULL"))
    for number in range(30):
        scene.say(1, b'{"id": "v-%d"}' % number, by_server=True)
        scene.say(2, b'{"id": "v-%d", "done": true}' % number)
    scene.say(1, b'{"id": "v-30"}', by_server=True)
    ways = [way for way in scene.ways() if way.legs[0].flow == 1]
    assert [len(way.legs) for way in ways] == [1] * 10 + [2] * 20 + [1]
    assert [way.ended for way in ways] == [None] * 30 + [Terminus("10.0.2.1:40000", "not-forwarded")]


@pytest.mark.parametrize("lives", [True, False])
def test_two_brokers_answer_over_a_connection_of_their_own_each(lives: bool) -> None:
    """The coordinators of LECO sign in, which is answered; later replies come over the DEALER of the other one."""
    scene = Scene()
    scene.connect(1, "10.0.2.1:40000", "10.0.0.1:12300", types=("DEALER", "ROUTER"))
    scene.connect(2, "10.0.0.1:40000", "10.0.2.1:12300", types=("DEALER", "ROUTER"))
    scene.connect(3, "10.0.3.1:40000", "10.0.0.1:12300", types=("DEALER", "ROUTER"))
    asked = scene.say(1, b"COORDINATOR", b"sign in")
    scene.say(1, b"N1", b"welcome", by_server=True, answers=asked)
    for number in range(20):
        scene.say(1, b"N1", b"question %d" % number)
        if lives:
            scene.say(2, b"N2", b"answer %d" % number)
            asked = scene.say(3, b"N1", b"question of another one")
            scene.say(3, b"N1", b"reply", by_server=True, answers=asked)
    ends = {str(way.ended and way.ended.why) for way in scene.ways() if [leg.flow for leg in way.legs] == [1]}
    assert ends == {"None" if lives else "not-answered"}


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_router_that_has_no_answer_from_any_dealer_tells_them_something(is_answered: bool) -> None:
    """Pushpin's proxy sends credits from a ROUTER to a DEALER, and an empty frame in front of them."""
    scene = Scene()
    scene.connect(1, "10.0.2.1:40000", "10.0.0.1:7301", types=("ROUTER", "DEALER"))
    scene.connect(2, "10.0.2.1:40001", "10.0.0.1:7302", types=("SUB", "PUB"))
    scene.connect(3, "10.0.0.1:40000", "10.0.3.1:5555", types=("DEALER", "ROUTER"))
    scene.say(3, b"", b"the host asks others, too")
    for number in range(3):
        told = scene.say(1, b"", b"credits request-%d" % number)
        scene.say(2, b"proxy: a part of request-%d" % number, by_server=True)
        if is_answered and number < 2:
            scene.say(1, b"", b"thanks", by_server=True, answers=told)
    (ended,) = [way.ended for way in scene.ways() if way.legs[0].packet == told.packet]
    assert ended == (Terminus("10.0.0.1:7301", "not-answered") if is_answered else None)


@pytest.mark.parametrize("is_sent", [True, False])
@pytest.mark.parametrize("is_to_the_same", [True, False])
def test_a_job_without_id_may_go_on_in_a_message_that_nothing_joins(is_sent: bool, is_to_the_same: bool) -> None:
    """A proxy such as Pushpin's writes requests anew: an id in a path joins the two, and some paths have none."""
    scene = Scene()
    scene.connect(1, "10.0.2.1:40000", "10.0.0.1:5555", types=("PULL", "PUSH"))
    scene.connect(2, "10.0.2.1:40001", "10.0.3.1:5556", types=("PUSH", "PULL"))
    scene.connect(3, "10.0.2.1:40002", "10.0.4.1:5557", types=("PUSH", "PULL"))
    for number in range(30):
        scene.say(1, b"GET /page-%04d" % number, by_server=True)
        scene.say(2, b"fetch for me /page-%04d" % number)
    scene.say(1, b"GET /stream", by_server=True)
    if is_sent:
        scene.say(2 if is_to_the_same else 3, b"fetch for me /stream")
    ended = [way.ended for way in scene.ways() if way.legs[0].flow == 1][-1]
    may_have_gone_on = is_sent and is_to_the_same
    assert ended == (None if may_have_gone_on else Terminus("10.0.2.1:40000", "not-forwarded"))


@pytest.mark.parametrize(
    ("count", "order", "why"),
    [
        (41, [*range(39), 40], "not-forwarded"),  # the one before the last is passed over
        (41, [0, 2, 1, *range(3, 39), 40], "capture-ended"),  # it may still come
        (11, [*range(9), 10], "capture-ended"),  # some ten in order may be chance
        (41, [*range(39)], "capture-ended"),
    ],
)
def test_a_job_that_is_passed_over_shortly_before_the_end(count: int, order: list[int], why: str) -> None:
    scene = Scene()
    scene.connect(1, "10.0.2.1:40000", "10.0.0.1:5555", types=("PULL", "PUSH"))
    scene.connect(2, "10.0.2.1:40001", "10.0.3.1:5556", types=("PUSH", "PULL"))
    for number in range(count):
        scene.say(1, b'{"id": "job-%04d"}' % number, by_server=True)
    for number in order:
        scene.say(2, b'{"id": "job-%04d", "done": true}' % number)
    ways = {way.legs[0].packet: way for way in scene.ways(wait_ms=1) if way.legs[0].flow == 1}
    ended = ways[count - 1].ended
    assert ended is not None
    assert ended.why == why


def test_a_message_that_is_sent_again_and_never_acknowledged_is_not_taken() -> None:
    scene = broker()
    request(scene, answer=False)
    sent = scene.events[-1]
    assert isinstance(sent, Message)
    told = [(scene.now_ns + MS, 1, "10.0.0.1:40000", sent.offset)]
    assert scene.ways(acknowledged=told, resent=sent)[-1].ended == Terminus(WORKER, "not-taken")
    once = scene.ways(acknowledged=told)[-1]
    assert once.ended == Terminus(WORKER, "not-answered"), "the capture may lack the acknowledgment"
    told += [(scene.now_ns + MS, 2, BACK, sent.offset + more) for more in (0, 5)]
    way = scene.ways(acknowledged=told, resent=sent)[-1]
    assert way.ended == Terminus(WORKER, "not-answered")
    assert way.legs[-1].seen_ns == scene.now_ns + MS


def test_a_reply_that_never_arrives_answers_nothing() -> None:
    scene = broker()
    request(scene)
    sent = scene.events[-1]
    assert isinstance(sent, Message)
    assert scene.ways(acknowledged=[])[-1].answered is True
    way = scene.ways(acknowledged=[], resent=sent)[-1]
    assert (way.answered, way.ended) == (False, Terminus(sent.dst, "not-taken"))


def test_a_reply_whose_request_nobody_saw_is_no_request() -> None:
    """Such as that of a worker that answers on a new connection."""
    scene = Scene()
    scene.connect(1, "10.0.0.1:40000", "10.0.0.2:5555", types=("DEALER", "ROUTER"))
    scene.connect(2, "10.0.0.3:40001", "10.0.0.2:5556", types=("DEALER", "DEALER"))
    scene.say(2, b"\0abcd", b"", b"answer")
    scene.say(1, b"", b"answer", by_server=True)
    (way,) = scene.ways()
    assert [leg.reply for leg in way.legs] == [False, True]
    assert way.answered is None


@pytest.mark.parametrize(
    ("delimiter", "answered", "ended"),
    [([b""], False, Terminus(WORKER, "not-answered")), ([], None, None)],
    ids=["as a REQ asks", "it may only tell something"],
)
def test_a_dealer_to_whom_nobody_ever_answered(
    delimiter: list[bytes], answered: bool | None, ended: Terminus | None
) -> None:
    scene = Scene()
    scene.connect(1, "10.0.0.1:40000", FRONT, types=("DEALER", "ROUTER"))
    scene.connect(2, WORKER, BACK, types=("DEALER", "DEALER"))
    for number in range(3):
        asked = scene.say(1, *delimiter, b"%d" % number)
        scene.say(2, ID, *asked.frames, by_server=True)
    for way in scene.ways(wait_ms=10_000):
        assert (len(way.legs), way.answered, way.ended) == (2, answered, ended)


@pytest.mark.parametrize(("others", "answered"), [(3, False), (2, None)])
def test_a_dealer_asks_if_others_of_its_kind_are_answered(others: int, answered: bool | None) -> None:
    scene = Scene()
    for flow in (1, 3):
        scene.connect(flow, f"10.0.0.{flow}:40000", FRONT, types=("DEALER", "ROUTER"))
    scene.connect(2, WORKER, BACK, types=("DEALER", "DEALER"))
    for number in range(others):
        asked = scene.say(3, b"%d?" % number)
        passed = scene.say(2, b"\0wxyz", *asked.frames, by_server=True)
        scene.say(2, b"\0wxyz", b"%d!" % number, answers=passed)
        scene.say(3, b"%d!" % number, by_server=True, answers=asked)
    scene.say(2, ID, *scene.say(1, b"and me?").frames, by_server=True)
    way = scene.ways(wait_ms=10_000)[-1]
    assert (len(way.legs), way.answered) == (2, answered)


@pytest.mark.parametrize(("wait_ms", "why"), [(1500, "capture-ended"), (9000, "not-answered")])
def test_a_worker_may_take_as_long_again_as_it_took_before(wait_ms: float, why: str) -> None:
    scene = Scene()
    scene.connect(1, "10.0.0.1:40000", "10.0.1.1:5555", types=("REQ", "REP"))
    asked = scene.say(1, b"", b"first")
    scene.say(1, b"", b"done", by_server=True, answers=asked, after_ms=2000)
    scene.say(1, b"", b"second")
    last = scene.ways(wait_ms=wait_ms)[-1]
    assert last.ended is not None
    assert last.ended.why == why


@pytest.mark.parametrize("is_proxied", [False, True])
def test_who_hears_about_a_request_has_nothing_of_it_in_hand(is_proxied: bool) -> None:
    """A worker publishes that it is busy, perhaps through a proxy, and ends; then the one that asked closes."""
    scene = broker()
    scene.connect(3, "10.0.2.1:40002", "10.0.1.1:5557", types=("XPUB", "SUB"))
    scene.connect(4, "10.0.0.1:40001", "10.0.1.1:5558", types=("SUB", "PUB"))
    scene.connect(5, "10.0.2.1:40003", "10.0.1.1:5559", types=("DEALER", "ROUTER"))
    scene.say(5, b"register")  # a host that asks others may ask them for what it takes
    asked = scene.say(1, b"", b"task-17")
    scene.say(2, ID, *asked.frames, by_server=True)
    scene.say(3, b"status", b"busy with task-17")
    if is_proxied:
        scene.say(4, b"status", b"busy with task-17", by_server=True)
    scene.close(2)
    scene.close(3)
    scene.close(4)
    way = last(scene)
    assert [leg.flow for leg in way.legs] == [1, 2, 3, 4][: 3 + is_proxied]
    assert way.ended == Terminus(WORKER, "closed")


@pytest.mark.parametrize(("late_ms", "is_late"), [(50, False), (150, True)])
def test_messages_that_come_long_behind_later_ones(late_ms: int, is_late: bool) -> None:
    """They waited for octets that the capture lacks; meanwhile others may have been taken for them."""
    scene = Scene()
    for number in (1, 2):
        scene.connect(number, f"10.0.0.{number}:40000", "10.0.0.9:5555", types=("DEALER", "ROUTER"))
    scene.say(1, b"in time", after_ms=200)
    scene.say(2, b"late", after_ms=-late_ms)
    ways = Ways()
    ways.take(scene.events)
    late = scene.events[-1]
    assert isinstance(late, Message)
    time_ns = late.time_ns
    assert not ways.endings.has_delay("10.0.0.1:40000", 0, 1 << 62)
    assert ways.endings.has_delay("10.0.0.2:40000", time_ns, time_ns) == is_late
    assert not ways.endings.has_delay("10.0.0.2:40000", 0, time_ns - 1)


def test_of_very_many_hosts_with_holes_it_is_not_known_which() -> None:
    endings = Endings(Programs())
    for number in range(30_000):
        endings.blind(f"10.1.{number // 250}.{number % 250}", has_gap=True)
    assert entries(endings) < 25_000
    assert endings.has_gap("10.9.9.9:5555")


def _worker_joined_late(answers: int = 20) -> Scene:
    """A broker and its worker have worked together since before the capture; it answered so many requests."""
    scene = Scene()
    scene.join_late(1, "10.0.0.2:40000", "10.0.0.1:5555")
    scene.join_late(2, "10.0.0.3:41000", "10.0.0.1:5556")
    for number in range(1000, 1000 + answers):
        _ask(scene, b"", b"request %d" % number)
        scene.say(2, b"\0\0\0\0\7", b"", b"reply %d" % number)
        scene.say(1, b"", b"reply %d" % number, by_server=True)
    return scene


def _ask(scene: Scene, *request: bytes) -> None:
    scene.say(1, *request)
    scene.say(2, b"\0\0\0\0\7", *request, by_server=True)


LAST = b"request 5000"


def test_joined_late_a_worker_that_answered_many_is_seen_to_close_with_one_in_hand() -> None:
    scene = _worker_joined_late()
    _ask(scene, b"", LAST)
    scene.close(2)
    assert last(scene).ended == Terminus("10.0.0.3:41000", "closed")


def test_joined_late_one_that_answered_few_may_have_another_connection() -> None:
    scene = _worker_joined_late(answers=3)
    _ask(scene, b"", LAST)
    scene.close(2)
    assert last(scene).ended is None


def test_joined_late_one_that_answers_and_asks_may_wait_for_another_one() -> None:
    scene = _worker_joined_late()
    scene.join_late(3, "10.0.0.3:42000", "10.0.0.4:5557")
    _ask(scene, b"", LAST)
    scene.close(2)
    assert last(scene).ended is None


@pytest.mark.parametrize("has_other_worker", [True, False])
def test_joined_late_a_broker_may_have_passed_on_what_came_before_the_first_frames_to_its_worker(
    has_other_worker: bool,
) -> None:
    scene = _worker_joined_late()
    scene.say(1, b"", LAST)
    scene.now_ns += 100 * MS
    if has_other_worker:
        scene.join_late(3, "10.0.0.4:42000", "10.0.0.1:5556")
    assert last(scene).ended == (None if has_other_worker else Terminus("10.0.0.1:5555", "not-forwarded"))


def test_joined_late_a_message_without_the_delimiter_of_the_others_may_have_been_dropped() -> None:
    scene = _worker_joined_late()
    _ask(scene, LAST)
    scene.close(2)
    assert last(scene).ended is None
