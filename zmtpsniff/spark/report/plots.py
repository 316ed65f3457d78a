"""Drawings for the page, made by matplotlib: SVG without scripts, whose colours are those of the page.

What is of the wire is text in them, never markup or a formula: it is passed with ``parse_math=False``, and matplotlib
escapes it as XML.
"""

import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

from zmtpsniff.render.figures import brief, short
from zmtpsniff.render.text import escape, quote
from zmtpsniff.spark.report.records import AnyRecord, LatencyRow, ProblemRow, TimelineRow, TopicRow, VersionRow
from zmtpsniff.spark.report.sections import agreement

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours that stand for the page's: each becomes a variable of its style sheet.
_TEXT = "#010101"
_COLORS = tuple(f"#0101{number:02x}" for number in range(0x10, 0x18))
_VARIABLES = {_TEXT: "var(--text)", "#010102": "var(--grid)"}
_VARIABLES |= {color: f"var(--color-{number})" for number, color in enumerate(_COLORS)}
_GRID = "#010102"
_SEVERITIES = {"error": _COLORS[3], "warning": _COLORS[1], "note": _COLORS[0]}

_WIDTHS = {"wide": 11.0, "narrow": 4.6}  # inches
_HEIGHT = 3.0
_DPI = 72
_SERVICES = 6
_BARS = 12
_LABEL = 26  # characters
_NS = 1_000_000_000
_SVG = "{http://www.w3.org/2000/svg}"


def plots(records: Sequence[AnyRecord]) -> dict[str, dict[str, str]]:
    """Drawings by the name of their section, each in two widths (``wide`` and ``narrow``), as SVG elements."""
    makers: tuple[tuple[str, type[Any], str, Callable[[Axes, list[Any], bool], None]], ...] = (
        ("timeline", TimelineRow, "Messages by time", _timeline),
        ("versions", VersionRow, "Connections begun, by version and mechanism", _versions),
        ("topics", TopicRow, "Messages by topic", _topics),
        ("latency", LatencyRow, "Latency of replies by hour: the 95th percentile of each service", _latencies),
        ("problems", ProblemRow, "Problems by host", _problems),
    )
    drawn = {}
    for name, kind, title, make in makers:
        rows = [record for record in records if type(record) is kind]
        if rows:
            drawn[name] = {width: _drawn(f"{name}-{width}", title, rows, make, width) for width in _WIDTHS}
    return drawn


def _drawn(name: str, title: str, rows: list[Any], make: "Callable[[Axes, list[Any], bool], None]", width: str) -> str:
    import matplotlib
    from matplotlib.figure import Figure

    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "text.color": _TEXT,
        "axes.edgecolor": _GRID,
        "axes.labelcolor": _TEXT,
        "xtick.color": _TEXT,
        "ytick.color": _TEXT,
        "grid.color": _GRID,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "text.parse_math": False,
        "legend.frameon": False,
        "font.size": 9,
    }
    with matplotlib.rc_context(settings):
        figure = Figure((_WIDTHS[width], _HEIGHT), dpi=_DPI, layout="constrained")
        axes = figure.add_subplot()
        make(axes, rows, width == "narrow")
        stream = StringIO()
        with warnings.catch_warnings():
            # The font only says how much room text takes; the page is shown in fonts that have more characters.
            warnings.filterwarnings("ignore", "Glyph", UserWarning)
            figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(stream.getvalue(), title)


