"""The questions of a report in DuckDB's SQL, over the views of :mod:`zmtpsniff.spark.report.vantage`.

None has an order or a limit where hostile peers choose how many groups there are, as they do of names, topics and
addresses: who asks adds them, and only the first rows are ever collected. They also choose the lengths that their
frames claim, so sums of these must not fail: they are made of 128 bits, and cut. Windows have sums where a count with
FILTER would say the same, for DuckDB takes twenty times as long for that.
"""

from dissectors.events import SEVERITIES
from dissectors.problems import BLINDING
from zmtpsniff.analysis.statistics.activity import STEPS
from zmtpsniff.analysis.statistics.sketch import PER_E

_MOST = (1 << 63) - 1


def _host(address: str) -> str:
    """The host of a column with addresses."""
    return f"regexp_replace({address}, ':[0-9]+$', '')"


def _sum(column: str) -> str:
    return f"least(coalesce(sum({column}), 0), {_MOST})::BIGINT"


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
SELECT {_host("client")} AS client, server, client_socket_type, server_socket_type, {_COUNTS},
    {", ".join(f"{_sum(each)} AS {each}" for each in SEVERITIES)}
FROM (SELECT *, {_AGAIN} AS again FROM connections) AS told
    LEFT JOIN faults ON told.series = faults.series AND told.conn_id = faults.conn_id AND again = 1
