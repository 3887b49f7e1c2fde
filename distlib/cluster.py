"""A cluster that jobs share: who runs when, and where, as an orchestrator decides it.

Events on a heap: submissions, ends, failures. After all events of one instant a policy looks at the queue and says
which jobs start on which nodes. A policy knows a job's time *limit*, not its run time. All of a job's GPUs start
together (a gang), except in `one_by_one`. A failure or a preemption ends an allocation; what was not checkpointed is
lost, as in Principle 12, and the job waits again for the rest.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

import numpy as np

from distlib.alphabeta import Link
from distlib.checkpoint import exponential_failures, system_mtbf
from distlib.collectives import hierarchical_all_reduce
from distlib.domain import COUNT, FRACTION, NONNEGATIVE, POSITIVE, Domain, Real, at_least, check, domain, whole

POSITIVE_OR_NEVER = Domain("a number > 0", lambda x: x > 0)


@domain(nodes=COUNT, gpus=COUNT, levels=COUNT, oversubscription=at_least(1))
@dataclass(frozen=True)
class Site:
    """`nodes` nodes of `gpus` GPUs; `levels`: nodes below one switch, from the leaves up (none: one switch).

    `oversubscription` is a leaf switch's bandwidth down, to its nodes, over its bandwidth up, to other leaves.
    """

    nodes: int
    gpus: int
    levels: Sequence[int] = ()
    oversubscription: float = 1.0

    @property
    def leaf(self) -> int:
        """Nodes below a leaf switch."""
        return int(self.levels[0]) if len(self.levels) else self.nodes


@domain(submit=NONNEGATIVE, nodes=COUNT, gpus=COUNT, run=POSITIVE, limit=POSITIVE, interval=POSITIVE_OR_NEVER,
        write=NONNEGATIVE, restart=NONNEGATIVE, step=NONNEGATIVE)  # fmt: skip
@dataclass(frozen=True)
class Job:
    """A job: when it comes, `nodes` nodes with `gpus` GPUs on each, work `run` in s, time limit in s from a start.

    A checkpoint of `write` s follows each `interval` s of work (∞: none); a restart takes `restart` s, a step `step` s.
    """

    name: str
    submit: float
    nodes: int
    gpus: int
    run: float
    limit: float
    account: str = ""
    priority: int = 0
    interval: float = math.inf
    write: float = 0.0
    restart: float = 0.0
    step: float = 0.0


# --- where: nodes for one job, from the GPUs free on each; None if there are too few ---------------------------------

Place = Callable[[Site, np.ndarray, Job], np.ndarray | None]


def spread(site: Site, free: np.ndarray, job: Job) -> np.ndarray | None:
    """The most free nodes first, leaf by leaf in turn: what balances load, and scatters a job."""
    able = np.flatnonzero(free >= job.gpus)
    if able.size < job.nodes:
        return None
    leaf = able // site.leaf
    turn = np.arange(able.size) - np.searchsorted(leaf, leaf)  # a node's place among those of its leaf
    return np.sort(able[np.lexsort((able, turn, -free[able]))][: job.nodes])


def packed(site: Site, free: np.ndarray, job: Job) -> np.ndarray | None:
    """The tightest of the lowest switches that hold the job, in it the fewest leaves: Slurm's `topology/tree`.

    Leaves are filled fullest first, until one can take all the rest; the tightest that can takes it. A job of one node
    goes to the node with the fewest free GPUs that suffice.
    """
    able = np.flatnonzero(free >= job.gpus)
    if able.size < job.nodes:
        return None
    if job.nodes == 1:
        return able[[np.argmin(free[able])]]

    def tightest(room: np.ndarray, nodes: int) -> int | None:
        enough = np.flatnonzero(room >= nodes)
        return int(enough[np.argmin(room[enough])]) if enough.size else None

    for size in site.levels:
        switch = able // int(size)
        best = tightest(np.bincount(switch), job.nodes)
        if best is not None:
            able = able[switch == best]
            break
    leaf = able // site.leaf
    room, chosen, rest = np.bincount(leaf), [], job.nodes
    while rest > 0:
        best = tightest(room, rest)
        best = int(np.argmax(room)) if best is None else best
        chosen.append(able[leaf == best][:rest])
        rest -= chosen[-1].size
        room[best] = 0
    return np.sort(np.concatenate(chosen))


# --- what a placement costs an all-reduce ----------------------------------------------------------------------------


def crossing_share(nodes: Sequence[int], leaf: int) -> float:
    """x: of a ring over `nodes` in this order, the share of hops out of a leaf that leave it, at the worst leaf."""
    home = np.asarray(nodes) // leaf
    leaves = home != np.roll(home, -1)
    return float(np.max(np.bincount(home, leaves)[home] / np.bincount(home)[home]))


def placed_all_reduce(n: Real, nodes: Sequence[int], site: Site, intra: Link, inter: Link, rails: int) -> Real:
    """`hierarchical_all_reduce` with β_inter/max(1, x·oversubscription), x the `crossing_share`.

    The ring visits `nodes` in the order given. The other jobs of a leaf load its uplinks as this one does.
    """
    crowding = max(1.0, site.oversubscription * crossing_share(nodes, site.leaf))
    across = Link(inter.alpha, inter.beta / crowding)
    return hierarchical_all_reduce(n, len(nodes) * site.gpus, site.gpus, intra, across, rails)


@domain(share=FRACTION)
def placed_slowdown(share: Real, placed: Real, packed: Real) -> Real:
    """1 + share·(T_placed/T_packed − 1): a step of which the all-reduce is `share`, exposed, when it is packed."""
    return 1 + share * (np.divide(placed, packed) - 1)


# --- what happened ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Allocation:
    """Nodes that a job (None: a repair) had from `start` to `end`, and how it spent each second on them.

    `work` is kept; `slow` was added to it by a bad placement; `write`, `lost` and `restart` are Principle 12's.
    """

    job: Job | None
    nodes: np.ndarray
    gpus: int
    start: float
    end: float  # once it is over; while it lasts, the latest that it can be
    work: float = 0.0
    slow: float = 0.0
    write: float = 0.0
    lost: float = 0.0
    restart: float = 0.0

    @property
    def size(self) -> int:
        """GPUs."""
        return self.nodes.size * self.gpus


@dataclass
class Result:
    """What `simulate` saw. GPU-seconds idle, and of them `fragmented`: the first job in the queue needed no more GPUs
    than were free, but they lay on the wrong nodes. `promised`: the first start that a policy planned for a job."""

    site: Site
    jobs: Sequence[Job]
    begin: float
    end: float = field(init=False)
    idle: float = 0.0
    fragmented: float = 0.0
    past: list[Allocation] = field(default_factory=list)
    promised: dict[str, float] = field(default_factory=dict)
    timed_out: list[str] = field(default_factory=list)

    @property
    def capacity(self) -> float:
        """GPU-seconds from the first submission to the last end."""
        return self.site.nodes * self.site.gpus * (self.end - self.begin)

    def spent(self, part: str) -> float:
        """GPU-seconds of "work", "slow", "write", "lost" or "restart", over all jobs."""
        return sum(getattr(a, part) * a.size for a in self.past)

    @property
    def down(self) -> float:
        """GPU-seconds of nodes under repair."""
        return sum((a.end - a.start) * a.size for a in self.past if a.job is None)

    @property
    def goodput(self) -> float:
        """Kept work over `capacity`."""
        return self.spent("work") / self.capacity

    @property
    def utilisation(self) -> float:
        """Allocated GPU-seconds, whatever became of them, over `capacity`."""
        return sum((a.end - a.start) * a.size for a in self.past if a.job) / self.capacity

    @property
    def fragmentation(self) -> float:
        """`fragmented` over `capacity`."""
        return self.fragmented / self.capacity

    @property
    def starts(self) -> dict[str, float]:
        """Each job's first start."""
        return {a.job.name: a.start for a in sorted(self.past, key=lambda a: -a.start) if a.job}

    @property
    def ends(self) -> dict[str, float]:
        """Each job's last end."""
        return {a.job.name: a.end for a in sorted(self.past, key=lambda a: a.end) if a.job}

    @property
    def waits(self) -> np.ndarray:
        """First start − submission, in s, in the order of `jobs`."""
        starts = self.starts
        return np.array([starts[job.name] - job.submit for job in self.jobs])

    def slowdowns(self, bound: float = 10.0) -> np.ndarray:
        """Bounded slowdown max(1, (end − submit)/max(run, bound)), in the order of `jobs`."""
        ends = self.ends
        return np.array([max(1.0, (ends[j.name] - j.submit) / max(j.run, bound)) for j in self.jobs])


