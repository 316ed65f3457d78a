"""Say when a publisher is silent for too long: python alert_on_silence.py SECONDS CAPTURE, or SECONDS -i INTERFACE."""

import sys
from datetime import datetime

import zmtpsniff


def main(patience: float, capture: zmtpsniff.Dissection) -> int:
    """Print each silence of a sender that was longer than ``patience`` seconds. Returns how many there were."""
    heard: dict[str, datetime] = {}  # sender to the time of its last message
    silences = 0
    with capture:
        for message in capture.messages():
            before = heard.get(message.src)
            heard[message.src] = message.time
            if before is not None and (gap := (message.time - before).total_seconds()) > patience:
                silences += 1
                print(f"{message.time:%H:%M:%S} {message.src} had been silent for {gap:.1f} s", flush=True)
    return silences


if __name__ == "__main__":
    seconds, *source = sys.argv[1:]
    where = 'type == "message"'
    if source[0] == "-i":
        opened = zmtpsniff.open(interface=source[1], where=where)  # goes on until Ctrl-C
    else:
        opened = zmtpsniff.open(source[0], where=where)
    sys.exit(1 if main(float(seconds), opened) else 0)
