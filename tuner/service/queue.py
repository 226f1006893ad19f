"""The searches of a team, in the storage of their runs: who waits, who runs, and how many trials each may run.

Each search is a job of the cluster. `SearchQueue.step` looks at the cluster and at the run folders, asks
`tuner.service.shares` what each search gets, and tells searches by ``slots`` commands. A search with more trials than
that pauses them at their next checkpoints. Places are given away only when they are free.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuner.errors import EnvironmentFailure, InputError, did_you_mean
from tuner.jobs.client import job_id
from tuner.runs.loading import run_exists
from tuner.service.accounts import Use, passed
from tuner.service.cluster import Capacity, Cluster, JobView
from tuner.service.code_store import CodeStore
from tuner.service.faults import Faults, of_run
from tuner.service.interface import SERVICE, Submission
from tuner.service.jobs import forget_job, job_of, send_limit
from tuner.service.places import Placement, placed
from tuner.service.pool import Pool, largest, opened, pool, unit_of
from tuner.service.records import Account, Record, Records
from tuner.service.shares import Demand, Shares
from tuner.service.standing import Standing, amount, places, standing
from tuner.service.states import with_job, with_limit
from tuner.service.team import Team, TeamMember
from tuner.storage.folder import RunFolder, reason
from tuner.storage.lock import Lock, locked

LOCK = "service.lock"

MOST_WAITING = 1000
"""Searches of one user that wait at once."""

SLOW_S = 60.0
"""A pass that takes longer is a problem that users should know of."""


@dataclass(frozen=True)
class QueueStatus:
    """How the queue stands: `tuner.live.queue_source.Status`."""

    unit: str = "GPU"
    gpus: float = 0.0
    reserved: float = 0.0
    in_use: float = 0.0
    problem: str = "the service has not looked at the cluster yet"
    users: Mapping[str, Use] = field(default_factory=dict)


class SearchQueue:
    """The queue of one storage: `tuner.service.interface.Queue`.

    Several threads may call it. One of them calls `step` every few seconds, and no other one does.
    """

    def __init__(
        self, storage: RunFolder, cluster: Cluster, team: Team, lock: Lock, clock: Callable[[], float] = time.time
    ) -> None:
        """Reads what there is. Raises InputError, EnvironmentFailure and OSError if the storage cannot be used."""
        self._storage, self._cluster, self._team, self._lock, self._clock = storage, cluster, team, lock, clock
        self._store, self._code = Records(storage), CodeStore(storage)
        self._store.create()
        found, self.unreadable = self._store.read()
        """``unreadable``: why records of some searches cannot be read. Those are left as they are."""
        self._records = {record.name: record for record in found}
        self._account = self._read_account()
        self._mutex = threading.RLock()
        self._status = QueueStatus(unit_of(team, self._account), reserved=team.reserved)
        self._waits: dict[str, str] = {}
        """Why each search has not what it asks for."""
        self._faults: dict[str, str] = {}
        """What could not be done for single searches in the last pass."""
        self._listed: tuple[Record, ...] | None = None
        """What `entries` has last answered, until something of it changes."""
        self._standings: dict[str, Standing] = {}
        """How each search with a job stood at the last look."""
        self._sent: dict[str, int] = {}
        """The limit that each search was sent and has not yet told."""
        self._began: float | None = None

    @classmethod
    @contextlib.contextmanager
    def open(
        cls, storage: RunFolder, cluster: Cluster, team: Team, clock: Callable[[], float] = time.time
    ) -> Iterator[SearchQueue]:
        """Within: the only queue of the storage. Raises EnvironmentFailure if another process has it open."""
        with contextlib.ExitStack() as stack:
            (storage / SERVICE).create()
            try:
                lock = stack.enter_context(locked(storage / SERVICE, LOCK))
            except InputError:
                remedy = "one is enough for a team: use that one, or stop it first"
                raise EnvironmentFailure(f"another service works on the storage {storage.location}: {remedy}") from None
            yield cls(storage, cluster, team, lock, clock)

    def _read_account(self) -> Account:
        try:
            return self._store.account()
        except ValueError as error:
            self.unreadable.append(f"what users had is counted anew: account.json: {' '.join(str(error).split())}")
            return Account()

    # ---- what people ask

    def entries(self) -> Sequence[Record]:
        """All searches, the earliest first; of each that waits its place and the reason."""
        with self._mutex:
            if self._listed is None:
                waiting = sorted((record for record in self._records.values() if record.state == "queued"), key=_turn)
                line = {record.name: place for place, record in enumerate(waiting, 1)}
                self._listed = tuple(self._shown(record, line.get(record.name)) for record in self._records.values())
            return self._listed

    def entry(self, name: str) -> Record:
        """One search. Raises InputError if there is none."""
        with self._mutex:
            record = self._known(name)
            if record.state != "queued":
                return self._shown(record, None)
            others = (other for other in self._records.values() if other.state == "queued")
            return self._shown(record, 1 + sum(_turn(other) < _turn(record) for other in others))

    def _shown(self, record: Record, place: int | None) -> Record:
        """As people see it."""
        known = () if record.has_ended else (self._waits.get(record.name), self._faults.get(record.name))
        return replace(record, position=place, reason="; ".join(filter(None, (*known, record.reason))))

    def _unknown(self, name: str) -> InputError:
        known = did_you_mean(name, [*self._records]) if self._records else "the queue has none yet"
        return InputError(f"no search {name!r}; {known}")

    def status(self) -> QueueStatus:
        """As of the last pass, or why there was none."""
        with self._mutex:
            began, found = self._began, self._status
        if began is not None and (takes := time.monotonic() - began) > SLOW_S:
            return replace(found, problem=f"the cluster or the storage has not answered for {takes:.0f} s")
        return found

    def set_team(self, team: Team) -> None:
        """Lets other members, weights and quotas hold from the next pass on."""
        with self._mutex:
            self._team = team

    def is_admin(self, user: str) -> bool:
        """Whether the user may stop and control the searches of others."""
        return self._team.members.get(user, TeamMember()).admin

    def check(self, submission: Submission) -> str:
        """Why a search can never run, or may not wait; empty if all is well."""
        team = self._team  # another one may be set meanwhile
        if team.members and submission.user not in team.members:
            return f"{submission.user!r} is not a user of this cluster"
        most = team.members[submission.user].priority if team.members else submission.priority
        if submission.priority > most:
            return f"priority {submission.priority}: the highest one that {submission.user} may give is {most}"
        with self._mutex:
            waiting = sum(record.user == submission.user and not record.has_ended for record in self._records.values())
            room, unit = largest(team, self._account), self._status.unit
        if waiting >= MOST_WAITING:
            return f"{submission.user} has {waiting} searches that wait or run, and may have {MOST_WAITING}"
        if unit == "CPU" and submission.per_trial.get("GPU", 0.0) > 0 and room < math.inf:
            return f"a trial takes {submission.per_trial['GPU']:g} GPUs, and the cluster has none"
        demand = Demand(submission.name, submission.user, 1, amount(submission, unit))
        return Shares(team.shares([submission.user]), unit=unit).problem(demand, room)

    def submit(self, submission: Submission) -> Record:
        """Keeps a search. The same request of the same user is the search that there is.

        Raises InputError if the name is taken, or the search can never run, and OSError if the storage fails.
        """
        with self._mutex:
            known = self._records.get(submission.name)
            if known is not None and (known.user, known.request) == (submission.user, submission.request):
                return self.entry(known.name)
            if problem := self.check(submission):
                raise InputError(f"{submission.name}: {problem}")
            damaged = any(f"/{submission.name}.json" in line for line in self.unreadable)
            if known is not None or damaged or run_exists(self._storage / submission.name):
                raise InputError(f"name {submission.name!r} is taken in {self._storage.location}: choose another name")
            record = Record(submission, self._clock())
            self._store.check(record)
            self._keep(record)
            return self.entry(submission.name)

    def stop(self, name: str, by: str) -> bool:
        """Ends a search for the user ``by``, or takes it out of the queue; whether there was something to stop.

        Raises InputError if there is none of that name, OSError if the storage fails and it has no job yet, and
        EnvironmentFailure if the storage and the cluster fail.
        """
        with self._mutex:
            record = self._known(name)
            try:
                if record.state == "queued":
                    self._keep(replace(record, state="stopped", reason=f"taken out of the queue by {by}"))
                elif record.has_job:
                    told = record.reason if record.state == "stopping" else f"stopped by {by}"
                    self._keep(replace(record, state="stopping", reason=told))
                return not record.has_ended
            except OSError as error:
                if not record.has_job:
                    raise
                failure = error
        # The search may be what has filled the disk. If this process is killed now, it is the same as a job that ended.
        if not self._stop_job(record, self._cluster.jobs()):
            raise failure
        return True

    def _stop_job(self, record: Record, jobs: Mapping[str, JobView]) -> bool:
        """Whether the cluster has its job, which is ended then."""
        known_as = job_id(record.name, record.attempt)
        if known_as not in jobs or not self._is_ours(jobs[known_as]):
            return False
        self._cluster.stop(known_as)
        return True

    def resume(self, name: str, by: str) -> Record:
        """Queues a search again that was stopped or has failed, for the user ``by``.

        Its priority becomes the highest one that its owner may give now, if that is lower.

        Raises InputError if there is nothing to resume, or it could not be submitted now.
        """
        with self._mutex:
            record = self._known(name)
            if not record.has_ended:
                later = ": resume it when it has stopped" if record.state == "stopping" else ""
                raise InputError(f"{name}: nothing to resume: it is {record.state}{later}")
            if record.state == "succeeded":
                raise InputError(f"{name}: nothing to resume: its search came to its end")
            member = self._team.members.get(record.user)
            if member and record.priority > member.priority:  # what was allowed when it was submitted
                record = replace(record, submission=replace(record.submission, priority=member.priority))
            if problem := self.check(record.submission):
                raise InputError(f"{name}: {problem}")
            resumes = run_exists(self._storage / name)
            told = f"resumed by {by}"
            self._keep(replace(record, state="queued", reason=told, attempt=record.attempt + 1, resumes=resumes))
            return self.entry(name)

    def log(self, name: str) -> str:
        """The output of its last job until now; empty if there is none. Raises InputError, EnvironmentFailure."""
        with self._mutex:
            record = self._known(name)
        if record.state in ("running", "paused"):
            return self._cluster.log(job_id(name, record.attempt))
        jobs = self._cluster.jobs()
        ids = (job_id(name, attempt) for attempt in range(record.attempt, 0, -1))
        last = next((one for one in ids if one in jobs and self._is_ours(jobs[one])), None)
        return "" if last is None else self._cluster.log(last)

    def _known(self, name: str) -> Record:
        if name not in self._records:
            raise self._unknown(name)
        return self._records[name]

    def _keep(self, record: Record) -> None:
        """First in the storage: what it does not have has not happened. Raises LockLost if that is another's now."""
        self._lock.renew()
        self._store.keep(record)
        self._records[record.name] = record
        self._listed = None
        if record.has_ended or record.state == "queued":
            self._waits.pop(record.name, None)

    # ---- one pass

    def step(self) -> dict[str, str]:
        """Looks at the cluster, and starts, limits and ends searches.

        Returns by name why something could not be done for single searches; the next pass tries it again.

        Raises EnvironmentFailure if the cluster does not answer, or another process has the storage, and OSError if the
        storage fails. Nothing is lost then: the next pass does it again.
        """
        self._began = time.monotonic()
        try:
            self._lock.renew()
            return self._pass()
        except (OSError, EnvironmentFailure) as error:
            told = f"{self._storage.location}: {reason(error)}" if isinstance(error, OSError) else str(error)
            with self._mutex:
                self._status = replace(self._status, problem=told)
            raise
        finally:
            self._began = None

    def _pass(self) -> dict[str, str]:
        capacity, jobs = self._cluster.capacity(), self._cluster.jobs()
        logs = self._logs_of_failed(jobs)
        failures = Faults()
        with self._mutex:
            self._settle(jobs, logs, failures)
            active = [record for record in self._records.values() if record.has_job]
            shared = pool(capacity, self._team, self._account)
        self._standings = found = self._look(active, shared.capacity, failures)
        with self._mutex:
            placement = self._placement(shared, found, failures)
            self._started(placement, jobs, failures)
            mine = [record for record in self._records.values() if record.has_job]
            left_over = self._left_over(jobs)
        unseen = {*failures.of_searches}
        for record in mine:
            if record.name not in unseen or record.state == "stopping":
                with failures.kept(record.name):
                    self._act(record, jobs, found.get(record.name), placement)
        for known_as in left_over:
            with failures.kept():
                self._cluster.stop(known_as)
        with self._mutex:
            if self._faults != failures.of_searches:
                self._faults, self._listed = failures.of_searches, None
        failures.told()
        return failures.of_searches

    def _look(self, active: Sequence[Record], capacity: Capacity, failures: Faults) -> dict[str, Standing]:
        """How searches stand, with the limits that they were sent; as before if a run folder cannot be read."""
        found: dict[str, Standing] = {}
        not_told: dict[str, int] = {}
        for one in active:
            folder, sent, now = self._storage / one.name, self._sent.get(one.name), self._standings.get(one.name)
            with failures.kept(one.name), of_run(folder):
                now = standing(folder, one.submission, capacity)
                sent = None if now.limit == sent else sent
            if sent is not None:
                not_told[one.name] = sent
                now = (now or Standing(wanted=sent)).promised(sent)
            if now is not None:
                found[one.name] = now.unseen() if one.name in failures.of_searches else now
        self._sent = not_told
        return found

    def _is_ours(self, job: JobView) -> bool:
        """Whether it runs a search of this storage: a cluster has jobs of others, too."""
        if job.storage is None:
            return False
        try:
            return job.storage == self._storage.location or RunFolder.at(job.storage).path == self._storage.path
        except InputError:  # this machine cannot read it
            return False

    def _left_over(self, jobs: Mapping[str, JobView]) -> list[str]:
        """Jobs of searches that have ended here: a request to start one came late, or `tuner jobs recover` did it."""
        ended = [record for record in self._records.values() if record.state in ("stopped", "failed")]
        ids = {known_as for one in ended for known_as in (job_id(one.name, one.attempt), job_id(one.name, 1))}
        return [one for one in ids & jobs.keys() if not jobs[one].has_ended and self._is_ours(jobs[one])]

    def _logs_of_failed(self, jobs: Mapping[str, JobView]) -> dict[str, str]:
        """By name the output of each search whose job has failed since the last pass; empty if it is gone."""
        with self._mutex:
            active = [record for record in self._records.values() if record.has_job]
        ids = {record.name: job_id(record.name, record.attempt) for record in active}
        logs = {name: "" for name, one in ids.items() if one in jobs and jobs[one].state == "failed"}
        for name in logs:
            with contextlib.suppress(EnvironmentFailure):  # the node that had it may be gone
                logs[name] = self._cluster.log(ids[name])
        return logs

    def _settle(self, jobs: Mapping[str, JobView], logs: Mapping[str, str], failures: Faults) -> None:
        """Takes over what the cluster tells of the jobs."""
        for record in [one for one in self._records.values() if one.has_job]:
            job = jobs.get(job_id(record.name, record.attempt))
            with failures.kept():
                if job is not None and not self._is_ours(job):
                    known_as = job_id(record.name, record.attempt)
                    told = f"the cluster has a job {known_as!r} of somebody else: submit the search by another name"
                    is_stopped = record.state == "stopping"
                    self._keep(replace(record, state="stopped" if is_stopped else "failed", reason=told))
                    continue
                if job is not None and job.has_ended:
                    with contextlib.suppress(OSError):  # only people who continue it by hand need it
                        send_limit(self._storage / record.name, None)
                    forget_job(record, self._storage)
                self._change(record, with_job(record, job, logs.get(record.name, "")))

    def _placement(self, shared: Pool, found: Mapping[str, Standing], failures: Faults) -> Placement:
        """What each search gets from now on; also adds up what users had since the last pass."""
        unit, room = shared.unit, shared.room
        records = [one for one in self._records.values() if one.state in ("queued", "starting", "running", "paused")]
        standings = {
            one.name: found.get(one.name) or Standing(wanted=max(1, places(one.submission, shared.capacity)))
            for one in records
        }
        account = opened(self._account, shared)
        users = sorted({*account.hours, *(one.user for one in records)})
        shares = Shares(self._team.shares(users), dict(account.owed), unit)
        demands = [
            Demand(one.name, one.user, now.wanted, amount(one.submission, unit, now), one.priority, one.submitted)
            for one in records
            if not (now := standings[one.name]).is_paused
        ]
        had: dict[str, float] = {}
        others: dict[str, float] = {}
        asking = {one.search for one in demands}
        for one in self._records.values():
            if one.name in found:
                held = found[one.name].running * amount(one.submission, unit, found[one.name])
                had[one.user] = had.get(one.user, 0.0) + held
                if one.name not in asking:
                    others[one.user] = others.get(one.user, 0.0) + held
        account, use = passed(account, self._clock(), shares, demands, room, had)
        with failures.kept():
            self._store.keep_account(account)
        self._account = account
        placement = placed(shares, demands, room, standings, account.hours, others)
        if self._waits != placement.waits:
            self._waits, self._listed = dict(placement.waits), None
        self._status = QueueStatus(unit, shared.now, self._team.reserved, sum(had.values()), "", use)
        return placement

    def _started(self, placement: Placement, jobs: Mapping[str, JobView], failures: Faults) -> None:
        """Notes which searches begin, and which have a place for a trial."""
        for record in [*self._records.values()]:
            changed = with_limit(record, placement.limits.get(record.name))
            if record.state == "queued" and changed.state == "starting":
                changed = replace(changed, attempt=self._next_attempt(record, jobs))
            with failures.kept():
                self._change(record, changed)

    def _next_attempt(self, record: Record, jobs: Mapping[str, JobView]) -> int:
        """The first one that has not ended: people can submit and resume it without this service, too."""
        attempt = record.attempt
        while (job := jobs.get(job_id(record.name, attempt))) and job.has_ended and self._is_ours(job):
            attempt += 1
        return attempt

    def _change(self, record: Record, changed: Record) -> None:
        if changed != record:
            self._keep(changed)

    def _act(self, record: Record, jobs: Mapping[str, JobView], now: Standing | None, placement: Placement) -> None:
        """Does for one search what its record tells."""
        if record.state == "stopping":
            self._stop_job(record, jobs)
            return
        limit = placement.limits.get(record.name)
        if limit is not None and (now is None or now.limit != limit):
            folder = self._storage / record.name
            with of_run(folder):
                send_limit(folder, limit)
            self._sent[record.name] = limit
        if record.state == "starting" and job_id(record.name, record.attempt) not in jobs:
            self._start(record)

    def _start(self, record: Record) -> None:
        with tempfile.TemporaryDirectory(prefix="tuner-code-") as folder:
            try:
                file = self._code.lay_out(record.submission, Path(folder))
            except InputError as error:
                with self._mutex:
                    self._keep(replace(record, state="failed", reason=str(error)))
                return
            began = self._cluster.start(job_of(record, self._storage, file), Path(folder), record.attempt)
        with self._mutex:
            if began and self._records[record.name] == record:  # else the next pass sees whose job there is
                self._keep(replace(record, state="running"))


def _turn(record: Record) -> tuple[int, float, str]:
    """By which searches that wait are sorted."""
    return -record.priority, record.submitted, record.name