# --- when: policies --------------------------------------------------------------------------------------------------

Release = tuple[float, np.ndarray, int]  # when, which nodes, how many GPUs on each


@dataclass
class Queue:
    """What a policy sees at `now`: GPUs free on each node, releases to come by the limits, jobs in order."""

    site: Site
    place: Place
    now: float
    free: np.ndarray
    releases: list[Release]
    waiting: list[Job]


#: Jobs that start now, with their nodes, and the starts planned for others.
Decision = tuple[list[tuple[Job, np.ndarray]], dict[str, float]]
Policy = Callable[[Queue], Decision]
#: A release by its time.
WHEN = itemgetter(0)


def fifo(queue: Queue) -> Decision:
    """In order; the first job that does not fit holds up all others."""
    free, starts = queue.free.copy(), []
    for job in queue.waiting:
        nodes = queue.place(queue.site, free, job)
        if nodes is None:
            break
        free[nodes] -= job.gpus
        starts.append((job, nodes))
    return starts, {}


def best_effort(queue: Queue) -> Decision:
    """In order, whatever fits starts, and nobody is promised anything: Kueue's default, and a large job may starve."""
    free, starts = queue.free.copy(), []
    for job in queue.waiting:
        nodes = queue.place(queue.site, free, job)
        if nodes is not None:
            free[nodes] -= job.gpus
            starts.append((job, nodes))
    return starts, {}


