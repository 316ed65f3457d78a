"""zmtpsniff: see what ZeroMQ programs say to each other.

    import zmtpsniff
    with zmtpsniff.open("capture.pcap", where='type == "message"') as capture:
        for message in capture:
            print(message.src, message.frames)

The parts of this package are imported when they are used, because the command line must start at once.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.9.0"
__all__ = ["Dissection", "Error", "open"]

if TYPE_CHECKING:
    from zmtpsniff.dissection import Dissection, open  # noqa: A004
    from zmtpsniff.errors import Error


def __getattr__(name: str) -> Any:
    if name == "Error":
        from zmtpsniff.errors import Error

        return Error
    if name in __all__:
        from zmtpsniff.errors import fail_if_dissectors_are_foreign

        fail_if_dissectors_are_foreign()
        from zmtpsniff import dissection

        return getattr(dissection, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
