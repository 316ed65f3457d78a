"""Handshakes of the mechanisms, command by command."""

import pytest

from dissectors.events import Side
from dissectors.zmtp.security import MECHANISMS, Security, counts_up

Step = tuple[Side, str]
C: Side = "client"
S: Side = "server"

HANDSHAKES: dict[str, list[Step]] = {
    "NULL": [(C, "READY"), (S, "READY")],
    "PLAIN": [(C, "HELLO"), (S, "WELCOME"), (C, "INITIATE"), (S, "READY")],
    "CURVE": [(C, "HELLO"), (S, "WELCOME"), (C, "INITIATE"), (S, "READY")],
    "GSSAPI": [(C, "INITIATE"), (S, "INITIATE"), (C, "INITIATE"), (S, "READY"), (C, "READY")],
}


def taken(mechanism: str, steps: list[Step]) -> tuple[Security, list[str]]:
    security = Security()
    security.begin(mechanism)
    codes = [code for side, name in steps for code, _ in security.take(side, name, {}, mechanism)]
    return security, codes


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("turned", [False, True])
def test_each_handshake_is_complete_with_its_last_command(mechanism: str, turned: bool) -> None:
    """TCP's client may be the server of the mechanism."""
    steps = HANDSHAKES[mechanism]
    if turned:
        steps = [(S if side == C else C, name) for side, name in steps]
    for count in range(len(steps)):
        security, _ = taken(mechanism, steps[:count])
        assert not security.complete
    security, codes = taken(mechanism, steps)
    assert security.complete
    assert security.is_done(C)
    assert security.is_done(S)
    assert codes == (["plain-credentials"] if mechanism == "PLAIN" else [])
    assert security.in_clear(C) == (mechanism in ("NULL", "PLAIN"))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["READY", "HELLO", "WELCOME", "INITIATE"])
def test_each_command_comes_once_and_in_its_mechanism_only(mechanism: str, name: str) -> None:
    rules = MECHANISMS[mechanism]
    _, first = taken(mechanism, [(C, name)])
    _, both = taken(mechanism, [(C, name), (C, name)])
    assert ("unexpected-command" in first) == (name not in rules.commands)
    assert ("unexpected-command" in both) == (name not in rules.repeats)


def test_nonces_count_up() -> None:
    security = Security()
    security.begin("CURVE")
    nonces = [1, 2, 9, 9, 3, 10]
    told = [bool(security.take(C, "MESSAGE", {"nonce": nonce.to_bytes(8, "big")}, "CURVE")) for nonce in nonces]
    assert told == [False, False, False, True, True, False]
    assert counts_up((1).to_bytes(8, "little"), (256).to_bytes(8, "little"))  # libzmq 4.0
    assert not counts_up((256).to_bytes(8, "big"), (1).to_bytes(8, "big"))


def test_nobody_is_judged_by_what_is_missing() -> None:
    security = Security()
    security.lost(C)
    assert security.unknown_start
    assert security.is_done(S)
    assert security.may_encrypt
    security.resume()
    assert security.unknown_start
    assert security.mechanism_of(None, b"\7MESSAGE" + bytes(25)) == "CURVE"
