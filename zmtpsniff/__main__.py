"""The program: ``zmtpsniff``, or ``python -m zmtpsniff``."""

import signal
import sys

from zmtpsniff.engine.memory import keep_freed_memory, spare_collector
from zmtpsniff.errors import Error, fail_if_dissectors_are_foreign


def main() -> None:
    """Run it. Ctrl-C during the imports ends it as it ends other programs, without a traceback."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # else it is ignored, as in the background of a script
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    spare_collector()  # now: modules that are imported make much that stays, and no garbage
    try:
        fail_if_dissectors_are_foreign()
        keep_freed_memory()
    except Error as error:
        print(f"zmtpsniff: {error}", file=sys.stderr)
        sys.exit(2)
    from zmtpsniff.cli.main import main as run

    signal.signal(signal.SIGINT, handler)
    run()


if __name__ == "__main__":
    main()
