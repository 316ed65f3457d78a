"""Options that belong together reach a command as one object, with the defaults that programs get."""

import click
import pytest
from click.testing import CliRunner

from zmtpsniff.capture.engines.engine import LiveOptions
from zmtpsniff.cli.live_capture import LiveSettings, live_options
from zmtpsniff.cli.run import keeping
from zmtpsniff.cli.shared_options import Output, dissection_options, dissection_options_without_secrets, output_options
from zmtpsniff.decode_as import parse
from zmtpsniff.engine.settings import Settings
from zmtpsniff.net.limits import FlowLimits


def given(group: object, *arguments: str) -> dict[str, object]:
    """The arguments of a command with a group of options."""
    seen: dict[str, object] = {}
    command = click.command()(group(lambda **values: seen.update(values)))  # type: ignore[operator]
    done = CliRunner().invoke(command, arguments, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return seen


@pytest.mark.parametrize("group", [dissection_options, dissection_options_without_secrets])
def test_without_options_they_are_what_programs_get(group: object) -> None:
    assert given(group) == {"dissection": Settings()}


def test_each_option_has_its_place() -> None:
    first = "-c 9 -d tcp.port==5555,zmtp --no-patterns --timeout 2.5 --plugin a.py --decode-bodies --show-secrets"
    second = "--max-flows 7 --max-waiting 32 --idle-timeout 60"
    settings = given(dissection_options, *first.split(), *second.split())["dissection"]
    assert isinstance(settings, Settings)
    assert settings == Settings(
        packets=9,
        decode_as=(parse("tcp.port==5555,zmtp"),),
        limits=Settings().limits._replace(show_secrets=True),
        flow_limits=FlowLimits(2 << 20, 32 << 20, flows=7, idle_seconds=60),
        patterns=False,
        reply_seconds=2.5,
        plugins=("a.py",),
        decode_bodies=True,
    )
    with pytest.raises(AttributeError):
        settings.packets = 10  # type: ignore[misc]


@pytest.mark.parametrize("arguments", ["--plugin a.py", "--decode-bodies", "-d tcp.port==1,mlm"])
def test_what_needs_payloads_contradicts_their_absence(arguments: str) -> None:
    with pytest.raises(click.UsageError, match=r"not with --no-payload"):
        given(dissection_options, "--no-payload", *arguments.split())


@pytest.mark.parametrize(
    ("arguments", "octets"), [("", 65_536), ("-T dump", 0), ("-T dump --max-bytes 9", 9), ("--max-bytes 0", 0)]
)
def test_what_is_to_be_shown_is_kept(arguments: str, octets: int) -> None:
    output = given(output_options, *arguments.split())["output"]
    assert isinstance(output, Output)
    assert keeping(Settings(), output).limits.body_octets == octets


def test_live_options_default_to_those_of_engines() -> None:
    live = given(live_options)["live"]
    assert isinstance(live, LiveSettings)
    assert LiveOptions((), live.capture_filter, live.snaplen, live.buffer_mib) == LiveOptions(())
