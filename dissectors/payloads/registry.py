"""The built-in dissectors of payloads."""

from dissectors.payloads import PayloadDissector
from dissectors.payloads.bitcoin import Bitcoin
from dissectors.payloads.dafka import DAFKA
from dissectors.payloads.filemq import FileMq
from dissectors.payloads.jupyter import Jupyter
from dissectors.payloads.kvevents import KvEvents
from dissectors.payloads.majordomo import Majordomo
from dissectors.payloads.malamute import Malamute
from dissectors.payloads.salt import Salt
from dissectors.payloads.xrap import Xrap
from dissectors.payloads.zap import Zap
from dissectors.payloads.zgossip import ZGOSSIP
from dissectors.payloads.zre import Zre, ZreLog


def built_in() -> list[PayloadDissector]:
    """An object of each: a new one if it remembers anything, so that no run sees what another run remembers."""
    return [
        Jupyter(),
        Malamute(),
        Majordomo(),
        Zap(),
        Zre(),
        ZreLog(),
        ZGOSSIP,
        FileMq(),
        Bitcoin(),
        Salt(),
        KvEvents(),
        Xrap(),
        DAFKA,
    ]
