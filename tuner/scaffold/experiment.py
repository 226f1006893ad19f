"""The experiment file that ``tuner init --from train.py`` proposes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tuner.printable import printable
from tuner.scaffold.domains import Proposal
from tuner.scaffold.hyperparameters import UNKNOWN
from tuner.scaffold.script import ScriptProposal
from tuner.spec.values import to_inline_yaml

_COLUMN = 48
"""Where comments begin."""

TRIALS = 20
"""Trials of the first search."""


def experiment_text(proposal: ScriptProposal, trainable: str, file: str) -> str:
    """The text of the file.

    Args:
        proposal: What was read.
        trainable: The script, and the function in it, as the experiment names them.
        file: The path of the file, as the user writes it in a command.

    Returns:
        YAML that ``tuner validate`` accepts; if the objective is not known, all but for that.
    """
    return "".join(f"{line}\n" for line in _lines(proposal, trainable, file))


def _lines(proposal: ScriptProposal, trainable: str, file: str) -> Iterator[str]:
    script = printable(proposal.script.name)
    yield f"# python -m tuner run {printable(file)}"
    yield f"# Proposed by tuner init from the text of {script}, which did not run: check each line."
    yield f"trainable: {to_inline_yaml(trainable)}"
    yield from _params(proposal)
    yield _line("search_space:", "in a comment: a guess; remove its # to search it")
    for one in proposal.of("search"):
        yield _line(f"  {_key(one)}: {one.written}", _reason(one))
    for one in proposal.of("unsure"):
        yield _line(f"  # {_key(one)}: {one.written}", _reason(one))
    yield from _objective(proposal, script)
    yield "search: {kind: gp, seed: 0}"
    yield _scheduler(proposal)
    yield f"budget: {{trials: {TRIALS}}}"
    yield _line("resources: {cpu: 1, gpu: auto}", "of one trial; auto: a GPU, if there is one")


def _params(proposal: ScriptProposal) -> Iterator[str]:
    """The fixed parameters; those whose value the text does not hold stand in comments."""
    fixed = proposal.of("fixed")
    known = [one for one in fixed if _default(one) is not UNKNOWN]
    if known:
        yield "params:"
    yield from (_line(f"  {_key(one)}: {to_inline_yaml(_default(one))}", _place(one)) for one in known)
    needed = [one for one in fixed if one not in known]
    if needed:
        yield "# TODO: give these a value, which the script needs:" + ("" if known else " params:")
        yield from (f"#  {_key(one)}: VALUE  # {_place(one)}" for one in needed)
    if left := proposal.of("left"):
        yield f"# not searched, so that the script's own values hold: {', '.join(map(_key, left))}"


def _default(one: Proposal) -> Any:
    return UNKNOWN if one.hyperparameter.default is None else one.hyperparameter.default


def _objective(proposal: ScriptProposal, script: str) -> Iterator[str]:
    metric, mode = proposal.reported.objective
    where = f"reported in line {proposal.reported.line} of {script}"
    if metric and mode:
        yield _line(f"objective: {{metric: {to_inline_yaml(metric)}, mode: {mode}}}", where)
    elif metric:
        yield _line(f"objective: {{metric: {to_inline_yaml(metric)}}}", f"{where}; TODO: add mode: max, or mode: min")
    elif names := proposal.reported.names:
        yield f"# TODO: name the metric to compare, one of {', '.join(map(printable, names))} ({where})"
        yield "# objective: {metric: NAME, mode: max}"
    else:
        yield f"# TODO: {script} reports nothing: call tuner.report(epoch=..., val_loss=...) there, and name a metric"
        yield "# objective: {metric: NAME, mode: max}"


def _scheduler(proposal: ScriptProposal) -> str:
    """ASHA, if the script reports the epoch and its number of epochs is known."""
    time = proposal.reported.time
    counts = [
        one.hyperparameter.default
        for one in proposal.of("fixed")
        for word in ("epoch", "step", "iter", "round")
        if word in one.name.lower() and word in time and type(one.hyperparameter.default) is int
    ]
    comment, max_t = "stops bad trials early", max(counts, default=0)
    if max_t >= 3:
        return _line(f"scheduler: {{kind: asha, time_attr: {time}, max_t: {max_t}}}", comment)
    return _line(
        f"# scheduler: {{kind: asha, time_attr: {time or 'epoch'}, max_t: N}}", f"{comment} of N reports or more"
    )


def _key(one: Proposal) -> str:
    return to_inline_yaml(one.name)


def _reason(one: Proposal) -> str:
    return "; ".join(filter(None, [one.why, _place(one), one.hyperparameter.help and f'"{one.hyperparameter.help}"']))


def _place(one: Proposal) -> str:
    default = one.hyperparameter.default
    known = "" if default is UNKNOWN or default is None else f"{to_inline_yaml(default)} in "
    return f"{known}line {one.hyperparameter.line}"


def _line(text: str, comment: str) -> str:
    return f"{text:<{_COLUMN}}{'' if len(text) < _COLUMN else '  '}# {printable(' '.join(comment.split()))}"
