"""``zmtpsniff keys`` and ``live --curve-keys auto`` where PyNaCl is not installed: one line says what to do."""

import subprocess
import sys

import pytest

from tests.support.live_program import needs_privilege
from tests.support.paths import FIXTURES
from tests.support.runner import assert_refused

WITHOUT = "import sys; sys.modules['nacl'] = None; from zmtpsniff.cli.main import main; main()"


@pytest.mark.parametrize(
    "arguments",
    [
        ("keys",),
        ("keys", "--capture", str(FIXTURES / "m31_req_rep.pcap")),
        pytest.param(("live", "-i", "lo", "-a", "duration:1", "--curve-keys", "auto"), marks=needs_privilege),
    ],
    ids=" ".join,
)
def test_what_to_install(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert_refused(done, "zmtpsniff: ", "pip install 'zmtpsniff[curve]'")
