"""Stable-Baselines3: a trial in `learn`.

from tuner.integrations.stable_baselines3 import Report, resume

model = resume(PPO, env) or PPO("MlpPolicy", env, learning_rate=config["lr"], seed=0)
model.learn(50_000 - model.num_timesteps, callback=Report(eval_env, every=5_000), reset_num_timesteps=False)
"""

from __future__ import annotations

import json
import pickle
import tempfile
from pathlib import Path
from typing import Any, TypeVar

from tuner.integrations.requirements import require

require("stable-baselines3")

import cloudpickle
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecNormalize, sync_envs_normalization

from tuner.integrations import session
from tuner.training.checkpointing import rng_state, set_rng_state

FILE_NAME = "model.zip"
"""The file of the model in the checkpoint of a trial, as `BaseAlgorithm.save` writes it."""

_BUFFER, _RANDOM, _ENVIRONMENTS = "replay_buffer.pkl", "random_state.pt", "environments.pkl"
_PROGRESS = "progress.json"

AlgorithmT = TypeVar("AlgorithmT", bound=BaseAlgorithm)


class Report(BaseCallback):  # type: ignore[misc]
    """Evaluates a policy from time to time, and reports it to the trial with a checkpoint.

    It evaluates between two rollouts, as soon as ``every`` steps were taken since the last time, and at the end. It
    reports `mean_reward`, `std_reward`, `epoch` (evaluations, 1 after the first) and `step` (steps of the environment).
    The checkpoint holds the model, the replay buffer, the random states, and the environments with their own state. If
    these cannot be pickled, a resumed trial begins a new episode instead. Outside of a trial the callback does nothing.

    Args:
        eval_env: The environment to evaluate in; one of its own, with the same wrappers as that of the training.
        every: Steps of the environment between two evaluations.
        episodes: Episodes of an evaluation.

    Example:
        >>> import gymnasium
        >>> from tuner.integrations.stable_baselines3 import Report
        >>> callback = Report(gymnasium.make("CartPole-v1"), every=1000)  # for model.learn(..., callback=callback)
    """

    def __init__(self, eval_env: Any, every: int, episodes: int = 5) -> None:
        for name, value in (("every", every), ("episodes", episodes)):
            if value < 1:
                raise ValueError(f"{name}: {value}, must be at least 1")
        super().__init__()
        self._eval_env, self._every, self._episodes = eval_env, every, episodes

    def _on_training_start(self) -> None:
        self._active = session.active()
        session.check_processes("Stable-Baselines3", 1, "take workers out")
        self._reported, self._evaluations = self.num_timesteps, 0
        if self._active and (folder := session.checkpoint_folder()) is not None:
            self._evaluations = int(json.loads((folder / _PROGRESS).read_text())["epoch"])
            self._eval_env = _environments(folder).get("evaluation", self._eval_env)

    def _on_rollout_start(self) -> None:
        if self._active and self.num_timesteps // self._every > self._reported // self._every:
            self._report()

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        if self._active and self.num_timesteps > self._reported:
            self._report()

    def _report(self) -> None:
        self._reported = self.num_timesteps
        self._evaluations += 1
        if isinstance(self._eval_env, VecEnv):
            sync_envs_normalization(self.training_env, self._eval_env)
        mean, deviation = evaluate_policy(self.model, self._eval_env, n_eval_episodes=self._episodes)
        progress = {"epoch": self._evaluations, "step": self.num_timesteps}
        with tempfile.TemporaryDirectory(prefix="tuner-sb3-") as folder:
            _save(Path(folder), self.model, self._eval_env)
            Path(folder, _PROGRESS).write_text(json.dumps(progress))
            session.report({"mean_reward": mean, "std_reward": deviation, **progress}, Path(folder))


def resume(algorithm: type[AlgorithmT], env: Any, **changed: Any) -> AlgorithmT | None:
    """The model that the trial continues with.

    Args:
        algorithm: The class of the model.
        env: The environment to train in, if the checkpoint holds none.
        **changed: Hyperparameters that replace those of the checkpoint, as population based training needs it.

    Returns:
        A model with everything that the checkpoint holds; None if the trial begins, and outside of a trial.

    Example:
        >>> import gymnasium
        >>> from stable_baselines3 import PPO
        >>> from tuner.integrations.stable_baselines3 import resume
        >>> resume(PPO, gymnasium.make("CartPole-v1")) is None
        True
    """
    folder = session.checkpoint_folder()
    if folder is None:
        return None
    saved = _environments(folder)
    model: AlgorithmT = algorithm.load(
        folder / FILE_NAME, env=saved.get("training", env), force_reset="training" not in saved, **changed
    )
    model.action_space = saved.get("actions", model.action_space)  # `load` has seeded it
    if isinstance(model, OffPolicyAlgorithm):
        model.load_replay_buffer(folder / _BUFFER)
    set_rng_state(torch.load(folder / _RANDOM, weights_only=True), {})
    return model


def _save(folder: Path, model: BaseAlgorithm, eval_env: Any) -> None:
    model.save(folder / FILE_NAME)
    if isinstance(model, OffPolicyAlgorithm):
        model.save_replay_buffer(folder / _BUFFER)
    torch.save(rng_state({}), folder / _RANDOM)
    try:
        environments = {"training": _layers(model.get_env()), "evaluation": _layers(eval_env)}
        pickled = cloudpickle.dumps({**environments, "actions": model.action_space})
    except (TypeError, AttributeError, pickle.PicklingError, NotImplementedError):
        return  # it holds a process, a socket or a window: `resume` begins a new episode
    (folder / _ENVIRONMENTS).write_bytes(pickled)


def _environments(folder: Path) -> dict[str, Any]:
    """The environments of a checkpoint, and the space that actions are drawn from; none if they cannot be pickled."""
    file = folder / _ENVIRONMENTS
    if not file.exists():
        return {}
    found = cloudpickle.loads(file.read_bytes())
    return {
        "training": _joined(found["training"]),
        "evaluation": _joined(found["evaluation"]),
        "actions": found["actions"],
    }


def _layers(env: Any) -> list[tuple[Any, Any]]:
    """An environment and those `VecNormalize` around it, the innermost first, each with what its pickle drops.

    Raises TypeError if another wrapper is around a `VecNormalize`: its pickle would hold no environment.
    """
    if isinstance(env, VecNormalize):
        return [*_layers(env.venv), (env, env.returns)]
    inner = env
    while isinstance(inner, VecEnvWrapper):
        inner = inner.venv
        if isinstance(inner, VecNormalize):
            raise TypeError(f"{type(env).__name__} around VecNormalize")
    return [(env, None)]


def _joined(layers: list[tuple[Any, Any]]) -> Any:
    (env, _), *wrappers = layers
    for wrapper, returns in wrappers:
        wrapper.set_venv(env)
        wrapper.returns = returns
        env = wrapper
    return env
