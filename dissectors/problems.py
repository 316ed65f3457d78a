"""The problems that are reported: their codes, how severe they are and what they mean.

A code never changes its meaning, because scripts and policies compare it. ``docs/problems.md`` is made from this
table.
"""

from typing import NamedTuple

from dissectors.events import Severity


class Kind(NamedTuple):
    """What one problem code stands for."""

    severity: Severity
    meaning: str  # what was seen, for the documentation
    advice: str  # what it usually means and what to do


def _error(meaning: str, advice: str) -> Kind:
    return Kind("error", meaning, advice)


def _warning(meaning: str, advice: str) -> Kind:
    return Kind("warning", meaning, advice)


def _note(meaning: str, advice: str) -> Kind:
    return Kind("note", meaning, advice)


PROBLEMS: dict[str, Kind] = {
    # --- the capture
    "capture-truncated": _warning(
        "The capture file ends in the middle of a record.",
        "The capturing program was killed or the disk was full. Everything before it was read.",
    ),
    "capture-corrupt": _error(
        "The capture file holds a block or record that cannot be right.",
        "Everything before it was read; copy the file again, or repair it with editcap.",
    ),
    "capture-unreadable": _error(
        "A file, one of many, cannot be read or is no capture (`zmtpsniff spark`).",
        "The others were read; `detail` says what is wrong with this one. Ingest it again once that is repaired.",
    ),
    "record-over-snaplen": _note(
        "A record is longer than the snaplen that the capture file announces.",
        "A harmless fault of the capturing program; the record was read whole.",
    ),
    "malformed-headers": _note(
        "Packets with a header that cannot be right, up to that of TCP, were skipped.",
        "Broken senders, or a capture of something else.",
    ),
    "fragments-dropped": _note(
        "Fragmented IP datagrams were given up: fragments are missing, contradict each other or are too many.",
        "Octets of the streams may be missing; `capture-gap` says where.",
    ),
    "segments-left-out": _warning(
        "Packets that hold several TCP segments beside each other were read by tshark; only the last of each was kept.",
        "Aggregated 802.11 frames have such: capture behind the access point, or without aggregation.",
    ),
    "link-type-unknown": _note(
        "Packets of a link type that zmtpsniff cannot take apart were skipped.",
        "Try `--engine tshark`, or capture on another interface (`tcpdump -i any` works everywhere).",
    ),
    "packets-not-read": _note(
        "Packets were skipped that may hold TCP, encrypted or inside headers that zmtpsniff cannot take apart: "
        "`detail` names the EtherType, the protocol or the port. Told of the most frequent kinds.",
        "If ZeroMQ's connections are missing, try `--engine tshark`, or capture where the tunnel ends.",
    ),
    "no-flows": _note(
        "Not one TCP connection is in the capture, nor a sender of datagrams that is looked at; `detail` says what its "
        "packets are.",
        "Look at the interface and the capture filter. RADIO and DISH over UDP need their port: `-d udp.port==N,zmtp`.",
    ),
    "capture-disorder": _note(
        "Many packets stand in the capture before octets that they acknowledge: its order is not that of the events.",
        "Nothing is lost: the octets are put in order. Times are those of the capture. One direction came late, or the "
        "clocks of two hosts differ whose files are read together.",
    ),
    "capture-gap": _error(
        "Octets of a TCP stream are missing from the capture, though the receiver got them.",
        "The capturing program dropped packets: give it a larger buffer (`tcpdump -B 65536`) or a capture filter.",
    ),
    "tls-gap": _error(
        "Octets inside TLS are missing: records are not in the capture, or were not decrypted.",
        "How many they are nobody knows, and tshark decrypts nothing of this side behind a record that is missing: "
        "give the capturing program a larger buffer, and the keys of the whole connection.",
    ),
    "tls-not-decrypted": _warning(
        "None of the keys given decrypts some of the TLS connections, or their handshake is not in the capture.",
        "Give the key log of the programs that talk, written while they did, and capture before they connect.",
    ),
    "tls-no-keys": _note(
        "There are TLS connections, and tshark was given no keys (`--tls-keys FILE`).",
        "If they may hold ZMTP, let one of the two programs write a key log (`SSLKEYLOGFILE`).",
    ),
    "packets-dropped": _error(
        "Packets were lost before they could be read: by the kernel, or while they waited for a slow reader.",
        "Use a capture filter (`-f`), a larger buffer (`-B`), or a quicker reader than a terminal.",
    ),
    "interface-down": _warning(
        "An interface that is captured on went down.",
        "The capture goes on as soon as it is up again; what passed meanwhile, nobody could see.",
    ),
    "interface-up": _note("An interface that went down is up again.", "The capture on it has gone on by itself."),
    "capture-ended": _error(
        "A live capture ended although nobody had asked it to: its interface went away, or what captures failed.",
        "Everything before it was read, and the exit status is 2 unless another interface is left.",
    ),
    "packets-cut": _error(
        "Packets were captured only in part (snaplen), so octets of the stream are missing.",
        "Capture whole packets: `tcpdump -s 0`. Reported once for each side of a connection, and once for the capture "
        "if packets end before their TCP header does.",
    ),
    "saving-ended": _error(
        "The packets could not be saved on (`-w`): the disk is full, or the file cannot be written.",
        "What was saved before can be read; the dissection went on. Make room, or bound the files with `-b`.",
    ),
    "overlap-differs": _warning(
        "A retransmitted segment holds other octets than the first copy.",
        "The first copy was used. Somebody may be forging packets, or a middlebox rewrites them.",
    ),
    "no-greeting": _note(
        "The capture starts in the middle of the connection; frames were found all the same.",
        "Version, mechanism and socket types are not known. Start the capture before the programs connect.",
    ),
    "one-direction": _note(
        "No packet of one side is in the capture, though the other side answers it.",
        "Asymmetric routing or a capture filter; versions are taken from what one side says.",
    ),
    "frames-found-again": _note(
        "After missing octets the next frame was found.",
        "The octets skipped may hold messages that are not shown.",
    ),
    "frames-lost": _warning(
        "After missing octets no frame could be found again with certainty.",
        "The rest of this side is not shown.",
    ),
    "perhaps-zmtp": _note(
        "Connections looked like ZMTP, and nothing in them proved it, so nothing of them is shown.",
        "Most likely another protocol whose lengths look the same: of one octet as in ZMTP 1.0, or of two in the "
        "middle of a connection. If it is ZMTP, name its port: `-d tcp.port==5555,zmtp`.",
    ),
    # --- the greeting
    "not-zmtp": _error(
        "One side speaks ZMTP, the other sends something else.",
        "A program that is no ZeroMQ peer (a browser, a health check, a TLS client) uses this port.",
    ),
    "bad-signature": _error(
        "The signature does not begin with FF and end with 7F (23/ZMTP, Greeting).",
        "The peer is broken or does not speak ZMTP.",
    ),
    "greeting-truncated": _note(
        "The connection ended inside a greeting.",
        "The peer gave up, does not speak ZMTP, or was refused because of its mechanism.",
    ),
    "bad-mechanism": _error(
        "The mechanism's name has characters that are not allowed, or is not padded with zeros (23/ZMTP).",
        "The peer is broken.",
    ),
    "unknown-mechanism": _warning(
        "The mechanism is none of NULL, PLAIN, CURVE and GSSAPI.",
        "Its handshake and its messages cannot be followed.",
    ),
    "mechanism-mismatch": _error(
        "The two sides announce different security mechanisms, so they cannot talk.",
        "Configure the same mechanism (NULL, PLAIN, CURVE) on both sockets.",
    ),
    "both-as-server": _error(
        "Both sides say that they are the server of the security mechanism.",
        "Set ZMQ_PLAIN_SERVER or ZMQ_CURVE_SERVER on one side only.",
    ),
    "both-hello": _error(
        "Both sides send HELLO, so both take themselves for the client of the security mechanism.",
        "Set ZMQ_PLAIN_SERVER or ZMQ_CURVE_SERVER on one side.",
    ),
    # --- the handshake
    "handshake-incomplete": _warning(
        "The connection or the capture ended before the handshake was complete, and the wire does not say why.",
        "Often a silent refusal: wrong key or password, other mechanism, socket types that do not fit.",
    ),
    "incompatible-socket-types": _error(
        "The two socket types may not talk to each other.",
        "For example PUSH connects to PUB: one of the two programs uses the wrong port or type.",
    ),
    "unknown-socket-type": _error("A socket type that no specification knows.", "The peer is broken or newer."),
    "no-socket-type": _warning("READY or INITIATE without Socket-Type.", "The peer is not a complete implementation."),
    "bad-metadata": _error(
        "The metadata of READY or INITIATE runs past the end of its command.",
        "The peer is broken; libzmq closes such connections.",
    ),
    "empty-property-name": _error("A property without a name.", "The peer is broken."),
    "duplicate-property": _warning("A property that is sent twice in one command.", "Peers may use either value."),
    "identity-too-long": _error("An identity of more than 255 octets.", "Set a shorter routing id."),
    "plain-credentials": _note(
        "A user name and a password cross the network in clear (24/ZMTP-PLAIN).",
        "Use CURVE wherever others can listen.",
    ),
    "peer-error": _warning("A peer refuses the other with an ERROR command.", "Its reason says why."),
    "malformed-error": _note(
        "The ERROR command lacks the length of its name, as the PLAIN server of libzmq 4.3 sends it.",
        "A known fault of libzmq; the reason was read all the same.",
    ),
    "message-before-ready": _error(
        "A message before this side's handshake was done.", "The peer is broken; libzmq closes such connections."
    ),
    # --- WebSocket
    "upgrade-refused": _error(
        "The server does not upgrade an HTTP connection to the ZWS protocol that the client offers (45/ZWS).",
        "Another program listens there, the path of the endpoint is wrong, or the mechanisms differ.",
    ),
    "bad-websocket-frame": _error(
        "A WebSocket frame that is against RFC 6455 or 45/ZWS, or that uses an extension nobody agreed to.",
        "The peer is broken, or something between the two changes what they say.",
    ),
    "websocket-mask": _error(
        "A client's WebSocket frames are not masked, or a server's are (RFC 6455, section 5.1).",
        "The peer is broken; libzmq closes such connections. Reported once for each side.",
    ),
    # --- datagrams
    "bad-radio-datagram": _error(
        "A datagram on a port named for RADIO and DISH announces a longer group than it holds.",
        "Another program sends to this port; libzmq drops such datagrams.",
    ),
    "websocket-compression": _error(
        "Compressed WebSocket messages (permessage-deflate, RFC 7692) that cannot be read.",
        "What they refer back to is not in the capture or was too long, or they are damaged.",
    ),
    "multicast-lost": _error(
        "Data packets of a PGM sender are not in the capture, and nothing repaired them.",
        "The network or the capturing program dropped them. Messages go on where the next one begins.",
    ),
    "multicast-repaired": _note(
        "Data packets of a PGM sender came as repairs (RDATA) only.",
        "The network loses packets: a lower rate (ZMQ_RATE) or larger buffers help.",
    ),
    "multicast-parity": _note(
        "A PGM sender sends parity (RFC 3208, section 11), which could repair lost packets; it is not used.",
        "It is not libzmq, which never asks for it. Receivers may have had packets that are told as lost.",
    ),
    "bad-message-offset": _error(
        "A PGM packet says that a message begins after its end.", "The sender is broken, or it is not libzmq."
    ),
    # --- frames and commands
    "reserved-flags": _error("Reserved bits of a flags octet are set (23/ZMTP, Framing).", "libzmq ignores them."),
    "command-with-more": _error("MORE is set on a command (23/ZMTP, Framing).", "The peer is broken."),
    "long-flag-not-needed": _note(
        "A frame of fewer than 256 octets uses the long length.",
        "Allowed, only not minimal. Reported once for each side.",
    ),
    "frame-too-long": _error(
        "A frame announces more than 2^63-1 octets.", "The peer is broken; nothing after it can be read."
    ),
    "zero-length-frame": _error(
        "A ZMTP 1.0 frame of length zero; the length counts the flags octet (13/ZMTP).",
        "The peer is broken; nothing after it can be read.",
    ),
    "message-too-large": _warning(
        "A message has more frames than are kept.",
        "Its first frames are shown, marked incomplete; nothing else is lost.",
    ),
    "truncated-frame": _note(
        "The connection ended inside a frame.",
        "A peer was closed without waiting (ZMQ_LINGER), killed or reset in the middle of a message.",
    ),
    "truncated-message": _note(
        "The connection ended between the frames of a message.",
        "A peer was closed without waiting (ZMQ_LINGER) or killed in the middle of a message.",
    ),
    "implausible-length": _warning(
        "The connection or the capture ended inside a frame of which over 1 GiB is missing, and nearly nothing came.",
        "The peer is broken, or does not speak ZMTP after its greeting.",
    ),
    "capture-ends-inside": _note(
        "The capture ends inside a frame or a message.", "The rest is not in the capture; the connection went on."
    ),
    "malformed-command": _error(
        "A command whose fields do not fit into it.", "The peer is broken, or speaks something newer."
    ),
    "unknown-command": _warning("A command that no specification knows.", "The peer is newer, or broken."),
    "unexpected-command": _error(
        "A command that does not belong here: out of its place, of a socket that has none such, or a MESSAGE of CURVE "
        "whose nonce does not count up.",
        "The peer is broken, or somebody sends octets again that were sent before.",
    ),
    "command-inside-message": _error(
        "A command between the frames of one message (23/ZMTP: message = *message-more message-last).",
        "The peer is broken.",
    ),
    "heartbeat-inside-message": _note(
        "PING or PONG between the frames of one message, which the grammar of 37/ZMTP does not have.",
        "libzmq does so (ZMQ_HEARTBEAT_IVL) while a long message goes out, and takes it. Reported once for each side.",
    ),
    "command-of-later-version": _note(
        "A command that only ZMTP 3.1 specifies on a connection of version 3.0.",
        "libzmq 4.2 does so; a peer that knows only 3.0 will not understand it.",
    ),
    "not-encrypted": _error(
        "A frame in clear on a connection whose mechanism encrypts all of them.", "The peer is broken."
    ),
    # --- what messages mean to each other
    "request-unanswered": _warning(
        "A request got no reply: within `--timeout`, or before its connection was closed. A note if the capture just "
        "ends before it, or if its sender gave it up and asked again.",
        "The service is slow, stuck, or dropped the request.",
    ),
    "request-before-reply": _warning(
        "A REQ socket sends a second request before the reply to its first came (28/REQREP).",
        "Its replies cannot be told apart. Whoever sets ZMQ_REQ_RELAXED should set ZMQ_REQ_CORRELATE, too.",
    ),
    "reply-without-request": _warning(
        "A reply came to which there was no request.",
        "A REQ socket drops it. The replier sent two replies to one request, or an envelope went wrong.",
    ),
    "no-delimiter": _warning(
        "A message to or from a REQ or REP socket has no empty frame after its envelope, or nothing behind that "
        "(28/REQREP).",
        "REQ and REP drop it silently: a DEALER or ROUTER that talks to them must send the empty frame itself.",
    ),
    "unmatched-message": _warning(
        "A message matches no subscription of the peer that gets it; a note if that peer never subscribed, or is an "
        "XSUB, which hands on all that comes. Reported for ten different messages of a connection.",
        "An XPUB socket that sets subscriptions by itself (ZMQ_XPUB_MANUAL), sockets with ZMQ_INVERT_MATCHING, whose "
        "subscribers want just these messages, or a publisher that does not filter.",
    ),
    "subscribed-twice": _note(
        "A topic is subscribed to that is subscribed to already.", "Harmless: some subscribers repeat themselves."
    ),
    "cancel-without-subscribe": _warning(
        "A subscription is cancelled that does not exist.", "The subscriber's idea of its subscriptions is wrong."
    ),
    "slow-joiner": _note(
        "The publisher had sent messages before this subscriber's first subscription came.",
        "The subscriber has missed them. If it must not, let it ask for the state first (the guide's chapter 5).",
    ),
    "multipart-not-allowed": _warning(
        "A message of several frames between sockets whose messages have one (41/CLISRV and others).",
        "The peer is broken.",
    ),
    "group-not-joined": _warning(
        "A RADIO socket sends to a group that its peer has not joined (48/RADISH).", "The DISH socket drops it."
    ),
    "ping-unanswered": _warning(
        "A PING got no PONG, and nothing else came, for five times as long as answers took before (a second if there "
        "were none); a note if the peer said other things since.",
        "The peer is stuck, or does not know heartbeats.",
    ),
    "pong-without-ping": _warning("A PONG answers no PING.", "The peer is broken."),
    "heartbeat-late": _warning(
        "A peer was silent for longer than the time to live that its last PING announced.",
        "Its other side may have given it up in between: it is overloaded, or its heartbeat interval too long.",
    ),
    "identity-in-use": _warning(
        "Two peers of a ROUTER have the same identity at the same time; a note if the first one goes within a second.",
        "libzmq listens to one of them: the first, or with ZMQ_ROUTER_HANDOVER the last. Give each a routing id of "
        "its own.",
    ),
    "pair-in-use": _warning(
        "A PAIR socket that has a peer gets a second one (31/EXPAIR).", "libzmq refuses it: PAIR is for two."
    ),
    "reconnect-storm": _warning(
        "Peers connect to each other again and again, and each connection ends within a second without a message: "
        "reported after 5, 50, 500, ... times. A note if their handshakes are complete.",
        "A handshake that fails, or something between them that cuts connections.",
    ),
    "connection-refused": _note(
        "A TCP connection was refused at an address where ZeroMQ answered before or afterwards.",
        "The service was not up (yet); libzmq tries again.",
    ),
    "older-peer": _note(
        "A service has peers of different versions of ZMTP.", "Some of them use an older libzmq and do less."
    ),
    "payload-dissector-failed": _note(
        "A dissector of payloads failed on a message; told once of each.",
        "That message is shown without its payload. If the dissector is a plug-in, correct it; else report it.",
    ),
}
