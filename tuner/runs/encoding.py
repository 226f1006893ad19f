"""Values in the journal: as JSON where that gives them back the same, as signed pickles where it cannot.

Reading never unpickles. A pickled value is read as `Opaque`, which is opened by `opened` alone, when a search is taken
up again.
"""

from __future__ import annotations

import base64
import binascii
import pickle
import re
from dataclasses import dataclass
from typing import Any

from tuner.errors import InputError
from tuner.storage.signing import is_ours, signature, why_unused

_PICKLED, _TUPLE = "__pickled__", "__tuple__"
_TAG = re.compile(rf"(?:{_PICKLED}|{_TUPLE})'*")
_PLAIN = (type(None), bool, int, float, str)


@dataclass(frozen=True)
class Opaque:
    """A Python object that JSON cannot hold, still pickled."""

    signature: str
    pickled: str
    """Base64."""

    def __repr__(self) -> str:
        return "<Python object>"

    def open(self, trust: bool) -> Any:
        """The object. Raises InputError if it cannot be opened, or must not be.

        It must not be where another user pickled it, as that can run any code, unless ``trust``.
        """
        try:
            data = base64.b64decode(self.pickled, validate=True)
        except (binascii.Error, ValueError):
            raise InputError("a Python object of the journal is damaged") from None
        if not trust and not is_ours(data, self.signature):
            why = f" (this user's key is not used: {key})" if (key := why_unused()) else ""
            raise InputError(
                f"it holds Python objects that another user or machine pickled{why}, and opening them can run any "
                f"code; if you trust whoever wrote this run folder: --trust"
            )
        try:
            return pickle.loads(data)
        except Exception as error:
            raise InputError(
                f"a Python object of the journal cannot be read: {type(error).__name__}: {error}"
            ) from error


def encoded(value: Any) -> Any:
    """``value`` as what JSON holds and `decoded` gives back.

    Tuples are marked, numpy's numbers become Python's, and whatever else JSON does not know is pickled and signed.
    """
    if type(value) in _PLAIN:
        return value
    if type(value) is dict and all(type(key) is str for key in value):
        return {key + "'" if _TAG.fullmatch(key) else key: encoded(part) for key, part in value.items()}
    if type(value) is list:
        return [encoded(part) for part in value]
    if type(value) is tuple:
        return {_TUPLE: [encoded(part) for part in value]}
    if isinstance(value, Opaque):
        return {_PICKLED: [value.signature, value.pickled]}
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return encoded(value.item())
    from ray import cloudpickle  # a configuration of a param_space may hold anything

    data = cloudpickle.dumps(value)
    return {_PICKLED: [signature(data), base64.b64encode(data).decode()]}


def may_be_encoded(text: bytes) -> bool:
    """Whether the JSON ``text`` may hold what `decoded` changes: most lines of a journal do not."""
    return b'"__' in text


def decoded(value: dict[str, Any]) -> Any:
    """Of a JSON object, whose parts are decoded already, the value that it stands for (a ``json`` ``object_hook``)."""
    match value:
        case {"__tuple__": list(parts)} if len(value) == 1:
            return tuple(parts)
        case {"__pickled__": [str(signed), str(pickled)]} if len(value) == 1:
            return Opaque(signed, pickled)
        case {"__pickled__": str(pickled)} if len(value) == 1:  # as it was written before pickles were signed
            return Opaque("", pickled)
    if any(_TAG.fullmatch(key) for key in value):
        return {key[:-1] if _TAG.fullmatch(key) and key.endswith("'") else key: part for key, part in value.items()}
    return value


def opened(value: Any, trust: bool) -> Any:
    """``value`` with the Python objects in it. Raises InputError if one cannot, or must not, be opened."""
    if isinstance(value, Opaque):
        return value.open(trust)
    if isinstance(value, dict):
        return {key: opened(part, trust) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(opened(part, trust) for part in value)
    return value
