"""The tokens of a service's users: the storage holds hashes of them, never the tokens."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from tuner.errors import EnvironmentFailure, InputError
from tuner.runs.file_shapes import MAX_CONFIG_BYTES, MAX_TIMESTAMP, checked
from tuner.service.interface import SERVICE, USER
from tuner.storage.folder import RunFolder, reason
from tuner.storage.lock import locked
from tuner.storage.untrusted_json import parsed

TOKENS = "tokens.json"
"""The file of hashes, in the folder of the service."""

FRESH_S = 1.0
"""For so long a server believes what it has read of that file: a token that is revoked works no longer."""

_PREFIX = "tuner_"
"""Of every token: whoever finds one in a file can see what it is."""

_LOCK, _LOCK_S = "tokens.lock", 10.0


class TokenRefused(InputError):
    """Nobody's token, or one that has expired."""


@dataclass(frozen=True)
class Token:
    """What is known of a token."""

    id: str
    """Names it where the token itself must not be shown."""
    user: str
    created: float
    """Unix time, in seconds."""
    expires: float | None
    """Unix time, in seconds; None: never."""


class _Stored(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    id: str = Field(max_length=64)
    user: str = Field(pattern=f"^{USER}$")
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    created: float = Field(ge=0, le=MAX_TIMESTAMP)
    expires: float | None = Field(default=None, ge=0, le=MAX_TIMESTAMP)

    @property
    def public(self) -> Token:
        """All but the hash."""
        return Token(self.id, self.user, self.created, self.expires)


class _File(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    tokens: list[_Stored] = Field(default_factory=list)


class Tokens:
    """The tokens of one storage.

    Example:
        >>> from tuner.service.tokens import Tokens
        >>> from tuner.storage.folder import RunFolder
        >>> tokens = Tokens(RunFolder.at("runs"))
        >>> tokens.user_of(tokens.add("ada")).user
        'ada'
    """

    def __init__(self, storage: RunFolder, clock: Callable[[], float] = time.time) -> None:
        """``clock``: gives unix time, in seconds."""
        self._folder = storage / SERVICE
        self._clock = clock
        self._known: list[_Stored] = []
        self._read_at = float("-inf")
        self._reading = threading.Lock()

    def add(self, user: str, expires_s: float | None = None) -> str:
        """Makes a token.

        Args:
            user: Whose it is.
            expires_s: Seconds from now after which it is refused; None: never.

        Returns:
            The token, which nobody can look up later.

        Raises:
            InputError: The name or the time cannot be used.
            EnvironmentFailure: The storage cannot be written.
        """
        _check_user(user)
        now = self._clock()
        expires = None if expires_s is None else now + expires_s
        if expires is not None and not now < expires <= MAX_TIMESTAMP:
            raise InputError(f"--expires: {expires_s:g} s: write a time from now on, such as 30d")
        token = _PREFIX + secrets.token_urlsafe(32)
        made = _Stored(id=secrets.token_hex(4), user=user, sha256=_hash(token), created=now, expires=expires)
        self._change(lambda stored: [*stored, made])
        return token

    def listed(self) -> list[Token]:
        """All tokens, in the order in which they were made. Raises EnvironmentFailure."""
        return [stored.public for stored in self._read()]

    def revoke(self, user: str, id_: str | None = None) -> int:
        """Deletes the tokens of a user.

        Args:
            user: Whose.
            id_: Of one of them; None: all.

        Returns:
            How many there were.

        Raises:
            EnvironmentFailure: The storage cannot be written.
        """
        revoked = 0

        def without(stored: list[_Stored]) -> list[_Stored]:
            nonlocal revoked
            kept = [one for one in stored if one.user != user or id_ not in (None, one.id)]
            revoked = len(stored) - len(kept)
            return kept

        self._change(without)
        return revoked

    def user_of(self, token: str) -> Token:
        """Whose token it is.

        Raises:
            TokenRefused: It is nobody's, or has expired.
            EnvironmentFailure: The storage cannot be read.
        """
        given, found = _hash(token), None
        for stored in self._fresh():  # all of them: how long it takes tells nothing of the one that fits
            if hmac.compare_digest(stored.sha256, given):
                found = stored
        if found is None:
            raise TokenRefused("the token is nobody's: ask for one that `tuner token add` prints on the server")
        if found.expires is not None and found.expires <= self._clock():
            day = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.expires))
            raise TokenRefused(f"the token of {found.user} expired at {day}: ask for a new one (`tuner token add`)")
        return found.public

    def _fresh(self) -> list[_Stored]:
        with self._reading:
            if not 0 <= self._clock() - self._read_at < FRESH_S:
                self._known, self._read_at = self._read(), self._clock()
            return self._known

    def _read(self) -> list[_Stored]:
        try:
            return checked(_File, parsed(self._folder.read(TOKENS, MAX_CONFIG_BYTES))).tokens
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable("read", reason(error)) from None
        except ValueError as error:
            raise self._unusable("read", " ".join(str(error).split())) from None

    def _change(self, change: Callable[[list[_Stored]], list[_Stored]]) -> None:
        """Writes what ``change`` makes of the tokens. Of two processes one waits for the other."""
        try:
            self._folder.filesystem.create_dir(self._folder.path, recursive=True)
        except OSError as error:
            raise self._unusable("written", reason(error)) from None
        with locked(self._folder, _LOCK, patience=_LOCK_S):
            told = _File(tokens=change(self._read())).model_dump()
            try:
                self._folder.write(TOKENS, json.dumps(told, indent=2).encode(), private=True)
            except OSError as error:
                raise self._unusable("written", reason(error)) from None
        self._read_at = float("-inf")

    def _unusable(self, verb: str, why: str) -> EnvironmentFailure:
        return EnvironmentFailure(f"{(self._folder / TOKENS).location} cannot be {verb}: {why}")


def _check_user(user: str) -> None:
    if not re.fullmatch(USER, user):
        rule = "use at most 64 letters, digits, '.', '_', '@' and '-', a letter or digit first"
        raise InputError(f"USER: {user!r} cannot name a user: {rule}")


def _hash(token: str) -> str:
    """A token has 256 random bits: a slow hash would protect it no better."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
