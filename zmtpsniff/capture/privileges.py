"""Gives up root: a program that sudo started continues as the user who called sudo."""

import os
import sys
from typing import TYPE_CHECKING

from zmtpsniff.capture.source import CaptureError

if TYPE_CHECKING:
    import pwd

_PR_SET_NO_NEW_PRIVS = 38  # linux/prctl.h


def invoking_user() -> "pwd.struct_passwd | None":
    """The user who called sudo, doas or pkexec; None if nobody did, or root. Windows has none of these."""
    if sys.platform == "win32" or os.geteuid() != 0:
        return None
    import pwd

    try:
        for name in ("SUDO_UID", "PKEXEC_UID"):
            if os.environ.get(name):
                user = pwd.getpwuid(int(os.environ[name]))
                break
        else:
            user = pwd.getpwnam(os.environ.get("DOAS_USER", ""))
    except (KeyError, ValueError):
        return None
    return user if user.pw_uid != 0 else None


def drop_privileges() -> str | None:
    """Become the invoking user, for good; returns the user's name, None if there is none to become.

    Afterwards this process has no capability, and neither it nor a program that it starts can gain one again.
    Raises CaptureError if the system refuses.
    """
    user = invoking_user()
    if user is None:
        return None
    import ctypes  # slow; and now, since its files may be root's alone

    try:
        os.initgroups(user.pw_name, user.pw_gid)
        os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
        # When the last user id stops being root's, the kernel takes all capabilities away (capabilities(7)).
        os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    except OSError as error:
        raise CaptureError(f"cannot become {user.pw_name} ({error.strerror})") from error
    # Programs started from now on must not look for their files in root's home.
    os.environ.update(HOME=user.pw_dir, USER=user.pw_name, LOGNAME=user.pw_name)
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        del os.environ[name]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.geteuid() == 0 or os.getuid() == 0:
        raise CaptureError(f"cannot become {user.pw_name}")
    return user.pw_name
