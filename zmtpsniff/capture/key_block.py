"""Keys put into a pcapng file that is there already, so that one file can be passed on."""

import os
import shutil
import struct
import tempfile
from collections.abc import Sequence
from io import BufferedReader

from zmtpsniff.capture.pcapng import BYTE_ORDERS, LARGEST_BLOCK, MAGIC
from zmtpsniff.capture.pcapng_writer import key_blocks
from zmtpsniff.capture.source import CaptureError
from zmtpsniff.errors import naming


def put_keys(path: str, lines: Sequence[str]) -> None:
    """Put lines of a key file into the pcapng file ``path``, behind its first section header.

    So they come before all packets. The file is replaced by one that its owner alone may read; if that fails it stays
    as it was. Raises CaptureError, also for a file that is no pcapng file, or a compressed one.
    """
    with naming(path, CaptureError), open(path, "rb") as file:
        header = _section_header(path, file.read(12), file)
        order = BYTE_ORDERS[header[8:12]]
        descriptor, name = tempfile.mkstemp(prefix=".zmtpsniff-", dir=os.path.dirname(os.path.abspath(path)))
        try:
            with os.fdopen(descriptor, "wb") as copy:
                copy.write(header)
                copy.write(key_blocks(lines, order))
                shutil.copyfileobj(file, copy, 1 << 20)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise


def _section_header(path: str, begin: bytes, file: BufferedReader) -> bytes:
    """The first block of the file, of which ``begin`` has been read."""
    order = BYTE_ORDERS.get(begin[8:12])
    if begin[:4] != MAGIC or order is None:
        raise CaptureError(f"{path}: not a pcapng file, and only pcapng holds keys; zmtpsniff read -w makes one")
    (length,) = struct.unpack_from(f"{order}I", begin, 4)
    if length < 28 or length % 4 or length > LARGEST_BLOCK:
        raise CaptureError(f"{path}: a pcapng file whose section header claims {length} octets")
    header = begin + file.read(length - len(begin))
    if len(header) < length:
        raise CaptureError(f"{path}: a pcapng file cut short in its section header")
    # Its length is not known any more, which is what -1 says (section 4.1).
    return header[:16] + struct.pack(f"{order}q", -1) + header[24:]
