"""A connection that several hosts captured: SQL that counts it once, and that says what two captures say together.

A *vantage point* of a connection is a series that has it, with the addresses that it has there: a router that
translates addresses has it twice. Tables keep the rows of all of them. The queries below go over these tables, named
``all_connections``, ``all_messages`` and so on, and those of them that come later over those before. Spark and DuckDB
take them all as they are, Polars those up to ``captures``.

The clocks of two hosts. A packet from one end to the other is captured there later by the network's time plus the lead
of the clock there; in the other direction by the network's time minus that lead. So with the quickest of both
directions, in ten seconds, the difference of the clocks is half of the difference, if the network is as quick in both
(as NTP has it, RFC 5905, section 8), and in no case more than half of the round trip away. A line through these is the
drift. Which of the two is nearer to the client is what the greetings say, which cross each other within a round trip.

The n-th message of a direction is the same for both as long as neither has lost one. So what comes after a loss, or as
long before as something can have waited for it, is left out, and so is what began before the captures, or before the
time that is asked for.
"""

from dissectors.problems import BLINDING
from zmtpsniff.spark.tables import TABLES, WHOLE

ELSEWHERE = "elsewhere"
"""The name of the view with the vantage points that are not counted, on which most others rest."""

WORTH_KEEPING = (ELSEWHERE, "placed_legs", "joined_ways")
"""Views that others ask several times."""

_ENDS = {"connections": ("client", "server")}  # of rows; else src and dst
_LONGEST_WAIT_NS = 60_000_000_000  # of a message for octets that are lost
_WINDOW_NS = 10_000_000_000
_RECORDS = ("messages", "commands", "subscriptions")
_MESSAGES = 0  # where they are among these, which is their kind

_POINTS_ELSEWHERE = f"""
WITH seen AS (
    {
    " UNION ALL ".join(
        f"SELECT conn_id, series, least(src, dst) AS one, greatest(src, dst) AS other, 1 AS records, 0 AS octets "
        f"FROM all_{table}"
        for table in _RECORDS
    )
}
    UNION ALL
    SELECT conn_id, series, least(client, server), greatest(client, server), 0, client_octets + server_octets
    FROM all_connections
), points AS (
    SELECT conn_id, series, one, other, sum(records) AS records, max(octets) AS octets
    FROM seen
    GROUP BY conn_id, series, one, other
), ranked AS (
    SELECT conn_id, series, one, other, row_number() OVER (
        PARTITION BY conn_id ORDER BY records DESC, octets DESC, series, one, other) AS place
    FROM points
)
SELECT conn_id, series, one, other FROM ranked WHERE place > 1
"""


def _once(table: str) -> str:
    """The rows of a table that no better vantage point has."""
    one, other = _ENDS.get(table, ("src", "dst"))
    return f"""
SELECT whole.*
FROM all_{table} AS whole LEFT JOIN elsewhere ON whole.conn_id = elsewhere.conn_id AND whole.series = elsewhere.series
    AND least(whole.{one}, whole.{other}) = elsewhere.one AND greatest(whole.{one}, whole.{other}) = elsewhere.other
WHERE elsewhere.conn_id IS NULL
"""


def _points(since_ns: int) -> str:
    """The vantage points of connections that several series have, numbered, with when each is no more to be trusted."""
    incomplete = " UNION ALL ".join(
        f"SELECT conn_id, series, time_ns FROM all_{table} WHERE incomplete" for table in _RECORDS
    )
    return f"""
WITH begun AS (
    SELECT conn_id, series, client, server,
        min(client_socket_type) AS client_type, min(server_socket_type) AS server_type
    FROM all_connections
    WHERE shared_id AND start_ns >= {since_ns}
    GROUP BY conn_id, series, client, server
), losses AS (
    SELECT conn_id, series, min(time_ns) - {_LONGEST_WAIT_NS} AS lost_ns
    FROM (
        {incomplete}
        UNION ALL
        SELECT conn_id, series, time_ns FROM all_problems WHERE code IN {tuple(BLINDING)}
    ) AS lost
    GROUP BY conn_id, series
)
SELECT begun.*, lost_ns, CAST(row_number() OVER (
    ORDER BY begun.conn_id, begun.series, client, server) AS INTEGER) AS point
FROM begun LEFT JOIN losses ON losses.conn_id = begun.conn_id AND losses.series = begun.series
WHERE begun.conn_id IN (SELECT conn_id FROM begun GROUP BY conn_id HAVING count(DISTINCT series) > 1)
"""


