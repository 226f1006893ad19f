"""What follows from a failure: the rules, without Ray and without waiting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tuner.execution.failure_classifier import (
    PREEMPTED,
    classify,
    user_error,
)
from tuner.execution.retry_policy import (
    MICRO_BATCH,
    FailureStopper,
    RetryDecision,
    back_off,
    decide_retry,
    first_alike,
    with_micro_batch,
)
from tuner.experiment.failures import Failures
from tuner.runs.failure import Failure
from tuner.runs.trial import Report, Trial
from tuner.search.control import SearchControl
from tuner.search.usage import UsageTracker
from tuner.spec.objective import Objective
from tuner.training.reporting import ProcessGroupNotFormed

RAISED, NEW = Failure("exception", "ValueError: x", 3), Failure("exception", "ValueError: y", 3)
DEAD, LOST, HUNG = Failure("process died", "m", 1), Failure("node lost", "m"), Failure("hung", "m", 2)
GPU, REDUCED = Failure("GPU memory", "m", 1), Failure("GPU memory", "m", 1, 1)
LATER, HOST, BROKEN = Failure("GPU memory", "m", 2), Failure("host memory", "m", 1), Failure("GPU", "m", 1)
TOO_LARGE, SHARED = (
    Failure(
        "GPU memory",
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.10 GiB "
        f"of which 9.99 GiB is free. Including non-PyTorch memory, this process has {own} GiB memory in use. Of the",
    )
    for own in ("69.10", "19.00")
)
NAN, BAD = Failure("NaN", "m", 2), Failure("bad report", "m", 2)
RETRY, FAIL, STOP = RetryDecision("retry"), RetryDecision("fail"), RetryDecision("stop")


@pytest.mark.parametrize(
    ("rules", "failure", "before", "micro_batch", "expected"),
    [
        ({}, DEAD, [], None, RETRY),
        ({}, DEAD, [DEAD], None, RETRY),
        ({}, DEAD, [DEAD, DEAD], None, FAIL),
        ({"retries": 0}, DEAD, [], None, FAIL),
        ({"retries": 1}, DEAD, [RAISED], None, FAIL),
        ({"retries": 1}, DEAD, [LOST, LOST, HUNG], None, RETRY),  # neither is counted
        ({}, RAISED, [], None, RETRY),
        ({}, RAISED, [RAISED], None, FAIL),  # it is the code
        ({}, NEW, [RAISED], None, RETRY),
        ({}, Failure("exception", "ValueError: x", 4), [RAISED], None, RETRY),  # it came further
        ({"retries": 0}, LOST, [LOST] * 9, None, RETRY),
        ({}, HUNG, [], None, RETRY),
        ({}, HUNG, [DEAD, DEAD], None, RETRY),
        ({}, HUNG, [HUNG], None, FAIL),
        ({"retries": 0}, HUNG, [], None, FAIL),
        ({}, NAN, [], None, FAIL),
        ({"on_nan": "stop"}, NAN, [], None, STOP),
        ({"on_nan": "stop"}, Failure("NaN", "m"), [], None, FAIL),  # there is no finite value
        ({"retries": 9}, BAD, [], None, FAIL),
        ({}, GPU, [], 64, RetryDecision("retry", 32)),
        ({"on_oom": "retry"}, GPU, [], 64, RETRY),
        ({"on_oom": "retry"}, GPU, [GPU], 64, FAIL),  # twice the same
        ({"on_oom": "retry"}, GPU, [LATER], 64, RETRY),
        ({"on_oom": "retry"}, TOO_LARGE, [], None, FAIL),  # it is not paid twice
        ({}, TOO_LARGE, [], 2, RetryDecision("retry", 1)),
        ({}, SHARED, [], None, RETRY),  # others may need less then
        ({}, HOST, [HOST], None, RETRY),  # others may hold less of the node's memory
        ({}, BROKEN, [BROKEN], None, RETRY),
        ({"on_oom": "reduce_batch"}, GPU, [], None, RETRY),  # declares none: tried again as it was
        ({"on_oom": "reduce_batch"}, GPU, [GPU], None, FAIL),
        ({"on_oom": "reduce_batch"}, GPU, [], 64, RetryDecision("retry", 32)),
        ({"on_oom": "reduce_batch", "retries": 0}, GPU, [], 3, RetryDecision("retry", 1)),
        ({"on_oom": "reduce_batch"}, GPU, [REDUCED], 1, RETRY),
        ({"on_oom": "reduce_batch"}, GPU, [REDUCED, GPU], 1, FAIL),  # twice the same
        ({"on_oom": "reduce_batch"}, DEAD, [REDUCED, REDUCED, DEAD], 1, RETRY),  # reductions are not counted
        ({}, RAISED, [RAISED, replace(RAISED, final=True)], None, RETRY),  # it was reopened
        ({"retries": 1}, DEAD, [DEAD, replace(DEAD, final=True), DEAD], None, FAIL),
    ],
)
def test_whether_a_trial_is_tried_again(
    rules: dict[str, Any], failure: Failure, before: list[Failure], micro_batch: int | None, expected: RetryDecision
) -> None:
    assert decide_retry(Failures(**rules), failure, before, micro_batch) == expected


PREEMPTION = Failure("node lost", PREEMPTED)


@pytest.mark.parametrize(
    ("failures", "alone", "seconds"),
    [
        ([LOST], RETRY, 0),
        ([LOST, LOST], RETRY, 30),
        ([LOST, LOST, LOST], FAIL, 60),
        ([LOST] * 9, FAIL, 600),
        ([LOST, LOST, replace(LOST, step=1)], RETRY, 0),  # it came further
        ([LOST, LOST, DEAD, LOST], RETRY, 0),
        ([PREEMPTION] * 9, RETRY, 0),
        ([LOST, LOST, PREEMPTION], RETRY, 30),
    ],
)
def test_a_trial_that_takes_nodes_with_it_waits_and_then_fails(
    failures: list[Failure], alone: RetryDecision, seconds: float
) -> None:
    *before, failure = failures
    assert decide_retry(Failures(), failure, before, None, alone=True) == alone
    assert decide_retry(Failures(), failure, before, None, alone=False) == RETRY
    assert back_off(failures) == seconds


def test_a_batch_is_halved_down_to_one() -> None:
    rules, size, before = Failures(on_oom="reduce_batch"), 100, []
    sizes = []
    while (found := decide_retry(rules, GPU, before, size)).micro_batch:
        size = found.micro_batch
        before.append(Failure("GPU memory", "m", 1, size))
        sizes.append(size)
    assert sizes == [50, 25, 12, 6, 3, 1]


def test_the_reduced_micro_batch_is_not_part_of_the_configuration() -> None:
    assert with_micro_batch({"lr": 1}, None) == {"lr": 1}
    assert with_micro_batch({"lr": 1}, 8) == {"lr": 1, MICRO_BATCH: 8}


@pytest.mark.parametrize(
    ("stop_after", "failed", "ended", "reason"),
    [
        (None, 99, 99, ""),
        ("auto", 99, 99, ""),
        (3, 2, 50, ""),
        (3, 3, 3, "failures.stop_after 3 is reached: 3 trials failed"),
        ("50%", 9, 9, ""),  # too few to say
        ("50%", 5, 10, "failures.stop_after 50% is reached: 5 of 10 ended trials failed"),
        ("50%", 5, 11, ""),
        ("12.5%", 2, 16, "failures.stop_after 12.5% is reached: 2 of 16 ended trials failed"),
    ],
)
def test_when_failures_end_the_search(stop_after: int | str | None, failed: int, ended: int, reason: str) -> None:
    usage = UsageTracker((Objective(metric="score", mode="max"),))
    for i in range(ended):
        status = "failed" if i < failed else ("completed", "stopped")[i % 2]
        usage.apply({"what": "ended", "trial": str(i), "status": status})
    control = SearchControl()
    stopper = FailureStopper(Failures(stop_after=stop_after), usage, control)
    assert (stopper.stop_all(), control.stop_reason) == (bool(reason), reason)


@pytest.mark.parametrize(
    "reopened", [{"what": "extended", "spec": {}, "reopened": ["a"]}, {"what": "reopened", "trial": "a"}]
)
def test_a_trial_that_is_reopened_has_neither_failed_nor_ended(reopened: dict[str, Any]) -> None:
    usage = UsageTracker((Objective(metric="score", mode="max"),))
    for status in ("failed", "completed"):
        usage.apply({"what": "ended", "trial": "a", "status": status})
        assert (usage.failed, usage.ended) == (int(status == "failed"), 1)
        usage.apply(reopened)
        assert (usage.failed, usage.ended) == (0, 0)


def failed(number: int, *failures: Failure, reports: int = 0) -> Trial:
    made = [Report(f"t{number}", k + 1, 1.0, 1.0, {"score": 1.0}) for k in range(reports)]
    return Trial(f"t{number}", number, {}, failures=list(failures), reports=made)


def broken(number: int, **fields: Any) -> Failure:
    return Failure(**({"kind": "exception", "message": f"ValueError: lr {number / 7}", "final": True} | fields))


HOPELESS: list[tuple[str, list[Trial], int, bool]] = [
    ("four fail alike", [failed(k, broken(k)) for k in range(4)], 2, True),
    ("three", [failed(k, broken(k)) for k in range(3)], 1, False),
    ("a fifth waits", [*(failed(k, broken(k)) for k in range(4)), failed(4)], 2, True),
    ("one of as many as run at once still runs", [*(failed(k, broken(k)) for k in range(4)), failed(4)], 8, False),
    ("the second is tried again", [failed(k, broken(k, final=k != 1)) for k in range(4)], 2, False),
    ("one reported", [*(failed(k, broken(k)) for k in range(4)), failed(4, reports=1)], 2, False),
    ("one failed otherwise", [failed(k, broken(k, message=f"KeyError: {'ab'[k == 2]}")) for k in range(4)], 2, False),
    ("a file is missing", [failed(k, broken(k, kind="data", message="no file")) for k in range(4)], 2, True),
    ("memory", [failed(k, broken(k, kind="GPU memory")) for k in range(4)], 2, False),
    (
        "it failed later, too",
        [failed(k, broken(k, message="other", final=False), broken(k)) for k in range(4)],
        2,
        True,
    ),
]


@pytest.mark.parametrize(("trials", "slots", "ends"), [case[1:] for case in HOPELESS], ids=[c[0] for c in HOPELESS])
def test_first_trials_that_fail_alike_end_the_search(trials: list[Trial], slots: int, ends: bool) -> None:
    failure = next(trial.failures[-1] for trial in reversed(trials) if trial.failures)
    assert bool(first_alike(failure, trials, slots)) is ends


def test_processes_that_train_alone_are_a_matter_of_the_search() -> None:
    error = user_error(ProcessGroupNotFormed("resources.workers: 2, but XGBoost trains this model in 1"))
    assert isinstance(error, ProcessGroupNotFormed)
    assert decide_retry(Failures(), classify(error), [], None).action == "fail"


def test_an_exception_that_another_trial_had_is_not_tried_again() -> None:
    assert decide_retry(Failures(), broken(1), [], None, common=True).action == "fail"
    assert decide_retry(Failures(), broken(1), [], None).action == "retry"
    assert decide_retry(Failures(), broken(1, kind="data"), [], None, common=True).action == "retry"


@pytest.mark.parametrize("value", [0, -1, "0.5", "101%", "50 %", "%", True, 2.5])
def test_stop_after_is_a_number_or_a_share(value: Any) -> None:
    with pytest.raises(ValueError, match="stop_after"):
        Failures(stop_after=value)


@pytest.mark.parametrize(
    ("value", "seconds"), [("90s", 90.0), ("5m", 300.0), (20, 20.0), ("auto", "auto"), (None, None)]
)
def test_hang_after_is_a_duration_or_auto_or_never(value: Any, seconds: Any) -> None:
    assert Failures(hang_after=value).hang_after == seconds


def test_the_plan_tells_what_will_be_done() -> None:
    for reducible, what in ((True, "reduce_batch"), (False, "retry")):
        assert Failures().described(reducible) == f"retries 2 a trial, hang_after auto, on_nan fail, on_oom {what}"
    rules = Failures(retries=0, hang_after=None, on_oom="reduce_batch", stop_after="50%")
    assert rules.described(False) == (
        "retries 0 a trial, hang_after never, on_nan fail, on_oom reduce_batch; of no use, as the trainable has no "
        "micro_batch: such trials are tried again as they were; the search ends when 50% of the trials have failed"
    )
    assert Failures(hang_after="5m").described(True).split(", ")[1] == "hang_after 5m00s"
