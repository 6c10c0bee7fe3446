"""Training progress: records of progress.jsonl, and the steps that trainers' log lines tell of."""

from launcher.common.progress.reader import LogReader
from launcher.common.progress.record import Progress, parse_record

__all__ = ["LogReader", "Progress", "parse_record"]
