"""Where messages wait or end: the place is named, and not each socket that waits for it.

The captures are of real systems, every program on a host of its own, with one fault each.
"""

import json
import random
from collections.abc import Callable, Iterable
from operator import itemgetter
from pathlib import Path

import pytest

from dissectors.address import host_of
from dissectors.events import Message, Payload, Problem
from tests.analysis.findings.diagnoses import (
    OVER,
    accused,
    alarms,
    diagnose,
    diagnose_events,
    diagnose_packets,
    faults,
)
from tests.analysis.ways.scenes import Scene
from tests.analysis.ways.test_envelopes import over_websockets
from tests.support.mirror_port import through_queues
from tests.support.one_host import save_on_one_host
from tests.support.paths import FIXTURES
from tests.support.runner import run
from tests.support.two_networks import save_behind_nat, save_with_two_addresses, without_network
from tests.world.tap import load, save
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.findings.finding import Finding
from zmtpsniff.analysis.findings.relay_places import RelayPlace
from zmtpsniff.analysis.findings.relays import Relays
from zmtpsniff.analysis.patterns import Patterns
from zmtpsniff.capture import files
from zmtpsniff.capture.block import Packet
from zmtpsniff.dissection import open_files
from zmtpsniff.engine.settings import Settings
from zmtpsniff.engine.sniffer import Collaborators
from zmtpsniff.net.witness import Attempt, Cause, Stall

SYSTEMS = FIXTURES / "systems"
FAULTS = {  # the finding, and the socket where the fault is
    "agent_stops": ("worker-silent", "10.9.2.13:33864"),
    "asking_worker_dies": ("worker-closed", "10.9.2.12:45794"),
    "broker_sleeps": ("replies-slow", "10.9.0.35:8274"),
    "database_dies": ("endpoint-refused", "10.9.0.22:7323"),
    "dealt_worker_slow": ("replies-slow", "10.9.2.11:33554"),
    "engine_dies": ("worker-closed", "127.0.0.1:59302"),
    "engine_slow": ("replies-slow", "10.9.1.6:34939"),
    "engine_stops": ("request-unanswered", "10.9.1.6:43417"),
    "far_worker": ("replies-slow", "10.9.0.15:51378"),
    "head_of_line": ("replies-slow", "10.9.0.23:41400"),
    "slow_database": ("replies-slow", "10.9.0.21:7320"),
    "slow_worker": ("replies-slow", "10.9.0.55:46502"),
    "szrpc_worker_freezes": ("request-unanswered", "127.0.0.1:50880"),
    "tcp_proxy": ("replies-slow", "10.3.0.3:5555"),
    "worker_freezes": ("request-unanswered", "10.9.0.43:34292"),
    "worker_vanishes": ("host-silent", "10.5.0.2:41028"),
    "worker_stops": ("not-passed-on", "10.9.0.62:45334"),
    "replies_dropped": ("not-passed-on", "10.9.0.45:6663"),
    "proxy_drops": ("not-passed-on", "10.9.0.42:41008"),
    "worker_dies": ("worker-closed", "10.9.0.31:33278"),
    "topic_misspelt": ("subscription-unmatched", "10.9.0.28:57246"),
    "wrong_group": ("subscription-unmatched", "10.9.1.3:43983"),
    "database_refuses": ("endpoint-refused", "10.9.0.33:6186"),
    "database_mistyped": ("sockets-mismatched", "10.9.0.26:6158"),
    "frames_lost": ("not-passed-on", "10.9.0.32:6756"),
    "network_cut": ("host-silent", "10.9.0.24:5634"),
    "no_service": ("request-unanswered", "10.9.0.25:6370"),
    "proxy_stops": ("not-passed-on", "10.9.0.39:6171"),
    "jobs_queue": ("replies-slow", "10.9.0.41:42160"),
    "worker_slow_at_times": ("replies-slow", "10.9.0.45:36578"),
    "majordomo_drops": ("not-passed-on", "10.77.0.1:7390"),
    "replier_falls_silent": ("request-unanswered", "10.1.0.3:7000"),
    "stealing_worker_stops": ("request-unanswered", "10.1.0.3:59464"),
}


def fault(name: str) -> set[tuple[str, str]]:
    """The finding that a system must have, with its place; none of a healthy one."""
    return {FAULTS[name]} if name in FAULTS else set()


