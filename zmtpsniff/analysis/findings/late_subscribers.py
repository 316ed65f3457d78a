"""Subscribers that missed the first messages of a publisher, since their subscription came later: subscribed-late."""

from collections.abc import Iterable

import msgspec

from dissectors.events import Problem
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import Inquiry
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.words.counts import plural


class _Late(msgspec.Struct, eq=False):
    """First subscriptions to one publisher that came after it had sent something."""

    seen: Occurrences = msgspec.field(default_factory=Occurrences)
    detail: str = ""


class LateSubscribers(Inquiry):
    """First subscriptions, by publisher."""

    def __init__(self) -> None:
        """Start without any."""
        self._late: Ledger[str, _Late] = Ledger(_Late)

    def problem(self, event: Problem) -> None:
        """Take what patterns found out: messages went to others before."""
        if event.code == "slow-joiner" and event.dst is not None:
            late = self._late.at(event.dst)
            late.detail = late.detail or event.detail
            late.seen.add(event.time_ns, event.packet, event.flow)

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Each publisher that did not wait for its subscribers."""
        for publisher, late in self._late.items():
            yield Claim(
                "subscribed-late",
                f"{plural(late.seen.count, 'subscriber')} of {publisher} missed its first messages, which others got",
                late.detail,
                late.seen,
                [publisher],
                subject=publisher,
            )
