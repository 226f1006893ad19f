"""scikit-learn's digits as tensors: 600 for training, 300 for validation."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset


def data() -> tuple[TensorDataset, TensorDataset]:
    x, y = load_digits(return_X_y=True)
    x, y = torch.from_numpy(x).float() / 16, torch.from_numpy(y).long()
    return TensorDataset(x[:600], y[:600]), TensorDataset(x[600:900], y[600:900])
