"""Which hosts may pass messages on."""

from hypothesis import given
from hypothesis import strategies as st

from zmtpsniff.analysis.findings.relay_hosts import RelayHost, SocketEnd


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
