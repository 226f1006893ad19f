"""The origin of a result: everything needed to run it again and to trust it."""

from __future__ import annotations

import getpass
import hashlib
import importlib.metadata
import os
import platform
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner.errors import EnvironmentFailure, InputError
from tuner.experiment.reader import Experiment, load_experiment
from tuner.plan.plan import Plan
from tuner.redaction import redacted_argv
from tuner.runs.file_shapes import inside
from tuner.runs.results import EXPERIMENT, PROVENANCE, ResultSet, write_json
from tuner.spec.document import dump_yaml
from tuner.spec.space import to_yaml
from tuner.storage.pickled import Pickled, is_pickled
from tuner.trainable.trainable import Trainable, load_trainable

PACKAGES = ("torch", "torchvision", "ray", "optuna", "hyperopt", "numpy", "pandas", "mlflow", "scikit-learn")


def provenance(plan: Plan, params: dict[str, Any], notices: Sequence[str]) -> dict[str, Any]:
    """The content of provenance.json."""
    return {
        "id": uuid.uuid4().hex,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": redacted_argv(sys.argv),
        "working_directory": str(Path.cwd()),
        "experiment_file": str(plan.experiment.file.resolve()) if plan.experiment.file else None,
        "roots": [str(root) for root in plan.experiment.roots],
        "notices": list(notices),
        "prepared": {k: v for k, v in params.items() if plan.spec.params.get(k) != v},
        "seed": plan.seed,
        "trials": plan.trials,
        "trial_resources": dict(plan.request),
        "can_evaluate": plan.trainable.can_evaluate,
        "slots": plan.slots,
        "cluster": [{"name": node.name, **node.resources} for node in plan.cluster.nodes],
        "user": _user(),
        **surroundings(plan.experiment.roots[-1]),
    }


def surroundings(folder: Path) -> dict[str, Any]:
    """What a result may depend on besides the experiment; ``folder`` lies in the checkout of the user's code."""
    return {
        "host": platform.node(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "git": _git(folder),
    }


def resolved_spec(plan: Plan, params: dict[str, Any]) -> dict[str, Any]:
    """experiment.yaml as plain values: overrides applied, defaults and the seed filled in, ``prepare``'s params in."""
    spec = plan.spec
    resolved = spec.model_dump(mode="json", by_alias=True, exclude={"search_space"})
    resolved["params"] = params
    search = spec.search.for_trials(plan.trials)  # as it is, so that a search that is extended is replayed the same
    resolved["search"] = search.model_dump(mode="json", by_alias=True) | {"seed": plan.seed}
    resolved["budget"] = {k: v for k, v in resolved["budget"].items() if v is not None} | {"trials": plan.trials}
    resolved["resources"] = {k: v for k, v in resolved["resources"].items() if v not in (None, {})}
    resolved["tracking"] = {k: v for k, v in resolved["tracking"].items() if v is not None}
    resolved["notify"] = spec.notify and spec.notify.model_dump(mode="json", exclude_none=True)
    place = list(resolved).index("params") + 1
    keys = list(resolved.items())
    space = plan.experiment.space_from_python or to_yaml(spec.search_space)
    return dict([*keys[:place], ("search_space", space), *keys[place:]])


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # no such user in this container
        return str(os.getuid()) if hasattr(os, "getuid") else ""


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(folder: Path) -> dict[str, str] | None:
    """Commit and hash of the uncommitted changes of the checkout that holds the experiment; None outside of one."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *arguments],
                capture_output=True,
                text=True,
                check=False,
                timeout=20,
            )
        except (FileNotFoundError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    if commit is None:
        return None
    diff = git("diff", "--no-ext-diff", "--no-textconv", "HEAD") or ""  # no program that the repository names
    return {"commit": commit.strip(), "diff_sha256": hashlib.sha256(diff.encode()).hexdigest() if diff else ""}


def experiment_of(results: ResultSet, trust: bool = False) -> Experiment:
    """The experiment that a run was started with. ``trust``: as of `pickles_of`. Raises InputError, and as `roots`."""
    return load_experiment(results.spec, roots=roots(results), pickles=pickles_of(results, trust))


def trainable_of(results: ResultSet) -> Trainable:
    """The trainable that a run was started with. Raises InputError, and as `roots`."""
    return load_trainable(results.spec.get("trainable", ""), roots(results), pickles_of(results))


def pickles_of(results: ResultSet, trust: bool = False) -> tuple[Pickled, ...]:
    """The objects without an importable name that a run refers to, from its folder; none is opened.

    ``trust``: they are opened also if another user wrote them. Raises InputError if one cannot be read.
    """
    references = [results.spec.get(key) for key in ("trainable", "search_space")]
    files = {text.rpartition(":")[0] for text in references if isinstance(text, str) and is_pickled(text)}
    found = []
    for file in sorted(files):
        try:
            found.append(Pickled.read(results.folder, inside(file), trust))
        except (OSError, ValueError) as error:
            raise InputError(
                f"{results.folder.location}: {file}, the search's own function, cannot be read ({error}): pass it "
                f"again, in Python with resume(trainable=FUNCTION)"
            ) from None
    return tuple(found)


def roots(results: ResultSet) -> tuple[Path, ...]:
    """Folders in which the files that the experiment of a run names are looked for.

    Raises EnvironmentFailure if the run does not tell them.
    """
    if "roots" not in results.provenance:
        missing = "provenance.json has no 'roots', the folders in which the files of its experiment lie"
        raise EnvironmentFailure(f"{results.folder.location}: {missing}: the run folder is damaged")
    return tuple(map(Path, results.provenance["roots"]))


def write_experiment(results: ResultSet) -> None:
    """experiment.yaml and provenance.json."""
    command = f"python -m tuner run {(results.folder / EXPERIMENT).quoted}"
    header = [f"# {command}", *(f"# {notice}" for notice in results.notices)]
    results.folder.write(EXPERIMENT, dump_yaml(results.spec, header))
    write_json(results.folder, PROVENANCE, results.provenance)
