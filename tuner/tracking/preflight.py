"""Whether an MLflow can be used: asked before a search begins, without importing MLflow, which takes seconds."""

from __future__ import annotations

import configparser
import os
from pathlib import Path

from tuner.errors import EnvironmentFailure, InputError
from tuner.redaction import redacted, with_password
from tuner.storage.folder import RunFolder
from tuner.tracking.backends.mlflow import default_uri

_TIMEOUT_S = 10.0


def check_mlflow(uri: str | None, storage: RunFolder) -> None:
    """Raises EnvironmentFailure if no MLflow answers at ``uri`` (or the database in ``storage``)."""
    uri = uri or default_uri(storage)
    problem = _server_problem(uri) if uri.startswith(("http://", "https://")) else _database_problem(uri, storage)
    if problem:
        remedy = "correct tracking.mlflow.uri (to search without it: tracking.mlflow.required: false)"
        raise EnvironmentFailure(f"MLflow at {redacted(uri, whole=True)}: {redacted(problem)}; {remedy}")


def _server_problem(uri: str) -> str:
    import requests

    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    try:
        answer = requests.get(
            f"{uri.rstrip('/')}/api/2.0/mlflow/experiments/search",
            params={"max_results": "1"},
            auth=_credentials(),
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=_TIMEOUT_S,
            verify=os.environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() != "true",
        )
    except requests.Timeout:
        return f"does not answer within {_TIMEOUT_S:g} s"
    except requests.ConnectionError:
        return "nothing answers there; is the server running?"
    except requests.RequestException as error:
        return str(error)
    if answer.status_code in (401, 403):
        return (
            f"refuses the credentials (HTTP {answer.status_code}): set MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        )
    if answer.status_code != 200 or "json" not in answer.headers.get("content-type", ""):
        return f"is not an MLflow server (it answers HTTP {answer.status_code})"
    return ""


def _credentials() -> tuple[str, str] | None:
    """As MLflow's own client finds them."""
    user, password = (os.environ.get(f"MLFLOW_TRACKING_{what}") for what in ("USERNAME", "PASSWORD"))
    if user and password:
        return user, password
    file = configparser.ConfigParser()
    file.read(Path.home() / ".mlflow" / "credentials")
    if file.has_section("mlflow"):
        section = file["mlflow"]
        user, password = section.get("mlflow_tracking_username"), section.get("mlflow_tracking_password")
    return (user, password) if user and password else None


def _database_problem(uri: str, storage: RunFolder) -> str:
    from sqlalchemy import create_engine, inspect
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

    if uri.startswith("sqlite:///") and not (file := Path(uri.removeprefix("sqlite:///"))).exists():
        ours = storage.is_local and file.parent == storage.local_path  # which the search makes
        return "" if ours or file.parent.is_dir() else f"there is no folder {file.parent}"
    try:
        engine = create_engine(with_password(uri))
        try:
            tables = inspect(engine).get_table_names()
        finally:
            engine.dispose()
    except (ArgumentError, NoSuchModuleError):
        return "is neither a server (http://host:port) nor a database (sqlite:///file, postgresql://…)"
    except ModuleNotFoundError as error:
        return f"needs the package {error.name}: pip install it"
    except SQLAlchemyError as error:
        return str(error).strip().split("\n")[0]
    if not tables or {"experiments", "runs"} <= set(tables):
        return ""
    return "is a database of Optuna, not MLflow's" if "studies" in tables else "is a database, but not MLflow's"


def check_wandb(mode: str) -> None:
    """Raises InputError if the package is missing, EnvironmentFailure where nobody is logged in."""
    import importlib.util
    import netrc

    if importlib.util.find_spec("wandb") is None:
        raise InputError("tracking.wandb needs the package wandb: pip install 'tuner[wandb]'")
    if mode == "offline" or os.environ.get("WANDB_API_KEY"):
        return
    try:
        known = netrc.netrc().hosts
    except (OSError, netrc.NetrcParseError):
        known = {}
    if not any("wandb" in host for host in known):
        raise EnvironmentFailure("tracking.wandb: not logged in: run wandb login, set WANDB_API_KEY, or mode: offline")
