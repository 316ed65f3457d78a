"""The source of spark-notebook.ipynb: docs/make_notebook.py makes it, a test runs its cells."""

# ruff: noqa: E402

# %% [markdown]
# # Tables of ZeroMQ traffic, asked in SQL and with data frames
#
# `zmtpsniff spark ingest INPUT... --output /tables` has made the tables; [spark.md](spark.md) says what is in them.
# `ZMTPSNIFF_TABLES` names their folder, `ZMTPSNIFF_MASTER` where Spark runs (by default in this process).
# A connection is named by `series` and `conn_id` together; each is there once, however many hosts captured it.

# %%
import os

from pyspark.sql import functions as sql

from zmtpsniff.spark import get_session, open_tables

spark = get_session(os.environ.get("ZMTPSNIFF_MASTER"))
tables = open_tables(spark, os.environ.get("ZMTPSNIFF_TABLES", "/tables"))
connections, messages, problems = tables["connections"], tables["messages"], tables["problems"]

# %% [markdown]
# ## Who talks to whom

# %%
pairs_sql = spark.sql("""
    SELECT regexp_replace(client, ':[0-9]+$', '') AS client, server, count(*) AS connections,
        sum(client_messages) AS messages_in, sum(server_messages) AS messages_out
    FROM connections
    GROUP BY ALL
    ORDER BY messages_in + messages_out DESC, client, server
    LIMIT 20
""")
pairs_sql.show(truncate=False)

# %%
pairs = (
    connections.groupBy(sql.regexp_replace("client", ":[0-9]+$", "").alias("client"), "server")
    .agg(
        sql.count("*").alias("connections"),
        sql.sum("client_messages").alias("messages_in"),
        sql.sum("server_messages").alias("messages_out"),
    )
    .orderBy((sql.col("messages_in") + sql.col("messages_out")).desc(), "client", "server")
    .limit(20)
)
pairs.show(truncate=False)

# %% [markdown]
# ## Versions and mechanisms by hour
#
# The session's time zone is UTC, and so are hours.

# %%
versions_sql = spark.sql("""
    SELECT date_trunc('HOUR', start) AS hour, version, mechanism, count(*) AS connections
    FROM connections
    GROUP BY ALL
    ORDER BY hour, version, mechanism
    LIMIT 1000
""")
versions_sql.show()

# %%
versions = (
    connections.groupBy(sql.date_trunc("HOUR", "start").alias("hour"), "version", "mechanism")
    .agg(sql.count("*").alias("connections"))
    .orderBy("hour", "version", "mechanism")
    .limit(1000)
)
versions.show()

# %% [markdown]
# ## Messages of publishers by their first frame
#
# `frames` holds octets: their number on the wire, and those that were kept. Octets of a peer need not be text: group
# by octets. `zmtpsniff spark report` also finds the subscription that each message matched.

# %%
topics_sql = spark.sql("""
    SELECT substring(frames[0].data, 1, 255) AS topic, count(*) AS messages, try_sum(size) AS octets
    FROM messages
    WHERE socket_type IN ('PUB', 'XPUB', 'RADIO')
    GROUP BY ALL
    ORDER BY messages DESC, topic
    LIMIT 20
""")
topics_sql.show(truncate=40)

# %%
topics = (
    messages.where(sql.col("socket_type").isin("PUB", "XPUB", "RADIO"))
    .groupBy(sql.expr("substring(frames[0].data, 1, 255)").alias("topic"))
    .agg(sql.count("*").alias("messages"), sql.try_sum("size").alias("octets"))
    .orderBy(sql.col("messages").desc(), "topic")
    .limit(20)
)
topics.show(truncate=40)

# %% [markdown]
# ## How long replies took, by service and hour

# %%
latency_sql = spark.sql("""
    SELECT server AS service, date_trunc('HOUR', time) AS hour, count(*) AS replies,
        approx_percentile(latency_ns, array(0.5, 0.95, 0.99)) AS p50_p95_p99_ns
    FROM messages
    WHERE latency_ns IS NOT NULL
    GROUP BY ALL
    ORDER BY service, hour
    LIMIT 1000
""")
latency_sql.show(truncate=False)

# %%
latency = (
    messages.where("latency_ns IS NOT NULL")
    .groupBy(sql.col("server").alias("service"), sql.date_trunc("HOUR", "time").alias("hour"))
    .agg(
        sql.count("*").alias("replies"),
        sql.approx_percentile("latency_ns", [0.5, 0.95, 0.99]).alias("p50_p95_p99_ns"),
    )
    .orderBy("service", "hour")
    .limit(1000)
)
latency.show(truncate=False)

# %% [markdown]
# ## Reconnect storms
#
# Connections without a message that lasted a second at most, five or more in a row from one host to one address.

# %%
from zmtpsniff.spark.report import queries

spark.sql(queries.STORMS).show(truncate=False)

# %% [markdown]
# ## Problems by host
#
# The codes are those of [problem codes](reference/problems.md).

# %%
problems_sql = spark.sql("""
    SELECT regexp_replace(src, ':[0-9]+$', '') AS host, severity, code, count(*) AS count
    FROM problems
    GROUP BY ALL
    ORDER BY count DESC, code, host
    LIMIT 20
""")
problems_sql.show(truncate=False)

# %%
by_host = (
    problems.groupBy(sql.regexp_replace("src", ":[0-9]+$", "").alias("host"), "severity", "code")
    .agg(sql.count("*").alias("count"))
    .orderBy(sql.col("count").desc(), "code", "host")
    .limit(20)
)
by_host.show(truncate=False)

# %% [markdown]
# ## The way of the slowest request, over all hosts
#
# `ingest --ways` follows each message over brokers and services, `way_legs` over the hosts that captured it.

# %%
way_sql = spark.sql("""
    SELECT series, src, dst, time_ns, reply, joined
    FROM way_legs
    WHERE way = (
        SELECT way FROM way_legs WHERE kind = 'request'
        GROUP BY way ORDER BY max(time_ns) - min(time_ns) DESC, way LIMIT 1
    )
    ORDER BY time_ns
""")
way_sql.show(truncate=False)

# %%
legs = spark.table("way_legs")
lasted = legs.where("kind = 'request'").groupBy("way").agg(sql.expr("max(time_ns) - min(time_ns)").alias("ns"))
slowest = lasted.orderBy(sql.col("ns").desc(), "way").limit(1).select("way")
way = legs.join(slowest, "way").select("series", "src", "dst", "time_ns", "reply", "joined").orderBy("time_ns")
way.show(truncate=False)
