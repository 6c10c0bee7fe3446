"""Ranks and nodes that never came together: stores, rendezvous, keys, barriers of the start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from doctor.evidence import EvidenceSet
from doctor.evidence.logs import LogEvent
from doctor.rules import Rule
from doctor.rules.activities import ACTIVITIES, DOING, activity_before
from doctor.rules.events import by_fields, events_of, ranks_of, said, who
from doctor.text import name_ranks, plural
from launcher.common.finding import Finding


def absent(evidence: EvidenceSet) -> Iterator[Finding]:
    """Ranks or nodes that never came to the rendezvous."""
    for event in events_of(evidence, "store_wait_clients"):
        short = int(event["wanted"]) - int(event["joined"])
        if short < 0:
            yield _too_many(event)
            continue
        yield _never_met(
            [event],
            f"only {event['joined']} of {event['wanted']} clients reached the store: {plural(short, 'rank')} or nodes"
            " never came",
        )
    waiting = events_of(evidence, "store_waiting")
    if waiting and not events_of(evidence, "store_wait_clients") and not events_of(evidence, "store_met"):
        last = max(waiting, key=lambda event: int(event["joined"]))
        yield _never_met([last], f"{last['joined']} of {last['wanted']} ranks have reached the store's barrier so far")
    late = events_of(evidence, "rendezvous_timeout", "rendezvous_state")
    if late:
        yield _never_met(
            late, "the rendezvous timed out: a node did not come, or came with another id, endpoint or node count"
        )
    waits = _key_waits(events_of(evidence, "store_key_timeout"))
    if events_of(evidence, "exit_barrier"):
        waits = [event for event in waits if event["key"]]  # the others are the agents' waits for each other's end
    for (source,), found in by_fields(waits, "from").items():
        waited = f"rank {source}" if source else "another rank"
        what = f"{waited} did not publish the key that the others wait for ({found[0]['key'] or 'unnamed'})"
        yield _never_met(found, what + _meanwhile(found[0], evidence), source)


def _meanwhile(wait: LogEvent, evidence: EvidenceSet) -> str:
    doing = activity_before(wait, evidence)
    if doing is None:
        return ""
    work = f"{DOING[ACTIVITIES[doing.kind]]} ({doing['what'] or doing.text})"
    return f"; before that a rank was {work}: if this lasts longer than the timeout, the timeout is too short"


def _too_many(event: LogEvent) -> Finding:
    """A count above the world size: an earlier attempt counted in the same store."""
    return said(
        [event],
        "bootstrap.stale_endpoint",
        f"The store counts {event['joined']} clients of {event['wanted']}: an earlier attempt's are still in it.",
        "end the earlier processes, and give each attempt a store of its own (new port or rendezvous id)",
        0.7,
    )


def _key_waits(events: Sequence[LogEvent]) -> list[LogEvent]:
    """Waits that timed out; a store whose connection broke is a victim of the process that held it."""
    broken = ("eset", "roken", "closed", "0 bytes")
    return [event for event in events if not any(mark in event["error"] for mark in broken)]


def _never_met(events: Sequence[LogEvent], what: str, rank: str = "") -> Finding:
    return said(
        events,
        "hang.rendezvous",
        f"The ranks never came together: {who(events)} says that {what}.",
        "start all nodes with the same endpoint, id and node count; look at the log of the node that did not come",
        0.8,
        ranks=(int(rank),) if rank else ranks_of(events),
        missing=["the logs of the nodes that did not come"],
    )


def barriers(evidence: EvidenceSet) -> Iterator[Finding]:
    found = events_of(evidence, "monitored_barrier")
    ranks = sorted({int(rank) for event in found for rank in event["ranks"].replace(",", " ").split()})
    if ranks:
        yield said(
            found,
            "hang.absent_rank",
            f"{name_ranks(ranks)} did not come to a monitored barrier in time.",
            "look at the stacks of these ranks (py-spy dump)",
            0.9,
            ranks=ranks,
        )
    waits = events_of(evidence, "gloo_timeout")
    if waits:
        yield said(
            waits,
            "hang.absent_rank",
            f"{who(waits)} gave up waiting for a {waits[0]['what']} on gloo: a peer did not come to this call.",
            "look at the ranks that did not time out: the silent one is the first suspect",
            0.5,
            ranks=(),
            missing=["which rank the peer was: dumps or stacks of all ranks"],
            waiting=ranks_of(waits),
        )


RULES = (
    Rule(("hang.rendezvous", "bootstrap.stale_endpoint"), ("hang",), absent),
    Rule(("hang.absent_rank",), ("hang",), barriers),
)
