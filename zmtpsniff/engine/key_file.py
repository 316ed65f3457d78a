"""Files with keys of CURVE connections; dissectors/zmtp/curve_keys.py describes a line."""

from collections.abc import Iterable

from dissectors.zmtp.curve_keys import Key, KeyLineError, parse_key


class KeyFileError(ValueError):
    """A key file that cannot be read, or one of its lines that is no key. The text is one line that names both."""


def read_keys(path: str) -> tuple[Key, ...]:
    """The keys in the file ``path``; raises KeyFileError, and NoSodiumError (no PyNaCl) if there is one."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return keys_in(file, path)
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror or error}") from error


def keys_in(lines: Iterable[str], name: str) -> tuple[Key, ...]:
    """The keys in lines of a file or pipe that is called ``name``; raises as read_keys()."""
    keys = []
    for number, line in enumerate(lines, 1):
        try:
            key = parse_key(line)
        except KeyLineError as error:
            raise KeyFileError(f"{name}: line {number}: {error}") from None
        if key is not None:
            keys.append(key)
    return tuple(keys)
