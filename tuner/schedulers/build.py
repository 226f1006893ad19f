"""The scheduler of a search; that of a third party has checks around it, and an audit is put around both."""

from __future__ import annotations

from tuner.schedulers.audited import Audited
from tuner.schedulers.base import Scheduler, SchedulerSpec, StoppingSpec
from tuner.schedulers.checked import checked
from tuner.spec.algorithm import is_built_in
from tuner.spec.problem import SearchProblem


def build_scheduler(spec: SchedulerSpec, task: SearchProblem) -> Scheduler:
    """The scheduler for ``task``. A third party's is named if it raises, or if its answer breaks the contract."""
    built = spec.build(task) if is_built_in(spec) else checked(spec, task)
    return Audited(built, spec, task.seed) if isinstance(spec, StoppingSpec) and spec.audit else built
