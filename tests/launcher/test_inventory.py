"""inventory.yaml: what is accepted, and how an error names its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.errors import InputError
from launcher.inventory import LocalCluster, SlurmCluster, SshCluster, load_inventory, parse_inventory

SSH = """\
default: boxes
clusters:
  boxes:
    kind: ssh
    hosts: ["gpu[01-03]", {name: big, address: 10.0.0.9, rack: r1}]
    user: me
    env: {WORKERS: 4}
    spares: gpu03
    shared_filesystem: true
"""


def parsed(text: str) -> object:
    return parse_inventory(text, "inventory.yaml")


def error_of(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parsed(text)
    assert "\n" not in caught.value.message
    return f"{caught.value.message} / {caught.value.help}"


def test_ranges_become_hosts_in_order() -> None:
    _, cluster = parse_inventory(SSH, "f").cluster(None)
    assert isinstance(cluster, SshCluster)
    assert [entry.name for entry in cluster.hosts] == ["gpu01", "gpu02", "gpu03", "big"]
    assert (cluster.hosts[3].address, cluster.spares, cluster.env) == ("10.0.0.9", ("gpu03",), {"WORKERS": "4"})


def test_the_shipped_file_and_the_built_in_one_agree() -> None:
    shipped, _ = load_inventory(Path(__file__).parents[2] / "inventory.yaml")
    assert shipped == parse_inventory(__import__("launcher.inventory").inventory.SHIPPED, "built-in")
    name, cluster = shipped.cluster(None)
    assert isinstance(cluster, LocalCluster)
    assert (name, cluster.nodes, cluster.nproc_per_node) == ("local", 4, 2)


def test_slurm_is_validated() -> None:
    text = "default: h\nclusters:\n  h: {kind: slurm, partition: gpu, gpus_per_node: 8, sbatch: {mail-type: END}}\n"
    _, cluster = parse_inventory(text, "f").cluster("h")
    assert isinstance(cluster, SlurmCluster) and cluster.sbatch == {"mail-type": "END"}


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("user: me", "usr: me", ["inventory.yaml:6: clusters.boxes.usr: ", "did you mean 'user'"]),
        ("kind: ssh", "kind: shh", ["inventory.yaml:3: clusters.boxes", "'ssh'"]),
        ('"gpu[01-03]",', '"gpu[03-01]",', ["inventory.yaml:5: clusters.boxes.hosts", "03 is after 01"]),
        ('"gpu[01-03]",', '"gpu[01-03]", gpu02,', ["inventory.yaml:5: clusters.boxes.hosts", "gpu02 is listed twice"]),
        ("rack: r1", "rak: r1", ["inventory.yaml:5: clusters.boxes.hosts.1.rak", "did you mean 'rack'"]),
        ("spares: gpu03", "spares: gpu04", ["inventory.yaml:3: clusters.boxes", "spare gpu04", "did you mean 'gpu0"]),
        ("shared_filesystem: true", "shared_filesystem: maybe", ["inventory.yaml:9: clusters.boxes.shared_filesystem"]),
        ("spares: gpu03", "spares: [3]", ["inventory.yaml:3: clusters.boxes", "spare 3 is not among hosts"]),
        ("spares: gpu03", "spares: 3", ["inventory.yaml:8: clusters.boxes.spares"]),
        ("default: boxes", "default: boxen", ["default 'boxen' is no cluster; did you mean 'boxes'?"]),
        ("user: me", "user: me\n    user: you", ["inventory.yaml:7: user: this key is given twice"]),
        ("user: me", "user: [", ["inventory.yaml:", "not YAML"]),
        ('"gpu[01-03]",', "gpu[01-03],", ["inventory.yaml:5: not YAML", "quote a range"]),
        ("clusters:", "cluster:", ["inventory.yaml:2: cluster", "did you mean 'clusters'"]),
    ],
)
def test_an_error_names_file_line_field_and_what_is_near(old: str, new: str, wanted: list[str]) -> None:
    message = error_of(SSH.replace(old, new))
    for part in wanted:
        assert part in message


@pytest.mark.parametrize(
    "entry", ["kind: local, directory: /x", "kind: local, forward: [A]", "kind: slurm, forward: [A]"]
)
def test_a_key_that_would_be_ignored_is_refused(entry: str) -> None:
    assert "unknown key" in error_of(f"default: c\nclusters:\n  c: {{{entry}}}\n")


@pytest.mark.parametrize(("written", "meant"), [("4:00:00", "4:00:00"), ("1-00:00:00", "1-00:00:00"), ("90", "90")])
def test_a_time_is_what_was_typed(written: str, meant: str) -> None:
    text = f"default: hpc\nclusters:\n  hpc: {{kind: slurm, time: {written}, account: 4711, env: {{N: 2}}}}"
    hpc = parse_inventory(text, "f").clusters["hpc"]
    assert isinstance(hpc, SlurmCluster)
    assert (hpc.time, hpc.account, hpc.env) == (meant, "4711", {"N": "2"})


def test_an_unknown_cluster_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="did you mean 'boxes'") as caught:
        parse_inventory(SSH, "f").cluster("boxs")
    assert caught.value.exit_status == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        "default: x",
        "default: x\nclusters: {}",
        "default: x\nclusters: []",
        "default: x\nclusters: {a:\n",
    ],
)
def test_a_file_of_another_form_is_an_error_and_no_traceback(text: str) -> None:
    assert "inventory.yaml:" in error_of(text)


def test_a_file_that_is_missing_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        load_inventory(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"bad\.yaml"):
        load_inventory(tmp_path / "bad.yaml")
