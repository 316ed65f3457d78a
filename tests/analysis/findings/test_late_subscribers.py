"""Subscribers that missed the first messages of a publisher."""

from tests.analysis.findings.diagnoses import diagnose
from tests.support.paths import FIXTURES


def test_it_says_how_many_messages_others_got() -> None:
    (found,) = diagnose(FIXTURES / "rec_late_subscriber.pcap")
    assert (found.code, found.severity, found.count) == ("subscribed-late", "note", 1)
    assert found.endpoints == ["127.0.0.1:5580"]
    assert "after the publisher had sent 3 messages to another subscriber" in found.known
    assert diagnose(FIXTURES / "rec_late_subscriber_ok.pcap") == []
