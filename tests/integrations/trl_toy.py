"""TRL's SFTTrainer on a tiny Llama, made from a configuration, with a LoRA adapter, in a trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer  # type: ignore[attr-defined]

from tuner.integrations.transformers import Report, batch_arguments, resume

WORDS = ["<pad>", "<eos>", "one", "two", "three", "four"]


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({word: k for k, word in enumerate(WORDS)}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")


def texts(count: int, seed: int) -> Dataset:
    """Counting from a random start."""
    starts = torch.randint(0, 4, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
    return Dataset.from_list([{"text": " ".join(WORDS[2 + (start + k) % 4] for k in range(6))} for start in starts])


def base() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), pad_token_id=0, eos_token_id=1, **sizes))


def train(config: dict[str, Any]) -> None:
    arguments = SFTConfig(
        "out",
        use_cpu=True,
        bf16=False,
        num_train_epochs=config.get("epochs", 4),
        learning_rate=config["lr"],
        eval_strategy="epoch",
        report_to="none",
        disable_tqdm=True,
        max_length=16,
        gradient_checkpointing=False,
        **batch_arguments(16, config.get("micro_batch")),
    )
    trainer = SFTTrainer(
        base(),
        arguments,
        train_dataset=texts(64, seed=1),
        eval_dataset=texts(16, seed=2),
        processing_class=tokenizer(),
        peft_config=LoraConfig(r=4, lora_dropout=config.get("dropout", 0.1), target_modules=["q_proj", "v_proj"]),
        callbacks=[Report()],
    )
    trainer.train(resume_from_checkpoint=resume())


def load_model(config: dict[str, Any], checkpoint: Path) -> torch.nn.Module:
    return PeftModel.from_pretrained(base(), str(checkpoint)).eval()


def evaluate(config: dict[str, Any], checkpoint: Path) -> dict[str, float]:
    model = load_model(config, checkpoint)
    tokens = torch.tensor([[2, 3, 4, 5]])
    with torch.inference_mode():
        return {"test_loss": float(model(input_ids=tokens, labels=tokens).loss)}
