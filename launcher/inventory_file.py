"""inventory.yaml as a file: where it is, its text, and a look at it that costs no models."""

from __future__ import annotations

from pathlib import Path

from launcher.errors import InputError


def find_inventory(given: Path | None) -> Path | None:
    """The file to read: the given one, ./inventory.yaml, or ~/.config/dlaunch/inventory.yaml; None for the built-in."""
    if given is not None:
        return given
    for candidate in (Path("inventory.yaml"), Path.home() / ".config" / "dlaunch" / "inventory.yaml"):
        if candidate.is_file():
            return candidate
    return None


def read_inventory(path: Path) -> str:
    """Raises InputError where it is no file of text."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8 text"
        raise InputError(f"cannot read: {reason}", where=str(path), help="name the file with --inventory") from error


def slurm_clusters(given: Path | None) -> list[str]:
    """Names of the clusters of kind slurm. Nothing is checked: a file that is no inventory names none.

    For commands that must not wait for the models of `launcher.inventory`. Raises InputError where it cannot be read.
    """
    path = find_inventory(given)
    text = "" if path is None else read_inventory(path)
    if "slurm" not in text:
        return []
    import yaml

    try:
        entries = yaml.safe_load(text)["clusters"]
        return [name for name, entry in entries.items() if entry["kind"] == "slurm"]
    except (yaml.YAMLError, TypeError, KeyError, AttributeError):
        return []
