"""Texts of many senders over one channel: whole again in whatever parts and order their lines arrive."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from launcher.common.pieces import PIECE, Joiner, cut

texts = st.dictionaries(st.sampled_from(["n1", "n2", "gpu-03.cluster"]), st.integers(0, 3 * PIECE), min_size=1)


@given(texts, st.randoms(use_true_random=False), st.integers(1, 400))
def test_mixed_lines_in_parts_of_any_size(sizes: dict[str, int], random: object, part: int) -> None:
    sent = {node: json.dumps({"answer": "é" * size}) for node, size in sizes.items()}
    queues = {node: list(cut(node, 4, text)) for node, text in sent.items()}
    lines = ["Welcome to the cluster", "slurmstepd: error 5 0 nothing"]
    while queues:
        node = random.choice(sorted(queues))  # type: ignore[attr-defined]
        lines.append(queues[node].pop(0))
        if not queues[node]:
            del queues[node]
    channel = "\n".join([*lines, ""])
    joiner = Joiner()
    parts = [channel[start : start + part] for start in range(0, len(channel), part)]
    heard = [answer for data in parts for answer in joiner.feed(data)]
    assert {node: text for node, _, text in heard} == sent
    assert {number for _, number, _ in heard} == {4}


def test_every_line_is_short_enough_for_slurmstepd() -> None:
    assert max(len(line.encode()) for line in cut("n" * 64, 10, "x" * 100_000)) < 1000
