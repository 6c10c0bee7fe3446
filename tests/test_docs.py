"""The docs are true: links lead somewhere, generated pages are fresh, commands and options exist, examples run."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from doctor.cli import COMMANDS as DOCTOR
from doctor.cli import ddoctor
from launcher import inventory_reference, verdict_reference
from launcher.cli import COMMANDS as LAUNCHER
from launcher.cli import dlaunch
from launcher.common.codes import CODES, FAMILIES
from launcher.inventory import load_inventory

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TEST_NAME = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
COMMAND = re.compile(r"\b(dlaunch|ddoctor) ([a-z]+)([^`\n]*)")
CODE = re.compile(rf"(?!doctor\.(?:cli|node)$)({'|'.join(FAMILIES)})\.(?!log$)[a-z0-9_]+")  # these two are packages
TOOLS = {"dlaunch": dlaunch, "ddoctor": ddoctor}

page_by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


# Links


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@page_by_page
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page}: {link}"
        assert not anchor or anchor in anchors(target), f"{page}: {link}"


def test_every_page_is_reached_from_the_readme() -> None:
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop().resolve()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            todo += [page.parent / link.partition("#")[0] for link in LINK.findall(page.read_text()) if ":" not in link]
    assert set(PAGES) - reached == set()


@page_by_page
def test_the_tests_that_are_named_as_proof_exist(page: Path) -> None:
    for file, name in TEST_NAME.findall(page.read_text()):
        assert (ROOT / file).exists(), f"{page}: {file}"
        assert not name or f"def {name}(" in (ROOT / file).read_text(), f"{page}: {file}::{name}"


@page_by_page
def test_the_files_of_the_code_that_are_named_exist(page: Path) -> None:
    for name in re.findall(r"`((?:\w+/)+\w+\.py)`", page.read_text()):
        assert any(ROOT.rglob(name)), f"{page}: {name}"


# Generated pages


def test_the_inventory_reference_is_fresh() -> None:
    assert (DOCS / "inventory.md").read_text() == inventory_reference.reference(), "make docs"


def test_the_verdict_reference_is_fresh() -> None:
    assert (DOCS / "verdicts.md").read_text() == verdict_reference.reference(), "make docs"


def codes_in_the_sources() -> set[str]:
    found = set()
    for path in (path for layer in ("launcher", "doctor", "tui") for path in (ROOT / layer).rglob("*.py")):
        if path.parent != ROOT / "launcher/common/codes":
            constants = (node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant))
            found |= {text for text in constants if isinstance(text, str) and CODE.fullmatch(text)}
    return found


def test_the_table_of_codes_holds_those_of_the_sources_and_no_other() -> None:
    assert codes_in_the_sources() == set(CODES), "launcher/common/codes"


@page_by_page
def test_the_codes_that_are_named_exist(page: Path) -> None:
    for code in re.findall(r"`([a-z]+\.[a-z0-9_]+)`", page.read_text()):
        assert not CODE.fullmatch(code) or code in CODES, f"{page}: {code}"


# Commands


def command_of(tool: str, words: list[str]) -> tuple[click.Command | None, list[str]]:
    """The command that `words` call, and the words that are left for it."""
    command: click.Command | None = TOOLS[tool]
    while isinstance(command, click.Group) and words:
        command, words = command.get_command(click.Context(command), words[0]), words[1:]
    return command, words


def calls(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Every call of our tools on a page, without the script's own arguments and what the shell adds."""
    for tool, name, rest in COMMAND.findall(page.read_text()):
        yield tool, [name, *re.split(r" -- |  +|[#|>;)]|\n", rest)[0].split()]


@page_by_page
def test_the_commands_and_options_that_are_shown_exist(page: Path) -> None:
    for tool, words in calls(page):
        if words[0] not in TOOLS[tool].list_commands(click.Context(TOOLS[tool])):
            assert not (page.read_text().count(f"    {tool} {words[0]}")), f"{page}: {tool} {words[0]}"
            continue
        command, left = command_of(tool, words)
        assert command is not None, f"{page}: {tool} {words}"
        known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help"}
        for word in left:
            if word.startswith("--"):
                assert word.split("=")[0].rstrip(".,:") in known, f"{page}: {tool} {' '.join(words)}"


