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

import numpy as np

from distlib.alphabeta import Link
from distlib.checkpoint import exponential_failures, system_mtbf
from distlib.collectives import hierarchical_all_reduce
from distlib.domain import COUNT, FRACTION, NONNEGATIVE, POSITIVE, Domain, Real, at_least, domain

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


# --- where: nodes for one job, from the GPUs free on each; None if there are too few --------------------------------

Place = Callable[[Site, np.ndarray, Job], np.ndarray | None]


def first_fit(site: Site, free: np.ndarray, job: Job) -> np.ndarray | None:
    """The lowest numbers."""
    able = np.flatnonzero(free >= job.gpus)
    return able[: job.nodes] if able.size >= job.nodes else None


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
        return enough[np.argmin(room[enough])] if enough.size else None

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
        best = np.argmax(room) if best is None else best
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


# --- what happened -----------------------------------------------------------------------------------------------------


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
    end: float = 0.0
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


# --- when: policies ----------------------------------------------------------------------------------------------------

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


@dataclass
class Decision:
    """Jobs that start now, with their nodes, and the starts planned for later ones."""

    starts: list[tuple[Job, np.ndarray]] = field(default_factory=list)
    planned: dict[str, float] = field(default_factory=dict)


Policy = Callable[[Queue], Decision]


def _when(release: Release) -> float:
    return release[0]


def fifo(queue: Queue) -> Decision:
    """In order; the first job that does not fit holds up all others."""
    free, decision = queue.free.copy(), Decision()
    for job in queue.waiting:
        nodes = queue.place(queue.site, free, job)
        if nodes is None:
            break
        free[nodes] -= job.gpus
        decision.starts.append((job, nodes))
    return decision


def easy(queue: Queue) -> Decision:
    """FIFO, and the first job that does not fit gets a reservation; later ones may start if they respect it.

    The reservation is the earliest instant at which, by the limits, enough is free. A later job respects it that ends
    by then, or that leaves the reserved GPUs alone.
    """
    decision = fifo(queue)
    waiting, free = queue.waiting[len(decision.starts) :], queue.free.copy()
    releases = list(queue.releases)
    for job, nodes in decision.starts:
        free[nodes] -= job.gpus
        releases.append((queue.now + job.limit, nodes, job.gpus))
    if not waiting:
        return decision
    head, then = waiting[0], free.copy()
    for shadow, together in itertools.groupby(sorted(releases, key=_when), _when):
        for _, nodes, gpus in together:
            then[nodes] += gpus
        if np.count_nonzero(then >= head.gpus) >= head.nodes:
            break
    then[queue.place(queue.site, then, head)] -= head.gpus
    decision.planned[head.name] = shadow
    able = {gpus: np.count_nonzero(free >= gpus) for gpus in {job.gpus for job in waiting}}
    for job in waiting[1:]:
        if job.nodes > able[job.gpus]:
            continue
        brief = queue.now + job.limit <= shadow
        nodes = queue.place(queue.site, free if brief else np.minimum(free, then), job)
        if nodes is not None:
            free[nodes] -= job.gpus
            then[nodes] -= 0 if brief else job.gpus
            decision.starts.append((job, nodes))
            able = {gpus: np.count_nonzero(free >= gpus) for gpus in able}
    return decision


def conservative(queue: Queue) -> Decision:
    """Each job in order gets the earliest place that respects the reservations of all before it: Slurm's default."""
    decision, profile = Decision(), Profile(queue)
    for job in queue.waiting:
        start, nodes = profile.earliest(job)
        profile.reserve(start, start + job.limit, nodes, job.gpus)
        if start == queue.now:
            decision.starts.append((job, nodes))
        else:
            decision.planned[job.name] = start
    return decision


class Profile:
    """GPUs free on each node from each of a list of instants on, by the limits and the reservations made."""

    def __init__(self, queue: Queue):
        self.site, self.place = queue.site, queue.place
        self.times, self.free = [queue.now], [queue.free.copy()]
        for end, together in itertools.groupby(sorted(queue.releases, key=_when), _when):
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


