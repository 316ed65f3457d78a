"""Captures of many machines, dissected on Spark into tables.

As a library::

    from zmtpsniff.spark import Options, dissect, get_session

    spark = get_session("local[2]")
    paths = spark.createDataFrame([("/captures/web1/0001.pcap",), ("/captures/web1/0002.pcap",)], "path STRING")
    tables = dissect(paths)
    tables.messages.groupBy("conn_id").count().show()
    tables.close()

The modules, from the bottom up; those marked with * need pyarrow, those with ** pyspark when they are called:

| module | what is in it |
| :-- | :-- |
| `tables` | names, types and meanings of all columns; `ddl(table)` for Spark, `arrow_schema(table)` for Arrow |
| `options` | `Options`: what a run is asked for, as executors get it |
| `listing` | inputs to files (`list_files`), files to series (`series_of`) |
| `inputs` | `File`: a capture by path or URL as a source of packets, read by an executor |
| `groups`, `loose` | what must be dissected together, and by which task; fragments of datagrams that lie in two files |
| `connections` | `connection_id`; `Connections`: what two ends say to each other, segments in, events out |
| `states` | `encode`, `decode`: a flow with all that is known of it, as octets |
| `pieces`, `runs` | what a scan hands on: `Piece`, `Batch`; `Run`: messages that came together in one packet |
| `watch`, `watched_half`, `disorder` | flows, their halves, the order of packets, watched while one file is dissected |
| `scan` | `Scan`: one file dissected by itself |
| `transplant`, `join` | `Join`: the pieces of one tuple put together |
| `rows`, `rolled` * | `Rows`: events to Arrow record batches, those that wait rolled up; `wrap` for a stream |
| `writing` * | rows to Parquet files by the task that made them |
| `mapping`, `joining`, `verdicts` * | the tasks of the map side: scan files, join pieces, judge rows that wait |
| `reducing`, `exact` * | tasks that get whole groups; the reference path: `segments` of files, `dissected` in order |
| `store` * | `Store`: the folder of the tables, committed as a whole |
| `open_states` * | the states of what is open, in that folder |
| `export` ** | the tables in another format than Parquet |
| `masters` | what is named as a master: known, and somebody answers there |
| `session` ** | `get_session`: a session with our code, Java found or its lack explained (`SparkError`) |
| `daemon` ** | what the Python workers of this machine are forked from |
| `tasks` ** | rows to tasks of this machine without the planning of a data frame |
| `job` ** | `Job`: the stages of a run on Spark |
| `judged` ** | `Joined`: what the join told, on Spark or by tasks of this machine; verdicts applied |
| `ingest` ** | `ingest`: inputs to tables in a folder |
| `whole` * | `Series`: all files of a series dissected by one task, with states before and after |
| `shards` * | the states of a series in a map of Spark's state store |
| `taking` * | `Task`: the new files of series that are followed, dissected by one task |
| `committing` * | what the tasks of a micro-batch made, committed |
| `stateful` ** | the plan of a stream that follows folders: the operator that keeps states |
| `follow`, `quiet` ** | `follow`: folders that fill, to tables, with Structured Streaming; series that come no more |
| `progress` * | `Progress`: the folder of a stream of the format `zmtp` |
| `datasource` ** | `ZmtpSource`: the format `zmtp`, for `spark.read` and `spark.readStream` |
| `report` ** | the questions of `stats` over the tables |

Nothing of pyspark, pyarrow or pandas is imported before it is used.

These modules know nothing of Spark and do the dissection, so that all of it can be tested without:

- :mod:`zmtpsniff.spark.scan`: ``Scan(source, file)`` dissects ONE file by itself. ``batches()`` yields ``Batch``es of
  events at once; after the last one, ``pieces`` holds one small ``Piece`` for each tuple (two addresses and ports,
  whichever of them is the client) and ``summary`` what is told of the file.
- :mod:`zmtpsniff.spark.pieces`: ``Piece`` (``encode``/``decode`` to octets), ``Batch``, ``Identity``, ``Verdict``.
- :mod:`zmtpsniff.spark.join`: ``Join(state)`` takes the pieces of ONE tuple of a series in order of
  ``(piece.first_ns, piece.file)``; ``take(pieces)`` yields an ``Outcome`` for each: a ``Verdict`` on the rows that the
  scan has given out, and events that only now can be told. ``state()`` is what the next run or micro-batch begins
  with (octets, about 2 KB), ``finish(now_ns)`` the events of what is still open (take ``state()`` before).

The file. ``file`` is a number that the caller gives: the place of the file among those of its series, in order of
name. Where two packets have the same time, that of the file with the lower number comes first. The packet of an
event made by a scan is a *mark*, that of an event made by a join or the reference path a *place*; ``place(packet)``
gives of both ``(file, number, offset)``. The number is that of the packet in its file, from 1 (Wireshark's frame
number), which every format has, compressed or not. The offset is where its record begins, so that somebody who has the
row can go there; 0 stands for none. A mark grows with the number, and a place with the order (below): flows, halves and
states carry them as they carry the numbers of ``read``, and nobody keeps a list of the offsets in a file.

The order. A capture may be a little out of order; ``read`` merges files by the time of the packet at hand, so a packet
counts as no earlier than those before it in its file. ``order_ns`` is that time: the greatest of the file up to the
packet. Sort by it, not by the packet's own time.

The flow. Events carry the number of a flow of their scan or join; ``identities[number]`` is the ``Identity`` of
that connection there: ``conn_id``, the tuple, its start and the number of the piece that it belongs to.

The parts. Each ``Batch`` is of one part of its file's rows:

- ``born``: connections whose beginning is in this file. ``batch.piece`` is 0; ``identities[event.flow].piece`` tells.
- ``alone``: right only if the tuple has no connection that comes from an earlier file.
- ``stretch``: what lies in the middle. Right in either case, but which connection it is of (``conn_id``) and what
  type of socket sent a message (``socket_type``) is for the verdict to say.

The verdict, one for each piece, ``(file, number)``:

- ``alone``: all rows hold as they are.
- ``joined``: ``born`` rows hold, ``alone`` rows fall, ``stretch`` rows hold and get the verdict's ``conn_id``, its
  ``client`` and ``server`` being those addresses; messages get ``socket_types[src]``, None for none.
- ``passed``: ``born`` rows hold, ``alone`` and ``stretch`` rows fall (a connection that is not ZMTP).
- ``told``: all rows of the piece fall, and the outcome's events stand in their place (a piece of a few segments).
- ``redo``: all rows of the piece fall; the tuple is dissected from the segments of this piece's file and those of all
  pieces after it in their order, beginning with ``verdict.state`` (None: with nothing). All later pieces of the tuple
  get the same verdict. If ``verdict.around`` is true the files before and after are read as well, because a fragmented
  datagram may begin or end in them; read such files with one decoder, one after the other. If ``verdict.anew`` is true
  the state does not do: all rows of the tuple fall, those of earlier pieces and of the join, too, and it is dissected
  from its first file on (a file that comes late, or a retransmission of octets of which no copy was kept). The same is
  to be done where ``Join.unsure`` says so after segments were dissected from a state.

What is left to others. Datagrams of UDP and PGM are not dissected by a scan, but handed to whom its caller names, in
their order: they are dissected where those of all files are. Two bounds of ``read`` are one file's here, that on flows
at a time and that on octets that wait in all; a file that reaches one says so, and its tuples are redone. A tuple that
has no segment in any file but one in a fragmented datagram that lies in two of them is not seen.

``piece.plain`` says that the verdict can only be ``alone`` if no piece of the tuple came before, and nothing is open
at the end: most short connections, for which no row needs to be looked at again.
A connection's ``connection`` row comes from the scan if it begins and ends in one file, else from the join.
Problems of the file itself (no ``flow``) and comments come from ``Scan.batches()`` in a ``born`` batch; the scan's
totals (packets, first and last time, faults) are in ``summary``, of which ``last_ns`` of the last file of the series
is what ``finish`` is told.
"""

