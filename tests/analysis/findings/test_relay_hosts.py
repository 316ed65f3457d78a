"""Which hosts may pass messages on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissectors.events import Message, Process
from tests.analysis.findings.diagnoses import diagnose_events, faults
from tests.analysis.ways.scenes import MS, Scene
from tests.support.footprint import entries, reachable
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.findings.relay_hosts import RelayHost, SocketEnd
from zmtpsniff.analysis.ways.hops import OpenWay


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcd"), st.sampled_from(["ROUTER", "DEALER", "REP", "REQ"]), st.sampled_from("abcdxy")
        )
    )
)
def test_a_host_passes_on_once_two_of_its_connections_fit(sockets: list[tuple[str, str, str]]) -> None:
    """It counts what each two of its ends come to: one takes requests, and the other sends them to a third socket."""
    takes, sends = {"ROUTER", "REP"}, {"ROUTER", "DEALER", "REQ"}
    host = RelayHost()
    ends = [SocketEnd(address, kind, other) for address, kind, other in sockets if address != other]
    for count, end in enumerate(ends, 1):
        host.add(end, count)
        assert host.is_relay == any(
            one.kind in takes
            and two.kind in sends
            and one.address not in (two.address, two.other)
            and one.other != two.address
            for one in ends[:count]
            for two in ends[:count]
        )


PUSHER, SINK, RELAY, NEXT = "127.0.0.1:40001", "127.0.0.1:5555", "127.0.0.1:40002", "127.0.0.1:5556"
OWNERS = {PUSHER: 1, SINK: 2, RELAY: 3, NEXT: 4}


def diagnose_live(scene: Scene, owners: dict[str, int], *, known_after: int) -> Diagnosis:
    """A diagnosis of what happens on one machine, whose processes are known after so many looks."""
    diagnosis, looks = Diagnosis(), 0

    def process_of(_flow: int, address: str) -> Process | None:
        return Process(owners[address], "python") if looks > known_after and address in owners else None

    diagnosis.know_processes(process_of)
    for looks, event in enumerate(scene.events):  # noqa: B007
        diagnosis.take([event])
    return diagnosis


def ways_followed(owners: dict[str, int], *, known_after: int = 1) -> int:
    """How many ways of two pipelines on one machine are kept."""
    scene = Scene()
    scene.connect(1, PUSHER, SINK, types=("PUSH", "PULL"))
    scene.connect(2, RELAY, NEXT, types=("PUSH", "PULL"))
    for number in range(20):
        scene.say(1 + number % 2, b"%d" % number)
    diagnosis = diagnose_live(scene, owners, known_after=known_after)
    return sum(isinstance(one, OpenWay) for one in reachable(diagnosis))


def test_live_programs_of_one_machine_that_pass_nothing_on_are_not_followed() -> None:
    assert ways_followed(OWNERS) == 0
    assert 0 < ways_followed(OWNERS, known_after=12) < 10  # until then they may be of one program


@pytest.mark.parametrize("owners", [{**OWNERS, RELAY: OWNERS[SINK]}, {}, {PUSHER: 1, RELAY: 3}])
def test_live_a_process_that_takes_and_sends_is_followed_as_is_one_that_nobody_knows(owners: dict[str, int]) -> None:
    assert ways_followed(owners) == 20


def test_live_a_broker_is_known_by_its_worker_although_its_process_is_known_only_later() -> None:
    """Clients and workers of Majordomo come to one ROUTER; without the worker's READY it looks like the service."""
    client, broker, worker, other = "127.0.0.1:40001", "127.0.0.1:5560", "127.0.0.1:40002", "127.0.0.1:5570"
    owners = {client: 1, broker: 2, worker: 3, "127.0.0.1:40003": 1, other: 4}
    scene = Scene()
    scene.connect(3, "127.0.0.1:40003", other, types=("REQ", "REP"))
    scene.connect(1, client, broker, types=("REQ", "ROUTER"))
    scene.connect(2, worker, broker, types=("DEALER", "ROUTER"))
    scene.say(2, b"", b"MDPW01", b"\x01", b"db")
    for number in range(40):
        asked = scene.say(1, b"", b"MDPC01", b"db", b"%d" % number)
        peer = b"\x00\x00\x00\x00\x01"
        work = scene.say(2, b"", b"MDPW01", b"\x02", peer, b"", b"%d" % number, by_server=True)
        slow_ms = 300 if number % 10 == 9 else 2
        scene.say(2, b"", b"MDPW01", b"\x03", peer, b"", b"re", answers=work, after_ms=slow_ms)
        scene.say(1, b"", b"MDPC01", b"db", b"re", by_server=True, answers=asked)
    (found,) = diagnose_live(scene, owners, known_after=20).findings()
    assert (found.code, found.endpoints) == ("replies-slow", [worker])


