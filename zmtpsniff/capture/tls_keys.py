"""Keys of TLS: finds them in files and captures, and makes arguments of tshark from them."""

import re
import struct
from collections.abc import Sequence

from zmtpsniff.capture.pcapng_blocks import CURVE_KEYS, LEAST_BLOCK, SECRETS, SECTION_HEADER
from zmtpsniff.capture.source import CaptureError
from zmtpsniff.errors import naming

_LITTLE = b"\x4d\x3c\x2b\x1a"
# Preferences and tables of tshark that give it keys, beside the key log.
_GIVES_KEYS = re.compile(r"(tls|ssl)\.|uat:(rsa_keys|ssl_keys)\b", re.IGNORECASE)


def key_arguments(names: Sequence[str]) -> list[str]:
    """Turn files of keys, one key log and any number of private keys of servers (PEM), into arguments of tshark.

    Raises CaptureError for one that cannot be read, and ValueError for what tshark does not take.
    """
    arguments = []
    logs = 0
    for name in names:
        with naming(name, CaptureError), open(name, "rb") as file:
            begin = file.read(4096)
        if b"-----BEGIN" in begin:
            if re.search(r'["\\]', name):
                raise ValueError(f"{name}: tshark takes no name with quotes or backslashes in it for a private key")
            arguments += ["-o", f'uat:rsa_keys:"{name}",""']
        elif b"\0" in begin:
            raise ValueError(f"{name}: neither a key log nor a private key (PEM)")
        else:
            arguments += ["-o", f"tls.keylog_file:{name}"]
            logs += 1
    if logs > 1:
        raise ValueError("several key logs: tshark takes one; put their lines into one file")
    return arguments


def gives_keys(option: str) -> bool:
    """Whether an option for tshark, as its -o takes it, is about keys of TLS."""
    return _GIVES_KEYS.match(option) is not None


def brings_secrets(name: str) -> bool:
    """Whether a file is a pcapng capture with decryption secrets in it. False for other formats, where nobody knows."""
    if name == "-":  # which can be read only once
        return False
    order = "<"
    try:
        with open(name, "rb") as file:
            if file.read(4) != SECTION_HEADER.to_bytes(4, "big"):
                return False
            file.seek(0)
            while len(head := file.read(LEAST_BLOCK)) == LEAST_BLOCK:
                if head.startswith(b"\x0a\x0d\x0d\x0a"):
                    order = "<" if head[8:12] == _LITTLE else ">"
                kind, length, secrets_kind = struct.unpack(f"{order}III", head)
                if kind == SECRETS and secrets_kind != CURVE_KEYS:
                    return True
                if length < LEAST_BLOCK:
                    return False
                file.seek(length - LEAST_BLOCK, 1)
    except OSError:  # told when it is read
        return False
    return False