def _numbered() -> str:
    """Records of connections that several series have, numbered in each direction.

    They are many, and all are sorted. So the table, the vantage point and the file are numbers here. They have few
    octets once they are compressed, by which Spark takes them for few, and would have all of them in memory at once:
    comments here and below tell it to merge.
    """
    rows = " UNION ALL ".join(
        f"SELECT conn_id, series, src, dst, time_ns, file, packet, {'part' if table == 'messages' else '1'} AS part, "
        f"{kind} AS kind FROM all_{table}"
        for kind, table in enumerate(_RECORDS)
    )
    return f"""
SELECT /*+ MERGE(records) */ point, src = client AS forth, kind, time_ns, place, packet, part, row_number() OVER (
    PARTITION BY point, src = client, kind ORDER BY time_ns, place, packet, part) AS number
FROM ({rows}) AS records JOIN points ON records.conn_id = points.conn_id AND records.series = points.series
        AND (src = client AND dst = server OR src = server AND dst = client)
    JOIN filed ON filed.file = records.file
WHERE lost_ns IS NULL OR time_ns < lost_ns
"""


_FILED = f"""
SELECT file, CAST(row_number() OVER (ORDER BY file) AS INTEGER) AS place
FROM ({" UNION ".join(f"SELECT file FROM all_{table}" for table in _RECORDS)}) AS names
"""
"""The files of records, numbered in their order."""

_FACING = """
WITH pairs AS (
    SELECT one.conn_id, one.series AS one, other.series AS other, one.client, one.server, one.client_type,
        one.server_type, other.client AS other_client, one.point AS one_point, other.point AS other_point
    FROM points AS one JOIN points AS other ON one.conn_id = other.conn_id AND one.series < other.series
), greetings AS (
    SELECT point, min(CASE WHEN src = client THEN time_ns END) AS there_ns,
        min(CASE WHEN src = server THEN time_ns END) AS back_ns
    FROM points JOIN all_commands AS said ON said.conn_id = points.conn_id AND said.series = points.series
        AND (src = client AND dst = server OR src = server AND dst = client)
    WHERE lost_ns IS NULL OR time_ns < lost_ns
    GROUP BY point
), sides AS (
    SELECT pairs.conn_id, one, other, client, other_client, min(far.there_ns - near.there_ns)
        >= min(far.back_ns - near.back_ns) AS client_is_at_one
    FROM pairs JOIN greetings AS near ON near.point = one_point JOIN greetings AS far ON far.point = other_point
    GROUP BY pairs.conn_id, one, other, client, other_client
)
SELECT pairs.*, client_is_at_one
FROM pairs JOIN sides ON pairs.conn_id = sides.conn_id AND pairs.one = sides.one AND pairs.other = sides.other
    AND pairs.client = sides.client AND pairs.other_client = sides.other_client
WHERE client_is_at_one IS NOT NULL
"""
"""Each two vantage points of a connection in two series, and which of them is nearer to the client."""

_TWICE = """
SELECT /*+ MERGE(near, far) */ facing.*, near.kind, near.forth, near.number, near.time_ns AS one_ns,
    far.time_ns AS other_ns
FROM numbered AS near JOIN facing ON near.point = one_point
    JOIN numbered AS far ON far.point = other_point AND far.kind = near.kind AND far.forth = near.forth
        AND far.number = near.number
"""

_PLACE = "{0}.file || ' ' || {0}.packet || ' ' || {0}.part"
_DOUBLINGS = 2  # so that one way may go over 5 series in turn; each one more doubles the plan


