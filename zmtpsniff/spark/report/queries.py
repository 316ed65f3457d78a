"""The questions of a report in DuckDB's SQL, over the views of :mod:`zmtpsniff.spark.report.vantage`.

No query has an order or a limit where hostile peers choose how many groups there are, as they do of names, topics and
addresses: who asks adds them, and only the first rows are ever collected. They also choose the lengths that their
frames claim, so sums of these must not fail: they are made of 128 bits, and cut. Windows have sums where a count with
FILTER would say the same, for DuckDB takes twenty times as long for that.
"""

from dissectors.events import SEVERITIES
from zmtpsniff.analysis.statistics.activity import STEPS
from zmtpsniff.analysis.statistics.sketch import PER_E

_MOST = (1 << 63) - 1


def _host(address: str) -> str:
    """The host of a column with addresses."""
    return f"regexp_replace({address}, ':[0-9]+$', '')"


def _kind(side: str) -> str:
    """The type of the socket of a side, or the two that it may have."""
    return f"({side}_socket_type || coalesce(' or ' || {side}_lookalike, ''))"


def _sum(column: str) -> str:
    return f"least(coalesce(sum({column}), 0), {_MOST})::BIGINT"


_INTERVAL = "time_ns // $interval * $interval"


def _of_services(table: str, keys: dict[str, str], sums: str) -> str:
    """Sums over the rows of a table with the same keys: of some services, and of all, which have no service."""
    return f"""
SELECT service, {", ".join(keys)}, {sums}
FROM (
    SELECT *, CASE WHEN server IN (SELECT unnest($services::VARCHAR[])) THEN server END AS service,
        {", ".join(f"{key} AS {name}" for name, key in keys.items())}
    FROM {table}
)
GROUP BY GROUPING SETS ((service, {", ".join(keys)}), ({", ".join(keys)}))
HAVING service IS NOT NULL OR grouping(service) = 1
"""


TOTAL = f"""
SELECT *
FROM (
    SELECT count(*) AS files, {_sum("packets")} AS packets, {_sum("dropped")} AS dropped,
        count(*) FILTER (WHERE condition <> 'whole') AS damaged
    FROM captures
), (
    SELECT count(*) AS connections, {_sum("client_octets::HUGEINT + server_octets")} AS octets,
        min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM connections
), (
    SELECT count(*) AS messages, min(time_ns) AS first_ns, max(time_ns) AS last_ns FROM messages
), (
    SELECT count(*) AS encrypted FROM commands WHERE name = 'MESSAGE' AND box IS NOT NULL AND time_ns >= $since
), (
    SELECT count(*) AS problems FROM problems
)
"""
"""The totals; ``$since`` is the beginning of the time in question, in nanoseconds."""

_COUNTS = f"""count(*) AS connections, count_if("end" = 'open') AS "open",
    {_sum("client_messages")} AS messages_in, {_sum("server_messages")} AS messages_out,
    {_sum("client_octets")} AS octets_in, {_sum("server_octets")} AS octets_out,
    min(start_ns) AS start_ns, max(end_ns) AS end_ns"""

_AGAIN = "row_number() OVER (PARTITION BY series, conn_id ORDER BY start_ns)"
"""Which of the rows of a connection one is: who replays a capture makes the same connection again."""

PAIRS = f"""
WITH faults AS (
    SELECT series, conn_id, {", ".join(f"count_if(severity = '{each}') AS {each}" for each in SEVERITIES)}
    FROM problems
    WHERE conn_id IS NOT NULL
    GROUP BY ALL
)
SELECT {_host("client")} AS client, server, {_kind("client")} AS client_socket_type,
    {_kind("server")} AS server_socket_type, {_COUNTS},
    {", ".join(f"{_sum(each)} AS {each}" for each in SEVERITIES)}
FROM (SELECT *, {_AGAIN} AS again FROM connections) AS told
    LEFT JOIN faults ON told.series = faults.series AND told.conn_id = faults.conn_id AND again = 1
GROUP BY {_host("client")}, server, {_kind("client")}, {_kind("server")}
"""
"""The pairs of a host and a bound address that it connects to."""

SOCKETS = f"""
SELECT server AS address, {_COUNTS}
FROM connections
GROUP BY ALL
"""
"""Bound addresses."""

