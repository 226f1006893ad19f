"""A language model and texts for machines without a network: made by this file in ten seconds, once a node.

The model is a small BERT, pretrained by masked words (J. Devlin et al., "BERT", 2019) on sentences of one mood. The
reviews are sentences of mixed opinions, some of them negated.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, DataCollatorForLanguageModeling, PreTrainedTokenizerFast

from tuner.training.fetching import fetched

VERSION = 1  # part of the cache's name: raise it if the model changes
GOOD, BAD = ("great", "fine", "lovely", "strong", "clear"), ("poor", "dull", "weak", "awful", "vague")
NOUNS = ("plot", "cast", "music", "script", "ending", "humour", "pace", "camera")
FILLERS = ("the", "and", "but", "i", "found", "really", "quite", "this", "film", "today", "again", "with", "my")
VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "was", "not", *GOOD, *BAD, *NOUNS, *FILLERS)


def folder(cache: Path) -> Path:
    """The folder with the model and its tokenizer, for `from_pretrained`; the first process of a node makes it."""
    return fetched(cache / f"tiny-bert-v{VERSION}", _pretrain)


def reviews(count: int = 2000) -> pd.DataFrame:
    """Sentences with three opinions, some of them negated; the label is what most of them say."""
    rng = np.random.Generator(np.random.PCG64(5))
    rows = []
    for _ in range(count):
        good = rng.random(3) < 0.5
        words, balance = _sentence(rng, good, negations=0.15)
        rows.append({"text": words, "label": "positive" if balance > 0 else "negative"})
    return pd.DataFrame(rows)


def _sentence(rng: np.random.Generator, good: np.ndarray, negations: float) -> tuple[str, int]:
    """A sentence with an opinion for each of ``good``, and how many more good than bad ones there are."""
    words: list[str] = []
    balance = 0
    for is_good in good:
        negated = rng.random() < negations
        balance += 1 if is_good else -1
        words += [*rng.choice(FILLERS, rng.integers(1, 4)), rng.choice(NOUNS), "was"]
        words += [*(["not"] if negated else []), rng.choice(GOOD if is_good != negated else BAD)]
    return " ".join(words), balance


def _tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({word: k for k, word in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [(name, VOCABULARY.index(name)) for name in ("[CLS]", "[SEP]")]
    words.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=words, **names)


def _pretrain(target: Path, sentences: int = 4000, epochs: int = 6) -> None:
    """Trains the model on sentences whose opinions agree, and writes it with its tokenizer."""
    rng = np.random.Generator(np.random.PCG64(3))
    texts = [_sentence(rng, np.full(3, rng.random() < 0.5), negations=0.15)[0] for _ in range(sentences)]
    tokenizer = _tokenizer()
    tokens = tokenizer(texts)["input_ids"]
    collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.2, seed=0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
        model = BertForMaskedLM(BertConfig(vocab_size=len(VOCABULARY), max_position_embeddings=128, **sizes))
        optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
        steps = epochs * -(-sentences // 64)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, steps)
        for _ in range(epochs):
            for ids in torch.randperm(sentences).split(64):
                batch: dict[str, Tensor] = collate([{"input_ids": tokens[i]} for i in ids])
                model(**batch).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