def easy(queue: Queue) -> Decision:
    """FIFO, and the first job that does not fit gets a reservation; later ones may start if they respect it.

    The reservation is the earliest instant at which, by the limits, enough is free. A later job respects it that ends
    by then, or that leaves the reserved GPUs alone.
    """
    starts, _ = fifo(queue)
    waiting, free, releases = queue.waiting[len(starts) :], queue.free.copy(), list(queue.releases)
    for job, nodes in starts:
        free[nodes] -= job.gpus
        releases.append((queue.now + job.limit, nodes, job.gpus))
    if not waiting:
        return starts, {}
    head, then, shadow = waiting[0], free.copy(), queue.now
    for shadow, together in itertools.groupby(sorted(releases, key=WHEN), WHEN):  # noqa: B007
        for _, nodes, gpus in together:
            then[nodes] += gpus
        if np.count_nonzero(then >= head.gpus) >= head.nodes:
            break
    then[queue.place(queue.site, then, head)] -= head.gpus
    for job in waiting[1:]:
        if np.count_nonzero(free >= job.gpus) < job.nodes:
            continue
        brief = queue.now + job.limit <= shadow
        chosen = queue.place(queue.site, free if brief else np.minimum(free, then), job)
        if chosen is not None:
            free[chosen] -= job.gpus
            then[chosen] -= 0 if brief else job.gpus
            starts.append((job, chosen))
    return starts, {head.name: shadow}


def conservative(queue: Queue) -> Decision:
    """Each job in order gets the earliest place that respects the reservations of all before it: Slurm's default."""
    starts, planned, profile = [], {}, Profile(queue)
    for job in queue.waiting:
        start, nodes = profile.earliest(job)
        profile.reserve(start, start + job.limit, nodes, job.gpus)
        if start == queue.now:
            starts.append((job, nodes))
        else:
            planned[job.name] = start
    return starts, planned


