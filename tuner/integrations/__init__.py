"""Reports and checkpoints from inside the loops of training frameworks, each by the framework's own extension point.

- `tuner.integrations.transformers`: a callback of `transformers.Trainer`, and so of TRL's trainers and PEFT models
- `tuner.integrations.lightning`: a callback of Lightning's `Trainer`
- `tuner.integrations.accelerate`: two calls in a loop with `accelerate.Accelerator`
- `tuner.integrations.xgboost`, `tuner.integrations.lightgbm`: callbacks of `train`
- `tuner.integrations.sklearn`: cross-validation that reports each fold
- `tuner.integrations.stable_baselines3`: a callback of `learn`

They call `ray.tune.report` only. So the same file runs under tuner, under plain Ray Tune, and alone, where they do
nothing. Each module imports its framework: install the extra of its name, as in `pip install tuner[lightning]`.
"""
