"""PPO, or DQN, on the cart pole, in a trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecNormalize
from torch import nn

from tuner.integrations.stable_baselines3 import FILE_NAME, Report, resume


def environment(wrapper: str) -> Any:
    if wrapper == "subprocess":
        return SubprocVecEnv([lambda: Monitor(gymnasium.make("CartPole-v1"))] * 2, start_method="fork")
    if wrapper == "normalize":
        return VecNormalize(DummyVecEnv([lambda: Monitor(gymnasium.make("CartPole-v1"))] * 2))
    return Monitor(gymnasium.make("CartPole-v1"))


def train(config: dict[str, Any]) -> None:
    env, eval_env = (environment(config.get("wrapper", "")) for _ in range(2))
    eval_env.seed(1) if isinstance(eval_env, VecEnv) else eval_env.reset(seed=1)
    algorithm, options = PPO, {"n_steps": 64}
    if config.get("algorithm") == "dqn":
        algorithm, options = DQN, {"learning_starts": 50, "buffer_size": 500}
    model = resume(algorithm, env) or algorithm(
        "MlpPolicy", env, learning_rate=config["lr"], seed=0, device="cpu", batch_size=32, **options
    )
    steps = 128 * config.get("epochs", 4) - model.num_timesteps
    model.learn(steps, callback=Report(eval_env, every=128, episodes=2), reset_num_timesteps=False)


def agent(config: dict[str, Any], checkpoint: Path) -> Any:
    algorithm = DQN if config.get("algorithm") == "dqn" else PPO
    return algorithm.load(checkpoint / FILE_NAME, device="cpu")


def load_model(config: dict[str, Any], checkpoint: Path) -> nn.Module:
    policy: nn.Module = agent(config, checkpoint).policy
    return policy


def evaluate(config: dict[str, Any], checkpoint: Path) -> dict[str, float]:
    env = Monitor(gymnasium.make("CartPole-v1"))
    env.reset(seed=2)
    mean, _ = evaluate_policy(agent(config, checkpoint), env, n_eval_episodes=3)
    return {"test_reward": float(mean)}
