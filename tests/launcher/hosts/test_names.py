"""Ranges of host names: read and written as Slurm and ClusterShell do."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.errors import InputError
from launcher.hosts.names import MOST_HOSTS, among, expand, fold, fold_in_order, fold_numbers

CORPUS = Path(__file__).parents[4] / "shared/slurm/expected.json"


def expressions(file: str) -> list[Any]:
    """Pairs of an expression and what the real tools say of it."""
    if not CORPUS.exists():
        return [pytest.param("", {}, marks=pytest.mark.skip(reason=f"no corpus at {CORPUS}"))]
    return list(json.loads(CORPUS.read_text())[file]["expressions"].items())


def agrees(names: list[str], answer: dict[str, Any]) -> bool:
    digest = hashlib.md5(",".join(names).encode()).hexdigest()
    same: bool = names == answer["hosts"] if "hosts" in answer else digest == answer["md5_of_comma_joined"]
    return same and len(names) == answer["count"]


def is_refused(text: str) -> bool:
    try:
        expand(text)
    except InputError:
        return True
    return False


class TestCorpus:
    @pytest.mark.parametrize(("text", "answer"), expressions("001-hostlists-slurm-oracle.txt"))
    def test_what_scontrol_expands_comes_in_its_order(self, text: str, answer: dict[str, Any]) -> None:
        if answer.get("error") or text.count("[") > text.count("]"):  # for a bracket left open it prints half a name
            assert is_refused(text) or "/" in text or not text.endswith("]"), "steps and suffixes are ClusterShell's"
            return
        assert agrees(expand(text, scontrol_order=True), answer)

    @pytest.mark.parametrize(("text", "answer"), expressions("002-hostlists-suffix-clustershell.txt"))
    def test_text_after_a_bracket_is_expanded_as_clustershell_does(self, text: str, answer: dict[str, Any]) -> None:
        if "[" in text and "," in text:  # ClusterShell sorts; we keep the order that was written
            assert len(set(expand(text))) == answer["clustershell"]["count"]
        else:
            assert agrees(expand(text), answer["clustershell"])

    @pytest.mark.parametrize(("text", "answer"), expressions("003-hostlists-folding.txt"))
    def test_names_are_folded_in_order_as_scontrol_does(self, text: str, answer: dict[str, Any]) -> None:
        assert fold_in_order(text.split(",")) == answer["hostlist"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu[01-03]", ["gpu01", "gpu02", "gpu03"]),
        ("n[3,1-2],login", ["n3", "n1", "n2", "login"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("a[1-2]b[1-2]c[1-2]", [f"a{a}b{b}c{c}" for a in (1, 2) for b in (1, 2) for c in (1, 2)]),
        ("n[1-2].example.org", ["n1.example.org", "n2.example.org"]),
        ("n[0-8/4]", ["n0", "n4", "n8"]),
        (" a , b ,, ", ["a", "b"]),
        ("10.0.0.[1-2]", ["10.0.0.1", "10.0.0.2"]),
        ("", []),
        ("a,b,a", ["a", "b", "a"]),
    ],
)
def test_ranges_are_written_out_in_the_order_given(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("n[5-3]", "5 is after 3"),
        ("n[1-2", "not closed"),
        ("n[1-2]]", "do not pair"),
        ("n[[1]]", "do not pair"),
        ("n]1[", "do not pair"),
        ("n[]", "not a range"),
        ("n[a-c]", "not a range"),
        ("n[-1]", "not a range"),
        ("n[1--2]", "not a range"),
        ("n[1-3:1]", "not a range"),
        ("n[0-8/0]", "not a range"),
        ("n[000x011]", "not a range"),
        ("n[0-2000000000]", "more than"),
        ("n[1-1000]m[1-1000]", "more than"),
        ("a[1-60000],b[1-60000]", "more than"),
        ("two words", "not a host name"),
        ("-oProxyCommand=x", "not a host name"),
        ("@all", "not a host name"),
        ("n1;reboot", "not a host name"),
        ("n1!n2", "not a host name"),
    ],
)
def test_a_wrong_expression_is_refused_with_its_place_and_an_example(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        expand(text, "inventory.yaml:3: hosts")
    assert str(caught.value).startswith("inventory.yaml:3: hosts: ")
    assert "gpu[01-16]" in caught.value.help


def test_as_many_hosts_as_slurm_takes() -> None:
    assert len(expand(f"n[1-{MOST_HOSTS}]")) == MOST_HOSTS


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["n2", "n1", "n3", "n1"], "n[1-3]"),
        (["gpu001", "gpu002", "gpu007", "login"], "gpu[001-002,007],login"),
        (["b", "a"], "a,b"),
        ([], ""),
        (["(null)"], "(null)"),
    ],
)
def test_a_set_of_names_is_folded(names: list[str], folded: str) -> None:
    assert fold(names) == folded


@pytest.mark.parametrize(
    ("numbers", "folded"), [(range(63), "0-62"), ([7, 3, 4, 3], "3-4,7"), ([], ""), ([9, 10, 11, 100], "9-11,100")]
)
def test_numbers_are_folded(numbers: list[int], folded: str) -> None:
    assert fold_numbers(numbers) == folded


def test_named_hosts_must_be_known() -> None:
    known = ["gpu1", "gpu2", "gpu3"]
    assert among(["gpu[3,1]", "gpu2"], known, "--hosts") == ["gpu3", "gpu1", "gpu2"]
    with pytest.raises(InputError, match=r"--hosts: no host 'gpu4'; did you mean 'gpu[123]'"):
        among(["gpu4"], known, "--hosts")
    with pytest.raises(InputError, match=r"--exclude: .*bracket is not closed"):
        among(["gpu[1-3"], known, "--exclude")


NUMBERED = st.builds(
    lambda prefix, number, width: f"{prefix}{number:0{width}}",
    st.sampled_from(["n", "gpu", "rack1-n", "a.b"]),
    st.integers(0, 120),
    st.integers(1, 4),
)
NAMES = st.lists(st.one_of(NUMBERED, st.sampled_from(["login", "n1-ib0", "x-1", "007"])), max_size=30)


@given(NAMES)
def test_folding_in_order_loses_nothing(names: list[str]) -> None:
    assert expand(fold_in_order(names)) == names


@given(NAMES)
def test_folding_a_set_loses_no_member(names: list[str]) -> None:
    assert set(expand(fold(names))) == set(names)


@given(st.text("n[]-,/019 x", max_size=20))
def test_any_text_is_expanded_or_refused(text: str) -> None:
    try:
        assert all("[" not in name and name.strip() == name for name in expand(text))
    except InputError as error:
        assert error.help
