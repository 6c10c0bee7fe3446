"""The docs are true: links lead somewhere, the generated page is fresh, every command of the README exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from doctor.cli import COMMANDS as DOCTOR
from launcher.cli import COMMANDS as LAUNCHER
from launcher.inventory_reference import reference

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)")
COMMAND = re.compile(r"^\s+(?:\$ )?(dlaunch|ddoctor) ([a-z]+)", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_that_are_shown_exist(page: Path) -> None:
    for tool, command in COMMAND.findall(page.read_text()):
        assert command in (LAUNCHER if tool == "dlaunch" else DOCTOR), f"{page}: {tool} {command}"


def test_the_inventory_reference_is_fresh() -> None:
    assert (ROOT / "docs" / "inventory.md").read_text() == reference()


@pytest.mark.parametrize("name", [*LAUNCHER], ids=str)
def test_every_command_of_the_launcher_loads_and_shows_an_example(name: str) -> None:
    import click

    from launcher.cli import dlaunch

    command = dlaunch.get_command(click.Context(dlaunch), name)
    assert command is not None
    shown = [command, *getattr(command, "commands", {}).values()]
    assert any("Example:" in (each.help or "") for each in shown)


@pytest.mark.parametrize("name", [*DOCTOR], ids=str)
def test_every_command_of_the_doctor_loads_and_shows_an_example(name: str) -> None:
    import click

    from doctor.cli import ddoctor

    command = ddoctor.get_command(click.Context(ddoctor), name)
    assert command is not None and "Example:" in (command.help or "")
