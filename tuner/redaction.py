"""Passwords, keys and tokens in URIs: found, to be refused, and hidden where a text is shown or kept."""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Iterable
from typing import Any

HIDDEN = "***"

PASSWORD = "MLFLOW_TRACKING_PASSWORD"
"""The environment variable that holds the password of an MLflow server (MLflow's own name), and of a database."""

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(\S*)")
_WHOLE = re.compile(_URI.pattern.replace(r"\S", "."), re.DOTALL)
"""As `_URI`, in a text that is one URI or ends with one: a password may have spaces in it."""

_OPTION = re.compile(r"(?<=[?&;])([^=&;?\s]+)=([^&;\s]*)")
_SECRET_OPTION = re.compile(r"password|passwd|pwd|secret|token|signature|(^|[_-])key$|^sig$", re.IGNORECASE)
_HTTP = ("http", "https")
_DATABASES = ("postgresql", "mysql", "mssql")
_ODBC_PASSWORD = re.compile(r"\b(pwd|password)\s*=", re.IGNORECASE)


def has_secret(uri: str) -> bool:
    """Whether ``uri`` holds a password, a key or a token. A user's name alone is none, but before an HTTP server."""
    return redacted(uri, whole=True) != uri


def redacted(text: str, whole: bool = False) -> str:
    """``text`` with ``***`` in place of the secrets of its URIs. ``whole``: it is one URI, or ends with one."""
    return (_WHOLE if whole else _URI).sub(lambda found: _hidden(found[1], found[2]), text)


def redacted_argv(words: Iterable[str]) -> list[str]:
    """A command line without the secrets of its URIs."""
    return [redacted(redacted(str(word), whole=True)) for word in words]


def without_secrets(uri: str) -> str:
    """``uri`` without its password, and without the options that hold secrets; the user's name stays."""
    scheme, mark, rest = uri.partition("://")
    userinfo = _userinfo(scheme, rest)
    user, after = userinfo.partition(":")[0], rest[len(userinfo) + 1 :] if userinfo else rest
    if scheme in _HTTP:
        user = ""
    place, question, options = after.partition("?")
    kept = [pair for pair in options.split("&") if not _is_secret(*pair.partition("=")[::2])]
    user = f"{user}@" if user else ""
    return f"{scheme}{mark}{user}{place}{question if kept != [''] and kept else ''}{'&'.join(kept)}"


def recorded(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec that a run recorded; one of an earlier version may hold a password, which is taken out."""
    match spec.get("tracking"):
        case {"mlflow": {"uri": str(uri)} as mlflow}:
            mlflow["uri"] = without_secrets(uri)
    return spec


def with_password(uri: str) -> str:
    """A database's ``uri`` with the password that the environment holds, where it names a user and no password."""
    scheme, _, rest = uri.partition("://")
    userinfo, password = _userinfo(scheme, rest), os.environ.get(PASSWORD)
    if not userinfo or ":" in userinfo or not password or scheme in _HTTP:
        return uri
    return uri.replace(f"{userinfo}@", f"{userinfo}:{urllib.parse.quote(password, safe='')}@", 1)


def _hidden(scheme: str, rest: str) -> str:
    userinfo = _userinfo(scheme, rest)
    if userinfo.partition(":")[2] or (userinfo and scheme.lower() in _HTTP):
        rest = f"{HIDDEN}@{rest.rpartition('@')[2]}"  # the last one: a password may hold another that is not quoted
    options = _OPTION.sub(lambda option: f"{option[1]}={HIDDEN}" if _is_secret(*option.groups()) else option[0], rest)
    return f"{scheme}://{options}"


def _userinfo(scheme: str, rest: str) -> str:
    """``user:password`` of a URI whose part after ``://`` is ``rest``; '' where there is none.

    SQLAlchemy takes a password with ``/``, ``?`` or ``#`` in it, which stands before an ``@`` all the same.
    """
    place = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in place:
        return place.rpartition("@")[0]
    password = "" if place.startswith("[") else place.partition(":")[2]
    is_port = password.isdigit() and scheme.partition("+")[0] not in _DATABASES
    return rest.rpartition("@")[0] if password and not is_port and "@" in rest else ""


def _is_secret(option: str, value: str) -> bool:
    if option.lower() == "odbc_connect":
        return _ODBC_PASSWORD.search(urllib.parse.unquote_plus(value)) is not None
    if "://" in (inner := urllib.parse.unquote_plus(value)) and has_secret(inner):
        return True  # such as the endpoint of an object store
    return bool(value) and _SECRET_OPTION.search(option) is not None
