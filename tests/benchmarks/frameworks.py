"""What the shipped trainables reach beside a search as the framework's own documentation has it, side by side.

    python tests/benchmarks/frameworks.py [--seeds 3] [--only text_lora,tabular]

Both sides have the same data, network, search space, number of trials and two CPUs. They take turns, each search in a
process of its own. Ours is the shipped experiment. Theirs:

- images: plain Ray Tune with random search and ASHA, as PyTorch's tutorial has it, around the same training function;
- text_lora: `Trainer.hyperparameter_search(backend="ray")` of Transformers, which trains each trial to its end;
- tabular: `RandomizedSearchCV` of scikit-learn on XGBoost's classifier;
- lightning_images: Ray Tune with ASHA and Ray's `TuneReportCheckpointCallback`, as Ray's page on Lightning has it;
- accelerate_images: Ray Tune with ASHA around a loop that reports metrics. Accelerate has no page on searches, and the
  loop of its quick tour has no checkpoint, so the best configuration is trained once more.

"test" is the metric of the best trial on the test set, which no search sees; the seconds are those of the search with
everything until the best model can be scored.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
METRICS = {
    "images": ("val_accuracy", "test_accuracy"),
    "text_lora": ("eval_accuracy", "test_accuracy"),
    "tabular": ("score", "test_loss"),
    "lightning_images": ("val_accuracy", "test_accuracy"),
    "accelerate_images": ("val_accuracy", "test_accuracy"),
}
"""The metric of the search, and that of the test set."""


def ours(name: str, seed: int, folder: Path) -> float:
    import tuner

    changes = {"search.seed": seed, "tracking": {}, "budget.wall_clock": "1h"}
    results = tuner.run(name, changes, storage=folder, say=lambda text: None)
    best = tuner.restore_best(results, test=True)
    assert best.test is not None
    return best.test[METRICS[name][1]]


def samples(name: str, seed: int) -> tuple[list[dict[str, Any]], Any]:
    """Configurations at random from the shipped space, as many as the experiment has trials, and its scheduler."""
    import tuner

    spec = tuner.validate(name).spec
    rng = np.random.default_rng(seed)
    fixed = dict(spec.params)
    return [fixed | spec.search_space.sample(rng) for _ in range(spec.budget.trials)], spec.scheduler


def ray_tune(name: str, train: Callable[[dict[str, Any]], None], seed: int, folder: Path) -> Any:
    """Plain Ray Tune with ASHA, random search, and what a trial gets by default; the best result."""
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    configs, shipped = samples(name, seed)
    metric = METRICS[name][0]
    asha = ASHAScheduler(max_t=shipped.max_t, grace_period=1, reduction_factor=3)
    results = tune.Tuner(
        tune.with_resources(train, {"cpu": 1}),
        param_space={"config": tune.grid_search(configs)},
        tune_config=tune.TuneConfig(metric=metric, mode="max", scheduler=asha),
        run_config=tune.RunConfig(storage_path=str(folder), verbose=0),
    ).fit()
    assert results.num_errors == 0
    return results.get_best_result(metric, "max")


def their_images(seed: int, folder: Path) -> float:
    from trainables import images

    best = ray_tune("images", lambda config: images.train(images.Config(**config["config"])), seed, folder)
    with best.checkpoint.as_directory() as checkpoint:
        return images.evaluate(images.Config(**best.config["config"]), Path(checkpoint))["test_accuracy"]


def their_lightning_images(seed: int, folder: Path) -> float:
    def train(config: dict[str, Any]) -> None:
        import lightning
        from ray.tune.integration.pytorch_lightning import TuneReportCheckpointCallback
        from torch.utils.data import DataLoader

        from trainables import image_folders, lightning_images

        own = lightning_images.Config(**config["config"])
        lightning.seed_everything(own.seed, verbose=False)
        data = image_folders.load(own.data)
        report = TuneReportCheckpointCallback({"val_accuracy": "val_accuracy"}, on="validation_end")
        trainer = lightning.Trainer(
            max_epochs=own.epochs,
            callbacks=[report],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        training = DataLoader(data.train.as_tensors(own.side, augment=True), own.batch_size, shuffle=True)
        validation = DataLoader(data.val.as_tensors(own.side), 250)
        trainer.fit(lightning_images.Classifier(own, len(data.classes)), training, validation)

    best = ray_tune("lightning_images", train, seed, folder)
    from trainables import lightning_images

    with best.checkpoint.as_directory() as checkpoint:
        file = Path(checkpoint, "checkpoint")  # the callback's name for it
        file.rename(Path(checkpoint, lightning_images.FILE_NAME))  # type: ignore[attr-defined]
        return lightning_images.evaluate(lightning_images.Config(**best.config["config"]), Path(checkpoint))[
            "test_accuracy"
        ]


def their_accelerate_images(seed: int, folder: Path) -> float:
    def loop(config: dict[str, Any]) -> Any:
        """The loop of Accelerate's quick tour; reports, if there is a trial."""
        import torch
        from accelerate import Accelerator
        from accelerate.utils import set_seed
        from ray import tune
        from torch.utils.data import DataLoader

        from trainables import accelerate_images, image_folders

        own = accelerate_images.Config(**config["config"])
        set_seed(own.seed)
        accelerator = Accelerator()
        data = image_folders.load(own.data)
        model = accelerate_images.SmallResNet(len(data.classes), own.width)  # type: ignore[attr-defined]
        optimizer = torch.optim.AdamW(model.parameters(), own.lr, weight_decay=own.weight_decay)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, own.epochs)
        model, optimizer, training, validation = accelerator.prepare(
            model,
            optimizer,
            DataLoader(data.train.as_tensors(own.side, augment=True), own.batch_size, shuffle=True),
            DataLoader(data.val.as_tensors(own.side), 250),
        )
        for epoch in range(1, own.epochs + 1):
            model.train()
            for x, y in training:
                loss = torch.nn.functional.cross_entropy(model(x), y, label_smoothing=own.label_smoothing)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            schedule.step()
            scores = accelerate_images.score(accelerator, model, validation, "val")
            if not config.get("alone"):
                tune.report({"epoch": epoch, **scores})
        test = accelerator.prepare(DataLoader(data.test.as_tensors(own.side), 250))
        return accelerate_images.score(accelerator, model, test, "test")["test_accuracy"]

    best = ray_tune("accelerate_images", lambda config: loop(config) and None, seed, folder)
    return float(loop({**best.config, "alone": True}))


