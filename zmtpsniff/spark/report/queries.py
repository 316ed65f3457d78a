"""The questions of a report in Spark's SQL, over the tables of :mod:`zmtpsniff.spark.tables`.

``docs/spark-notebook.ipynb`` asks the same. None has an order or a limit: who asks adds them. Hostile peers choose
names, topics and addresses, and so how many groups there are; only the first of them are ever collected. They also
choose the lengths that their frames claim, so sums of these must not fail: ``try_sum``.
"""

_MOST = (1 << 63) - 1


def host(address: str) -> str:
    """The host of a column with addresses."""
    return f"regexp_replace({address}, ':[0-9]+$', '')"


TOTAL = """
SELECT *
FROM (
    SELECT count(*) AS files, coalesce(sum(packets), 0) AS packets, coalesce(sum(dropped), 0) AS dropped
    FROM captures
), (
    SELECT count(*) AS connections, coalesce(sum(client_octets + server_octets), 0) AS octets,
        min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM connections
), (
    SELECT count(*) AS messages, min(time_ns) AS first_ns, max(time_ns) AS last_ns FROM messages
), (
    SELECT count(*) AS encrypted FROM commands WHERE name = 'MESSAGE' AND box IS NOT NULL AND time_ns >= :since
), (
    SELECT count(*) AS problems FROM problems
)
"""
"""What there is; ``:since`` is the begin of the time that is asked for, in nanoseconds."""

_COUNTS = """count(*) AS connections, count_if(`end` = 'open') AS open,
    sum(client_messages) AS messages_in, sum(server_messages) AS messages_out,
    sum(client_octets) AS octets_in, sum(server_octets) AS octets_out,
    min(start_ns) AS start_ns, max(end_ns) AS end_ns"""

PAIRS = f"""
SELECT {host("client")} AS client, server, client_socket_type, server_socket_type,
    {_COUNTS}
FROM connections
GROUP BY ALL
"""
"""Who talks to whom."""

SOCKETS = f"""
SELECT server AS address,
    {_COUNTS}
FROM connections
GROUP BY ALL
"""
"""Bound addresses."""

NAMES_OF_SOCKETS = """
WITH named AS (
    SELECT server, stack(4, 'socket_types', server_socket_type, 'peer_socket_types', client_socket_type,
        'versions', version, 'mechanisms', mechanism) AS (kind, name)
    FROM connections
    WHERE array_contains(from_json(:addresses, 'ARRAY<STRING>'), server)
), counted AS (
    SELECT server, kind, name, count(*) AS connections FROM named WHERE name IS NOT NULL GROUP BY ALL
)
SELECT server, kind, name, connections
FROM counted
QUALIFY row_number() OVER (PARTITION BY server, kind ORDER BY connections DESC, name) <= 10
"""
"""The types, versions and mechanisms of some bound addresses, of each at most ten."""

AGREEMENTS = """
SELECT version, mechanism, count(*) AS connections FROM connections GROUP BY ALL
"""
"""Versions and mechanisms that connections agreed on."""

AGREEMENTS_BY_TIME = """
SELECT start_ns DIV :interval * :interval AS start_ns, version, mechanism, count(*) AS connections
FROM connections
GROUP BY ALL
"""
"""The same by the interval in which connections began."""

TIMELINE = f"""
SELECT time_ns DIV :interval * :interval AS start_ns, count(*) AS messages,
    coalesce(try_sum(size), {_MOST}) AS octets
FROM messages
GROUP BY ALL
"""
"""Messages by interval of time."""

PROBLEMS = f"""
SELECT {host("src")} AS host, severity, code, count(*) AS count,
    min(struct(coalesce(time_ns, {_MOST}) AS time_ns, file, packet, detail)) AS first
FROM problems
GROUP BY ALL
"""
"""Problems by the host that sent what is wrong."""

STORMS = f"""
WITH ends AS (
    SELECT series, {host("client")} AS client, server, start_ns, end_ns, handshake,
        `end` IN ('fin', 'rst') AND end_ns - start_ns <= 1000000000 AND client_messages + server_messages = 0
            AND NOT handshake <=> 'not-seen' AS short
    FROM connections
), begun AS (
    SELECT *, NOT short OR NOT lag(short, 1, false) OVER in_order OR start_ns - lag(start_ns) OVER in_order > 2000000000
        AS begins
    FROM ends
    WINDOW in_order AS (PARTITION BY series, client, server ORDER BY end_ns, start_ns)
), rows_of AS (
    SELECT *, count_if(begins) OVER (PARTITION BY series, client, server ORDER BY end_ns, start_ns
        ROWS UNBOUNDED PRECEDING) AS row_of
    FROM begun
)
SELECT client, server, count(*) AS connections, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
    max_by(handshake, end_ns) AS handshake
FROM rows_of
WHERE short
GROUP BY series, client, server, row_of
HAVING count(*) >= 5
"""
"""Connections of a host in a row that ended soon, without a message, by the rule of the problem reconnect-storm."""

