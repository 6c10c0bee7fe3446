"""Text as it was pasted -> lines that a grammar can read: escapes, quoting and odd blanks removed, tabs kept."""

from __future__ import annotations

import csv
import html
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
ODD_BLANKS = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\u2500-\u257f|]")  # and the lines of boxes
NO_NUMBER = re.compile(r"\d{100,}")
INVISIBLE = re.compile("[\u200b-\u200f\u2060\ufeff\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
ROW_END = re.compile(r"<br\s*/?>|</(?:tr|p|div|li)>", re.IGNORECASE)
CELL_END = re.compile(r"</t[dh]>", re.IGNORECASE)
TAG = re.compile(r"</?(?:pre|code|span|font|table|t(?:head|body|r|d|h)|p|div|b|i|ul|li)\b[^<>]*>", re.IGNORECASE)
LABEL = r"(?:(?:[A-Z]{1,2}[PLC]U|NIC)\d|mlx\d_\d)"
KIND = r"(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|XGMI|PCIE|HCCS|MX)"
LEADS = re.compile(  # of quoting, of a comment, of a patch, of numbering; a PCI address is none
    r"^\s*(?:>\s?)+(?=\s|[A-Za-z])|^\s*(?://|#)+(?=\s|[A-Za-z])|^\+(?=\s|\w)"
    r"|^\s*(?![0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:)\d+[:.](?=[\t ]|[A-Za-z])"
)
GLUED_ROW = re.compile(rf"(?<!\S)({LABEL}\d*)(?={KIND}(?![a-z]))")  # `GPU0X`: tabs lost behind the label too
QUOTED = re.compile(r"^\s*(?:- )?(['\"])([^'\"]*)\1,?\s*$")  # a line as an item of a list
COMMAS = re.compile(rf"^[^,\t]*,(?:[^\t]*,)?\s*\"?(?:{LABEL}|{KIND})\b[^\t]*$")


def clean_lines(text: str) -> list[str]:
    """The lines of `text` without terminal escapes, markup, carriage returns, quote marks and invisible characters."""
    if text.count("\n") < 3 and text.count("\\n") >= 2:  # one line of JSON or repr()
        text = re.sub("[\"']", " ", text.replace("\\r", "").replace("\\n", "\n"))
    if "\t" not in text and text.count("\\t") > 2:
        text = text.replace("\\t", "\t")
    text = ESCAPES.sub("", html.unescape(text)).replace("\r\n", "\n").replace("\r", "\n")
    text = TAG.sub("", CELL_END.sub("\t", ROW_END.sub("\n", text)))
    text = NO_NUMBER.sub("", INVISIBLE.sub("", ODD_BLANKS.sub(" ", text)))
    return [clean_line(line) for line in text.split("\n")]


def clean_line(line: str) -> str:
    """Without marks of quoting, of a patch or of numbering before it; with blanks where commas stood or none."""
    line = LEADS.sub("", QUOTED.sub(r"\2", line))
    if COMMAS.match(line):
        line = without_commas(line)
    return GLUED_ROW.sub(r"\1 ", line)


def without_commas(line: str) -> str:
    """A line of a CSV file with tabs; unquoted lists of CPUs lose themselves among its commas and are left out."""
    fields = next(csv.reader([line], skipinitialspace=True))
    quoted = '"' in line
    end = next((i for i, field in enumerate(fields) if re.match(r"\d", field) and not quoted), len(fields))
    return "\t".join(fields[:end])
