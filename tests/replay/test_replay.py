"""Replays against real sockets: what arrives is what the capture has, and what comes back is held against it."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import zmq
from click.testing import CliRunner, Result

import zmtpsniff
from dissectors.events import AnyEvent, Connection, Cut, Greeting, Message, Octets, Peer, Sides, Subscription
from tests.support.live_program import wait_for
from tests.support.paths import FIXTURES
from tests.support.ports import free_port
from zmtpsniff.cli.main import cli
from zmtpsniff.errors import Error
from zmtpsniff.replay.endpoint import parse_endpoint
from zmtpsniff.replay.plan import make_plan
from zmtpsniff.replay.player import Player, Score, Tempo
from zmtpsniff.replay.reply_comparison import Comparison, Publications

CLIENT, SERVER = "10.0.0.1:40000", "10.0.0.2:5555"
PATIENCE_MS = 60_000  # a machine that does much else may be slow
Said = tuple[str, Sequence[Octets]]
Peers = Callable[[int], zmq.Socket[bytes]]
_services: list[threading.Thread] = []  # that the sockets of a test have


def talk(
    client: str,
    server: str,
    *said: Said,
    flow: int = 1,
    identity: bytes | None = None,
    gap_ms: int = 1,
    first: int = 1,
) -> list[AnyEvent]:
    """The events of a connection: each thing said is "client" or "server" and frames; a SUB subscribes."""
    ends = {"client": CLIENT.replace("40000", str(40000 + flow)), "server": SERVER}
    events: list[AnyEvent] = []
    requests: list[int] = []
    for number, (side, frames) in enumerate(said, first):
        src, dst = ends[side], ends["server" if side == "client" else "client"]
        kind = {"client": client, "server": server}[side]
        if kind == "SUB":
            events.append(
                Subscription(number * gap_ms * 1_000_000, number, flow, src, dst, "subscribe", frames[0], "command")
            )
            continue
        message = Message(number * gap_ms * 1_000_000, number, flow, src, dst, [*frames], kind)
        if {client, server} <= {"REQ", "REP", "DEALER", "ROUTER"}:
            if side == "client":
                requests.append(number)
            elif requests:
                message.request = requests.pop(0)
        events.append(message)
    peers = Peer(ends["client"], "3.1", client, identity), Peer(SERVER, "3.1", server)
    end = (first + len(said)) * gap_ms * 1_000_000
    return [*events, Connection(flow, "tcp", *peers, Sides(0, 0), Sides(0, 0), 0, end, "fin")]


@pytest.fixture
def peers() -> Iterator[Peers]:
    """Sockets that are bound to a free port each."""
    context = zmq.Context()
    made: list[zmq.Socket[bytes]] = []

    def make(kind: int) -> zmq.Socket[bytes]:
        bound = context.socket(kind)
        bound.rcvtimeo = PATIENCE_MS
        made.append(bound)  # one that nobody names any more would close
        bound.bind_to_random_port("tcp://127.0.0.1")
        return bound

    yield make
    for thread in _services:
        thread.join(PATIENCE_MS / 1000)
    _services.clear()
    context.destroy(0)


def where(bound: zmq.Socket[bytes]) -> str:
    endpoint = bound.last_endpoint
    assert isinstance(endpoint, bytes)
    return endpoint.decode()


def play(
    events: list[AnyEvent],
    endpoint: str,
    *,
    bound: bool = False,
    as_whom: str | None = None,
    shown: list[AnyEvent] | None = None,
    **tempo: Any,
) -> tuple[Score, list[AnyEvent]]:
    shown = [] if shown is None else shown
    with zmq.Context() as context:
        plan = make_plan([events], None, as_whom, bound)
        tempo = {"patience": PATIENCE_MS / 1000, "speed": 100.0} | tempo
        player = Player(context, plan, parse_endpoint(endpoint, bound), bound, Tempo(**tempo), shown.extend)
        player.play(lambda: [events], None)
    return player.score, shown


def _start(service: Callable[[], None]) -> None:
    _services.append(threading.Thread(target=service))
    _services[-1].start()


def answering(
    service: zmq.Socket[bytes], answer: Callable[[list[bytes]], list[bytes]], count: int
) -> list[list[bytes]]:
    """The messages of a service, which answers in a thread."""
    got: list[list[bytes]] = []

    def serve() -> None:
        while len(got) < count and service.poll(PATIENCE_MS):
            got.append(service.recv_multipart())
            service.send_multipart(answer(got[-1]))

    _start(serve)
    return got


REQUESTS = [("client", [b"", b"one"]), ("server", [b"", b"1"]), ("client", [b"", b"two", b""]), ("server", [b"", b"2"])]


def test_req(peers: Peers) -> None:
    service = peers(zmq.REP)
    answers = {b"one": b"1", b"two": b"2"}
    got = answering(service, lambda frames: [answers[frames[0]]], 2)
    score, shown = play(talk("REQ", "REP", *REQUESTS), where(service))
    assert got == [[b"one"], [b"two", b""]]
    assert (score.sent, score.same, score.missing, score.others, score.unsent) == (2, 2, 0, 0, 0)
    messages = [event for event in shown if isinstance(event, Message)]
    assert [message.frames for message in messages] == [said for _, said in REQUESTS]
    assert [message.request for message in messages] == [None, 1, None, 3]


def test_another_reply_is_told(peers: Peers) -> None:
    service = peers(zmq.REP)
    answering(service, lambda _: [b"1"], 2)
    score, _ = play(talk("REQ", "REP", *REQUESTS), where(service))
    assert (score.same, score.missing, score.others) == (1, 1, 1)
    assert not score.is_as_captured


def test_a_request_that_nobody_answers(peers: Peers) -> None:
    """A REQ becomes relaxed; it waits as long as it may once, not for each."""
    service = peers(zmq.ROUTER)
    events = talk("REQ", "ROUTER", *REQUESTS * 60)
    score, _ = play(events, where(service), patience=1.0)
    assert score.seconds < 60  # and not 120
    assert (score.sent, score.same, score.missing) == (120, 0, 120)


def test_a_service_that_ends_with_its_reply(peers: Peers) -> None:
    """The reply is there before the end of the connection, and is taken, however late somebody looks."""
    service = peers(zmq.REP)

    is_over = threading.Event()

    def serve() -> None:
        service.send_multipart([b"1" for _ in service.recv_multipart()])
        service.close(PATIENCE_MS)
        is_over.set()

    _start(serve)
    score, _ = play(talk("REQ", "REP", *REQUESTS[:2]), where(service), shown=_Slow(is_over))
    assert (score.sent, score.same, score.missing) == (1, 1, 0)


class _Slow(list[AnyEvent]):
    """A screen that is read slowly: it stays until its subject is over, and its end has come here."""

    def __init__(self, is_over: threading.Event) -> None:
        super().__init__()
        self._is_over = is_over

    def extend(self, events: Iterable[AnyEvent]) -> None:
        super().extend(events)
        self._is_over.wait(PATIENCE_MS / 1000)
        time.sleep(0.3)


def test_a_peer_that_goes(peers: Peers) -> None:
    """Messages that no peer takes are not counted as sent."""
    pull = peers(zmq.PULL)
    is_over = threading.Event()

    def serve() -> None:
        pull.recv_multipart()
        pull.close(0)
        is_over.set()

    _start(serve)
    score, _ = play(talk("PUSH", "PULL", *[("client", [b"a"])] * 3), where(pull), shown=_Slow(is_over), patience=2.5)
    assert (score.sent, score.unsent) == (1, 2)


def test_req_with_correlation(peers: Peers) -> None:
    service = peers(zmq.ROUTER)
    answering(service, lambda frames: frames, 1)
    number = b"\0\0\0\x07"
    score, _ = play(
        talk("REQ", "ROUTER", ("client", [number, b"", b"ask"]), ("server", [number, b"", b"ask"])), where(service)
    )
    assert (score.sent, score.same) == (1, 1)


def test_dealers_keep_identity_and_envelope(peers: Peers) -> None:
    router = peers(zmq.ROUTER)
    got = answering(router, lambda frames: [frames[0], b"", frames[2].upper()], 2)
    alice = talk("DEALER", "ROUTER", ("client", [b"", b"a"]), ("server", [b"", b"A"]), identity=b"alice")
    bob = talk("DEALER", "ROUTER", ("client", [b"", b"b"]), ("server", [b"", b"B"]), identity=b"bob", flow=2, first=3)
    score, _ = play([*alice[:-1], *bob[:-1], alice[-1], bob[-1]], where(router))
    assert got == [[b"alice", b"", b"a"], [b"bob", b"", b"b"]]
    assert (score.sent, score.same, score.is_as_captured) == (2, 2, True)


def test_rep_answers_what_comes() -> None:
    with zmq.Context() as context:
        port = free_port()
        got: list[list[bytes]] = []

        def ask() -> None:
            with context.socket(zmq.REQ) as client:
                client.rcvtimeo = PATIENCE_MS
                client.connect(f"tcp://127.0.0.1:{port}")
                for request in (b"one", b"two"):
                    client.send(request)
                    got.append(client.recv_multipart() if client.poll(PATIENCE_MS) else [])

        thread = threading.Thread(target=ask)
        thread.start()
        said = [("client", [b"\1", b"", b"one"]), ("server", [b"\1", b"", b"1"])]
        said += [("client", [b"\1", b"", b"two"]), ("server", [b"\1", b"", b"2"])]
        score, _ = play(talk("DEALER", "REP", *said), f"tcp://127.0.0.1:{port}", bound=True, as_whom="REP")
        thread.join(PATIENCE_MS / 1000)
    assert got == [[b"1"], [b"2"]]
    assert (score.sent, score.same, score.is_as_captured) == (2, 2, True)


@pytest.mark.parametrize("named", [True, False])
def test_router_finds_who_it_talked_to(named: bool) -> None:
    """By the identity that a peer announced, else in the order in which peers come."""
    names = [b"alice", b"bob"] if named else [None, None]
    alice = talk("DEALER", "ROUTER", ("client", [b"a"]), ("server", [b"for a"]), identity=names[0])
    bob = talk("DEALER", "ROUTER", ("client", [b"b"]), ("server", [b"for b"]), identity=names[1], flow=2, first=3)
    with zmq.Context() as context:
        port = free_port()
        got: dict[bytes, list[bytes]] = {}

        def ask() -> None:
            # Bob is first, if his name says who he is.
            for name in (b"bob", b"alice") if named else (b"alice", b"bob"):
                client = context.socket(zmq.DEALER)
                clients.append(client)
                client.rcvtimeo = PATIENCE_MS
                if named:
                    client.routing_id = name
                monitor = client.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
                client.connect(f"tcp://127.0.0.1:{port}")
                client.send(name[:1])
                assert monitor.poll(PATIENCE_MS)
                client.disable_monitor()
                wait_for(lambda: [name[:1]] in [each.frames for each in shown if isinstance(each, Message)])  # noqa: B023
            for name, client in zip((b"bob", b"alice") if named else (b"alice", b"bob"), clients, strict=True):
                got[name] = client.recv_multipart() if client.poll(PATIENCE_MS) else []
                client.close(0)

        clients: list[zmq.Socket[bytes]] = []
        shown: list[AnyEvent] = []
        thread = threading.Thread(target=ask)
        thread.start()
        score, _ = play([*alice, *bob], f"tcp://127.0.0.1:{port}", bound=True, as_whom="servers", shown=shown)
        thread.join(PATIENCE_MS / 1000)
    assert got == {b"alice": [b"for a"], b"bob": [b"for b"]}
    assert (score.sent, score.same, score.unsent) == (2, 2, 0)


def test_router_that_connects(peers: Peers) -> None:
    service = peers(zmq.DEALER)
    got = answering(service, lambda frames: [*frames[:2], b"1"], 1)
    said = [("client", [b"id", b"", b"one"]), ("server", [b"id", b"", b"1"])]
    score, _ = play(talk("ROUTER", "DEALER", *said), where(service))
    assert got == [[b"id", b"", b"one"]]
    assert score.is_as_captured


@pytest.mark.parametrize(("kind", "peer"), [("PUSH", zmq.PULL), ("PAIR", zmq.PAIR), ("DEALER", zmq.DEALER)])
def test_plain_sockets(kind: str, peer: int, peers: Peers) -> None:
    pull = peers(peer)
    said: list[Said] = [("client", [b"%d" % number, b""]) for number in range(2000)]
    score, shown = play(talk(kind, kind, *said), where(pull), rate=1e6)
    assert [pull.recv_multipart() for _ in said] == [frames for _, frames in said]
    assert (score.sent, len(shown)) == (2000, 2000)


@pytest.mark.parametrize("kind", ["PUB", "XPUB"])
def test_publishers_wait_for_subscribers_and_send_once(kind: str) -> None:
    """A message that two subscribers had is sent once; each real one gets what it subscribes to."""
    said: list[Said] = [("server", [b"a", b"%d" % number]) for number in range(50)]
    first, second = talk("SUB", kind, *said), talk("SUB", kind, *said[10:30], flow=2, first=11)
    both = sorted([*first[:-1], *second[:-1]], key=lambda event: event.time_ns or 0)  # type: ignore[union-attr]
    with zmq.Context() as context, context.socket(zmq.SUB) as sub:
        sub.rcvtimeo = PATIENCE_MS
        port = free_port()
        sub.connect(f"tcp://127.0.0.1:{port}")
        sub.subscribe(b"a")
        score, _ = play([*both, first[-1], second[-1]], f"tcp://127.0.0.1:{port}", bound=True)
        got = [sub.recv_multipart() for _ in said]
        assert not sub.poll(100)
    assert got == [frames for _, frames in said]
    assert score.sent == 50


@pytest.mark.parametrize("kind", ["SUB", "XSUB"])
def test_subscribers(kind: str, peers: Peers) -> None:
    publisher = peers(zmq.XPUB)
    events = talk("SUB", "PUB", ("client", [b"a"]), ("client", [b"b"]), ("server", [b"a1"]))
    (first, *_), end = events, events[-1]
    assert isinstance(first, Greeting | Message | Subscription)
    assert isinstance(end, Connection)
    events.insert(2, Subscription(2_500_000, 9, 1, first.src, SERVER, "cancel", b"b", "command"))
    if kind == "XSUB":
        end.client.socket_type = "XSUB"
    got: list[bytes] = []

    def publish() -> None:
        got.extend(publisher.recv() for _ in range(3))
        publisher.send(b"a1")
        publisher.send(b"a2")

    _start(publish)
    score, _ = play(events, where(publisher), as_whom=kind, speed=1.0)
    assert got == [b"\1a", b"\1b", b"\0b"]
    assert (score.subscriptions, score.same, score.missing) == (3, 1, 0)


def test_times_and_rates(peers: Peers) -> None:
    """In the capture's own time each would take 50 s."""
    said: list[Said] = [("client", [b"%d" % number]) for number in range(11)]
    paces: list[tuple[dict[str, Any], float]]
    paces = [({"speed": 200.0}, 0.25), ({"rate": 100.0}, 0.1), ({"rate": 100.0, "rounds": 2}, 0.4)]
    for options, expected in paces:
        pull = peers(zmq.PULL)
        score, _ = play(talk("PUSH", "PULL", *said, gap_ms=5000), where(pull), **{"speed": 1.0} | options)
        assert expected <= score.seconds < expected + 20  # the first may be late, but is due at the beginning
        assert score.sent == 11 * options.get("rounds", 1)


