"""The files of the SSH lab: keys, what is laid over each host's root, and the login user's home."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SUBNET = "10.77.0"
LOGIN_ADDRESS = f"{SUBNET}.254"
SKEWED_CLOCK = "/etc/ssh/lab/skewed_clock.so"


@dataclass(frozen=True)
class HostOptions:
    """What is particular about a host. Sizes as tmpfs takes them; `files` maps absolute paths to texts (mode 755)."""

    name_is_loopback: bool = False  # its own name resolves to 127.0.1.1, Debian's default
    clock_offset_s: int = 0  # seconds by which its programs' clock is ahead; monotonic clocks are left alone
    disk: str = "4g"
    shm: str = "1g"
    files: Mapping[str, str] = field(default_factory=dict)
    sshd: Sequence[str] = ()  # lines of sshd_config that come first, so that they win


@dataclass(frozen=True)
class Member:
    """One host of a lab."""

    name: str
    address: str
    options: HostOptions


def write_home(home: Path, members: Sequence[Member], keys: Mapping[str, str]) -> str:
    """Make the login user's `.ssh` (key, known_hosts from `keys`, config) and return the public key."""
    folder = home / ".ssh"
    folder.mkdir(parents=True, mode=0o700)
    public = new_key(folder / "id_ed25519")
    (folder / "known_hosts").write_text("".join(f"{m.name},{m.address} {keys[m.name]}\n" for m in members))
    (folder / "config").write_text(
        f"Host *\n  User root\n  IdentityFile {folder}/id_ed25519\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {folder}/known_hosts\n  StrictHostKeyChecking yes\n  BatchMode yes\n"
    )
    return public


def write_root(root: Path, member: Member, members: Sequence[Member], user_key: str) -> None:
    """Write the files that are laid over the root of `member`; its host key lies there already."""
    if member.options.clock_offset_s:
        build_skewed_clock(root)
    shell_files = dict.fromkeys(("/root/.bashrc", "/root/.profile"), "")
    texts = {
        "/etc/hosts": hosts_file(members, member),
        "/etc/hostname": f"{member.name}\n",
        "/etc/ssh/lab/sshd_config": sshd_config(member),
        "/etc/ssh/lab/authorized_keys": f"{user_key}\n",
    }
    for path, text in {**shell_files, **texts, **member.options.files}.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(0o755 if path in member.options.files else 0o644)


def host_key(root: Path) -> str:
    """Make the host's key below `root` and return its public half."""
    folder = root / "etc/ssh/lab"
    folder.mkdir(parents=True, exist_ok=True)
    return new_key(folder / "host_key")


def new_key(path: Path) -> str:
    """Make an ed25519 key pair in place of any that is there; the public half as known_hosts wants it."""
    path.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(path)], check=True)
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


def hosts_file(members: Sequence[Member], of: Member | None = None) -> str:
    """/etc/hosts as `of` sees it, or the login node."""
    lines = ["127.0.0.1 localhost", f"{LOGIN_ADDRESS} login"]
    for member in members:
        loopback = member is of and member.options.name_is_loopback
        lines.append(f"{'127.0.1.1' if loopback else member.address} {member.name}")
    return "\n".join(lines) + "\n"


def sshd_config(member: Member) -> str:
    environment = f"SetEnv {clock_environment(member.options.clock_offset_s)}" if member.options.clock_offset_s else ""
    return "\n".join(
        [
            *member.options.sshd,
            environment,
            "HostKey /etc/ssh/lab/host_key",
            "AuthorizedKeysFile /etc/ssh/lab/authorized_keys",
            "StrictModes no",
            "UsePAM no",
            "UseDNS no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password",
            "PidFile none",
            "PrintMotd no",
            "Subsystem sftp internal-sftp",
            "",
        ]
    )


def clock_environment(offset_s: int) -> str:
    """Assignments that move a program's wall clock by `offset_s` and leave its monotonic clock alone."""
    return f"LD_PRELOAD={SKEWED_CLOCK} SKEW_SECONDS={offset_s:d}"


def build_skewed_clock(root: Path) -> None:
    """Compile the library that `clock_environment` names, below `root`."""
    target = root / SKEWED_CLOCK.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).with_name("skewed_clock.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", str(target), str(source)], check=True)