NAMES_OF_SOCKETS = f"""
WITH named AS (
    SELECT server, unnest([
        {{kind: 'socket_types', name: {_kind("server")}}}, {{kind: 'peer_socket_types', name: {_kind("client")}}},
        {{kind: 'versions', name: version}}, {{kind: 'mechanisms', name: mechanism}}], recursive := true)
    FROM connections
    WHERE server IN (SELECT unnest($addresses::VARCHAR[]))
), counted AS (
    SELECT server, kind, name, count(*) AS connections FROM named WHERE name IS NOT NULL GROUP BY ALL
)
SELECT server, kind, name, connections
FROM counted
QUALIFY row_number() OVER (PARTITION BY server, kind ORDER BY connections DESC, name) <= 10
"""
"""The types, versions and mechanisms of some bound addresses, at most ten of each."""

VERSIONS = """
WITH kinds AS (
    SELECT version, mechanism, count(*) AS number
    FROM connections
    GROUP BY ALL
    ORDER BY number DESC, version, mechanism
    LIMIT $kinds
)
SELECT start_ns // $interval * $interval AS start_ns, version, mechanism, count(*) AS connections
FROM connections
WHERE EXISTS (FROM kinds WHERE kinds.version IS NOT DISTINCT FROM connections.version
    AND kinds.mechanism IS NOT DISTINCT FROM connections.mechanism)
GROUP BY ALL
"""
"""Versions and mechanisms that connections agreed on, by the interval in which they began; the most frequent ones."""

TIMELINE = _of_services("messages", {"start_ns": _INTERVAL}, f"count(*) AS messages, {_sum('size')} AS octets")
"""Messages by interval of time: of some services, and of all together."""

PROBLEMS = f"""
SELECT {_host("src")} AS host, severity, code, count(*) AS count,
    first({{time_ns: time_ns, file: file, packet: packet, detail: detail}}
        ORDER BY coalesce(time_ns, {_MOST}), file, packet, detail) AS first
FROM problems
GROUP BY ALL
"""
"""Problems by the host that sent what is wrong."""

STORMS = f"""
WITH ends AS (
    SELECT series, {_host("client")} AS client, server, start_ns, end_ns, handshake,
        connections.end IN ('fin', 'rst') AND end_ns - start_ns <= 1000000000 AND client_messages + server_messages = 0
            AND handshake IS DISTINCT FROM 'not-seen' AS is_short
    FROM connections
), begun AS (
    SELECT *, NOT is_short OR NOT lag(is_short, 1, false) OVER in_order
        OR start_ns - lag(start_ns) OVER in_order > 2000000000 AS begins
    FROM ends
    WINDOW in_order AS (PARTITION BY series, client, server ORDER BY end_ns, start_ns)
), rows_of AS (
    SELECT *, sum(CASE WHEN begins THEN 1 ELSE 0 END) OVER (PARTITION BY series, client, server
        ORDER BY end_ns, start_ns ROWS UNBOUNDED PRECEDING) AS row_of
    FROM begun
)
SELECT client, server, count(*) AS connections, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
    max_by(handshake, end_ns) AS handshake
FROM rows_of
WHERE is_short
GROUP BY series, client, server, row_of
HAVING count(*) >= 5
"""
"""Connections of a host in a row that ended soon, without a message, by the rule of the problem reconnect-storm.

Spark's SQL takes it, too: docs/spark-notebook.ipynb asks it there."""

REPLIES = "SELECT server, time_ns, latency_ns FROM messages WHERE latency_ns IS NOT NULL"
"""Each reply with its service (the bound address) and how long it took."""

DELAYS = """
SELECT server AS service, count(*) AS count,
    quantile_disc(there_ns, 0.5) AS there_p50_ns, quantile_disc(there_ns, 0.95) AS there_p95_ns,
    quantile_disc(service_ns, 0.5) AS service_p50_ns, quantile_disc(service_ns, 0.95) AS service_p95_ns,
    quantile_disc(back_ns, 0.5) AS back_p50_ns, quantile_disc(back_ns, 0.95) AS back_p95_ns
FROM exchanges
GROUP BY server
"""
"""Where requests and replies spent their time, if both ends have captured them.

``quantile_disc`` is the value at the nearest rank, which a sketch tells to within 1 %."""

CLOCKS = "SELECT one, other, at_ns, difference_ns, drift_ppm, uncertainty_ns FROM clocks"
"""By how much the clocks of series differ."""

LATENCIES = _of_services(
    "replies",
    {"bucket": f"CASE WHEN latency_ns > 0 THEN ceil(ln(latency_ns) * {PER_E!r})::INTEGER END"},
    "count(*) AS count, min(latency_ns) AS min_ns, max(latency_ns) AS max_ns",
)
"""How many replies of some services, and of all, took about as long, by the buckets of a sketch."""

ANSWERING = "SELECT server AS service, count(*) AS count FROM replies GROUP BY ALL"
"""Services by their replies."""