def simulate(
    jobs: Sequence[Job], site: Site, policy: Policy, place: Place = packed, *,
    slowdown: Callable[[Job, np.ndarray], float] = lambda job, nodes: 1.0,
    shares: Mapping[str, float] | None = None, half_life: float = math.inf,
    preempt: bool = False, notice: float = 0.0, mtbf: float = math.inf, repair: float = 0.0, seed: int = 0,
) -> Result:  # fmt: skip
    """Run `jobs` on `site` until all have ended.

    The queue is ordered by priority, then `fair_share_factor` of the accounts' decayed GPU-seconds if there are
    `shares`, then submission. With `preempt`, the first job in the queue may end jobs of lower priority, the latest
    first. `notice`: seconds between a signal and the kill, at a preemption and at a time limit; a job saves if its
    step and its write fit. Nodes fail with `mtbf` each, and are under `repair` afterwards. Killed jobs wait again; one
    whose time limit ends before anything is kept has timed out.
    """
    _check_fit(jobs, site)
    rng, serial = np.random.default_rng(seed), itertools.count()
    order = {job.name: i for i, job in enumerate(jobs)}
    events: list = [(job.submit, SUBMIT, next(serial), job) for job in jobs]
    heapq.heapify(events)
    free = np.full(site.nodes, site.gpus)
    active: dict[int, Allocation] = {}
    factors: dict[int, float] = {}
    leaving: dict[int, float] = {}
    waiting: list[Job] = []
    rest = {job.name: job.run for job in jobs}
    killed: set[str] = set()
    usage = dict.fromkeys(shares or (), 0.0)
    now = min(job.submit for job in jobs)
    result = Result(site, jobs, now)

    def post(time: float, kind: int, what: object) -> None:
        heapq.heappush(events, (time, kind, next(serial), what))

    def fail_next() -> None:
        if mtbf < math.inf:
            gaps = exponential_failures(system_mtbf(mtbf, site.nodes))
            post(now + gaps.draw(rng, 1)[0], FAIL, int(rng.integers(site.nodes)))

    def saves(job: Job) -> bool:
        return 0 < job.write <= notice - job.step

    def begin(job: Job, nodes: np.ndarray) -> None:
        key, factor = next(serial), slowdown(job, nodes)
        free[nodes] -= job.gpus
        length = allocation_time(job, rest[job.name], factor, job.name in killed)
        active[key], factors[key] = Allocation(job, nodes, job.gpus, now, now + job.limit), factor
        post(now + min(length, job.limit), END, key)
        waiting.remove(job)

    def end(key: int, saved: bool) -> None:
        held, factor = active.pop(key), factors.pop(key, 1.0)
        leaving.pop(key, None)
        free[held.nodes] += held.gpus
        job, seconds, parts = held.job, now - held.start, {}
        if job:
            length = allocation_time(job, rest[job.name], factor, job.name in killed)
            if now >= held.start + length:
                work, restart = rest[job.name], (job.name in killed) * job.restart
                parts = {"work": work, "slow": work * (factor - 1), "restart": restart}
                parts["write"] = seconds - sum(parts.values())
            else:
                parts = cut_allocation(job, seconds, factor, job.name in killed, saved)
                killed.add(job.name)
            rest[job.name] -= parts["work"]
            if now >= held.start + job.limit and not parts["work"]:
                result.timed_out.append(job.name)
                rest[job.name] = 0.0
            if rest[job.name] > 0:
                waiting.append(job)
            else:
                del rest[job.name]
        result.past.append(replace(held, end=now, **parts))

    def fail(node: int) -> None:
        fail_next()
        here = [key for key, held in active.items() if node in held.nodes]
        if any(active[key].job is None for key in here):
            return
        for key in here:
            end(key, False)
        if repair:
            free[node] -= site.gpus
            key = next(serial)
            active[key] = Allocation(None, np.array([node]), site.gpus, now, now + repair)
            post(now + repair, END, key)

    def make_room(job: Job) -> None:
        then = free.copy()
        for key in leaving:
            then[active[key].nodes] += active[key].gpus
        victims = [(a.job.priority, -a.start, key) for key, a in active.items() if a.job and key not in leaving
                   and a.job.priority < job.priority]  # fmt: skip
        chosen = []
        for _, _, key in sorted(victims):
            if np.count_nonzero(then >= job.gpus) >= job.nodes:
                break
            then[active[key].nodes] += active[key].gpus
            chosen.append(key)
        if np.count_nonzero(then >= job.gpus) < job.nodes:
            return
        for key in chosen:
            victim = active[key].job
            grace = victim.step + victim.write if saves(victim) else notice
            if grace:
                leaving[key] = now + grace
                post(now + grace, END, key)
                active[key] = replace(active[key], end=min(active[key].end, now + grace))
            else:
                end(key, False)

    def rank(job: Job) -> tuple:
        total = sum(usage.values())
        factor = fair_share_factor(usage[job.account] / total, shares[job.account]) if shares and total else 1.0
        return -job.priority, -factor, order[job.name]

    fail_next()
    while rest:
        time, span = events[0][0], events[0][0] - now
        taken = {}
        for held in active.values():
            if held.job and held.job.account in usage:
                taken[held.job.account] = taken.get(held.job.account, 0.0) + held.size
        # ∫ 2^(−t/half_life) dt over the span, and what that span leaves of the usage before it.
        kept = 2.0 ** (-span / half_life)
        gained = span if half_life == math.inf else half_life / math.log(2) * (1 - kept)
        usage = {account: used * kept + gained * taken.get(account, 0) for account, used in usage.items()}
        result.idle += span * free.sum()
        if waiting and waiting[0].nodes * waiting[0].gpus <= free.sum():
            result.fragmented += span * free.sum()
        now = time
        while events and events[0][0] == now:
            _, kind, _, what = heapq.heappop(events)
            if kind == SUBMIT:
                waiting.append(what)
            elif kind == FAIL:
                fail(what)
            elif what in active:
                job = active[what].job
                end(what, job is not None and saves(job))
        waiting.sort(key=rank)
        if preempt and waiting:
            make_room(waiting[0])
            waiting.sort(key=rank)
        releases = [(held.end, held.nodes, held.gpus) for held in active.values()]
        decision = policy(Queue(site, place, now, free.copy(), releases, waiting.copy()))
        for job, nodes in decision.starts:
            begin(job, nodes)
        for name, start in decision.planned.items():
            result.promised.setdefault(name, start)
    for key in list(active):
        end(key, False)
    result.end = now
    return result


