"""Checks the name of a master before anything of Spark runs.

Spark reports an unknown name in fifty lines, and an address where nobody answers after a minute, or after ten.
"""

import os
import re
import socket
from pathlib import Path
from urllib.parse import urlsplit

REMOTE = "sc://"
"""How the addresses of Spark Connect servers begin."""

PACKAGES = "msgspec, numpy, pyarrow and backports.zstd"
"""The packages that workers need beside our code, which is sent to them."""

_COUNT = "0*[1-9][0-9]{0,8}"  # of threads, and of failures
_LOCAL = rf"local(\[({_COUNT}|\*)(\s*,\s*{_COUNT})?\])?|local-cluster\[.+\]"
_KNOWN = re.compile(rf"{_LOCAL}|yarn|(spark|k8s|sc)://.+")
_PORTS = {"spark": 7077, "sc": 15002, "k8s": 443}
_IMAGE = "spark.kubernetes.container.image"
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")  # used by clients of Spark Connect
_SECONDS = 10.0


def mistake(master: str) -> str | None:
    """The mistake in the name of a master, in one line; None if there is none. Tries to connect."""
    if not _KNOWN.fullmatch(master):
        return "Spark knows local, local[2], local[*], spark://host:7077, sc://host, yarn and k8s://..."
    folders = [os.environ[name] for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if os.environ.get(name)]
    if master == "yarn" and not any(Path(folder, "yarn-site.xml").exists() for folder in folders):
        return "set HADOOP_CONF_DIR, or YARN_CONF_DIR, to the folder with the cluster's yarn-site.xml"
    scheme, _, rest = master.partition("://")
    if scheme == "k8s":
        rest = rest.rpartition("://")[2]
        if not _is_set(_IMAGE):
            return f"set {_IMAGE} in spark-defaults.conf to an image with Python, {PACKAGES}"
    if scheme not in _PORTS or (scheme == "sc" and any(os.environ.get(name) for name in _PROXIES)):
        return None
    said = ""
    for place in rest.partition("/")[0].split(","):  # of a master there may be several, of which one is at work
        try:
            parts = urlsplit(f"//{place}")
            socket.create_connection((parts.hostname or "", parts.port or _PORTS[scheme]), _SECONDS).close()
        except ValueError as error:
            return str(error)
        except OSError as error:
            said = error.strerror or str(error)
        else:
            return None
    return f"nobody answers there: {said}"


def _is_set(name: str) -> bool:
    """Whether a setting of Spark is made, where its users make them."""
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(os.environ.get("SPARK_HOME", ""), "conf")
    file = Path(folder, "spark-defaults.conf")
    return name in os.environ.get("SPARK_SUBMIT_OPTS", "") or (file.exists() and name in file.read_text())
