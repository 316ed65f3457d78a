"""CURVE as libzmq speaks it: one side is libzmq, the other is made by hand and knows all keys of the connection."""

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest
import zmq
from zmq.utils import z85

from dissectors.events import AnyEvent, Command, Subscription
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.curve import Curve as Opener
from dissectors.zmtp.curve_keys import Key, KeyRing, SecretKey
from tests.support.curve_octets import CLIENT, SERVER, Curve, RealPeer, Sent
from tests.world import events as world_events
from tests.world.events import frames_of, problems, summary


def dissect(sent: Sent, keys: list[Key]) -> list[AnyEvent]:
    out: list[AnyEvent] = []
    connection = ZmtpConnection(out, 1, world_events.CLIENT, world_events.SERVER, curve=Opener(KeyRing(keys)))
    for number, (side, octets) in enumerate(sent, 1):
        connection.halves[side].feed(octets, number * 1000, number)
    connection.finish("open", 0, len(sent) * 1000)
    return out


@contextlib.contextmanager
def real(kind: int, server: bool, keys: tuple[bytes, bytes]) -> Iterator[tuple[zmq.Socket[bytes], socket.socket]]:
    """A socket of libzmq that is the server of CURVE, or its client, and our end of a connection with it."""
    context = zmq.Context()
    peer = context.socket(kind)
    peer.linger = 0
    peer.heartbeat_ivl, peer.heartbeat_timeout = 50, 60_000
    peer.rcvtimeo = peer.sndtimeo = 60_000
    public, secret = keys
    try:
        if server:
            peer.curve_server = True
            peer.curve_secretkey = secret
            port = peer.bind_to_random_port("tcp://127.0.0.1")
            connection = socket.create_connection(("127.0.0.1", port))
        else:
            peer.curve_serverkey = public
            peer.curve_publickey, peer.curve_secretkey = zmq.curve_keypair()
            with socket.create_server(("127.0.0.1", 0)) as listener:
                peer.connect(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
                connection, _ = listener.accept()
        with connection:
            yield peer, connection
    finally:
        context.destroy(0)


def test_messages_with_a_real_server() -> None:
    public, secret = zmq.curve_keypair()
    with real(zmq.ROUTER, True, (public, secret)) as (router, connection):
        curve = Curve(int(time.time()))
        peer = RealPeer(connection, curve, CLIENT)
        peer.play_client(z85.decode(public), b"DEALER")
        peer.say(b"", 1)
        peer.say(b"question")
        assert router.recv_multipart() == [b"me", b"", b"question"]
        router.send_multipart([b"me", b"", b"answer", b"x" * 70_000])
        while sum(len(octets) > 60_000 for _, octets in curve.sent) == 0:
            peer.frame()
    s: list[Key] = [SecretKey(None, z85.decode(secret))]
    c: list[Key] = [SecretKey(None, curve.client_now.secret)]
    for keys in (curve.ways()["k"], curve.ways()["k alone"], s + c, [*c, SecretKey(curve.server_now.public, None)]):
        events = dissect(curve.sent, keys)
        assert problems(events) == []
        told = frames_of(events)
        assert told[0] == [b"", b"question"]
        assert told[1][:2] == [b"", b"answer"]
        assert summary(events).server.socket_type == "ROUTER"
    hello = next(event for event in dissect(curve.sent, s) if isinstance(event, Command))
    assert hello.server_key == z85.decode(public)


@pytest.mark.parametrize("way", ["k", "s'", "s' alone", "K"])
def test_subscriptions_and_heartbeats_of_a_real_client(way: str) -> None:
    curve = Curve(int(time.time()))
    keys = (z85.encode(curve.server.public), z85.encode(curve.server.secret))
    with real(zmq.SUB, False, keys) as (sub, connection):
        sub.subscribe(b"weather")
        peer = RealPeer(connection, curve, SERVER)
        peer.play_server(b"PUB")
        peer.say(b"weather", 1)
        peer.say(b"rain")
        assert sub.recv_multipart() == [b"weather", b"rain"]
        sub.unsubscribe(b"weather")
        for _ in range(4):
            peer.frame()
    events = dissect(curve.sent, curve.ways()[way])
    assert problems(events) == []
    subscriptions = [(event.action, event.topic) for event in events if isinstance(event, Subscription)]
    assert subscriptions[0] == ("subscribe", b"weather")
    assert frames_of(events) == [[b"weather", b"rain"]]
    assert "PING" in [event.name for event in events if isinstance(event, Command)]
    initiate = next(event for event in events if isinstance(event, Command) and event.name == "INITIATE")
    assert initiate.socket_type == "SUB"


def test_a_real_server_closes_at_a_hello_for_another() -> None:
    public, secret = zmq.curve_keypair()
    with real(zmq.ROUTER, True, (public, secret)) as (_, connection):
        curve = Curve(int(time.time()))
        peer = RealPeer(connection, curve, CLIENT)
        with pytest.raises((EOFError, ConnectionError)):
            peer.play_client(Curve(5).server.public, b"DEALER")
        assert curve.sent[-1][0] == CLIENT  # HELLO, and no answer