from typing import TYPE_CHECKING, NamedTuple

from zmtpsniff.spark.options import Options
from zmtpsniff.spark.session import SparkError, get_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Options", "SparkError", "Tables", "dissect", "get_session", "register"]


class Tables(NamedTuple):
    """The tables as data frames, with the columns that :data:`zmtpsniff.spark.tables.TABLES` names."""

    connections: "DataFrame"
    messages: "DataFrame"
    commands: "DataFrame"
    subscriptions: "DataFrame"
    problems: "DataFrame"
    captures: "DataFrame"
    rows: "DataFrame"  # of all tables, a struct column each, of which one is not null; what the others select from

    def close(self) -> None:
        """Let go of what was kept so that the captures are not read again for each table."""
        self.rows.unpersist()


def dissect(paths: "DataFrame", options: Options | None = None, series: str = "folder", keep: bool = True) -> Tables:
    """Dissect the capture files that the column ``path`` of ``paths`` names, each once: paths or URLs.

    ``series`` says which of them are read as one capture: those of a folder (``"folder"``), each alone (``"file"``), or
    those for whose paths group 1 of a regular expression is the same. Columns ``length`` and ``modificationTime``, as
    ``binaryFile`` has them, are used if they are there.

    Nothing is read before a table is used. With ``keep`` all rows stay on the executors' disks from then on, until
    ``close`` is called. A file that cannot be read becomes a row of ``problems`` and of ``captures``. Raises ValueError
    for a ``series`` that is none.
    """
    from zmtpsniff.spark.job import Part, rows_of
    from zmtpsniff.spark.listing import by_series, listed_in
    from zmtpsniff.spark.tables import TABLES

    found = by_series(listed_in(paths), series)
    rows = rows_of(paths.sparkSession, [Part(*one) for one in found.items()], options or Options())
    if keep:
        from pyspark import StorageLevel

        rows = rows.persist(StorageLevel.DISK_ONLY)
    return Tables(**{table: rows.where(rows[table].isNotNull()).select(f"{table}.*") for table in TABLES}, rows=rows)


def register(session: "SparkSession") -> None:
    """Let ``session.read.format("zmtp")`` and ``session.readStream.format("zmtp")`` read captures.

    Predicates are pushed down to Python data sources in this session from then on.
    """
    from zmtpsniff.spark.datasource import ZmtpSource

    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    session.dataSource.register(ZmtpSource)
