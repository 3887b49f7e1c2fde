"""Published measurements as records: each has its machine, its source and what is odd about it.

`distlib/data/collectives_sweeps.csv` has one row a sweep, `collectives_times.csv` one row a message size. The sizes
follow nccl-tests: the full array of an all-reduce, all-gather or reduce-scatter, a rank's buffer of an all-to-all,
the message of a broadcast, reduce or sendrecv. Times are of out-of-place calls (input and output buffers differ),
in every row; where the in-place time is printed too, it stands beside. A time that its source does not print is
computed from the printed bandwidth, and the sweep says `derived`.
"""

import csv
import difflib
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any

import numpy as np

from distlib.cluster import Marginals
from distlib.scaling import LossSurface
from distlib.units import GB, TB, day, hour, us


@dataclass(frozen=True, eq=False)
class Sweep:
    """One operation timed over message sizes. Arrays are read-only; nan where the source prints nothing."""

    id: str
    operation: str  # all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, sendrecv
    accelerator: str
    nodes: int
    gpus_per_node: int
    ranks: int
    fabric: str
    algorithm: str  # as the source states it; empty where it does not
    library: str
    repository: str
    path: str
    commit: str
    licence: str  # as the source states it; empty where it does not
    retrieved: str
    anomaly: str  # empty, or what sets the sweep apart from its like
    note: str
    derived: bool  # the time is computed from a printed bandwidth
    n: np.ndarray  # byte, increasing
    time: np.ndarray  # s, out-of-place
    time_in_place: np.ndarray  # s
    algbw: np.ndarray  # byte/s, as printed
    busbw: np.ndarray  # byte/s, as printed


