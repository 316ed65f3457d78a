"""Which hosts may pass messages on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissectors.events import Process
from tests.analysis.ways.scenes import Scene
from tests.support.footprint import reachable
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
        assert host.passes == any(
            one.kind in takes
            and two.kind in sends
            and one.address not in (two.address, two.other)
            and one.other != two.address
            for one in ends[:count]
            for two in ends[:count]
        )


PUSHER, SINK, RELAY, NEXT = "127.0.0.1:40001", "127.0.0.1:5555", "127.0.0.1:40002", "127.0.0.1:5556"
OWNERS = {PUSHER: 1, SINK: 2, RELAY: 3, NEXT: 4}


def ways_followed(owners: dict[str, int], *, known_after: int = 1) -> int:
    """How many ways of two pipelines on one machine are kept; the processes are known after so many looks."""
    scene, diagnosis, looks = Scene(), Diagnosis(), 0

    def process_of(_flow: int, address: str) -> Process | None:
        return Process(owners[address], "python") if looks > known_after and address in owners else None

    diagnosis.know_processes(process_of)
    scene.connect(1, PUSHER, SINK, types=("PUSH", "PULL"))
    scene.connect(2, RELAY, NEXT, types=("PUSH", "PULL"))
    for number in range(20):
        scene.say(1 + number % 2, b"%d" % number)
    for looks, event in enumerate(scene.events):  # noqa: B007
        diagnosis.take([event])
    return sum(isinstance(one, OpenWay) for one in reachable(diagnosis))


def test_live_programs_of_one_machine_that_pass_nothing_on_are_not_followed() -> None:
    assert ways_followed(OWNERS) == 0
    assert 0 < ways_followed(OWNERS, known_after=12) < 10  # until then they may be of one program


@pytest.mark.parametrize("owners", [{**OWNERS, RELAY: OWNERS[SINK]}, {}, {PUSHER: 1, RELAY: 3}])
def test_live_a_process_that_takes_and_sends_is_followed_as_is_one_that_nobody_knows(owners: dict[str, int]) -> None:
    assert ways_followed(owners) == 20
