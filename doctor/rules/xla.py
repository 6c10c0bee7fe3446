"""What XLA (JAX, torch_xla) says of participants that do not come to its meetings."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from doctor.evidence import EvidenceSet
from doctor.evidence.logs import LogEvent
from doctor.rules import Rule
from doctor.rules.events import events_of, said
from doctor.text import name_ranks, plural
from launcher.common.finding import Finding

_TASK = re.compile(r"/task:(\d+)")
_STACK = "look at the stacks and last log lines of those that did not come: an exception, other data, another program"


def participants(evidence: EvidenceSet) -> Iterator[Finding]:
    """Old lines name each device that waits, and all that must come."""
    meetings: defaultdict[tuple[str, str], list[LogEvent]] = defaultdict(list)
    for event in events_of(evidence, "xla_participant"):
        meetings[event["all"], event["op"]].append(event)
    for (members, number), found in list(meetings.items())[:1]:  # the first explains the rest
        came = {int(event["device"]) for event in found}
        absent = tuple(sorted({int(one) for one in re.findall(r"\d+", members)} - came))
        if not absent:
            yield _meeting(found, f"operation {number}", "all devices of these lines wait there")
        else:
            yield said(
                found,
                "hang.absent_rank" if len(absent) < len(came) else "hang.rendezvous",
                f"XLA waits in operation {number} for {name_ranks(absent).replace('rank', 'device')}: it did not come"
                " to it.",
                _STACK,
                0.75,
                ranks=absent if len(absent) < len(came) else (),
                op=number,
            )


def waits(evidence: EvidenceSet) -> Iterator[Finding]:
    """New lines tell what is waited for; a line that the thread moves on takes them back."""
    found = events_of(evidence, "xla_waits")
    if not found:
        return
    if events_of(evidence, "xla_moves_on"):
        yield said(
            found,
            "benign.warning_only",
            "XLA warned of a slow meeting of its threads, which then took place.",
            "nothing to do; a larger timeout of XLA stops the warning",
            0.6,
            "info",
        )
        return
    first = found[0]
    came = f", only {first['came']} came" if first["came"] else ""
    yield _meeting(found, f"rendezvous {first['what']!r}", f"{first['expected'] or 'more'} threads were to come{came}")


def _meeting(found: Sequence[LogEvent], what: str, how: str) -> Finding:
    return said(
        found,
        "hang.rendezvous",
        f"XLA waits in {what}: {how}. The missing ones stand elsewhere or NCCL does not connect.",
        _STACK + "; NCCL_DEBUG=INFO tells whether the communicator is still being made",
        0.55,
        missing=("the logs of the other processes",),
    )


def barriers(evidence: EvidenceSet) -> Iterator[Finding]:
    """A barrier of JAX's coordination service names the tasks that did not come."""
    found = events_of(evidence, "xla_barrier")
    if not found:
        return
    named = [event["rest"].rpartition("timed out task names")[2] for event in found if "task names" in event["rest"]]
    named += [event["tasks"] for event in events_of(evidence, "xla_task")]
    absent = tuple(sorted({int(task) for text in named for task in _TASK.findall(text)}))
    what = f" {found[0]['what']}" if found[0]["what"] else ""
    who = f"{plural(len(absent), 'task')} did not come to it: /task:{', '.join(map(str, absent))}"
    yield said(
        found,
        "hang.absent_rank",
        f"JAX's barrier{what} timed out; {who if absent else 'its lines do not tell who did not come'}.",
        _STACK,
        0.75 if absent else 0.5,
        ranks=absent,
    )


RULES = (
    Rule(("hang.absent_rank", "hang.rendezvous"), ("hang",), participants),
    Rule(("hang.rendezvous", "benign.warning_only"), ("hang",), waits),
    Rule(("hang.absent_rank",), ("hang",), barriers),
)
