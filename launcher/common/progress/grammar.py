"""One log line to what it says of a training step, by four grammars.

pairs      step: 12  loss: 2.31 | lr 1e-4, {'loss': 2.3, 'epoch': 0.1}, step:34 - actor/loss:0.04
bars       Epoch 0:  3%|▎   | 34/1100 [05:28<171:22, 1.73it/s, loss=2.52]
places     [1][10/25]   epoch 001: 550 / 1891   0/50, SamplesPerSec=…   1|149|Loss: …
headers    [batch=1/100]:   ==== Step 2/2 ====      (their measures stand on the lines below)
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from launcher.common.progress.pairs import Pair, clean, pairs, without_times
from launcher.common.progress.record import EVIDENCE, Progress
from launcher.common.progress.vocabulary import TIME_UNITS, UNITS, meaning

_LONGEST_STEP = 1e6  # seconds; more is a time of day
_SHORTEST_STEP = 1e-3  # seconds; a bar that tells nothing else and is quicker counts samples or files
_SCREEN = 78  # characters; narrower terminals do not wrap logs
LONGEST_LINE = 16_384  # characters; a longer line is cut there
_HINTS = (
    "step",
    "iter",
    "loss",
    "epoch",
    "batch",
    "update",
    "it/s",
    "s/it",
    "samples",
    "trl",
    "||",
    " up.",
    "global",
    "images/",
)
_HINTS_BEYOND_ASCII = ("次数", "步", "损失")
_BAR = re.compile(
    r"(?:(?P<percent>\d{1,3})%\s*(?:\|[^|]{0,300}\|)?\s*|(?<![\w/.])(?=\d+/\d+ \[))"
    r"(?P<n>\d+)/(?P<total>\d+)\s*\[(?P<elapsed>[\d:]+)<(?P<left>[^,\]]*)"
    r"(?:,\s*(?P<rate>\d+(?:\.\d+)?|\?)\s?(?P<unit>[a-zA-Z]+/[a-zA-Z]+))?(?P<rest>[^\]]*)"
)
_HELD_OUT_LINE = re.compile(
    r"(?<![\w/.\-])(?:val|valid|validat\w*|eval|evaluat\w*|test|testing|inference|sanity|predict\w*|"
    r"generating|cv(?= batch\b))"
    r"(?![\w/.\-]|(?:\s?\(?[a-z ]{1,24}\))?\s*[:=]\s*(?:n/a|none|nan|[-\d.])|[ _](?:\w+ )?(?:loss|acc(?:uracy)?\b))",
    re.I,
)
_HELD_OUT = re.compile(r"valid|eval|test", re.I)
_HELD_OUT_BAR = re.compile(r"\W*(?:val|valid\w*|eval\w*|test|testing|infer\w*)\b", re.I)
_AFTER_BAR = re.compile(r"\]\s*\[?((?:train(?:ing)?[_/ ])?loss\s*[:=].*)", re.I)  # what a loop prints behind its bar
_SPELT_BAR = re.compile(  # as tqdm-loggable writes a bar into a log
    r"\bProgress on:(?P<what>.{0,80}?)\s+(?P<n>\d+(?:\.\d+)?[kMG]?)it/(?P<total>\d+(?:\.\d+)?[kMG]?|\?)(?:it)?\s+"
    r"rate:(?P<rate>\d+(?:\.\d+)?)\s?(?P<unit>\w+/\w+)"
)
_NO_STEP_LINE = re.compile(
    r"\b(?:load(?:ed|ing)|initiali[sz]\w+|restor\w+|resum\w+|download\w*|preprocess\w*|compil\w+|skipping|sav(?:ed|ing)|"
    r"(?:profiler|dataloader)(?= step)|"
    r"checkpoint(?:s|ed|ing|er)?|"
    r"warm(?:ing)?[ -]?up|early stop\w*|best model)\b"
    r"(?!\s*(?:time|cost)?\s*[:=]?\s*[\d.])",
    re.I,
)
_COMPLAINT = re.compile(r"\b[A-Z]\w*(?:Error|Exception|Warning)\b|\b(?i:assert|expected|detected|watchdog|stopping)\b")
_OTHER_BAR = re.compile(
    r"convert|tokeniz|mapp?(?:ing)?\b|filter|pack(?:ing)?\b|fetch|build|index|cach|extract|read|sav(?:e|ing)\b|upload|writ|"
    r"merg|quanti|compil|warm|shard|split|files|download|load|example|process(?!\w*rank)|prompt|scor(?:e|ing)|generat|"
    r"rollout|decod|captur|sampling|comput",
    re.I,
)
_EPOCHS_BAR = re.compile(r"\W*epochs?\W*", re.I)
_TRAINING_BAR = re.compile(r"epoch|train|step|iter|loss|batch|progress|episode|^[\s\d./GMgm%:-]*$", re.I)
_RANK_PREFIX = re.compile(r"\W*(?:\d+|[\w.\-]*\d|\w[\w.\- ]*[,( ]+(?:pid|rank|ip)=[\w.]+)?\W*")
_PLACES = (
    re.compile(r"\b(?:iter|iteration|step|batch)(?:\(train\))?\s*:?\s*\[\s*(?P<step>\d+)\s*/\s*(?P<total>\d+)", re.I),
    re.compile(r"\[\s*(?P<epoch>\d+)(?:/\d+)?\s*\]\s*\[\s*(?P<step>\d+)\s*/\s*(?P<total>\d+)"),
    re.compile(r"(?:epoch|train)\W{0,3}(?P<epoch>\d+)(?!\.\d)(?:/\d+)?\W{1,6}(?P<step>\d+)\s*/\s*(?P<total>\d+)", re.I),
    re.compile(r"^\W*\[\s*(?P<epoch>\d+)\s*\]\s+(?P<step>\d+)\s*\|\|"),
    re.compile(r"^\W*(?P<epoch>\d+)\|(?P<step>\d+)\|"),
    re.compile(r"(?<!\w)(?P<epoch>\d+)epoch:train:\d+-(?P<step>\d+)batch"),
    re.compile(r"(?<![\w.])(?P<step>\d+)\s+images/sec:\s+\S+ \+/- \S+ \(jitter = \S+\)\s+(?P<loss>\d+(?:\.\d+)?|nan)"),
    re.compile(r"\[\s*(?P<epoch>\d+),\s*(?P<step>\d+)\s*\]\s*:?\s*(?:\w+\s)?loss", re.I),
    re.compile(r"(?<![\w/.])(?P<epoch>\d+)/(?P<step>\d+),\s*\w*SamplesPerSec"),
    re.compile(r"^\W*(?P<step>\d+)/(?P<total>\d+)\s+(?:\[[=>.]+\]|[━─╸╺]{5})"),
    re.compile(r"[━─╸╺]{5,}\s+(?P<step>\d+)/(?P<total>\d+)"),
    re.compile(r"loss\W+\d+(?:\.\d+)?\s+\[\s*(?P<step>\d+)\s*/\s*(?P<total>\d+)\s*\]", re.I),
    re.compile(r"第\s*(?P<step>\d+)\s*(?:步|次|批|个)"),
    re.compile(r"^\W*(?P<step>\d+)\s*/\s*(?P<total>\d+)\]?\W+(?:\w+\s|train(?:ing)?_)?loss", re.I),
    re.compile(r"^\W*(?P<step>\d+)\s+\d+(?:\.\d+)? m?s run,.*?\s(?P<loss>\d+(?:\.\d+)?|nan) loss\b"),
    re.compile(r"\btrain(?:ing)?\]?\s*:?\s*\[\s*(?P<step>\d+)\s*/\s*(?P<total>\d+)\s*\]", re.I),
    re.compile(r"\[\s*(?P<step>\d+)\s*/\s*(?P<total>\d+)\s+\|\s+<\s+\|"),  # [12/90 01:50 < 08:31, 0.2 it/s, Epoch 1/3]
    re.compile(r"(?:^|\]\s*)\[\s*(?P<step>\d+)\s*\]\s+[a-z_/]+\s?="),
    re.compile(r"\b(?:step|iter|iteration|update)\W{1,6}(?P<step>\d+)\W{1,4}(?:\w+\s)?loss", re.I),
    re.compile(r"\bepoch\s*\[\s*(?P<epoch>\d+)(?:/\d+)?\s*\]\W+(?:step|iter|batch)\w*\W+(?P<step>\d+)", re.I),
)
_DICT = re.compile(r"[^{}]{0,120}\{\s*[\w/]+:")  # the quotes are gone by then
_HEADER = re.compile(
    r"\[?\b(?:step|batch|iter|iteration|update)\s?[=: ]\s?(?P<step>\d+)\s*/\s*(?P<total>\d+)(?:ba)?"
    r"(?:\W+global_step:\s*(?P<whole>\d+))?"
    r"(?:,\s*epoch=(?P<epoch>\d+(?:\.\d+)?))?(?:,\s*\w+=[\d:. a-z,]*)*[\]:=\s*\-|─━]*$",
    re.I,
)
_LETTER_TOTAL = re.compile(r"\|\|.*\bT: *(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Reading:
    """What one line says. `held_out` if it also speaks of validation; `bar` and `described` tell a progress bar and
    whether words stand before it; `row` a line of cells divided by `|`, which may go on in the next line."""

    progress: Progress
    held_out: bool = False
    bar: bool = False
    described: bool = False
    row: bool = False

    @property
    def full(self) -> bool:
        """Whether it is the whole report of a step: a loss and a rate or learning rate."""
        rates = (self.progress.lr, self.progress.step_s, self.progress.grad_norm)
        return self.progress.loss is not None and any(value is not None for value in rates)


def may_say_progress(text: str) -> bool:
    """A quick look that lets most other lines go by."""
    lower = text.lower()
    return any(hint in lower for hint in (_HINTS if lower.isascii() else _HINTS + _HINTS_BEYOND_ASCII))


def header(text: str) -> Progress | None:
    """The step of a line that only announces it; what it measured follows on the next lines."""
    found = _HEADER.search(clean(text[:400]))
    if found is None or _NO_STEP_LINE.search(text):
        return None
    epoch = found["epoch"]
    if found["whole"]:  # and the counter of the epoch before it
        return Progress(int(found["whole"]))
    return Progress(int(found["step"]), int(found["total"]), float(epoch) if epoch else None)


def measures(text: str) -> Progress:
    """What a line measures, whether or not it names a step."""
    return _collect(pairs(without_times(clean(text[:LONGEST_LINE])))).progress


def wrapped(row: str, text: str, known: Progress) -> Progress | None:
    """The record of a row that goes on in the next line `text`; None where that line adds nothing to what is known."""
    if not ("|" in text or ":" in text) or _HELD_OUT.search(text):
        return None
    cut = len(row) >= _SCREEN  # by a terminal, perhaps in the middle of a word or a number
    whole = read_line(row + ("" if cut else " ") + text)
    if whole is None or whole.progress.step != known.step or not whole.progress.known() >= known.known():
        return None
    adds = whole.progress.known() > known.known() or (cut and whole.progress.measures() != known.measures())
    return whole.progress if adds else None


def read_line(text: str) -> Reading | None:
    """What a line (or a part of it between carriage returns) says of a training step; None for all other lines."""
    text = clean(text[:LONGEST_LINE])
    if (bar := _BAR.search(text)) is not None:
        return _read_bar(text, bar)
    if (spelt := _SPELT_BAR.search(text)) is not None:
        return _read_spelt_bar(text, spelt)
    if not may_say_progress(text) or _HELD_OUT_LINE.search(text):
        return None
    plain = without_times(text)
    found = pairs(plain)
    reading = _placed(plain, _collect(found))
    if reading.progress.step is None:
        return reading if _is_report(text, found, reading.progress) else None
    row = "|" in text
    announced = row and any(pair.of for pair in found)  # a row may be wrapped before its first measure
    if (
        not (reading.progress.measured or announced)
        or _is_setting(found, reading.progress)
        or _NO_STEP_LINE.search(text)
        or _COMPLAINT.search(text)
        or _only_losses_of_both(reading, found)
    ):
        return None
    return replace(reading, row=row)


def _is_report(text: str, found: list[Pair], progress: Progress) -> bool:
    """Trainers that print a bare dict keep the step in their bar: it must be a training loss with company."""
    if progress.loss is None or not _DICT.match(text):
        return False
    names = {pair.key for pair in found}
    company = (progress.lr, progress.grad_norm, progress.epoch, progress.tokens_per_s)
    return not any("runtime" in name or name.startswith("eval_") for name in names) and any(
        value is not None for value in company
    )


def _is_setting(found: list[Pair], progress: Progress) -> bool:
    """Whether it is a configuration: how many steps there are to be, and at which learning rate."""
    told = {name for name in EVIDENCE if getattr(progress, name) is not None}
    return told == {"lr"} and any(pair.number == progress.step and pair.key.lower().endswith("s") for pair in found)


def _only_losses_of_both(reading: Reading, found: list[Pair]) -> bool:
    """A training and a validation loss and nothing else of training: the report of an evaluation."""
    progress = reading.progress
    others = (getattr(progress, name) for name in EVIDENCE if name != "loss")
    more = any(pair.key.lower().startswith("train") and "loss" not in pair.key.lower() for pair in found)
    return not more and reading.held_out and progress.memory_bytes is None and all(value is None for value in others)


def _read_bar(text: str, bar: re.Match[str]) -> Reading | None:
    described = text[: bar.start()]
    before = without_times(described)
    after = _AFTER_BAR.match(text, bar.end())
    rest = _collect(pairs(without_times(bar["rest"] + (f", {after[1]}" if after else ""))))
    progress = _placed(before, _collect(pairs(before))).progress.merged(rest.progress)
    bare = _RANK_PREFIX.fullmatch(without_times(described)) is not None
    known = progress.measured or (bar["percent"] and (bare or _TRAINING_BAR.search(described) is not None))
    if not known or int(bar["n"]) == 0 or _of_held_out(described) or _NO_STEP_LINE.search(described):
        return None
    other = _OTHER_BAR.search(described) or _EPOCHS_BAR.fullmatch(described)
    if other and progress.loss is None:
        return None
    rate = _bar_rate(bar)
    if bar["unit"] and rate is None and bar["rate"] != "?":
        return None
    if rate is not None and rate < _SHORTEST_STEP and not progress.measured:
        return None
    step = progress.step if progress.step is not None else int(bar["n"])
    return Reading(
        replace(progress, step=step, total=int(bar["total"]), step_s=progress.step_s or rate),
        bar=True,
        described=not bare,
    )


def _of_held_out(described: str) -> bool:
    return _HELD_OUT_LINE.search(described) is not None or _HELD_OUT_BAR.match(described) is not None


def _read_spelt_bar(text: str, bar: re.Match[str]) -> Reading | None:
    """A bar that is spelt in words; its counts are rounded from a thousand on."""
    progress = _collect(pairs(without_times(text[bar.end() :]))).progress
    if _of_held_out(bar["what"]) or not (progress.measured or _TRAINING_BAR.search(bar["what"])):
        return None
    step, total = (_rounded(bar[name]) for name in ("n", "total"))
    return Reading(replace(progress, step=step, total=total, step_s=_bar_rate(bar)), bar=True, described=True)


def _rounded(text: str) -> int | None:
    unit = text[-1:].lower()
    return None if text == "?" else round(float(text.rstrip("kMG")) * UNITS.get(unit, 1.0))


def _bar_rate(bar: re.Match[str]) -> float | None:
    """Seconds of one step; None where the bar counts something else."""
    unit = (bar["unit"] or "").lower()
    value = float(bar["rate"]) if bar["rate"] and bar["rate"] != "?" and bar["rate"].count(".") <= 1 else 0.0
    if value <= 0:
        return None
    if unit in ("s/it", "s/step", "s/batch", "s/ba"):
        return value
    return 1 / value if unit in ("it/s", "step/s", "steps/s", "batch/s", "ba/s") else None


def _placed(text: str, reading: Reading) -> Reading:
    """Adds what is told by place alone: counters without a name, the letter-coded total of a row."""
    progress = reading.progress
    if progress.step is None:
        place = next((match for pattern in _PLACES if (match := pattern.search(text))), None)
        if place is not None:
            groups = place.groupdict()
            total, epoch = groups.get("total"), groups.get("epoch")
            progress = replace(
                progress,
                step=int(groups["step"]),
                total=int(total) if total else None,
                epoch=float(epoch) if epoch else progress.epoch,
                loss=float(groups["loss"]) if groups.get("loss") else progress.loss,
            )
    letter = _LETTER_TOTAL.search(text) if progress.loss is None else None
    return replace(reading, progress=replace(progress, loss=float(letter[1])) if letter else progress)


def _collect(found: Iterable[Pair]) -> Reading:
    """The best claim to each field; of claims of one rank the first."""
    values: dict[str, Any] = {}
    ranks: dict[str, int] = {}
    losses: dict[str, float] = {}
    held_out = False
    for pair in found:
        field, factor, rank = meaning(pair.key, pair.unit, pair.joined) if pair.key else ("", 1.0, 0)
        if field == "held_out":
            held_out = True
        elif field == "other_loss":
            losses.setdefault(pair.key, pair.number)
        elif field and rank > ranks.get(field, 0) and _possible(field, pair):
            ranks[field] = rank
            _keep(values, field, pair, factor)
    total = values.pop("of", None)
    if total and values.get("step") is not None and not values["total"]:
        values["total"] = total
    rate = values.pop("rate", None)
    if rate and "step_s" not in values:
        values["step_s"] = 1 / rate
    return Reading(Progress(**values, losses=losses), held_out=held_out)


def _possible(field: str, pair: Pair) -> bool:
    if not math.isfinite(pair.number):
        return field in ("loss", "grad_norm")
    if field in ("counter", "of"):
        return (
            pair.exact and pair.number >= 0 and pair.number == int(pair.number) and pair.unit.lower() not in TIME_UNITS
        )
    if field in ("step_s", "data_s", "rate"):
        return 0 < pair.number < _LONGEST_STEP or (field == "data_s" and pair.number == 0)
    return field != "memory_bytes" or pair.unit != "%"


def _keep(values: dict[str, Any], field: str, pair: Pair, factor: float) -> None:
    if field == "counter":
        values["step"] = int(pair.number)
        values["total"] = int(pair.of) if pair.of and math.isfinite(pair.of) else None
    elif field in ("skipped", "of"):
        values[field] = int(pair.number)
    else:
        values[field] = pair.number * factor
