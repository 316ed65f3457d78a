"""Replies of a service that come late: replies-slow."""

from collections.abc import Iterable, Mapping, Sized

from zmtpsniff.analysis.findings.exchanges import ServiceCount, SlowReply
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.statistics.sketch import Sketch
from zmtpsniff.words.counts import MANY, plural
from zmtpsniff.words.durations import about

_LEAST_REPLIES = 3  # a median needs so many
SLOW_NS = 100_000_000
SLOW_TIMES = 20
"""A reply is slow if it takes longer than SLOW_NS, and than so many times the median."""
SLOW_MEDIAN_NS = 1_000_000_000
"""A service is slow if half of its replies take longer."""
TEAM_TIMES = 5
"""So many times as long as others that do the same is slow."""
LONG_NS = 50_000_000
"""If its work takes longer than this, it hurts."""
FEW_SLOW = 0.02
"""This part of the replies may be late on any busy machine."""
LEAST_SLOW = 3
"""So many slow messages are no chance."""
_HICCUP_NS = 250_000_000  # a busy machine may stop a program for so long now and then
_DELAYED_NS = 250_000_000  # a host may delay an acknowledgment so long on an idle network
_RESENT = (
    "; before the reply came, octets of the connection were sent again: the network loses packets, and that takes "
)
_LOST_ADVICE = (
    "Look for what loses packets between the two hosts (`ip -s link`, `nstat -az TcpRetransSegs`): TCP waits 200 ms or "
    "longer before it sends octets again."
)
_TRANSFER_ADVICE = (
    "The service had begun to reply by then. Look at the link between the two (its rate, who else uses it), and at how "
    "fast the requester takes octets; smaller or compressed replies help."
)
NETWORK_ADVICE = (
    "Look at the network between the two hosts, not at the service: `ping` shows how long the way takes. A far place, "
    "a full link or a queue on the way delays each message."
)
_IN_SERVICE = "in the service, or in one that it asks"


def slow_replies(address: str, service: ServiceCount, network: Sketch | None) -> Iterable[Claim]:
    """Tell whether replies of a service are slow, and where the time passes.

    ``network`` has the times that a SYN to it waited for its answer; None if there was none.
    """
    latencies = service.latencies
    if latencies.count < _LEAST_REPLIES:
        return
    median_ns = latencies.percentile(50)
    if service.by_turns and median_ns > SLOW_NS:
        return  # both may only tell something every few seconds; that takes turns, too
    slow_ns = max(SLOW_NS, SLOW_TIMES * median_ns)
    slowest = sorted(service.slowest, reverse=True)
    takes = slowest[0].takes if slowest else "service"
    is_always = median_ns > SLOW_MEDIAN_NS
    if not is_always:
        if latencies.maximum <= slow_ns:
            return
        slowest = [one for one in slowest if one.latency_ns > slow_ns]
    if takes == "service":
        where, advice = _where(network, slowest)
    elif takes == "transfer":
        where, advice = _transfer(slowest[0]), _TRANSFER_ADVICE
    else:
        where, advice = f"{_RESENT}{about(slowest[0].resent_ns)} of the slowest", _LOST_ADVICE
    if is_always:
        half = f"half of its {plural(latencies.count, 'reply')} took over {about(median_ns)}"
        summary = f"{_slow(address, advice)}: {half}, the slowest {about(latencies.maximum)}"
        yield _claim(address, service, slowest, summary, where, advice)
        return
    summary = f"some replies of {address} are slow: {_slowest(latencies, slow_ns)}"
    claim = _claim(address, service, slowest, summary, where, advice)
    seen = claim.occurrences
    seen.count = max(latencies.above(slow_ns), len(slowest))
    is_rare = seen.count < FEW_SLOW * latencies.count and latencies.maximum < SLOW_MEDIAN_NS
    is_hiccup = seen.count < LEAST_SLOW and latencies.maximum < _HICCUP_NS
    yield claim._replace(severity="note") if is_rare or is_hiccup else claim


