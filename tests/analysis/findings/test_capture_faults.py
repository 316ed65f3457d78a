"""Problems that hide something, or that are about the capture or zmtpsniff itself, accuse nobody."""

import functools

import pytest
from msgspec import structs

import zmtpsniff
from dissectors.events import AnyEvent, Connection, Message, Peer, Problem, Sides, Subscription
from dissectors.problems import PROBLEMS
from tests.analysis.findings.diagnoses import diagnose_events
from tests.support.paths import FIXTURES
from zmtpsniff.check.builtin import SETS
from zmtpsniff.check.services import Services

_COMPLETE = next(rule for rule in SETS["complete"] if rule.name == "nothing missing from the capture")


@functools.cache
def _shop() -> tuple[list[AnyEvent], Subscription]:
    """A shop, and the subscription of one who gets nothing, for it has a typo."""
    events = list(zmtpsniff.open(FIXTURES / "shop" / "none.pcap.gz"))
    place, wish = next(
        (place, one) for place, one in enumerate(events) if isinstance(one, Subscription) and one.topic == b"prices.EUR"
    )
    typo = structs.replace(wish, topic=b"prices.GPB")
    rest = [one for one in events[place + 1 :] if not (isinstance(one, Message) and one.flow == wish.flow)]
    return [*events[:place], typo, *rest], typo


def _found(problem: Problem) -> dict[str, str]:
    """The findings of the shop with a problem behind that subscription, each code with its severity."""
    events, typo = _shop()
    place = events.index(typo) + 1
    return {one.code: one.severity for one in diagnose_events([*events[:place], problem, *events[place:]])}


# Of each kind of problem one, beside those that a finding knows by name.
_OF_EACH_KIND = {
    "capture-disorder",
    "clocks-differ",
    *{(kind.blinds, kind.about, kind.is_outside): code for code, kind in PROBLEMS.items()}.values(),
}


@pytest.mark.parametrize(
    "code", [code if code in _OF_EACH_KIND else pytest.param(code, marks=pytest.mark.slow) for code in PROBLEMS]
)
def test_each_problem_accuses_those_whom_it_is_about(code: str) -> None:
    kind = PROBLEMS[code]
    typo = _shop()[1]
    place = {"time_ns": typo.time_ns, "packet": typo.packet, "flow": typo.flow, "src": typo.src, "dst": typo.dst}
    problem = Problem("error", code, "what happened", **place)  # type: ignore[arg-type]  # of several types
    found = _found(problem)
    assert ("subscription-unmatched" in found) == (kind.blinds is None)
    if not kind.is_outside:
        assert {code for code, severity in found.items() if severity != "note"} <= {"subscription-unmatched"}
    is_loss = kind.blinds == "rest" and not kind.is_outside
    assert ("capture-lossy" in found) == (is_loss or code in ("capture-disorder", "clocks-differ"))

    services = Services()
    services.take([problem])
    assert services.is_lossy == (kind.blinds == "rest")
    assert any(one(problem) for one in _COMPLETE.filters) == (is_loss and kind.about == "capture")


def test_a_code_of_a_plug_in_is_of_a_peer() -> None:
    assert _found(Problem("error", "of-a-plug-in", "what happened", 1, 1, 1, "a:1", "b:2")) == {
        **_found(Problem("note", "of-a-plug-in", "what happened", 1, 1, 1, "a:1", "b:2")),
        "protocol-violated": "error",
    }


def _lossy(*problems: tuple[str, int]) -> list[str]:
    """The summaries of what the capture lacks, with problems of these codes and connections."""
    told = [Problem("warning", code, "what happened", 1, 1, flow, "a:1", "b:2") for code, flow in problems]
    return [one.summary for one in diagnose_events(told) if one.code == "capture-lossy"]


def test_too_few_octets_are_no_missing_octets() -> None:
    (few,) = _lossy(("frames-lost", 1))
    assert few.startswith("too few octets to be sure where frames begin: 1 side")
    (behind,) = _lossy(("capture-gap", 1), ("frames-lost", 1))
    assert behind.startswith("the capture does not have everything")
    assert len(_lossy(("capture-gap", 1), ("frames-lost", 2))) == 2


@pytest.mark.parametrize(("lookalike", "is_advised"), [("ROUTER", True), (None, False)])
def test_types_that_are_known_need_no_option(lookalike: str | None, is_advised: bool) -> None:
    client, server = Peer("a:1", socket_type="REQ", inferred=True), Peer("b:2", socket_type="REP", inferred=True)
    late = Connection(
        1, "tcp", client, structs.replace(server, lookalike=lookalike), Sides(9, 9), Sides(99, 99), 1, 2, "open"
    )
    findings = diagnose_events([structs.replace(late, handshake="not-seen")])
    (finding,) = [one for one in findings if one.code == "capture-late"]
    assert ("-d tcp.port" in finding.advice) == is_advised


@pytest.mark.parametrize("dropped", [False, True])
def test_a_handshake_may_be_among_the_dropped_packets(dropped: bool) -> None:
    """A connection whose handshake the capture lacks may be older than the capture, or its packets were dropped."""
    late = Connection(1, "tcp", Peer("a:1"), Peer("b:2"), Sides(9, 9), Sides(99, 99), 1, 2, "open")
    loss = Problem("error", "packets-dropped", "the kernel dropped 7 packets", time_ns=1, packet=1)
    findings = diagnose_events([*[loss] * dropped, structs.replace(late, handshake="not-seen")])
    (finding,) = [one for one in findings if one.code == "capture-late"]
    assert ("among the packets that were dropped" in finding.summary) == dropped
