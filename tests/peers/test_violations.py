"""Behaviour of libzmq when its peer breaks a rule, as the advice of problems says it."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from dissectors.problems import PROBLEMS
from tests.support import draft_sockets
from tests.support.violations import VIOLATIONS, Reaction, bundled, reaction

GOES_ON = Reaction(closed=False, again=False, stuck=False, heard=[], works=True)
CLOSES = Reaction(closed=True, again=False, stuck=False, heard=[], works=False)
STUCK = CLOSES._replace(stuck=True)
DEAF = GOES_ON._replace(works=False)  # nothing more can come
ID = b"id"  # stands for one that libzmq made


def heard(*messages: list[bytes], works: bool = True) -> Reaction:
    return GOES_ON._replace(heard=list(messages), works=works)


# the problem; words of its advice; the violations, and what libzmq does
SAID: list[tuple[str, str, dict[str, Reaction]]] = [
    (
        "no-delimiter",
        "closes the connection",
        dict.fromkeys(("reply without delimiter", "reply with a delimiter alone", "reply behind an identity"), STUCK),
    ),
    (
        "no-delimiter",
        "a REP drops the message",
        dict.fromkeys(
            ("request without delimiter", "request with a delimiter alone", "reply of a DEALER to a REP"), GOES_ON
        ),
    ),
    (
        "no-delimiter",
        "REQ",  # and no other
        {
            "reply to a DEALER without delimiter": heard([b"reply"]),
            "request to a ROUTER without delimiter": heard([ID, b"request"]),
            "request behind identities": heard([b"request"], works=False),
        },
    ),
    (
        "reply-without-request",
        "A REQ socket drops it",
        {"reply without a request": DEAF, "second reply": heard([b"reply"], works=False)},
    ),
    ("request-before-reply", "", {"two requests": heard([b"request"], works=False)}),
    ("unmatched-message", "", {"topic that is not subscribed to": GOES_ON}),
    (
        "cancel-without-subscribe",
        "",
        {
            "cancel without subscribe": heard([b"\0topic"]),
            "subscription that is none": DEAF,
            "subscription to an XPUB that is none": heard([b"\7topic"]),
            "subscription of two frames": heard([b"\1topic"], [b"\1more"]),
        },
    ),
    (
        "unexpected-command",
        "it hands SUBSCRIBE to the program",
        {
            "SUBSCRIBE to a PULL": heard([b"\tSUBSCRIBEtopic"]),
            "SUBSCRIBE to a ROUTER": heard([ID, b"\tSUBSCRIBEtopic"]),
        },
    ),
    ("unexpected-command", "libzmq ignores most", {"READY again": GOES_ON}),
    ("unexpected-command", "", {"message to a PUSH": DEAF}),
    ("unknown-command", "later ignore it", {"unknown command": GOES_ON}),
    (
        "malformed-command",
        "libzmq ignores such a command",
        {"command without a name": GOES_ON, "PING without a time": GOES_ON},
    ),
    ("pong-without-ping", "", {"PONG without a PING": GOES_ON}),
    ("reserved-flags", "libzmq ignores them", {"reserved bits": heard([b"odd"])}),
    ("command-with-more", "takes the command", {"MORE on a command": GOES_ON}),
    ("command-inside-message", "without it", {"command inside a message": heard([b"one", b"two"])}),
    ("heartbeat-inside-message", "and takes it", {"PING inside a message": heard([b"one", b"two"])}),
    ("long-flag-not-needed", "", {"LONG that is not needed": heard([b"odd"])}),
    (
        "frame-too-long",
        "libzmq closes",
        {"frame of 2^63 octets": CLOSES, "frame over ZMQ_MAXMSGSIZE": CLOSES},
    ),
    ("incompatible-socket-types", "libzmq closes", {"socket type that does not fit": CLOSES}),
    ("unknown-socket-type", "", {"socket type that is unknown": CLOSES}),
    ("no-socket-type", "", {"no socket type": GOES_ON}),
    ("empty-property-name", "libzmq takes it", {"property without a name": GOES_ON}),
    ("duplicate-property", "libzmq takes it", {"property twice": GOES_ON}),
    ("bad-metadata", "libzmq closes", {"metadata past the end": CLOSES}),
    ("identity-too-long", "libzmq takes it", {"identity of 256 octets": GOES_ON}),
    ("message-before-ready", "libzmq closes", {"message before READY": CLOSES}),
    ("peer-error", "", {"ERROR in place of READY": CLOSES}),
    ("mechanism-mismatch", "", {"another mechanism": CLOSES, "unknown mechanism": CLOSES}),
    (
        "multipart-not-allowed",
        "libzmq drops such messages",
        {f"message of two frames to a {kind}": GOES_ON for kind in ("CLIENT", "SERVER", "GATHER", "CHANNEL", "PEER")},
    ),
]


def reactions(library: str, wanted: dict[str, Reaction]) -> dict[str, Reaction]:
    """All at once, since each waits most of the time."""

    def react(name: str) -> Reaction:
        least = len(wanted[name].heard) + wanted[name].works
        return reaction(library, VIOLATIONS[name], least=least)

    with ThreadPoolExecutor(len(wanted)) as pool:
        done = list(pool.map(react, wanted))
    return {name: one._replace(heard=list(map(_named, one.heard))) for name, one in zip(wanted, done, strict=True)}


def _named(message: list[bytes]) -> list[bytes]:
    """A message with a word in place of a routing id that libzmq made."""
    return [ID, *message[1:]] if len(message[0]) == 5 and message[0][0] == 0 else message


def expected(of_drafts: bool) -> dict[str, Reaction]:
    return {
        name: one
        for code, _, every in SAID
        for name, one in every.items()
        if of_drafts == (code == "multipart-not-allowed")
    }


def test_libzmq_does_what_the_advice_says() -> None:
    wanted = expected(of_drafts=False)
    assert reactions(bundled(), wanted) == wanted


@pytest.mark.skipif(
    not draft_sockets.WITH_DRAFTS.exists(),
    reason="no libzmq with drafts: tests/support/libzmq/build .ci/libzmq makes one",
)
def test_sockets_of_drafts_do_what_the_advice_says() -> None:
    wanted = expected(of_drafts=True)
    assert reactions(str(draft_sockets.WITH_DRAFTS), wanted) == wanted


def test_the_advice_says_it() -> None:
    assert [(code, words) for code, words, _ in SAID if words not in PROBLEMS[code].advice] == []


def test_every_violation_is_tried() -> None:
    assert {name for _, _, every in SAID for name in every} == VIOLATIONS.keys()