def slow_workers(workers: Mapping[str, ServiceCount]) -> Iterable[Claim]:
    """Tell which workers of one socket are slow: by themselves, or beside others, that get the same requests."""
    medians = {
        address: worker.latencies.percentile(50)
        for address, worker in workers.items()
        if worker.latencies.count >= _LEAST_REPLIES
    }
    for address, median_ns in medians.items():
        worker = workers[address]
        claims = list(slow_replies(address, worker, None))
        others_ns = max((one for other, one in medians.items() if other != address), default=median_ns)
        if claims or worker.by_turns or median_ns <= max(LONG_NS, TEAM_TIMES * others_ns):
            yield from claims
            continue
        slowest = sorted(worker.slowest, reverse=True)
        where, advice = _where(None, slowest)
        half = f"half of its {plural(worker.latencies.count, 'reply')} took over {about(median_ns)}"
        others = f"those of others that do the same under {about(max(others_ns, 1))}"
        summary, where = (
            f"{_slow(address, advice)}: {half}, {others}",
            f"{where}; one socket gives all of them requests",
        )
        yield _claim(address, worker, slowest, summary, where, advice)


def _claim(
    address: str, service: ServiceCount, slowest: list[SlowReply], summary: str, where: str, advice: str | None
) -> Claim:
    """The claim that the ``slowest`` replies are slow; ``where`` tells where the time passes."""
    return Claim(
        "replies-slow",
        summary,
        f"from the request to its reply, as captured{where}{service.doubt}{in_order(slowest)}",
        Occurrences.of((slow.time_ns, slow.packet, slow.flow) for slow in slowest),
        [address],
        certainty="likely" if service.by_turns or service.is_sealed else "certain",
        advice=advice,
        subject=address,
        # Of sealed replies, the time at other services is left out already.
        spells=[] if service.is_sealed else [one.spell for one in slowest],
    )


def in_order(slowest: Sized) -> str:
    """Says how the packets of slow messages are sorted, if there are several."""
    return "; the slowest stands first" if len(slowest) > 1 else ""


def _slow(address: str, advice: str | None) -> str:
    """Says that a service is slow, or, if there is advice of its own for that, the way to it."""
    return f"{address} is slow" if advice is None else f"the way of {address} is slow"


def _slowest(latencies: Sketch, slow_ns: int) -> str:
    """How long the slow replies took, and the others. A few replies have no percentiles."""
    slowest = about(latencies.maximum)
    if latencies.count >= MANY:
        return (
            f"the slowest of {latencies.count:,} took {slowest}, 1 in 100 over {about(latencies.percentile(99))}, "
            f"half of all under {about(max(latencies.percentile(50), 1))}"
        )
    late = max(latencies.above(slow_ns), 1)
    others = about(max(latencies.percentile(100 * (latencies.count - late) // latencies.count), 1))
    took = slowest if late == 1 else f"over {about(slow_ns)}, the slowest {slowest}"
    return f"{late} of {latencies.count} took {took}, the others at most {others}"


def _where(network: Sketch | None, slowest: list[SlowReply]) -> tuple[str, str | None]:
    """Where the time passes, on the way to the service or in it, and the advice if it is not that of the code."""
    way_ns = network.percentile(50) if network is not None and network.count else None
    acked = [one for one in slowest if one.acked_ns is not None]
    if acked:
        latency_ns, acked_ns = acked[0].latency_ns, acked[0].acked_ns or 0
        told = (
            f"; its host acknowledged the request of {'the slowest' if acked[0] is slowest[0] else 'a slow one'} "
            f"after {about(max(acked_ns, 1))}, and the reply came {about(latency_ns - acked_ns)} after that"
        )
        if 2 * acked_ns < latency_ns:
            return f"{told}: the time passes {_IN_SERVICE}", None
        # Else it may be an acknowledgment that was held back.
        is_far = acked_ns > _DELAYED_NS or (way_ns is not None and 2 * way_ns > acked_ns)
        if not is_far:
            return told, None
        return f"{told}: the time passes on the network, before the first acknowledgment", NETWORK_ADVICE
    if way_ns is None:
        return "", None
    told = f"; its host answers a SYN after {about(max(way_ns, 1))}, so the time passes"
    if way_ns * 10 < slowest[0].latency_ns:
        return f"{told} {_IN_SERVICE}", None
    return f"{told} mostly on the network", NETWORK_ADVICE


def _transfer(slow: SlowReply) -> str:
    """How the time of a reply divides whose octets took long to come."""
    before_ns = max(slow.latency_ns - slow.transfer_ns, 1)
    lost = f", {about(slow.resent_ns)} of it until octets were sent again" if slow.resent_ns else ""
    return (
        f"; the first octets of the slowest came after {about(before_ns)}, and the others took "
        f"{about(slow.transfer_ns)}{lost}: the time passes in the transfer"
    )