def _rows(name: str) -> list[dict[str, str]]:
    text = (files("distlib") / "data" / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _column(rows: list[dict[str, str]], name: str, unit: float = 1.0) -> np.ndarray:
    values = np.array([float(row[name] or "nan") * unit for row in rows])
    values.flags.writeable = False
    return values


@cache
def _all() -> dict[str, Sweep]:
    times = {key: list(rows) for key, rows in groupby(_rows("collectives_times.csv"), lambda row: row["sweep"])}
    found = {}
    for row in _rows("collectives_sweeps.csv"):
        rows = times[row["id"]]
        counts = {name: int(row[name]) for name in ("nodes", "gpus_per_node", "ranks")}
        found[row["id"]] = Sweep(
            **{**row, **counts},  # type: ignore[arg-type]
            derived=any(r["derived"] for r in rows),
            n=_column(rows, "n_bytes"),
            time=_column(rows, "time_us", us),
            time_in_place=_column(rows, "time_in_place_us", us),
            algbw=_column(rows, "algbw_GBps", GB),
            busbw=_column(rows, "busbw_GBps", GB),
        )
    return found


def sweep(id: str) -> Sweep:
    """The sweep of that name. An unknown name raises ValueError that lists the near ones."""
    if id not in _all():
        near = difflib.get_close_matches(str(id), _all(), n=5, cutoff=0.3)
        raise ValueError(f"id must be a published sweep, got {id!r}; near it: {', '.join(near) or 'none'}")
    return _all()[id]


def sweeps(min_sizes: int = 1, **fields: Any) -> tuple[Sweep, ...]:
    """Every sweep of `min_sizes` message sizes or more whose fields equal those given.

    `sweeps(operation="all_reduce", nodes=1, min_sizes=10)`. An unknown field raises ValueError.
    """
    unknown = sorted(set(fields) - set(Sweep.__dataclass_fields__))
    if unknown:
        raise ValueError(f"a sweep has no field {', '.join(unknown)}; it has {', '.join(Sweep.__dataclass_fields__)}")
    return tuple(
        s for s in _all().values() if s.n.size >= min_sizes and all(getattr(s, k) == v for k, v in fields.items())
    )


# Reliability: `distlib/data/reliability.csv` has one row a fact, `llama3_interruptions.csv` one row a cause.

_SI = {
    "count": 1.0, "percent": 0.01, "s": 1.0, "hour": hour, "day": day, "GB": GB, "TB": TB, "TB/s": TB,
    "per 1000 node-days": 1 / (1000 * day), "ppl": 1.0, "nats/token": 1.0,
}  # fmt: skip


@dataclass(frozen=True)
class Reported:
    """One published fact of a training run's reliability, in SI: s, byte, byte/s, 1/s; a percentage is a share."""

    study: str
    quantity: str
    value: float
    gpus: int | None
    accelerator: str
    kind: str  # measured, specified, estimated, projected, or bound (at least or at most, see the note)
    source: str
    note: str


@dataclass(frozen=True)
class Interruption:
    """One cause of the unexpected interruptions of Llama 3: how many, and the share that the paper prints."""

    component: str
    category: str
    count: int
    printed_share: float
    source: str


@cache
def reliability() -> tuple[Reported, ...]:
    """Every published fact of reliability that the book uses."""
    return tuple(
        Reported(
            study=row["study"], quantity=row["quantity"], value=float(row["value"]) * _SI[row["unit"]],
            gpus=int(row["gpus"]) if row["gpus"] else None, accelerator=row["accelerator"], kind=row["kind"],
            source=row["source"], note=row["note"],
        )
        for row in _rows("reliability.csv")
    )  # fmt: skip


def reported(study: str, quantity: str) -> float:
    """The value, in SI, of one published fact: `reported("bloom", "write")`. An unknown one raises ValueError."""
    found = {(fact.study, fact.quantity): fact.value for fact in reliability()}
    if (study, quantity) not in found:
        known = ", ".join(f"{s} {q}" for s, q in sorted(found))
        raise ValueError(f"study and quantity must be one of {known}; got {study!r}, {quantity!r}")
    return found[study, quantity]


@cache
def llama3_interruptions() -> tuple[Interruption, ...]:
    """The causes of Llama 3's 419 unexpected interruptions in 54 days, most frequent first."""
    return tuple(
        Interruption(row["component"], row["category"], int(row["count"]), float(row["printed_percent"]) / 100,
                     row["source"])
        for row in _rows("llama3_interruptions.csv")
    )  # fmt: skip


# Scaling studies: runs of many sizes, and surfaces fitted to them (Principle 9)


@dataclass(frozen=True, eq=False)
class ScalingStudy:
    """The runs of one study of scaling. Arrays are read-only, a run (or a point of a loss curve) an element."""

    id: str
    models: str
    data: str
    paper: str
    repository: str
    path: str
    commit: str
    licence: str  # as the source states it; empty where it does not
    retrieved: str
    evaluation: str  # what the loss is measured on, or its unit where the source leaves it open
    note: str
    parameters: np.ndarray
    tokens: np.ndarray
    compute: np.ndarray  # FLOP, by the study's own count
    loss: np.ndarray  # nats/token unless `evaluation` says otherwise
    flag: np.ndarray  # empty, or why the source sets the run apart

    @property
    def runs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(P, D, 𝓛), as a fit takes them."""
        return self.parameters, self.tokens, self.loss

    def where(self, chosen: np.ndarray) -> "ScalingStudy":
        """The study with the chosen runs only."""
        names = ("parameters", "tokens", "compute", "loss", "flag")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    def split(self, compute: float) -> "tuple[ScalingStudy, ScalingStudy]":
        """The runs of at most `compute` FLOP, and those above."""
        return self.where(self.compute <= compute), self.where(self.compute > compute)


@cache
def _studies() -> dict[str, ScalingStudy]:
    runs = {key: list(rows) for key, rows in groupby(_rows("scaling_runs.csv"), lambda row: row["study"])}
    found = {}
    for row in _rows("scaling_studies.csv"):
        rows = runs[row["id"]]
        found[row["id"]] = ScalingStudy(
            **row,
            parameters=_column(rows, "parameters"),
            tokens=_column(rows, "tokens"),
            compute=_column(rows, "compute_flop"),
            loss=_column(rows, "loss"),
            flag=np.array([r["flag"] for r in rows]),
        )
    return found


def scaling_study(id: str) -> ScalingStudy:
    """The study of that name. An unknown name raises ValueError that lists the known ones."""
    if id not in _studies():
        raise ValueError(f"id must be one of {', '.join(_studies())}, got {id!r}")
    return _studies()[id]


def scaling_studies() -> tuple[ScalingStudy, ...]:
    """Every study of scaling."""
    return tuple(_studies().values())


def fitted_surface(id: str) -> LossSurface:
    """A published fit of the loss surface; distlib/data/scaling_fits.csv has the sources."""
    fits = {row["id"]: row for row in _rows("scaling_fits.csv")}
    if id not in fits:
        raise ValueError(f"id must be one of {', '.join(fits)}, got {id!r}")
    return LossSurface(**{name: float(fits[id][name]) for name in ("E", "A", "B", "a", "b")})


@dataclass(frozen=True)
class TrainingCost:
    """What a published model took to train, by its makers' account."""

    model: str
    parameters: float
    tokens: float
    accelerator: str
    hours: float  # accelerator-hours, all stages of the training
    source: str
    note: str


def training_costs() -> tuple[TrainingCost, ...]:
    """Models whose accelerator-hours, parameters and tokens are published."""
    numbers = ("parameters", "tokens", "hours")
    rows = _rows("training_costs.csv")
    return tuple(TrainingCost(**{**row, **{name: float(row[name]) for name in numbers}}) for row in rows)  # type: ignore[arg-type]


# Trainings that send less, or wait less (Principle 13)


@dataclass(frozen=True)
class Reduction:
    """One result of a training that communicates less or does not wait, in SI; a percentage is a share."""

    method: str
    model: str
    parameters: float
    tokens: float | None
    workers: int | None
    local_steps: int | None  # H
    quantity: str
    value: float
    kind: str  # measured, simulated (a model of the network), computed
    source: str
    note: str


@cache
def communication_reductions() -> tuple[Reduction, ...]:
    """Every published result on local steps and staleness that the book uses."""
    return tuple(
        Reduction(
            method=row["method"], model=row["model"], parameters=float(row["parameters_million"]) * 1e6,
            tokens=float(row["tokens_billion"]) * 1e9 if row["tokens_billion"] else None,
            workers=int(row["workers"]) if row["workers"] else None,
            local_steps=int(row["local_steps"]) if row["local_steps"] else None, quantity=row["quantity"],
            value=float(row["value"]) * _SI[row["unit"]], kind=row["kind"], source=row["source"], note=row["note"],
        )
        for row in _rows("comm_reduction.csv")
    )  # fmt: skip


def communication_reduction(method: str, quantity: str, tokens: float | None = None) -> float:
    """The value, in SI, of one such result: `communication_reduction("data parallel", "eval_loss", 25e9)`."""
    found = {(r.method, r.quantity, r.tokens): r.value for r in communication_reductions()}
    if (method, quantity, tokens) not in found:
        known = ", ".join(sorted(f"{m} {q}" + (f" {t:g}" if t else "") for m, q, t in found))
        raise ValueError(
            f"method, quantity and tokens must be one of {known}; got {method!r}, {quantity!r}, {tokens!r}"
        )
    return found[method, quantity, tokens]


# Strong scaling: one batch on more and more accelerators (Principle 10)


@dataclass(frozen=True, eq=False)
class StrongScaling:
    """Published step times of one system at one global batch, by the number of accelerators."""

    system: str
    model: str
    accelerator: str
    batch: int  # sequences, of all ranks
    tp: int
    pp: int
    virtual: int
    source: str
    note: str
    ranks: np.ndarray
    time: np.ndarray  # s, a step


@cache
def _strong_scalings() -> tuple[StrongScaling, ...]:
    found = []
    for (system, batch), group in groupby(_rows("strong_scaling.csv"), lambda row: (row["system"], row["batch"])):
        rows = list(group)
        first = rows[0]
        found.append(
            StrongScaling(
                system=system, batch=int(batch), model=first["model"], accelerator=first["accelerator"],
                tp=int(first["tp"]), pp=int(first["pp"]), virtual=int(first["virtual"]), source=first["source"],
                note=first["note"], ranks=_column(rows, "gpus"), time=_column(rows, "step_s"),
            )
        )  # fmt: skip
    return tuple(found)


def strong_scaling(system: str, batch: int) -> StrongScaling:
    """The step times of that system at that batch: `strong_scaling("MegaScale", 768)`."""
    found = {(s.system, s.batch): s for s in _strong_scalings()}
    if (system, batch) not in found:
        known = ", ".join(f"{s} {b}" for s, b in found)
        raise ValueError(f"system and batch must be one of {known}; got {system!r}, {batch!r}")
    return found[system, batch]


# --- what a real Slurm answered, and what is published of the jobs of clusters ---------------------------------------


@dataclass(frozen=True)
class SlurmPlan:
    """A job before a controller with four nodes: its start, real if it runs, else planned (None: not planned), in s."""

    policy: str
    job: str
    submit: float
    nodes: int
    limit: float
    running: bool
    start: float | None


@cache
def slurm_plans() -> tuple[SlurmPlan, ...]:
    """Six jobs before a real slurmctld, under conservative and under EASY backfill; 0 is the first job's start."""
    return tuple(
        SlurmPlan(row["policy"], row["job"], float(row["submit_s"]), int(row["nodes"]), float(row["limit_s"]),
                  row["state"] == "RUNNING", float(row["start_s"]) if row["start_s"] else None)
        for row in _rows("slurm_plans.csv")
    )  # fmt: skip


@dataclass(frozen=True)
class SlurmPlacement:
    """The nodes that a controller chose of 2,048, those of `drained` apart; `agrees`: as `cluster.packed` does."""

    drained: str
    nodes: int
    chosen: str
    agrees: bool


@cache
def slurm_placements() -> tuple[SlurmPlacement, ...]:
    """Requests for whole nodes before a real slurmctld with a tree of leaves of 32 nodes and pods of eight leaves."""
    return tuple(
        SlurmPlacement(row["drained"], int(row["nodes"]), row["chosen"], row["agrees"] == "yes")
        for row in _rows("slurm_placements.csv")
    )


@dataclass(frozen=True)
class ClusterJobs:
    """GPU jobs of a cluster, as its operators publish them; waits in s, from submission to start."""

    cluster: str
    jobs: int
    mean_wait: float
    median_wait: float
    marginals: Marginals


@cache
def cluster_jobs() -> dict[str, ClusterJobs]:
    """What is published of the jobs of four clusters, by name."""
    return {
        row["cluster"]: ClusterJobs(
            row["cluster"], int(row["jobs"]), float(row["mean_wait_s"]), float(row["median_wait_s"]),
            Marginals(float(row["mean_run_s"]), float(row["median_run_s"]), float(row["mean_gpus"]),
                      int(row["largest_gpus"]), float(row["gpu_seconds"]) / int(row["jobs"])),
        )
        for row in _rows("job_marginals.csv")
    }  # fmt: skip
