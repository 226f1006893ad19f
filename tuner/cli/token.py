"""``token add|list|revoke``: who may use a service."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from tuner.cli import options
from tuner.cli.output import echo, print_json

if TYPE_CHECKING:
    from tuner.service.tokens import Token, Tokens


@click.command()
@click.argument("action", metavar="add|list|revoke", type=click.Choice(["add", "list", "revoke"]))
@click.argument("user", metavar="[USER]", required=False)
@options.storage
@options.option(
    "--expires", metavar="TIME", help="add: for how long the token works, such as 30d; for ever without it."
)
@options.option("--id", "id_", metavar="ID", help="revoke: one token of the user, as list shows it; all without it.")
@options.as_json
def command(action: str, user: str | None, storage: str, expires: str | None, id_: str | None, as_json: bool) -> None:
    """Make, list or revoke the tokens of a service's users, on the machine that has the storage.

    \b
    Example:
      tuner token add ada --storage /shared/runs --expires 30d
      tuner token list --storage /shared/runs
      tuner token revoke ada --storage /shared/runs

    add prints the token once: the storage holds only a hash of it. A server that runs sees a change within seconds.
    """
    from tuner.errors import InputError
    from tuner.service.tokens import Tokens
    from tuner.storage.folder import RunFolder

    tokens = Tokens(RunFolder.at(storage))
    if action == "list":
        _list([token for token in tokens.listed() if user in (None, token.user)], as_json)
    elif user is None:
        raise InputError(f"token {action}: whose? Add USER, as in `tuner token {action} ada`")
    elif action == "add":
        _add(tokens, user, expires, as_json)
    else:
        _revoke(tokens, user, id_, as_json)


def _add(tokens: Tokens, user: str, expires: str | None, as_json: bool) -> None:
    token = tokens.add(user, _seconds(expires))
    if as_json:
        print_json({"user": user, "token": token})
        return
    echo(f"the token of {user}, which nobody can look up later:", err=True)
    echo(token)


def _list(tokens: list[Token], as_json: bool) -> None:
    from tuner.visualization.text_tables import table

    if as_json:
        keys = ("id", "user", "created", "expires")
        print_json([{key: getattr(token, key) for key in keys} for token in tokens])
    elif tokens:
        rows = [
            {
                "id": token.id,
                "user": token.user,
                "created": _date(token.created),
                "expires": "never" if token.expires is None else _date(token.expires),
            }
            for token in tokens
        ]
        echo(table(rows, *options.fit(wide=False)))
    else:
        echo("no tokens", err=True)


def _revoke(tokens: Tokens, user: str, id_: str | None, as_json: bool) -> None:
    from tuner.errors import InputError
    from tuner.spec.quantities import counted

    revoked = tokens.revoke(user, id_)
    if not revoked:
        named = f" with the id {id_}" if id_ else ""
        raise InputError(f"{user} has no token{named}; `tuner token list` shows those that there are")
    if as_json:
        print_json({"user": user, "revoked": revoked})
    echo(f"{user}: {counted(revoked, 'token')} revoked", err=True)


def _seconds(expires: str | None) -> float | None:
    from tuner.errors import InputError
    from tuner.spec.quantities import parse_duration

    try:
        return None if expires is None else float(parse_duration(expires))
    except ValueError:
        raise InputError(f"--expires {expires}: write a time such as 12h or 30d") from None


def _date(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