class Profile:
    """GPUs free on each node from each of a list of instants on, by the limits and the reservations made."""

    def __init__(self, queue: Queue):
        self.site, self.place = queue.site, queue.place
        self.times, self.free = [queue.now], [queue.free.copy()]
        for end, together in itertools.groupby(sorted(queue.releases, key=WHEN), WHEN):
            self.times.append(end)
            self.free.append(self.free[-1].copy())
            for _, nodes, gpus in together:
                self.free[-1][nodes] += gpus

    def earliest(self, job: Job) -> tuple[float, np.ndarray]:
        """The first instant from which enough nodes are free for the job's limit, and the nodes."""
        for i, start in enumerate(self.times):
            window = self.free[i]
            for time, free in zip(self.times[i + 1 :], self.free[i + 1 :], strict=True):
                if time >= start + job.limit or np.count_nonzero(window >= job.gpus) < job.nodes:
                    break
                window = np.minimum(window, free)
            nodes = self.place(self.site, window, job)
            if nodes is not None:
                return start, nodes
        raise AssertionError("the last instant has the whole site free")

    def reserve(self, start: float, end: float, nodes: np.ndarray, gpus: int) -> None:
        """Take `gpus` GPUs on each of `nodes` from `start` to `end`."""
        for time in (start, end):
            if time not in self.times:
                i = next((i for i, t in enumerate(self.times) if t > time), len(self.times))
                self.times.insert(i, time)
                self.free.insert(i, self.free[i - 1].copy())
        for time, free in zip(self.times, self.free, strict=True):
            if start <= time < end:
                free[nodes] -= gpus


@domain(step=NONNEGATIVE, write=NONNEGATIVE)
def signal_lead(step: Real, write: Real) -> Real:
    """step + T_write: the notice before a kill that lets the step under way end and a checkpoint be written."""
    return step + write


# --- a cluster's days ------------------------------------------------------------------------------------------------


@domain(usage=NONNEGATIVE, share=POSITIVE)
def fair_share_factor(usage: Real, share: Real) -> Real:
    """2^(−U/S): 1 for an account that used nothing, 1/2 for one that used its share; U and S are parts of the whole."""
    return 2.0 ** -np.divide(usage, share)


def allocation_time(job: Job, rest: float, factor: float, restarted: bool) -> float:
    """R + f·w + ⌈f·w/τ⌉·T_write: from start to end, `rest` w of work, slowed by f; R only after a kill."""
    return restarted * job.restart + factor * rest + math.ceil(factor * rest / job.interval - 1e-9) * job.write


def cut_allocation(job: Job, seconds: float, factor: float, restarted: bool, saved: bool) -> dict[str, float]:
    """How an allocation spent its time when it is cut after `seconds`; `saved`: it wrote a checkpoint just before."""
    restart = min(seconds, restarted * job.restart)
    body = seconds - restart
    saved = saved and body >= job.write
    segments = math.floor((body - saved * job.write) / (job.interval + job.write) + 1e-9)
    work = segments * job.interval if segments else 0.0
    write = segments * job.write
    if saved:
        work += min(job.interval, body - work - write - job.write)
        write = body - work
    lost = body - work - write
    return {"work": work / factor, "slow": work - work / factor, "write": write, "lost": lost, "restart": restart}


END, FAIL, SUBMIT = range(3)  # the order of events at one instant


