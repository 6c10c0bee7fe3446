"""`python -m doctor.cli`: the `ddoctor` command."""

from __future__ import annotations

from doctor.cli import main

main()
