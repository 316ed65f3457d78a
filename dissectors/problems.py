"""All problems: their codes, how severe they are, whom they are about, and what they mean.

A code never changes its meaning, because scripts and policies compare it. ``docs/reference/problems.md`` is made from
this table.
"""

from functools import partial
from typing import Literal, NamedTuple

from dissectors.events import Severity

About = Literal["peer", "network", "capture", "zmtpsniff"]
"""Whom a problem is about: a program, the network between two, what the capture has, or what zmtpsniff can read."""

Blindness = Literal["beginning", "rest"]
"""Which part of its connection is not all shown: that before the problem, or any. Without a connection, of all."""


class Kind(NamedTuple):
    """The meaning of one problem code."""

    severity: Severity
    meaning: str  # what was seen, for the documentation
    advice: str  # what it usually means and what to do
    about: About = "peer"
    blinds: Blindness | None = None  # None: all is shown

    @property
    def is_outside(self) -> bool:
        """Whether it is about the peers or the network between them, not about how zmtpsniff sees these."""
        return self.about in ("peer", "network")


_error, _warning, _note = partial(Kind, "error"), partial(Kind, "warning"), partial(Kind, "note")

# The status codes of 27/ZAP, which libzmq sends as the reason of an ERROR.
_ZAP_STATUS = {
    "300": "could not check {} and may be asked again",
    "400": "refused {}",
    "500": "failed to check {}",
}


def refusal(side: str, reason: str, mechanism: str | None) -> str:
    """The meaning of an ERROR command that ``side`` ("client", "server") sent with ``reason``."""
    if reason not in _ZAP_STATUS:
        return f"ERROR from the {side}{f': {reason}' if reason else ', without a reason'}"
    other = "client" if side == "server" else "server"
    what = "the credentials" if mechanism in ("PLAIN", "CURVE") else f"the {other}"
    return f"the {side} {_ZAP_STATUS[reason].format(what)} (ERROR {reason})"