def test_wait_replies(peers: Peers) -> None:
    """A DEALER that had its replies one by one sends no request before the last has its reply."""
    said = [("client" if number % 2 == 0 else "server", [b"", b"%d" % (number // 2)]) for number in range(10)]
    order: list[str] = []
    router = peers(zmq.ROUTER)

    def answer(frames: list[bytes]) -> list[bytes]:
        order.append("got")
        time.sleep(0.02)
        order.append("answered")
        assert not router.poll(0)
        return frames

    answering(router, answer, 5)
    score, _ = play(talk("DEALER", "ROUTER", *said), where(router), waits=True)
    assert order == ["got", "answered"] * 5
    assert score.is_as_captured


def test_what_is_not_whole_is_left_out(peers: Peers) -> None:
    pull = peers(zmq.PULL)
    events = talk("PUSH", "PULL", ("client", [b"whole"]), ("client", [Cut(b"par", 9)]), ("client", [b"half"]))
    events[2].incomplete = True  # type: ignore[union-attr]
    score, _ = play(events, where(pull))
    assert (score.sent, score.incomplete) == (1, 2)
    assert pull.recv_multipart() == [b"whole"]


def test_nobody_there() -> None:
    with pytest.raises(Error, match=r"nobody answers within 0\.3 s"):
        play(talk("PUSH", "PULL", ("client", [b"a"])), "tcp://127.0.0.1:1", patience=0.3)


def test_the_wrong_peer(peers: Peers) -> None:
    with pytest.raises(Error, match="a PUSH socket may talk to"):
        play(talk("PUSH", "PULL", ("client", [b"a"])), where(peers(zmq.PUB)), patience=2.5)


def test_drafts() -> None:
    with pytest.raises(Error, match="RADIO sockets cannot be replayed"):
        make_plan([talk("RADIO", "DISH", ("client", [b"group", b"a"]))], None, None, False)


PUSHED = talk("PUSH", "PULL", ("client", [b"a"]))


@pytest.mark.parametrize(
    ("events", "as_whom", "bound", "said"),
    [
        (talk("PUSH", "PULL"), None, False, "nothing to replay: there is no message$"),
        (talk("PUSH", "PULL"), "servers", False, "nothing to replay: there is no message of servers$"),
        (PUSHED, "PUB", False, "nothing to replay: no message of PUB passes$"),
        (PUSHED, "servers", False, "nothing to replay: no message of servers passes$"),
        (talk("PULL", "PUSH", ("client", [b"a"])), "clients", False, "PULL sockets cannot be replayed$"),
        (PUSHED + talk("PAIR", "PAIR", ("client", [b"a"]), flow=2), None, True, "--bind: one socket cannot be PAIR and "
         "PUSH; choose with --as$"),
    ],
)  # fmt: skip
def test_what_cannot_be_replayed(events: list[AnyEvent], as_whom: str | None, bound: bool, said: str) -> None:
    with pytest.raises(Error, match=said):
        make_plan([events], None, as_whom, bound)


def test_servers_are_played_by_one_socket_for_each_of_their_addresses() -> None:
    both = talk("REQ", "REP", *REQUESTS) + talk("REQ", "REP", *REQUESTS, flow=2)
    servers = make_plan([both], None, "servers", False)
    clients = make_plan([both], None, "clients", False)
    assert [role.key for role in servers.senders.values()] == [("server REP", SERVER)] * 2
    assert [role.key for role in clients.senders.values()] == [("flow", 1), ("flow", 2)]
    assert servers.messages == clients.messages == 4


def test_unknown_types_need_a_name(peers: Peers) -> None:
    events = talk("PUSH", "PULL", ("client", [b"a"]))
    events[-1].client.socket_type = None  # type: ignore[union-attr]
    with pytest.raises(Error, match="name it with --as"):
        make_plan([events], None, None, False)
    pull = peers(zmq.PULL)
    score, _ = play(events, where(pull), as_whom="PUSH")
    assert pull.recv() == b"a"
    assert score.sent == 1


@pytest.mark.parametrize(
    "text", ["127.0.0.1:5", "tcp://*:5555", "tcp://a;b:1", "tcp://h:0", "pgm://1.2.3.4:5", "ipc://"]
)
def test_bad_endpoints(text: str) -> None:
    with pytest.raises(Error, match="must be tcp://HOST:PORT"):
        parse_endpoint(text, False)


def test_which_endpoints_are_local() -> None:
    assert parse_endpoint("tcp://127.0.0.1:5", False).is_local
    assert parse_endpoint("tcp://[::1]:5", False).address == "tcp://[::1]:5"
    assert parse_endpoint("tcp://localhost:5", False).is_local
    assert parse_endpoint("ipc:///tmp/x", False).is_local
    assert not parse_endpoint("tcp://192.0.2.1:5", False).is_local
    assert not parse_endpoint("tcp://*:5", True).is_local
    assert not parse_endpoint("tcp://0.0.0.0:5", True).is_local


def test_comparison_minds_no_order() -> None:
    comparison = Comparison()
    for frames in ([b"a"], [b"b"], [b"b"], [b"c"]):
        comparison.expect(frames)
    for frames in ([b"b"], [b"a"], [b"x"], [b"b"]):
        comparison.receive(frames)
    assert (comparison.same, comparison.missing, comparison.others) == (3, 1, 1)


def test_publications_repeat_what_is_repeated() -> None:
    sent = Publications()
    sent.join(1)
    sent.join(2)
    assert [sent.is_new(1, [b"tick"]) for _ in range(3)] == [True] * 3
    assert [sent.is_new(2, [b"tick"]) for _ in range(4)] == [False] * 3 + [True]
    sent.join(3)
    assert sent.is_new(3, [b"tick"])
    assert not sent.is_new(4, [b"tick"])  # whose beginning is not in the capture


def replay(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["replay", *map(str, arguments)])


def test_the_command(peers: Peers) -> None:
    with zmtpsniff.open(FIXTURES / "m31_push_pull.pcap") as capture:
        expected = [message.frames for message in capture.messages()]
    pull = peers(zmq.PULL)
    done = replay(FIXTURES / "m31_push_pull.pcap", "--to", where(pull), "--speed", "100", "-T", "summary")
    assert done.exit_code == 0, done.output
    assert [pull.recv_multipart() for _ in expected] == expected
    assert done.stdout.count("message PUSH") == len(expected)
    assert f"{len(expected)} messages sent" in done.stderr


def test_the_exit_status(peers: Peers) -> None:
    done = replay(
        FIXTURES / "m31_req_rep.pcap", "--to", where(peers(zmq.ROUTER)), "--patience", "1.4", "--speed", "100"
    )
    assert done.exit_code == 1
    assert "12 of the capture did not come" in done.stderr


def test_it_asks_before_it_sends_to_another_host() -> None:
    done = replay(FIXTURES / "m31_push_pull.pcap", "--to", "tcp://192.0.2.1:5555")
    assert isinstance(done.exception, Error)
    assert "--yes" in str(done.exception)
    assert "another" not in done.stdout


def test_where_to_must_be_said() -> None:
    assert "say where to" in replay(FIXTURES / "m31_push_pull.pcap").output
    assert "standard input" in replay("-", "--to", "tcp://127.0.0.1:5").output


def test_without_pyzmq() -> None:
    code = "import sys; sys.modules['zmq'] = None; sys.argv = sys.argv[1:]; from zmtpsniff.cli.main import main; main()"
    capture = str(FIXTURES / "m31_push_pull.pcap")
    command = [sys.executable, "-c", code, "zmtpsniff", "replay", capture, "--to", "ipc://x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "zmtpsniff: replay needs pyzmq, which is not installed: pip install 'zmtpsniff[replay]'\n"


def test_an_interrupt_ends_with_the_summary() -> None:
    """In the capture's own time this one lasts longer than the test."""
    with zmq.Context() as context, context.socket(zmq.PULL) as pull:
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        command = [sys.executable, "-m", "zmtpsniff", "replay", str(FIXTURES / "m31_push_pull.pcap")]
        with subprocess.Popen(
            [*command, "--to", f"tcp://127.0.0.1:{port}", "--speed", "0.00001", "-T", "summary"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as program:  # fmt: skip
            assert pull.poll(PATIENCE_MS)
            assert program.stdout
            assert "message PUSH" in program.stdout.readline()  # so it has counted that
            program.send_signal(signal.SIGINT)
            _, said = program.communicate(timeout=PATIENCE_MS / 1000)
    assert program.returncode == 130
    assert "1 message sent" in said
