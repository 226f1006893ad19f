"""Texts in classes: a language model of Transformers, tuned by LoRA adapters of PEFT.

Through tuner:          python -m tuner run experiments/text_lora.yaml           (needs the extra "peft")
Through plain Ray Tune: python -m trainables.text_lora

Without a network it trains "tiny", a small BERT that `trainables.tiny_bert` pretrains, on generated reviews. With one,
`model` is any name on the Hugging Face hub: `--set params.model=distilbert/distilbert-base-uncased`. LoRA:
E. Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models" (2021).
"""

import dataclasses
import tempfile
from pathlib import Path
from typing import Any, Literal

from tuner.integrations.requirements import require

require("peft", __name__)

import pandas as pd
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from ray import tune
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    logging,
    set_seed,
)

from trainables import tiny_bert
from trainables.image_data import data_folder as cache_folder
from tuner.integrations.transformers import Report, batch_arguments, resume
from tuner.training.data_errors import DataUnavailable
from tuner.training.hub import model_source

logging.set_verbosity_error()  # a new classifier is no news
logging.disable_progress_bar()

TARGETS = {"attention": ["query", "value"], "all": ["query", "key", "value", "dense"]}
"""The layers that get adapters in "tiny", for each value of `target_modules`."""


@dataclasses.dataclass
class Config:
    """Every argument of the training, with its default."""

    model: str = "tiny"  # made by trainables/tiny_bert.py, or the name of a model on the hub, or a folder with one
    data: str = "reviews"  # generated there, or a .csv or .jsonl file
    data_dir: str = ""  # where "tiny" is kept; "" is $TUNER_DATA, else ~/.cache/tuner
    text: str = "text"  # the column with the texts
    label: str = "label"  # the column with the classes
    max_length: int = 64  # tokens of a text; the rest is cut off
    rank: int = 8  # of the adapters
    alpha: int = 16  # the adapters' output is multiplied by alpha / rank
    dropout: float = 0.05  # before the adapters
    target_modules: Literal["attention", "all"] = "attention"  # which layers get adapters
    lr: float = 1e-3  # falls to 0 in a line
    weight_decay: float = 0.01
    warmup: float = 0.1  # share of the steps
    epochs: int = 9
    batch_size: int = 32  # over all processes of the trial
    micro_batch: int | None = None  # texts that go through the network at once; None: the whole batch
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    seed: int = 0
    split_seed: int = 0  # chooses the texts for validation and test: the same for every trial of a run


def train(config: Config) -> None:
    """Trains one configuration; reports eval_accuracy and eval_loss after each epoch, with the adapters."""
    if isinstance(config, dict):
        config = Config(**config)
    set_seed(config.seed)
    data = load(config)
    tokenizer = tokenizer_of(config)
    trainer = Trainer(
        build(config, len(data["classes"])),
        arguments(config, "unused"),  # in a trial the Trainer saves in a temporary folder
        train_dataset=encoded(data["train"], tokenizer, config),
        eval_dataset=encoded(data["val"], tokenizer, config),
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=accuracy,
        compute_loss_func=cross_entropy,
        callbacks=[Report()],
    )
    trainer.train(resume_from_checkpoint=resume())


def evaluate(config: Config, checkpoint: Path, split: str = "test") -> dict[str, float]:
    """Accuracy (0..1) and cross-entropy (nats) of a checkpoint on "val" or "test"."""
    if isinstance(config, dict):
        config = Config(**config)
    tokenizer = tokenizer_of(config)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            load_model(config, checkpoint),
            arguments(config, folder, eval_strategy="no"),
            data_collator=DataCollatorWithPadding(tokenizer),
            compute_metrics=accuracy,
            compute_loss_func=cross_entropy,
        )
        found = trainer.evaluate(encoded(load(config)[split], tokenizer, config), metric_key_prefix=split)
    prefix = "eval" if split == "val" else split
    return {f"{prefix}_{name}": found[f"{split}_{name}"] for name in ("accuracy", "loss")}


def load_model(config: Config, checkpoint: Path) -> nn.Module:
    """The model with the adapters of a checkpoint directory."""
    if isinstance(config, dict):
        config = Config(**config)
    return PeftModel.from_pretrained(base_model(config, len(load(config)["classes"]))[0], checkpoint).eval()


def prepare(config: Config) -> dict[str, object]:
    """Runs once, before any trial: gets the texts, the tokenizer and the model, so that trials need no network."""
    if isinstance(config, dict):
        config = Config(**config)
    build(config, len(load(config)["classes"]))
    tokenizer_of(config)
    return {
        name: str(Path(value).expanduser().resolve())
        for name, value in (("data", config.data), ("model", config.model))
        if Path(value).expanduser().exists()
    }


# ------------------------------------------------------------------------------------------ the model


def source(config: Config) -> str:
    """What `from_pretrained` reads: the name of a model on the hub, or a folder."""
    if config.model == "tiny":
        return str(tiny_bert.folder(cache_folder(config.data_dir)))
    return model_source(config.model)