def their_text_lora(seed: int, folder: Path) -> float:
    import ray
    from ray import tune
    from transformers import DataCollatorWithPadding, Trainer, set_seed

    from trainables import text_lora

    ray.init(num_cpus=2, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}})
    configs, _ = samples("text_lora", seed)
    own = text_lora.Config()
    data, tokenizer = text_lora.load(own), text_lora.tokenizer_of(own)

    def of_trial(trial: Any) -> Any:
        chosen = {} if trial is None else trial["config"]
        return text_lora.build(text_lora.Config(**chosen), len(data["classes"]))

    def space(trial: Any) -> dict[str, Any]:
        return {"config": tune.grid_search(configs)}

    class Own(Trainer):
        """The arguments of a configuration: the backend itself sets attributes of TrainingArguments only."""

        def _hp_search_setup(self, trial: Any) -> None:
            super()._hp_search_setup({})
            chosen = text_lora.Config(**trial["config"])
            self.args.learning_rate, self.args.weight_decay = chosen.lr, chosen.weight_decay
            self.args.per_device_train_batch_size = chosen.batch_size

    set_seed(0)
    arguments = text_lora.arguments(own, str(folder / "out"))
    arguments.save_strategy = "epoch"
    trainer = Own(
        None,
        arguments,
        model_init=of_trial,
        train_dataset=text_lora.encoded(data["train"], tokenizer, own),
        eval_dataset=text_lora.encoded(data["val"], tokenizer, own),
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=text_lora.accuracy,
    )
    best = trainer.hyperparameter_search(
        hp_space=space,
        backend="ray",
        n_trials=1,
        direction="maximize",
        compute_objective=lambda metrics: metrics["eval_accuracy"],
        resources_per_trial={"cpu": 1},
        storage_path=str(folder),
        verbose=0,
    )
    trial = best.run_summary.get_best_trial("objective", "max", "last")
    with trial.checkpoint.as_directory() as checkpoint:
        (adapter,) = Path(checkpoint).rglob("adapter_model.safetensors")
        return text_lora.evaluate(text_lora.Config(**best.hyperparameters["config"]), adapter.parent)["test_accuracy"]