@domain(half_life=POSITIVE_OR_NEVER, notice=NONNEGATIVE, mtbf=POSITIVE_OR_NEVER, repair=NONNEGATIVE)
@dataclass
class Simulation:
    """See `simulate`. Its state: a heap of events, the queue, and who holds which GPUs."""

    jobs: Sequence[Job]
    site: Site
    policy: Policy
    place: Place = packed
    slowdown: Callable[[Job, np.ndarray], float] = lambda job, nodes: 1.0
    shares: Mapping[str, float] = field(default_factory=dict)
    half_life: float = math.inf
    preempt: bool = False
    notice: float = 0.0
    mtbf: float = math.inf
    repair: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for job in self.jobs:
            if job.gpus > self.site.gpus or job.nodes > self.site.nodes:
                raise ValueError(f"{job.name} needs {job.nodes} × {job.gpus} GPUs, more than the site has")
            if self.shares and job.account not in self.shares:
                raise ValueError(f"{job.name} needs a share for its account {job.account!r}")
        self.rest = {job.name: job.run for job in self.jobs}  # work to do
        if len(self.rest) < len(self.jobs):
            raise ValueError("two jobs have one name")
        self.now = min(job.submit for job in self.jobs)
        self.result = Result(self.site, self.jobs, self.now)
        self.order = {job.name: i for i, job in enumerate(self.jobs)}
        self.free = np.full(self.site.nodes, self.site.gpus)
        self.serial, self.rng = itertools.count(), np.random.default_rng(self.seed)
        self.events: list[tuple[float, int, int, Any]] = []
        self.active: dict[int, Allocation] = {}
        self.factors: dict[int, float] = {}  # by which a placement slows its job
        self.leaving: set[int] = set()  # allocations that were warned
        self.waiting: list[Job] = []
        self.killed: set[str] = set()
        self.usage = dict.fromkeys(self.shares, 0.0)  # decayed GPU-seconds of each account
        for job in self.jobs:
            self.post(job.submit, SUBMIT, job)
        self.post_failure()

    def run(self) -> Result:
        """Instant by instant, until no work is left."""
        while self.rest:
            self.advance()
            if self.preempt and self.waiting:
                self.make_room(self.waiting[0])
            releases = [(held.end, held.nodes, held.gpus) for held in self.active.values()]
            queue = Queue(self.site, self.place, self.now, self.free.copy(), releases, self.waiting.copy())
            starts, planned = self.policy(queue)
            for job, nodes in starts:
                self.begin(job, nodes)
            self.result.promised = planned | self.result.promised
        for key in list(self.active):
            self.end(key, False)
        self.result.end = self.now
        return self.result

    def post(self, time: float, kind: int, what: Any) -> None:
        """Put an event on the heap."""
        heapq.heappush(self.events, (time, kind, next(self.serial), what))

    def post_failure(self) -> None:
        """Draw the next failure of a node: when, and which."""
        if self.mtbf < math.inf:
            gap = exponential_failures(system_mtbf(self.mtbf, self.site.nodes)).draw(self.rng, 1)[0]
            self.post(self.now + gap, FAIL, int(self.rng.integers(self.site.nodes)))

    def advance(self) -> None:
        """Go to the next instant at which something happens, and let it happen."""
        span = self.events[0][0] - self.now
        self.result.idle += span * self.free.sum()
        if self.waiting and self.waiting[0].nodes * self.waiting[0].gpus <= self.free.sum():
            self.result.fragmented += span * self.free.sum()
        kept = 2.0 ** (-span / self.half_life)
        gained = span if self.half_life == math.inf else self.half_life / math.log(2) * (1 - kept)  # ∫ 2^(−t/half-life)
        for account in self.usage:
            held = sum(a.size for a in self.active.values() if a.job and a.job.account == account)
            self.usage[account] = self.usage[account] * kept + gained * held
        self.now = self.events[0][0]
        while self.events and self.events[0][0] == self.now:
            _, kind, _, what = heapq.heappop(self.events)
            if kind == SUBMIT:
                self.waiting.append(what)
            elif kind == FAIL:
                self.fail(what)
            elif what in self.active:
                self.end(what, self.saves(self.active[what].job))
        self.waiting.sort(key=self.rank)

    def rank(self, job: Job) -> tuple[float, float, int]:
        """The lowest is first in the queue."""
        total = sum(self.usage.values())
        factor = fair_share_factor(self.usage[job.account] / total, self.shares[job.account]) if total else 1.0
        return -job.priority, -factor, self.order[job.name]

    def saves(self, job: Job | None) -> bool:
        """Whether a job that is warned saves in time."""
        return job is not None and job.write > 0 and signal_lead(job.step, job.write) <= self.notice

    def length(self, job: Job, factor: float) -> float:
        return allocation_time(job, self.rest[job.name], factor, job.name in self.killed)

    def begin(self, job: Job, nodes: np.ndarray) -> None:
        """Start a job, up to its end or its limit."""
        key, factor = next(self.serial), self.slowdown(job, nodes)
        self.free[nodes] -= job.gpus
        self.active[key] = Allocation(job, nodes, job.gpus, self.now, self.now + job.limit)
        self.factors[key] = factor
        self.post(self.now + min(self.length(job, factor), job.limit), END, key)
        self.waiting.remove(job)

    def end(self, key: int, saved: bool) -> None:
        """End an allocation, for whatever reason, and put its job back into the queue if work is left."""
        held, parts = self.active.pop(key), {}
        self.leaving.discard(key)
        self.free[held.nodes] += held.gpus
        if (job := held.job) is not None:
            factor, restarted, seconds = self.factors.pop(key), job.name in self.killed, self.now - held.start
            parts = cut_allocation(job, seconds, factor, restarted, saved)
            if self.now >= held.start + self.length(job, factor):
                work, restart = self.rest[job.name], restarted * job.restart
                parts = {"work": work, "slow": work * (factor - 1), "restart": restart,
                         "write": seconds - work * factor - restart, "lost": 0.0}  # fmt: skip
            elif self.now >= held.start + job.limit and not parts["work"]:
                self.result.timed_out.append(job.name)
                self.rest[job.name] = 0.0
            self.killed.add(job.name)
            self.rest[job.name] -= parts["work"]
            if self.rest[job.name] > 0:
                self.waiting.append(job)
            else:
                del self.rest[job.name]
        past = Allocation(held.job, held.nodes, held.gpus, held.start, self.now, **parts)
        self.result.past.append(past)

    def fail(self, node: int) -> None:
        """A node breaks, unless it is broken: its jobs are killed, and a repair holds it."""
        self.post_failure()
        here = [key for key, held in self.active.items() if node in held.nodes]
        if any(self.active[key].job is None for key in here):
            return
        for key in here:
            self.end(key, False)
        if self.repair:
            self.free[node] -= self.site.gpus
            key = next(self.serial)
            until = self.now + self.repair
            self.active[key] = Allocation(None, np.array([node]), self.site.gpus, self.now, until)
            self.post(until, END, key)

    def make_room(self, job: Job) -> None:
        """Warn jobs of lower priority, the lowest and latest first, until `job` will fit; none if it never would."""
        then, warned = self.free.copy(), []

        def fits() -> bool:
            return bool(np.count_nonzero(then >= job.gpus) >= job.nodes)

        for key in self.leaving:
            then[self.active[key].nodes] += self.active[key].gpus
        lower = sorted((held.job.priority, -held.start, key) for key, held in self.active.items()
                       if held.job and held.job.priority < job.priority and key not in self.leaving)  # fmt: skip
        while lower and not fits():
            warned.append(lower.pop(0)[-1])
            then[self.active[warned[-1]].nodes] += self.active[warned[-1]].gpus
        for key in warned if fits() else []:
            held = self.active[key]
            saved = self.saves(held.job)
            grace = signal_lead(held.job.step, held.job.write) if saved and held.job else self.notice
            if grace:
                self.leaving.add(key)
                self.active[key] = replace(held, end=min(held.end, self.now + grace))
                self.post(self.now + grace, END, key)
            else:
                self.end(key, False)
        self.waiting.sort(key=self.rank)


