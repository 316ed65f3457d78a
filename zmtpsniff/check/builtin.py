"""The rule sets that a policy can include by name.

They are functions, not display filters, because a filter cannot ask two of their questions: whether an address belongs
to this machine, and what a problem code is about.
"""

from dataclasses import replace

from dissectors.address import is_loopback
from dissectors.events import AnyEvent, Capture, Command, Connection, Greeting, Problem
from dissectors.problems import PROBLEMS
from zmtpsniff.check.model import Bounds, Filter, Rule
from zmtpsniff.check.sight import Unseen, has_handshake, types_unknown

_BELOW_3 = ("1.0", "2.0")
_IN_CLEAR = ("NULL", "PLAIN")


def _is_error(event: AnyEvent) -> bool:
    return isinstance(event, Problem) and event.severity == "error"


def _in_clear(event: AnyEvent) -> bool:
    """Whether a side announces no encryption, or sends messages in clear without a greeting, to another machine."""
    if isinstance(event, Greeting):
        plain = event.mechanism in _IN_CLEAR or event.version in _BELOW_3
        return plain and not (is_loopback(event.src) and is_loopback(event.dst))
    if isinstance(event, Connection) and event.handshake in (None, "not-seen") and event.mechanism is None:
        readable = event.messages.client + event.messages.server > 0
        return readable and not (is_loopback(event.client.address) and is_loopback(event.server.address))
    return False


def _credentials(event: AnyEvent) -> bool:
    return isinstance(event, Command) and (event.username is not None or event.password is not None)


def _missing(event: AnyEvent) -> bool:
    if isinstance(event, Problem):
        kind = PROBLEMS.get(event.code)
        return kind is not None and kind.about == "capture" and kind.blinds == "rest"
    return isinstance(event, Capture) and event.dropped > 0


def _no_handshake(event: AnyEvent) -> bool:
    return isinstance(event, Connection) and event.handshake not in (None, "complete")


def _unanswered(event: AnyEvent) -> bool:
    # A problem of severity note means that the capture ended before the reply could come.
    return isinstance(event, Problem) and event.code == "request-unanswered" and event.severity != "note"


def _below_3(event: AnyEvent) -> bool:
    return isinstance(event, Greeting) and event.version in _BELOW_3


def _clearness_unseen(connection: Connection) -> bool:
    """Whether nothing tells if a connection to another machine is encrypted."""
    if has_handshake(connection) or connection.mechanism is not None:
        return False
    return not (is_loopback(connection.client.address) and is_loopback(connection.server.address))


def _version_unseen(connection: Connection) -> bool:
    return not has_handshake(connection) and connection.version is None


def _rule(name: str, text: str, forbidden: Filter, *kinds: type, unseen: Unseen | None = None) -> Rule:
    return Rule(name, "forbid", f"forbid {text}", (forbidden,), Bounds(most=0), kinds=kinds, unseen=unseen)


_RULES: dict[str, list[Rule]] = {
    "protocol": [_rule("no errors", "problems of severity error", _is_error, Problem)],
    "secure": [
        _rule(
            "nothing in clear beyond loopback",
            "peers that speak NULL, PLAIN or a ZMTP below 3.0, and messages that can be read, but between loopback "
            "addresses",
            _in_clear,
            Greeting,
            Connection,
            unseen=_clearness_unseen,
        ),
        _rule(
            "no credentials in clear",
            "user names and passwords of PLAIN",
            _credentials,
            Command,
            unseen=lambda connection: not has_handshake(connection),
        ),
    ],
    "complete": [
        _rule("nothing missing from the capture", "gaps, and packets dropped or cut", _missing, Problem, Capture),
        _rule("every handshake complete", "connections whose handshake is not complete", _no_handshake, Connection),
        _rule("every request answered", "requests without a reply in time", _unanswered, Problem, unseen=types_unknown),
    ],
    "modern": [
        _rule("no peer below 3.0", "peers that speak ZMTP 1.0 or 2.0", _below_3, Greeting, unseen=_version_unseen)
    ],
}
SETS: dict[str, tuple[Rule, ...]] = {
    name: tuple(replace(rule, set_name=name) for rule in rules) for name, rules in _RULES.items()
}
