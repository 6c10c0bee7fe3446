"""Cleaning a log line, and the pairs of names and numbers in it: `step: 12`, `loss=2.1`, `lr 1e-4`, `9.4 samples/s`."""

from __future__ import annotations

import re
from typing import NamedTuple

from launcher.common.progress.vocabulary import MAGNITUDES, UNITS, meaning

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[@-Z\\-~])")
_LOST_ESCAPES = re.compile(r"\[(?:0|[1-4]|22|[39]\d|[34]8;[25];[\d;]+)(?:;\d{1,3})*m(?![\d<])")  # the ESC byte is gone
_STEP_PAIR = re.compile(r"\bstep\s*[:=]\s*[\[(]\s*(\d+)\s*,\s*(\d+)\s*[\])]")  # DLLogger: epoch and iteration
_EPOCH_BATCH = re.compile(r"(\bTRAIN (?:\|[^|]{0,40}\| )?)Batch (\d+)/(\d+)(?= loss)")  # WeNet and its kin
_NO_NUMBER = re.compile(r"\d{100,}")
_CONTROLS = dict.fromkeys((*range(9), *range(11, 32), 127, ord("'"), ord('"'), ord("\\")))
_DATES = re.compile(
    r"\b\d{4}[-/]\d\d?[-/]\d\d?(?:[T ]\d\d?:\d\d(?::\d\d(?:[.,]\d+)?)?Z?)?"  # 2025-03-04 00:44:44,441
    r"|\b\d\d?/\d\d?(?:/\d{2,4})?[ T]\d\d:\d\d(?::\d\d)?(?! <)"  # 08/21 02:58:41, but 12/90 01:50 < 08:31 is a bar
    r"|(?:\d+ days?, ?)?(?<![\d.])\d{1,3}:\d\d(?::\d\d)?(?:\.\d+)?(?![\d.])"  # 0:22:35
)
_NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d{1,3}(?:_\d{3})+(?![\d_])|\d+|(?=\.\d))(?:\.\d*)?(?:[eE][-+]?\d+)?"
_TOKEN = re.compile(
    r"(?P<word>[^\W\d][\w/@.%\-]*(?:\s?\([^()|:=]{1,24}\)(?=\s*[:=：]))?(?:\([A-Za-z]{1,12}\))?)"
    rf"|(?P<number>{_NUMBER})(?:\s*/\s*(?P<of>{_NUMBER})(?![\w/]))?(?P<suffix>[A-Za-zµ%][\w/%]*|/s(?:ec)?\b(?:/\w+)?)?"
    r"|(?P<sep>[:=：])"
    r"|(?P<mark> -{1,2} |[\[(])|(?P<bar>[|,;\](){}<>\t•，；、（）])"
)
_UNIT_WORD = re.compile(
    r"(?:[kKMGT]?i?B|ms|us|s|secs?|seconds|min|[\w.]+/(?:s|secs?|second|it|iter|step|batch|gpu|device)(?:/\w+)?)", re.I
)
_NAMES_A_NUMBER = re.compile(r"\s*[:=：]\s*(?:[-+.\d\[(]|nan|inf)", re.I)
_UNIT_BRACKET = re.compile(r"(.*?)\s?\(([^()]*)\)$")
_TIME = re.compile(r"t|time", re.I)
_MAY_BE_NAN = re.compile(r".*(?:loss|norm)", re.I)  # `loss nan`, without a colon
_GROUP = re.compile(r"group \d+|last|step|now|cur(?:rent)?", re.I)


class Pair(NamedTuple):
    """A number with the name before it: `of` is N of `12/N`; `exact` is false where the text was in exponent form."""

    key: str
    number: float
    of: float | None
    unit: str
    joined: bool
    exact: bool


def clean(text: str) -> str:
    """The text without escape sequences, control characters and quotes."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    text = _NO_NUMBER.sub("", _LOST_ESCAPES.sub("", text).translate(_CONTROLS))
    text = _STEP_PAIR.sub(r"epoch: \1, step: \2", text)
    return _EPOCH_BATCH.sub(r"\1epoch: \2, batch: \3,", text)


def without_times(text: str) -> str:
    """Dates and times of day become separators: their digits are no measurements."""
    return _DATES.sub(" | ", text)


def to_number(text: str) -> float:
    return float(text.replace(",", "").replace("_", ""))


def pairs(text: str) -> list[Pair]:
    """All pairs of a cleaned line in order. A number without a name but with a unit gets the unit as its name."""
    found: list[Pair] = []
    words: list[str] = []
    joined = after_number = False
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        if word := token["word"]:
            unit = after_number and _UNIT_WORD.fullmatch(word) and not _NAMES_A_NUMBER.match(text, token.end())
            if unit and _takes(found[-1], word):
                found[-1] = _with_unit(found[-1], word)
            elif word.lower() in ("nan", "inf") and (joined or _MAY_BE_NAN.fullmatch(words[-1] if words else "")):
                found.append(_pair(words, float(word), None, "", joined, True))
                words, joined = [], False
            elif not (joined and word == "tensor"):
                words = [word] if joined else [*words[-5:], word]
                joined = False
            after_number = False
        elif number := token["number"]:
            of, suffix = token["of"], token["suffix"] or ""
            exact = "e" not in number.lower()
            found.append(_pair(words, to_number(number), to_number(of) if of else None, suffix, joined, exact))
            words, joined, after_number = [], False, not suffix or suffix.lower() in MAGNITUDES
        elif kind == "sep":
            joined, after_number = bool(words), False
        elif not (token["mark"] in ("[", "(") and joined):
            words, joined, after_number = [], False, False
    return found


def _pair(words: list[str], number: float, of: float | None, suffix: str, joined: bool, exact: bool) -> Pair:
    key, unit = " ".join(words), suffix
    bracket = _UNIT_BRACKET.match(key) if key.endswith(")") else None
    if bracket:
        key, note = bracket[1], bracket[2]
        if _TIME.fullmatch(note):
            key = f"{key} time"  # Batch (t): 0.412
        elif not _GROUP.fullmatch(note):
            unit = suffix or note
            if any(character.isdigit() or character == " " for character in note):
                key = ""  # throughput (actual avg), lr(1e-4): another quantity than the bare name
    named = unit if "/" in unit and not words else ""
    return Pair(key or named, number, of, unit, joined, exact)


def _takes(pair: Pair, unit: str) -> bool:
    """Whether the unit behind a number is its own: in `lr 1e-4 tok/s 12.3k` and `41% tok/s 9` it names the next one."""
    if "/" not in unit:
        return not pair.unit
    named = meaning(pair.key, "", pair.joined).field in ("lr", "loss", "grad_norm", "counter", "epoch")
    return not named and (not pair.unit or pair.unit.lower() in UNITS)


def _with_unit(pair: Pair, unit: str) -> Pair:
    """With a unit that stands apart: `9.4 ms`, `12.3K tokens/s`."""
    number = pair.number * UNITS[pair.unit.lower()] if pair.unit else pair.number
    return pair._replace(number=number, unit=unit, key=pair.key or unit)