def simulate(jobs: Sequence[Job], site: Site, policy: Policy, place: Place = packed, **how: Any) -> Result:
    """Run `jobs` on `site` until all have ended; `how`: the other fields of `Simulation`.

    `slowdown(job, nodes)` is the factor by which a placement stretches a job's work. The queue is ordered by priority,
    then, if there are `shares`, by `fair_share_factor` of the accounts' GPU-seconds, which halve every `half_life` s,
    then by submission. With `preempt`, the first job in the queue may end jobs of lower priority, the latest first.
    `notice`: seconds between a signal and the kill, at a preemption and at a time limit; a job saves if its step and
    its write fit. Nodes fail with `mtbf` each, and are under `repair` afterwards. Killed jobs wait again; one whose
    time limit ends before anything is kept has timed out.
    """
    return Simulation(jobs, site, policy, place, **how).run()


@domain(gpus=COUNT)
def one_by_one(jobs: Iterable[Job], gpus: int) -> dict[str, float]:
    """Each job's start when workers are placed one by one, a worker a GPU: in turn over the jobs that still lack some.

    A job runs once it has all its workers, and what it holds meanwhile no other can use. A job that is not in the
    answer never starts: when nothing runs and nothing more comes, those that hold a part are in deadlock.
    """
    coming = sorted(jobs, key=lambda job: job.submit)
    held: dict[str, int] = {}
    starts: dict[str, float] = {}
    running: list[tuple[float, int]] = []
    lacking: list[Job] = []
    while coming or running:
        now = min([job.submit for job in coming[:1]] + [end for end, _ in running[:1]])
        while running and running[0][0] == now:
            gpus += heapq.heappop(running)[1]
        while coming and coming[0].submit == now:
            lacking.append(coming.pop(0))
        while gpus and lacking:
            job = lacking.pop(0)
            need = job.nodes * job.gpus
            held[job.name] = held.get(job.name, 0) + 1
            gpus -= 1
            if held[job.name] < need:
                lacking.append(job)
            else:
                starts[job.name] = now
                heapq.heappush(running, (now + job.run, need))
    return starts


