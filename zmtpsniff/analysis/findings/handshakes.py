"""Connections that never become ready, and what handshakes give away.

Theory
------

libzmq hardly says why it refuses a peer. But the wire shows how far the handshake came before somebody closed the
connection. That is enough, since each step has one reason to end there:

======================================  ==============================================================================
the last thing said                     why the connection is closed
======================================  ==============================================================================
one whole greeting, one cut short       libzmq reads the other's mechanism, which is not its own: mechanisms-differ
ZMTP 2.0 or 1.0, and a signature        libzmq with a mechanism or a ZAP domain refuses who has no security: likewise
PLAIN HELLO, or ERROR 400               user name or password: credentials-refused
CURVE HELLO, or ERROR after that        the server cannot open its box: server-key-wrong
CURVE INITIATE, or ERROR 400            the ZAP handler does not know the client's key: credentials-refused
READY of one side, mechanism NULL       the other reads a socket type that does not go with its own: sockets-mismatched
======================================  ==============================================================================

libzmq then connects again, so the same happens many times: findings count by the host that connects and the address
that it connects to. Many connections that end soon for none of these reasons are a reconnect-storm.

libzmq greets as soon as it has accepted a connection, and a host accepts connections for a program that is stopped. So
a server that says nothing for longer than a second hangs, or is no ZeroMQ socket. A client that says nothing, and
closes the connection, only looked whether somebody is there.

A program that ends in the middle of a handshake closes its connection, too. Then its kernel most likely has octets that
it has not read, and sends a RST; libzmq has read what it refuses, and the kernel sends a FIN. So a RST says nothing of
mechanisms and types that nobody named.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

from dissectors.address import host_of
from dissectors.events import Command, Connection, Greeting, Octets, Peer, Problem, Severity, at_hand
from dissectors.zmtp.sockets import may_talk
from zmtpsniff.analysis.dossier import Dossier, ended_soon, ends_of, only_looks
from zmtpsniff.analysis.findings.finding import Certainty, Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import Inquiry
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.words.counts import again, listed, often, plural
from zmtpsniff.words.durations import about
from zmtpsniff.words.text import quoted

_NAMES = 100
_STORM = 5  # connections
_FAILED_ALONE = 3  # connections that failed for no reason that the wire shows
_MUTE_NS = 2_500_000_000  # so long a server may be silent on a connection that is open when the capture ends
_PROBE_ADVICE = (
    "Nothing, if a health check, a balancer or a program that starts looks so whether the service is there. Otherwise "
    "look at that program: it may end, or give up, right after it connects."
)
_HANGS_ADVICE = (
    "The program that listens there hangs: it is stopped (SIGSTOP, a debugger, a container that is paused), or its "
    "I/O thread is blocked. Its host accepts connections all the same. Look at its state with `ps -o stat,wchan`."
)
_PLAIN_ADVICE = (
    "Correct the user name and password (ZMQ_PLAIN_USERNAME, ZMQ_PLAIN_PASSWORD). The log of the server's ZAP handler "
    "says which rule refused them: it may be one for addresses, or for another domain (ZMQ_ZAP_DOMAIN)."
)
SAYS_NOTHING = "says nothing on any of them"
"""How a finding is known: the server never sent an octet on these connections."""
_MUTE_ADVICE = (
    "What listens there is most likely no ZeroMQ socket: a port of TLS, a balancer or tunnel without a server behind "
    "it, another protocol. `ss -ltnp` on that host says which program it is. If it is one, compare the security "
    "mechanisms."
)
_OLD_ADVICE = (
    "Upgrade the library of the old peer: ZMTP has security from version 3.0 on. libzmq refuses an older peer if its "
    "own socket has a mechanism (PLAIN, CURVE, GSSAPI) or ZMQ_ZAP_DOMAIN."
)
_CURVE_ADVICE = (
    "Let the server's ZAP handler know the client's public key, or give the client the key pair that it knows "
    "(ZMQ_CURVE_PUBLICKEY, ZMQ_CURVE_SECRETKEY). The handler's log says which rule refused it."
)
_TOLD = frozenset({"HELLO", "WELCOME", "INITIATE", "READY"})  # commands that show how far a handshake came
# How it is known what the summary has told already.
_KNOWN: dict[tuple[str, Certainty], str] = {
    ("mechanisms-differ", "likely"): "libzmq closes a connection in this way if the peer's mechanism is not its own",
    (
        "sockets-mismatched",
        "likely",
    ): "libzmq closes a connection in this way if the peer's type may not talk to its own",
    ("sockets-mismatched", "certain"): "both sockets announce their types",
}
# Problems that say why a handshake fails, each with its finding.
_CAUSES = {
    "mechanism-mismatch": "mechanisms-differ",
    "incompatible-socket-types": "sockets-mismatched",
    "server-key-wrong": "server-key-wrong",
    "both-as-server": "handshake-failed",
    "both-hello": "handshake-failed",
}


class Handshake(msgspec.Struct, eq=False):
    """The handshake of one connection, up to READY."""

    mechanisms: dict[str, str | None] = {}  # by address; None: not known
    commands: dict[str, str] = {}  # name to sender
    error: Octets | None = None
    user: Octets | None = None
    cause: str | None = None  # the finding that a problem says it is
    detail: str = ""  # of that problem
    time_ns: int = 0  # of the last event
    packet: int = 0


class _Failures(msgspec.Struct, eq=False):
    """Connections from one host to one address that failed for the same reason."""

    seen: Occurrences = msgspec.field(default_factory=Occurrences)
    details: dict[str, None] = {}
    users: dict[str, None] = {}
    mechanisms: dict[str, None] = {}  # that the host announces
    refusal: str = ""  # of a peer whose version has no security
    certainty: Certainty = "likely"


class _OldVersion(msgspec.Struct, eq=False):
    """Peers that speak one old version."""

    seen: Occurrences = msgspec.field(default_factory=Occurrences)
    names: dict[str, None] = {}


class _Short(msgspec.Struct, eq=False):
    """Connections from one host to one address that ended soon, without any message."""

    seen: Occurrences = msgspec.field(default_factory=Occurrences)
    complete: int = 0
    looks: int = 0  # those whose client may only have looked if somebody is there
    broken: int = 0  # those on which a side breaks the rules
    mute: int = 0  # those on which the server said nothing
    probes: int = 0  # those on which the client said nothing, and left
    kinds: dict[str, None] = {}


class _Mute(msgspec.Struct, eq=False):
    """Connections from one host to one address that were accepted, and on which not a word came from there."""

    seen: Occurrences = msgspec.field(default_factory=Occurrences)
    longest_ns: int = 0


class Handshakes(Inquiry):
    """How handshakes end."""

    def __init__(self) -> None:
        """Start without any."""
        self._handshakes: dict[int, Handshake] = {}
        self._broken: Ledger[int, None] = Ledger()  # flows on which a side breaks the rules
        self._failures: Ledger[tuple[str, str, str], _Failures] = Ledger(_Failures)
        self._short: Ledger[tuple[str, str], _Short] = Ledger(_Short)
        self._mute: Ledger[tuple[str, str], _Mute] = Ledger(_Mute)
        self._kinds: Ledger[str, dict[str, None]] = Ledger(dict)  # socket types of bound sockets
        self._mechanisms: Ledger[str, dict[str, None]] = Ledger(dict)  # mechanisms of bound sockets
        # By a client's host, or by none, and a bound socket: until when a connection was there that was ready.
        self._ready_ns: Ledger[tuple[str, str], int] = Ledger(int)
        # By a client's host and a bound socket: a connection was ready, or had been before the capture showed it whole.
        self._going: Ledger[tuple[str, str], None] = Ledger()
        self._passwords: Ledger[str, Occurrences] = Ledger(Occurrences)
        self._old: Ledger[str, _OldVersion] = Ledger(_OldVersion)

    # ------------------------------------------------------------------ what is said

    def greeting(self, dossier: Dossier, event: Greeting) -> None:
        """Take note of the mechanism."""
        handshake = self._at(dossier)
        if handshake is not None:
            handshake.mechanisms[event.src] = event.mechanism
            handshake.time_ns, handshake.packet = event.time_ns, event.packet

    def command(self, dossier: Dossier, event: Command) -> None:
        """Take note of how far the handshake came."""
        handshake = self._at(dossier)
        if handshake is None:
            return
        if event.name in _TOLD:
            handshake.commands.setdefault(event.name, event.src)
        handshake.time_ns, handshake.packet = event.time_ns, event.packet
        if event.name == "ERROR":
            handshake.error = event.reason or b""
        elif event.name == "HELLO" and event.username is not None:
            handshake.user = event.username
            self._passwords.at(event.dst).add(event.time_ns, event.packet, event.flow)

    def problem(self, event: Problem) -> None:
        """Take note of a problem that says why."""
        if event.flow is None:
            return
        handshake = self._handshakes.get(event.flow)
        cause = _CAUSES.get(event.code)
        if cause is None:
            if event.severity == "error":
                self._broken.at(event.flow)
        elif handshake is not None and handshake.cause is None:
            handshake.cause, handshake.detail = cause, event.detail

    def _at(self, dossier: Dossier) -> Handshake | None:
        """The handshake of a connection; None if it is over, since most commands come later."""
        handshake = self._handshakes.get(dossier.flow)
        if handshake is None and len(dossier.types) < 2:
            handshake = self._handshakes[dossier.flow] = Handshake()
        return handshake

    def put_aside(self, flow: int) -> Handshake | None:
        """Give the handshake of a connection away; None if it has none."""
        return self._handshakes.pop(flow, None)

    def take_up(self, flow: int, handshake: Handshake | None) -> None:
        """Take the handshake of a connection back, if it has one."""
        if handshake is not None:
            self._handshakes[flow] = handshake

    # ------------------------------------------------------------------ how it ends

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Find out why a handshake did not end well."""
        handshake = self._handshakes.pop(event.flow, None)
        is_broken = event.flow in self._broken
        # libzmq takes a peer of another protocol for an old ZMTP peer, and speaks an old version to it
        if not is_broken:
            self._note_version(dossier, event)
        announced = None if handshake is None else handshake.mechanisms.get(event.server.address)
        if announced is not None:
            _note(self._mechanisms.at(event.server.address), announced)
        if event.handshake in ("complete", "not-seen"):
            self._going.at(ends_of(event))
        if event.handshake == "complete":
            server = event.server
            if server.socket_type is not None and server.lookalike is None:
                _note(self._kinds.at(server.address), server.socket_type)
            if not may_talk(event.client.socket_type or "", server.socket_type or ""):
                self._mismatch(dossier, event)  # ZMTP 2.0 and WebSocket do not stop them
            else:
                for client in (host_of(event.client.address), ""):
                    self._ready_ns[client, server.address] = event.end_ns
        elif handshake is not None and event.handshake in ("failed", "incomplete"):
            if self._fail(handshake, event):
                return
        else:
            return
        is_short = ended_soon(event)
        is_whole = dossier is None or not dossier.blind
        packet = None if handshake is None else handshake.packet
        is_mute = is_whole and event.octets.client > 0 and not event.octets.server
        if is_mute and (until_ns - event.start_ns > _MUTE_NS or (event.is_closed and not is_short)):
            mute = self._mute.at(ends_of(event))
            mute.seen.add(event.start_ns, packet, event.flow)
            mute.longest_ns = max(mute.longest_ns, until_ns - event.start_ns)
        if is_short and not (event.messages.client or event.messages.server):
            short = self._short.at(ends_of(event))
            short.seen.add(event.start_ns, packet, event.flow)
            short.complete += event.handshake == "complete"
            short.looks += only_looks(event)
            short.broken += is_broken
            short.mute += is_mute
            short.probes += event.closed_by == "client" and not event.octets.client
            for kind in (event.client.socket_type, event.server.socket_type):
                if kind is not None:
                    _note(short.kinds, kind)

    def _mismatch(self, dossier: Dossier | None, event: Connection) -> None:
        client, server = event.client, event.server
        failures = self._failures.at(("sockets-mismatched", *ends_of(event)))
        failures.seen.add(event.start_ns, None if dossier is None else dossier.packet, event.flow)
        _note(failures.details, f"{client.socket_type} may not talk to {server.socket_type}")
        failures.certainty = "certain"

    def _note_version(self, dossier: Dossier | None, event: Connection) -> None:
        for peer in (event.client, event.server):
            version = _old_version(peer)
            if version:
                # Of one that connects each connection has a port of its own.
                old = self._old.at(version)
                old.seen.add(event.start_ns, None if dossier is None else dossier.packet, event.flow)
                _note(old.names, peer.address if peer is event.server else host_of(peer.address))

    def _fail(self, handshake: Handshake, event: Connection) -> bool:
        """Count a connection that failed, if the reason is known. Returns whether it is."""
        code, detail, certainty = self._reason(handshake, event)
        if not code:
            return False
        key = (code, *ends_of(event))
        failures = self._failures.at(key)
        failures.seen.add(handshake.time_ns or event.start_ns, handshake.packet or None, event.flow)
        if len(failures.details) < 4:
            failures.details[detail] = None
        if handshake.user is not None and len(failures.users) < 4:
            failures.users[quoted(handshake.user)] = None
        refused = _refused_as_old(event) if code == "mechanisms-differ" else None
        if refused is not None:
            who, by = key[1:] if refused is event.client else key[:0:-1]
            failures.refusal = f"{by} refuses the ZMTP {refused.version} of {who}, which has no security"
        if (announced := handshake.mechanisms.get(event.client.address)) is not None:
            _note(failures.mechanisms, announced)
        if certainty == "certain":
            failures.certainty = "certain"
        return True

    def _reason(self, handshake: Handshake, event: Connection) -> tuple[str, str, Certainty]:
        """The code of the finding, the evidence, and how certain it is; "" if there is no reason."""
        commands = handshake.commands
        mechanism = event.mechanism
        if handshake.error is not None:
            text = at_hand(handshake.error)
            said = f"ERROR {quoted(handshake.error)}" if text else "ERROR"
            if mechanism == "CURVE" and "HELLO" in commands and "WELCOME" not in commands:
                return "server-key-wrong", f"the server answers {said} to HELLO, as JeroMQ does", "likely"
            if b"400" in text or not text:
                return "credentials-refused", f"the server answers {said}", "certain"
            return "handshake-failed", f"the server answers {said}", "certain"
        if handshake.cause is not None:
            return handshake.cause, handshake.detail, "certain"
        if not event.is_closed or event.flow in self._broken:  # that is reason enough to close it
            return "", "", "certain"
        if mechanism == "CURVE" and "HELLO" in commands:
            if "INITIATE" in commands and "READY" not in commands:
                return "credentials-refused", "the connection is closed after INITIATE, which has its key", "likely"
            if "WELCOME" not in commands:
                return "server-key-wrong", "the connection is closed after HELLO, and no WELCOME came", "likely"
        if mechanism == "PLAIN" and "HELLO" in commands and "WELCOME" not in commands:
            return "credentials-refused", "the connection is closed after HELLO, without a word", "likely"
        if event.end == "rst":  # its program has not read what came
            return "", "", "certain"
        known = {address: name for address, name in handshake.mechanisms.items() if name is not None}
        closer = None if event.closer is None else event.closer.address
        if len(handshake.mechanisms) == 2 and len(known) == 1 and closer not in known:  # else it gave up
            (address, announced) = next(iter(known.items()))
            who = address if address == event.server.address else host_of(address)
            detail = f"{who} announces {announced}, and its peer closes the connection at once"
            return "mechanisms-differ", detail, "likely"
        if _refused_as_old(event) is not None:
            return "mechanisms-differ", "the connection is closed as soon as the version is announced", "likely"
        if mechanism in (None, "NULL") and len(known) == 2 and "READY" in commands:
            return self._type_reason(event)
        return "", "", "certain"

    def _type_reason(self, event: Connection) -> tuple[str, str, Certainty]:
        client, server = event.client.socket_type, event.server.socket_type
        if server is None:
            server = next(iter(self._kinds.at(event.server.address)), None)
        if client is not None and server is not None:
            if may_talk(client, server):
                return "", "", "certain"
            return "sockets-mismatched", f"{client} may not talk to {server}", "certain"
        known, kind = (event.server.address, server) if server is not None else (event.client.address, client)
        if event.closer is not None and event.closer.address == known:
            return "", "", "certain"  # it gave up
        detail = f"{known} says that it is a {kind} socket, and its peer closes the connection at once"
        return "sockets-mismatched", detail, "likely"

    # ------------------------------------------------------------------ results

    def sought_by(self, host: str) -> str:
        """The peer that a host waits for since their handshakes fail, in either direction; empty if there is none.

        Sockets that announce their types as they should have ended that, for the peers of both.
        """
        for (_, client, server), failures in self._failures.items():
            failed_ns = failures.seen.last_ns or 0
            if client == host and failed_ns > self._ready_ns.get((client, server), 0):
                return server
            if host_of(server) == host and failed_ns > self._ready_ns.get(("", server), 0):
                return client
        return ""

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Handshakes that fail, storms, passwords in clear and old versions."""
        for (code, host, server), failures in self._failures.items():
            seen = failures.seen
            repeated = again(seen.count)
            known = "; ".join(failures.details)
            advice = None
            # libzmq gives up after one refusal, but a program that ends at once closes its connection as well.
            is_alone = code == "sockets-mismatched" and failures.certainty != "certain" and seen.count == 1
            if is_alone and (host, server) in self._going:
                yield _undone(host, server, seen, 1)
                continue
            if code == "credentials-refused":
                summary, advice = self._refusal_words(host, server, failures)
            elif failures.refusal:
                summary, advice = failures.refusal, _OLD_ADVICE
            else:
                summary = self._failure_words(code, host, server, failures)
                known = _KNOWN.get((code, failures.certainty), known)
            severity: Severity | None = None if failures.certainty == "certain" or seen.count > 1 else "warning"
            yield Claim(code, summary + repeated, known, seen, [server], severity, failures.certainty, advice=advice)
        explained = Counter[tuple[str, str]]()
        for (_, host, server), failures in self._failures.items():
            explained[host, server] += failures.seen.count
        for (host, server), short in self._short.items():
            # libzmq may close a connection before it says a word, for the reason that other connections show.
            if short.seen.count - short.complete >= explained[host, server]:
                yield from self._storm(host, server, short)
        for (host, server), mute in self._mute.items():
            if (host, server) not in explained:
                yield self._silence(host, server, mute)
        for server, seen in self._passwords.items():
            words = f"user names and passwords for {server} cross the network in clear, {often(seen.count)}"
            yield Claim("password-in-clear", words, "PLAIN's HELLO holds them", seen, [server])
        for version, old in self._old.items():
            speak = "speaks" if len(old.names) == 1 else "speak"
            words = f"{listed(old.names)} {speak} ZMTP {version}"
            yield Claim("version-old", words, "the greetings say so", old.seen, old.names)

    def _refusal_words(self, host: str, server: str, failures: _Failures) -> tuple[str, str | None]:
        """The reason of a server's refusal, and the advice. The capture may have only the server's side."""
        mechanisms = failures.mechanisms or self._mechanisms.at(server)
        if failures.users or "PLAIN" in mechanisms:
            user = f" as {listed(failures.users)}" if failures.users else ""
            return f"{server} refuses {host}{user}: its user name, password or address is not accepted", _PLAIN_ADVICE
        if "CURVE" in mechanisms:
            return f"{server} refuses {host}: its key or address is not accepted", _CURVE_ADVICE
        return f"{server} refuses {host}: its ZAP handler does not let it in", None

    def _mechanism_words(self, host: str, server: str, failures: _Failures) -> str:
        wanted, offered = failures.mechanisms, self._mechanisms.at(server)
        if not wanted or not offered or wanted.keys() & offered.keys():
            return f"{host} and {server} want different security mechanisms: {next(iter(failures.details))}"
        failures.certainty = "certain"  # both sides say what they want, though perhaps not on the same connection
        return f"{host} and {server} want different security mechanisms: {listed(wanted)} and {listed(offered)}"

    def _failure_words(self, code: str, host: str, server: str, failures: _Failures) -> str:
        if code == "mechanisms-differ":
            return self._mechanism_words(host, server, failures)
        if code == "server-key-wrong":
            return f"{host} connects to {server} with a server key that is not the key of {server}"
        if code == "sockets-mismatched":
            return f"{host} connects to {server}, but {next(iter(failures.details))}"
        return f"{host} cannot connect to {server}: {next(iter(failures.details))}"

    def _storm(self, host: str, server: str, short: _Short) -> Iterable[Claim]:
        seen = short.seen
        known = "each connection is closed within a second, without a message"
        if 2 * short.broken > seen.count:
            return  # that is a finding by itself, and reason enough to close a connection
        if seen.count >= _STORM:
            severity: Severity | None = None
            if short.looks == seen.count and short.kinds.keys() != {"PAIR"}:
                severity = "note"
            handshakes = "all" if short.complete == seen.count else f"{short.complete:,} of them"
            known += f"; {handshakes if short.complete else 'none'} with a whole handshake"
            summary = (
                f"{host} connects to {server} again and again, {often(seen.count)}, and each connection ends at once"
            )
            is_mute = short.mute == seen.count
            if is_mute:
                known += f"; {server} {SAYS_NOTHING}"
            yield Claim(
                "reconnect-storm", summary, known, seen, [server], severity, advice=_MUTE_ADVICE if is_mute else None
            )
        elif (failed := seen.count - short.complete) > 0:
            severity = "warning" if failed >= _FAILED_ALONE else "note"
            known, advice = "nothing on the wire says why", None
            if short.probes == failed:
                severity, advice = "note", _PROBE_ADVICE
                known = f"{host} closes each of them itself, and has said nothing on it"
            elif short.mute == seen.count:
                known += f"; {server} {SAYS_NOTHING}"
            yield _undone(host, server, seen, failed)._replace(known=known, severity=severity, advice=advice)

    def _silence(self, host: str, server: str, mute: _Mute) -> Claim:
        """Tell of a server that does not even greet. libzmq greets as soon as it has accepted a connection."""
        has_spoken = server in self._mechanisms or server in self._kinds
        connections = plural(mute.seen.count, "connection")
        return Claim(
            "handshake-failed",
            f"{server} accepts {connections} of {host}, and says nothing for {about(mute.longest_ns)}",
            "the client greets, and no octet comes back"
            + (f"; on other connections {server} spoke ZMTP" if has_spoken else ""),
            mute.seen,
            [server],
            certainty="likely",
            advice=_HANGS_ADVICE if has_spoken else _MUTE_ADVICE,
            subject=server,
        )


def _note(names: dict[str, None], name: str) -> None:
    """Remember a name, which a peer may choose as it likes, if there are not too many already."""
    if len(names) < _NAMES:
        names[name] = None


def _old_version(peer: Peer) -> str:
    """The version of a peer, if it has no security; else empty."""
    return peer.version if peer.version is not None and peer.version[:2] in ("1.", "2.") else ""


def _refused_as_old(event: Connection) -> Peer | None:
    """The peer with an old version that the other one refused, as soon as it had that; None if there is none."""
    for peer, other in ((event.client, event.server), (event.server, event.client)):
        if _old_version(peer) and other.version is None and event.closer is other:
            return peer
    return None


def _undone(host: str, server: str, seen: Occurrences, failed: int) -> Claim:
    """Tell of connections whose client, as far as anybody can see, has ended or given up."""
    return Claim(
        "handshake-failed",
        f"{plural(failed, 'connection')} from {host} to {server} ended before the handshake was done",
        f"{host} closes it itself, and other connections from there became ready",
        seen,
        [server],
        "note",
        advice=_PROBE_ADVICE,
    )
