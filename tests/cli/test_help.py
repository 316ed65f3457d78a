"""--help fits a screen, and says what is needed; --help-all says everything."""

import click
import pytest

from tests.support.runner import run
from zmtpsniff.cli.help import OUTPUT, CommandWithHelp, Group, describe, first_sentence, sections
from zmtpsniff.cli.main import cli

_COLUMNS, _LINES = 80, 40


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found = [(path, command)]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            found += _commands(inner, (*path, name))
    return found


COMMANDS = _commands(cli)
IDS = [" ".join(path) or "zmtpsniff" for path, _ in COMMANDS]


def _said(*arguments: str) -> str:
    done = run(*arguments, env={"COLUMNS": str(_COLUMNS), "PATH": "/usr/bin:/bin"})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=IDS)
def test_it_fits_a_screen(path: tuple[str, ...], command: click.Command) -> None:
    assert isinstance(command, CommandWithHelp | Group), f"give it cls=CommandWithHelp, or Group, of {Group.__module__}"
    lines = _said(*path, "--help").splitlines()
    assert len(lines) <= _LINES, "shorten the text of an option, or declare a rare one by .rare() of its section"
    assert all(len(line) <= _COLUMNS for line in lines)
    described = describe(command)
    assert described.paragraphs
    assert described.examples, "an example says more than ten options"
    assert all(example in "\n".join(lines) for example in described.examples)


@pytest.mark.parametrize("command", [command for _, command in COMMANDS], ids=IDS)
def test_help_has_both_names_with_and_without_a_parent(command: click.Command) -> None:
    alone = click.Context(command, **command.context_settings)
    assert set(command.get_help_option_names(alone)) == {"-h", "--help"}


@pytest.mark.parametrize(
    ("path", "command"),
    [each for each in COMMANDS if not isinstance(each[1], click.Group)],
    ids=lambda value: str(value),
)
def test_all_options_are_told(path: tuple[str, ...], command: click.Command) -> None:
    short, whole = _said(*path, "--help"), _said(*path, "--help-all")
    context = click.Context(command, **command.context_settings)  # which the command keeps its --help by
    listed = [option for section in sections(command, context) for option in section.options]
    assert {id(option) for option in listed} == {
        id(option) for option in command.get_params(context) if isinstance(option, click.Option)
    }
    words = " ".join(whole.split())
    for option in listed:
        assert option.help, option.opts
        assert option.opts[0] in whole
        assert option.opts[0] in short or option.opts[-1] in short
        assert " ".join(first_sentence(option.help).split()) in words or option.opts == ["--help-all"]


def test_an_option_without_a_section_comes_in_the_last() -> None:
    @click.command(cls=CommandWithHelp)
    @click.option("--brand-new", help="Of no section.")
    @OUTPUT.option("-o", help="Of a section.")
    def made(brand_new: str, o: str) -> None:
        """Do something."""

    found = {
        section.title: [option.opts[0] for option in section.options] for section in sections(made, click.Context(made))
    }
    assert found["Output"] == ["-o"]
    assert found["Other options"][0] == "--brand-new"
