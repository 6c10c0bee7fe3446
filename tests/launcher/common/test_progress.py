"""The log reader: every form of line that trainers print, and everything that only looks like one."""

from __future__ import annotations

import json
import math
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.common.progress import LogReader, Progress, parse_record

CORPUS = Path(__file__).parents[4] / "shared" / "train-logs"


def read(text: str) -> list[Progress]:
    reader = LogReader()
    return reader.feed(text.encode()) + reader.close()


def one(text: str) -> dict[str, Any]:
    (record,) = read(text)
    return {**record.to_json(), **{name.lower(): value for name, value in record.losses.items()}}


LINES = [
    ("step: 12  loss:  3.4370  memory: 68.57GiB(86.69%)  tps: 6,785  mfu: 39.73%", {"step": 12, "loss": 3.437}),
    ("\x1b[36mstep: 12  \x1b[32mloss:  3.4\x1b[39m", {"step": 12, "loss": 3.4}),
    ("3: [rank3]: step=12 loss=3.4 lr=[1e-4, 1e-4]", {"step": 12, "loss": 3.4, "lr": 1e-4}),
    (
        " iteration       12/    1000 | elapsed time per iteration (ms): 250.5 | learning rate: 1.0E-05 | lm loss: "
        "1.25E+01 | loss scale: 1024.0 | grad norm: 2.5 | number of skipped iterations:   1 |",
        {"step": 12, "total": 1000, "step_s": 0.2505, "lr": 1e-5, "loss": 12.5, "grad_norm": 2.5, "skipped": 1},
    ),
    (" iteration 12/ 90 | elapsed time per iteration (s): 2.5 | lr: 1e-5 |", {"step_s": 2.5, "step": 12}),
    (
        "iteration: 12 / 90 | elapsed_time_per_iteration_ms: 28.1K | tokens_per_sec: 74.6K | lm_loss: 2.31",
        {"step_s": 28.1, "tokens_per_s": 74600.0, "loss": 2.31},
    ),
    ("epoch=0/micro_step=24/global_step=12, RunningAvgSamplesPerSec=8.5, CurrSamplesPerSec=9.5", {"step": 12}),
    ("Training epoch 1, iteration 3/9 | global_step: 12 | reduced_train_loss: 2.5 | val_loss: 9.5 | lr: 1e-5",
     {"step": 12, "loss": 2.5, "epoch": 1}),
    ("{'loss': 2.5, 'grad_norm': 0.5, 'learning_rate': 4e-05, 'epoch': 0.25}", {"loss": 2.5, "lr": 4e-5}),
    ("0: {'loss': '2.5', 'global_step/max_steps': '12/90'}", {"loss": 2.5, "step": 12, "total": 90}),
    ("{'loss': 2.5, 'learning_rate': 4e-05, 'rewards/len", {"loss": 2.5}),
    ('{"epoch": 1, "update": 0.25, "loss": "2.5", "wps": "288.7", "num_updates": "12"}', {"step": 12, "loss": 2.5}),
    (" 19%|█▊        | 12/97 [01:50<08:31,  6.5s/it]", {"step": 12, "total": 97, "step_s": 6.5}),
    ("  0% 12/2468 [00:13<95:34:17, 13.5s/it]", {"step": 12, "total": 2468, "step_s": 13.5}),
    ("Epoch 0:  3%|▎ | 12/99 [05:28<171:22,  2.0it/s, loss=2.5, v_num=3, global_step=3.1e+4]",
     {"step": 12, "loss": 2.5, "step_s": 0.5}),
    ("1|12|Loss: 0.25:   1%|  | 12/2588 [02:08<6:14:19,  2.0it/s", {"step": 12, "epoch": 1, "loss": 0.25}),
    ("Epoch(train) [1][12/25]  lr: 1.0e-02  eta: 0:00:30  time: 0.25  data_time: 0.5  loss1: 0.5  loss: 1.5",
     {"step": 12, "total": 25, "epoch": 1, "step_s": 0.25, "data_s": 0.5, "loss": 1.5, "loss1": 0.5}),
    ("| epoch 010   800 / 823 loss=1.5 (1.45), wps=961, lr=0.001", {"step": 800, "total": 823, "loss": 1.5}),
    ("Train: 0 [  12/99 (  4%)]  Loss: 6.5 (6.75)  Time: 0.5s, 128.5/s  (0.5s, 100.0/s)",
     {"step": 12, "loss": 6.5, "step_s": 0.5, "samples_per_s": 128.5}),
    ("[  0]     12 || B: 3.4 | C: 2.9 | T: 6.25 || ETA: 2 days, 4:31:21 || timer: 1.5", {"step": 12, "loss": 6.25}),
    ("0/12, SamplesPerSec=1292.5", {"step": 12, "epoch": 0, "samples_per_s": 1292.5}),
    ("Finished training it 1/3 of epoch 0, -1.00 ms/it, loss 0.25, accuracy 0.000%", {"step": 1, "loss": 0.25}),
    ("训练次数：12, Loss：1.25", {"step": 12, "loss": 1.25}),
    ("第 12 步, 损失: 0.25", {"step": 12, "loss": 0.25}),
    ("step    1/90 | loss 11.5 (+nanz)| norm 15.5 (+nanz)| lr 4e-07 | 3000.5 ms | 174715 tok/s",
     {"step": 1, "total": 90, "grad_norm": 15.5, "step_s": 3.0005, "tokens_per_s": 174715.0}),
    ("Epoch [1/5], Step [12/60], Loss: 2.25", {"step": 12, "total": 60, "loss": 2.25}),
    ("Epoch: [0][ 12/50]\tTime  0.5 ( 0.8)\tData  0.25 ( 0.4)\tLoss 6.5e+00 (7.0e+00)",
     {"step": 12, "step_s": 0.5, "data_s": 0.25, "loss": 6.5}),
    ("INFO:tensorflow:loss = 0.25, step = 12 (1.234 sec)", {"step": 12, "loss": 0.25}),
    ("step:12 - timing/gen:21.4 - timing_s/step:96.5 - critic/grad_norm:9.5 - actor/grad_norm:1.5 - actor/pg_loss:-0.5",
     {"step": 12, "step_s": 96.5, "grad_norm": 1.5, "actor/pg_loss": -0.5}),
    ("Step: 12, Loss: nan, LR: 1e-4", {"step": 12, "loss": "nan"}),
    ("epoch 1 | iter 12/24 | d loss 7.5 | g loss 9.5 | took 1.5 s", {"step": 12, "d loss": 7.5, "step_s": 1.5}),
    (" 45/100 [=====>.......] - ETA: 1s - loss: 0.5", {"step": 45, "total": 100, "loss": 0.5}),
    ("completed step: 12, seconds: 0.5, TFLOP/s/device: 43.5, Tokens/s/device: 1094.5, loss: 2.5",
     {"step_s": 0.5, "tflops": 43.5, "tokens_per_s_per_device": 1094.5}),
    ("steps: 12 loss: 3.5 iter time (s): 0.5 samples/sec: 16.5", {"step": 12, "step_s": 0.5, "samples_per_s": 16.5}),
    ("INFO:root:Epoch[0] Batch [12]\tSpeed: 1000.5 samples/sec", {"step": 12, "epoch": 0, "samples_per_s": 1000.5}),
    ("solver.cpp:228] Iteration 12 (2.0 iter/s, 80.1s/100 iters), loss = 0.25", {"step": 12, "step_s": 0.5}),
    ("(RayTrainWorker pid=1, ip=10.0.0.1) {'loss': 2.25, 'learning_rate': 1e-05}", {"loss": 2.25, "lr": 1e-5}),
    ("[12/100] loss=2.25", {"step": 12, "total": 100, "loss": 2.25}),
    ("[Epoch 1, Batch 12] loss: 2.25", {"step": 12, "epoch": 1, "loss": 2.25}),
    ("Train: Epoch 3 [12/50] loss 0.25 data loading: 0.03s", {"step": 12, "total": 50, "loss": 0.25}),
    ("rank=3 epoch=1 step=12/100 loss=2.25 time=0.5", {"step": 12, "total": 100, "loss": 2.25, "step_s": 0.5}),
    ("Train Epoch: 1 [12/99 (2%)] Data (t): 0.25 Batch (t): 1.5, 99.5/s, 12.5/s/gpu LR: 0.5 Scale: 14.5 Loss: 2.5",
     {"step": 12, "step_s": 1.5, "data_s": 0.25, "lr": 0.5, "samples_per_s": 99.5, "loss": 2.5}),
    ("I0101 logging_writer.py:48] [12] learning_rate=0.5, loss=2.5, steps_per_sec=2.5",
     {"step": 12, "lr": 0.5, "loss": 2.5, "step_s": 0.4}),
    ("helpers.py:102] Training  [  12/99]  eta: 12:34:56  lr: 0.5 (0.5)  loss: 2.5 (3.5)  time: 0.25  data: 0.125",
     {"step": 12, "total": 99, "lr": 0.5, "loss": 2.5, "step_s": 0.25, "data_s": 0.125}),
    ("[ 12/90 04:12 < 30:51, 0.5 it/s, Epoch 0.12/1]", {"step": 12, "total": 90, "step_s": 2.0, "epoch": 0.12}),
    ("Step... (12 | Loss: 2.5, Learning Rate: 1e-04)", {"step": 12, "loss": 2.5, "lr": 1e-4}),
    ("Step: 12/90, Loss: 2.5, Time/step: 412.5 ms, Memory usage: 1.5GB",
     {"step": 12, "loss": 2.5, "step_s": 0.4125, "memory_bytes": 1.5e9}),
    ("Iter 12: Train loss 2.5, Learning Rate 1.0e-05, It/sec 2.5, Tokens/sec 1234.5, Trained Tokens 99",
     {"step": 12, "loss": 2.5, "lr": 1e-5, "step_s": 0.4, "tokens_per_s": 1234.5}),
    ("t.py:1] Step 1,200: loss 2.5 (412.5 ms/step, 12.5K tok/s, 1.5K tok/sec/gpu)",
     {"step": 1200, "loss": 2.5, "step_s": 0.4125, "tokens_per_s": 12500.0, "tokens_per_s_per_device": 1500.0}),
    ("(step=0000012) ce_loss: 1.5, aux_loss: 1.0, total_loss: 2.5, Train Steps/Sec: 2.50",
     {"step": 12, "loss": 2.5, "step_s": 0.4, "aux_loss": 1.0}),
    ("Ep. 1 : Up. 12 : Cost 7.125 : Time 1.5s : 12345.5 words/s : L.r. 3.0e-05",
     {"step": 12, "epoch": 1, "step_s": 1.5, "tokens_per_s": 12345.5, "lr": 3e-5}),
    ("轮次 1，步骤 12/90，损失：2.5，学习率：0.5", {"step": 12, "total": 90, "epoch": 1, "loss": 2.5, "lr": 0.5}),
    ("Epoch 1/2: 100%|██| 12/12 [00:05<00:00, 2.0batch/s, loss=2.25]", {"step": 12, "step_s": 0.5, "loss": 2.25}),
    ("[n1:0/2] (trainer:464) INFO: 3epoch:train:101-200batch: iter_time=2e-04, loss=12.5, loss_ctc=23.5, lr_0=1e-06",
     {"step": 200, "epoch": 3, "loss": 12.5, "lr": 1e-6, "loss_ctc": 23.5}),
    ("12/32 [48:47<49:38, 93.5s/it, loss: 9.25]", {"step": 12, "total": 32, "step_s": 93.5, "loss": 9.25}),
    ("20  images/sec: 31.5 +/- 0.3 (jitter = 0.7) 8.125", {"step": 20, "samples_per_s": 31.5, "loss": 8.125}),
    ("Progress on:train 1.20kit/10.0kit rate:2.0it/s remaining:1:39:20 elapsed:11:02 postfix:loss=3.25",
     {"step": 1200, "total": 10000, "step_s": 0.5, "loss": 3.25}),
    ('{"current_steps": 12, "total_steps": 90, "loss": 2.5, "lr": 4e-05}', {"step": 12, "total": 90, "loss": 2.5}),
    ('DLLL {"type": "LOG", "step": [3, 12], "data": {"train.loss": 6.5, "train.lr": 0.5}}',
     {"step": 12, "epoch": 3, "loss": 6.5, "lr": 0.5}),
    ("[31mstep: 12  [38;2;180;60;0mloss:  2.5 [35mtps: 7,125[39m", {"step": 12, "loss": 2.5, "tokens_per_s": 7125.0}),
    ("trainer:after_iter:238 - epoch: 4/30, iter: 12/90, mem: 132Mb, iter_time: 0.5s, total_loss: 2.5, lr: 2e-03",
     {"step": 12, "total": 90, "epoch": 4, "step_s": 0.5, "loss": 2.5}),
    ("train.py:341 in record_metrics -- tflops=181.5 step=12 loss=2.5 tgs (tokens/gpu/second)=4123.5",
     {"step": 12, "loss": 2.5, "tflops": 181.5}),
    ("DEBUG TRAIN Batch 3/12 loss 2.5 acc 0.125 lr 0.5 grad_norm 1.5 rank 0", {"step": 12, "epoch": 3, "loss": 2.5}),
    ("    12 93.5 s run, 2.5 loss, 0.000000000001 LR, 642.5 GB used,  19644.5 GFLOPS", {"step": 12, "loss": 2.5}),
    ("Rank: 0; [ep: 1] iter: 12; lr: 0.5; loss: 2.5; btime(ms): 125; eta: 0:00:08;", {"step": 12, "step_s": 0.125}),
    ("[10:00:00] [train] [12/90] loss=2.5, 0.5s/step", {"step": 12, "total": 90, "loss": 2.5, "step_s": 0.5}),
    ("step=12_000 loss=2.5", {"step": 12000, "loss": 2.5}),
    ("Iter: 12, Train Loss: 2.5, Train Acc: 41.5%, Val Loss: 2.75, Val Acc: 40.5%", {"step": 12, "loss": 2.5}),
    ("step 12 loss nan grad_norm inf", {"step": 12, "loss": "nan", "grad_norm": "inf"}),
    ("Epoch 1:  12%|█▏ | 12/90 [00:12<01:28, 1.00s/it][loss=2.5]", {"step": 12, "loss": 2.5, "epoch": 1}),
    ("12/90, train_loss: 0.25", {"step": 12, "total": 90, "loss": 0.25}),
    ("{'loss': 2.5, 'checkpoint_dir_name': None, 'training_iteration': 12, 'time_total_s': 36.1}",
     {"step": 12, "loss": 2.5}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), LINES, ids=[line[:40] for line, _ in LINES])
