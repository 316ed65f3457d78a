"""What is raised when something cannot be done that a user asked for."""


class Error(Exception):
    """Something cannot be done; the text is one line that says what, why, and what to do, as the commands print it."""
