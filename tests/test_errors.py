"""Errors of other libraries as lines of ours."""

from zmtpsniff.errors import one_line


def test_an_error_of_another_library_is_a_line_without_colours() -> None:
    """As Delta Lake tells that a cloud cannot be reached."""
    error = OSError("\x1b[31mGeneric GCS error\x1b[0m:\n  \x1b[1;33mno token\x1b[0m ")
    assert one_line(error) == "Generic GCS error: no token"
