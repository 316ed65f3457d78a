"""When output has colours."""

from typing import Literal

Color = Literal["auto", "always", "never"]  # auto: where the output is a terminal that can show them
