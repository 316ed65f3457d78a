"""``check --baseline``: the comparison of two captures as outcomes that every report format can show.

Only what is worse is a difference, not what is better or new. A value that one of the captures may lack is not
checked.
"""

from collections.abc import Sequence

from zmtpsniff.check.comparison import Compared, Percentile, Tolerance, compare_services
from zmtpsniff.check.defaults import TOLD
from zmtpsniff.check.difference import Aspect
from zmtpsniff.check.model import Offence, Outcome, Rule, not_checked
from zmtpsniff.check.services import Services
from zmtpsniff.words.counts import plural

_LEAST_ANSWERS = 10  # with fewer the longest latency is chance, and comparing says nothing
_LEAST_NS = 10_000_000  # a latency that is longer by less differs so from one run to the next
_OFTEN = 3


def compare(old: Services, new: Services, tolerance: float, shown: int) -> list[Outcome]:
    """An outcome for each value that can be compared. Its offences are what is worse, at most ``shown`` of them.

    Rates and latencies are worse if they change by more than ``tolerance`` percent.
    """
    replies = tuple(Percentile(percent, _LEAST_ANSWERS, _LEAST_NS) for percent in (50, 99))
    compared = compare_services(old, new, Tolerance(1 + tolerance / 100, replies, _OFTEN))
    within = f", within {tolerance:g} %"
    rules: list[tuple[tuple[Aspect, ...], str]] = [
        (("services",), "no service is gone"),
        (("clients",), "no service has fewer clients at the same time"),
        (("sockets",), "the same types of sockets talk to each other"),
        (("mechanisms",), "no security mechanism is weaker"),
        (("versions",), "no version is lower"),
        (("handshakes",), f"no more handshakes fail{within}"),
        (("topics", "subscriptions"), "what was subscribed to and published still is"),
        (("rates",), f"no service sends or gets fewer messages a second{within}"),
        (("latencies",), f"no service replies more slowly{within} (and 10 ms)"),
        (("problems",), f"no more problems of severity error and warning{within}"),
    ]
    outcomes = []
    for aspects, text in rules:
        every = [one for one in compared if one.aspect in aspects]
        if every or aspects == ("services",):
            outcomes.append(_outcome(Rule(aspects[0], "baseline", text), every, shown))
    return outcomes


def _outcome(rule: Rule, every: Sequence[Compared], shown: int) -> Outcome:
    worse = [difference for one in every for difference in one.differences]
    if worse:
        offences = [Offence(one.summary, flow=one.flow, time_ns=one.time_ns) for one in worse[:shown]]
        return Outcome(rule, False, f"{plural(len(worse), 'thing')} worse", offences, len(worse) - len(offences))
    unknown = list(dict.fromkeys(one.unknown for one in every if one.unknown))
    if unknown:
        return not_checked(rule, "; ".join(unknown[:TOLD]))
    return Outcome(rule, True, f"nothing worse, of {plural(len(every), 'thing')} compared")
