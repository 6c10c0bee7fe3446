"""The supervisor inside Slurm's batch script: it finds the nodes, starts all agents in one step, hears the warning."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from types import FrameType
from typing import TYPE_CHECKING

from launcher.agent.plan import AgentPlan
from launcher.common.paths import JobPaths
from launcher.errors import CannotActError, DlaunchError
from launcher.jobs.failure import NodeView
from launcher.jobs.machine import Action, Conclude, StartAttempt, StopAttempt, bad_hosts
from launcher.jobs.prepare import lay_out, placed_fields
from launcher.jobs.record import ENDED
from launcher.jobs.request import resized
from launcher.jobs.site import Site
from launcher.jobs.slurm_batch import open_session, recorded_entry
from launcher.jobs.slurm_site import slurm_site
from launcher.jobs.store import append_event, read_events
from launcher.jobs.supervisor import Supervisor
from launcher.slurm import client
from launcher.slurm.allocation import Allocation
from launcher.slurm.bad_nodes import add_bad_nodes
from launcher.slurm.endings import end_on
from launcher.slurm.lifecycle import ENDING, Warned, after_the_end, restart_reason
from launcher.slurm.session import Session
from launcher.slurm.status import JobStatus

if TYPE_CHECKING:
    from launcher.inventory import Cluster


class SlurmSupervisor(Supervisor):
    """Supervises one run of the batch script; a requeued job is supervised by the next run's, with the next attempt."""

    def __init__(self, paths: JobPaths, allocation: Allocation, session: Session) -> None:
        super().__init__(paths, {}, None)
        self.allocation = allocation
        self.session: Session | None = session  # as long as it can be asked
        self.step = session  # that became the agents
        self.cluster = recorded_entry(paths)
        self.warned: Warned | None = None
        self.told = False  # the ranks know of the warning
        self.terminated = False  # Slurm is ending the job
        self.stopped_by_us = False  # this attempt
        self.preempted = False
        signal.signal(signal.SIGUSR2, self._on_warning)
        signal.signal(signal.SIGTERM, self._on_termination)

    def start(self) -> None:
        """Take up the job where it stands: new, or requeued by Slurm."""
        if self.record.state in ENDED:
            return  # stopped while it waited; the nodes' tasks end with us
        try:
            self._lay_out()
        except DlaunchError as error:
            self._conclude(Conclude("failed", str(error)))
            return
        self.run(adopt=False)

    def _lay_out(self) -> None:
        again = self.allocation.restarts > 0
        attempt = self.record.attempt + again
        reason = f"requeued: {self._restart_reason()}" if again else ""
        append_event(self.paths, "allocated", nodes=list(self.allocation.nodes), restarts=self.allocation.restarts)
        self._save(state="starting", attempt=attempt, reason=reason, slurm_id=self.allocation.job_id)
        site = self._open_site(self.cluster, self.allocation.nodes)
        layout = lay_out(self.cluster, resized(self.spec, len(self.allocation.nodes)), site, self.record.job)
        self.spec, self.rendezvous = layout.spec, layout.rendezvous
        self.life = replace(self.life, attempt=attempt)
        self._save(addresses=site.known, **placed_fields(layout))

    def _restart_reason(self) -> str:
        earlier: list[JobStatus] = []
        with suppress(CannotActError):
            earlier = client.earlier_runs(self.allocation.job_id)
        return restart_reason(earlier, list(read_events(self.paths)))

    def _entry(self) -> Cluster:
        return self.cluster

    def _open_site(self, cluster: Cluster, names: Sequence[str]) -> Site:
        """The step that is open already, or for a new attempt in this allocation one over the chosen nodes."""
        if self.session is None:
            self.session = open_session(self.paths, self.allocation.job_id, names)
        return slurm_site(self.cluster, self.session, self.spec.script)

    def _perform(self, action: Action, views: Mapping[int, NodeView]) -> None:
        """Preemption tells the steps alone: agents that were stopped, and not by us, are how we hear of it."""
        if not self.stopped_by_us and any(view.status is not None and view.status.stopped for view in views.values()):
            self.preempted = True
        if isinstance(action, StopAttempt):
            self.stopped_by_us = True
        elif isinstance(action, StartAttempt) and (self.preempted or self.warned is not None or self.terminated):
            action = Conclude("failed", action.reason)  # no new attempt in an allocation that ends
        super()._perform(action, views)

    def _spawn(self, plans: Mapping[str, AgentPlan]) -> None:
        """The step over all nodes becomes their agents."""
        self.stopped_by_us = False
        assert self.session is not None
        self.session.start_agents({node: asdict(plan) for node, plan in plans.items()})
        self.step, self.session = self.session, None

    def _ending(self, host: str) -> str:
        """Slurm tells it: a step that needs more memory than it may have, for one."""
        cause = end_on(host, self.step.said())
        return f"srun: {cause}" if cause else ""

    def _tick(self) -> None:
        if self.warned is not None and not self.told:
            self._pass_on_warning()
        if self.warned is not None and self.warned.must_leave(time.monotonic()):
            self._conclude(Conclude("failed", "its ranks did not end within the grace time of the warning"))
            return
        super()._tick()

    def _pass_on_warning(self) -> None:
        """Every rank hears SIGUSR2, and may write a checkpoint."""
        self.told = True
        append_event(self.paths, "warned", grace_s=self.cluster.signal_seconds)
        deaf = self._ask(self.record.nodes, "warn").failed
        if deaf:
            append_event(self.paths, "not warned", hosts=list(deaf))

    def _conclude(self, action: Conclude) -> None:
        bad = self._bad_nodes(action)
        add_bad_nodes(self.record.cluster, bad, time.time())
        asked = self.warned is not None or self.preempted or bool(self._lost())
        if self.terminated:
            self._leave("stopping", ENDING)
        elif after_the_end(asked, self.cluster.requeue, action.state) == "requeue":
            self._requeue(action.reason, list(bad))
        else:
            super()._conclude(action)

    def _lost(self) -> frozenset[str]:
        return self.watch.unreachable if self.watch is not None else frozenset()

    def _bad_nodes(self, end: Conclude) -> dict[str, str]:
        """Nodes that later jobs should leave out, with the reason: a job that fails everywhere accuses none."""
        lost = dict.fromkeys(self._lost(), f"was lost in {self.record.job}")
        failed = bad_hosts(self.life) - lost.keys() if end.state == "succeeded" else ()
        return lost | dict.fromkeys(failed, f"failed {self.record.job} twice, which went on without it")

    def _requeue(self, reason: str, exclude: Sequence[str]) -> None:
        """Put the job back into the queue, without the bad nodes; Slurm ends this run of the batch script for it."""
        self._leave("pending", f"requeued: {reason}")
        try:
            client.requeue(self.allocation.job_id)
        except CannotActError as error:
            if not self.terminated:
                super()._conclude(Conclude("failed", f"{reason}, but it could not be requeued: {error.message}"))
                return
        if exclude:
            wanted = [*filter(None, [self.cluster.exclude]), *exclude]
            done = client.exclude(self.allocation.job_id, wanted, self.spec.nodes, self.cluster.partition)
            append_event(self.paths, "excluded" if done else "not excluded", nodes=list(exclude))

    def _leave(self, state: str, reason: str) -> None:
        self.life = self.life.to("ended", time.monotonic())
        self._save(state=state, reason=reason)
        append_event(self.paths, state, reason=reason)

    def _on_warning(self, number: int, frame: FrameType | None) -> None:
        self.warned = self.warned or Warned(time.monotonic(), float(self.cluster.signal_seconds))

    def _on_termination(self, number: int, frame: FrameType | None) -> None:
        self.terminated = True