# --- jobs from what is published of real ones -------------------------------------------------------------------------


@domain(mean_run=POSITIVE, median_run=POSITIVE, mean_gpus=at_least(1.5), largest=whole(4), gpu_time=POSITIVE)
@dataclass(frozen=True)
class Marginals:
    """What is known of a cluster's jobs: run time in s, GPUs, and the mean of their product, in GPU-seconds a job."""

    mean_run: float
    median_run: float
    mean_gpus: float
    largest: int
    gpu_time: float


@domain(mean=POSITIVE, median=POSITIVE)
def lognormal(mean: float, median: float) -> tuple[float, float]:
    """(μ, σ) of a lognormal: median e^μ, mean e^(μ + σ²/2); so E[x²]/E[x]² = (mean/median)²."""
    return math.log(median), math.sqrt(2 * math.log(mean / median))


@domain(mean=at_least(1.5), largest=whole(4))
def gpu_counts(mean: float, largest: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts 1, 2, 4, … `largest` and their probabilities: half of all jobs have one GPU, the rest fall as r^k.

    A half is the least that makes the median one; r is what gives the mean, which is below (1 + largest)/2.
    """
    from scipy.optimize import brentq

    check("mean", mean, Domain(f"< (1 + {largest})/2", lambda mean: mean < (1 + largest) / 2))
    counts = 2 ** np.arange(int(math.log2(largest)) + 1)

    def chances(r: float) -> np.ndarray:
        tail = r ** np.arange(counts.size - 1.0)
        return np.concatenate([[0.5], 0.5 * tail / tail.sum()])

    r = brentq(lambda r: chances(r) @ counts - mean, 0.0, 1e6)
    return counts, chances(r)


def correlation(like: Marginals) -> float:
    """ρ between the normal scores of a job's size and of its run time that gives its `gpu_time`.

    With Φ the normal distribution and z the scores at which the size changes, E[gpus·run] =
    E[run]·Σ gpus·(Φ(z_above − ρσ) − Φ(z_below − ρσ)): the sizes that a second of run time is spent in.
    """
    from scipy.optimize import brentq
    from scipy.stats import norm

    counts, chances = gpu_counts(like.mean_gpus, like.largest)
    edges = norm.ppf([0, *np.cumsum(chances)[:-1], 1])
    sigma = lognormal(like.mean_run, like.median_run)[1]
    return brentq(
        lambda rho: like.mean_run * counts @ np.diff(norm.cdf(edges - rho * sigma)) - like.gpu_time, -0.999, 0.999
    )  # fmt: skip


@domain(count=COUNT, load=POSITIVE)
def workload(count: int, load: float, site: Site, like: Marginals, seed: int = 0) -> list[Job]:
    """`count` jobs that come as a Poisson process: run times `lognormal`, GPUs `gpu_counts`, joined by `correlation`.

    Up to the last submission they bring `load` of the GPU-seconds that the site has until then. Time limits are one to
    four times the run time, in whole minutes.
    """
    from scipy.stats import norm

    rng = np.random.default_rng(seed)
    mu, sigma = lognormal(like.mean_run, like.median_run)
    counts, chances = gpu_counts(like.mean_gpus, like.largest)
    rho = correlation(like)
    size, other = rng.standard_normal((2, count))
    gpus = counts[np.searchsorted(np.cumsum(chances)[:-1], norm.cdf(size))]
    run = np.maximum(1.0, np.exp(mu + sigma * (rho * size + math.sqrt(1 - rho**2) * other)))
    submit = np.cumsum(rng.exponential(1.0, count))
    submit *= run @ gpus / (load * site.nodes * site.gpus * submit[-1])
    limit = 60 * np.ceil(run * rng.uniform(1, 4, count) / 60)
    nodes, each = np.maximum(1, gpus // site.gpus), np.minimum(gpus, site.gpus)
    return [
        Job(f"{i}", float(submit[i]), int(nodes[i]), int(each[i]), float(run[i]), float(limit[i]))
        for i in range(count)
    ]  # fmt: skip
