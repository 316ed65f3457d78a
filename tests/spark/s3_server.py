"""An S3 server, moto's, that gets too many requests for some names, and none too many of others.

    python s3_server.py HOST PORT

It is a process of its own: while Delta Lake waits, it may hold Python's lock. Below ``throttled/in`` it answers "slow
down" to four of five requests for captures, below ``throttled/out`` to each third one, below ``busy`` to all that
write. Below ``refusing`` it denies all changes from some number of them on, if :meth:`Bucket.refuse_after` says so.
"""

import itertools
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

import pytest

from tests.support.live_program import wait_for
from tests.support.paths import program
from tests.support.ports import free_port

_CONTROL = "/_refuse_after"
_HOST = "127.0.0.1"


class Bucket(NamedTuple):
    """A bucket of the server."""

    url: str
    endpoint: str

    def refuse_after(self, changes: int | None) -> None:
        """Deny changes below ``refusing`` after so many more of them; None for none at all."""
        body = b"" if changes is None else str(changes).encode()
        urlopen(Request(f"{self.endpoint}{_CONTROL}", body, method="PUT")).close()


@contextmanager
def new_bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A bucket of a server that ends with it; skips the test without moto."""
    pytest.importorskip("moto.server", reason="moto is not installed: pip install 'zmtpsniff[test]'")
    from pyarrow.fs import S3FileSystem

    port = free_port()
    endpoint = f"http://{_HOST}:{port}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    for name, value in (("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test"), ("REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    command = [*program(sys.modules[__name__]), _HOST, str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(lambda: _is_open(port))
            system = S3FileSystem(endpoint_override=f"{_HOST}:{port}", scheme="http", allow_bucket_creation=True)
            system.create_dir("here")
            yield Bucket("s3://here", endpoint)
        finally:
            server.kill()


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((_HOST, port)) == 0


class _Server:
    """The server as WSGI has it."""

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        self._moto = DomainDispatcherApplication(create_backend_app)
        self._reads, self._others = itertools.count(), itertools.count()
        self._allowed: Iterator[Any] = itertools.repeat(True)

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        writes = method not in ("GET", "HEAD")
        if path == _CONTROL:
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            self._allowed = itertools.repeat(True, int(body)) if body else itertools.repeat(True)
            start("204 No Content", [])
            return []
        if (
            (method == "GET" and "/throttled/in/" in path and next(self._reads) % 5)
            or ("/throttled/out/" in path and next(self._others) % 3 == 0)
            or (writes and "/busy/" in path)
        ):
            return _refuse(environ, start, "503 Slow Down", "SlowDown", "Please reduce your request rate.")
        if writes and "/refusing/" in path and not next(self._allowed, False):
            return _refuse(environ, start, "403 Forbidden", "AccessDenied", "Access Denied.")
        return self._moto(environ, start)


def _refuse(environ: dict[str, Any], start: Callable[..., Any], status: str, code: str, text: str) -> list[bytes]:
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    start(status, [("Content-Type", "application/xml")])
    return [f"<Error><Code>{code}</Code><Message>{text}</Message></Error>".encode()]


if __name__ == "__main__":
    from werkzeug.serving import run_simple

    run_simple(sys.argv[1], int(sys.argv[2]), _Server(), threaded=True)
