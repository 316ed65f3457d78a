"""The slowest and the lost ways, each with a chart: how long each place had the message."""

from collections.abc import Iterator, Sequence
from html import escape

from zmtpsniff.analysis.ways.way_records import Leg, Way
from zmtpsniff.render.way_ladder import way_words
from zmtpsniff.words.text import escape as safe

_JOINTS = {
    "envelope": "its envelope",
    "correlation": "an id that both messages have",
    "body": "the same octets",
    "process": "its process",
    "order": "the order of messages",
}


def waterfalls(ways: Sequence[Way]) -> Iterator[str]:
    """A part of the page for each way, the first one open."""
    for place, way in enumerate(ways):
        verdict, *rest = map(escape, way_words(way))
        mark = "" if way.ended is None else ' class="error"'
        yield f'<details class="ladder"{" open" if not place else ""}>\n<summary>{escape(safe(way.legs[0].src))}: '
        yield f"<span{mark}>{verdict}</span></summary>\n"
        yield "".join(f"<p>{words}</p>\n" for words in rest)
        yield f'<div class="chart small" data-chart="way" data-place="{place}"></div>\n</details>\n'


def joint_words(leg: Leg) -> str:
    """The reason why a message is taken for a part of the way, in words; empty for the first one."""
    if leg.joined is None:
        return ""
    return f"joined by {_JOINTS[leg.joined]}" + ("" if leg.certain else ", which does not prove it")
