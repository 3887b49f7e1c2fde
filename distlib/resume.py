"""A small training that survives kills: real processes, sharded checkpoints, and the same bits at the end.

Each rank is a process. Together they train a network of one hidden layer by data parallelism with a sharded optimiser:
every rank holds the parameters, each the Adam moments of its slice only. What decides the next step (parameters,
moments, the order of the samples, the random generator) is written in shards, one a rank, and a checkpoint exists
from the moment its manifest is durable. A supervisor starts the ranks, hears each of their steps, and when one dies or
falls silent kills the rest and starts all of them again from the newest good checkpoint. The global batch is cut into
a fixed number of micro-batches whose gradients are added in their order, so that the sum, to the last bit, does not
depend on which rank computed which, nor on how many ranks there are.
"""

import hashlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, compress, count, product
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np

from distlib.domain import COUNT, POSITIVE, domain, whole

# Files that survive


class Disk:
    """The files of one folder; each method is a system call, or opens a file and makes one."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def create(self, name: str) -> None:
        """An empty file of that name, in place of an older one."""
        (self.folder / name).open("wb").close()

    def append(self, name: str, block: bytes) -> None:
        with (self.folder / name).open("ab") as file:
            file.write(block)

    def sync(self, name: str) -> None:
        """fsync: what was written to the file is on the medium."""
        with (self.folder / name).open("rb+") as file:
            os.fsync(file.fileno())

    def rename(self, old: str, new: str) -> None:
        os.replace(self.folder / old, self.folder / new)

    def sync_folder(self) -> None:
        """fsync of the folder: names that came, went or changed are on the medium. (Windows cannot.)"""
        if os.name != "nt":
            place = os.open(self.folder, os.O_RDONLY)
            os.fsync(place)
            os.close(place)

    def remove(self, name: str) -> None:
        (self.folder / name).unlink()

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


class Watched:
    """A disk whose calls are told to `watch(call, name)` before they are made: to record them, or to die there."""

    def __init__(self, disk: Any, watch: Callable[..., None]) -> None:
        self._disk, self._watch = disk, watch

    def __getattr__(self, call: str) -> Callable[..., Any]:
        def watched(*args: Any) -> Any:
            self._watch(call, *args[:1])
            return getattr(self._disk, call)(*args)

        return watched


class PowerCutDisk:
    """A `Disk` in memory that knows what a power cut could leave: of what was not synced, anything."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self._now: dict[str, Any] = {name: [data, data] for name, data in (files or {}).items()}  # [bytes, synced]
        self._synced, self._changes = dict(self._now), list[dict[str, Any]]()  # names on the medium; changes since

    def _change(self, names: dict[str, Any]) -> None:
        self._changes.append(names)
        self._now = {name: file for name, file in (self._now | names).items() if file}

    def create(self, name: str) -> None:
        self._change({name: [b"", b""]})

    def append(self, name: str, block: bytes) -> None:
        self._now[name][0] += block

    def sync(self, name: str) -> None:
        self._now[name][1] = self._now[name][0]

    def rename(self, old: str, new: str) -> None:
        self._change({old: None, new: self._now[old]})

    def sync_folder(self) -> None:
        self._synced, self._changes = dict(self._now), []

    def remove(self, name: str) -> None:
        self._change({name: None})

    def read(self, name: str) -> bytes:
        return self._now[name][0]

    def names(self) -> list[str]:
        return sorted(self._now)

    def survivors(self) -> Iterator["PowerCutDisk"]:
        """Each state that a power cut now could leave.

        Of the changes of names since the folder was synced any subset lasts; of a file's bytes that were not synced
        none, half or all.
        """
        for lasting in product((True, False), repeat=len(self._changes)):
            names = dict(self._synced)
            for change in compress(self._changes, lasting):
                names |= change
            files = {name: file for name, file in names.items() if file}
            contents = [{synced, now[: (len(synced) + len(now)) // 2], now} for now, synced in files.values()]
            for chosen in product(*contents):
                yield PowerCutDisk(dict(zip(files, chosen, strict=True)))


BLOCK = 4096  # bytes a write


def put(disk: Any, name: str, data: bytes) -> None:
    """The file `name`, whole and durable when this returns; until the rename, what had that name before.

    Temporary file, fsync, rename, fsync of the folder: in this order, so that the name never stands for less.
    """
    disk.create(name + ".tmp")
    for start in range(0, len(data), BLOCK):
        disk.append(name + ".tmp", data[start : start + BLOCK])
    disk.sync(name + ".tmp")
    disk.rename(name + ".tmp", name)
    disk.sync_folder()


# Sharded checkpoints


def checksum(data: Any) -> str:
    """SHA-256 of bytes or of a contiguous array, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def bounds(size: int, rank: int, ranks: int) -> slice:
    """The elements of that rank: `size` of them in `ranks` contiguous slices, as even as can be."""
    return slice(size * rank // ranks, size * (rank + 1) // ranks)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What decides the next step: `arrays` (parameters and both moments, a row each), and `rest` (generator, order)."""

    step: int
    arrays: np.ndarray
    rest: dict[str, Any]
    files: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Checksum of all of it: equal if and only if every bit is."""
        return checksum(self.arrays.tobytes() + json.dumps([self.step, self.rest]).encode())


def save_shard(disk: Any, step: int, rank: int, ranks: int, shard: np.ndarray) -> tuple[str, str]:
    """Put a rank's slice into its file; its name and checksum, for the manifest."""
    name, data = f"{step:08d}.{rank}of{ranks}", shard.tobytes()
    put(disk, name, data)
    return name, checksum(data)


def declare(disk: Any, step: int, shards: list[tuple[str, str]], rest: dict[str, Any]) -> None:
    """Put the manifest, which names every shard with its checksum. The checkpoint exists when this returns."""
    body = json.dumps({"step": step, "shards": shards, "rest": rest})
    put(disk, f"{step:08d}.manifest", f"{checksum(body.encode())}\n{body}".encode())


def load(disk: Any, manifest: str) -> Checkpoint:
    """The checkpoint of that manifest; ValueError if a byte of it is not as it was declared."""
    digest, _, body = disk.read(manifest).decode(errors="replace").partition("\n")
    if checksum(body.encode()) != digest:
        raise ValueError(f"{manifest} is not what was written")
    content = json.loads(body)
    data = {name: disk.read(name) if name in disk.names() else b"" for name, _ in content["shards"]}
    for name, declared in content["shards"]:
        if checksum(data[name]) != declared:
            raise ValueError(f"{name} is not what {manifest} declares")
    arrays = np.concatenate([np.frombuffer(shard).reshape(3, -1) for shard in data.values()], axis=1)
    return Checkpoint(content["step"], arrays, content["rest"], (manifest, *data))


def checkpoints(disk: Any) -> tuple[list[Checkpoint], list[str]]:
    """The checkpoints that are whole, the newest first, and why others were refused."""
    whole, refused = [], []
    for name in reversed(disk.names()):
        if name.endswith(".manifest"):
            try:
                whole.append(load(disk, name))
            except ValueError as reason:
                refused.append(str(reason))
    return whole, refused


def prune(disk: Any, keep: int) -> None:
    """Remove all but the `keep` newest whole checkpoints, manifests before shards, and what broken writes left.

    Call it when a checkpoint has been declared and no shard is being written.
    """
    kept = {name for checkpoint in checkpoints(disk)[0][:keep] for name in checkpoint.files}
    for name in sorted(set(disk.names()) - kept, key=lambda name: (not name.endswith(".manifest"), name)):
        disk.remove(name)


# A training


@domain(steps=COUNT, ranks=COUNT, every=COUNT, keep=COUNT, copies=COUNT, seed=whole(0), patience=POSITIVE)
@dataclass(frozen=True)
class Job:
    """A training: `steps` steps on `ranks` processes, a checkpoint after each `every`, the `keep` newest kept.

    Each micro-batch is computed by `copies` ranks, whose gradients must agree. Ranks of whom nothing is heard for
    `patience` s hang.
    """

    steps: int = 24
    ranks: int = 2
    every: int = 4
    keep: int = 2
    copies: int = 1
    seed: int = 0
    patience: float = 60.0


INPUTS, HIDDEN, SAMPLES = 8, 32, 96
MICROBATCHES, BATCH = 12, 24  # of a step, and its samples
SIZE = (INPUTS + 1) * HIDDEN  # parameters: a matrix, and a row
RATE, FIRST, SECOND = 0.01, 0.9, 0.99  # of Adam: learning rate, decay of both moments


class Training:
    """The state of a training, and its arithmetic: y = tanh(x·W)·u with dropout, squared error, Adam."""

    def __init__(self, job: Job, checkpoint: Checkpoint | None = None) -> None:
        data = np.random.default_rng(job.seed)
        self.job, self.warned, self.stop = job, False, False
        self.inputs = data.standard_normal((SAMPLES, INPUTS))
        self.targets = np.sin(self.inputs @ data.standard_normal(INPUTS) / 2)
        self.step, self.order, self.rng = 0, np.arange(SAMPLES), np.random.default_rng(job.seed + 1)
        self.arrays = np.zeros((3, SIZE))
        self.arrays[0] = 0.3 * data.standard_normal(SIZE)
        if checkpoint:
            self.step, self.arrays = checkpoint.step, checkpoint.arrays.copy()
            self.order = np.array(checkpoint.rest["order"])
            self.rng.bit_generator.state = checkpoint.rest["rng"]

    @property
    def rest(self) -> dict[str, Any]:
        """What is not sharded: the same on every rank."""
        return {"order": self.order.tolist(), "rng": self.rng.bit_generator.state}

    def draw(self) -> tuple[np.ndarray, np.ndarray]:
        """The samples of the next batch and their dropout: every rank draws them all, so that the generators agree."""
        start = self.step * BATCH % SAMPLES
        if start == 0:
            self.order = self.rng.permutation(SAMPLES)
        return self.order[start : start + BATCH], self.rng.random((BATCH, HIDDEN)) < 0.9

    def gradient(self, samples: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """The gradient of the summed squared error of these samples."""
        weights, out = np.split(self.arrays[0], [INPUTS * HIDDEN])
        x, h = self.inputs[samples], np.tanh(self.inputs[samples] @ weights.reshape(INPUTS, HIDDEN))
        error = 2 * ((h * kept) @ out - self.targets[samples])
        return np.append(x.T @ (np.outer(error, out) * kept * (1 - h**2)), error @ (h * kept))

    def loss(self) -> float:
        """The mean squared error over all samples, without dropout."""
        weights, out = np.split(self.arrays[0], [INPUTS * HIDDEN])
        return float(np.mean((0.9 * np.tanh(self.inputs @ weights.reshape(INPUTS, HIDDEN)) @ out - self.targets) ** 2))

    def advance(self, rank: int = 0, ranks: int = 1, gather: Callable[[Any], list] = lambda part: [part]) -> None:
        """One step. `gather(part)` gives the parts of all ranks, in their order: an all-gather.

        With the gradients go a checksum of the parameters, which must agree, and whether the rank was warned, so that
        all ranks stop after the same step.
        """
        (samples, kept), mine, m = self.draw(), bounds(SIZE, rank, ranks), MICROBATCHES
        own = [i for i in range(m) if (rank - i) % ranks < self.job.copies]
        part = {i: self.gradient(samples[i::m], kept[i::m]) for i in own}
        parts, digests, warnings = zip(*gather((part, checksum(self.arrays[0]), self.warned)), strict=True)
        gradients = {i: gradient for part in parts for i, gradient in part.items()}
        copies = ((gradient, gradients[i]) for part in parts for i, gradient in part.items())
        if len(set(digests)) > 1 or any(one.tobytes() != other.tobytes() for one, other in copies):
            raise ArithmeticError("parameters, or copies of a gradient, differ between ranks")
        self.step, self.stop = self.step + 1, any(warnings)
        adam(self.arrays[:, mine], sum(gradients[i] for i in range(m))[mine] / BATCH, self.step)
        self.arrays[0] = np.concatenate(gather(self.arrays[0, mine]))


def adam(arrays: np.ndarray, gradient: np.ndarray, step: int) -> None:
    """Adam's update of the rows θ, m, v in place, element by element."""
    arrays[1] = FIRST * arrays[1] + (1 - FIRST) * gradient
    arrays[2] = SECOND * arrays[2] + (1 - SECOND) * gradient**2
    first, second = arrays[1] / (1 - FIRST**step), arrays[2] / (1 - SECOND**step)
    arrays[0] -= RATE * first / (np.sqrt(second) + 1e-8)


def flip_bit(array: np.ndarray, index: int, bit: int) -> None:
    """Flip one bit of one float64 of the array, in place: 63 is the sign, 0 the last of the fraction."""
    array.view(np.uint64)[index] ^= np.uint64(1 << bit)


# What goes wrong


def kill(training: Training) -> None:
    """SIGKILL: the process is gone, without a word and without tidying up."""
    os.kill(os.getpid(), signal.SIGKILL)


def hang(training: Training) -> None:
    """The process lives and does nothing."""
    while True:
        time.sleep(1)


def warn(training: Training) -> None:
    """SIGTERM: the warning before a preemption, which this rank alone receives."""
    os.kill(os.getpid(), signal.SIGTERM)


def corrupt(training: Training) -> None:
    """A bit of this rank's parameters flips."""
    flip_bit(training.arrays[0], 5, 40)


def miscompute(training: Training) -> None:
    """A bit of the next gradient that this rank computes flips."""
    honest = training.gradient

    def flipped(samples: np.ndarray, kept: np.ndarray) -> np.ndarray:
        gradient, training.gradient = honest(samples, kept), honest  # type: ignore[method-assign]
        flip_bit(gradient, 5, 50)
        return gradient

    training.gradient = flipped  # type: ignore[method-assign]


@dataclass(frozen=True)
class Fault:
    """What happens to `rank` when it comes to its `event`-th event of a life, `delay` seconds later if not at once.

    A rank's events are the starts of its steps, its sends, its waits, and its calls to the disk.
    """

    rank: int
    event: int
    act: Callable[[Training], None] = kill
    delay: float = 0.0


# Ranks and their supervisor


@dataclass
class Life:
    """One start of all ranks: from which step, what was declared, how it ended, and each rank's events (step, what).

    `ended` is "done", "killed", "silent", "differ" (what ranks should agree on did not) or "exit" with a code.
    """

    start: int
    refused: list[str]
    declared: list[int] = field(default_factory=list)
    ended: str = ""
    rank: int | None = None
    trace: dict[int, list[tuple[int, str]]] = field(default_factory=dict)

    @property
    def last(self) -> tuple[int, str]:
        """The last event of the rank that ended it: the step, and what it was about to do."""
        return self.trace[self.rank or 0][-1]

    def waits(self, rank: int) -> int:
        """How often that rank has waited for the others: the one that hangs has waited least."""
        return sum(what == "wait" for _, what in self.trace[rank])


DIFFER = 3  # a rank's exit code when the parameters disagree


def _leave_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _work(rank: int, job: Job, folder: str, peers: dict[int, Any], report: Any, fault: Fault | None) -> None:
    """The life of one rank."""
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    training, events = Training(job, *checkpoints(Disk(folder))[0][:1]), count()

    def reach(what: str, name: str = "") -> None:
        report.send((training.step, f"{what} {name}".strip()))
        if fault and (fault.rank, fault.event) == (rank, next(events)):
            threading.Timer(fault.delay, fault.act, [training]).start() if fault.delay else fault.act(training)

    def gather(part: Any) -> list:
        reach("send")
        for peer in peers.values():
            peer.send(part)
        reach("wait")
        return [part if i == rank else peers[i].recv() for i in range(job.ranks)]

    disk, mine = Watched(Disk(folder), reach), bounds(SIZE, rank, job.ranks)
    signal.signal(signal.SIGTERM, lambda *_: setattr(training, "warned", True))
    while training.step < job.steps and not training.stop:
        reach("step")
        try:
            training.advance(rank, job.ranks, gather)
        except ArithmeticError:
            sys.exit(DIFFER)
        if training.step % job.every == 0 or training.step == job.steps or training.stop:
            shards = gather(save_shard(disk, training.step, rank, job.ranks, training.arrays[:, mine]))
            if rank == 0:
                declare(disk, training.step, shards, training.rest)
                report.send((training.step, "declared"))
                prune(disk, job.keep)
            gather(None)  # no rank goes on before the checkpoint is declared


def _live(job: Job, folder: str, fault: Fault | None, start: int, refused: list[str]) -> Life:
    """Start all ranks, and see them to the end of this life."""
    fork: Any = get_context("fork" if sys.platform == "linux" else "spawn")
    ranks, parent, heard = range(job.ranks), os.getppid(), time.monotonic()
    life = Life(start, refused, trace={rank: [] for rank in ranks})
    ends: dict[int, dict[int, Any]] = {rank: {} for rank in ranks}
    for a, b in combinations(ranks, 2):
        ends[a][b], ends[b][a] = fork.Pipe()
    reports = [fork.Pipe(duplex=False) for _ in ranks]
    workers = [fork.Process(target=_work, args=(r, job, folder, ends[r], reports[r][1], fault)) for r in ranks]

    def listen() -> bool:
        before = sum(map(len, life.trace.values()))
        for rank, (receiver, _) in enumerate(reports):
            while receiver.poll():
                step, what = receiver.recv()
                life.declared.append(step) if what == "declared" else life.trace[rank].append((step, what))
        return sum(map(len, life.trace.values())) > before

    try:
        for worker in workers:
            worker.start()
        while not life.ended:
            codes = [worker.exitcode for worker in workers]
            heard = time.monotonic() if listen() else heard
            if any(codes):
                code, life.rank = min((code, rank) for rank, code in enumerate(codes) if code)
                life.ended = {-9: "killed", DIFFER: "differ"}.get(code, f"exit {code}")
            elif None not in codes:
                life.ended = "done"
            elif time.monotonic() - heard > job.patience:
                life.ended, life.rank = "silent", min(ranks, key=lambda rank: life.waits(rank))
            elif os.getppid() != parent:
                sys.exit("nobody waits for this training")
            else:
                alive = [worker.sentinel for worker, code in zip(workers, codes, strict=True) if code is None]
                wait([*alive, *(receiver for receiver, _ in reports)], timeout=min(1.0, job.patience))
    finally:
        for worker in workers:
            if worker.pid:
                worker.kill()
                worker.join()
    listen()
    return life


def _supervise() -> None:
    job, folder, faults = pickle.load(sys.stdin.buffer)
    lives: list[Life] = []
    for fault in [*faults, None, None, None]:
        whole, refused = checkpoints(Disk(folder))
        lives.append(_live(job, folder, fault, whole[0].step if whole else 0, refused))
        if lives[-1].ended == "done":
            pickle.dump(lives, sys.stdout.buffer)
            return
    sys.exit(f"the training does not come to its end: {[(life.ended, life.last) for life in lives]}")


def run(job: Job, folder: str | Path, faults: Iterable[Fault | None] = (), timeout: float = 300.0) -> list[Life]:
    """Train to the end of the job from what the folder holds, through `faults`, the i-th in the i-th life.

    The supervisor is a process of its own, the ranks are its children. After `timeout` s this raises
    `subprocess.TimeoutExpired`; the supervisor is then dead, and each rank ends within half a second.
    """
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    one = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", "import distlib.resume as resume; resume._supervise()"], timeout=timeout, check=True,
        input=pickle.dumps((job, str(folder), list(faults))), stdout=subprocess.PIPE, env=os.environ | one,
    )  # fmt: skip
    return pickle.loads(done.stdout)
