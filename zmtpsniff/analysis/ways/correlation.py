"""Joins messages by a number or id that both have, and that no other message has that the same host holds.

A *token* is such a number or id. It goes through these states, for each host:

- *owned*: one message alone had it. A message of the host with this token comes of that one.
- *shared*: several messages had it, as many have a date. It names none of them.
- *gone*: the way of its owner is over, and the owner was not passed on. A message that has more such tokens than those
  of any other owner comes of that message, and joins nothing.

So tokens of messages that are gone are remembered for a while, too. Messages are searched for tokens when the host
sends something for the first time after they came: most hosts never ask.
"""

from collections import Counter, OrderedDict, deque

import msgspec

from dissectors.events import Payload
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.ways.hops import Hop

_HELD = 4096  # messages of one host that wait to be searched
_TOKENS = 65_536  # tokens of all hosts that are remembered
# Of Jupyter's shell channel (Messaging in Jupyter, 5.4), and of the engines of IPython Parallel.
_PROMISED = frozenset(
    f"{what}_request"
    for what in ("apply", "comm_info", "complete", "execute", "history", "inspect", "is_complete", "kernel_info")
)
_GONE = object()  # the owner of a token whose way is over, and which was not passed on


def ids_of(payload: Payload) -> frozenset[bytes] | None:
    """The ids of a message and of its parent, if its protocol names these; None if any word may be an id.

    Ids of a session or a user are in all messages of a client, and join none of them (Jupyter's messaging, 5.4).
    """
    if payload.protocol != "jupyter":
        return None
    headers = [payload.fields.get(name) for name in ("header", "parent_header")]
    ids = [header.get("msg_id") for header in headers if isinstance(header, dict)]
    return frozenset(number.encode() for number in ids if isinstance(number, str))


def asks_by_name(payload: Payload) -> bool:
    """Whether a message is a request to which its protocol promises a reply, wherever the message stands."""
    if payload.protocol == "mdp":
        return payload.fields.get("role") == "client" and payload.fields.get("command") == "REQUEST"
    return payload.protocol == "jupyter" and payload.fields.get("msg_type") in _PROMISED


class _Fresh(msgspec.Struct, eq=False):
    """The messages of a host that have not been searched for tokens."""

    hops: deque[Hop] = msgspec.field(default_factory=lambda: deque(maxlen=_HELD))
    flow: int | None = None  # the connection over which all messages of the host came so far; 0 if there were several


class Correlation:
    """Messages that hosts hold, by the tokens in them."""

    def __init__(self) -> None:
        """Start without any."""
        self._fresh: Ledger[str, _Fresh] = Ledger(_Fresh)  # by host
        # By host and token: the owner, or _GONE; None if the token is shared, or its owner was passed on.
        self._owners: OrderedDict[tuple[str, bytes], Hop | object | None] = OrderedDict()

    def add(self, hop: Hop) -> None:
        """A host holds one more message."""
        fresh = self._fresh[hop.stream.dst_host]
        hops = fresh.hops
        while hops and not hops[0].frames:
            hops.popleft()  # its way is over, and its frames are dropped
        hops.append(hop)
        if fresh.flow != hop.flow:
            fresh.flow = hop.flow if fresh.flow is None else 0

    def forget(self, hop: Hop) -> None:
        """The way of a message is over: its tokens are gone, or shared if it was passed on."""
        for token in hop.tokens_ or ():
            key = (hop.stream.dst_host, token)
            if self._owners.get(key) is hop:
                self._owners[key] = None if hop.is_passed_on else _GONE

    def find(self, hop: Hop) -> Hop | None:
        """The message at the sender's host that owns most tokens of this one; None if there is none, or several."""
        host = hop.stream.src_host
        fresh = self._fresh.get(host)
        if fresh is None or fresh.flow == hop.flow:  # on loopback both ends of a connection are at one host
            return None
        self._index(host, fresh.hops)
        votes: Counter[int] = Counter()
        hops: dict[int, Hop] = {}
        for token in hop.tokens:
            owner = self._owners.get((host, token))
            if owner is _GONE:
                votes[id(owner)] += 1
            elif isinstance(owner, Hop) and not owner.is_passed_on and hop.may_come_of(owner):
                votes[id(owner)] += 1
                hops[id(owner)] = owner
        best = votes.most_common(2)
        if not best or (len(best) > 1 and best[0][1] == best[1][1]):
            return None
        return hops.get(best[0][0])

    def _index(self, host: str, fresh: deque[Hop]) -> None:
        """Search new messages of a host for tokens."""
        owners = self._owners
        while fresh:
            hop = fresh.popleft()
            for token in hop.tokens:
                key = (host, token)
                owner = owners.get(key)
                if not (isinstance(owner, Hop) and owner.way is hop.way):  # on loopback, both ends are of one host
                    owners[key] = None if key in owners else hop
        while len(owners) > _TOKENS:
            owners.popitem(last=False)