PROBLEMS: dict[str, Kind] = {
    # --- the capture
    "capture-truncated": _warning(
        "The capture file ends in the middle of a record.",
        "The capturing program was killed or the disk was full. Everything before it was read.",
        about="capture",
        blinds="rest",
    ),
    "capture-corrupt": _error(
        "The capture file holds a block or record that cannot be right.",
        "Everything before it was read; copy the file again, or repair it with editcap.",
        about="capture",
        blinds="rest",
    ),
    "capture-unreadable": _error(
        "A file, one of many, cannot be read or is no capture (`zmtpsniff spark`).",
        "The other files were read. `detail` says what is wrong with this one. Repair it and ingest it again.",
        about="capture",
        blinds="rest",
    ),
    "record-over-snaplen": _note(
        "A record is longer than the snaplen that the capture file announces.",
        "A harmless fault of the capturing program. zmtpsniff read the whole record.",
        about="capture",
    ),
    "malformed-headers": _note(
        "Packets with a header that cannot be right, up to that of TCP, were skipped.",
        "Broken senders, or a capture of something else.",
        about="capture",
    ),
    "fragments-dropped": _note(
        "IP datagrams could not be put together: fragments are missing, contradict each other or are too many.",
        "Octets of the streams may be missing; `capture-gap` says where.",
        about="capture",
        blinds="rest",
    ),
    "segments-left-out": _warning(
        "tshark read packets that hold several TCP segments each; zmtpsniff got only the last segment of each packet.",
        "Aggregated 802.11 frames are such packets. Capture behind the access point, or without aggregation.",
        about="capture",
        blinds="rest",
    ),
    "link-type-unknown": _note(
        "Packets of a link type that zmtpsniff cannot take apart were skipped.",
        "Try `--engine tshark`, or capture on another interface (`tcpdump -i any` works everywhere).",
        about="zmtpsniff",
    ),
    "packets-not-read": _note(
        "Packets that may hold TCP were skipped: they are encrypted, or inside headers that zmtpsniff cannot read. "
        "`detail` names the EtherType, the protocol or the port. The most frequent kinds are reported.",
        "If ZeroMQ's connections are missing, try `--engine tshark`, or capture where the tunnel ends.",
        about="zmtpsniff",
    ),
    "no-flows": _note(
        "The capture has no TCP connection, and no sender of datagrams that zmtpsniff reads. `detail` says what its "
        "packets are.",
        "Look at the interface and the capture filter. RADIO and DISH over UDP need their port: `-d udp.port==N,zmtp`.",
        about="capture",
    ),
    "capture-disorder": _note(
        "Many packets stand in the capture before octets that they acknowledge, so the capture is out of order.",
        "Nothing is lost: zmtpsniff puts the octets in order. Times stay as captured. One direction came late, or "
        "you read the files of two hosts whose clocks differ.",
        about="capture",
    ),
    "capture-interrupted": _note(
        "Several captures were given, and all of them had ended for over a minute before the next one began.",
        "Nothing: what was said in between is not known, so a request without a reply before that counts as one at the "
        "end of a capture. If the files should follow each other, one of them is missing.",
        about="capture",
    ),
    "addresses-translated": _note(
        "The capture has connections before and after NAT changed their addresses, so that each packet is in it twice. "
        "`detail` says how many, and names one address and what it became.",
        "Nothing: zmtpsniff follows such a connection once, with the addresses that the client used. In files of "
        "several hosts, each end has the address that its own host shows.",
        about="capture",
    ),
    "networks-overlap": _note(
        "Two networks in the capture (VLANs, VXLAN, Geneve, GRE with keys) have addresses in common: a host of one "
        "address is local to both. `detail` names one. Connections of the second network have its name in their "
        "addresses, as in `10.0.0.1%vlan7:5555`.",
        "Nothing: zmtpsniff takes their hosts for different ones. `-Y 'src ~ \"%vlan7:\"'` shows one network.",
        about="capture",
    ),
    "clocks-differ": _note(
        "Two capture points saw the same packets, and their clocks differ. `detail` says by how much, if it knows.",
        "Nothing is lost, but times on one side of the two points cannot be compared with those on the other. Shift "
        "one file by that much (`editcap -t`), and let NTP or PTP set the clocks of the hosts.",
        about="capture",
    ),
    "capture-gap": _error(
        "Octets of a TCP stream are missing from the capture, though their receiver acknowledged them.",
        "The capturing program dropped packets. Give it a larger buffer (`tcpdump -B 65536`) or a capture filter.",
        about="capture",
        blinds="rest",
    ),
    "tls-gap": _error(
        "Octets inside TLS are missing: records are not in the capture, or were not decrypted.",
        "Nobody can say how many. Behind a missing record tshark decrypts nothing more of this side. Give the "
        "capturing program a larger buffer, and tshark the keys of the whole connection.",
        about="capture",
        blinds="rest",
    ),
    "tls-not-decrypted": _warning(
        "No key decrypts some of the TLS connections, or the capture lacks their handshake.",
        "Give tshark the key log that one of the two programs wrote meanwhile, and capture before they connect.",
        about="zmtpsniff",
    ),
    "tls-no-keys": _note(
        "There are TLS connections, and tshark was given no keys (`--tls-keys FILE`).",
        "If they may hold ZMTP, let one of the two programs write a key log (`SSLKEYLOGFILE`).",
        about="zmtpsniff",
    ),
    "packets-dropped": _error(
        "Packets were lost before they could be read: by the kernel, or while they waited for a slow reader.",
        "Use a capture filter (`-f`), a larger buffer (`-B`), or a quicker reader than a terminal.",
        about="capture",
        blinds="rest",
    ),
    "interface-down": _warning(
        "An interface that is captured on went down.",
        "The capture goes on as soon as the interface is up again. Packets that passed meanwhile are not in it.",
        about="capture",
        blinds="rest",
    ),
    "interface-up": _note(
        "An interface that went down is up again.", "The capture on it has gone on by itself.", about="capture"
    ),
    "capture-ended": _error(
        "A live capture ended by itself: its interface went away, or the capturing program failed.",
        "Everything before it was read, and the exit status is 2 unless another interface is left.",
        about="capture",
        blinds="rest",
    ),
    "packets-cut": _error(
        "The capture holds packets only in part (snaplen), so octets of the stream are missing.",
        "Capture whole packets: `tcpdump -s 0`. Reported once for each side of a connection, and once for the capture "
        "if packets end before their TCP header does.",
        about="capture",
        blinds="rest",
    ),
    "saving-ended": _error(
        "Saving packets (`-w`) stopped: the disk is full, or the file cannot be written.",
        "You can read what was saved before; the dissection went on. Make room, or bound the files with `-b`.",
        about="zmtpsniff",
    ),
    "overlap-differs": _warning(
        "A retransmitted segment holds other octets than the first copy.",
        "The first copy was used. Somebody may be forging packets, or a middlebox rewrites them.",
        about="network",
    ),
    "no-greeting": _note(
        "The capture starts in the middle of the connection. zmtpsniff found its frames all the same.",
        "Version and mechanism are not known, and socket types only as far as messages tell. Start the capture before "
        "the programs connect.",
        about="capture",
        blinds="beginning",
    ),
    "one-direction": _note(
        "No packet of one side is in the capture, though the other side answers it.",
        "The cause is asymmetric routing or a capture filter. Versions are those that the captured side announces.",
        about="capture",
        blinds="rest",
    ),
    "frames-found-again": _note(
        "zmtpsniff found the next frame behind missing octets.",
        "The octets that it skipped may hold messages that are not shown. Where later packets had to make the frame "
        "certain, replies of the other side may stand before it.",
        about="capture",
        blinds="rest",
    ),
    "frames-lost": _warning(
        "zmtpsniff could not find a frame with certainty behind missing octets.",
        "The rest of this side is not shown.",
        about="capture",
        blinds="rest",
    ),
    "perhaps-zmtp": _note(
        "Connections looked like ZMTP, but nothing in them proved it, so they are not shown.",
        "Most likely they speak another protocol whose lengths look the same: one octet long, as in ZMTP 1.0, or two "
        "octets in the middle of a connection. If they are ZMTP, name the port: `-d tcp.port==5555,zmtp`.",
        about="zmtpsniff",
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
        "The peer gave up, does not speak ZMTP, or the other side refused its mechanism.",
    ),
    "bad-mechanism": _error(
        "The mechanism's name has characters that are not allowed, or is not padded with zeros (23/ZMTP).",
        "The peer is broken.",
    ),
    "unknown-mechanism": _warning(
        "The mechanism is none of NULL, PLAIN, CURVE and GSSAPI.",
        "zmtpsniff cannot follow its handshake and its messages.",
        blinds="rest",
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
        "Both sides send HELLO, so both act as the client of the security mechanism.",
        "Set ZMQ_PLAIN_SERVER or ZMQ_CURVE_SERVER on one side.",
    ),
    # --- the handshake
    "handshake-incomplete": _warning(
        "The connection or the capture ended before the handshake was complete, and the wire does not say why.",
        "Often one side refused silently: wrong key or password, another mechanism, socket types that do not fit.",
    ),
    "incompatible-socket-types": _error(
        "The two socket types may not talk to each other.",
        "For example PUSH connects to PUB: one of the two programs uses the wrong port or type. libzmq closes the "
        "connection as soon as it reads of the other's type, and does not connect again by itself.",
    ),
    "unknown-socket-type": _error(
        "A peer announces a socket type that no specification knows.", "The peer is broken or newer."
    ),
    "no-socket-type": _warning("READY or INITIATE has no Socket-Type.", "The peer is not a complete implementation."),
    "bad-metadata": _error(
        "The metadata of READY or INITIATE runs past the end of its command.",
        "The peer is broken; libzmq closes such connections.",
    ),
    "empty-property-name": _error("A property has no name.", "The peer is broken; libzmq takes it all the same."),
    "duplicate-property": _warning(
        "A command has the same property twice.", "Peers may use either value; libzmq takes it."
    ),
    "identity-too-long": _error(
        "An identity is longer than 255 octets.", "Set a shorter routing id, though libzmq takes it."
    ),
    "plain-credentials": _note(
        "A user name and a password cross the network in clear (24/ZMTP-PLAIN).",
        "Use CURVE wherever others can listen.",
    ),
    "peer-error": _warning(
        "A peer refuses the other with an ERROR command.",
        "`detail` says why. 400: wrong user name, password or key, or the server does not know the client. 300 and "
        "500: the server's ZAP handler could not decide; look at its log.",
    ),
    "malformed-error": _note(
        "The ERROR command lacks the length of its name, as the PLAIN server of libzmq 4.3 sends it.",
        "A known fault of libzmq. zmtpsniff read the reason all the same.",
    ),
    "message-before-ready": _error(
        "A peer sends a message before its handshake is done.", "The peer is broken; libzmq closes such connections."
    ),
    # --- WebSocket
    "upgrade-refused": _error(
        "The server does not upgrade an HTTP connection to the ZWS protocol that the client offers (45/ZWS).",
        "Another program listens there, the path of the endpoint is wrong, or the mechanisms differ.",
    ),
    "bad-websocket-frame": _error(
        "A WebSocket frame breaks RFC 6455 or 45/ZWS, or uses an extension on which the two did not agree.",
        "The peer is broken, or a middlebox changes the octets.",
    ),
    "websocket-mask": _error(
        "A client's WebSocket frames are not masked, or a server's are (RFC 6455, section 5.1).",
        "The peer is broken; libzmq closes such connections. Reported once for each side.",
    ),
    # --- datagrams
    "bad-radio-datagram": _error(
        "A datagram announces a longer group than it holds, on a port that you named for RADIO and DISH.",
        "Another program sends to this port; libzmq drops such datagrams.",
    ),
    "websocket-compression": _error(
        "Compressed WebSocket messages (permessage-deflate, RFC 7692) cannot be read.",
        "They refer back to octets that are not in the capture, become too many octets, or are damaged.",
        about="zmtpsniff",
        blinds="rest",
    ),
    "multicast-lost": _error(
        "Data packets of a PGM sender are not in the capture, and nothing repaired them.",
        "The network or the capturing program dropped them. zmtpsniff goes on where the next message begins.",
        about="capture",
        blinds="rest",
    ),
    "multicast-repaired": _note(
        "Data packets of a PGM sender are in the capture as repairs (RDATA) only.",
        "The network loses packets: a lower rate (ZMQ_RATE) or larger buffers help.",
        about="network",
    ),
    "multicast-parity": _note(
        "A PGM sender sends parity (RFC 3208, section 11), which could repair lost packets. zmtpsniff does not use it.",
        "The sender is not libzmq, which never sends parity. Receivers may have repaired packets that seem lost here.",
        about="zmtpsniff",
    ),
    "bad-message-offset": _error(
        "A PGM packet says that a message begins after its end.", "The sender is broken, or it is not libzmq."
    ),
    # --- frames and commands
    "reserved-flags": _error("Reserved bits of a flags octet are set (23/ZMTP, Framing).", "libzmq ignores them."),
    "command-with-more": _error(
        "MORE is set on a command (23/ZMTP, Framing).", "The peer is broken; libzmq takes the command all the same."
    ),
    "long-flag-not-needed": _note(
        "A frame of fewer than 256 octets uses the long form of the length.",
        "This is allowed, only not the shortest form. Reported once for each side.",
    ),
    "frame-too-long": _error(
        "A frame announces more than 2^63-1 octets.",
        "The peer is broken; nothing after it can be read. libzmq closes such a connection.",
    ),
    "zero-length-frame": _error(
        "A ZMTP 1.0 frame has length zero, but the length counts the flags octet (13/ZMTP).",
        "The peer is broken; nothing after it can be read.",
    ),
    "message-too-large": _warning(
        "A message has more frames than zmtpsniff keeps.",
        "Its first frames are shown, marked incomplete; nothing else is lost.",
        about="zmtpsniff",
        blinds="rest",
    ),
    "truncated-frame": _note(
        "The connection ended inside a frame.",
        "A program closed its socket without waiting (ZMQ_LINGER), was killed, or reset the connection.",
    ),
    "truncated-message": _note(
        "The connection ended between the frames of a message.",
        "A program closed its socket without waiting (ZMQ_LINGER), or was killed.",
    ),
    "implausible-length": _warning(
        "A frame announced over 1 GiB, and the connection or the capture ended with nearly nothing of it.",
        "The peer is broken, or does not speak ZMTP after its greeting.",
    ),
    "capture-ends-inside": _note(
        "The capture ends inside a frame or a message.",
        "The connection went on; the capture did not.",
        about="capture",
    ),
    "malformed-command": _error(
        "The fields of a command do not fit into it.",
        "The peer is broken, or speaks a newer version. libzmq ignores such a command after the handshake.",
    ),
    "unknown-command": _warning(
        "A peer sends a command that no specification knows.",
        "The peer is newer, or broken. libzmq 4.2 and later ignore it; older ones hand it to the program as a message.",
    ),
    "unexpected-command": _error(
        "A command does not belong here: it is out of order, this socket type does not send it, or it is a CURVE "
        "MESSAGE whose nonce is not higher than the one before.",
        "The peer is broken, or somebody replays octets. libzmq ignores most of these commands, but it hands "
        "SUBSCRIBE to the program of another socket than PUB and XPUB as a message.",
    ),
    "command-inside-message": _error(
        "A peer sends a command between the frames of one message (23/ZMTP: message = *message-more message-last).",
        "The peer is broken; libzmq 4.2 and later take the message without it, older ones as one of its frames.",
    ),
    "heartbeat-inside-message": _note(
        "A peer sends PING or PONG between the frames of one message, which the grammar of 37/ZMTP does not allow.",
        "libzmq does so while it sends a long message (ZMQ_HEARTBEAT_IVL), and takes it. Reported once for each side.",
    ),
    "command-of-later-version": _note(
        "A peer sends a command of ZMTP 3.1 on a connection of version 3.0.",
        "libzmq 4.2 does so. A peer that knows only 3.0 does not understand it; libzmq 4.1 hands it to the program as "
        "a message.",
    ),
    "not-encrypted": _error(
        "A peer sends a frame in clear, though the mechanism encrypts all frames.", "The peer is broken."
    ),
    "keys-not-used": _note(
        "The capture file holds keys of CURVE connections that cannot be used.",
        "`detail` says why: PyNaCl is not installed, or a line is not that of a key file.",
        about="zmtpsniff",
    ),
    "box-not-opened": _error(
        "A box of CURVE does not open with the key that opens the others of its connection.",
        "Its octets are not those that the sender sealed: they were changed on the way, or the sender is broken. "
        "libzmq closes such a connection.",
    ),
    "server-key-wrong": _warning(
        "A client's HELLO of CURVE is for another server. The server closed the connection at once, and no key of "
        "`--curve-keys` opens HELLO, or the key of another server does.",
        "Give the client the public key of this server (`zmq.CURVE_SERVERKEY`); `detail` names it where it is known.",
    ),
    # --- what messages mean to each other
    "request-unanswered": _warning(
        "A request got no reply within `--timeout`, or before its connection was closed. A note if the capture ends "
        "first, or if the requester gave up and asked again.",
        "The service is slow or stuck, or it dropped the request.",
    ),
    "request-before-reply": _warning(
        "A REQ socket sends a second request before the reply to its first came (28/REQREP).",
        "Nobody can tell its replies apart. If the program sets ZMQ_REQ_RELAXED, set ZMQ_REQ_CORRELATE, too.",
    ),
    "reply-without-request": _warning(
        "A peer sends a reply without a request.",
        "A REQ socket drops it. The service replied twice to one request, or its envelope is wrong.",
    ),
    "no-delimiter": _warning(
        "A message to or from a REQ or REP socket has no empty frame after its envelope, or nothing behind that frame "
        "(28/REQREP).",
        'Send the empty frame: `[identity, b"", body]` from a ROUTER, `[b"", body]` from a DEALER. Without it a REP '
        "drops the message and says nothing. A REQ of libzmq 4.2 and later, and of JeroMQ, closes the connection; if "
        "it is the side that connected, it does not connect again and waits for ever: restart its program.",
    ),
    "unmatched-message": _warning(
        "A message matches no subscription of its receiver. A note if that peer never subscribed, or is an XSUB, which "
        "passes everything on. Reported for ten different messages of a connection.",
        "The publisher is an XPUB that sets subscriptions by itself (ZMQ_XPUB_MANUAL), or does not filter. Or the "
        "sockets have ZMQ_INVERT_MATCHING: their subscribers want just these messages.",
    ),
    "subscribed-twice": _note("A peer subscribes to a topic again.", "Harmless: some subscribers repeat themselves."),
    "cancel-without-subscribe": _warning(
        "A peer cancels a subscription that it does not have.", "The subscriber lost track of its subscriptions."
    ),
    "slow-joiner": _note(
        "The publisher had sent messages before this subscriber's first subscription came.",
        "The subscriber missed them. If it needs them, let it ask for the state first (chapter 5 of the ZeroMQ guide).",
    ),
    "multipart-not-allowed": _warning(
        "A message has several frames, though these socket types send single frames (41/CLISRV and others).",
        "The peer is broken; libzmq drops such messages.",
    ),
    "group-not-joined": _warning(
        "A RADIO socket sends to a group that its peer has not joined (48/RADISH).", "The DISH socket drops it."
    ),
    "ping-unanswered": _warning(
        "After a PING the peer was silent for five times as long as its PONGs took before, or for a second if there "
        "were none. A note if it sent other things, but no PONG.",
        "The peer is stuck, or does not know heartbeats.",
    ),
    "pong-without-ping": _warning("A peer sends a PONG that answers no PING.", "The peer is broken."),
    "heartbeat-late": _warning(
        "A peer was silent for longer than the time to live that its last PING announced.",
        "The other side may have closed the connection. The peer is overloaded, or its heartbeat interval is too long.",
    ),
    "identity-in-use": _warning(
        "Two peers of a ROUTER have the same identity at the same time. A note if the first leaves within a second.",
        "libzmq talks to one of them: the first, or with ZMQ_ROUTER_HANDOVER the last. Give each a routing id of "
        "its own.",
    ),
    "pair-in-use": _warning(
        "A PAIR socket that has a peer gets a second one (31/EXPAIR).", "libzmq refuses it: PAIR is for two."
    ),
    "reconnect-storm": _warning(
        "A peer connects again and again, and each connection ends within a second without a message. Reported after "
        "5, 50, 500, ... times. A note if the handshakes are complete, or if the peer closes the connections itself.",
        "The handshake fails, or something between the peers cuts connections.",
    ),
    "connection-refused": _note(
        "A TCP connection was refused at an address where ZeroMQ answered before or afterwards.",
        "The service was not running (yet). libzmq tries again.",
    ),
    "older-peer": _note(
        "A service has peers of different versions of ZMTP.", "Some of them use an older libzmq, which can do less."
    ),
    "payload-dissector-failed": _warning(
        "A payload dissector failed on a message. Reported once for each dissector.",
        "The message is shown without its payload. If the dissector is a plug-in, correct it; else report the fault.",
        about="zmtpsniff",
    ),
}

BLINDING: dict[str, Blindness] = {code: kind.blinds for code, kind in PROBLEMS.items() if kind.blinds is not None}
"""The codes of problems after which a connection may hold more messages than are shown."""