def base_model(config: Config, classes: int) -> tuple[nn.Module, list[str]]:
    """The model without adapters, and the names of its layers that the pretraining does not have: they are new."""
    folder = source(config)
    set_seed(config.seed)
    try:
        model, info = AutoModelForSequenceClassification.from_pretrained(
            folder, num_labels=classes, output_loading_info=True
        )
    except (OSError, ValueError) as error:
        raise DataUnavailable(f"model: {config.model!r} is no language model that can be read ({error})") from error
    return model, sorted({key.rpartition(".")[0] for key in info["missing_keys"]})


def build(config: Config, classes: int) -> nn.Module:
    """The model with new adapters: these and the new layers train."""
    targets: Any = TARGETS[config.target_modules]
    if config.model != "tiny":  # PEFT knows the attention of most architectures
        targets = "all-linear" if config.target_modules == "all" else None
    model, new = base_model(config, classes)
    adapters = LoraConfig(
        task_type=TaskType.SEQ_CLS,
        r=config.rank,
        lora_alpha=config.alpha,
        lora_dropout=config.dropout,
        target_modules=targets,
        exclude_modules=new,
        modules_to_save=new,
    )
    return get_peft_model(model, adapters)


def arguments(config: Config, folder: str, eval_strategy: str = "epoch") -> TrainingArguments:
    """What the `Trainer` needs; the search keeps the checkpoints and records the metrics."""
    return TrainingArguments(
        folder,
        num_train_epochs=config.epochs,
        learning_rate=config.lr,
        weight_decay=config.weight_decay,
        warmup_steps=config.warmup,  # below 1 it is a share
        bf16=config.precision == "bf16",
        fp16=config.precision == "fp16",
        eval_strategy=eval_strategy,
        per_device_eval_batch_size=256,
        seed=config.seed,
        report_to="none",
        disable_tqdm=True,
        **batch_arguments(config.batch_size, config.micro_batch),
    )


def accuracy(prediction: Any) -> dict[str, float]:
    """The share of texts with the right class."""
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def cross_entropy(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
    """The mean over the whole batch: classifiers of Transformers 5 leave the losses of its parts unscaled."""
    summed = F.cross_entropy(outputs.logits.float(), labels, reduction="sum")
    return summed / (len(labels) if num_items_in_batch is None else num_items_in_batch)


# ------------------------------------------------------------------------------------------- the texts


def load(config: Config) -> dict[str, Any]:
    """Parts "train", "val" and "test", frames with a text and the number of its class, and the names of the classes."""
    table = tiny_bert.reviews() if config.data == "reviews" else read(Path(config.data).expanduser())
    text, label = ("text", "label") if config.data == "reviews" else (config.text, config.label)
    if missing := [name for name in (text, label) if name not in table]:
        raise DataUnavailable(f"{config.data}: has no column {' and '.join(missing)}; has {', '.join(table)}")
    classes = sorted(map(str, table[label].unique()))
    if len(classes) < 2:
        raise DataUnavailable(f"{config.data}: column {label!r} has {len(classes)} classes; two are the least")
    codes = table[label].map(lambda value: classes.index(str(value)))
    rows = pd.DataFrame({"text": table[text].astype(str), "label": codes})
    rows = rows.sample(frac=1, random_state=config.split_seed).reset_index(drop=True)
    held_out = max(1, len(rows) // 5)
    parts = {"test": rows[:held_out], "val": rows[held_out : 2 * held_out], "train": rows[2 * held_out :]}
    return {"classes": classes, **parts}


def read(file: Path) -> pd.DataFrame:
    """The table of a .csv or .jsonl file."""
    try:
        if file.suffix == ".csv":
            return pd.read_csv(file)
        if file.suffix == ".jsonl":
            return pd.read_json(file, lines=True)
    except (OSError, ValueError) as error:
        raise DataUnavailable(f"data: {file} cannot be read ({error})") from error
    raise DataUnavailable(f"data: {str(file)!r}; allowed: a .csv or .jsonl file, or 'reviews'")


def tokenizer_of(config: Config) -> Any:
    """The tokenizer of the model."""
    return AutoTokenizer.from_pretrained(source(config))


def encoded(rows: pd.DataFrame, tokenizer: Any, config: Config) -> list[dict[str, Any]]:
    """Texts as tokens, with their labels, as a `Trainer` takes them."""
    tokens = tokenizer(list(rows["text"]), truncation=True, max_length=config.max_length)["input_ids"]
    return [{"input_ids": ids, "labels": label} for ids, label in zip(tokens, rows["label"], strict=True)]


if __name__ == "__main__":
    space = {"lr": tune.loguniform(1e-4, 1e-2), "rank": tune.choice([2, 4, 8]), "epochs": 3}
    results = tune.Tuner(train, param_space=space, tune_config=tune.TuneConfig(num_samples=4)).fit()
    print(results.get_best_result("eval_accuracy", "max").metrics)
