"""Tokens: only hashes are kept, and each works for its user until it expires or is revoked."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.documents import conforms
from tuner.cli import cli
from tuner.errors import EnvironmentFailure, InputError, TunerError
from tuner.service.tokens import FRESH_S, TokenRefused, Tokens
from tuner.storage.folder import RunFolder


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(tmp_path: Path, clock: Clock) -> Tokens:
    return Tokens(RunFolder.at(tmp_path), clock)


def file(tmp_path: Path) -> Path:
    return tmp_path / ".service" / "tokens.json"


def test_a_token_is_its_users_and_the_storage_holds_only_a_hash(tokens: Tokens, tmp_path: Path) -> None:
    ada, bob = tokens.add("ada"), tokens.add("bob")
    assert (tokens.user_of(ada).user, tokens.user_of(bob).user) == ("ada", "bob")
    written = file(tmp_path).read_text()
    assert ada not in written
    assert ada.removeprefix("tuner_") not in written
    assert stat.S_IMODE(file(tmp_path).stat().st_mode) == 0o600


@pytest.mark.parametrize("token", ["", "x", "tuner_", "\ud800", "tuner_" + "a" * 100_000])
def test_nobodys_token_is_refused(token: str, tokens: Tokens) -> None:
    tokens.add("ada")
    with pytest.raises(TokenRefused, match="nobody's"):
        tokens.user_of(token)


def test_a_token_expires(tokens: Tokens, clock: Clock) -> None:
    token = tokens.add("ada", expires_s=60)
    assert tokens.user_of(token).expires == clock.now + 60
    clock.now += 60
    with pytest.raises(TokenRefused, match="the token of ada expired at"):
        tokens.user_of(token)


def test_a_running_server_sees_what_another_process_changes(tokens: Tokens, clock: Clock, tmp_path: Path) -> None:
    other = Tokens(RunFolder.at(tmp_path))
    with pytest.raises(TokenRefused):
        tokens.user_of("x")
    token = other.add("ada")
    clock.now += FRESH_S
    assert tokens.user_of(token).user == "ada"
    other.revoke("ada")
    clock.now += FRESH_S
    with pytest.raises(TokenRefused):
        tokens.user_of(token)


def test_one_token_of_several_is_revoked(tokens: Tokens) -> None:
    kept, gone = tokens.add("ada"), tokens.add("ada")
    assert tokens.revoke("bob") == 0
    assert tokens.revoke("ada", tokens.user_of(gone).id) == 1
    assert tokens.user_of(kept).user == "ada"
    with pytest.raises(TokenRefused):
        tokens.user_of(gone)


def test_tokens_that_are_made_at_once_are_all_kept(tmp_path: Path) -> None:
    made: list[str] = []

    def make(user: str) -> None:
        made.append(Tokens(RunFolder.at(tmp_path)).add(user))

    threads = [threading.Thread(target=make, args=(f"user{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = Tokens(RunFolder.at(tmp_path))
    assert {found.user_of(token).user for token in made} == {f"user{n}" for n in range(8)}


@pytest.mark.parametrize("user", ["", "a b", "../ada", "ada\n", "-x", "a" * 65, "ä"])
def test_a_name_that_cannot_be_one(user: str, tokens: Tokens) -> None:
    with pytest.raises(InputError, match="cannot name a user"):
        tokens.add(user)


@pytest.mark.parametrize("text", ["{", "[]", '{"tokens": [{"user": 3}]}', "[" * 5000])
def test_a_damaged_file_lets_nobody_in_and_is_named(text: str, tokens: Tokens, tmp_path: Path) -> None:
    token = tokens.add("ada")
    file(tmp_path).write_text(text)
    damaged = Tokens(RunFolder.at(tmp_path))
    with pytest.raises(EnvironmentFailure, match=r"tokens\.json cannot be read"):
        damaged.user_of(token)
    with pytest.raises(EnvironmentFailure, match=r"tokens\.json cannot be read"):
        damaged.add("bob")
    assert file(tmp_path).read_text() == text


def asked(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli, ["token", *words])
    if isinstance(done.exception, TunerError):
        return done.exception.exit_status, done.stdout, str(done.exception)
    return done.exit_code, done.stdout, done.stderr


def test_the_command(tmp_path: Path) -> None:
    place = ["--storage", str(tmp_path)]
    status, token, told = asked("add", "ada", *place, "--expires", "30d")
    assert (status, token in told) == (0, False)
    found = Tokens(RunFolder.at(tmp_path)).user_of(token.strip())
    assert found.expires == pytest.approx(found.created + 30 * 86400)
    assert token.strip() not in "".join(asked("list", *place)[1:])
    (row,) = conforms("token", asked("list", *place, "--json")[1])
    assert (row["user"], row["id"]) == ("ada", found.id)
    conforms("token", asked("add", "bob", *place, "--json")[1])
    assert conforms("token", asked("revoke", "ada", *place, "--json")[1])["revoked"] == 1
    assert [row["user"] for row in json.loads(asked("list", *place, "--json")[1])] == ["bob"]
    assert asked("list", "ada", *place) == (0, "", "no tokens\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["add"], "token add: whose?"),
        (["revoke", "bob"], "bob has no token"),
        (["add", "bob", "--expires", "soon"], "--expires soon: write a time such as 12h or 30d"),
        (["add", "bob", "--expires", "0s"], "write a time from now on"),
        (["add", "bob", "--expires", "nan"], "write a time"),
    ],
)
def test_wrong_input_of_the_command(words: list[str], message: str, tmp_path: Path) -> None:
    status, out, told = asked(*words, "--storage", str(tmp_path))
    assert (status, out) == (2, "")
    assert message in told
