"""All findings, the most harmful first: what each means, how it is known, and what helps.

Only this table has these texts: programs show its ``advice``, and docs/reference/findings.md is made from it. The
inquiry that finds a fault writes the sentence with names and numbers.
"""

from typing import NamedTuple

from dissectors.events import Severity
from dissectors.problems import PROBLEMS


class FindingKind(NamedTuple):
    """The facts that all findings of one code share."""

    severity: Severity  # unless the inquiry gives another one
    meaning: str
    known: str
    advice: str
    waits: bool = False  # somebody may wait in vain, even if it is a note
    of_peers: bool = False  # what the peers of the same service did tells more
    problems: tuple[str, ...] = ()  # those that `read` shows of the same thing, but for the one of the same code


# Advice that holds also if the user has named the types.
AGAIN = (
    "To see handshakes again, start the capture first and then restart a program, or cut its connections: "
    "`ss -K dport = 5555` lets libzmq connect anew."
)

FINDINGS: dict[str, FindingKind] = {
    "endpoint-refused": FindingKind(
        "error",
        "A program connects to an address again and again, and nothing listens there. A note if something answered "
        "there later, or if the program tried for less than a second.",
        "A RST answers each SYN; if the capture has one direction only, RSTs with the sequence number 0 show it, since "
        "only a SYN is answered so. It is ZeroMQ for certain if ZMTP was seen there or `-d` names the port; most "
        "likely if the attempts have the rhythm of libzmq (100 to 200 ms apart), or if the same host speaks ZMTP "
        "elsewhere.",
        "Start the service, or correct the address or port in the client. `ss -ltn` on that host shows who listens; a "
        "service bound to 127.0.0.1 cannot be reached from other hosts.",
        problems=("connection-refused",),
    ),
    "endpoint-silent": FindingKind(
        "error",
        "An address that a program connects to does not answer at all.",
        "The program repeats its SYN three times or more, and no packet comes back. It is certain or likely that "
        "ZeroMQ was meant for the same reasons as with endpoint-refused.",
        "The host is down or the address wrong, or a firewall drops the packets: look for DROP rules on the way "
        "(`nft list ruleset`), for security groups in a cloud, for network policies in Kubernetes.",
    ),
    "host-silent": FindingKind(
        "error",
        "A host acknowledges nothing any more, on several connections that are open, or on one where requests wait.",
        "The same octets are sent again and again on each of them, until the capture or the connection ends.",
        "The host is down, asleep or off the network, or the way to it is: `ping` it, and look at its console and its "
        "link. With ZMQ_HEARTBEAT_IVL both sides learn of this sooner, and connect anew.",
    ),
    "network-one-way": FindingKind(
        "error",
        "Packets of one host no longer reach another one, while those of the other direction do. A warning if they did "
        "again later.",
        "Octets are acknowledged in the capture, and their sender sends them again all the same, three times or more: "
        "the acknowledgments do not reach it.",
        "Whatever fails between these two hosts is most likely the network's fault. Look for a firewall with a new "
        "rule or a full table of connections on the receiving host and on the way (`nft list ruleset`, `conntrack "
        "-S`), and for a route that differs between the two directions (`ip route get`).",
    ),
    "server-key-wrong": FindingKind(
        "error",
        "A CURVE client has another public key of the server than the server has.",
        "The server closes the connection right after HELLO, which it cannot open. With the server's secret key "
        "(`--curve-keys`) that is certain.",
        "Give the client the server's public key (ZMQ_CURVE_SERVERKEY). It is Z85 of 40 characters; "
        "`zmq_curve_public` makes it from the secret one.",
    ),
    "credentials-refused": FindingKind(
        "error",
        "A server refuses the user name and password, or the CURVE key, of a client.",
        "The server answers with ERROR 400 (libzmq 4.3 sends it malformed for PLAIN), or closes the connection right "
        "after it has seen them, without a word, as libzmq 4.0 does.",
        "Correct the user name and password (ZMQ_PLAIN_USERNAME, ZMQ_PLAIN_PASSWORD), or let the server's ZAP handler "
        "know the client's public key. The handler's log says which rule refused it.",
        problems=("peer-error",),
    ),
    "mechanisms-differ": FindingKind(
        "error",
        "The two sides of a connection want different security mechanisms, so they never talk. ZMTP 2.0 and earlier "
        "have none.",
        "Their greetings name different mechanisms, or one side closes the connection as soon as it has read the "
        "other's, or its old version.",
        "Configure the same mechanism (NULL, PLAIN, CURVE) on both sockets.",
        problems=("mechanism-mismatch",),
    ),
    "sockets-mismatched": FindingKind(
        "error",
        "Two sockets whose types may not talk to each other are connected.",
        "Their READY commands, or those of other connections to the same socket, name the types.",
        "One of the two programs uses the wrong port or the wrong type: REQ goes with REP or ROUTER, SUB with PUB or "
        "XPUB, PULL with PUSH, DEALER with ROUTER, REP or DEALER, PAIR with PAIR.",
        problems=("incompatible-socket-types",),
    ),
    "handshake-failed": FindingKind(
        "error",
        "Connections never become ready, and no other finding says why.",
        "The connection ends, again and again, before both sides have sent READY; or the server says nothing for over "
        "a second, so that its program hangs. It is a note if a client that says nothing only looks whether the "
        "service is there.",
        "Look at the packets named, and at the log of the side that closes the connection.",
        problems=("handshake-incomplete", "both-as-server", "both-hello"),
    ),
    "messages-dropped": FindingKind(
        "error",
        "A subscriber did not get messages that others got, though it is connected and subscribed to them.",
        "A publisher sends its subscribers the same messages in the same order. If one connection lacks a message "
        "between two that others have, too, and its subscriptions match that message, the publisher dropped it. "
        "zmtpsniff counts nothing near holes or new subscriptions. If there is only one subscriber, zmtpsniff looks "
        "for numbers in the messages that grow by one many times, and then by more. The finding is then a note, unless "
        "the subscriber's TCP window had been closed, since a program may leave numbers out. `--sequence` names the "
        "place of the number; a subscriber to a part of the messages may lack numbers, so the finding is then marked "
        "*possible*. A note, too, if a subscriber that takes all at once lacks a message again and again, with few in "
        "between: then its queue is meant to be short (ZMQ_CONFLATE, a small ZMQ_SNDHWM).",
        "The subscriber is too slow for its queue at the publisher: make it faster, raise ZMQ_SNDHWM at the publisher "
        "and ZMQ_RCVHWM at the subscriber, or send less. ZMQ_XPUB_NODROP makes the publisher wait instead. With "
        "ZMQ_CONFLATE a publisher keeps only the last message for each subscriber, and drops others on purpose.",
        of_peers=True,
    ),
    "identity-shared": FindingKind(
        "warning",
        "Two peers of a ROUTER have the same identity at the same time, so that it talks to one of them only. A note "
        "if one program came back too early and lost a few messages.",
        "Their READY commands name it, and the first stays connected for over a second after the second has come. The "
        "messages that each sent and got show which of them the ROUTER leaves alone.",
        "Give each peer a routing id of its own (ZMQ_ROUTING_ID), or set none, so that the ROUTER makes one up. libzmq "
        "lets the first keep the identity, with ZMQ_ROUTER_HANDOVER the last gets it. The other one stays connected, "
        "and the ROUTER neither reads what it sends nor sends it anything. ZMQ_ROUTER_HANDOVER helps a program that "
        "comes back before its old connection is over, not two that are both alive.",
        waits=True,
        problems=("identity-in-use",),
    ),
    "connection-forgotten": FindingKind(
        "warning",
        "A connection between two hosts was dead when something was sent on it again, after minutes of silence.",
        "Nothing had passed for a minute or longer, no heartbeat and no probe of TCP. The octets that were sent then "
        "were never acknowledged, or a RST answered them; or a RST came by itself after whole minutes.",
        "Most likely a firewall, NAT or a load balancer between the two forgot the connection; or the other host is "
        "down, or was restarted. A SUB does not notice, and waits for ever. Set ZMQ_HEARTBEAT_IVL, so that both "
        "sides learn of it and connect anew, or ZMQ_TCP_KEEPALIVE with ZMQ_TCP_KEEPALIVE_IDLE, on the side that waits "
        "and to less than the time of silence.",
        waits=True,
    ),
    "connections-grow": FindingKind(
        "warning",
        "A program opens connections to one server, uses each for a while, and closes none or hardly any. A note if "
        "the capture shows that for less than ten seconds.",
        "Twenty connections or more of one host to one server, opened one behind the other until the capture ends. "
        "Messages passed on each, and nothing more once later ones were there. Connections from before the capture do "
        "not count.",
        "Make one socket and use it again, or close each (`with context.socket(...)`): a socket that the program "
        "forgets stays connected. In the end the hosts have no more descriptors (`ulimit -n`), or the program no more "
        "sockets (ZMQ_MAX_SOCKETS, 1023).",
    ),
    "subscriptions-lost": FindingKind(
        "warning",
        "A subscriber connected again, and not all of its subscriptions came with it: it gets nothing of the others.",
        "The old connection had more topics when it ended. The new one has a part of them, in the order of their "
        "octets, in which libzmq sends them again, and none was cancelled.",
        "libzmq sends all subscriptions at once when it connects again, and drops those beyond the mark of the "
        "subscriber's queue (libzmq#4064). Set ZMQ_SNDHWM of the SUB to more than it has subscriptions, or to 0; the "
        "default is 1000. Or subscribe to fewer, shorter prefixes.",
        waits=True,
    ),
    "handshake-timer": FindingKind(
        "warning",
        "A program closes each connection to a peer of ZMTP 1.0 or 2.0 thirty seconds after it was made.",
        "The peer's greeting says that it is of that version, the handshake was done long before, and the side of ZMTP "
        "3.x closes the connection, 30 s after its SYN.",
        "That side is libzmq 4.3.3 or one near it, whose handshake timer (ZMQ_HANDSHAKE_IVL, 30 s) goes on after the "
        "handshake if the peer is old (libzmq#4076, #4106). Use libzmq 4.3.5 there, which has the fix (#4456), or set "
        "ZMQ_HANDSHAKE_IVL to 0; or upgrade the library of the old peer.",
    ),
    "message-cut": FindingKind(
        "warning",
        "A program closed a connection in the middle of a message that it was sending: that one is lost, and whatever "
        "waited behind it.",
        "The stream of the side that closes first ends inside a frame, or between the frames of a message, with a FIN "
        "or a RST. zmtpsniff does not say so where octets are missing from the capture.",
        "Let the program wait until all is sent before it ends: close the sockets, terminate the context, and do not "
        "set ZMQ_LINGER to 0 (the default of CZMQ; `Context.destroy(linger=0)` of pyzmq sets it). A program that is "
        "killed cannot wait. The wire does not show how many more messages were in its queue.",
        problems=("truncated-frame", "truncated-message"),
    ),
    "unsent-at-end": FindingKind(
        "warning",
        "A connection was closed while messages waited for room at the receiver: these are lost, and so are those that "
        "the receiver's kernel had. A note if they are replies to the client that leaves, or if the last octets were "
        "sent and not acknowledged.",
        "The TCP window of the receiver was closed when the connection ended, by a FIN or a RST, and the sender had "
        "asked for room until then; or the receiver had been behind, and closed in the middle of a message. "
        "Subscribers may leave at any time. zmtpsniff does not say so where octets are missing from the capture.",
        "Let the receiver take what has come before it closes, and tell its senders to stop first. Let the sender wait "
        "until all is sent (no ZMQ_LINGER of 0). TCP's acknowledgment comes from the kernel, not from the program: "
        "where no job may be lost, let the worker answer each, and send again what is not answered.",
        of_peers=True,
    ),
    "worker-silent": FindingKind(
        "error",
        "A worker gets requests and answers none, while the others of the same queue do.",
        "Messages go to it, none comes back, and its connection stays open. A ROUTER and its DEALERs may send one-way "
        "messages: then the worker had always spoken before, twice as many messages as ever wait for a word of it, and "
        "others of the same ROUTER go on.",
        "Restart the worker, and find out where it hangs. A ROUTER that gives work only to workers that are "
        "idle, as in the Majordomo pattern, leaves out one that does not answer.",
        waits=True,
        of_peers=True,
    ),
    "worker-closed": FindingKind(
        "warning",
        "A worker closed its connection while it had requests, and the queue that gave them to it goes on; or it was "
        "the last worker of a queue, which takes more requests. A note of a DEALER that spoke by itself at a steady "
        "pace, and may have been told to stop.",
        "The requests are in the capture, no reply comes back, and the worker closes first, by a FIN or a RST.",
        "Find out why the worker ended. The senders of these requests wait for replies that will not come: let a "
        "worker finish its requests before it closes, and let requesters give up and ask again.",
        waits=True,
        of_peers=True,
    ),
    "not-passed-on": FindingKind(
        "error",
        "A broker took requests or replies and did not pass them on, or a worker took jobs and nothing comes of them "
        "any more, though it passed others on before.",
        "The messages arrive at one of its sockets, and neither they nor what could come of them leaves another one. "
        "`zmtpsniff trace --lost capture.pcap` shows the way of each. A program that waits for them is not to blame.",
        "Look at that program and its log: it may drop what it cannot parse or route, hang, or have no peer to send to "
        "(a ROUTER drops messages to an identity that it does not have).",
        waits=True,
    ),
    "request-unanswered": FindingKind(
        "error",
        "Requests got no reply within `--timeout`, or before their connection was closed. A warning if all of them got "
        "it later.",
        "The capture has the request, and no reply to it by envelope or by order. For a DEALER zmtpsniff says so only "
        "if the same service answers others, or answered this one before. If the connection is encrypted and no key is "
        "known, zmtpsniff infers it from the sizes of encrypted messages, for REQ and REP only; the finding is then "
        "marked *likely*.",
        "Look at what the service does with the request named. If it asks other programs, capture on its host, too: "
        "then the one that does not answer is named. A REQ waits for ever: set ZMQ_RCVTIMEO, or ZMQ_REQ_RELAXED with "
        "ZMQ_REQ_CORRELATE, and send again.",
        waits=True,
    ),
    "service-away": FindingKind(
        "warning",
        "A service went away and came back. A note if that took less than a second.",
        "Its connections ended, a RST answered attempts to connect to it, and then it accepted one. The first and the "
        "last time are those of the first connection that ended and of the first attempt that was accepted.",
        "Find out why it ended, if you did not restart it. Requests that it held, and what PUB sent meanwhile, are "
        "lost; REQ waits for ever for such a reply unless it gives up (ZMQ_RCVTIMEO) and asks again.",
    ),
    "subscriber-slow": FindingKind(
        "warning",
        "A receiver takes messages more slowly than they come, or takes none, so that they wait for it.",
        "Its TCP window was closed while the sender had more to send, or octets were sent again and again and not "
        "acknowledged, for a second or longer. A window opens only once there is much room, so that a program may have "
        "taken a few messages meanwhile.",
        "Look at what the program does between two receives, and at its processor. Whatever its sender cannot queue "
        "(ZMQ_SNDHWM) is dropped by PUB, and stops PUSH, REQ and DEALER.",
        waits=True,
        of_peers=True,
    ),
    "subscription-unmatched": FindingKind(
        "warning",
        "A subscriber got nothing of a topic while others got messages of it, or the topic was never published and is "
        "nearly one that is. A note in all other cases, and if other topics of the subscriber matched and this one "
        "was never published, unless only the case of letters or separators are wrong in it.",
        "No message has matched the topic since the subscription. The connections of other subscribers show what is "
        "published.",
        "Correct the topic. Topics are octets that are compared from the first on: upper and lower case, blanks and "
        "separators count.",
        waits=True,
    ),
    "work-uneven": FindingKind(
        "warning",
        "Jobs of a PUSH waited at one worker while another worker of it had nothing to do.",
        "The TCP window of the one was closed, and meanwhile no packet came to the other, for a second or longer "
        "together. Jobs that wait in the memory of a worker do not show. If the PUSH connects to its workers, nothing "
        "shows that the connections are of one socket; the finding is then marked *possible*.",
        "PUSH gives a job to a worker when it is sent, not when the worker is free. Keep queues short (ZMQ_SNDHWM of "
        "the PUSH and ZMQ_RCVHWM of the workers to 1, set before connecting), or let workers ask for jobs: a ROUTER "
        "that sends to the REQ or DEALER that says it is ready (chapter 3 of the ZeroMQ guide).",
        waits=True,
        of_peers=True,
    ),
    "queue-grows": FindingKind(
        "warning",
        "A program takes more messages than it passes on, so that its queue grows. A note if it drained in the end, if "
        "the next program had no room, or if a broker waits for those who answer its requests.",
        "The ways of messages show when the program took each and when it passed it on: in minus out is its queue. It "
        "rose for a second or longer, to 20 messages or more, and what came last would wait half a second.",
        "Look at what the program does between taking a message and passing it on, and at its processor; more programs "
        "like it share the work. Where the next one is slow, start there.",
    ),
    "replies-slow": FindingKind(
        "warning",
        "The median reply of a service takes over a second, or some replies take over 100 ms and twenty times the "
        "median. A note if these are fewer than 1 in 50, and none takes a second. Or a worker takes five times as long "
        "as others to which the same socket gives the same work.",
        "The time from the request to its reply, as captured. The time until the service's host acknowledges the "
        "request is the network's, the time until the first octets of the reply the service's, and the rest is the "
        "transfer. If the capture lacks that acknowledgment, zmtpsniff takes the time in which the host answers a SYN. "
        "If most of the time passes before octets that are sent again, the network has lost them. If programs pass "
        "requests on, zmtpsniff follows each, as `trace` does, and names the place that had it, or the "
        "network that lost its packets.",
        "Look at what the service did at the time named. If requests wait behind others, more workers help. If it asks "
        "other programs, capture on its host, too: then the one that takes the time is named.",
    ),
    "reconnect-storm": FindingKind(
        "warning",
        "A program connects again and again, and each connection ends soon without a message. A note if it closes each "
        "itself, as one does that only looks whether the service is up.",
        "Five connections or more between the same two, each closed within a second.",
        "Look at the log of the side that closes. A balancer without servers behind it does this, and so does a "
        "second PAIR.",
    ),
    "heartbeat-lost": FindingKind(
        "warning",
        "A peer stopped answering PING, or was silent for longer than it had announced; or a DEALER that spoke by "
        "itself at a steady pace fell silent.",
        "No PONG and nothing else came from it after a PING, for longer than its answers took before. Or nothing came "
        "of a DEALER for five times its longest pause, while all others of the same ROUTER keep their pace.",
        "The peer hangs, is stopped or overloaded, or the network fails. The other side closes such a connection "
        "after ZMQ_HEARTBEAT_TIMEOUT and connects anew.",
        problems=("ping-unanswered", "heartbeat-late"),
    ),
    "protocol-violated": FindingKind(
        "warning",
        "Something on a connection breaks the rules of ZMTP or of its sockets' pattern.",
        "zmtpsniff reports it as a problem; `zmtpsniff explain CODE` says more of each.",
        "Look at the packets named: `zmtpsniff read -Y 'type == \"problem\"' capture.pcap`.",
    ),
    "connection-idle": FindingKind(
        "note",
        "On a connection between two hosts nothing passes for four minutes or longer.",
        "No packet of it is in the capture for so long: no message, no heartbeat, no probe of TCP. zmtpsniff does not "
        "say so where packets may be missing.",
        "Nothing, if no firewall, NAT or load balancer is between the two. Those forget such a connection, some of "
        "them after four minutes, and then a SUB gets nothing any more, for ever: set ZMQ_HEARTBEAT_IVL, or "
        "ZMQ_TCP_KEEPALIVE with ZMQ_TCP_KEEPALIVE_IDLE (the kernel's own probes begin after two hours).",
    ),
    "reply-to-nobody": FindingKind(
        "note",
        "Replies came to a broker when the client that had asked was gone.",
        "The connection over which the request came was closed before the reply arrived; zmtpsniff follows each "
        "message, as `trace` does.",
        "Let the client wait longer than the service takes (ZMQ_RCVTIMEO), or make the service faster. A ROUTER drops "
        "what it sends to an identity that nobody has, without a word; with ZMQ_ROUTER_MANDATORY `send` fails with "
        "EHOSTUNREACH instead.",
    ),
    "subscribed-late": FindingKind(
        "note",
        "A publisher had sent messages to others when a subscriber subscribed for the first time, which missed them.",
        "The connection of the subscriber has no subscription before, and the publisher has sent messages on others. "
        "It says how many, and how many of them since the subscriber had connected.",
        "Nothing, if the subscriber needs only what comes from now on. Otherwise let the publisher wait until its "
        "subscribers are there (an XPUB gets their subscriptions), or let the subscriber ask for the state first "
        "(chapter 5 of the ZeroMQ guide).",
        problems=("slow-joiner",),
    ),
    "password-in-clear": FindingKind(
        "note",
        "A user name and a password cross the network in clear.",
        "PLAIN's HELLO holds them (24/ZMTP-PLAIN).",
        "Use CURVE wherever others can listen.",
        problems=("plain-credentials",),
    ),
    "version-old": FindingKind(
        "note",
        "A peer speaks a version of ZMTP from before 3.0.",
        "Its greeting says so, or that it has none.",
        "Such a peer has no security and no heartbeats, and a 2.x publisher sends everything to everybody. Upgrade its "
        "library to libzmq 4.",
        problems=("older-peer",),
    ),
    "capture-lossy": FindingKind(
        "note",
        "The capture lacks packets, octets or one direction, so zmtpsniff cannot tell everything.",
        "The capture file says so, or TCP's sequence numbers do.",
        "Capture with a larger buffer (`-B 64`, tcpdump: `-B 65536`), whole packets (`-s 0`), without tcpdump's "
        "`--immediate-mode`, and with a filter on the port (`-f 'tcp port 5555'`). One direction only: capture on one "
        "of the two hosts, or mirror both directions.",
        problems=("capture-gap", "packets-dropped"),
    ),
    "capture-late": FindingKind(
        "note",
        "The capture begins after connections were made, so that their handshakes are not in it.",
        "Connections without a SYN or a greeting.",
        f"{AGAIN} `-d tcp.port==5555,zmtp/REP` names the type of a bound socket.",
        problems=("no-greeting",),
    ),
}


def problems_of(finding: str) -> list[str]:
    """The codes of the problems that `read` shows of the same thing as a finding."""
    return [finding] * (finding in PROBLEMS) + [*FINDINGS[finding].problems]


def findings_of(problem: str) -> list[str]:
    """The codes of the findings that `diagnose` shows of the same thing as a problem."""
    return [code for code in FINDINGS if problem in problems_of(code)]
