"""Joins the copies of a publication: those of its publisher, and those that proxies pass on."""

from zmtpsniff.analysis.ways.envelopes import EARLY_NS
from zmtpsniff.analysis.ways.first_copies import FirstCopies
from zmtpsniff.analysis.ways.hops import Hop, OpenWay
from zmtpsniff.analysis.ways.join_tables import JoinTables
from zmtpsniff.analysis.ways.open_ways import OpenWays


class PublicationJoins:
    """Finds the message of which a publication comes, or begins a way with it."""

    def __init__(self, tables: JoinTables, ways: OpenWays) -> None:
        """``tables`` have the messages that hosts hold; new ways are added to ``ways``."""
        self._ways = ways
        self._held = tables.held
        self._equal = tables.equal
        self._lanes = tables.lanes
        self._programs = tables.programs
        self._connections = tables.connections
        self._first_copies = FirstCopies()

    def join(self, hop: Hop) -> None:
        """A publication: join it to the one that a proxy took, and passes on here, if there is one."""
        flow = hop.flow
        options = [one for one in self._equal.before(hop) if one.copied is None or flow not in one.copied]
        if options and not self._first_copies.is_one_more(hop, options[0].time_ns):
            before, is_certain = self._equal.original(options, hop)
            self._note_publisher(before)
            before.copied = (before.copied or set()) | {flow}
            before.is_passed_on = True
            before.way.add(hop, before, "body", certain=is_certain)
        else:
            self._begin(hop)
        self._equal.add_taker(hop)
        proxy = self._programs.get(hop.dst)
        if proxy is not None and len(proxy.sockets) > 1 and self._first_copies.has_copy_of(hop, proxy.sockets):
            hop.is_passed_on = True
        self._held.add(hop)

    def _note_publisher(self, passed_on: Hop) -> None:
        """A message is passed on as a publication: so it is one, if the capture lacks its sender's type.

        A sender whose receiver says something does not publish, and no publication has a delimiter.
        """
        way, connection = passed_on.way, self._connections.get(passed_on.flow)
        is_request = passed_on.depth > 0 or len(way.hops) > 1
        if passed_on.stream.src_kind or way.kind != "request" or is_request or connection is None:
            return
        if passed_on.dst not in connection.streams:
            passed_on.stream = connection.publish(passed_on.src)
            passed_on.topic, way.kind = passed_on.frames[0], "publication"

    def _note_overtaken_original(self, hop: Hop) -> None:
        """A publication comes behind later messages, perhaps behind its original, whose packet it overtook."""
        for one in self._held.equal_at(hop.stream.src_host, hop):
            if one.stream.sends == "publication" and 0 < one.time_ns - hop.time_ns <= EARLY_NS:
                one.is_passed_on = True
                return

    def _begin(self, hop: Hop) -> None:
        """A publication that no proxy passes on: one more copy of what the publisher sent before, or a new one."""
        if hop.is_overtaken:
            self._note_overtaken_original(hop)
        first = self._first_copies.first_of(hop)
        if first is not None:
            first.way.join_copy(hop, first)
            return
        request = self._lanes.related(hop)
        if request is not None:  # such as the output of a Jupyter kernel, while it works on a request
            request.way.add(hop, request, "correlation", certain=True)
        else:
            self._ways.begin(OpenWay.begin("publication", hop))