REPLIES_BY_TIME = _of_services(
    "replies",
    {
        "start_ns": _INTERVAL,
        "step": f"CASE WHEN latency_ns > 1 THEN floor(log10(latency_ns) * {STEPS})::INTEGER ELSE 0 END",
    },
    "count(*) AS count",
)
"""Replies by the interval in which they came and by how long they took."""

_FIRST = "{{length: {0}.length, data: {0}.data[1:255]}}"

TOPICS = f"""
SELECT {_FIRST.format("frames[1]")} AS topic, count(*) AS messages, {_sum("size")} AS octets
FROM messages
WHERE socket_type IN ('PUB', 'XPUB', 'RADIO')
GROUP BY ALL
"""
"""Topics as they were published: the first frames of messages, with 255 octets kept."""

SUBSCRIPTIONS = f"""
WITH volume AS (
    SELECT topic, count(*) AS messages, {_sum("size")} AS octets
    FROM (
        SELECT {_FIRST.format("matched")} AS topic, size FROM messages WHERE matched IS NOT NULL
        UNION ALL
        SELECT {_FIRST.format("frames[1]")}, size FROM messages WHERE socket_type = 'RADIO'
    )
    GROUP BY topic
), changes AS (
    SELECT series, conn_id, {_FIRST.format("topic")} AS topic,
        {{time_ns: time_ns, file: file, packet: packet}} AS place,
        CASE WHEN action = 'subscribe' THEN 1 ELSE -1 END AS step
    FROM subscriptions
    UNION ALL
    SELECT series, conn_id, {_FIRST.format('"group"')}, {{time_ns: time_ns, file: file, packet: packet}},
        CASE WHEN name = 'JOIN' THEN 1 ELSE -1 END
    FROM commands
    WHERE name IN ('JOIN', 'LEAVE') AND "group" IS NOT NULL
), effective AS (
    SELECT series, conn_id, topic, place, step
    FROM changes
    QUALIFY step <> lag(step, 1, -1) OVER (PARTITION BY series, conn_id, topic ORDER BY place)
), ended AS (
    SELECT series, conn_id, topic, {{time_ns: end_ns, file: '', packet: {_MOST}}} AS place, -1 AS step
    FROM (SELECT series, conn_id, topic FROM effective GROUP BY ALL HAVING sum(step) = 1)
    JOIN (FROM connections SELECT series, conn_id, "end", end_ns QUALIFY
        row_number() OVER (PARTITION BY series, conn_id ORDER BY end_ns DESC) = 1) USING (series, conn_id)
    WHERE "end" <> 'open'
), followed AS (
    SELECT topic, step,
        sum(step) OVER (PARTITION BY topic ORDER BY place, step ROWS UNBOUNDED PRECEDING) AS subscribers
    FROM (SELECT * FROM effective UNION ALL SELECT * FROM ended)
), audience AS (
    SELECT topic, sum(step)::BIGINT AS subscribers, max(subscribers)::BIGINT AS subscribers_most
    FROM followed
    GROUP BY topic
)
SELECT topic, coalesce(messages, 0) AS messages, coalesce(octets, 0) AS octets, subscribers, subscribers_most
FROM audience LEFT JOIN volume USING (topic)
"""
"""Topics as they were subscribed to, with the messages that they matched; 255 octets of a topic are kept."""

SERIES = f"""
SELECT series, count(*) AS files, {_sum("packets")} AS packets, {_sum("dropped")} AS dropped,
    count(*) FILTER (WHERE condition <> 'whole') AS damaged, min(first_ns) AS start_ns, max(last_ns) AS end_ns,
    avg(last_ns - first_ns) AS mean_ns
FROM captures
GROUP BY series
"""
"""Captures by series: whether they are all there."""

FILES = "SELECT file, condition, error FROM captures WHERE condition <> 'whole'"
"""Files that could not be read, or not to their ends."""

PRESENCES = f"""
WITH present AS (
    SELECT {_host("src")} AS host, time_ns // $interval AS place, count(*) AS messages FROM messages GROUP BY ALL
), still_open AS (
    SELECT host, count(*) AS "open"
    FROM (SELECT unnest([{_host("client")}, {_host("server")}]) AS host FROM connections WHERE "end" = 'open')
    GROUP BY host
)
SELECT host, sum(messages)::BIGINT AS messages, any_value("open") AS "open", list(place ORDER BY place) AS places
FROM present JOIN still_open USING (host)
GROUP BY host
HAVING max(place) < $last - 5
"""
"""Hosts with open connections that have not sent for a while: the intervals in which they did."""