GROUP BY {_host("client")}, server, client_socket_type, server_socket_type
"""
"""The pairs of a host and a bound address that it connects to."""

SOCKETS = f"""
SELECT server AS address, {_COUNTS}
FROM connections
GROUP BY ALL
"""
"""Bound addresses."""

NAMES_OF_SOCKETS = """
WITH named AS (
    SELECT server, unnest([
        {kind: 'socket_types', name: server_socket_type}, {kind: 'peer_socket_types', name: client_socket_type},
        {kind: 'versions', name: version}, {kind: 'mechanisms', name: mechanism}], recursive := true)
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

TIMELINE = f"""
SELECT server AS service, time_ns // $interval * $interval AS start_ns, count(*) AS messages,
    {_sum("size")} AS octets
FROM messages JOIN (SELECT DISTINCT series, conn_id, server FROM connections) USING (series, conn_id)
WHERE server IN (SELECT unnest($services::VARCHAR[]))
GROUP BY ALL
UNION ALL
SELECT NULL, time_ns // $interval * $interval AS start_ns, count(*), {_sum("size")}
FROM messages
GROUP BY ALL
"""
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

REPLIES = f"""
WITH conversations AS MATERIALIZED (
    SELECT series, conn_id, row_number() OVER () AS conversation, server AS service,
        CASE WHEN client_socket_type = 'REQ' OR server_socket_type = 'REP' THEN client ELSE server END AS requester,
        'REQ' IN (client_socket_type, server_socket_type) AS in_step,
        'REP' IN (client_socket_type, server_socket_type) AS in_order,
        NOT (in_step OR in_order) AS is_free
    FROM connections
    WHERE (client_socket_type, server_socket_type) IN (('REQ', 'REP'), ('REQ', 'ROUTER'), ('DEALER', 'REP'),
        ('REP', 'REQ'), ('ROUTER', 'REQ'), ('REP', 'DEALER'), ('DEALER', 'ROUTER'), ('ROUTER', 'DEALER'),
        ('DEALER', 'DEALER'), ('ROUTER', 'ROUTER'))
    QUALIFY row_number() OVER (PARTITION BY series, conn_id ORDER BY start_ns) = 1
), delimited AS (
    SELECT conversation, time_ns, file, packet, part, src, incomplete, len(frames) AS parts,
        coalesce(list_position(list_transform(frames, lambda frame: frame.length), 0), 0) AS delimiter,
        CASE WHEN delimiter < 2 THEN 0
            ELSE hash(list_transform(frames, lambda frame: frame.data)[1:delimiter - 1]) END AS key
    FROM messages JOIN conversations USING (series, conn_id)
    WHERE socket_type IN ('REQ', 'REP', 'DEALER', 'ROUTER')
), said AS (
    SELECT conversation, time_ns, file, packet, part, src, false AS lost, key
    FROM delimited JOIN conversations USING (conversation)
    WHERE (delimiter > 0 AND delimiter < parts) OR (incomplete AND NOT is_free)
    UNION ALL
    SELECT conversation, time_ns, file, packet, 0, NULL, true, 0
    FROM problems JOIN conversations USING (series, conn_id)
    WHERE code IN {tuple(BLINDING)}
), first_to_speak AS (
    SELECT conversation, key <> 0 AS has_identities, arg_min(src, (time_ns, file, packet, part)) AS speaker
    FROM said
    WHERE NOT lost
    GROUP BY conversation, key <> 0
), steps AS (
    SELECT conversation, time_ns, file, packet, part, in_step, in_order, is_free, lost, key,
        CASE WHEN lost THEN 0 WHEN src = CASE WHEN is_free THEN speaker ELSE requester END THEN 1 ELSE -1 END AS step
    FROM said JOIN conversations USING (conversation)
        LEFT JOIN first_to_speak ON said.conversation = first_to_speak.conversation AND has_identities = (key <> 0)
), placed AS (
    SELECT *, row_number() OVER places AS place, sum(lost::INTEGER) OVER places AS losses
    FROM steps
    WINDOW places AS (PARTITION BY conversation ORDER BY time_ns, file, packet, lost DESC, step DESC, part
        ROWS UNBOUNDED PRECEDING)
), balanced AS (
    SELECT conversation, losses, key, place, time_ns, in_step, in_order, is_free, step,
        sum(step) OVER waiting AS balance,
        sum((step = 1)::INTEGER) OVER waiting AS requests,
        sum((step = -1)::INTEGER) OVER waiting AS replies,
        min(losses) OVER (PARTITION BY conversation) AS losses_before_all
    FROM placed
    WHERE NOT lost AND (in_step OR losses = 0 OR key <> 0)
    WINDOW waiting AS (PARTITION BY conversation, losses, key ORDER BY place ROWS UNBOUNDED PRECEDING)
), owed AS (
    SELECT *, least(0, min(balance) OVER (waiting ROWS UNBOUNDED PRECEDING)) AS unasked,
        least(0, min(balance) OVER (waiting ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS unasked_before
    FROM balanced
    WHERE NOT (is_free AND losses_before_all > 0)
    WINDOW waiting AS (PARTITION BY conversation, losses, key ORDER BY place)
), alone AS (
    SELECT *, max(balance - unasked) OVER (PARTITION BY conversation ORDER BY place ROWS UNBOUNDED PRECEDING) AS most,
        lag(step) OVER waiting AS step_before, lag(time_ns) OVER waiting AS before_ns,
        lag(balance - unasked) OVER waiting AS waited_before
    FROM owed
    WINDOW waiting AS (PARTITION BY conversation, losses, key ORDER BY place)
), paired AS (
    SELECT conversation, max(CASE WHEN step = 1 THEN time_ns END) AS asked_ns,
        max(CASE WHEN step = -1 THEN time_ns END) AS time_ns
    FROM owed
    WHERE in_order AND (step = 1 OR unasked = unasked_before) AND (step = 1 OR losses = 0 OR in_step OR replies > 1)
    GROUP BY conversation, losses, key, CASE WHEN step = 1 THEN requests ELSE replies + unasked END
    UNION ALL
    SELECT conversation, before_ns, time_ns
    FROM alone
    WHERE NOT in_order AND step = -1 AND step_before = 1 AND waited_before = 1
        AND (losses = 0 OR most = 1 AND (in_step OR replies > 1)) AND NOT (is_free AND unasked < 0)
)
SELECT service, time_ns, greatest(time_ns - asked_ns, 0) AS latency_ns
FROM paired JOIN conversations USING (conversation)
WHERE time_ns IS NOT NULL AND asked_ns IS NOT NULL
"""
"""Each reply with its service (the bound address) and how long it took.

A reply has the envelope of its request: all frames before the delimiter. A REP answers in order, so the n-th reply with
an envelope answers the n-th request with it. Of any other socket a reply is told only if no second request with its
envelope waited. Where octets are missing, what waited before is forgotten, and so is the first reply with each
envelope after that, whose request may be missing. Where neither is a REQ or a REP, the side
that speaks first asks; once a reply comes unasked, nobody knows any more which message with its envelope answers which.
"""

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

LATENCIES = f"""
SELECT service, CASE WHEN latency_ns > 0 THEN ceil(ln(latency_ns) * {PER_E!r})::INTEGER END AS bucket,
    count(*) AS count, min(latency_ns) AS min_ns, max(latency_ns) AS max_ns
FROM replies
WHERE service IN (SELECT unnest($services::VARCHAR[]))
GROUP BY ALL
UNION ALL
SELECT NULL, CASE WHEN latency_ns > 0 THEN ceil(ln(latency_ns) * {PER_E!r})::INTEGER END AS bucket,
    count(*), min(latency_ns), max(latency_ns)
FROM replies
GROUP BY ALL
"""
"""How many replies of some services, and of all, took about as long, by the buckets of a sketch."""

ANSWERING = "SELECT service, count(*) AS count FROM replies GROUP BY ALL"
"""Services by their replies."""

REPLIES_BY_TIME = f"""
WITH steps AS (
    SELECT service, time_ns // $interval * $interval AS start_ns,
        CASE WHEN latency_ns > 1 THEN floor(log10(latency_ns) * {STEPS})::INTEGER ELSE 0 END AS step
    FROM replies
)
SELECT service, start_ns, step, count(*) AS count
FROM steps
WHERE service IN (SELECT unnest($services::VARCHAR[]))
GROUP BY ALL
UNION ALL
SELECT NULL, start_ns, step, count(*)
FROM steps
GROUP BY start_ns, step
"""
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
WITH sent AS (
    SELECT series, conn_id, {{time_ns: time_ns, file: file, packet: packet}} AS place, size,
        hex(frames[1].data[1:1024]) AS begin
    FROM messages
    WHERE socket_type IN ('PUB', 'XPUB')
), told AS (
    SELECT series, conn_id, {{time_ns: time_ns, file: file, packet: packet}} AS place, topic,
        CASE WHEN action = 'subscribe' THEN 1 ELSE -1 END AS step,
        incomplete OR topic.length <> octet_length(topic.data) AS is_cut
    FROM subscriptions
), counted AS (
    SELECT series, conn_id, place, topic, is_cut,
        sum(step) OVER (PARTITION BY series, conn_id, topic ORDER BY place ROWS UNBOUNDED PRECEDING) AS balance,
        lead(place) OVER (PARTITION BY series, conn_id, topic ORDER BY place) AS until
    FROM told
), held AS (
    SELECT series, conn_id, place, until, topic, is_cut, balance - least(0, min(balance) OVER (
        PARTITION BY series, conn_id, topic ORDER BY place ROWS UNBOUNDED PRECEDING)) AS times
    FROM counted
), matching AS (
    SELECT series, conn_id, list({{length: topic.length, begin: hex(topic.data), data: topic.data, place: place,
            until: until}} ORDER BY topic.length) AS topics,
        min(CASE WHEN is_cut THEN place END) AS given_up
    FROM held
    WHERE times > 0 OR is_cut
    GROUP BY series, conn_id
    HAVING count(*) <= 1000
), matched AS (
    SELECT size, list_filter(topics, lambda one: starts_with(begin, one.begin) AND sent.place >= one.place
            AND (one.until IS NULL OR sent.place < one.until) AND (given_up IS NULL OR sent.place < given_up))[1]
        AS topic
    FROM sent JOIN matching USING (series, conn_id)
), volume AS (
    SELECT topic, count(*) AS messages, {_sum("size")} AS octets
    FROM (
        SELECT {_FIRST.format("topic")} AS topic, size FROM matched WHERE topic IS NOT NULL
        UNION ALL
        SELECT {_FIRST.format("frames[1]")}, size FROM messages WHERE socket_type = 'RADIO'
    )
    GROUP BY topic
), changes AS (
    SELECT series, conn_id, {_FIRST.format("topic")} AS topic, place, step FROM told
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
"""Topics as they were subscribed to, with the messages that they matched.

Of several subscriptions of a connection that a message matched at its time the shortest one counts. What connections
receive that have changed their subscriptions more than a thousand times is left out; 255 octets of a topic are kept."""

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
