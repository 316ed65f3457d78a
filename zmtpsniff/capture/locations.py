"""Where files are: a path or URL becomes a file system of Arrow's and a path in it, and what Delta Lake needs for it.

This one layer reads captures. For Spark it also lists folders and writes tables: ``s3://`` (and ``s3a://``,
``s3n://``), ``gs://``, ``abfs://``, ``abfss://``, ``hdfs://`` and what is on this machine. URLs need pyarrow.
Credentials are where the clouds' own tools look for them. ``AWS_ENDPOINT_URL`` names an S3 server of your own.
"""

import os
import stat
from functools import lru_cache
from io import FileIO
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import unquote, urlsplit

from zmtpsniff.errors import Error, one_line

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_S3 = ("s3", "s3a", "s3n")
_S3_TRIES = 10  # of a request, later and later, where the store says that it gets too many: as Delta Lake does
_NEEDED = {
    "gs": "pip install pyarrow, in a build with GcsFileSystem, as PyPI's for Linux and macOS are",
    "abfs": "pip install pyarrow, in a build with AzureFileSystem, as PyPI's for Linux and macOS are",
    "abfss": "pip install pyarrow, in a build with AzureFileSystem, as PyPI's for Linux and macOS are",
    "hdfs": "install Hadoop's client with its libhdfs.so, and set HADOOP_HOME and CLASSPATH=$(hadoop classpath --glob)",
}
SPECIAL = "it is a FIFO, a socket or a device, and no file"
"""The message about a file that :func:`is_special` finds."""


class LocationError(Error):
    """A path or URL that cannot be used; the text is one line that names it and says what to do."""


def local_path(location: str) -> str | None:
    """The path of a local file, also as Hadoop names it (file:/x, file:///x); None for any other URL."""
    if location.startswith("file:/"):
        return unquote(urlsplit(location).path)
    return None if "://" in location else location


def is_special(location: str) -> bool:
    """Whether a path or URL names a local FIFO, socket or device. Reading one may wait for ever."""
    local = local_path(location)
    try:
        mode = 0 if local is None else os.stat(local).st_mode
    except OSError:  # it is told when it is read
        return False
    return bool(mode) and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def canonical(location: str) -> str:
    """A location that every program of a run understands: an absolute path, or a URL without a slash at its end."""
    if not location:
        raise LocationError("it is empty; give a path or URL")
    local = local_path(location)
    if local is not None:
        return os.path.abspath(local)
    scheme, _, rest = location.rstrip("/").partition("://")
    return f"{'s3' if scheme in _S3 else scheme}://{rest}"


def file_system(location: str) -> "tuple[FileSystem, str]":
    """The file system of a path or URL, and the path in it; raises LocationError that says what is missing."""
    local = local_path(location)
    if local is not None:
        from pyarrow.fs import LocalFileSystem

        return LocalFileSystem(), os.path.abspath(local)
    url = canonical(location)
    scheme, _, rest = url.partition("://")
    bucket, slash, path = rest.partition("/")
    if scheme != "s3" and scheme not in _NEEDED:
        known = ", ".join(sorted({*_S3, *_NEEDED}))
        raise LocationError(
            f"{location}: nothing is read from {scheme}:// here; {known} and files of this machine are known"
        )
    try:
        return _system(scheme, bucket, _endpoint()), f"{_root(scheme, bucket)}{slash}{path}"
    except ImportError as error:
        raise LocationError(f"{location}: {error.name} is not installed: pip install pyarrow") from error
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        text = one_line(error)
        advice = f": {_NEEDED[scheme]}" if scheme in _NEEDED else ""
        raise LocationError(f"{location}: {text.partition('.')[0]}{advice}") from error


def open_location(location: str) -> "FileIO | BinaryIO":
    """The file at a path or URL, open for reading; raises LocationError, and OSError if that fails."""
    local = local_path(location)
    if local is not None:
        return FileIO(local)
    system, path = file_system(location)
    stream: BinaryIO = system.open_input_stream(path)
    return stream


def can_open(location: str) -> bool:
    """Whether the file at a path or URL can be opened for reading."""
    try:
        open_location(location).close()
    except (OSError, LocationError):
        return False
    return True


def url_of(url: str, path: str) -> str:
    """The URL of another path in the file system of a URL."""
    scheme, _, rest = canonical(url).partition("://")
    bucket = rest.partition("/")[0]
    return f"{scheme}://{bucket}{path[len(_root(scheme, bucket)) :]}"


def _root(scheme: str, bucket: str) -> str:
    """How the paths in a file system begin."""
    if scheme == "hdfs":
        return ""
    return bucket.partition("@")[0] if scheme.startswith("abfs") else bucket


def _endpoint() -> str | None:
    """The S3 server that the environment names, if it is not Amazon's."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


@lru_cache
def _system(scheme: str, bucket: str, endpoint: str | None) -> "FileSystem":
    from pyarrow import fs

    if scheme == "s3":
        tries = fs.AwsStandardS3RetryStrategy(max_attempts=_S3_TRIES)
        if not endpoint:
            return fs.S3FileSystem(region=fs.resolve_s3_region(bucket), retry_strategy=tries)
        parts = urlsplit(endpoint)
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        return fs.S3FileSystem(endpoint_override=parts.netloc, scheme=parts.scheme, region=region, retry_strategy=tries)
    return fs.FileSystem.from_uri(f"{scheme}://{bucket}/")[0]


def delta_options() -> dict[str, str]:
    """Options for Delta Lake's own file systems. They also read the environment themselves."""
    return {"AWS_ALLOW_HTTP": "true"} if (_endpoint() or "").startswith("http://") else {}


def make_parent(system: "FileSystem", path: str) -> None:
    """Make the folder of a file that is about to be written; object stores have none."""
    if system.type_name == "local":
        system.create_dir(path.rpartition("/")[0])


def is_there(location: str) -> bool:
    """Whether there is a file or folder at a path or URL; raises LocationError if that cannot be told."""
    from pyarrow.fs import FileType

    system, path = file_system(location)
    try:
        return bool(system.get_file_info(path).type != FileType.NotFound)
    except OSError as error:
        raise LocationError(f"{location}: {one_line(error)}") from error
