"""Python objects that have no importable name, such as a function of a notebook: pickled, signed, kept as a file.

An experiment names one as ``code/trainable.pkl:train``. The file's first line is the signature of the rest, a pickle;
beside it lies the source, ``code/trainable.py``, for people alone.
"""

from __future__ import annotations

import inspect
import io
import pickle
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuner.errors import InputError, shortened
from tuner.storage.signing import is_ours, signature, why_unused

if TYPE_CHECKING:
    from tuner.storage.folder import RunFolder

SUFFIX = ".pkl"

MAX_BYTES = 20 * 2**20
"""Upper bound on a pickle: it travels to every process of a trial."""

_LONGEST = 300
"""Characters of another library's message that ours repeats."""


@dataclass(frozen=True)
class Pickled:
    """One object, still pickled."""

    file: str
    """Its path, relative to the folder of the experiment file."""
    data: bytes
    signature: str
    source: str = ""
    """Python source of the object, where it is known."""
    trusted: bool = False
    """Whether the user said to open it, whoever wrote it."""

    @classmethod
    def of(
        cls, value: Any, file: str, shown: Any = None, reducers: Mapping[type, Callable[[Any], Any]] | None = None
    ) -> Pickled:
        """Pickles ``value``. Raises InputError if it cannot be pickled, or is too large.

        Args:
            value: Any Python object; functions and classes of ``__main__`` are pickled with their code.
            file: Path of the file, ending in ``.pkl``.
            shown: The function or class whose source is recorded.
            reducers: How to pickle objects of some types, as in ``copyreg``.
        """
        import cloudpickle

        class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
            dispatch_table = cloudpickle.Pickler.dispatch_table.new_child(dict(reducers or {}))

        buffer = io.BytesIO()
        try:
            Pickler(buffer).dump(value)
            data = buffer.getvalue()
        except Exception as error:  # noqa: BLE001 - objects of the user's may raise anything when they are pickled
            reason = shortened(f"{type(error).__name__}: {error}", _LONGEST)
            remedy = "open files, connections and locks inside the function, or write it into a module"
            raise InputError(f"{_name(shown, file)} cannot be pickled ({reason}): {remedy}") from None
        if len(data) > MAX_BYTES:
            raise InputError(
                f"{_name(shown, file)} holds {len(data) / 2**20:.0f} MiB of data, and every trial would get a copy; "
                f"the limit is {MAX_BYTES >> 20} MiB: load the data inside the function, or in a module that it imports"
            )
        return cls(file, data, signature(data), _source(shown), trusted=True)

    @classmethod
    def read(cls, folder: RunFolder, file: str, trust: bool = False) -> Pickled:
        """Reads ``file`` below ``folder``, and opens nothing. Raises OSError."""
        signed, _, data = folder.read(file, MAX_BYTES + 100).partition(b"\n")
        return cls(file, data, signed.decode("ascii", "replace"), trusted=trust)

    def write(self, folder: RunFolder) -> None:
        """Writes the pickle below ``folder``, and its source beside it. Raises OSError."""
        parent = self.file.rpartition("/")[0]
        if parent:
            folder.filesystem.create_dir((folder / parent).path, recursive=True)
        folder.write(self.file, self.signature.encode() + b"\n" + self.data)
        if self.source:
            folder.write(self.file.removesuffix(SUFFIX) + ".py", self.source.encode())

    def open(self) -> Any:
        """The object.

        Raises:
            InputError: If another user or machine pickled it, as opening it can run any code, or if it is damaged.
        """
        if not self.trusted and not is_ours(self.data, self.signature):
            why = f" (this user's key is not used: {key})" if (key := why_unused()) else ""
            raise InputError(
                f"{self.file} was pickled by another user or machine{why}, or is damaged, and opening it can run any "
                f"code; if you trust whoever wrote it: --trust, or in Python resume(trainable=FUNCTION)"
            )
        try:
            return pickle.loads(self.data)
        except Exception as error:
            reason = shortened(f"{type(error).__name__}: {error}", _LONGEST)
            raise InputError(
                f"{self.file} cannot be opened ({reason}): pass the function again, in Python with "
                f"resume(trainable=FUNCTION)"
            ) from error


def is_pickled(reference: str) -> bool:
    """Whether ``reference``, such as ``code/trainable.pkl:train``, names a pickled object."""
    return reference.rpartition(":")[0].endswith(SUFFIX)


def _name(shown: Any, file: str) -> str:
    return getattr(shown, "__qualname__", None) or file


def _source(shown: Any) -> str:
    try:
        return textwrap.dedent(inspect.getsource(shown))
    except (OSError, TypeError):  # typed into a plain interpreter, or no function
        return ""
