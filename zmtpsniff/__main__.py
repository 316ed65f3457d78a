"""The program: ``zmtpsniff``, or ``python -m zmtpsniff``."""

import signal


def main() -> None:
    """Run it; Ctrl-C while it is being imported ends it as it ends other programs, without a traceback."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # else it is ignored, as in the background of a script
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from zmtpsniff.cli.main import main as run

    signal.signal(signal.SIGINT, handler)
    run()


if __name__ == "__main__":
    main()
