"""Replies that are pushed: a service takes requests by its DEALER or ROUTER, and its PUSH gives replies to who asked.

So do the engines of vLLM. Nothing of an envelope comes back, but an id of the request does, which no other request has.
One message may have the replies to several requests. A service that is told more about a request may be told to drop
it, so nobody knows whether that one gets a reply. Nor is each message with an id a request: it is one if most others of
its form got replies, that is with as many frames, and the same first one in front of others.
"""

import re
from collections import OrderedDict
from collections.abc import Iterator

from dissectors.address import is_loopback
from dissectors.events import at_hand
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.ways.hops import Hop, RequestCount

_IDS = 65_536
_FORMS = 64
_LEAST = 8  # characters of an id; shorter ones, and those without letters, may be numbers or times
_RANDOM = 20  # an id of so many characters is not another one's by chance
_LETTERS = re.compile(rb"[A-Za-z].*[A-Za-z]")


class PushedReplies:
    """Requests at hosts that push something, by the ids in them."""

    def __init__(self) -> None:
        """Start without any."""
        self._pushers: Ledger[str, bool] = Ledger(bool)  # hosts, and whether they have taken requests with ids
        # By host and id: the request that alone had it; None if several messages had it, or its way is over.
        self._owners: OrderedDict[tuple[str, bytes], Hop | None] = OrderedDict()

    def add_pusher(self, host: str) -> None:
        """A host has a PUSH."""
        self._pushers.at(host)

    def receive(self, hop: Hop) -> None:
        """A host has taken a request."""
        if hop.stream.dst_host not in self._pushers:
            return
        owners = self._owners
        is_named = False
        for key in _keys(hop, hop.stream.dst_host):
            is_new = key not in owners
            owner = owners.pop(key, None)  # so that what comes often is forgotten last
            if owner is not None and owner.flow == hop.flow:
                owner.answered = True
            owners[key] = hop if is_new else None
            is_named = is_named or is_new
        self._pushers[hop.stream.dst_host] |= is_named
        if hop.stream.pushed_forms is not None:
            turns = hop.stream.pushed_forms.get(_form(hop)) if is_named else None
            hop.expects_reply = turns is not None and 2 * turns.answered >= turns.asked
            if turns is not None:
                turns.asked += 1
        while len(owners) > _IDS:
            owners.popitem(last=False)

    def forget(self, hop: Hop) -> None:
        """The way of a request is over."""
        for key in _keys(hop, hop.stream.dst_host):
            if self._owners.get(key) is hop:
                self._owners[key] = None

    def answered_by(self, hop: Hop) -> dict[Hop, bool]:
        """The requests to which a pushed message has replies, and whether that is certain of each."""
        stream = hop.stream
        found: dict[Hop, bool] = {}
        has_requests = self._pushers.at(stream.src_host)  # live, that may be a process now
        if not has_requests or (is_loopback(hop.src) and not (stream.knows_sender and stream.knows_receiver)):
            return found  # on loopback all programs have one address
        for key in _keys(hop, stream.src_host):
            asked = self._owners.get(key)
            if asked is not None and not asked.answered and asked.stream.src_host == stream.dst_host:
                found[asked] = found.get(asked, False) or len(key[1]) >= _RANDOM
        for asked in found:
            forms = asked.stream.pushed_forms = asked.stream.pushed_forms or {}
            form = _form(asked)
            if form in forms or len(forms) < _FORMS:
                forms.setdefault(form, RequestCount()).answered += 1
        return dict(sorted(found.items(), key=lambda one: (one[0].packet, one[0].part)))


def _form(hop: Hop) -> tuple[int, bytes]:
    """The frames of a message: how many there are, and the first one if others follow."""
    frames = hop.frames
    return len(frames), at_hand(frames[0]) if len(frames) > 1 else b""


def _keys(hop: Hop, host: str) -> Iterator[tuple[str, bytes]]:
    """The ids in a message, of a host that sends or takes it."""
    return ((host, one) for one in hop.tokens if len(one) >= _LEAST and _LETTERS.search(one))
