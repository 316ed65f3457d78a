"""Topics that are nearly those that are published."""

from pathlib import Path

import pytest
from msgspec import structs

import zmtpsniff
from dissectors.events import Command, Connection, Message, Subscription
from tests.analysis.findings.diagnoses import diagnose, diagnose_events
from tests.analysis.ways.scenes import MS, Scene
from tests.support.footprint import entries
from tests.support.paths import FIXTURES
from tests.world.tap import load, save
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.findings import topics as topics_module
from zmtpsniff.analysis.findings.topics import nearest


@pytest.mark.parametrize(
    ("topic", "published", "meant"),
    [
        (b"prices.GPB", b"prices.GBP", b"prices.GBP"),
        (b"prices.GBO", b"prices.GBP", b"prices.GBP"),
        (b"price.GBP", b"prices.GBP", b"prices.GBP"),
        (b"prices.gbp", b"prices.GBP", b"prices.GBP"),
        (b"prices/GBP", b"prices.GBP", b"prices.GBP"),
        (b" prices.GBP", b"prices.GBP", b"prices.GBP"),
        (b"prices.GBP\0", b"prices.GBP", b"prices.GBP"),
        (b"prics.", b"prices.EUR 1.0823", b"prices."),
        (b"pricess.", b"prices.EUR 1.0823", b"prices."),
        (b"wether", b"weather 10001 27 48", b"weather"),
        (b"Weather", b"weather 10001 27 48", b"weather"),
    ],
)
def test_typos(topic: bytes, published: bytes, meant: bytes) -> None:
    assert nearest(topic, [b"something else", published]) == meant


@pytest.mark.parametrize(
    ("topic", "published"),
    [
        (b"prices.EUR", b"prices.GBP"),
        (b"sensor2", b"sensor1"),
        (b"sensor12", b"sensor3"),
        (b"topicA", b"topicB"),
        (b"news.us", b"news.uk"),
        (b"a", b"b"),
        (b"weather", b"wx"),
        (b"", b"everything"),
        (b"\xff\xfe\xfd\xfc", b"\x01\x02\x03\x04"),
        (b"orders.new", b"prices.GBP"),
    ],
)
def test_names_that_are_meant(topic: bytes, published: bytes) -> None:
    assert nearest(topic, [published]) is None


def test_what_is_published_is_named_where_no_topic_is_near() -> None:
    """A healthy shop, one of whose subscribers has another topic, and so gets nothing."""
    events = list(zmtpsniff.open(FIXTURES / "shop" / "none.pcap.gz"))
    wish = next(one for one in events if isinstance(one, Subscription) and one.topic == b"prices.EUR")
    diagnosis = Diagnosis()
    for event in events:
        if event is wish:
            diagnosis.take([structs.replace(wish, topic=b"rates.EUR")])
        elif not (isinstance(event, Message) and event.flow == wish.flow):
            diagnosis.take([event])
    found = [one for one in diagnosis.findings() if one.code == "subscription-unmatched"]
    assert [one.severity for one in found] == ["note"]
    assert found[0].suggestion is None
    assert found[0].known.endswith('none of which begins with "rates.EUR"; they got "prices.GBP"')


@pytest.mark.parametrize(
    ("topic", "other", "severity", "suggestion"),
    [
        (b"News.", b"audit.", "warning", "news."),
        (b"news/sport", b"audit.", "warning", "news.sport"),
        (b"news.spart", b"audit.", "note", "news.sport"),  # perhaps a topic without news
        (b"Audit.", b"audit.", "note", None),  # it has the other one, too
    ],
)
def test_a_topic_is_misspelt_though_another_one_matches(
    topic: bytes, other: bytes, severity: str, suggestion: str | None
) -> None:
    """The proxies in front of the subscriber repeat the topic, and nobody speaks of them."""
    topics = {b"News.": topic, b"audit.": other}
    diagnosis = Diagnosis()
    for event in zmtpsniff.open(FIXTURES / "systems" / "topic_misspelt.pcap.gz"):
        if isinstance(event, Subscription) and isinstance(event.topic, bytes):
            event = structs.replace(event, topic=topics.get(event.topic, event.topic))
        diagnosis.take([event])
    (found,) = diagnosis.findings()
    assert (found.severity, found.suggestion) == (severity, suggestion)
    assert found.endpoints == ["10.9.0.28:57246", "10.9.0.23:7488"]
    assert found.advice.startswith("Nothing, if there was no such news yet. ") == (suggestion is None)


@pytest.mark.parametrize(
    ("group", "suggestion", "summary"),
    [
        (b"waether", "weather", 'no message matches its group "waether"; did you mean "weather"?'),
        (b"weath", None, 'no message matches its group "weath"'),  # others get what begins so, but a group is whole
        (b"news", None, 'no message matches its group "news"'),
    ],
)
def test_groups_match_as_a_whole(group: bytes, suggestion: str | None, summary: str) -> None:
    diagnosis = Diagnosis()
    for event in zmtpsniff.open(FIXTURES / "systems" / "wrong_group.pcap.gz"):
        is_wrong = isinstance(event, Command) and event.group == b"waether"
        diagnosis.take([structs.replace(event, group=group) if is_wrong else event])
    (found,) = [one for one in diagnosis.findings() if one.code == "subscription-unmatched"]
    assert (found.suggestion, found.severity) == (suggestion, "warning" if suggestion else "note")
    assert found.summary == f"10.9.1.3:43983 got nothing: {summary}"
    assert f'none of which is of the group "{group.decode()}"' in found.known