def test_every_command_is_in_the_docs() -> None:
    shown = {(tool, words[0]) for page in PAGES for tool, words in calls(page)}
    wanted = {("dlaunch", name) for name in LAUNCHER} | {("ddoctor", name) for name in DOCTOR}
    assert wanted - shown == set()


def every_command() -> Iterator[tuple[str, str]]:
    for tool, group in TOOLS.items():
        for name in group.list_commands(click.Context(group)):
            yield tool, name


@pytest.mark.parametrize(("tool", "name"), every_command(), ids=lambda word: word)
def test_every_command_shows_an_example_and_says_what_its_options_mean(tool: str, name: str) -> None:
    command, _ = command_of(tool, [name])
    assert command is not None
    for each in [command, *getattr(command, "commands", {}).values()]:
        assert "Example:" in (each.help or ""), f"{tool} {name}"
        for parameter in each.params:
            assert not isinstance(parameter, click.Option) or parameter.help, f"{tool} {name} {parameter.opts}"


# Examples


def sessions() -> Iterator[tuple[str, str, list[str]]]:
    """Every `$ command` of the docs with the output that is shown below it."""
    for page in PAGES:
        lines = page.read_text().splitlines()
        for number, line in enumerate(lines):
            if line.startswith("    $ "):
                shown = []
                for below in lines[number + 1 :]:
                    if not below.startswith("    ") or below.startswith("    $ "):
                        break
                    shown.append(below[4:])
                yield f"{page.relative_to(ROOT)}:{number + 1}", line[6:], shown


# What needs no job and no other host; the rest of the examples stands in the tests of its part.
CHEAP = re.compile(
    r"dlaunch (render|plan|nodes --import|place --topo|topo \S+\.txt)"
    r"|ddoctor (diagnose|hang|stacks|nccl) docs/|.* drill --list"
)


@pytest.mark.parametrize(
    ("command", "shown"),
    [pytest.param(command, shown, id=where) for where, command, shown in sessions() if CHEAP.match(command)],
)
def test_an_example_prints_what_the_docs_show(command: str, shown: list[str], tmp_path: Path) -> None:
    """Every line that is shown whole stands in the output; `…` stands for what was left out."""
    shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("*.svg"))
    for path in [*(DOCS / "examples").iterdir()]:
        if path.is_file():
            shutil.copy(path, tmp_path)
    environment = {**os.environ, "DLAUNCH_HOME": str(tmp_path / "home"), "COLUMNS": "100", "NO_COLOR": "1"}
    argv = shlex.split(command, comments=True)
    argv[0] = str(Path(sys.executable).with_name(argv[0]))
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=90)
    printed = {" ".join(line.split()) for line in done.stdout.splitlines()}
    for line in shown:
        if "…" not in line:
            assert " ".join(line.split()) in printed | {""}, f"{line!r} is not in:\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("argv", [["dlaunch"], ["ddoctor"], ["dlaunch", "bench"]], ids=" ".join)
def test_a_group_alone_shows_its_help_and_no_error(argv: list[str]) -> None:
    argv = [str(Path(sys.executable).with_name(argv[0])), *argv[1:]]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr[:6]) == (2, "Usage:")


def inventories() -> Iterator[tuple[str, str]]:
    """Every inventory that a page shows, and the one of the repository."""
    yield "inventory.yaml", (ROOT / "inventory.yaml").read_text()
    for page in PAGES:
        for number, block in enumerate(re.findall(r"(?:^    .*\n)+", page.read_text(), re.MULTILINE)):
            if "    clusters:\n" in block and "$ " not in block:
                yield f"{page.name}-{number}", textwrap.dedent(block)


@pytest.mark.parametrize(("where", "text"), inventories(), ids=lambda value: value.split("\n")[0])
def test_an_inventory_that_is_shown_is_one(where: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text(text)
    assert load_inventory(tmp_path / "inventory.yaml")[0].clusters
