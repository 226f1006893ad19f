"""``completion SHELL``: the script that teaches a shell to complete."""

from __future__ import annotations

import os
import re

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    ZshComplete,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from tuner.cli.output import echo

PROGRAM, VARIABLE = "tuner", "_TUNER_COMPLETE"


class Bash(BashComplete):
    """As click's, for words with ``=`` in them, which bash takes apart: ``--set budget.trials=6``."""

    source_template = BashComplete.source_template.replace(
        "COMPREPLY+=($value)", "COMPREPLY+=($value)\n            [[ $value == *[=/] ]] && compopt -o nospace"
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the cursor, and the one that it is in, as they were typed."""
        words, current = split_arg_string(os.environ["COMP_WORDS"]), int(os.environ["COMP_CWORD"])
        typed = _joined([*words[:current], words[current] if current < len(words) else ""])
        return typed[1:-1], typed[-1]

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Of a word with ``=`` in its midst the part behind: bash has the rest."""
        return f"{item.type},{re.sub('^.*=(?=.)', '', item.value)}"


class Zsh(ZshComplete):
    """As click's, for a start-up file that has not loaded zsh's own completion, and without a space after ``=``."""

    source_template = ZshComplete.source_template.replace(
        "    compdef %(complete_func)s",
        "    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n    compdef %(complete_func)s",
    ).replace(
        "compadd -U -V unsorted -a completions",
        """local -a unfinished=(${(M)completions:#*[=/]}) finished=(${completions:#*[=/]})
        compadd -U -V unsorted -a finished
        compadd -U -V unsorted -S '' -a unfinished""",
    )


def register() -> None:
    """Has click answer bash and zsh with these."""
    add_completion_class(Bash)
    add_completion_class(Zsh)


def _joined(words: list[str]) -> list[str]:
    """``words`` with what is around a ``=`` in one."""
    found: list[str] = []
    for word in words:
        if found and (word == "=" or found[-1].endswith("=")):
            found[-1] += word
        else:
            found.append(word)
    return found


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that makes SHELL complete commands, options, runs, trials and keys of experiments.

    \b
    Example: put the line of your shell into its start-up file.
      bash (~/.bashrc)                   eval "$(tuner completion bash)"
      zsh (~/.zshrc)                     eval "$(tuner completion zsh)"
      fish (~/.config/fish/config.fish)  tuner completion fish | source
    """
    register()
    kind = get_completion_class(shell)
    assert kind is not None  # click knows the three
    echo(kind(click.get_current_context().find_root().command, {}, PROGRAM, VARIABLE).source())