def _inline(text: str, title: str) -> str:
    """A drawing as an element of a page, with the page's colours."""
    ET.register_namespace("", _SVG[1:-1])
    ET.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ET.fromstring(text)
    for child in root.findall(f"{_SVG}metadata"):
        root.remove(child)
    for definitions in root.findall(f"{_SVG}defs"):
        for style in definitions.findall(f"{_SVG}style"):  # it would apply to all of the page
            definitions.remove(style)
    for element in root.iter():
        style_text = element.get("style")
        if style_text is None:
            continue
        if element.tag == f"{_SVG}text" and "font:" in style_text:
            kept = [part for part in style_text.split(";") if not part.strip().startswith("font:")]
            style_text = ";".join(["font-size: 9px", *kept])
        for color, variable in _VARIABLES.items():
            style_text = style_text.replace(color, variable)
        element.set("style", style_text)
    for name in ("width", "height"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-label", title)
    return ET.tostring(root, encoding="unicode")


# ------------------------------------------------------------------ a drawing each


def _timeline(axes: "Axes", rows: list[TimelineRow], narrow: bool) -> None:
    seconds = rows[0].interval_ns / _NS
    times = [row.start_ns for row in rows]
    axes.bar(times, [row.messages / seconds for row in rows], rows[0].interval_ns, align="edge", color=_COLORS[0])
    axes.set_ylabel("messages a second")
    _of_time(axes, times, rows[0].interval_ns, narrow)
    axes.yaxis.set_major_formatter(lambda value, _: short(value) if value >= 1 or not value else f"{value:.2g}")


def _versions(axes: "Axes", rows: list[VersionRow], narrow: bool) -> None:
    names: dict[str, dict[int, int]] = {}
    for row in rows:
        by_time = names.setdefault(agreement(row), {})
        by_time[row.start_ns] = by_time.get(row.start_ns, 0) + row.connections
    times = sorted({row.start_ns for row in rows})
    below = dict.fromkeys(times, 0)
    for place, (name, by_time) in enumerate(sorted(names.items(), key=lambda item: -sum(item[1].values()))):
        counts = [by_time.get(time, 0) for time in times]
        color = _COLORS[min(place, len(_COLORS) - 1)]
        bottom = [below[time] for time in times]
        axes.bar(times, counts, rows[0].interval_ns, bottom, align="edge", color=color, label=_short_text(name))
        below = {time: below[time] + count for time, count in zip(times, counts, strict=True)}
    interval = brief(rows[0].interval_ns).removesuffix(" 0 min").removesuffix(" 0 s")
    axes.set_ylabel(f"connections in {interval}")
    _whole_numbers(axes.yaxis)
    _of_time(axes, times, rows[0].interval_ns, narrow)
    _legend(axes, narrow)


def _topics(axes: "Axes", rows: list[TopicRow], narrow: bool) -> None:
    found = [row for row in rows if row.messages][:_BARS] or rows[:_BARS]
    names = [_short_text(quote(row.topic, _LABEL, "…"), 14 if narrow else _LABEL) for row in found]
    _bars(axes, names, [([row.messages for row in found], _COLORS[2], "")])
    axes.set_xlabel("messages")


def _latencies(axes: "Axes", rows: list[LatencyRow], narrow: bool) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    services = [row.service for row in rows if row.service is not None and row.hour_ns is None][:_SERVICES]
    times: list[int] = []
    for place, service in enumerate(services):
        hours = [row for row in rows if row.service == service and row.hour_ns is not None]
        starts = [row.hour_ns or 0 for row in hours]
        values = [max(row.p95_ns, 1) for row in hours]
        axes.plot(starts, values, color=_COLORS[place], marker="o", markersize=4, label=_short_text(escape(service)))
        times += starts
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: brief(round(value)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("95 % answered within")
    _of_time(axes, sorted(times), 3600 * _NS, narrow)
    _legend(axes, narrow)


def _problems(axes: "Axes", rows: list[ProblemRow], narrow: bool) -> None:
    hosts: dict[str, dict[str, int]] = {}
    for row in rows:
        counts = hosts.setdefault(_short_text(escape(row.host or "(no host)"), 14 if narrow else _LABEL), {})
        counts[row.severity] = counts.get(row.severity, 0) + row.count
    names = sorted(hosts, key=lambda name: -sum(hosts[name].values()))[:_BARS]
    parts = [
        ([hosts[name].get(severity, 0) for name in names], color, f"{severity}s")
        for severity, color in _SEVERITIES.items()
    ]
    _bars(axes, names, [part for part in parts if any(part[0])])
    axes.set_xlabel("problems")
    _legend(axes, narrow)


# ------------------------------------------------------------------ parts


def _bars(axes: "Axes", names: list[str], parts: list[tuple[list[int], str, str]]) -> None:
    """Bars from left to right, the first on top, each of parts with a colour and a name."""
    places = list(range(len(names)))
    left = [0] * len(names)
    for values, color, label in parts:
        axes.barh(places, values, left=left, color=color, label=label or None)
        left = [before + value for before, value in zip(left, values, strict=True)]
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_ylim(max(len(names), 4) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    _whole_numbers(axes.xaxis)


def _whole_numbers(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axis.set_major_formatter(lambda value, _: short(value))


def _of_time(axes: "Axes", times: list[int], interval_ns: int, narrow: bool) -> None:
    """Tell times below an axis, which are in nanoseconds."""
    from zmtpsniff.spark.report.sections import moment

    first, last = times[0], times[-1] + interval_ns
    if last - first < 12 * interval_ns:  # a few columns would fill all of it
        first, last = first - interval_ns, max(last, first + 12 * interval_ns)
    axes.set_xlim(first, last)
    number = 2 if narrow else 6
    step = max(1, (last - first) // number // interval_ns) * interval_ns
    ticks = list(range(first - first % interval_ns, last, step))
    days = last - first > 86_400 * _NS
    fine = interval_ns < _NS
    labels = []
    for tick in ticks:
        text = moment(tick)
        label = text[5:16] if days else text[11:16] if step % (60 * _NS) == 0 else text[11:]
        labels.append(label + (f".{tick % _NS // 1_000_000:03}" if fine and not days else ""))
    axes.set_xticks(ticks, labels)
    axes.set_xlabel(f"{moment(ticks[0])[:10]}, UTC")
    axes.grid(visible=False, axis="x")


def _legend(axes: "Axes", narrow: bool) -> None:
    axes.figure.legend(
        loc="outside upper left" if narrow else "outside right upper", ncols=1, fontsize=8, handlelength=1
    )


def _short_text(text: str, most: int = _LABEL) -> str:
    """Text that leaves room; a name that begins with _ would be left out of a legend."""
    shown = text if len(text) <= most else text[: most - 1] + "…"
    return f" {shown}" if shown.startswith("_") else shown
