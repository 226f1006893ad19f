"""Optimizers and the learning-rate schedule of the image trainables."""

from typing import Any

import torch
from torch import Tensor


class Muon(torch.optim.Optimizer):
    """Steps of equal size in all directions of a kernel (K. Jordan et al., "Muon", 2024); SGD for the rest.

    The momentum of a kernel, as a matrix of output channels by the rest, is brought near to an orthogonal one. The
    kernel keeps its norm: the square root of its output channels. `rest` are the groups that Nesterov's SGD steps,
    each with its lr and weight_decay.
    """

    def __init__(self, kernels: list[Tensor], rest: list[dict[str, Any]], lr: float, momentum: float) -> None:
        groups = [{"params": kernels, "by_muon": True}, *({**group, "momentum": 0.85} for group in rest)]
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": 0.0, "by_muon": False})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step of all that has a gradient."""
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if not params:
                continue
            gradients = [p.grad for p in params]
            if group["weight_decay"]:
                gradients = torch._foreach_add(gradients, params, alpha=group["weight_decay"])
            for p in params:
                if "momentum_buffer" not in self.state[p]:
                    self.state[p]["momentum_buffer"] = torch.zeros_like(p)
            buffers = [self.state[p]["momentum_buffer"] for p in params]
            torch._foreach_mul_(buffers, group["momentum"])
            torch._foreach_add_(buffers, gradients)
            moves = torch._foreach_add(gradients, buffers, alpha=group["momentum"])
            if group["by_muon"]:
                norms = torch._foreach_norm(params)
                torch._foreach_div_(norms, [len(p) ** 0.5 for p in params])
                torch._foreach_div_(params, norms)
                moves = tuple(orthogonal(move.flatten(1)).view(move.shape) for move in moves)
            torch._foreach_add_(params, moves, alpha=-group["lr"])


def orthogonal(matrix: Tensor, steps: int = 3) -> Tensor:
    """The matrix with its singular values brought near to 1, in bf16 (Newton and Schulz's iteration, order 5)."""
    x = matrix.bfloat16()
    x = x / (x.norm() + 1e-7)
    is_tall = x.shape[0] > x.shape[1]
    x = x.T if is_tall else x
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return (x.T if is_tall else x).to(matrix.dtype)


class OneCycle:
    """Each group's learning rate linear from a fifth of its peak up to it, then linear down to a hundredth.

    The peak is the rate that the group has at first. A function of the step's number alone; L. Smith and N. Topin,
    "Super-convergence" (2018).
    """

    def __init__(self, optimizer: torch.optim.Optimizer, steps: int, pct_start: float) -> None:
        self.optimizer, self.steps = optimizer, steps  # whose groups are other ones once it has loaded a state
        self.peaks = [group["lr"] for group in optimizer.param_groups]
        self.rise = pct_start * steps
        self.done = 0

    def set_next(self) -> float:
        """Set the learning rates of the step that is about to be taken; returns the first group's."""
        if self.done < self.rise:
            factor = 0.2 + 0.8 * self.done / self.rise
        else:
            factor = 1 - 0.99 * (self.done - self.rise) / max(1.0, self.steps - 1 - self.rise)
        self.done += 1
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            group["lr"] = peak * max(factor, 0.01)
        return float(self.optimizer.param_groups[0]["lr"])

    def state_dict(self) -> dict[str, int]:
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.done = int(state["done"])