def test_a_proxy_gets_each_topic_from_those_who_publish_it() -> None:
    """Its XSUB subscribes at each publisher to all that anybody behind it wants."""
    assert [one for one in diagnose(FIXTURES / "healthy" / "calls_over_a_bus.pcap.gz") if "topic" in one.summary] == []


def test_a_misspelt_topic_is_of_who_wants_it_also_if_octets_of_its_connection_are_missing(tmp_path: Path) -> None:
    """The XSUB of a proxy in between got nothing of the topic, either."""
    packets = load(FIXTURES / "systems" / "topic_misspelt.pcap.gz")
    to_subscriber = [one for one in packets if one[2][36:38] == (57246).to_bytes(2, "big") and len(one[2]) > 120]
    packets.remove(to_subscriber[5])
    save(tmp_path / "gap.pcap", packets)
    found = [one for one in diagnose(tmp_path / "gap.pcap") if one.severity != "note"]
    assert [(one.code, one.endpoints[0]) for one in found] == [("subscription-unmatched", "10.9.0.28:57246")]


@pytest.mark.parametrize(
    ("octets", "named"),
    [(b"\5READY", "10.9.0.28:57246"), (b"\x09SUBSCRIBE", None)],
    ids=["announcement", "subscription"],
)
def test_a_proxy_does_not_answer_for_a_topic_whose_subscriber_is_hidden(
    tmp_path: Path, octets: bytes, named: str | None
) -> None:
    """The capture lacks that the peer of the subscriber is a publisher, or the subscription itself."""
    packets = load(FIXTURES / "systems" / "topic_misspelt.pcap.gz")
    lost = next(
        one
        for one in packets
        if octets in one[2] and (57246).to_bytes(2, "big") in (one[2][34:36], one[2][36:38])
        and (named is None or one[2][36:38] == (57246).to_bytes(2, "big"))
    )  # fmt: skip
    packets.remove(lost)
    save(tmp_path / "gap.pcap", packets)
    found = [one for one in diagnose(tmp_path / "gap.pcap") if one.severity != "note"]
    assert [(one.code, one.endpoints[0]) for one in found] == ([("subscription-unmatched", named)] if named else [])


@pytest.mark.parametrize("closed", [(1,), (2, 1)])
@pytest.mark.parametrize(
    ("apart_ms", "topic", "is_told"), [(1, b"stat.", False), (1, b"state.", True), (400, b"stat.", True)]
)
def test_a_subscriber_of_two_publishers_has_each_topic_from_one_of_them(
    closed: tuple[int, ...], apart_ms: int, topic: bytes, is_told: bool
) -> None:
    """Circus has one for events and one for statistics; a SUB that connects to both subscribes to all at each."""
    scene, ends = Scene(), {1: ("10.0.0.1:40001", "10.0.0.9:5556"), 2: ("10.0.0.1:40002", "10.0.0.9:5557")}
    for flow, (client, server) in ends.items():
        scene.connect(flow, client, server, types=("SUB", "PUB"))
        for wanted in (b"watcher.", topic):
            place = scene.now_ns, 10 * flow, flow, client, server
            scene.events.append(Subscription(*place, "subscribe", wanted, "command"))
        scene.now_ns += apart_ms * MS
    for _ in range(5):
        scene.say(1, b"watcher.a", b"x", by_server=True, after_ms=100).matched = b"watcher."
        scene.say(2, b"stat.a", b"x", by_server=True, after_ms=100).matched = b"stat."
    for flow in closed:
        scene.close(flow)
        over = scene.events.pop()
        assert isinstance(over, Connection)
        scene.events.append(structs.replace(over, handshake="complete"))
    told = [one for one in diagnose_events(scene.events) if one.code == "subscription-unmatched"]
    assert any(topic.decode() in one.summary for one in told) is is_told


def test_topics_that_come_once_each_cost_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one for each reply: it is wanted, it comes, and it is cancelled."""
    monkeypatch.setattr(topics_module, "_MATCHED", 100)
    diagnosis, scene = Diagnosis(), Scene()
    scene.connect(1, "10.0.0.1:40000", "10.0.0.2:5555", types=("SUB", "PUB"))
    sizes = []
    for number in range(22_000):
        topic = b"reply.%d" % number
        for action in ("subscribe", "cancel"):
            if action == "cancel":
                scene.say(1, topic, b"x", by_server=True).matched = topic
            scene.events.append(
                Subscription(scene.now_ns, 1, 1, "10.0.0.1:40000", "10.0.0.2:5555", action, topic, "command")
            )
        diagnosis.take(scene.events)
        scene.events.clear()
        if number % 11_000 == 10_999:
            sizes.append(entries(diagnosis))
    assert sizes[1] < sizes[0] + 100
