"""Programs that let each other in or not, with pyzmq's ThreadAuthenticator on a port of its own.

    python zap_peers.py PORT

libzmq asks it by ZAP (RFC 27), which is passed on over tcp to PORT. Each line of the log is one attempt: {"mechanism",
"let_in", "user_id"}.
"""

import json
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import zmq
from zmq.auth import create_certificates, load_certificate
from zmq.auth.thread import ThreadAuthenticator

Context = zmq.Context[zmq.Socket[bytes]]
USERNAME, PASSWORD, WRONG = "alice", "pass-word-of-alice", "another-word"
DOMAIN = b"global"
_PATIENCE_MS = 60_000


def pass_on(context: Context, asked: str, answering: str) -> None:
    """Carry what is asked at one address to another one, and the answers back."""
    front, back = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    front.bind(asked)
    back.connect(answering)

    def carry() -> None:
        try:
            zmq.proxy(front, back)
        except zmq.ContextTerminated:
            front.close(0)
            back.close(0)

    threading.Thread(target=carry, daemon=True).start()


def attempt(context: Context, mechanism: str, server_options: dict[str, Any], client_options: dict[str, Any]) -> None:
    """One client knocks at one server."""
    server, client = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    monitor = server.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH)
    server.zap_domain = DOMAIN
    for socket, options in ((server, server_options), (client, client_options)):
        socket.linger = 0
        for name, value in options.items():
            setattr(socket, name, value)
    client.connect(f"tcp://127.0.0.1:{server.bind_to_random_port('tcp://127.0.0.1')}")
    assert monitor.poll(_PATIENCE_MS)
    let_in = int.from_bytes(monitor.recv_multipart()[0][:2], "little") == zmq.EVENT_HANDSHAKE_SUCCEEDED
    user_id = ""
    if let_in:
        client.send(b"hello")
        user_id = str(server.recv(copy=False).get("User-Id"))
    client.close()
    server.disable_monitor()
    server.close()
    print(json.dumps({"mechanism": mechanism, "let_in": let_in, "user_id": user_id}))


def main(port: int, folder: Path) -> None:
    own, others = (zmq.Context(), zmq.Context())
    (folder / "known").mkdir()
    authenticator = ThreadAuthenticator(own)
    authenticator.start()
    authenticator.configure_plain(domain=DOMAIN.decode(), passwords={USERNAME: PASSWORD})
    serving = load_certificate(create_certificates(folder, "server")[1])
    known = load_certificate(create_certificates(folder / "known", "known")[1])
    unknown = load_certificate(create_certificates(folder, "unknown")[1])
    authenticator.configure_curve(domain=DOMAIN.decode(), location=str(folder / "known"))
    pass_on(own, f"tcp://127.0.0.1:{port}", "inproc://zeromq.zap.01")
    pass_on(others, "inproc://zeromq.zap.01", f"tcp://127.0.0.1:{port}")
    attempt(others, "NULL", {}, {})
    for password in (PASSWORD, WRONG):
        client = {"plain_username": USERNAME.encode(), "plain_password": password.encode()}
        attempt(others, "PLAIN", {"plain_server": True}, client)
    for public, secret in (known, unknown):
        server = {"curve_server": True, "curve_secretkey": serving[1]}
        keys = {"curve_serverkey": serving[0], "curve_publickey": public, "curve_secretkey": secret}
        attempt(others, "CURVE", server, keys)
    authenticator.stop()
    others.term()
    own.term()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(int(sys.argv[1]), Path(folder))