REPLIES = """
WITH exchanges AS (
    SELECT series, conn_id, server AS service,
        (client_socket_type, server_socket_type) IN (('REQ', 'REP'), ('REQ', 'ROUTER'), ('DEALER', 'REP')) AS forth,
        client, server, 'REQ' IN (client_socket_type, server_socket_type) AS in_step
    FROM connections
    WHERE (client_socket_type, server_socket_type) IN (('REQ', 'REP'), ('REQ', 'ROUTER'), ('DEALER', 'REP'),
        ('REP', 'REQ'), ('ROUTER', 'REQ'), ('REP', 'DEALER'))
), delimited AS (
    SELECT series, conn_id, time_ns, file, packet, src, incomplete, frames,
        array_position(transform(frames, frame -> frame.length), 0L) AS delimiter
    FROM messages
    WHERE socket_type IN ('REQ', 'REP', 'DEALER', 'ROUTER')
), said AS (
    SELECT series, conn_id, time_ns, file, packet, src,
        IF(delimiter > 1, xxhash64(transform(slice(frames, 1, int(delimiter) - 1), frame -> frame.data)), 0L) AS key,
        false AS lost
    FROM delimited
    WHERE incomplete OR (delimiter > 0 AND delimiter < size(frames))
    UNION ALL
    SELECT series, conn_id, time_ns, file, packet, NULL, 0L, true
    FROM problems
    WHERE conn_id IS NOT NULL AND code IN ('capture-gap', 'packets-cut', 'no-greeting', 'one-direction', 'frames-lost',
        'frames-found-again', 'message-too-large')
), after_losses AS (
    SELECT said.*, service, in_step, IF(lost, 0, IF(src = IF(forth, client, server), 1, -1)) AS step,
        count_if(lost) OVER (PARTITION BY series, conn_id ORDER BY time_ns, file, packet, lost DESC
            ROWS UNBOUNDED PRECEDING) AS losses
    FROM said JOIN exchanges USING (series, conn_id)
), balanced AS (
    SELECT *, sum(step) OVER in_order AS balance
    FROM after_losses
    WHERE NOT lost AND (in_step OR losses = 0 OR key <> 0)
    WINDOW in_order AS (PARTITION BY series, conn_id, losses, key ORDER BY time_ns, file, packet, step DESC
        ROWS UNBOUNDED PRECEDING)
), owed AS (
    SELECT *, least(0, min(balance) OVER (PARTITION BY series, conn_id, losses, key
        ORDER BY time_ns, file, packet, step DESC ROWS UNBOUNDED PRECEDING)) AS unasked
    FROM balanced
), answered AS (
    SELECT *, step = -1 AND unasked = coalesce(lag(unasked) OVER in_order, 0) AS answers
    FROM owed
    WINDOW in_order AS (PARTITION BY series, conn_id, losses, key ORDER BY time_ns, file, packet, step DESC)
), numbered AS (
    SELECT *, IF(step = 1, count_if(step = 1) OVER in_order, count_if(answers) OVER in_order) AS number
    FROM answered
    WINDOW in_order AS (PARTITION BY series, conn_id, losses, key ORDER BY time_ns, file, packet, step DESC
        ROWS UNBOUNDED PRECEDING)
), paired AS (
    SELECT any_value(service) AS service, max(IF(step = 1, time_ns, NULL)) AS asked_ns,
        max(IF(answers, time_ns, NULL)) AS time_ns
    FROM numbered
    WHERE step = 1 OR answers
    GROUP BY series, conn_id, losses, key, number
)
SELECT service, time_ns, time_ns - asked_ns AS latency_ns
FROM paired
WHERE time_ns IS NOT NULL
"""
"""Each reply with its service (the bound address) and how long it took.

The n-th reply answers the n-th request of the connection that has the same identities in front of its delimiter;
a reply while no request waits answers none. Where octets are missing, what waited before is forgotten. Between DEALER
and ROUTER either side may ask, and the messages themselves do not tell: those connections are left out."""

