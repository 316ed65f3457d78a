"""What is raised when something cannot be done that a user asked for."""


class Error(Exception):
    """Something cannot be done. The text is one line, as the commands print it: what, why, and what to do."""


class PluginError(Error):
    """A plug-in cannot be used; the text says which and why, on one line."""

    def __init__(self, reason: str) -> None:
        """``reason`` begins with the plug-in's name."""
        super().__init__(f"plug-in {reason}")
