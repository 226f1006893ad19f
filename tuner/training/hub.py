"""The Hugging Face hub, and machines that do not reach it: an answer in seconds. Its own client tries for a minute."""

import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

from tuner.training.data_errors import DataUnavailable

SECONDS = 4.0
"""How long the hub may take to accept a connection."""


def model_source(name: str) -> str:
    """What a `from_pretrained` should read for the model ``name``, so that it does not wait for a hub out of reach.

    Needs the package huggingface_hub, which Transformers and timm bring.

    Args:
        name: A model on the hub, as "distilbert/distilbert-base-uncased", or a folder with one.

    Returns:
        ``name``, if it is a folder or the hub answers; else the folder of the cache that has the model.

    Raises:
        DataUnavailable: If the hub does not answer, and the cache does not have the model.

    Example:
        >>> from tuner.training.hub import model_source
        >>> model_source(".")
        '.'
    """
    if Path(name).expanduser().is_dir():
        return str(Path(name).expanduser())
    import huggingface_hub
    from huggingface_hub.constants import ENDPOINT

    problem = "HF_HUB_OFFLINE is set" if huggingface_hub.constants.HF_HUB_OFFLINE else _problem(ENDPOINT)
    if not problem:
        return name
    try:
        return str(huggingface_hub.snapshot_download(name, local_files_only=True))
    except (OSError, ValueError) as error:  # not in the cache; not a name
        raise DataUnavailable(
            f"model {name!r}: neither a folder nor in the cache of the Hugging Face hub, and {ENDPOINT} cannot be "
            f"reached ({problem}); download it where there is a network, and give the folder"
        ) from error


def _problem(endpoint: str) -> str:
    """Why the hub cannot be reached; empty if it can, or if a proxy is to find out."""
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return ""
    address = urlsplit(endpoint)
    try:
        socket.create_connection((address.hostname or "", address.port or 443), timeout=SECONDS).close()
    except OSError as error:
        return str(error)
    return ""