LATENCIES = f"""
WITH replies AS ({REPLIES}), quantiles AS (
    SELECT service, hour_ns, count(*) AS count, min(latency_ns) AS min_ns, max(latency_ns) AS max_ns,
        approx_percentile(latency_ns, array(0.5, 0.95, 0.99), 1000) AS percentiles,
        grouping(service) AS all_services, grouping(hour_ns) AS all_hours
    FROM (SELECT service, time_ns DIV 3600000000000 * 3600000000000 AS hour_ns, latency_ns FROM replies)
    GROUP BY GROUPING SETS ((), (service), (service, hour_ns))
)
SELECT service, hour_ns, count, min_ns, percentiles[0] AS p50_ns, percentiles[1] AS p95_ns, percentiles[2] AS p99_ns,
    max_ns, all_services = 1 AS all_services, all_hours = 1 AS all_hours
FROM quantiles
WHERE count > 0
"""
"""Percentiles of all replies, of each service, and of each service by the hour in which replies came."""

_NAME = "named_struct('length', {0}.length, 'data', substring({0}.data, 1, 255))"

TOPICS = f"""
WITH sent AS (
    SELECT series, conn_id, struct(time_ns, file, packet) AS place, size,
        named_struct('length', frames[0].length, 'data', substring(frames[0].data, 1, 1024)) AS first
    FROM messages
    WHERE socket_type IN ('PUB', 'XPUB', 'RADIO')
), told AS (
    SELECT series, conn_id, struct(time_ns, file, packet) AS place, topic,
        IF(action = 'subscribe', 1, -1) AS step,
        incomplete OR topic.length <> octet_length(topic.data) AS cut
    FROM subscriptions
), counted AS (
    SELECT series, conn_id, place, topic, cut, sum(step) OVER in_order AS balance,
        lead(place) OVER (PARTITION BY series, conn_id, topic ORDER BY place) AS until
    FROM told
    WINDOW in_order AS (PARTITION BY series, conn_id, topic ORDER BY place ROWS UNBOUNDED PRECEDING)
), held AS (
    SELECT series, conn_id, place, until, topic, cut, balance - least(0, min(balance) OVER (
        PARTITION BY series, conn_id, topic ORDER BY place ROWS UNBOUNDED PRECEDING)) AS times
    FROM counted
), matching AS (
    SELECT series, conn_id, collect_list(struct(topic.length, topic.data, place, until)) AS topics,
        min(IF(cut, place, NULL)) AS given_up
    FROM held
    WHERE times > 0 OR cut
    GROUP BY series, conn_id
    HAVING count(*) <= 1000
), matched AS (
    SELECT size, first, array_min(transform(
        filter(topics, one -> startswith(first.data, one.data) AND sent.place >= one.place
            AND (one.until IS NULL OR sent.place < one.until) AND (given_up IS NULL OR sent.place < given_up)),
        one -> named_struct('length', one.length, 'data', one.data))) AS topic
    FROM sent LEFT JOIN matching USING (series, conn_id)
), volume AS (
    SELECT IF(topic IS NULL, {_NAME.format("first")}, {_NAME.format("topic")}) AS topic,
        count(*) AS messages, coalesce(try_sum(size), {_MOST}) AS octets
    FROM matched
    GROUP BY 1
), changes AS (
    SELECT series, conn_id, {_NAME.format("topic")} AS topic, place, step FROM told
    UNION ALL
    SELECT series, conn_id, {_NAME.format("`group`")}, struct(time_ns, file, packet), IF(name = 'JOIN', 1, -1)
    FROM commands
    WHERE name IN ('JOIN', 'LEAVE') AND `group` IS NOT NULL
), effective AS (
    SELECT series, conn_id, topic, place, step
    FROM changes
    QUALIFY step <> lag(step, 1, -1) OVER (PARTITION BY series, conn_id, topic ORDER BY place)
), ended AS (
    SELECT series, conn_id, topic, struct(end_ns AS time_ns, '' AS file, {_MOST} AS packet) AS place, -1 AS step
    FROM (SELECT series, conn_id, topic FROM effective GROUP BY ALL HAVING sum(step) = 1)
    JOIN connections USING (series, conn_id)
    WHERE `end` <> 'open'
), followed AS (
    SELECT topic, sum(step) OVER (PARTITION BY topic ORDER BY place, step ROWS UNBOUNDED PRECEDING) AS subscribers, step
    FROM (SELECT * FROM effective UNION ALL SELECT * FROM ended)
), audience AS (
    SELECT topic, sum(step) AS subscribers, max(subscribers) AS subscribers_most FROM followed GROUP BY topic
)
SELECT coalesce(volume.topic, audience.topic) AS topic,
    coalesce(messages, 0) AS messages, coalesce(octets, 0) AS octets,
    coalesce(audience.subscribers, 0) AS subscribers, coalesce(subscribers_most, 0) AS subscribers_most
FROM volume FULL OUTER JOIN audience ON volume.topic = audience.topic
"""
"""Topics by volume and subscribers.

The topic of a message is the shortest subscription of its connection that it begins with at that time, or its first
frame if none is known or the connection has changed its subscriptions more than a thousand times; 255 octets of it are
kept."""