def _placed_legs(unnest: str) -> str:
    """The legs of ways, each with the first series' name of its message; ``unnest`` makes rows of a list."""
    return f"""
WITH known AS (
    SELECT conn_id, series, client, forth, number, file, packet, part
    FROM numbered JOIN points ON points.point = numbered.point JOIN filed ON filed.place = numbered.place
    WHERE kind = {_MESSAGES}
), same AS (
    SELECT {_PLACE.format("known")} AS place, first_value({_PLACE.format("known")}) OVER (
        PARTITION BY conn_id, forth, number ORDER BY series, client) AS message
    FROM known
), said AS (
    SELECT series, kind, {_PLACE.format("all_ways")} AS begun, {unnest}(legs) AS leg FROM all_ways
), placed AS (
    SELECT *, {_PLACE.format("leg")} AS place FROM said
), named AS (
    SELECT placed.*, coalesce(same.message, placed.place) AS message
    FROM placed LEFT JOIN same ON same.place = placed.place
)
SELECT *, max(CASE WHEN place = begun THEN message END) OVER (PARTITION BY series, begun) AS way FROM named
"""


_JOINED_WAYS = """
WITH shared AS (
    SELECT part.series, part.way, whole.series AS root_series, whole.way AS root,
        avg(part.leg.time_ns - whole.leg.time_ns) AS ahead_ns,
        max(CASE WHEN part.message = part.way THEN 1 END) AS begins
    FROM placed_legs AS part JOIN placed_legs AS whole
        ON whole.message = part.message AND whole.series <> part.series
    GROUP BY part.series, part.way, whole.series, whole.way
), ranked AS (
    SELECT *, row_number() OVER (PARTITION BY series, way ORDER BY root = way, root_series, root) AS rank
    FROM shared
    WHERE begins = 1 AND (root <> way OR root_series < series)
), known AS (
    SELECT DISTINCT series, way, kind FROM placed_legs
)
SELECT known.*, coalesce(root_series, known.series) AS root_series, coalesce(root, known.way) AS root,
    coalesce(ahead_ns, 0) AS ahead_ns
FROM known LEFT JOIN ranked ON ranked.series = known.series AND ranked.way = known.way AND rank = 1
"""
"""The ways of each series, each with the way in another series that it is a part of, else itself.

A way that begins with a message in the midst of a way in another series is a part of that. So is, of two that begin
with the same message, that of the later series. Both series have the messages that join them, which say by how much
the one clock is ahead of the other, as in the theory above.
"""


def _way_legs() -> str:
    """The legs of the ways of all series, by the clock of the series in which a way begins."""
    climbs = ", ".join(
        f"""up{at} AS (
    SELECT low.series, low.way, high.root_series, high.root, low.ahead_ns + high.ahead_ns AS ahead_ns
    FROM {f"up{at - 1}" if at else "joined_ways"} AS low JOIN {f"up{at - 1}" if at else "joined_ways"} AS high
        ON high.series = low.root_series AND high.way = low.root
)"""
        for at in range(_DOUBLINGS)
    )
    return f"""
WITH {climbs}, told AS (
    SELECT up.root AS way, up.root_series AS began_in, known.kind, legs.series, leg,
        CAST(round(up.ahead_ns) AS BIGINT) AS ahead_ns, row_number() OVER (
            PARTITION BY up.root_series, up.root, message ORDER BY abs(up.ahead_ns), legs.series) AS rank
    FROM placed_legs AS legs
        JOIN up{_DOUBLINGS - 1} AS up ON up.series = legs.series AND up.way = legs.way
        JOIN joined_ways AS known ON known.series = up.root_series AND known.way = up.root
)
SELECT way, began_in, kind, series, leg.src, leg.dst, leg.conn_id, leg.file, leg.packet, leg.part,
    leg.time_ns - ahead_ns AS time_ns, leg.seen_ns - ahead_ns AS seen_ns, leg.reply, leg.joined, leg.certain
FROM told
WHERE rank = 1
"""


