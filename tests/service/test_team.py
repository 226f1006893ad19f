"""The file that tells who shares a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import EnvironmentFailure, InputError
from tuner.service.team import Team, TeamFile
from tuner.storage.folder import RunFolder


@pytest.fixture
def storage(tmp_path: Path) -> RunFolder:
    (tmp_path / ".service").mkdir()
    return RunFolder.at(tmp_path)


def _write(storage: RunFolder, text: str) -> None:
    (Path(storage.path) / ".service" / "team.yaml").write_text(text)


def test_a_storage_without_a_file_has_everybody(storage):
    assert TeamFile(storage).team == Team()


def test_members_have_weights_quotas_and_rights(storage):
    _write(storage, "members: {ada: {weight: 2, admin: true}, bob: {gpus_at_once: 4}}\nreserved: 1\nlargest: 64\n")
    team = TeamFile(storage).team

    assert team.members["ada"].admin
    assert [(one.name, one.weight, one.gpus_at_once) for one in team.shares([])] == [("ada", 2, None), ("bob", 1, 4)]


def test_another_file_can_be_named(storage, tmp_path):
    (tmp_path / "t.yaml").write_text("members: {eve: {}}")

    assert [*TeamFile(storage, str(tmp_path / "t.yaml")).team.members] == ["eve"]


def test_a_file_that_is_not_there_is_an_error_of_the_user(storage, tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        TeamFile(storage, str(tmp_path / "none.yaml"))


def test_a_storage_that_cannot_be_read_is_none(storage):
    (Path(storage.path) / ".service" / "team.yaml").mkdir()
    with pytest.raises(EnvironmentFailure, match="cannot be read"):
        TeamFile(storage)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("members: {ada: {weigth: 2}}", "did you mean 'weight'?"),
        ("members: {ada: {weight: 0}}", "members.ada.weight: must be"),
        ("members: {'a b': {}}", "'a b'"),
        ("reserved: many", "reserved: must be"),
        ("member: {}", "did you mean 'members'?"),
        ("[]", "a team is a mapping"),
        ("members: [ada]", "members: must be"),
        ("a: {", "team.yaml:1"),
        ("members: {ada: 1}", "members.ada"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(storage, text, told):
    _write(storage, text)
    with pytest.raises(InputError) as error:
        TeamFile(storage)

    assert told in str(error.value)
    assert "team.yaml:1:" in str(error.value)


def test_all_problems_are_told_at_once(storage):
    _write(storage, "members: {ada: {weigth: 2}, bob: {gpus_at_once: -1}}\nreserved: -1\n")
    with pytest.raises(InputError) as error:
        TeamFile(storage)

    keys = {problem.key for problem in error.value.problems}
    assert keys == {"reserved", "members.ada.weigth", "members.bob.gpus_at_once"}


def test_a_file_that_changes_is_read_again_and_a_wrong_one_changes_nothing(storage):
    file, teams, told = TeamFile(storage), [], []

    def follow() -> list[str]:
        file.follow(teams.append, told.append)  # another text counts when it was seen twice
        assert told == []
        file.follow(teams.append, told.append)
        said = [line.removeprefix(f"NOTICE: {file.shown}") for line in told]
        told.clear()
        return said

    assert follow() == []
    _write(storage, "reserved: 1")
    assert (follow(), follow()) == ([" was read again"], [])
    _write(storage, "reserved: many")
    (wrong,) = follow()
    assert wrong.startswith(":1:1: reserved: must be")
    assert wrong.endswith("; the team stays as it was")
    assert follow() == []
    _write(storage, "")  # an editor has opened it to write it anew
    assert "a team is a mapping" in follow()[0]
    (Path(storage.path) / ".service" / "team.yaml").unlink()
    assert follow() == [" was read again"]
    assert [team.reserved for team in teams] == [1.0, 0.0]


def _followed(file: TeamFile) -> tuple[list[float], list[str]]:
    """What is reserved by each team that three looks find, and the lines for the operator."""
    teams, told = [], []
    for _ in range(3):
        file.follow(teams.append, told.append)
    return [team.reserved for team in teams], told


def test_a_named_file_that_is_gone_for_a_while_is_told_once(storage, tmp_path):
    (tmp_path / "t.yaml").write_text("reserved: 1")
    file = TeamFile(storage, str(tmp_path / "t.yaml"))
    (tmp_path / "t.yaml").unlink()
    _, told = _followed(file)
    assert len(told) == 1
    (tmp_path / "t.yaml").write_text("reserved: 2")
    assert _followed(file)[0] == [2.0]


def test_a_file_that_cannot_be_read_for_a_while_changes_nothing(storage):
    _write(storage, "reserved: 1")
    file, path = TeamFile(storage), Path(storage.path) / ".service" / "team.yaml"
    path.unlink()
    path.mkdir()
    teams, told = _followed(file)
    assert (len(told), teams) == (1, [])
    assert "cannot be read" in told[0]
    assert "--team" not in told[0]
    path.rmdir()
    _write(storage, "reserved: 2")
    assert _followed(file)[0] == [2.0]


def test_a_storage_that_is_not_mounted_for_a_while_is_no_team_without_quotas(storage):
    _write(storage, "reserved: 1")
    file, service = TeamFile(storage), Path(storage.path) / ".service"
    service.rename(service.with_name("elsewhere"))
    assert _followed(file) == ([], [])
    service.with_name("elsewhere").rename(service)
    assert _followed(file) == ([], [])