@pytest.mark.parametrize("name", [*FAULTS, "healthy_service"])
def test_the_place_of_the_fault_is_named_and_no_other_meanwhile(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message on its way is not lost yet; a healthy service behind another one is not accused."""
    monkeypatch.setattr(files, "CHUNK", 4000)  # octets
    diagnosis = Diagnosis()
    told, now = set(), set()
    for events in open_files([SYSTEMS / f"{name}.pcap.gz"], Settings(), Collaborators(witness=diagnosis)).batches():
        diagnosis.take(events)
        now = accused(diagnosis.findings())
        told |= now
    assert told == now == fault(name)


# These need an address for each host: a network is cut, or only the hosts tell who repeats or answers what.
_NOT_ON_ONE_HOST = {"network_cut", "engine_slow", "engine_stops", "tcp_proxy", "worker_vanishes"}


@pytest.mark.parametrize("name", sorted({*FAULTS, "healthy_service"} - _NOT_ON_ONE_HOST))
def test_the_place_of_the_fault_is_named_on_one_host_too(name: str, tmp_path: Path) -> None:
    """As most people try their systems: all programs have the address 127.0.0.1, and each socket a port of its own."""
    path = tmp_path / "loopback.pcap"
    socket_at = save_on_one_host(load(SYSTEMS / f"{name}.pcap.gz"), path)
    assert {(code, socket_at[at]) for code, at in accused(diagnose(path))} == fault(name)


# Only the address of a host tells that a broker without envelopes passes requests on.
_HIDDEN_BY_NETWORKS = {("engine_slow", True), ("engine_stops", True)}
_ON_NETWORKS = {name for name, (_, at) in FAULTS.items() if at[:4] != "127."} - {"asking_worker_dies"}
_QUICK = {"broker_sleeps", "database_dies", "frames_lost", "head_of_line", "slow_database", "slow_worker"}


@pytest.mark.parametrize(
    ("name", "each"),
    [
        pytest.param(name, each, marks=[] if name in _QUICK and not each else pytest.mark.slow)
        for name in sorted({*_ON_NETWORKS, "healthy_service"})
        for each in (False, True)
    ],
)
def test_the_place_of_the_fault_is_named_though_programs_have_several_addresses(
    name: str, each: bool, tmp_path: Path
) -> None:
    """A broker takes requests in one network and sends them on in another one; so does a service that asks others."""
    path = tmp_path / "networks.pcap"
    save_with_two_addresses(load(SYSTEMS / f"{name}.pcap.gz"), path, each=each)
    expected = set() if (name, each) in _HIDDEN_BY_NETWORKS else fault(name)
    found = accused(diagnose(path))
    assert {(code, without_network(at)) for code, at in found} == {(code, without_network(at)) for code, at in expected}


@pytest.mark.parametrize(
    ("name", "save"),
    [("database_mistyped", save_with_two_addresses), ("worker_slow_at_times", save_behind_nat)],
)
def test_joined_late_addresses_that_do_not_tell_programs_apart_accuse_nobody_else(
    name: str, save: Callable[[Iterable[Packet], Path], None], tmp_path: Path
) -> None:
    """The first requests are those that a broker took before its other connections were known."""
    packets, path = load(SYSTEMS / f"{name}.pcap.gz"), tmp_path / "late.pcap"
    save(packets[len(packets) // 6 :], path)
    named = {without_network(host_of(at)) for _, at in accused(diagnose(path))}
    assert named <= {without_network(host_of(FAULTS[name][1]))}


# On one host, only unbroken series of messages tell that a service waits for another one.
_HIDDEN_BY_HOLES = {"no_service", "slow_database"}


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("majordomo_drops", 3),
        ("majordomo_drops", 5),
        ("proxy_drops", 3),
        ("replies_dropped", 2),
        ("replies_dropped", 3),
        *(
            pytest.param(name, seed, marks=pytest.mark.slow)
            for name in sorted({*FAULTS, "healthy_service"} - _NOT_ON_ONE_HOST - _HIDDEN_BY_HOLES)
            for seed in range(6, 12)
        ),
    ],
)
@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.5"])
def test_on_one_host_packets_that_are_missing_accuse_no_other_program(
    name: str, seed: int, address: str, tmp_path: Path
) -> None:
    """Without the leg between two brokers, what the second one sends seems to come of what the first one took."""
    draw = random.Random(seed)
    packets = [packet for packet in load(SYSTEMS / f"{name}.pcap.gz") if draw.random() >= 0.005]
    path = tmp_path / "one_host.pcap"
    socket_at = save_on_one_host(packets, path, address)
    named = [{host_of(socket_at[socket]) for socket in one.endpoints} for one in faults(diagnose(path))]
    assert all(host_of(FAULTS[name][1]) in hosts for hosts in named) if name in FAULTS else not named


@pytest.mark.parametrize("interval_us", [pytest.param(100, marks=pytest.mark.slow), 500])
@pytest.mark.parametrize("name", [*(name for name, (_, at) in FAULTS.items() if at[:4] != "127."), "healthy_service"])
def test_packets_that_overtake_others_in_a_network_card_hide_no_fault_and_accuse_nobody_else(
    name: str, interval_us: int, tmp_path: Path
) -> None:
    path = tmp_path / "mirrored.pcap"
    save(path, through_queues(load(SYSTEMS / f"{name}.pcap.gz"), interval_us * 1000))
    assert {at for _, at in accused(diagnose(path))} == {at for _, at in fault(name)}


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.5"])
@pytest.mark.parametrize("name", ["broker_sleeps", "replies_dropped", "head_of_line"])
def test_joined_late_on_one_host_nobody_is_accused_of_what_another_program_may_do(
    name: str, address: str, tmp_path: Path
) -> None:
    packets, path = load(SYSTEMS / f"{name}.pcap.gz"), tmp_path / "late.pcap"
    save_on_one_host(packets[len(packets) // 5 :], path, address)
    assert alarms(diagnose(path)) == []


def test_a_service_joined_late_may_wait_for_any_other_one_of_its_host(tmp_path: Path) -> None:
    path = tmp_path / "loopback.pcap"
    save_on_one_host(load(FIXTURES / "brokers" / "equal_bodies_late.pcap.gz"), path)
    assert [(one.severity, one.code) for one in diagnose(path) if one.code == "replies-slow"] == [
        ("note", "replies-slow")
    ]


def test_a_broker_is_not_slow_where_its_messages_are_cut_short() -> None:
    """A worker takes long for three requests. Nothing shows that the broker passed them on."""
    worker = bytes([10, 9, 0, 58])
    packets: list[Packet] = []
    said = 0
    for time_ns, link, octets, length, comment in load(FIXTURES / "brokers" / "load_balancing.pcap.gz"):
        said += octets[26:30] == worker and len(octets) > 66
        late_ns = 1_200_000_000 * ((said > 4) + (said > 8) + (said > 12))
        packets.append((time_ns + late_ns, link, octets[:96], length, comment))
    assert alarms(diagnose_packets(packets)) == []


@pytest.mark.parametrize(
    ("name", "begin", "count"),
    [
        ("systems/head_of_line", 0.4, 400),  # the replies to what was asked last come after its end
        ("healthy/answers_in_any_order_brokered", 0.07, None),  # replies to requests of one envelope
        ("healthy/workers_ask_again", 0.25, None),  # for work that never comes
        ("brokers/equal_bodies_late", 0, None),  # the broker may always ask others before it answers
        *(("healthy/majordomo_two_services", begin, None) for begin in (0.05, 0.2, 0.4)),  # known by its headers
    ],
)
def test_a_part_of_a_capture_accuses_nobody_of_what_the_rest_may_explain(
    name: str, begin: float, count: int | None
) -> None:
    packets = load(FIXTURES / f"{name}.pcap.gz")
    assert alarms(diagnose_packets(packets[int(begin * len(packets)) :][:count])) == []


def test_a_service_whose_database_has_gone_waits_and_is_not_accused() -> None:
    (waits,) = [one for one in diagnose(SYSTEMS / "database_dies.pcap.gz") if one.code == "not-passed-on"]
    assert waits.severity == "note"
    assert "since 10.9.0.22:7323 closed the connection" in waits.summary


@pytest.mark.parametrize("name", ["database_mistyped", "database_refuses"])
def test_services_that_cannot_reach_their_database_wait_and_are_not_accused(name: str) -> None:
    waiting = [one for one in diagnose(SYSTEMS / f"{name}.pcap.gz") if one.code == "request-unanswered"]
    assert len(waiting) == 2
    for one in waiting:
        assert one.severity == "note"
        assert one.summary.endswith(f"; {host_of(one.endpoints[0])} itself waits for {FAULTS[name][1]} in vain")


def test_trace_and_diagnose_say_one_thing_of_a_host_that_vanishes() -> None:
    """Its worker is not said to be silent: it gets nothing."""
    path = SYSTEMS / "worker_vanishes.pcap.gz"
    ends = [json.loads(line)["ended"] for line in run("trace", "--lost", "-T", "json", path).stdout.splitlines()]
    assert ends == [{"at": FAULTS["worker_vanishes"][1], "why": "not-taken"}] * 2
    assert [one.code for one in diagnose(path)] == ["host-silent", "request-unanswered"]


def test_every_request_behind_the_one_that_a_rep_does_not_answer_counts() -> None:
    """Most requests of its connection have no reply then, and are requests all the same."""
    path = SYSTEMS / "replier_falls_silent.pcap.gz"
    (silent,) = faults(diagnose(path))
    assert silent.summary.endswith("does not answer 10.1.0.1: 23 requests without a reply for 12 s")
    ends = [json.loads(line)["ended"]["at"] for line in run("trace", "--lost", "-T", "json", path).stdout.splitlines()]
    assert ends == [FAULTS["replier_falls_silent"][1]] * 23


def test_every_capture_has_its_fault_here() -> None:
    names = {path.name.partition(".")[0] for path in SYSTEMS.glob("*.pcap.gz")}
    assert names == {*FAULTS, "healthy_service"}


def test_who_waits_is_named_as_waiting() -> None:
    words = " ".join(run("diagnose", SYSTEMS / "broker_sleeps.pcap.gz").stdout.split())
    assert "messages wait inside 10.9.0.35:8274" in words
    assert "between taking a message and passing it on" in words
    assert "waits for it" in words or "wait for it" in words


def test_nobody_waits_for_a_job() -> None:
    """Its sender continues; neither a worker that stops nor the end of the last one makes it wait."""
    (stopped,) = [one for one in diagnose(SYSTEMS / "worker_stops.pcap.gz") if one.severity == "error"]
    assert stopped.summary.endswith(" passed none of them on, after it had passed on 24")
    scene = Scene()
    scene.connect(1, "10.0.0.1:40000", "10.0.1.1:5555", types=("PUSH", "PULL"))
    scene.connect(2, "10.0.2.1:40000", "10.0.1.1:5556", types=("PULL", "PUSH"))
    for number in range(50):
        scene.say(1, b"job %d" % number, after_ms=1 if number < 40 else 500)
        if number < 40:
            scene.say(2, b"job %d" % number, by_server=True)
        elif number == 40:
            scene.close(2)
    (closed,) = told(scene)
    assert closed.code == "worker-closed"
    assert closed.summary.endswith(" went no further"), closed.summary


def test_statistics_have_the_same_findings() -> None:
    path = SYSTEMS / "worker_stops.pcap.gz"
    rows = [json.loads(line) for line in run("stats", "-T", "json", path).stdout.splitlines()]
    assert [row["code"] for row in rows if row["type"] == "finding" and row["severity"] == "error"] == ["not-passed-on"]


def told(scene: Scene, *seen: Attempt | Stall) -> list[Finding]:
    return faults(diagnose_events([*scene.events, OVER], *seen))


def test_clients_on_the_host_of_services_pass_nothing_on() -> None:
    """Two programs on one host ask two services there."""
    scene = Scene()
    for flow, port in ((1, 5555), (2, 6666)):
        scene.connect(flow, f"127.0.0.1:4000{flow}", f"127.0.0.1:{port}", types=("REQ", "REP"))
    for _ in range(50):
        asked: list[Message] = [scene.say(flow, b"", b"?") for flow in (1, 2)]
        for flow, request in enumerate(asked, 1):
            scene.say(flow, b"", b"!", by_server=True, answers=request, after_ms=30 if flow == 1 else 1)
    assert told(scene) == []
    assert {len(way.legs) for way in scene.ways()} == {2}


def test_a_proxy_is_not_slow_if_the_subscriber_has_no_room() -> None:
    """Its queue for that one subscriber is a note, and no second warning."""
    scene = Scene()
    scene.connect(1, "10.0.1.1:40000", "10.0.0.1:5555", types=("XSUB", "PUB"))
    scene.connect(2, "10.0.2.1:40000", "10.0.1.1:5556", types=("SUB", "XPUB"))
    for number in range(100):
        body = b"%d" % number
        scene.say(1, b"news", body, by_server=True)
        scene.say(2, b"news", body, by_server=True, after_ms=300 if number > 90 else 1)
    (found,) = told(scene)
    assert found.code == "replies-slow"
    assert "; 10.0.2.1 waits for it; the slowest stands first" in found.known, "the subscriber, and not the publisher"
    stall = Stall(2, "10.0.2.1:40000", "10.0.1.1:5556", "window", 0, scene.now_ns, 1, 3, True)
    (found,) = (one for one in diagnose_events([*scene.events, OVER], stall) if one.code == "replies-slow")
    assert (found.severity, "; the next one took nothing then" in found.known) == ("note", True)


@pytest.mark.parametrize(
    ("cause", "until_ms", "severity"),
    [("window", 10_000, "note"), ("unacknowledged", 10_000, "note"), ("window", 10, "error"), (None, 0, "error")],
)
def test_a_worker_whose_sink_takes_nothing_waits_for_it(cause: Cause | None, until_ms: int, severity: str) -> None:
    """Messages of the worker wait at its own host. A sink that had no room at an earlier time explains nothing."""
    scene = Scene()
    worker, sink = "10.0.1.1:40001", "10.0.2.1:6666"
    scene.connect(1, "10.0.1.1:40000", "10.0.0.1:5555", types=("PULL", "PUSH"))
    scene.connect(2, worker, sink, types=("PUSH", "PULL"))
    for number in range(80):
        scene.say(1, b"job-%04d" % number, by_server=True, after_ms=50)
        if number < 40:
            scene.say(2, b"job-%04d is done" % number)
    stalls = [] if cause is None else [Stall(2, sink, worker, cause, 0, until_ms * 1_000_000, 1, 3, False)]
    (found,) = (one for one in diagnose_events([*scene.events, OVER], *stalls) if one.code == "not-passed-on")
    assert (found.severity, found.endpoints[0]) == (severity, "10.0.1.1:40000")
    assert found.summary.endswith(f": {sink} took nothing from it") is (severity == "note")


@pytest.mark.parametrize("leaves", [True, False])
def test_a_proxy_loses_nothing_that_only_a_subscriber_wanted_who_leaves(leaves: bool) -> None:
    """The publisher hears later that nobody wants its topic any more, and perhaps another subscriber comes."""
    scene = Scene()
    scene.connect(1, "10.0.1.1:40000", "10.0.0.1:5555", types=("XSUB", "PUB"))
    scene.connect(2, "10.0.2.1:40000", "10.0.1.1:5556", types=("SUB", "XPUB"))
    for number in range(20):
        scene.say(1, b"news", b"%d" % number, by_server=True)
        if number == 10:
            if leaves:
                scene.close(2)
            scene.say(1, b"news", b"for nobody", by_server=True)
            scene.now_ns += 2_000_000_000
            scene.connect(3, "10.0.2.1:40001", "10.0.1.1:5556", types=("SUB", "XPUB"))
        scene.say(2 if number < 10 else 3, b"news", b"%d" % number, by_server=True)
    scene.now_ns += 2_000_000_000
    assert ("not-passed-on" in [one.code for one in told(scene)]) is not leaves


def test_who_is_told_the_names_of_programs_on_loopback_loses_no_jobs() -> None:
    """Each program tells a directory its name again and again, and a controller what it does (as Motorway's do)."""
    scene = Scene()
    names = [b"ramp-17", b"worker-21 at port-5002", b"worker-22 at port-5003", b"worker-23 at port-5004"]
    for flow, port in enumerate([5001] * 4 + [5002, 5003, 5004] + [5005] * 4):
        scene.connect(flow, f"127.0.0.1:{40000 + flow}", f"127.0.0.1:{port}", types=("PUSH", "PULL"))
    for number in range(120):
        for flow, name in enumerate(names if number in (0, 60) else ()):
            scene.say(flow, b"I am " + name)
        worker = number % 3
        scene.say(4 + worker, b"ramp-17: job-%04d" % number)
        scene.say(7, b"ramp-17 sent job-%04d to %s" % (number, names[1 + worker]))
        scene.say(8 + worker, b"%s did job-%04d" % (names[1 + worker], number), after_ms=50)
    assert told(scene) == []


@pytest.mark.parametrize(("kind", "codes"), [("apply_request", ["request-unanswered"]), ("comm_msg", [])])
def test_an_engine_that_owes_the_reply_that_its_protocol_promises_is_to_blame(kind: str, codes: list[str]) -> None:
    """A client of engines has a DEALER without delimiters, which may as well only tell them something."""
    scene = Scene()
    scene.connect(1, "10.0.0.1:40000", "10.0.1.1:5555", types=("DEALER", "ROUTER"))
    scene.connect(2, "10.0.2.1:40000", "10.0.1.1:5556", types=("ROUTER", "ROUTER"))
    for number in range(6):
        call = scene.say(1, b"call %d" % number)
        header = {"msg_id": f"{number:08x}-0000-4000"}
        call.payload = Payload("jupyter", kind, {"msg_type": kind, "header": header})
        given = scene.say(2, b"\0\0\0\0\1", *call.frames, by_server=True)
        if number == 3:
            scene.now_ns += 10_000_000_000
            continue
        scene.say(2, b"\0\0\0\0\1", b"done %d" % number, answers=given)
        scene.say(1, b"done %d" % number, by_server=True, answers=call)
    found = told(scene)
    assert [one.code for one in found] == codes
    assert all(one.endpoints == ["10.0.2.1:40000"] for one in found)


def attempts_to_reach_another(times_ms: Iterable[int], *, answered_before: bool) -> list[Attempt]:
    """A service is refused at these times at the address of another one, which perhaps answered in the beginning."""
    ends = "10.0.1.1:42000", "10.0.2.1:7777"
    accepted = [Attempt("accepted", 2, *ends, 1, 0, 1000, 1)] if answered_before else []
    times_ns = [ms * 1_000_000 for ms in times_ms]
    return accepted + [Attempt("refused", 3 + place, *ends, 1, at, at, 2) for place, at in enumerate(times_ns)]


@pytest.mark.parametrize(("answered_before", "severity"), [(True, "note"), (False, "warning")])
def test_a_service_is_not_slow_while_it_waits_for_one_that_went_away(answered_before: bool, severity: str) -> None:
    """It gives up after a while each time. That it always seeks another address in vain says nothing of that."""
    scene = Scene()
    scene.connect(1, "10.0.0.1:40000", "10.0.1.1:5555", types=("REQ", "REP"))
    for number in range(40):
        asked = scene.say(1, b"", b"%d" % number)
        scene.say(1, b"", b"re", by_server=True, answers=asked, after_ms=1 if number < 30 else 400)
        reply = scene.events[-1]
        assert isinstance(reply, Message)
        reply.latency_ns = reply.time_ns - asked.time_ns
    scene.close(1)
    attempts = attempts_to_reach_another(range(60, 4060, 200), answered_before=answered_before)
    (found,) = (one for one in diagnose_events([*scene.events, OVER], *attempts) if one.code == "replies-slow")
    assert found.severity == severity
    assert ("10.0.2.1:7777" in found.known) is answered_before


@pytest.mark.parametrize("answered_before", [True, False])
def test_a_service_that_stops_when_another_one_went_away_is_a_note(answered_before: bool) -> None:
    """A moment is enough: what it asked for the last request was under way there."""
    scene = Scene()
    scene.connect(1, "10.0.0.1:40000", "10.0.1.1:5555", types=("REQ", "REP"))
    asked = scene.say(1, b"", b"price?")
    add_problem(scene, "request-unanswered", "no reply", asked)
    scene.now_ns += 2_000_000_000
    scene.close(1)
    attempts = attempts_to_reach_another([300], answered_before=answered_before)
    (found,) = (one for one in diagnose_events([*scene.events, OVER], *attempts) if one.code == "request-unanswered")
    assert (found.severity == "note") is answered_before
    assert ("waits for 10.0.2.1:7777 in vain" in found.summary) is answered_before


ROUTING_ID = b"\0id01"
"""Of the client of a broker."""


def behind_a_broker(client: str = "DEALER", workers: int = 1) -> Scene:
    """A client of such a type, on flow 1, and workers, on flows 2 and on, all connected to one broker."""
    scene = Scene()
    scene.connect(1, "10.0.0.1:40000", "10.0.1.1:5555", types=(client, "ROUTER"))
    for flow in range(2, 2 + workers):
        scene.connect(flow, f"10.0.{flow}.1:40000", "10.0.1.1:5556", types=("REP", "DEALER"))
    return scene


def round_trip(
    scene: Scene, number: int, worker: int = 2, *, client: int = 1, after_ms: float = 1, held_ms: float = 1
) -> Message:
    """A request that the worker on this flow answers; returns the reply that the client gets.

    It comes so long after the message before, and the broker holds it for so long.
    """
    asked = scene.say(client, b"", b"%d" % number, after_ms=after_ms)
    routing_id = b"\0id%02d" % client
    passed = scene.say(worker, routing_id, *asked.frames, by_server=True, after_ms=held_ms)
    reply = scene.say(worker, routing_id, b"", b"re %d" % number, answers=passed)
    return scene.say(client, *reply.frames[1:], by_server=True, answers=asked)


def add_problem(scene: Scene, code: str, detail: str, message: Message) -> None:
    """A warning about a message."""
    place = message.time_ns, message.packet, message.flow, message.src, message.dst
    scene.events.append(Problem("warning", code, detail, *place))


@pytest.mark.parametrize(("kind", "patience_ms"), [("REQ", 2500), ("REQ", 300), ("DEALER", 2500)])
def test_a_client_that_asks_again_had_given_up(kind: str, patience_ms: int) -> None:
    """Its worker is named, if it waited for a second or more; a DEALER need not wait for a reply before it asks."""
    scene = behind_a_broker(kind, workers=2)
    for number in range(20):
        if number == 10:
            asked = scene.say(1, b"", b"%d" % number)
            scene.say(2, ROUTING_ID, *asked.frames, by_server=True)
            scene.now_ns += patience_ms * 1_000_000
        else:
            round_trip(scene, number, worker=3)
    scene.now_ns += 1_500_000_000
    scene.say(1, b"", b"the last")
    gave_up = kind == "REQ" and patience_ms > 1000
    assert accused(told(scene)) == ({("request-unanswered", "10.0.2.1:40000")} if gave_up else set())


def test_publications_that_two_capture_points_saw_were_not_sent_again(tmp_path: Path) -> None:
    """The files of a proxy and of the bridge are merged to one, and the proxy's clock is 3 s behind."""
    packets = load(FIXTURES / "healthy" / "chain_of_proxies.pcap.gz")
    start_ns = packets[0][0]
    slower = [(start_ns + 4 * (one[0] - start_ns), *one[1:]) for one in packets]
    proxy = bytes([10, 9, 0, 2])
    of_proxy = [(one[0] - 3_000_000_000, *one[1:]) for one in slower if proxy in (one[2][26:30], one[2][30:34])]
    save(tmp_path / "merged.pcap", sorted(slower + of_proxy, key=itemgetter(0)))
    found = diagnose(tmp_path / "merged.pcap")
    assert alarms(found) == []
    assert "packets are in it twice" in next(one.summary for one in found if one.code == "capture-lossy")


@pytest.mark.parametrize("slower", [1, 4])
def test_a_proxy_loses_nothing_that_a_clock_shows_to_leave_before_it_comes(slower: int, tmp_path: Path) -> None:
    """The clock of the next host is 200 us behind: about as long as the proxy takes. Or ways are over meanwhile."""
    packets, late = load(SYSTEMS / "proxy_drops.pcap.gz"), bytes([10, 9, 0, 42])
    start_ns = packets[0][0]
    packets = [(start_ns + slower * (one[0] - start_ns), *one[1:]) for one in packets]
    behind = [(one[0] - slower * 200_000, *one[1:]) for one in packets if late in (one[2][26:30], one[2][30:34])]
    save(tmp_path / "bridge.pcap", packets)
    save(tmp_path / "host.pcap", behind)
    ((code, summary),) = alarms(diagnose(tmp_path / "bridge.pcap", tmp_path / "host.pcap"))
    assert code == "not-passed-on"
    assert summary.startswith("10.9.0.42:41008 took 12 publications")


def test_a_worker_that_loses_some_requests_is_named_though_nobody_waits_long() -> None:
    (found,) = diagnose(FIXTURES / "brokers/worker_loses.pcap.gz")
    assert (found.severity, found.code, found.count) == ("error", "request-unanswered", 5)
    assert "10.9.0.3:39591 took 5 requests and did not answer, while it answered 122" in found.summary


@pytest.mark.parametrize("in_hand", [0, 1])
def test_what_says_that_a_broker_is_alive_is_no_request_in_the_hand_of_a_worker(in_hand: int) -> None:
    """It says that more often than its worker, which leaves in the end, perhaps with a request."""
    scene = behind_a_broker("REQ", workers=0)
    for flow in (2, 3):
        scene.connect(flow, f"10.0.{flow}.1:40000", "10.0.1.1:5556", types=("DEALER", "ROUTER"))
        scene.say(flow, b"\x01")
    for number in range(20):
        round_trip(scene, number, worker=2 + number % 2)
        if number % 3 == 0:
            scene.say(3, b"\x02", by_server=True)
        if number % 5 == 0:
            scene.say(3, b"\x02")
    for _ in range(in_hand):
        asked = scene.say(1, b"", b"the last one")
        scene.say(3, ROUTING_ID, *asked.frames, by_server=True)
    scene.close(3)
    scene.close(1)
    scene.connect(4, "10.0.0.4:40000", "10.0.1.1:5555", types=("REQ", "ROUTER"))
    for number in range(100, 110):
        round_trip(scene, number, client=4, after_ms=200)
    words = "the worker 10.0.3.1:40000 of 10.0.1.1:5556 closed its connection with 1 request in hand"
    assert [one.summary for one in told(scene) if one.code == "worker-closed"] == [words] * in_hand


@pytest.mark.parametrize("patience_ms", [500, 20])
def test_a_broker_that_answers_no_request_for_a_service_is_named_if_it_answers_others_itself(patience_ms: int) -> None:
    """Its clients wait far longer than for other replies, then close and come back."""
    scene = behind_a_broker("REQ")
    for number in range(20):
        round_trip(scene, number)
    for flow in range(10, 15):
        scene.close(1 if flow == 10 else flow - 1)
        scene.connect(flow, f"10.0.0.1:400{flow}", "10.0.1.1:5555", types=("REQ", "ROUTER"))
        asked = scene.say(flow, b"", b"who works for you, %d?" % flow)
        scene.say(flow, b"", b"nobody", by_server=True, answers=asked)
        scene.say(flow, b"", b"work that nobody does, %d" % flow)
        scene.now_ns += patience_ms * 1_000_000
    scene.close(14)
    scene.now_ns += 2_000_000_000
    assert accused(told(scene)) == ({("request-unanswered", "10.0.1.1:5555")} if patience_ms > 100 else set())


def test_a_message_that_was_slow_and_waited_counts_once() -> None:
    scene = behind_a_broker()
    for burst in (1, 1, 1, 1, 1, 1, 1, 1, 3, 3):
        asked = [scene.say(1, b"", b"%d %d" % (len(scene.events), number)) for number in range(burst)]
        passed = [scene.say(2, ROUTING_ID, *one.frames, by_server=True) for one in asked]
        for question, one in zip(asked, passed, strict=True):
            again = [ROUTING_ID, b"", b"re " + bytes(question.frames[-1])]  # type: ignore[arg-type]
            reply = scene.say(2, *again, answers=one, after_ms=300 if burst > 1 else 1)
            scene.say(1, *reply.frames[1:], by_server=True, answers=question)
    (found,) = told(scene)
    assert found.summary.endswith(": 6 of 14 messages took over 100 ms, half of all under 1 ms")
    assert found.count == 6
    assert len(found.evidence) < 6


@pytest.mark.parametrize("copies", [1, 2])
def test_a_broker_that_sends_a_request_twice_is_named(copies: int) -> None:
    """The client gets a second reply from the broker next to it, which only passes it back."""
    scene = Scene()
    scene.connect(1, "10.0.0.1:40000", "10.0.1.1:5555", types=("REQ", "ROUTER"))
    scene.connect(2, "10.0.1.1:40000", "10.0.2.1:5555", types=("DEALER", "ROUTER"))
    scene.connect(3, "10.0.3.1:40000", "10.0.2.1:5556", types=("REP", "DEALER"))
    near, far = b"\0\x01\x02\x03\x04", b"\0\x05\x06\x07\x08"
    for number in range(8):
        asked = scene.say(1, b"", b"%d" % number, after_ms=1)
        scene.say(2, near, *asked.frames, after_ms=1)
        replies = []
        for _ in range(copies if number == 5 else 1):
            passed = scene.say(3, far, near, *asked.frames, by_server=True, after_ms=1)
            replies.append(scene.say(3, far, near, b"", b"re %d" % number, answers=passed, after_ms=1))
        for reply in replies:
            scene.say(2, *reply.frames[1:], by_server=True, after_ms=1)
            last = scene.say(1, *reply.frames[2:], by_server=True, after_ms=1)
            if reply is not replies[0]:
                add_problem(scene, "reply-without-request", "a reply to which no request was seen", last)
    found = told(scene)
    if copies == 1:
        assert found == []
        return
    [one] = found
    assert (one.code, one.endpoints[0]) == ("protocol-violated", "10.0.2.1:5556")
    assert one.summary.endswith("; 10.0.2.1:5556 sent the request twice")


def test_a_message_without_delimiter_is_of_who_sent_it_first() -> None:
    scene = behind_a_broker()
    for number in range(10):
        round_trip(scene, number)
    asked = scene.say(1, b"bare")
    passed = scene.say(2, ROUTING_ID, *asked.frames, by_server=True)
    add_problem(scene, "no-delimiter", "a message without the empty frame that a REQ or REP socket needs", passed)
    (found,) = told(scene)
    assert (found.problem, found.endpoints[0]) == ("no-delimiter", "10.0.0.1:40000")
    assert "; 10.0.0.1:40000 sent it first, and brokers passed it on" in found.summary


def test_a_broker_is_not_to_blame_for_a_reply_that_comes_twice() -> None:
    scene = behind_a_broker("REQ")
    last = [round_trip(scene, number) for number in range(10)][-1]
    add_problem(scene, "reply-without-request", "a reply to which no request was seen", last)
    assert told(scene) == []


def test_a_reply_for_a_client_that_has_gone_is_a_note_about_the_broker() -> None:
    scene = behind_a_broker("REQ")
    for number in range(2):
        round_trip(scene, number)
    asked = scene.say(1, b"", b"2")
    passed = scene.say(2, ROUTING_ID, *asked.frames, by_server=True)
    scene.close(1)
    scene.say(2, ROUTING_ID, b"", b"re 2", answers=passed)
    (found,) = (one for one in diagnose_events([*scene.events, OVER]) if one.code == "reply-to-nobody")
    assert (found.severity, found.count, found.endpoints) == ("note", 1, ["10.0.1.1:5555"])


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_broker_whose_workers_have_closed_waits(comes_back: bool) -> None:
    """It is to blame only if one of them is there again; a client that connects meanwhile is no worker."""
    scene = behind_a_broker(workers=2)
    for number in range(20):
        round_trip(scene, number, worker=2 + number % 2)
    for flow in (2, 3):
        scene.close(flow)
    scene.now_ns += 10_000_000
    if comes_back:
        scene.connect(4, "10.0.2.1:40001", "10.0.1.1:5556", types=("REP", "DEALER"))
    for number in range(20, 30):
        scene.say(1, b"", b"%d" % number, after_ms=500)
    (found,) = diagnose_events([*scene.events, OVER])
    assert found.code == ("not-passed-on" if comes_back else "worker-closed")
    assert found.endpoints == (
        ["10.0.1.1:5555"] if comes_back else ["10.0.2.1:40000", "10.0.3.1:40000", "10.0.1.1:5556"]
    )


def test_a_question_that_a_broker_drops_is_told_though_the_service_asks_again() -> None:
    """The request is answered, so no way ends at the broker."""
    scene = Scene()
    scene.connect(1, "10.0.0.1:40000", "10.0.1.1:5555", types=("REQ", "REP"))
    scene.connect(2, "10.0.3.1:40000", "10.0.2.1:5560", types=("DEALER", "ROUTER"))
    scene.say(2, b"", b"MDPW01", b"\x01", b"db")
    lane, lost = 10, []
    scene.connect(lane, "10.0.1.1:41010", "10.0.2.1:5560", types=("REQ", "ROUTER"))
    for number in range(40):
        asked = scene.say(1, b"", b"work %d" % number)
        question = scene.say(lane, b"", b"MDPC01", b"db", b"row %d" % number)
        if number in (15, 25, 35):
            lost.append(question.packet)
            scene.now_ns += 700_000_000
            scene.close(lane)
            lane += 1
            scene.connect(lane, f"10.0.1.1:410{lane}", "10.0.2.1:5560", types=("REQ", "ROUTER"))
            question = scene.say(lane, b"", b"MDPC01", b"db", b"row %d" % number)
        peer = b"\x00\x00\x00\x00" + bytes([lane])
        work = scene.say(2, b"", b"MDPW01", b"\x02", peer, b"", b"row %d" % number, by_server=True)
        scene.say(2, b"", b"MDPW01", b"\x03", peer, b"", b"got %d" % number, answers=work)
        scene.say(lane, b"", b"MDPC01", b"db", b"got %d" % number, by_server=True, answers=question)
        scene.say(1, b"", b"done %d" % number, by_server=True, answers=asked)
    (found,) = told(scene)
    assert (found.code, found.endpoints) == ("not-passed-on", ["10.0.2.1:5560"])
    assert [one.packet for one in found.evidence] == lost


def test_a_worker_that_hangs_is_named_though_the_client_of_majordomo_gave_up_early() -> None:
    """Majortomo's client is a DEALER. It waits for less than the timeout, and closes; its protocol promises a reply."""
    scene = Scene()
    types = "DEALER", "ROUTER"
    for flow in (1, 2, 3):
        scene.connect(flow, f"10.0.0.{flow}:40000", "10.0.1.1:5555", types=types)
    for worker in (2, 3):
        scene.say(worker, b"", b"MDPW02", b"\x01", b"echo")
    for number in range(9):
        worker, body = 2 + number % 2, b"%d" % number
        asked = scene.say(1, b"", b"MDPC02", b"\x02", b"echo", body)
        asked.payload = Payload("mdp", "client REQUEST echo", {"role": "client", "command": "REQUEST"})
        work = scene.say(worker, b"", b"MDPW02", b"\x02", ROUTING_ID, b"", body, by_server=True)
        if number == 8:
            break
        scene.say(worker, b"", b"MDPW02", b"\x04", ROUTING_ID, b"", body + b" done", answers=work)
        scene.say(1, b"", b"MDPC02", b"\x04", body + b" done", by_server=True, answers=asked)
    scene.now_ns += 3_000_000_000
    scene.close(1)
    for _ in range(3):
        scene.say(3, b"", b"MDPW02", b"\x05", after_ms=1000)
    (found,) = told(scene)
    assert (found.code, found.endpoints, found.certainty) == ("request-unanswered", ["10.0.0.2:40000"], "likely")


def test_services_behind_one_broker_may_take_as_long_as_they_like() -> None:
    """Their names stand behind the command of the client, and are not passed on."""
    scene = Scene()
    for flow in (1, 2, 3, 4):
        scene.connect(flow, f"10.0.0.{flow}:40000", "10.0.1.1:5555", types=("DEALER", "ROUTER"))
    for service in (1, 2):
        scene.say(service, b"", b"S", b"READY").socket_type = "DEALER"
    for number in range(60):
        client, service, name = (3, 1, b"laser") if number % 2 else (4, 2, b"scope")
        routing_id, body = b"\x00\x6b\x8b\x45" + bytes([client]), b"%d" % (number // 4)
        asked = scene.say(client, b"", b"C", b"2", name, b"measure", body)
        work = scene.say(service, b"", b"2", routing_id, b"measure", body, by_server=True)
        done = b"%d done" % number
        scene.say(service, b"", b"S", routing_id, done, answers=work, after_ms=300 if service == 1 else 2)
        scene.say(client, b"", b"211", name, done, by_server=True, answers=asked)
    assert told(scene) == []


def test_clients_that_come_to_the_one_socket_of_a_broker_are_no_workers() -> None:
    """Clients and workers of Majordomo connect to the same ROUTER: a client that asks again replaces no worker."""
    scene = Scene()
    scene.connect(1, "10.0.0.1:40000", "10.0.1.1:5555", types=("REQ", "ROUTER"))
    scene.connect(2, "10.0.2.1:40000", "10.0.1.1:5555", types=("DEALER", "ROUTER"))
    scene.say(2, b"", b"MDPW01", b"\x01", b"db")
    for number in range(10):
        asked = scene.say(1, b"", b"MDPC01", b"db", b"%d" % number)
        work = scene.say(2, b"", b"MDPW01", b"\x02", ROUTING_ID, b"", b"%d" % number, by_server=True)
        done = scene.say(2, b"", b"MDPW01", b"\x03", ROUTING_ID, b"", b"re %d" % number, answers=work)
        scene.say(1, b"", b"MDPC01", b"db", done.frames[-1], by_server=True, answers=asked)
    scene.close(2)
    for flow in range(3, 9):
        scene.connect(flow, f"10.0.0.1:4000{flow}", "10.0.1.1:5555", types=("REQ", "ROUTER"))
        scene.say(flow, b"", b"MDPC01", b"db", b"%d" % (flow + 20), after_ms=500)
        scene.close(flow)
    scene.connect(9, "10.0.0.1:40009", "10.0.1.1:5555", types=("REQ", "ROUTER"))
    (found,) = told(scene)
    assert (found.code, found.endpoints) == ("worker-closed", ["10.0.2.1:40000", "10.0.1.1:5555"])


# A reply goes back on the connection of its request, which the capture has.
_FOUND_LATE = {
    "broker_sleeps", "far_worker", "frames_lost", "head_of_line", "jobs_queue", "network_cut", "proxy_drops",
    "proxy_stops", "replier_falls_silent", "replies_dropped", "slow_database", "worker_slow_at_times",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted({*_FOUND_LATE, "healthy_service", "worker_dies"}))
def test_joined_late_the_place_is_named_too_or_none_is(name: str) -> None:
    """The capture begins in the middle: nobody announced a type. A message may be passed on where none is seen yet."""
    packets = load(SYSTEMS / f"{name}.pcap.gz")
    found = accused(diagnose_packets(packets[len(packets) * 3 // 10 :]))
    assert found == (fault(name) if name in _FOUND_LATE else set())


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("database_mistyped", 0.2),
        ("database_refuses", 0.08),
        ("frames_lost", 0.2),
        ("network_cut", 0.2),
        ("no_service", 0.4),
        ("slow_database", 0.08),
        *(
            pytest.param(name, share, marks=pytest.mark.slow)
            for name in FAULTS
            for share in (0.03, 0.08, 0.2, 0.4, 0.6)
            if (name, share) != ("stealing_worker_stops", 0.08)  # the type of its scheduler's late peer is not known
        ),
    ],
)
def test_joined_late_nobody_is_accused_but_those_of_the_whole_capture(name: str, share: float) -> None:
    """A host that may pass messages on over a connection from before the capture may wait for another one."""
    packets = load(SYSTEMS / f"{name}.pcap.gz")
    to_blame = {host_of(end) for one in faults(diagnose_packets(packets)) for end in one.endpoints}
    late = faults(diagnose_packets(packets[int(len(packets) * share) :]))
    assert [one.summary for one in late if to_blame.isdisjoint(map(host_of, one.endpoints))] == []


def test_joined_late_unanswered_requests_are_told_with_the_last_socket_that_is_seen_to_have_them() -> None:
    packets = load(SYSTEMS / "majordomo_drops.pcap.gz")
    (found,) = [one for one in faults(diagnose_packets(packets[300:])) if one.code == "request-unanswered"]
    assert found.endpoints == ["10.77.0.1:7390"]
    assert (found.severity, found.certainty) == ("error", "likely")
    assert found.count >= 3
    assert "did not answer" in found.summary


def test_a_broker_on_websockets_without_a_mechanism_is_followed() -> None:
    diagnosis = Diagnosis()
    diagnosis.take(Patterns().take(over_websockets(rounds=80).events))
    (relays,) = (one for one in diagnosis.inquiries if isinstance(one, Relays))
    assert all(relays.follows(flow) for flow in (1, 2, 3, 4))
    assert alarms(diagnosis.findings()) == []


def test_each_of_many_workers_is_compared_with_some(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, compared, count = Scene(), 0, 400
    does_the_same = RelayPlace.does_the_same

    def counting(place: RelayPlace, other: RelayPlace) -> bool:
        nonlocal compared
        compared += 1
        return does_the_same(place, other)

    monkeypatch.setattr(RelayPlace, "does_the_same", counting)
    scene.connect(0, "10.0.0.1:40000", "10.0.0.2:5555", types=("DEALER", "ROUTER"))
    for flow in range(1, count + 1):
        scene.connect(flow, f"10.1.{flow // 200}.{flow % 200}:40000", "10.0.0.2:5556", types=("DEALER", "ROUTER"))
        asked = scene.say(0, b"%d" % flow, b"", b"ask %d" % flow)
        passed = scene.say(flow, b"\0\1\2\3\4", b"%d" % flow, b"", b"ask %d" % flow, by_server=True)
        scene.say(flow, b"\0\1\2\3\4", b"%d" % flow, b"", b"done %d" % flow, answers=passed)
        scene.say(0, b"%d" % flow, b"", b"done %d" % flow, by_server=True, answers=asked)
    diagnosis = Diagnosis()
    diagnosis.take(scene.events)
    diagnosis.findings()
    assert count <= compared <= 100 * (count + 10)


def test_on_one_host_a_subscriber_tells_what_its_peer_must_be(tmp_path: Path) -> None:
    """The capture lacks what one proxy announces to a subscriber: it passes publications on all the same."""
    packets = load(SYSTEMS / "topic_misspelt.pcap.gz")
    to_subscriber = [one for one in packets if one[2][36:38] == (57246).to_bytes(2, "big")]
    packets.remove(next(one for one in to_subscriber if b"\5READY" in one[2]))
    save_on_one_host(packets, tmp_path / "loopback.pcap")
    assert [code for code, _ in alarms(diagnose(tmp_path / "loopback.pcap"))] == ["subscription-unmatched"]


def test_a_proxy_passed_on_what_its_copy_overtook_and_came_before() -> None:
    """A packet that waited for others had overtaken the one before: a queue of a network card, and a lost packet."""
    scene = Scene()
    scene.connect(1, "10.0.0.1:40001", "10.0.0.2:5001", types=("PUB", "XSUB"))
    scene.connect(2, "10.0.0.3:40002", "10.0.0.2:5002", types=("SUB", "XPUB"))
    for number in range(40):
        is_odd = number in (20, 25, 30, 35)
        if not is_odd:
            scene.say(1, b"topic", b"%d" % number)
        scene.say(2, b"topic", b"%d" % number, by_server=True, after_ms=0.3).matched = b"topic"
        if is_odd:
            scene.say(1, b"topic", b"%d" % number, after_ms=0.3)
            scene.events[-2:] = reversed(scene.events[-2:])
    for number in range(5):
        scene.say(1, b"other", b"%d" % number, after_ms=1000)
        scene.say(2, b"other", b"%d" % number, by_server=True, after_ms=0.3).matched = b"other"
    assert [one.summary for one in diagnose_events(scene.events) if one.code == "not-passed-on"] == []