_CLOCKS = f"""
WITH windows AS (
    SELECT one, other, min(one_ns) - min(one_ns) % {_WINDOW_NS} + CAST(floor(avg(one_ns % {_WINDOW_NS})) AS BIGINT)
            AS at_ns,
        min(CASE WHEN forth = client_is_at_one THEN other_ns - one_ns END) AS quickest,
        max(CASE WHEN forth <> client_is_at_one THEN other_ns - one_ns END) AS quickest_back
    FROM seen_twice
    GROUP BY one, other, one_ns - one_ns % {_WINDOW_NS}
), measured AS (
    SELECT one, other, at_ns, quickest - quickest_back AS round_trip_ns,
        quickest_back + (quickest - quickest_back) / 2 AS difference_ns,
        min(quickest - quickest_back) OVER (PARTITION BY one, other) AS least_ns,
        min(at_ns) OVER (PARTITION BY one, other) AS first_ns
    FROM windows
    WHERE quickest IS NOT NULL AND quickest_back IS NOT NULL
)
SELECT one, other, min(first_ns) AS at_ns,
    CAST(round(CASE WHEN min(at_ns) < max(at_ns) THEN regr_intercept(difference_ns, (at_ns - first_ns) / 1e9)
        ELSE avg(difference_ns) END) AS BIGINT) AS difference_ns,
    CASE WHEN min(at_ns) < max(at_ns) THEN regr_slope(difference_ns, (at_ns - first_ns) / 1e9) ELSE 0 END / 1000
        AS drift_ppm,
    CAST(round(min(least_ns) / 2) AS BIGINT) AS uncertainty_ns,
    count(*) AS windows
FROM measured
WHERE round_trip_ns <= 2 * least_ns + 1000000
GROUP BY one, other
"""

_EXCHANGES = f"""
WITH asked AS (
    SELECT *, 'REQ' IN (client_type, server_type) OR 'REP' NOT IN (client_type, server_type) AS in_step, CASE
        WHEN 'REQ' IN (client_type, server_type) OR 'REP' IN (client_type, server_type)
            THEN client_type = 'REQ' OR server_type = 'REP'
        ELSE min(CASE WHEN forth THEN one_ns END) OVER (PARTITION BY conn_id, one, other, client, other_client)
            < min(CASE WHEN NOT forth THEN one_ns END) OVER (PARTITION BY conn_id, one, other, client, other_client)
        END AS client_asks
    FROM seen_twice
    WHERE kind = {_MESSAGES} AND (client_type IN ('REQ', 'DEALER') AND server_type IN ('REP', 'ROUTER')
        OR server_type IN ('REQ', 'DEALER') AND client_type IN ('REP', 'ROUTER'))
), said AS (
    SELECT *, forth = client_asks AS asks, client_is_at_one = client_asks AS asker_is_at_one FROM asked
), timed AS (
    SELECT conn_id, one, other, client, server, number, in_step,
        max(CASE WHEN asker_is_at_one THEN one ELSE other END) AS asked_in,
        max(CASE WHEN asker_is_at_one THEN other ELSE one END) AS answered_in,
        max(CASE WHEN asks THEN CASE WHEN asker_is_at_one THEN one_ns ELSE other_ns END END) AS request_left_ns,
        max(CASE WHEN asks THEN CASE WHEN asker_is_at_one THEN other_ns ELSE one_ns END END) AS request_came_ns,
        max(CASE WHEN NOT asks THEN CASE WHEN asker_is_at_one THEN other_ns ELSE one_ns END END) AS reply_left_ns,
        max(CASE WHEN NOT asks THEN CASE WHEN asker_is_at_one THEN one_ns ELSE other_ns END END) AS reply_came_ns,
        max(CASE WHEN asks THEN one_ns END) AS one_ns
    FROM said
    GROUP BY conn_id, one, other, client, server, number, in_step
), checked AS (
    SELECT *, lead(request_left_ns) OVER (PARTITION BY conn_id, one, other, client, server ORDER BY number) AS next_ns,
        lag(reply_came_ns) OVER (PARTITION BY conn_id, one, other, client, server ORDER BY number) AS before_ns
    FROM timed
    WHERE request_left_ns IS NOT NULL
), whole AS (
    SELECT *, row_number() OVER (PARTITION BY conn_id, number
        ORDER BY reply_left_ns - request_came_ns, asked_in, answered_in, client) AS place
    FROM checked
    WHERE reply_came_ns >= request_left_ns AND reply_left_ns >= request_came_ns
        AND (NOT in_step OR coalesce(next_ns >= reply_came_ns, true) AND coalesce(before_ns <= request_left_ns, true))
), shifted AS (
    SELECT whole.*, CASE WHEN asked_in = clocks.one THEN 1 ELSE -1 END
        * CAST(round(difference_ns + drift_ppm * 1000 * (one_ns - at_ns) / 1e9) AS BIGINT) AS ahead_ns
    FROM whole JOIN clocks ON whole.one = clocks.one AND whole.other = clocks.other
    WHERE place = 1
)
SELECT conn_id, number, client, server, asked_in, answered_in, request_left_ns, request_came_ns, reply_left_ns,
    reply_came_ns, request_came_ns - request_left_ns - ahead_ns AS there_ns,
    reply_left_ns - request_came_ns AS service_ns, reply_came_ns - reply_left_ns + ahead_ns AS back_ns
FROM shifted
"""