def _check_fit(jobs: Sequence[Job], site: Site) -> None:
    for job in jobs:
        if job.gpus > site.gpus or job.nodes > site.nodes:
            raise ValueError(f"{job.name} needs {job.nodes} × {job.gpus} GPUs, the site has {site.nodes} × {site.gpus}")
    if len({job.name for job in jobs}) < len(jobs):
        raise ValueError("two jobs have one name")


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


@domain(mean=POSITIVE, median=POSITIVE)
def lognormal(mean: float, median: float) -> tuple[float, float]:
    """(μ, σ) of a lognormal: median e^μ, mean e^(μ + σ²/2); so E[x²]/E[x]² = (mean/median)²."""
    return math.log(median), math.sqrt(2 * math.log(mean / median))


@domain(mean=POSITIVE, largest=COUNT)
def gpu_counts(mean: float, largest: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts 1, 2, 4, … `largest` and their probabilities: half of all jobs have one GPU, the rest fall as r^k.

    A half is the least that makes the median one; r is what gives the mean.
    """
    from scipy.optimize import brentq

    counts = 2 ** np.arange(int(math.log2(largest)) + 1)

    def chances(r: float) -> np.ndarray:
        tail = r ** np.arange(1.0, counts.size)
        return np.concatenate([[0.5], 0.5 * tail / tail.sum()])

    r = brentq(lambda r: chances(r) @ counts - mean, 1e-6, 1e3)
    return counts, chances(r)


@domain(count=COUNT, load=POSITIVE, mean_run=POSITIVE, median_run=POSITIVE, mean_gpus=POSITIVE, largest=COUNT)
def workload(
    count: int, load: float, site: Site, mean_run: float, median_run: float, mean_gpus: float, largest: int,
    seed: int = 0,
) -> list[Job]:  # fmt: skip
    """`count` jobs that come as a Poisson process, each property drawn on its own.

    Up to the last submission they bring `load` of the GPU-seconds that the site has until then. Run times are `lognormal`, counts are `gpu_counts`, time limits one to four times the run time, in whole minutes.
    """
    rng = np.random.default_rng(seed)
    mu, sigma = lognormal(mean_run, median_run)
    counts, chances = gpu_counts(mean_gpus, largest)
    run = np.maximum(1.0, rng.lognormal(mu, sigma, count))
    gpus = rng.choice(counts, count, p=chances)
    submit = np.cumsum(rng.exponential(1.0, count))
    submit *= run @ gpus / (load * site.nodes * site.gpus * submit[-1])
    limit = 60 * np.ceil(run * rng.uniform(1, 4, count) / 60)
    return [
        Job(f"{i}", float(submit[i]), max(1, int(gpus[i]) // site.gpus), min(int(gpus[i]), site.gpus), float(run[i]),
            float(limit[i]))
        for i in range(count)
    ]  # fmt: skip
