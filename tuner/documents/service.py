"""Documents of a service: of its commands, and of its answers over HTTP."""

from __future__ import annotations

from tuner.documents.document import Document


class MadeToken(Document):
    """A new token."""

    user: str
    """Whose it is."""
    token: str
    """The token; nothing else shows it."""


class ListedToken(Document):
    """A token, without itself."""

    id: str
    """Names it for ``revoke --id``."""
    user: str
    """Whose it is."""
    created: float
    """Unix time, in seconds."""
    expires: float | None
    """Unix time, in seconds; null: never."""


class RevokedTokens(Document):
    """Tokens that no longer work."""

    user: str
    """Whose they were."""
    revoked: int
    """How many."""
