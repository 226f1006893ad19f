"""Commands that wait in a run folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.runs.commands import COMMANDS, discard, send, waiting_commands
from tuner.storage.folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.at(tmp_path)


def test_commands_are_read_in_the_order_in_which_they_were_sent_with_all_that_they_say(folder):
    sent = [send(folder, "stop-trial", "ada@laptop", {"trial": str(number)}) for number in range(20)]

    assert waiting_commands(folder) == (sent, [])


def test_a_discarded_command_is_gone_and_the_second_time_there_is_none_to_discard(folder):
    command = send(folder, "pause", "ada@laptop", {})

    assert [discard(folder, command), discard(folder, command)] == [True, False]
    assert waiting_commands(folder) == ([], [])


def test_a_folder_without_commands_has_none(folder):
    assert waiting_commands(folder) == ([], [])


@pytest.mark.parametrize(
    "text", ["", "[]", '{"id": 1}', "\0", '{"id": "x", "do": "pause", "by": "", "sent": 1}', "[" * 999]
)
def test_a_file_that_is_no_command_is_named_and_hides_none(folder, text):
    command = send(folder, "pause", "ada@laptop", {})
    (Path(folder.path) / COMMANDS / "0.json").write_text(text)

    assert waiting_commands(folder) == ([command], ["0.json"])


def test_a_command_under_another_ones_name_is_not_carried_out(folder):
    command = send(folder, "pause", "ada@laptop", {})
    file = Path(folder.path) / COMMANDS / f"{command.id}.json"
    file.rename(file.with_name("copy.json"))

    assert waiting_commands(folder) == ([], ["copy.json"])
