"""Replies that are pushed: a service takes requests by a DEALER or ROUTER, and sends the replies by a PUSH.

So do the engines of vLLM. No envelope comes back, but an id of the request does, which no other request has. One
message may have the replies to several requests.

An id has one *owner*, the first request with it at a host, as long as the way of that is open. A second message of the
same client with the id tells the service more about the request, perhaps to drop it. So that one counts as answered:
whether a reply still comes, nobody can say.

Not each message with an id expects a reply. It does if most others of its *form* got replies: those with as many
frames, and with the same first frame if there are several.
"""

import re
from collections import OrderedDict
from collections.abc import Iterator

from dissectors.events import at_hand
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.ways.hops import Hop, RequestCount

_IDS = 65_536  # that are remembered
_FORMS = 64  # of one stream
_LEAST = 8  # characters of an id; shorter ones, and those without letters, may be numbers or times
_RANDOM = 20  # two programs do not make up the same id of so many characters by chance
_LETTERS = re.compile(rb"[A-Za-z].*[A-Za-z]")


class PushedReplies:
    """Finds the requests to which a PUSH sends replies, by the ids in both."""

    def __init__(self) -> None:
        """Start without any."""
        self._pushers: Ledger[str, bool] = Ledger(bool)  # hosts with a PUSH: whether they have taken requests with ids
        # By host and id: the owner; None if several messages had the id, or the way of the owner is over.
        self._owners: OrderedDict[tuple[str, bytes], Hop | None] = OrderedDict()

    def add_pusher(self, host: str) -> None:
        """A host has a PUSH."""
        self._pushers.at(host)

    def receive(self, hop: Hop) -> None:
        """A host has taken a message that may be a request."""
        if hop.stream.dst_host not in self._pushers:
            return
        owners = self._owners
        is_named = False
        for key in _keys(hop, hop.stream.dst_host):
            is_new = key not in owners
            owner = owners.pop(key, None)  # it goes to the end, so an id that comes often is forgotten last
            if owner is not None and owner.flow == hop.flow:
                owner.answered = True
            owners[key] = hop if is_new else None
            is_named = is_named or is_new
        self._pushers[hop.stream.dst_host] |= is_named
        if hop.stream.pushed_forms is not None:
            count = hop.stream.pushed_forms.get(_form(hop)) if is_named else None
            hop.expects_reply = count is not None and 2 * count.answered >= count.asked
            if count is not None:
                count.asked += 1
        while len(owners) > _IDS:
            owners.popitem(last=False)

    def forget(self, hop: Hop) -> None:
        """The way of a request is over: it owns no id any more."""
        for key in _keys(hop, hop.stream.dst_host):
            if self._owners.get(key) is hop:
                self._owners[key] = None

    def answered_by(self, hop: Hop) -> dict[Hop, bool]:
        """The requests to which a pushed message has replies, and of each whether that is certain."""
        stream = hop.stream
        found: dict[Hop, bool] = {}
        has_requests = self._pushers.at(stream.src_host)  # live, that may be a process now
        if not has_requests or (stream.is_local and not (stream.knows_sender and stream.knows_receiver)):
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
    """The form of a message: how many frames it has, and its first frame if others follow."""
    frames = hop.frames
    return len(frames), at_hand(frames[0]) if len(frames) > 1 else b""


def _keys(hop: Hop, host: str) -> Iterator[tuple[str, bytes]]:
    """The ids in a message, each with the host that sends or takes the message."""
    return ((host, one) for one in hop.tokens if len(one) >= _LEAST and _LETTERS.search(one))
