"""docs/verdicts.md, made from the table of codes: `python -m launcher.verdict_reference > docs/verdicts.md`."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.common.codes import CODES, FAMILIES

HEAD = """\
# Read a verdict

Made from `launcher/common/codes` by `make docs`; do not edit.

    hang.absent_rank  90% sure
      rank 3 has not entered number 46 (all_reduce) of group 'mesh_dp_replicate' (ranks 1,3), in which …
      where: node1 dp_replicate1/dp_shard1
      try: Look at the loader's workers and storage on that rank: …

- The **first finding is the root cause**; what follows are its victims and side notes.
- **`% sure`** is how far the evidence goes, not how bad it is. Below 50 % a finding never stands before a surer one.
- The code is `family.cause`. A code that was shipped keeps its meaning; `--json` has it in `answer`.
- **`none`** (exit status 0): looked, and nothing is wrong. **`unknown`** (3): the evidence does not decide it, and
  `missing` says what would. A finding of severity warning or error gives 1; `info` alone (`hang.none_slow`, `benign.*`)
  gives 0.
- A rank without a dump is the first suspect, not an error of the tool. Who has the most errors in his log is most
  often a victim.
"""


def reference() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(line for family in FAMILIES for line in _section(family))]).rstrip("\n") + "\n"


def _section(family: str) -> Iterator[str]:
    yield from (f"## {family}: {FAMILIES[family]}", "", "| code | what it means | what to do |", "|---|---|---|")
    for name, code in CODES.items():
        if name.startswith(f"{family}."):
            yield f"| `{name}` | {code.cause} | {code.fix} |"
    yield ""


if __name__ == "__main__":
    print(reference(), end="")
