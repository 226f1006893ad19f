"""The trackers that record a run beside its folder."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError, field_validator

from tuner.errors import InputError
from tuner.redaction import PASSWORD, has_secret, redacted, without_secrets
from tuner.spec.model import Model, OptionError


class MlflowTracking(Model):
    """One MLflow run for the search, a nested one for each trial.

    Example:
        >>> import tuner
        >>> tuner.Tracking(mlflow=tuner.MlflowTracking(uri="http://localhost:5000")).mlflow.required
        True
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    uri: str | None = None
    """Tracking server (``http://…``) or database (``sqlite:///…``, ``postgresql://…``); absent: the ``sqlite`` file
    ``mlflow.db`` in the storage folder, which needs no server. Without a password: that of a server or a database is in
    the environment, ``MLFLOW_TRACKING_PASSWORD`` (or ``MLFLOW_TRACKING_TOKEN``)."""

    @field_validator("uri")
    @classmethod
    def _server_or_database(cls, uri: str | None) -> str | None:
        if uri is None:
            return None
        if has_secret(uri):
            remedy = f"write {without_secrets(uri)!r}, and set {PASSWORD}, or for a server MLFLOW_TRACKING_TOKEN"
            shown = redacted(uri, whole=True)
            raise ValueError(f"{shown!r} holds a password or token, and every file of the run would: {remedy}")
        if not re.match(r"(https?|sqlite|postgresql|mysql|mssql|databricks)(\+\w+)?(://|$)", uri):
            raise ValueError(
                f"{uri!r} is neither a server (http://host:port) nor a database (sqlite:///path, postgresql://…)"
            )
        if uri is not None and re.match(r"sqlite(\+\w+)?:/{0,3}($|\?|:memory:|file::memory:)", uri):
            raise ValueError(f"{uri!r} is a database in memory, which is lost with its process: write sqlite:///path")
        return uri

    experiment: Annotated[str, Field(min_length=1)] | None = None
    """MLflow experiment; absent: the name of this experiment."""
    register_as: Annotated[str, Field(min_length=1)] | None = Field(default=None, alias="register")
    """Name in MLflow's model registry that the best trial's model gets a version of; the trainable's module needs
    ``load_model(config, checkpoint)``."""
    required: bool = True
    """Whether a search that begins while MLflow cannot be used is refused (or continues without it)."""


def mlflow_at(uri: str) -> MlflowTracking:
    """MLflow at the place of ``--mlflow``. Raises InputError if that is none."""
    try:
        return MlflowTracking(uri=uri)
    except ValidationError as error:
        raise InputError(f"--mlflow: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None


class TensorboardTracking(Model):
    """One folder of event files for each trial, in ``tensorboard`` in the run folder.

    Example:
        >>> import tuner
        >>> tuner.Tracking(tensorboard=tuner.TensorboardTracking()).anywhere
        True
    """


class WandbTracking(Model):
    """One Weights & Biases run for each trial, all in one group.

    Example:
        >>> import tuner
        >>> tuner.Tracking(wandb=tuner.WandbTracking(project="digits", mode="offline")).wandb.project
        'digits'
    """

    project: Annotated[str, Field(min_length=1)] | None = None
    """Absent: the name of this experiment."""
    entity: str | None = None
    """User or team; absent: wandb's default."""
    mode: Literal["offline", "online"] = "online"
    """``offline``: files in ``wandb`` in the run folder, which ``wandb sync`` sends."""
    required: bool = True
    """Whether a search that begins while W&B cannot be used is refused (or continues without it)."""


class CustomTracking(Model):
    """A tracker of your own, or of a third party's.

    Example:
        >>> import tuner
        >>> lines = tuner.CustomTracking(class_path="lines.py:JsonLines", options={"folder": "lines"})
        >>> tuner.Tracking(custom=[lines]).custom[0].class_path
        'lines.py:JsonLines'
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    class_path: Annotated[str, Field(pattern=r"^.+:[A-Za-z_]\w*$")]
    """``module:Class`` or ``path/to/file.py:Class``, a `tuner.TrackingBackend`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the class, by name. They are in the files of the run: keep passwords in the environment."""

    @field_validator("options")
    @classmethod
    def _without_secrets(cls, options: dict[str, Any]) -> dict[str, Any]:
        for name, value in options.items():
            if isinstance(value, str) and has_secret(value):
                told = redacted(value, whole=True)
                raise OptionError(name, f"{told!r} holds a password or token, and every file of the run would")
        return options

    required: bool = True
    """Whether a search that begins while the tracker cannot be used is refused (or continues without it)."""


class Tracking(Model):
    """Trackers that record trials, in addition to the run folder.

    Example:
        >>> import tuner
        >>> tuner.Tracking(mlflow={}, tensorboard={}).anywhere
        True
    """

    mlflow: MlflowTracking | None = None
    """MLflow: ``{}`` for a file beside the run folders, or ``{uri: …}`` for a server."""
    tensorboard: TensorboardTracking | None = None
    """TensorBoard: ``{}`` writes event files into the run folder."""
    wandb: WandbTracking | None = None
    """Weights & Biases: ``{project: …}``."""
    custom: list[CustomTracking] | None = None
    """Trackers of your own, each ``{class_path: …, options: {…}}``."""

    def overrides_for(self, server: str | None) -> list[str]:
        """The ``--set`` that lets MLflow be at ``server``, if the experiment uses MLflow and names no place."""
        if server is None or self.mlflow is None or self.mlflow.uri is not None:
            return []
        return [f"tracking.mlflow.uri={server}"]

    @property
    def anywhere(self) -> bool:
        """Whether there is any place."""
        return bool(self.custom) or any(place is not None for place in (self.mlflow, self.tensorboard, self.wandb))
