"""The built-in dissectors of payloads."""

from dissectors.payloads import PayloadDissector
from dissectors.payloads.bitcoin import Bitcoin
from dissectors.payloads.filemq import FileMq
from dissectors.payloads.jupyter import Jupyter
from dissectors.payloads.majordomo import Majordomo
from dissectors.payloads.malamute import Malamute
from dissectors.payloads.salt import Salt
from dissectors.payloads.zap import Zap
from dissectors.payloads.zgossip import Zgossip
from dissectors.payloads.zre import Zre


def built_in() -> list[PayloadDissector]:
    """A new object of each, so that what one run remembers is not told to another."""
    return [Jupyter(), Malamute(), Majordomo(), Zap(), Zre(), Zgossip(), FileMq(), Bitcoin(), Salt()]
