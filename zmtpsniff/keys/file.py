"""The file that keys are written to: for its owner only, a line at once."""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from zmtpsniff.capture.privileges import invoking_user
from zmtpsniff.capture.source import CaptureError


class KeyFile:
    """Lines of keys, added to a file that only its owner may read; who called sudo owns a new one."""

    def __init__(self, name: str | None) -> None:
        """Open it for adding; None or "-" is standard output. Raises CaptureError."""
        if name is None or name == "-":
            self._descriptor = os.dup(1)
            return
        try:
            with invoking_users_rights():
                self._descriptor = os.open(
                    name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
                )
                if stat.S_ISREG(os.fstat(self._descriptor).st_mode):
                    os.fchmod(self._descriptor, 0o600)
        except OSError as error:
            raise CaptureError(f"{name}: {error.strerror or error}") from error

    def write(self, lines: Sequence[str]) -> None:
        """Add lines; whoever follows the file sees them whole. Raises OSError."""
        if lines:
            os.write(self._descriptor, "".join(f"{line}\n" for line in lines).encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


@contextmanager
def invoking_users_rights() -> Iterator[None]:
    """Only the rights of who called sudo meanwhile, so that root overwrites nothing that this user could not."""
    user = invoking_user()
    if user is None:
        yield
        return
    groups = os.getgroups()
    os.setgroups(os.getgrouplist(user.pw_name, user.pw_gid))
    os.setegid(user.pw_gid)
    os.seteuid(user.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)
