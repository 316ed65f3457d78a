"""Start a Jupyter kernel, have it run cells, and log every message that its client got, as JSON Lines.

    python kernel_client.py PORT

The five channels are on the ports from PORT on, in the order of CHANNELS. A line is {"channel", "msg_id", "msg_type",
"parent"}; {"cell": code, "msg_id": number} stands before what comes of a cell.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
CELLS = [
    "answer = 6 * 7",
    "print('the answer is', answer); answer",
    "name = input('who? ')",
    "import sys; print(name.upper(), file=sys.stderr)",
    "1 / 0",
    "{'text': 'Gr\\u00fc\\u00dfe \\u2603', 'list': list(range(100))}",
]
ANSWER = "Ada"
HEARTBEAT_S = 0.3
_PATIENCE_S = 60


def log(channel: str, message: dict[str, Any]) -> None:
    header, parent = message["header"], message["parent_header"].get("msg_id")
    print(
        json.dumps({"channel": channel, "msg_id": header["msg_id"], "msg_type": header["msg_type"], "parent": parent})
    )


def logged(channel: str) -> Callable[[dict[str, Any]], None]:
    return lambda message: log(channel, message)


def main(port: int) -> None:
    # Imported here so that a test can read what is above where Jupyter is not installed.
    from jupyter_client.manager import KernelManager

    manager = KernelManager(ip="127.0.0.1", cache_ports=False)
    for number, channel in enumerate(CHANNELS):
        setattr(manager, f"{channel}_port", port + number)
    manager.start_kernel()
    client = manager.blocking_client()
    client.hb_channel.time_to_dead = HEARTBEAT_S
    client.start_channels(hb=False)
    try:
        client.wait_for_ready(timeout=_PATIENCE_S)
        client.hb_channel.start()  # before, it would not be answered in time
        client.hb_channel.unpause()

        def answer(message: dict[str, Any]) -> None:
            log("stdin", message)
            client.input(ANSWER)

        for code in CELLS:
            print(json.dumps({"cell": code}))
            reply = client.execute_interactive(
                code, allow_stdin=True, timeout=_PATIENCE_S, output_hook=logged("iopub"), stdin_hook=answer
            )
            log("shell", reply)
        for request, arguments in (("complete", ("ans",)), ("inspect", ("answer",))):
            log("shell", getattr(client, request)(*arguments, reply=True, timeout=_PATIENCE_S))
        time.sleep(2 * HEARTBEAT_S)
        client.hb_channel.pause()  # or the last one is not answered
        time.sleep(HEARTBEAT_S)
        log("control", client.shutdown(reply=True, timeout=_PATIENCE_S))
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
