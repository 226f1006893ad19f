"""Networks of torchvision and timm as the start of a training, with pretrained weights or without.

    model, head = backbone("torchvision:resnet18", classes=10, weights="hub")
    freeze(model, "all_but_head", head)

See `tuner.training.transfer` for what to train of it.
"""

import pickle
import zipfile
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from tuner.training.data_errors import DataUnavailable
from tuner.training.hub import model_source

SOURCES = ("torchvision", "timm")


class Backbone(NamedTuple):
    """A network, and the name of its last layer, as `named_modules` gives it."""

    model: nn.Module
    head: str


def backbone(name: str, classes: int, weights: str | None = None) -> Backbone:
    """Makes a network for images with a new last layer.

    Args:
        name: "torchvision:NAME" or "timm:NAME", as "torchvision:resnet18"; timm needs the extra "timm".
        classes: Outputs of the last layer.
        weights: Where the pretrained weights come from: None for none, "hub" for those that the library publishes, or
            a file, as `load_weights` reads it.

    Returns:
        The network and the name of its last layer, whose weights are new.

    Raises:
        ValueError: If the network is unknown, or its last layer is not a linear one.
        DataUnavailable: If the weights can be neither read nor downloaded.
        ImportError: If timm is not installed.

    Example:
        >>> from tuner.training.backbones import backbone
        >>> model, head = backbone("torchvision:resnet18", classes=3)
        >>> head, model.fc.out_features
        ('fc', 3)
    """
    if classes < 1:
        raise ValueError(f"classes: {classes}, must be at least 1")
    source, _, model_name = name.partition(":")
    if source not in SOURCES or not model_name:
        raise ValueError(f"backbone: {name!r}; allowed: torchvision:NAME, timm:NAME")
    model, file = _torchvision(model_name, weights) if source == "torchvision" else _timm(model_name, weights)
    layers = {layer: module for layer, module in model.named_modules() if isinstance(module, nn.Linear)}
    if not layers:
        raise ValueError(f"backbone: {name!r} has no linear layer at its end; choose another one")
    head, old = list(layers.items())[-1]
    if file is not None:
        load_weights(model, file, head)
    model.set_submodule(head, nn.Linear(old.in_features, classes, bias=old.bias is not None))
    return Backbone(model, head)


def load_weights(model: nn.Module, file: Path | str, head: str) -> None:
    """Reads pretrained weights from a file; the last layer keeps its own.

    Args:
        model: The network.
        file: A state dict, written by `safetensors.torch.save_file` or `torch.save`.
        head: The name of the last layer.

    Raises:
        DataUnavailable: If the file cannot be read, or is not of this network.

    Example:
        >>> import tempfile, torch
        >>> from pathlib import Path
        >>> from tuner.training.backbones import load_weights
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     torch.save(torch.nn.Sequential(torch.nn.Linear(3, 3)).state_dict(), Path(folder, "old.pt"))
        ...     load_weights(model, Path(folder, "old.pt"), head="1")
    """
    file = Path(file).expanduser()
    try:
        state = _state(file)
    except (OSError, RuntimeError, ValueError, SafetensorError, pickle.UnpicklingError) as error:
        raise DataUnavailable(f"weights: {file} cannot be read ({_first_line(error)})") from error
    own = {key: value for key, value in model.state_dict().items() if not f"{key}.".startswith(f"{head}.")}
    missing = [key for key, value in own.items() if key not in state or state[key].shape != value.shape]
    if missing:
        raise DataUnavailable(
            f"weights: {file} is not of {type(model).__name__}: {len(missing)} of its {len(own)} tensors are missing "
            f"or of another shape, as {missing[0]}"
        )
    model.load_state_dict({key: state[key] for key in own}, strict=False)


def _state(file: Path) -> dict[str, Any]:
    if file.suffix == ".safetensors":
        return dict(load_file(file))
    if not zipfile.is_zipfile(file):  # torch.load fails at such a file in many ways
        file.open("rb").close()
        raise ValueError("neither .safetensors nor a file of torch.save")
    return dict(torch.load(file, weights_only=True))


def _torchvision(name: str, weights: str | None) -> tuple[nn.Module, Path | None]:
    """The network, and the file of its weights if these are still to be read."""
    from torchvision import models

    if name not in models.list_models(module=models):
        raise ValueError(f"backbone: torchvision has no classifier {name!r}; see torchvision.models.list_models()")
    if weights != "hub":
        return models.get_model(name), None if weights is None else Path(weights)
    published = models.get_model_weights(name)
    try:
        return models.get_model(name, weights=published["DEFAULT"]), None
    except (URLError, TimeoutError, RuntimeError) as error:  # no network; a file that is damaged
        raise DataUnavailable(
            f"backbone: the weights of torchvision:{name} cannot be downloaded ({_first_line(error)}); download "
            f"{published['DEFAULT'].url} where there is a network, and give the file as weights, or train without them"
        ) from error


def _timm(name: str, weights: str | None) -> tuple[nn.Module, Path | None]:
    """The network, and the file of its weights if these are still to be read."""
    try:
        import timm
    except ImportError:
        remedy = "pip install 'tuner[timm]', or in a clone pip install -e '.[timm]'"
        raise ImportError(f"backbone: timm:{name} needs timm: {remedy}") from None
    if not timm.is_model(name.partition(".")[0]):
        raise ValueError(f"backbone: timm has no model {name!r}; see timm.list_models()")
    if weights != "hub":
        return timm.create_model(name), None if weights is None else Path(weights)
    published = timm.get_pretrained_cfg(name)
    if published is None or not published.hf_hub_id:
        raise DataUnavailable(f"backbone: timm publishes no weights of {name!r}; give a file, or train without")
    source = model_source(published.hf_hub_id)
    if source != published.hf_hub_id:  # the folder of the cache
        return timm.create_model(name), next(Path(source).glob("*.safetensors"))
    return timm.create_model(name, pretrained=True), None


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