def test_a_line_gives_its_step(line: str, expected: dict[str, Any]) -> None:
    found = one(line)
    assert {name: found.get(name) for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize(
    "line",
    [
        "saving checkpoint at iteration       5 to ./checkpoint/lr1.2e-4_loss0.5",
        "Async checkpoint save for step 19 finalized successfully, loss plugin unloaded",
        "model_name=0--val_loss=0.00-step=18-consumed_samples=9728.0-last.ckpt",
        "[Rank 6] (after 1 iterations) memory (MB) | allocated: 10837.39 | max allocated: 17461.9",
        "time (ms) | forward: 35346.30 | backward: 87957.05 | optimizer: 438.52",
        "[val] step 20 | epoch 0 | loss 0.2469",
        "  step  99 | val_loss 0.0363",
        "Test: [   0/48]  Time: 2.871 (2.871)  Loss:   6.871 ( 6.871)",
        "| epoch 010 | valid on 'valid' subset  1000 / 1311 loss=1.61",
        "step 0: train loss 10.9880, val loss 10.9903",
        "{'eval_loss': 2.1, 'eval_runtime': 3.1, 'epoch': 1.0}",
        "{'train_runtime': 88.1, 'train_samples_per_second': 1.45, 'train_loss': 1.21, 'epoch': 3.0}",
        "Downloading metadata: 100%|██████████| 2.40M/2.40M [00:01<00:00, 2.05MB/s]",
        "Map (num_proc=8):  45%|████      | 4500/10000 [00:01<00:02, 3000.5 examples/s]",
        "Loading checkpoint shards: 33%|███▎      | 1/3 [00:01<00:02,  1.05it/s]",
        "train_split:  32%|███▏      | 31745/100000 [01:51<00:19, 3538.83it/s]",
        "evaluating Epoch: 100%|███| 102/102 [00:27<00:00,  3.70it/s]",
        "train: 12%|█▏  | 1.20M/10.0M [00:24<02:56, 50.0ktok/s, loss=2.5]",
        "498383it [00:12, 59276.95it/s]",
        "Simulating a crash at step 17!",
        "Worker group FAILED. 3/3 attempts left; restart_count=1",
        "Grad overflow on iteration 9",
        "Attempted loss scale: 65536, reducing to 32768",
        "gpu-3:47930:47930 [0] NCCL INFO Channel 00/08 : 0 1 2 3 via step 4",
        "整体测试集上的Loss: 263.6",
        "Learning rate scheduler state: {'last_epoch': 12011, '_step_count': 12012}",
        "validation loss at iteration 100 | lm loss value: 2.312E+00 | lm loss PPL: 1.0E+01 |",
        "INFO:tensorflow:global_step/sec: 80.1",
        "Early stopping: no improvement at step 12, loss 2.25",
        "Compiling step 12 of 20 took 3.5 s",
        "Epoch 12 finished, mean loss 2.25",
        "Evaluating: 12%|█ | 12/100 [00:05<00:35,  2.48it/s, loss=2.25]",
        "warning: step time 12 s",
        "(valid: 1 ): 100%|####| 313/313 [00:03<00:00, 84.5it/s, train_loss=0.75]",
        "Progress on:eval 12.0it/50.0it rate:2.5it/s remaining:00:20 elapsed:00:10 postfix:loss=3.5",
        "Processed prompts: 100%|██| 64/64 [00:12<00:00, 5.12it/s, est. speed input: 12.5 toks/s, output: 41.5 toks/s]",
        "Epoch:  33%|███▎      | 1/3 [12:12<24:24, 732.1s/it]",
        "Scoring batches:  12%|█▏  | 12/100 [00:12<01:28, 1.0s/it]",
        "Skipping batch 12 (loss=nan)",
        "AssertionError: step 12: loss 2.5 != 2.25",
        "RuntimeError: CUDA out of memory at iteration 12. Tried to allocate 2.00 GiB (loss 2.5)",
        "Warning: loss spike detected at step 12: loss=8.5",
        "Stopping at step 12: loss 2.25 < 2.5",
        "Start step: 12, end step: 90, lr: 1e-5",
        "Profiler step 12: 3.5 ms",
        "DEBUG CV Batch 0/100 loss 12.5 loss_att 8.5 history loss 12.5 rank 0",
        "INFO:tensorflow:Saving dict for global step 12: accuracy = 0.5, global_step = 12, loss = 0.25",
        "Namespace(lr=0.5, steps=90, loss_fn='ce', epochs=3)",
        '{"train": {"steps": 90, "lr": 3e-4, "loss_type": "ce"}, "seed": 1}',
        "Checkpoint for step 500 written, loss when written 2.5",
        "step,val_loss,val_accuracy\n12,2.5,0.5",
        "batch_size,steps,loss_scale\n12,90,2.5",
    ],
)
def test_what_only_looks_like_progress_is_passed_over(line: str) -> None:
    assert read(line) == []


def test_a_block_gathers_its_lines() -> None:
    text = (
        "[batch=3/90]:\n    Train Perplexity: 81.5\n    Train loss/total: 2.5\n    Train Z loss: 0.5\n[batch=4/90]:\n"
    )
    assert one(text)["step"] == 3
    assert one(text)["loss"] == 2.5


def test_the_global_counter_of_a_header_is_the_step() -> None:
    text = (
        " --> TIME: 2031-05-01 10:00:00 -- STEP: 3/90 -- GLOBAL_STEP: 312\n | > loss: 2.5 (2.75)\n | > step_time: 0.5\n"
    )
    record = one(text)
    assert (record["step"], record["loss"], record["step_s"]) == (312, 2.5, 0.5)


def test_a_header_without_measures_is_no_step() -> None:
    assert read("==== Step 2/5 ====\nFetching the sources\n") == []


@pytest.mark.parametrize("separator", [",", " | ", "\t", "    "])
def test_numbers_under_the_names_of_columns_are_read_by_them(separator: str) -> None:
    rows = (
        "step loss lr step_time note",
        "12 2.5 1e-4 0.25 -",
        "a line of prose, with loss",
        "13 nan 1e-4 0.5 -",
    )
    first, second = read("".join(separator.join(row.split(" ")) + "\n" for row in rows))
    assert (first.step, first.loss, first.lr, first.step_s, first.line) == (12, 2.5, 1e-4, 0.25, 2)
    assert second.step == 13 and math.isnan(second.loss or 0)


def test_a_table_with_a_column_of_dates() -> None:
    records = read(
        "train/loss_step,global_step,created_at\n0.25,49.0,2031-11-07 06:02:10.4\n0.5,99.0,2031-11-07 06:09:01.7\n"
    )
    assert [(record.step, record.loss) for record in records] == [(49, 0.25), (99, 0.5)]


def test_a_table_with_a_column_of_validation_tells_training_steps() -> None:
    records = read("Step\tTraining Loss\tValidation Loss\n500\t0.5\t0.75\n1000\tNo log\t0.5\n")
    assert [(record.step, record.loss) for record in records] == [(500, 0.5)]


def test_a_row_wrapped_in_the_middle_of_a_word_is_joined() -> None:
    first = " iteration 10/ 50 | consumed samples: 5120 | elapsed time per iteration (ms): 5"
    second = "00.0 | lm lo\nss: 2.5 | grad norm: 0.5 |\n[Rank 0] (after 10 iterations) memory (MB) | allocated: 9.5\n"
    assert len(first) >= 78
    (record,) = read(first + "\n" + second)
    assert (record.step_s, record.loss, record.grad_norm, record.line) == (0.5, 2.5, 0.5, 1)


def test_a_short_row_is_never_glued_to_the_next_line() -> None:
    assert [record.loss for record in read("step 3 | loss 2.5\n1: rank | tokens: 5\n")] == [2.5]


def test_a_row_is_pending_until_the_next_line_and_visible_before() -> None:
    reader = LogReader()
    assert reader.feed(b" iteration 10/ 50 | lm loss: 2.5 |\n") == []
    assert reader.pending is not None and reader.pending.step == 10
    assert [record.step for record in reader.feed(b"something else\n")] == [10]


def test_carriage_returns_part_a_line() -> None:
    bar = " 25%|██▌   | {}/4 [03:45<11:15, 2.0s/it]"
    records = read("\r".join(["", bar.format(1), bar.format(2), bar.format(3)]) + "[INFO] 12:00:01 >> done\n")
    assert [(record.step, record.segment) for record in records] == [(1, 1), (2, 2), (3, 3)]


def test_another_bare_bar_is_not_the_training_counter() -> None:
    records = read(
        "  0% 1/24 [00:13<95:34, 13.5s/it]\n  6% 73/130 [00:48<13:57, 1.5it/s]\n  8% 2/24 [00:26<95:34, 13.5s/it]\n"
    )
    assert [record.step for record in records] == [1, 2]


def test_lines_with_validation_are_steps_only_where_no_others_are() -> None:
    held_out = "step:125/900 val_loss:4.5 step_avg:170.0ms\n"
    assert [record.loss for record in read(held_out)] == [None]
    assert [record.step for record in read("step:124/900 train_loss:4.25 step_avg:170.0ms\n" + held_out)] == [124]


def test_a_second_counter_with_rates_alone_gives_way_to_the_full_report() -> None:
    timer = "[timer.py] epoch=0/micro_step=9/global_step=3, CurrSamplesPerSec=20.5\n"
    assert [record.step for record in read(timer)] == [3]
    assert [record.step for record in read("step: 3 loss: 2.5 lr: 1e-4\n" + timer)] == [3]


def test_steps_may_go_back() -> None:
    assert [record.step for record in read("step: 22 loss: 2.0\nstep: 21 loss: 2.1\n")] == [22, 21]


@pytest.mark.parametrize(
    "noise",
    [b"\0\0\0step: 1\0 loss: 2.5\n", b"\xff\xfe\xc3(step: 1 loss: 2.5\n", "⣿\u202estep: 1 loss: 2.5\n".encode()],
)
def test_damaged_bytes_do_not_hide_a_step(noise: bytes) -> None:
    assert [record.loss for record in LogReader().feed(noise)] == [2.5]


WHOLE = ("\n".join(line for line, _ in LINES) + "\n[batch=3/90]:\n  loss: 2.5\n").encode()


@given(st.lists(st.integers(0, len(WHOLE)), max_size=12))
def test_the_records_do_not_depend_on_how_the_bytes_come(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(WHOLE)]
    reader = LogReader()
    pieces = [record for a, b in pairwise(edges) for record in reader.feed(WHOLE[a:b])]
    assert repr(pieces + reader.close()) == repr(read(WHOLE.decode()))


@given(st.binary(max_size=400))
def test_no_bytes_make_it_fail(data: bytes) -> None:
    reader = LogReader()
    reader.feed(b"step: 1 loss " + data + b"\n" + data + b" | iteration 2/3 | " + data)
    reader.close()


def test_a_line_without_end_costs_bounded_time_and_memory() -> None:
    reader = LogReader()
    began = time.process_time()
    for _ in range(64):
        reader.feed(b"step: 1 loss: 2.5 | " * 5000)
    reader.feed(b"\nstep: 2 loss: 2.5\n")
    assert reader.pending is None
    assert time.process_time() - began < 5


def test_records_of_progress_files() -> None:
    assert parse_record('{"step": 3, "time": 5.5, "loss": 2.5, "extra": []}') == Progress(step=3, time=5.5, loss=2.5)
    assert parse_record('{"step": 3, "loss": NaN}') is not None
    assert all(
        parse_record(line) is None for line in ("", "{", "[3]", '{"loss": 1}', '{"step": true}', '{"step": "x"}')
    )


def test_json_keeps_what_json_lacks_as_text() -> None:
    assert json.loads(json.dumps(Progress(step=1, loss=math.nan).to_json(), allow_nan=False)) == {
        "step": 1,
        "loss": "nan",
    }


# --- the corpus of real logs -------------------------------------------------------------------------------------

FIELDS = {
    "step": ("step", 1.0), "total_steps": ("total", 1.0), "loss": ("loss", 1.0), "train_eval_loss": ("loss", 1.0),
    "lr": ("lr", 1.0), "grad_norm": ("grad_norm", 1.0), "step_time_s": ("step_s", 1.0),
    "step_time_ms": ("step_s", 1e-3),
    "epoch": ("epoch", 1.0), "samples_per_s": ("samples_per_s", 1.0), "tokens_per_s": ("tokens_per_s", 1.0),
}  # fmt: skip


def agrees(record: Progress, check: dict[str, Any]) -> bool:
    wanted = {FIELDS[name][0]: float(check[name]) * FIELDS[name][1] for name in FIELDS if name in check}
    found = {name: getattr(record, name) for name in wanted}
    return None not in found.values() and found == pytest.approx(wanted, rel=1e-6, nan_ok=True)


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of training logs is not here")
def test_the_corpus() -> None:
    expected = json.loads((CORPUS / "expected.json").read_text())
    missed: list[str] = []
    false: list[str] = []
    total = 0
    for name, answers in expected.items():
        records = read((CORPUS / name).read_bytes().decode(errors="replace"))
        for check in answers["check"]:
            at = [r for r in records if r.line == check["line"] and check.get("seg", r.segment) == r.segment]
            total += 1
            if not any(agrees(record, check) for record in at):
                missed.append(f"{name}:{check['line']}")
        silent = {line for part in answers["not_progress"] for line in part["lines"]}
        false += [f"{name}:{record.line}" for record in records if record.line in silent]
    assert false == []
    assert len(missed) <= 0.05 * total, missed
