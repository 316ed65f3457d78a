"""From calls of libsodium to keys: whichever of them are seen."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from nacl.bindings import crypto_box_beforenm, crypto_box_keypair

from dissectors.zmtp.curve_keys import SecretKey, SharedKey, Sodium
from zmtpsniff.host.agreements import Agreements
from zmtpsniff.host.uprobes import BEFORENM, INNER_BEFORENM, BeforenmCall, parse_call


class Handshake:
    """The calls of both ends of a connection, as libzmq 4.3.5 makes them."""

    def __init__(self, server: tuple[bytes, bytes]) -> None:
        (long_term, secret), (self.client, short_secret), (own, own_secret) = (
            server,
            crypto_box_keypair(),
            crypto_box_keypair(),
        )
        self.server, transient = crypto_box_keypair()
        self.key = SharedKey(self.client, self.server, crypto_box_beforenm(self.client, transient))
        self.by_client = [
            call(INNER_BEFORENM, long_term, short_secret),
            call(INNER_BEFORENM, long_term, short_secret),
            call(BEFORENM, self.server, short_secret),
            call(INNER_BEFORENM, self.server, short_secret),
            call(INNER_BEFORENM, self.server, own_secret),
            call(INNER_BEFORENM, self.server, short_secret),
        ]
        self.by_server = [
            call(INNER_BEFORENM, self.client, secret),
            call(INNER_BEFORENM, self.client, secret),
            call(INNER_BEFORENM, self.client, transient),
            call(INNER_BEFORENM, own, transient),
            call(BEFORENM, self.client, transient),
            call(INNER_BEFORENM, self.client, transient),
        ]


def call(function: str, public: bytes, secret: bytes, thread: int = os.getpid()) -> BeforenmCall:
    return BeforenmCall(thread, function, public, secret)


@pytest.mark.parametrize("side", ["by_client", "by_server"])
def test_either_end_gives_the_key_the_right_way_round(side: str) -> None:
    handshake = Handshake(crypto_box_keypair())
    assert Agreements().keys(getattr(handshake, side)) == [handshake.key]


def test_both_ends_on_one_machine_give_it_once() -> None:
    handshake = Handshake(crypto_box_keypair())
    assert Agreements().keys(handshake.by_client + handshake.by_server) == [handshake.key]


@pytest.mark.parametrize("side", ["by_client", "by_server"])
def test_who_came_late_gives_both_ways(side: str) -> None:
    handshake = Handshake(crypto_box_keypair())
    calls = getattr(handshake, side)
    late = next(number for number, each in enumerate(calls) if each.function == BEFORENM)
    keys = Agreements().keys(calls[late:])
    turned = SharedKey(handshake.server, handshake.client, handshake.key.key)
    assert sorted(keys, key=repr) == sorted([handshake.key, turned], key=repr)


def test_long_term_keys_only_if_asked() -> None:
    server = crypto_box_keypair()
    handshakes = [Handshake(server) for _ in range(4)]
    calls = [each for handshake in handshakes for each in handshake.by_client + handshake.by_server]
    shared = [handshake.key for handshake in handshakes]
    assert Agreements().keys(calls) == shared
    told = Agreements(long_term=True).keys(calls)
    assert [key for key in told if isinstance(key, SharedKey)] == shared
    assert [key for key in told if isinstance(key, SecretKey)] == [SecretKey(*server)]


def test_clients_with_a_wrong_key_show_the_long_term_key_of_the_server() -> None:
    public, secret = crypto_box_keypair()
    calls = [call(INNER_BEFORENM, crypto_box_keypair()[0], secret) for _ in range(3)]
    assert Agreements(long_term=True).keys(calls) == [SecretKey(public, secret)]


def test_a_program_that_tries_a_long_term_key_on_a_hello_makes_no_key() -> None:
    """It calls what makes the key of all messages, with the first public key that the server used, too."""
    server = crypto_box_keypair()
    handshakes = [Handshake(server) for _ in range(3)]
    foreign = [call(BEFORENM, handshake.client, server[1], 1) for handshake in handshakes]
    known = Agreements(long_term=True)
    assert known.keys(handshakes[0].by_server + foreign[:1]) == [handshakes[0].key]
    later = known.keys(handshakes[1].by_server + handshakes[2].by_server + foreign[1:])
    assert set(later) == {handshakes[1].key, handshakes[2].key, SecretKey(*server)}  # which is no transient one


def test_a_program_may_call_in_several_threads() -> None:
    handshake = Handshake(crypto_box_keypair())
    with ThreadPoolExecutor() as threads:
        other = threads.submit(threading.get_native_id).result()
        calls = [each._replace(thread=other) if each.function == BEFORENM else each for each in handshake.by_server]
        assert Agreements().keys(calls) == [handshake.key]


def test_public_key_of_low_order_is_no_key() -> None:
    assert Agreements().keys([call(BEFORENM, bytes(32), crypto_box_keypair()[1])]) == []


def test_what_another_one_computes_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else two of them at once would have each other compute without end."""
    computed: list[bytes] = []

    def compute(_: Sodium, public: bytes, secret: bytes) -> bytes:
        computed.append(secret)
        return crypto_box_beforenm(public, secret)

    monkeypatch.setattr(Sodium, "shared", compute)
    known = Agreements()
    handshake = Handshake(crypto_box_keypair())
    known.keys(handshake.by_client + handshake.by_server)
    assert len(computed) == 2
    assert known.keys([call(BEFORENM, handshake.server, secret) for secret in computed[:1]]) == []
    assert len(computed) == 2


LINE = (
    b"          python-4711    [001] ..... 26063.185: b7: (0x7f3a1c) p0=0x1 p1=0x2 p2=0x3 p3=0xffffffffffffffff "
    b"s0=0x5 s1=0x6 s2=0x7 s3=0x8"
)


def test_line_of_the_kernel() -> None:
    found = parse_call(LINE)
    assert found is not None
    assert (found.thread, found.function) == (4711, BEFORENM)
    assert found.public_key == b"\1" + bytes(7) + b"\2" + bytes(7) + b"\3" + bytes(7) + b"\xff" * 8
    assert found.secret_key[::8] == b"\5\6\7\x08"
    inner = parse_call(LINE.replace(b"b7:", b"i8:"))
    assert inner is not None
    assert inner.function == INNER_BEFORENM


@pytest.mark.parametrize(
    "line",
    [
        b"",
        LINE[:-10],  # an argument is missing
        LINE.replace(b"p3=0xffffffffffffffff", b"p3=(fault)"),  # what it points to is not in memory
        LINE + b" more",
        b"CPU:1 [LOST 12 EVENTS]",
        b" sh-1 [000] ..... 1.0: sched_process_exec: filename=/bin/b1: (0x1) p0=0x1 pid=1 old_pid=1",
    ],
)
def test_other_lines(line: bytes) -> None:
    assert parse_call(line) is None
