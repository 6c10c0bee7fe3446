"""The configuration files of a lab cluster, as pure text."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

LOGIN_ADDRESS = "10.88.0.254"
DATABASE_USER, DATABASE_PASSWORD = "slurm", "lab"


@dataclass(frozen=True)
class ClusterShape:
    """What the lab cluster is made of. Times in seconds; short ones make bad days short."""

    nodes: int = 4
    cpus: int = 4
    gpus: int = 8
    accounting: bool = True
    node_timeout: int = 8  # until a silent node is DOWN
    requeue_delay: int = 6  # 120 on a real cluster
    kill_wait: int = 2
    leaves: tuple[tuple[str, ...], ...] = (("n1", "n2"), ("n3", "n4"))  # nodes of each leaf switch

    @property
    def names(self) -> list[str]:
        return [f"n{index}" for index in range(1, self.nodes + 1)]

    @property
    def addresses(self) -> dict[str, str]:
        return {name: f"10.88.0.{index}" for index, name in enumerate(self.names, 1)} | {"login": LOGIN_ADDRESS}


def hosts_file(shape: ClusterShape) -> str:
    return "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in shape.addresses.items())


def slurm_conf(shape: ClusterShape, root: Path) -> str:
    accounting = (
        f"""AccountingStorageType=accounting_storage/slurmdbd
AccountingStoragePass={root}/munge/socket
AccountingStorageHost=127.0.0.1
AccountingStoragePort=16819
AccountingStorageTRES=gres/gpu
JobAcctGatherType=jobacct_gather/linux
"""
        if shape.accounting
        else "AccountingStorageType=accounting_storage/none\nJobAcctGatherType=jobacct_gather/none\n"
    )
    nodes = "".join(
        f"NodeName={name} NodeHostname={name} NodeAddr={shape.addresses[name]} CPUs={shape.cpus} "
        f"RealMemory=4000 Gres=gpu:{shape.gpus} State=UNKNOWN\n"
        for name in shape.names
    )
    return f"""ClusterName=lab
SlurmctldHost=login({LOGIN_ADDRESS})
SlurmctldPort=16827
SlurmdPort=16828
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket,cred_expire={shape.requeue_delay}
SlurmUser=root
SlurmdUser=root
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd-%n.log
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait={shape.kill_wait}
MinJobAge=600
SlurmdTimeout={shape.node_timeout}
MessageTimeout=4
{accounting}GresTypes=gpu
TopologyPlugin=topology/tree
{nodes}PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=15
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=short Nodes={shape.names[0]} MaxTime=10 State=UP PriorityTier=1
"""


def gres_conf(shape: ClusterShape, root: Path) -> str:
    nodes = f"n[1-{shape.nodes}]"
    return f"AutoDetect=off\nNodeName={nodes} Name=gpu File={root}/dev/nvidia[0-{shape.gpus - 1}]\n"


def topology_conf(shape: ClusterShape) -> str:
    lines = [f"SwitchName=leaf{index} Nodes={','.join(nodes)}" for index, nodes in enumerate(shape.leaves, 1)]
    return "\n".join([*lines, f"SwitchName=spine Switches=leaf[1-{len(lines)}]", ""])


def slurmdbd_conf(root: Path) -> str:
    return f"""AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
DbdHost=localhost
DbdPort=16819
SlurmUser=root
PidFile={root}/slurmdbd.pid
LogFile={root}/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageLoc=slurm_acct_db
StorageUser={DATABASE_USER}
StoragePass={DATABASE_PASSWORD}
"""


def database_conf(root: Path) -> str:
    return f"""[mysqld]
datadir={root}/db/data
socket={root}/db/mysql.sock
pid-file={root}/db/mariadbd.pid
log-error={root}/log/mariadbd.log
skip-networking
user=root
innodb_buffer_pool_size=64M
innodb_lock_wait_timeout=900
"""


def node_init(root: Path, name: str, checkout: Path) -> str:
    """What a node runs as its PID 1: own name, /proc, /tmp and /dev/shm, the lab's hosts file, and a reaper of orphans.

    `checkout` stays in sight where it lies under the /tmp that the node's own covers.
    The reaper is not slurmd, which may then be killed and started again like on a real machine.
    """
    return f"""set -e
hostname {name}
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=1777 shm /dev/shm
mount --bind {shlex.quote(str(checkout))} {root}/checkout
mount -t tmpfs -o mode=1777 tmp /tmp
mkdir -p {shlex.quote(str(checkout))}
mount --bind {root}/checkout {shlex.quote(str(checkout))}
mount --bind {root}/hosts /etc/hosts
set +e
slurmd -N {name} -f {root}/slurm.conf
while :; do sleep 3600 & wait $!; done
"""
