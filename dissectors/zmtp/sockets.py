"""Socket types: their numbers in ZMTP 2.0 and who may talk to whom."""

# 15/ZMTP, "The Socket Type"; libzmq 3 sends 9 and 10 for its own XPUB and XSUB.
NAMES_V2 = ("PAIR", "PUB", "SUB", "REQ", "REP", "DEALER", "ROUTER", "PULL", "PUSH", "XPUB", "XSUB")

PUBLISHERS = frozenset({"PUB", "XPUB"})
SUBSCRIBERS = frozenset({"SUB", "XSUB"})
WITH_TOPICS = PUBLISHERS | {"RADIO"}  # their messages have a topic or a group
RECEIVERS = SUBSCRIBERS | {"REP", "PULL", "DISH", "GATHER"}  # they send nothing, or nothing before their peer has
REQUEST_REPLY = frozenset({"REQ", "REP", "DEALER", "ROUTER"})

# The peer that a socket of each stable type most often has.
USUAL_PEER = {
    "REQ": "REP", "REP": "REQ", "DEALER": "ROUTER", "ROUTER": "DEALER", "PUB": "SUB", "SUB": "PUB", "XPUB": "SUB",
    "XSUB": "PUB", "PUSH": "PULL", "PULL": "PUSH", "PAIR": "PAIR",
}  # fmt: skip

# 37/ZMTP: who sends the commands that only some sockets have
SENDERS = {
    "SUBSCRIBE": SUBSCRIBERS,
    "CANCEL": SUBSCRIBERS,
    "JOIN": frozenset({"DISH"}),
    "LEAVE": frozenset({"DISH"}),
}

# 28/REQREP, 29/PUBSUB, 30/PIPELINE, 31/EXPAIR, 41/CLISRV, 48/RADISH, 49/SCATTERGATHER, 51/P2P, 52/CHANNEL
PEERS: dict[str, frozenset[str]] = {
    "PAIR": frozenset({"PAIR"}),
    "PUB": frozenset({"SUB", "XSUB"}),
    "XPUB": frozenset({"SUB", "XSUB"}),
    "SUB": frozenset({"PUB", "XPUB"}),
    "XSUB": frozenset({"PUB", "XPUB"}),
    "REQ": frozenset({"REP", "ROUTER"}),
    "REP": frozenset({"REQ", "DEALER"}),
    "DEALER": frozenset({"REP", "DEALER", "ROUTER"}),
    "ROUTER": frozenset({"REQ", "DEALER", "ROUTER"}),
    "PUSH": frozenset({"PULL"}),
    "PULL": frozenset({"PUSH"}),
    "CLIENT": frozenset({"SERVER"}),
    "SERVER": frozenset({"CLIENT"}),
    "RADIO": frozenset({"DISH"}),
    "DISH": frozenset({"RADIO"}),
    "SCATTER": frozenset({"GATHER"}),
    "GATHER": frozenset({"SCATTER"}),
    "PEER": frozenset({"PEER"}),
    "CHANNEL": frozenset({"CHANNEL"}),
}
STABLE = tuple(USUAL_PEER)  # types that every libzmq has
SENDING = tuple(kind for kind in STABLE if kind != "PULL")
DRAFTS = PEERS.keys() - USUAL_PEER.keys()
SINGLE_FRAME = DRAFTS - {"RADIO", "DISH"}  # their messages have one frame


def name_v2(number: int) -> str | None:
    """The name of a ZMTP 2.0 socket type number, None if there is no such type."""
    return NAMES_V2[number] if number < len(NAMES_V2) else None


def may_talk(one: str, other: str) -> bool:
    """Whether sockets of these two types may be connected; True where one of them is not known."""
    return one not in PEERS or other not in PEERS or other in PEERS[one]


def may_send(socket_type: str | None, command: str) -> bool:
    """Whether a socket of this type may send this command; True where the type is not known."""
    return command not in SENDERS or socket_type not in PEERS or socket_type in SENDERS[command]
