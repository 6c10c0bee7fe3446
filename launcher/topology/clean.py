"""Text as it was pasted -> lines that a grammar can read: escapes, quoting and odd blanks removed, tabs kept."""

from __future__ import annotations

import re

ESCAPES = re.compile(
    r"""(?:\x1b|\\x1b|\\033|\\e|\\u001b|\^\[)      # ESC itself, or as a program or a log spells it
        (?:\[[0-9;?]*[ -/]*[@-~]                   # CSI ... final byte
          |\][^\x07\x1b\n]*(?:\x07|\x1b\\)         # OSC, as titles and hyperlinks are set
          |[()][0-9A-B]|[=>78c])
      | \[[0-9;]{1,8}m                             # a colour whose ESC byte was lost on the way
    """,
    re.VERBOSE,
)
ODD_BLANKS = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\u2502|]")
INVISIBLE = re.compile("[\u200b-\u200f\u2060\ufeff\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def clean_lines(text: str) -> list[str]:
    """The lines of `text` without terminal escapes, carriage returns, quote marks and invisible characters."""
    if text.count("\n") < 3 and text.count("\\n") >= 2:  # one line of JSON or repr()
        text = text.replace("\\r", "").replace("\\n", "\n").replace("\\t", "\t")
    text = ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    text = INVISIBLE.sub("", ODD_BLANKS.sub(" ", text))
    return [re.sub(r"^\s*(?:>\s?)+(?=\s|[A-Za-z])", "", line).rstrip("\n") for line in text.split("\n")]
