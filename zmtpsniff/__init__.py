"""zmtpsniff: see what ZeroMQ programs say to each other.

    import zmtpsniff
    with zmtpsniff.open("capture.pcap", where='type == "message"') as capture:
        for message in capture:
            print(message.src, message.frames)

The parts of this package are imported when they are used, because the command line must start at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.9.0"

if TYPE_CHECKING:
    from dissectors.events import (
        AnyEvent,
        Beacon,
        Body,
        Capture,
        Command,
        Comment,
        Connection,
        Cut,
        Greeting,
        Hidden,
        Message,
        Octets,
        Payload,
        Peer,
        Problem,
        Subscription,
        Work,
    )
    from zmtpsniff.analysis.findings.finding import Finding
    from zmtpsniff.analysis.ways.way_records import Leg, Way
    from zmtpsniff.capture.engines.engine import PrivilegeError
    from zmtpsniff.capture.source import CaptureError
    from zmtpsniff.dissection import Dissection, open  # noqa: A004
    from zmtpsniff.errors import Error, PluginError
    from zmtpsniff.filters.filter_error import FilterError

__all__ = [
    "AnyEvent", "Beacon", "Body", "Capture", "CaptureError", "Command", "Comment", "Connection", "Cut", "Dissection",
    "Error", "FilterError", "Finding", "Greeting", "Hidden", "Leg", "Message", "Octets", "Payload", "Peer",
    "PluginError", "PrivilegeError", "Problem", "Subscription", "Way", "Work", "open",
]  # fmt: skip

_MODULES = {
    **dict.fromkeys(("Error", "PluginError"), "zmtpsniff.errors"),
    **dict.fromkeys(("Dissection", "open"), "zmtpsniff.dissection"),
    **dict.fromkeys(("Leg", "Way"), "zmtpsniff.analysis.ways.way_records"),
    "CaptureError": "zmtpsniff.capture.source",
    "FilterError": "zmtpsniff.filters.filter_error",
    "Finding": "zmtpsniff.analysis.findings.finding",
    "PrivilegeError": "zmtpsniff.capture.engines.engine",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES.get(name, "dissectors.events")
    if module != "zmtpsniff.errors":
        from zmtpsniff.errors import fail_if_dissectors_are_foreign

        fail_if_dissectors_are_foreign()
    found = getattr(import_module(module), name)
    if hasattr(found, "__struct_fields__"):
        from dissectors.records import with_fields

        with_fields(found)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
