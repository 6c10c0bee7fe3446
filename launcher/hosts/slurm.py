"""Nodes of a running Slurm job as hosts: commands run beside it by `srun --overlap`, files are on shared storage."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from launcher.hosts.local import LocalHost
from launcher.hosts.protocol import DEFAULT_TIMEOUT_S, Completed, HostError, with_env

CHUNK = 1 << 16
_NODE_GONE = re.compile(
    r"Node failure|Communication connection failure|Unable to confirm allocation|Job/step already completing|"
    r"Invalid job id|Unable to create step|Requested nodes? (?:is|are) (?:down|busy)|Task launch .* failed|"
    r"Socket timed out|Required node not available|Timed out waiting for job step|Invalid node name"
)


def step_argv(job_id: str, nodes: Sequence[str], *options: str) -> list[str]:
    """srun for one task on each of `nodes` of a job, beside whatever runs there. Devices are shared, not asked for."""
    return [
        "srun",
        f"--jobid={job_id}",
        "--overlap",
        f"--nodes={len(nodes)}",
        f"--ntasks={len(nodes)}",
        "--ntasks-per-node=1",
        f"--nodelist={','.join(nodes)}",
        "--cpu-bind=none",
        "--mem=0",
        "--quiet",
        *options,
    ]


class SlurmHost:
    """One node of the running job `job_id`. Paths must lie on a file system that this machine shares with the node.

    `owner`: the other user whose job it is; Slurm lets no one else start a step in it, so sudo makes us him.
    """

    def __init__(self, name: str, job_id: str, owner: str = "") -> None:
        self.name, self.job_id, self.owner = name, job_id, owner
        self._here = LocalHost(name)

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> Completed:
        done = self._here.run([*self._srun(), *with_env(argv, env)], input=input, timeout=timeout)
        if done.status and (lost := _NODE_GONE.search(done.stderr.decode(errors="replace"))):
            raise HostError(self.name, f"srun: {lost.group()}", help=f"squeue -j {self.job_id}")
        return done

    def spawn(self, argv: Sequence[str], *, input: bytes = b"", log: str) -> None:
        step = step_argv(self.job_id, [self.name], "--wait=0", "--input=all")
        self._here.spawn([*step, *argv], input=input, log=log)

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        return self._here.read(path, offset, limit)

    def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        self._here.write(path, data, mode)

    def stream(self, argv: Sequence[str]) -> Iterator[bytes]:
        process = subprocess.Popen([*self._srun(), *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=False)
        with process:
            try:
                assert process.stdout is not None
                while chunk := os.read(process.stdout.fileno(), CHUNK):
                    yield chunk
            finally:
                process.terminate()  # srun ends the task on the node before it ends itself

    def close(self) -> None:
        """There is nothing to give back: each call is a step of its own."""

    def _srun(self) -> list[str]:
        if not self.owner:
            return step_argv(self.job_id, [self.name])
        kept = ["--preserve-env=SLURM_CONF"] if "SLURM_CONF" in os.environ else []
        return [
            "sudo",
            "--non-interactive",
            f"--user={self.owner}",
            *kept,
            *step_argv(self.job_id, [self.name], "--chdir=/"),
        ]
