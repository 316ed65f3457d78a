"""Output formats: for people a tree, a line each, zhelpers' dump and diagrams; for programs JSON Lines."""

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from zmtpsniff.render.color import Color

if TYPE_CHECKING:
    from zmtpsniff.render.clock import Times
    from zmtpsniff.render.renderer import Renderer

Format = Literal["tree", "json", "summary", "dump", "mermaid", "dot"]
_MAX_BYTES_IF_VERBOSE = 4096  # from -vv on: most messages whole, but no screen full of a picture
FORMATS: tuple[Format, ...] = get_args(Format)


class FormatTraits(NamedTuple):
    """The traits of an output format that the command line needs."""

    words: str  # for the help of -T
    is_binary: bool = False  # the renderer writes to a binary stream
    shows_whole_bodies: bool = False  # if --max-bytes is not given
    reads_columns: bool = False  # the renderer takes batches of messages, if times are not those since the one before
    shows_problems: bool = True  # the renderer writes problems; else standard error has those of the capture


TRAITS: dict[Format, FormatTraits] = {
    "tree": FormatTraits("for people", reads_columns=True),
    "json": FormatTraits("JSON Lines, for programs", is_binary=True, reads_columns=True),
    "summary": FormatTraits("a line each", reads_columns=True),
    "dump": FormatTraits("as zhelpers' s_dump", shows_whole_bodies=True, shows_problems=False),
    "mermaid": FormatTraits("a sequence diagram"),
    "dot": FormatTraits("who talks to whom, for Graphviz", shows_problems=False),
}


def make_renderer(
    output: Format,
    stream: Any,
    *,
    max_bytes: int | None = None,
    verbosity: int = 0,
    utc: bool = False,
    color: Color = "auto",
    show_secrets: bool = False,
    times: "Times" = "absolute",
) -> "Renderer":
    """Make the renderer of an output format.

    ``stream`` is a text stream; for ``json`` it is a binary one, or a text stream with such a ``buffer``.
    ``max_bytes`` is the limit of octets to show of each body, 0 for none, None for what suits the format and the
    verbosity; ``verbosity``, ``utc``, ``times`` and ``color`` matter to tree and summary only. These fit what they show
    to the width of a terminal, unless more is asked for. Formats for people leave passwords out of frames unless
    ``show_secrets``.
    """
    if max_bytes is None and verbosity > 1 and output in ("tree", "summary"):
        max_bytes = _MAX_BYTES_IF_VERBOSE
    # Each format is imported when it is asked for: rich alone takes longer to import than a small capture to read.
    if output == "json":
        from zmtpsniff.render.json_form import DEFAULT_MAX_BYTES
        from zmtpsniff.render.jsonl import JsonlRenderer

        return JsonlRenderer(getattr(stream, "buffer", stream), DEFAULT_MAX_BYTES if max_bytes is None else max_bytes)
    if output == "dump":
        from zmtpsniff.render.dump import DumpRenderer

        return DumpRenderer(stream, max_bytes or 0, show_secrets)
    if output == "mermaid":
        from zmtpsniff.render import mermaid

        most = mermaid.DEFAULT_MAX_BYTES if max_bytes is None else max_bytes
        return mermaid.MermaidRenderer(stream, most, show_secrets)
    if output == "dot":
        from zmtpsniff.render.dot import DotRenderer

        return DotRenderer(stream)
    from zmtpsniff.render.console import terminal_width

    width = terminal_width(stream) if max_bytes is None and not verbosity else None
    if output == "summary":
        from zmtpsniff.render import summary

        limit = summary.DEFAULT_MAX_BYTES if max_bytes is None else max_bytes
        return summary.SummaryRenderer(stream, limit, verbosity, utc, color, show_secrets, times, width)
    if output == "tree":
        from zmtpsniff.render import tree

        limit = tree.DEFAULT_MAX_BYTES if max_bytes is None else max_bytes
        return tree.TreeRenderer(stream, limit, verbosity, utc, color, show_secrets, times, width)
    raise ValueError(f"unknown output format {output!r}")
