"""The supervisor: one process per job on the submitting machine; performs what the machine decides.

It holds the job's lock for its whole life. Killed, it leaves the ranks alone; another one may adopt the job.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from launcher.agent.plan import AgentPlan
from launcher.common.paths import JobPaths
from launcher.errors import DlaunchError
from launcher.hosts.lost import LostHost
from launcher.hosts.node_side import call
from launcher.hosts.protocol import DEFAULT_TIMEOUT_S, Answers, Host, on_all
from launcher.jobs.failure import NodeView
from launcher.jobs.machine import (
    Action,
    Conclude,
    Life,
    StartAttempt,
    StopAttempt,
    bad_hosts,
    choose_hosts,
    failure_text,
    observe,
    stopped,
)
from launcher.jobs.prepare import lay_out, placed_fields
from launcher.jobs.reach import connect, connect_each, connect_job
from launcher.jobs.record import JobRecord, Process, read_record, write_record
from launcher.jobs.request import resized
from launcher.jobs.site import Site, open_site
from launcher.jobs.store import append_event
from launcher.jobs.watch import Watch
from launcher.render import NodePlan, Rendezvous, Settings, render_node
from launcher.secrets import MASK
from launcher.spec import JobSpec

if TYPE_CHECKING:
    from launcher.inventory import Cluster

TICK_S = {"local": 0.1, "ssh": 0.5, "slurm": 0.5}
STOP_GRACE_S = 30.0  # a graceful end with a checkpoint
AT_ONCE_GRACE_S = 3.0


class Supervisor:
    """Watches one job to its end. `secrets` are the values that the record shows as ****."""

    def __init__(self, paths: JobPaths, secrets: Mapping[str, str], rendezvous: Rendezvous | None) -> None:
        self.paths = paths
        self.record: JobRecord = read_record(paths.record)
        self.spec = JobSpec.from_json(self.record.spec)
        self.settings = unmask(self.record.settings, secrets)
        self.rendezvous = rendezvous
        self.hosts: dict[str, Host] = {}
        self.life = Life(self.spec.max_restarts, attempt=self.record.attempt)
        self.watch: Watch | None = None

    def run(self, adopt: bool) -> None:
        """Supervise until the job has ended; its record then says how."""
        self._save(supervisor=Process(os.uname().nodename, os.getpid(), psutil.Process().create_time()))
        try:
            self.hosts = self._reach() if adopt else connect_job(self.record)
            if adopt:
                append_event(self.paths, "adopted", pid=os.getpid())
                self._watch_nodes()
            else:
                self._start_agents()
            while self.life.phase != "ended":
                self._tick()
        except DlaunchError as error:
            if self.watch is not None:  # agents of other nodes may run already
                with suppress(DlaunchError):
                    self._stop_agents(StopAttempt(str(error), at_once=True))
            self._perform(Conclude("failed", str(error)), {})
        finally:
            for host in self.hosts.values():
                host.close()

    def _reach(self) -> dict[str, Host]:
        """The hosts of a job that runs: one that is gone must not keep the others' ranks from being stopped."""
        answers = connect_each([node.host for node in self.record.nodes], self.record.addresses)
        return {**answers.good, **{name: LostHost(name, error) for name, error in answers.failed.items()}}

    def _tick(self) -> None:
        assert self.watch is not None
        views = self.watch.look()
        before = self.life.phase
        self.life, action = observe(self.life, views, time.monotonic(), self.paths.stop_request.exists())
        if self.life.phase != before and self.life.phase == "settling":
            self._save(reason=failure_text(views))
            append_event(self.paths, "failing", reason=self.record.reason)
        if self.life.phase != before and self.life.phase == "running":
            self._save(state="running", started=self.record.started or time.time())
            append_event(self.paths, "running", attempt=self.life.attempt)
        if action is None:
            time.sleep(TICK_S[self.record.kind])
        else:
            self._perform(action, views)

    def _perform(self, action: Action, views: Mapping[int, NodeView]) -> None:
        if isinstance(action, StopAttempt):
            self._save(state="stopping", reason=action.reason)
            append_event(self.paths, "stopping", reason=action.reason)
            survivors = self._stop_agents(action)
            self._save(survivors=survivors)
            assert self.watch is not None
            views = self.watch.look()
            self.life, following = stopped(self.life, views, time.monotonic(), survivors)
            self._perform(following, views)
        elif isinstance(action, StartAttempt):
            append_event(self.paths, "restarting", attempt=action.attempt, reason=action.reason)
            self._restart(action)
        else:
            self._conclude(action)

    def _conclude(self, action: Conclude) -> None:
        self.life = self.life.to("ended", time.monotonic())
        failure = action.failure
        status = 0 if action.state == "succeeded" else (failure.exit_status if failure else None) or 1
        self._save(
            state=action.state, reason=action.reason, ended=time.time(), exit_status=status, first_failure=failure
        )
        append_event(self.paths, action.state, reason=action.reason)

    def _restart(self, action: StartAttempt) -> None:
        """A new attempt of all nodes: other hosts where some are bad, a new port, the last complete checkpoint."""
        cluster = self._entry()
        names = [node.host for node in self.record.nodes]
        minimum, maximum = self.spec.min_nodes or self.spec.nodes, self.spec.max_nodes or self.spec.nodes
        spares = list(self.record.spares)
        if cluster.kind == "ssh" and self.spec.max_nodes:
            spares += [entry.name for entry in cluster.hosts if entry.name not in spares]
        bad = bad_hosts(self.life) if cluster.kind != "local" else frozenset[str]()
        chosen = choose_hosts(names, spares, bad, minimum, maximum)
        if chosen is None:
            self._conclude(Conclude("failed", f"no {minimum} good hosts are left: {', '.join(sorted(bad))} failed"))
            return
        site = self._open_site(cluster, chosen)
        try:
            layout = lay_out(cluster, resized(self.spec, len(chosen)), site, self.record.job)
        finally:
            site.close()
        self.spec, self.rendezvous = layout.spec, layout.rendezvous
        self._save(state="starting", attempt=action.attempt, reason=action.reason, **placed_fields(layout))
        missing = [name for name in chosen if name not in self.hosts]
        self.hosts.update(connect(missing, self.record.addresses))
        self._start_agents()

    def _entry(self) -> Cluster:
        """The cluster's entry, as the inventory has it now."""
        from launcher.inventory import load_inventory

        inventory, _ = load_inventory(Path(self.record.inventory) if self.record.inventory else None)
        return inventory.cluster(self.record.cluster)[1]

    def _start_agents(self) -> None:
        self._watch_nodes()
        attempt = self.record.attempt
        append_event(self.paths, "starting", attempt=attempt, hosts=[node.host for node in self.record.nodes])
        assert self.rendezvous is not None
        plans = {}
        for node in self.record.nodes:
            launch = render_node(self.record.job, self.spec, node, self.rendezvous, self.settings, attempt)
            plans[node.host] = AgentPlan(
                job=self.record.job,
                host=node.host,
                node_rank=node.node_rank,
                attempt=attempt,
                directory=node.directory,
                argv=launch.argv,
                env=launch.env,
                workdir=launch.workdir,
                first_rank=node.node_rank * self.spec.nproc_per_node,
                nproc=self.spec.nproc_per_node,
                stop_grace_s=STOP_GRACE_S,
            )
        self._spawn(plans)

    def _open_site(self, cluster: Cluster, names: Sequence[str]) -> Site:
        return open_site(cluster, names, self.spec.script, self.spec.sync)

    def _spawn(self, plans: Mapping[str, AgentPlan]) -> None:
        """Start the agent of each host. Raises CannotActError naming those where none starts."""
        nodes = {node.host: node for node in self.record.nodes}

        def start(host: Host) -> None:
            node = nodes[host.name]
            log = JobPaths(Path(node.directory)).agent_log(node.node_rank)
            host.spawn([node.python, node.bundle, "run"], input=plans[host.name].to_bytes(), log=str(log))

        on_all([self.hosts[name] for name in nodes], start).whole()

    def _watch_nodes(self) -> None:
        self.watch = Watch(
            self.record.nodes,
            self.hosts,
            self.record.attempt,
            self.paths,
            lambda name: connect([name], self.record.addresses)[name],
            self._ending,
        )

    def _ending(self, host: str) -> str:
        """Why what ran on a host was killed: here nobody tells it."""
        return ""

    def _stop_agents(self, action: StopAttempt) -> list[str]:
        """End every node that can be reached; returns what is left, as `host:pid`."""
        assert self.watch is not None
        grace = AT_ONCE_GRACE_S if action.at_once else self._wanted_grace()
        reached = [node for node in self.record.nodes if node.host not in self.watch.unreachable]
        answers = self._ask(reached, "stop", timeout=grace + 30, job=self.record.job, grace=grace)
        silent = answers.failed.keys() | self.watch.unreachable
        if silent:
            self._save(unreached=sorted({*self.record.unreached, *silent}))
        return [f"{name}:{pid}" for name, answer in answers.good.items() for pid in answer["survivors"]]

    def _ask(
        self, nodes: Sequence[NodePlan], command: str, timeout: float = DEFAULT_TIMEOUT_S, **arguments: Any
    ) -> Answers[dict[str, Any]]:
        """What the node side of each node answers to a command about its agent."""
        plans = {node.host: node for node in nodes}

        def one(host: Host) -> Any:
            node = plans[host.name]
            where = {"directory": node.directory, "node_rank": node.node_rank}
            return call(host, node.python, node.bundle, command, timeout, **where, **arguments)

        return on_all([self.hosts[name] for name in plans], one)

    def _wanted_grace(self) -> float:
        try:
            return float(json.loads(self.paths.stop_request.read_text())["grace"])
        except (OSError, ValueError, KeyError, TypeError):
            return STOP_GRACE_S

    def _save(self, **changes: Any) -> None:
        self.record = self.record.with_(**changes)
        write_record(self.paths.record, self.record)


def unmask(settings: Settings, secrets: Mapping[str, str]) -> Settings:
    """Put the secret values back that the record shows as ****; one that nobody has is left out."""

    def fill(env: Mapping[str, str]) -> dict[str, str]:
        filled = {
            name: secrets.get(name, os.environ.get(name, "")) if value == MASK else value for name, value in env.items()
        }
        return {name: value for name, value in filled.items() if value or env[name] != MASK}

    return replace(
        settings,
        inventory_env=fill(settings.inventory_env),
        command_line_env=fill(settings.command_line_env),
        forwarded_env=fill(settings.forwarded_env),
    )


def main() -> None:
    """`python -m launcher.jobs.supervisor DIRECTORY [adopt]`; secrets and the rendezvous come on standard input."""
    paths = JobPaths(Path(sys.argv[1]))
    given = json.loads(sys.stdin.read() or "{}")
    lock = os.open(paths.lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # another supervisor has it: one is enough
    rendezvous = Rendezvous(**given["rendezvous"]) if given.get("rendezvous") else None
    Supervisor(paths, given.get("secrets", {}), rendezvous).run(adopt=len(sys.argv) > 2)


if __name__ == "__main__":
    main()
