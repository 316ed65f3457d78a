"""Events as a graph for Graphviz's dot: who talks to whom, an edge for each host and bound socket."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log10
from typing import TextIO

from dissectors.address import host_of, port_of
from dissectors.events import AnyEvent, Connection, Message, Problem
from zmtpsniff.analysis.statistics.count_rows import ServiceSum
from zmtpsniff.analysis.statistics.overview import HostPairKey
from zmtpsniff.analysis.statistics.severities import Severities, add_severities, worst
from zmtpsniff.analysis.statistics.table import Table
from zmtpsniff.words.counts import plural
from zmtpsniff.words.text import encodable, escape

_PAIRS = 1000  # at least; twice as many at most
_OPEN = 20_000  # connections that are not known to be over
_COLORS = {"error": "#c0392b", "warning": "#d98a00", "note": "#5b6672", None: "#5b6672"}
_NOT_XML = {0xFFFE: "\\ufffe", 0xFFFF: "\\uffff"}  # dot would put them into an SVG, which may not have them


@dataclass(slots=True)
class _Talk:
    """A connection before it is over."""

    ends: tuple[str, str] | None = None  # of which either may be the client
    sent: dict[str, int] = field(default_factory=dict)  # messages, by the address that sent them
    problems: Severities = field(default_factory=dict)


class DotRenderer:
    """Takes events, and in the end writes a graph of them to a text stream.

    With a filter the graph has the messages that pass. If the record of their connection does not pass, the side with
    the higher port counts as the client, and nobody knows the types of the sockets.
    """

    def __init__(self, stream: TextIO) -> None:
        """Write to ``stream``."""
        self._stream = stream
        self._pairs: Table[HostPairKey, ServiceSum] = Table(_PAIRS, ServiceSum)
        self._talks: dict[int, _Talk] = {}
        self._ended: dict[int, HostPairKey] = {}  # connections of which problems still come
        self._encodable = encodable(getattr(stream, "encoding", None))

    def write(self, events: Sequence[AnyEvent]) -> None:
        """Count a batch of events."""
        for event in events:
            if type(event) is Message:
                talk = self._talk(event.flow)
                talk.ends = (event.src, event.dst)
                talk.sent[event.src] = talk.sent.get(event.src, 0) + 1
            elif isinstance(event, Problem) and event.flow is not None:
                key = self._ended.get(event.flow)
                if key is not None:
                    add_severities(self._pairs.row(key).problems, {event.severity: 1})
                    continue
                talk = self._talk(event.flow)
                add_severities(talk.problems, {event.severity: 1})
                if event.src is not None and event.dst is not None:
                    talk.ends = (event.src, event.dst)
            elif isinstance(event, Connection):
                self._end(event)

    def finish(self) -> None:
        """Write the graph and flush the stream."""
        for talk in self._talks.values():
            self._give_up(talk)
        self._stream.write(self._encodable("\n".join(self._lines())))
        self._stream.flush()

    def _talk(self, flow: int) -> _Talk:
        talk = self._talks.get(flow)
        if talk is None:
            if len(self._talks) >= _OPEN:
                self._give_up(self._talks.pop(next(iter(self._talks))))
            talk = self._talks[flow] = _Talk()
        return talk

    def _end(self, event: Connection) -> None:
        talk = self._talks.pop(event.flow, None) or _Talk()
        client, server = event.client, event.server
        key = HostPairKey(host_of(client.address), server.address, client.type_name, server.type_name)
        self._ended[event.flow] = key
        if len(self._ended) > _OPEN:
            del self._ended[next(iter(self._ended))]
        pair = self._pairs.row(key)
        pair.add(event, talk.sent.get(client.address, 0), talk.sent.get(server.address, 0))
        add_severities(pair.problems, talk.problems)

    def _give_up(self, talk: _Talk) -> None:
        """Count a connection whose end did not pass."""
        if talk.ends is None:
            return
        server, client = sorted(talk.ends, key=port_of)
        pair = self._pairs.row(HostPairKey(host_of(client), server, None, None))
        pair.connections += 1
        pair.messages_in += talk.sent.get(client, 0)
        pair.messages_out += talk.sent.get(server, 0)
        add_severities(pair.problems, talk.problems)

    def _lines(self) -> list[str]:
        lines = [
            "digraph zmtp {",
            "  rankdir=LR;",
            '  node [fontname="sans-serif"];',
            '  edge [fontname="sans-serif"];',
        ]
        pairs = self._pairs.rows
        hosts = sorted({key.client for key in pairs})
        lines += [f"  {_quoted(escape(f'host {host}'))} [label={_quoted(escape(host))}, shape=box];" for host in hosts]
        types: dict[str, set[str]] = {}
        for key in pairs:
            types.setdefault(key.server, set()).update(
                [] if key.server_socket_type is None else [key.server_socket_type]
            )
        for server, names in sorted(types.items()):
            label = "\n".join([escape(server), *([", ".join(sorted(map(escape, names)))] if names else [])])
            lines.append(f"  {_quoted(escape(server))} [label={_quoted(label)}, shape=ellipse];")
        for key, pair in sorted(pairs.items(), key=lambda item: tuple(name or "" for name in item[0])):
            lines.append(
                f"  {_quoted(escape(f'host {key.client}'))} -> {_quoted(escape(key.server))} [{_edge(key, pair)}];"
            )
        left = self._pairs.at_least() - len(pairs)
        if left > 0:
            lines.append(f"  // {left:,} more pairs at least, with fewer messages")
        return [*lines, "}", ""]


def _edge(key: HostPairKey, pair: ServiceSum) -> str:
    """The attributes of an edge: how many messages, how wide, in which colour."""
    words = [] if key.client_socket_type is None else [escape(key.client_socket_type)]
    words.append(f"{pair.messages_in:,} / {pair.messages_out:,} messages")
    if pair.connections > 1:
        words.append(plural(pair.connections, "connection"))
    severity = worst(pair.problems)
    if severity is not None and severity != "note":
        words.append(plural(pair.problems[severity], severity))
    width = 1 + log10(1 + pair.messages_in + pair.messages_out)
    return f'label={_quoted(chr(10).join(words))}, penwidth={width:.1f}, color="{_COLORS[severity]}"'


def _quoted(text: str) -> str:
    """A string as dot has it; lines are separated by LF."""
    text = text.translate(_NOT_XML)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