@pytest.mark.parametrize("closes", [True, False])
def test_a_host_of_many_connections_learns_on(closes: bool) -> None:
    """The oldest ones give way; one that lasts while others come and go is still known."""
    host = RelayHost()
    for flow in range(10_000):
        host.add(SocketEnd("10.0.0.1:5555", "ROUTER", f"10.0.0.2:{flow}"), flow)
        if closes and flow:
            assert host.end(flow) is False  # the first one is open
    kept = entries(host)
    host.add(SocketEnd("10.0.0.1:40000", "DEALER", "10.0.0.3:5556"), 10_000)
    assert host.is_relay
    assert (0 in host.flows) is closes
    assert (kept if closes else len(host.flows)) < 5000


@pytest.mark.parametrize("fault", ["slow", "gone"])
def test_an_actor_that_signs_in_before_its_broker_asks_it_makes_that_a_broker(fault: str) -> None:
    """The Coordinator of LECO is one ROUTER for all: names say who gets a message, and ids which one answers which."""
    client, broker, actor, other = "10.0.0.3:40000", "10.0.0.1:12300", "10.0.0.2:40000", "10.0.0.4:40000"
    scene = Scene()

    def ask(flow: int, *frames: bytes, by_server: bool = False) -> Message:
        asked = scene.say(flow, b"\0", *frames, by_server=by_server)
        asked.expects_reply, asked.socket_type = True, "ROUTER" if by_server else "DEALER"
        return asked

    def answer(asked: Message, body: bytes, after_ms: float = 1) -> None:
        by_server = asked.dst == broker
        reply = scene.say(asked.flow, *asked.frames[:-1], body, by_server=by_server, answers=asked, after_ms=after_ms)
        reply.paired, reply.expects_reply, reply.socket_type = "id", False, "ROUTER" if by_server else "DEALER"

    for flow, address in ((1, client), (2, actor), (3, other)):
        scene.connect(flow, address, broker, types=("DEALER", "ROUTER"))
        answer(ask(flow, b"COORDINATOR", b"id-%04d" % flow, b"sign in"), b"welcome")
    for number in range(40):
        if number == 30 and fault == "gone":
            scene.close(2)
        asked = ask(1, b"actor", b"call-%04d" % number, b"value?")
        if number < 30 or fault != "gone":
            passed = ask(2, *asked.frames[1:], by_server=True)  # type: ignore[arg-type]
            answer(passed, b"%d" % number, 400 if number % 10 == 9 and fault == "slow" else 2)
            answer(asked, b"%d" % number)
        else:
            scene.now_ns += 200 * MS
        answer(ask(3, b"COORDINATOR", b"mine-%04d" % number, b"pong"), b"pong")
    scene.now_ns += 10_000 * MS
    answer(ask(3, b"COORDINATOR", b"mine-last", b"pong"), b"pong")
    (found,) = faults(diagnose_events(scene.events))
    assert (found.code, found.endpoints[0]) == {
        "slow": ("replies-slow", actor), "gone": ("request-unanswered", broker)
    }[fault]  # fmt: skip
    assert (f"since {actor} closed the connection" in found.summary) == (fault == "gone")