_REQUESTS = """
SELECT date, series, conn_id, src AS service, dst AS client, time_ns - latency_ns AS request_ns, time_ns AS reply_ns,
    latency_ns, true AS answered
FROM messages
WHERE latency_ns IS NOT NULL
UNION ALL
SELECT problems.date, problems.series, problems.conn_id, problems.dst, problems.src, problems.time_ns, NULL, NULL, false
FROM problems LEFT JOIN messages ON problems.series = messages.series AND problems.conn_id = messages.conn_id
    AND problems.file = messages.request_file AND problems.packet = messages.request
WHERE problems.code = 'request-unanswered' AND messages.conn_id IS NULL
"""


def views(since_ns: int = 0, unnest: str = "unnest") -> dict[str, str]:
    """The queries by the names of the views that they make, in the order in which they need each other.

    ``elsewhere`` has the vantage points that are not counted: all of a connection but the one that has most messages,
    commands and subscriptions of it, then most octets. The names of tables are these tables without what is elsewhere.

    ``requests`` has each request with its reply, or with the problem ``request-unanswered``; of several that nobody
    answers on one connection only the first has that. ``seen_twice`` has each record that two series have of
    connections that began at ``since_ns`` or later, nanoseconds since the Unix epoch. ``clocks`` has a row for each two
    series ``one`` and ``other``: by how much the clock of ``other`` was ahead at ``at_ns``, how much it gained
    (microseconds a second), half of the least round trip, of how many windows of ten seconds. ``exchanges`` has a row
    for each request with its reply between REQ or DEALER and REP or ROUTER that both ends have: when it left, came, and
    the reply left and came, each by the clock there, and how long it took on the network there, in the service, and
    back, all in nanoseconds. Between DEALER and ROUTER the side that speaks first asks, and nobody knows which reply is
    whose while several requests are under way. ``way_legs`` has the legs of ways over all series, each message once:
    the way, the series ``began_in`` where it begins, by whose clock the times are, and the series that has the leg.
    ``unnest`` is the function of the engine that makes rows of a list, ``explode`` for Spark.
    """
    return {
        ELSEWHERE: _POINTS_ELSEWHERE,
        **{table: f"SELECT * FROM all_{table}" if table in WHOLE else _once(table) for table in TABLES},
        "requests": _REQUESTS,
        "points": _points(since_ns),
        "filed": _FILED,
        "numbered": _numbered(),
        "facing": _FACING,
        "seen_twice": _TWICE,
        "clocks": _CLOCKS,
        "exchanges": _EXCHANGES,
        "placed_legs": _placed_legs(unnest),
        "joined_ways": _JOINED_WAYS,
        "way_legs": _way_legs(),
    }