def their_tabular(seed: int, folder: Path) -> float:
    from scipy.stats import loguniform, randint, uniform
    from sklearn.metrics import log_loss
    from sklearn.model_selection import RandomizedSearchCV, StratifiedKFold

    from trainables import tabular

    configs, shipped = samples("tabular", seed)
    own = tabular.Config(model="xgboost")
    parts = tabular.load(own)
    space = {
        "n_estimators": [50, 100, 200, 400],
        "learning_rate": loguniform(1e-2, 0.5),
        "max_leaves": randint(4, 129),
        "min_child_weight": randint(1, 33),
        "subsample": uniform(0.4, 0.6),
        "colsample_bytree": uniform(0.3, 0.7),
        "reg_lambda": loguniform(1e-3, 30.0),
    }
    search = RandomizedSearchCV(
        tabular.build(own),
        space,
        n_iter=len(configs),
        scoring="neg_log_loss",
        n_jobs=2,
        cv=StratifiedKFold(shipped.max_t, shuffle=True, random_state=own.split_seed),
        random_state=seed,
    ).fit(*parts["train"])
    x, y = parts["test"]
    return float(log_loss(y, search.predict_proba(x)))


THEIRS: dict[str, Callable[[int, Path], float]] = {
    "images": their_images,
    "text_lora": their_text_lora,
    "tabular": their_tabular,
    "lightning_images": their_lightning_images,
    "accelerate_images": their_accelerate_images,
}


def measured(name: str, side: str, seed: int) -> dict[str, float]:
    """One search in a process of its own."""
    command = [sys.executable, __file__, "--one", f"{name},{side},{seed}"]
    # without the address, Ray would join the cluster that is named by a file of an earlier one
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_ADDRESS": "local"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} {side} {seed}: {done.stderr[-3000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def one(name: str, side: str, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        test = ours(name, seed, Path(folder)) if side == "ours" else THEIRS[name](seed, Path(folder))
        print(f"\n{json.dumps({'test': test, 'seconds': time.perf_counter() - begun})}", flush=True)


def told(values: list[float], digits: int) -> str:
    """Median and range."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default=",".join(METRICS))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, side, seed = options.one.split(",")
        one(name, side, int(seed))
        return
    print("| trainable | test | tuner | seconds | theirs | seconds |\n|---|---|---|---|---|---|")
    for name in options.only.split(","):
        found: dict[str, list[dict[str, float]]] = {"ours": [], "theirs": []}
        for seed in range(options.seeds):
            for side in ("ours", "theirs") if seed % 2 == 0 else ("theirs", "ours"):
                found[side].append(measured(name, side, seed))
                print(name, side, seed, found[side][-1], file=sys.stderr, flush=True)
        cells = [
            told([result[key] for result in found[side]], digits)
            for side in found
            for key, digits in (("test", 3), ("seconds", 0))
        ]
        print("|", " | ".join([name, METRICS[name][1], *cells]), "|", flush=True)


if __name__ == "__main__":
    main()
