"""A language model and texts for machines without a network.

The model is a small BERT. `scripts/pretrain` trained it by masked words (J. Devlin et al., "BERT", 2019) on sentences
of one mood; its weights lie beside this file. The reviews are sentences of mixed opinions, some of them negated.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from tuner.training.fetching import fetched

WEIGHTS = Path(__file__).with_name("tiny_bert.safetensors")
VERSION = 1  # part of the cache's name: raise it if the model changes
NEGATED = 0.15  # share of the opinions with a "not"
GOOD, BAD = ("great", "fine", "lovely", "strong", "clear"), ("poor", "dull", "weak", "awful", "vague")
NOUNS = ("plot", "cast", "music", "script", "ending", "humour", "pace", "camera")
FILLERS = ("the", "and", "but", "i", "found", "really", "quite", "this", "film", "today", "again", "with", "my")
VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "was", "not", *GOOD, *BAD, *NOUNS, *FILLERS)


def folder(cache: Path) -> Path:
    """The folder with the model and its tokenizer, for `from_pretrained`; the first process of a node writes it."""
    return fetched(cache / f"tiny-bert-v{VERSION}", _write)


def reviews(count: int = 2000) -> pd.DataFrame:
    """Sentences with three opinions, some of them negated; the label is what most of them say."""
    rng = np.random.Generator(np.random.PCG64(5))
    rows = []
    for _ in range(count):
        good = rng.random(3) < 0.5
        words, balance = _sentence(rng, good)
        rows.append({"text": words, "label": "positive" if balance > 0 else "negative"})
    return pd.DataFrame(rows)


def _sentence(rng: np.random.Generator, good: np.ndarray) -> tuple[str, int]:
    """A sentence with an opinion for each of ``good``, and how many more good than bad ones there are."""
    words: list[str] = []
    balance = 0
    for is_good in good:
        negated = rng.random() < NEGATED
        balance += 1 if is_good else -1
        words += [*rng.choice(FILLERS, rng.integers(1, 4)), rng.choice(NOUNS), "was"]
        words += [*(["not"] if negated else []), rng.choice(GOOD if is_good != negated else BAD)]
    return " ".join(words), balance


def tokenizer() -> PreTrainedTokenizerFast:
    """A token a word."""
    words = Tokenizer(models.WordLevel({word: k for k, word in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [(name, VOCABULARY.index(name)) for name in ("[CLS]", "[SEP]")]
    words.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=words, **names)


def corpus(count: int) -> list[str]:
    """Sentences whose three opinions agree, for the pretraining."""
    rng = np.random.Generator(np.random.PCG64(3))
    return [_sentence(rng, np.full(3, rng.random() < 0.5))[0] for _ in range(count)]


def configuration() -> BertConfig:
    """The configuration of the model."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    return BertConfig(vocab_size=len(VOCABULARY), max_position_embeddings=128, **sizes)


def _write(target: Path) -> None:
    """The configuration, the weights, and the tokenizer."""
    model = BertForMaskedLM(configuration())
    model.load_state_dict({name: value.float() for name, value in load_file(WEIGHTS).items()}, strict=False)
    model.tie_weights()
    model.save_pretrained(target)
    tokenizer().save_pretrained(target)
