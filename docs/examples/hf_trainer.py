"""Hugging Face's Trainer, as any tutorial has it: nothing in it is for dlaunch."""

import argparse
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2,
    )  # fmt: skip
    torch.manual_seed(0)
    data = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (256, 16))]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=options.steps, per_device_train_batch_size=4, logging_steps=1, save_strategy="no",
            report_to="none", use_cpu=not torch.cuda.is_available(),
        )  # fmt: skip
        Trainer(LlamaForCausalLM(config), arguments, train_dataset=data).train()


if __name__ == "__main__":
    main()
