"""Real processes that exchange real bytes: ping-pong and every collective, timed, checked and written to one file.

    mpiexec -n 4 python -m distlib.measure                        # or: srun -n 4 python -m distlib.measure
    torchrun --nproc-per-node 4 -m distlib.measure --backend torch    # gloo, or NCCL where there are GPUs

MPI needs the extra `measure` (mpi4py with MPICH), or the mpi4py of the cluster's own MPI; torch needs torch.

Every operation runs over sizes that double. It is called once, and each rank checks the whole of its result; then it
is timed: after a barrier, `calls` calls in a row, their mean, of the slowest rank; this is repeated. The sizes are
those of nccl-tests: n is the full array of an all-reduce, all-gather or reduce-scatter, a rank's buffer of an
all-to-all, the array of a broadcast or reduce. A ping-pong counts half of the way there and back: of rank 0 with rank
1 (`ping_pong`) and with the last rank (`ping_pong_far`). `ring_all_reduce` is the ring of the book.

The file is CSV after a header of `# name: value` lines, and `distlib.logs.read` reads it:

    # distlib.measure: 1                            the version of the format
    # machine: …      # date: …      # backend: …      # versions: …
    # ranks: 4       # nodes: 1      # type: float32     # rows: 171
    operation,n_bytes,calls,times_us                one row a size; every repeat in times_us, separated by spaces

It appears when all is measured, whole or not at all, and never in place of another file.
"""

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import date
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from distlib.collectives import ring_all_reduce_bytes
from distlib.units import MiB, us

#: An array of NumPy, or a tensor of torch.
Array = Any
Collectives = dict[str, Callable[[Array, Array], Any]]
WORD = np.dtype(np.float32).itemsize

# Two libraries, one set of names; each collective takes what a rank has and writes what it gets.


class Mpi:
    """The processes of mpiexec or srun, through mpi4py."""

    name = "mpi"

    def __init__(self) -> None:
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise SystemExit(
                "distlib.measure needs mpi4py and an MPI library: pip install 'distributed-ml-principles[measure]' "
                f"brings both ({error})"
            ) from None
        self.mpi, self.comm = MPI, MPI.COMM_WORLD
        comm = self.comm
        self.rank, self.ranks = comm.rank, comm.size
        library = " ".join(MPI.Get_library_version().split("\n")[0].split())
        self.versions = f"mpi4py {version('mpi4py')}, {library}"
        self.nodes = len(set(comm.allgather(platform.node())))
        self.send, self.receive, self.barrier = comm.Send, comm.Recv, comm.Barrier
        self.collectives: Collectives = {
            "all_reduce": comm.Allreduce,
            "all_gather": comm.Allgather,
            "reduce_scatter": comm.Reduce_scatter_block,
            "all_to_all": comm.Alltoall,
            "broadcast": lambda x, out: comm.Bcast(x if self.rank == 0 else out),
            "reduce": comm.Reduce,
        }

    def array(self, values: np.ndarray) -> Array:
        return values.astype(np.float32)

    def numpy(self, x: Array) -> np.ndarray:
        return x

    def exchange(self, x: Array, to: int, out: Array, source: int) -> None:
        self.comm.Sendrecv(x, to, recvbuf=out, source=source)

    def slowest(self, seconds: float) -> float:
        return self.comm.allreduce(seconds, self.mpi.MAX)

    def finish(self) -> None:
        """Wait for what the device has still to do: nothing here."""

    def close(self) -> None:
        """Leave the group: mpi4py does so when Python ends."""

    def abort(self) -> None:
        """End every rank: those that wait for this one would wait for ever."""
        self.comm.Abort(1)


class Torch:
    """The processes of torchrun, through torch.distributed: NCCL where there are GPUs, gloo elsewhere.

    all_reduce and reduce work in place there: the copy of x to out is timed with them.
    """

    def __init__(self) -> None:
        try:
            import torch
            import torch.distributed as dist
        except ImportError as error:
            raise SystemExit(f"--backend torch needs torch ({error})") from None
        self.torch, self.dist = torch, dist
        gpu = torch.cuda.is_available()
        self.device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if gpu else "cpu"
        if gpu:
            torch.cuda.set_device(self.device)
        self.name = "torch nccl" if gpu else "torch gloo"
        dist.init_process_group("nccl" if gpu else "gloo")
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.versions = f"torch {torch.__version__}"
        nodes: list[Any] = [None] * self.ranks
        dist.all_gather_object(nodes, platform.node())
        self.nodes = len(set(nodes))
        self.send, self.receive, self.barrier = dist.send, dist.recv, dist.barrier
        self.collectives: Collectives = {
            "all_reduce": lambda x, out: dist.all_reduce(out.copy_(x)),
            "all_gather": lambda x, out: dist.all_gather_into_tensor(out, x),
            "reduce_scatter": lambda x, out: dist.reduce_scatter_tensor(out, x),
            "all_to_all": lambda x, out: dist.all_to_all_single(out, x),
            "broadcast": lambda x, out: dist.broadcast(x if self.rank == 0 else out, 0),
            "reduce": lambda x, out: dist.reduce(out.copy_(x), 0),
        }

    def array(self, values: np.ndarray) -> Array:
        return self.torch.tensor(values.astype(np.float32)).to(self.device)

    def numpy(self, x: Array) -> np.ndarray:
        return x.cpu().numpy()

    def exchange(self, x: Array, to: int, out: Array, source: int) -> None:
        both = [self.dist.P2POp(self.dist.isend, x, to), self.dist.P2POp(self.dist.irecv, out, source)]
        for request in self.dist.batch_isend_irecv(both):
            request.wait()

    def slowest(self, seconds: float) -> float:
        value = self.torch.tensor([seconds]).to(self.device)
        self.dist.all_reduce(value, self.dist.ReduceOp.MAX)
        return float(value[0])

    def finish(self) -> None:
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    def close(self) -> None:
        self.dist.destroy_process_group()

    def abort(self) -> None:
        """End this rank: torchrun ends the others."""
        os._exit(1)


World = Mpi | Torch

# The ring of the book


def ring_all_reduce(world: World, x: Array, out: Array) -> int:
    """Each rank's `out` becomes the sum of all x, by 2(N−1) messages to its right; returns the bytes that it sent.

    First a piece gathers one term at each rank it passes, so that rank r ends with piece r + 1 of the sum; then the
    pieces go round once more. `distlib.collectives.ring_all_reduce_bytes` counts the same.
    """
    ranks, rank, sent = world.ranks, world.rank, 0
    cuts = [len(x) * i // ranks for i in range(ranks + 1)]
    pieces = [slice(*ends) for ends in zip(cuts, cuts[1:], strict=False)]
    out[:] = x
    spare = world.array(np.zeros(-(-len(x) // ranks)))
    for step in range(2 * (ranks - 1)):
        going, coming = pieces[(rank - step) % ranks], pieces[(rank - step - 1) % ranks]
        incoming = spare[: coming.stop - coming.start]
        world.exchange(out[going], (rank + 1) % ranks, incoming, (rank - 1) % ranks)
        if step < ranks - 1:
            out[coming] += incoming
        else:
            out[coming] = incoming
        sent += WORD * (going.stop - going.start)
    return sent


# What each rank has, what it must get, and the call

COLLECTIVES = ("all_reduce", "ring_all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")


def operations(ranks: int) -> tuple[str, ...]:
    """The names of all that is timed."""
    return ("ping_pong", *(["ping_pong_far"] if ranks > 2 else []), *COLLECTIVES)


def values(rank: int, length: int) -> np.ndarray:
    """What rank r has at place i: whole numbers below 101, so that a sum over ranks is exact in 32 bits."""
    return (7.0 * np.arange(length) + 13.0 * rank) % 101


def task(name: str, rank: int, ranks: int, length: int) -> tuple[np.ndarray, int, np.ndarray | None]:
    """What this rank has, the length of its result, and the result; None where a rank gets none."""
    block = slice(rank * length // ranks, (rank + 1) * length // ranks)
    own, first, size = values(rank, length), values(0, length), block.stop - block.start
    if name in ("all_reduce", "ring_all_reduce", "reduce"):
        total = np.sum([values(other, length) for other in range(ranks)], axis=0)
        return own, length, total if name != "reduce" or rank == 0 else None
    if name == "reduce_scatter":
        return own, size, np.sum([values(other, length)[block] for other in range(ranks)], axis=0)
    if name == "all_gather":
        return first[block], length, first
    if name == "all_to_all":
        return own, length, np.concatenate([values(other, length)[block] for other in range(ranks)])
    if name == "broadcast":
        return first, length, first if rank > 0 else None
    return first, length, first if rank in (0, partner(name, ranks)) else None


def partner(name: str, ranks: int) -> int:
    """The rank with which rank 0 plays ping-pong."""
    return 1 if name == "ping_pong" else ranks - 1


def call(world: World, name: str, has: Array, out: Array) -> None:
    """Do it once."""
    if name == "ring_all_reduce":
        sent, formula = ring_all_reduce(world, has, out), ring_all_reduce_bytes(WORD * len(has), world.ranks)
        if sent != formula:
            raise RuntimeError(f"the ring sent {sent} bytes where the formula says {formula:.0f}")
    elif not name.startswith("ping_pong"):
        world.collectives[name](has, out)
    elif world.rank == 0:
        world.send(has, partner(name, world.ranks))
        world.receive(out, partner(name, world.ranks))
    elif world.rank == partner(name, world.ranks):
        world.receive(out, 0)
        world.send(out, 0)


def check(world: World, name: str, out: Array, expected: np.ndarray | None) -> None:
    """Raise RuntimeError where a result is not what it must be."""
    if expected is None:
        return
    got = world.numpy(out)
    wrong = np.flatnonzero(got != expected)
    if len(wrong):
        i = wrong[0]
        raise RuntimeError(
            f"{name} of {len(got)} elements: wrong content on rank {world.rank} from element {i} on: "
            f"{got[i]:g}, not {expected[i]:g}"
        )


def repeats_of(world: World, name: str, n: int, repeats: int, seconds: float) -> tuple[int, list[float]]:
    """Calls a repeat, and the time of a call in each repeat, in s: checked before and after.

    A repeat lasts about 2 ms, of at most 100 calls. There are at most `repeats` of them, fewer if they take longer
    than `seconds` in all, but three.
    """
    has, length, expected = task(name, world.rank, world.ranks, n // WORD)
    times: list[float] = []
    has = world.array(has)

    def once() -> None:
        out = world.array(np.full(length, np.nan))
        call(world, name, has, out)
        world.finish()
        check(world, name, out, expected)

    once()
    out, trips = world.array(np.zeros(length)), 2 if name.startswith("ping_pong") else 1

    def timed(calls: int) -> float:
        world.barrier()
        start = perf_counter()
        for _ in range(calls):
            call(world, name, has, out)
        world.finish()
        return world.slowest(perf_counter() - start) / calls

    calls = int(np.clip(2e-3 / timed(1), 1, 100))
    while len(times) < repeats and (len(times) < 3 or calls * sum(times) < seconds):
        times.append(timed(calls))
    once()
    return calls, [time / trips for time in times]


def sizes(largest: int, ranks: int) -> list[int]:
    """From one number a rank up, doubling, to `largest` bytes: N·4, N·8, …"""
    unit = WORD * ranks
    return [unit * 2**i for i in range(int(np.log2(max(largest / unit, 1))) + 1)]


def sweep(world: World, largest: int, repeats: int, seconds: float) -> Iterator[str]:
    """Time every operation at every size; yields the rows of the file and shows progress on rank 0."""
    names, ns = operations(world.ranks), sizes(largest, world.ranks)
    begun = perf_counter()
    for i, name in enumerate(names, 1):
        least = []
        for n in ns:
            calls, times = repeats_of(world, name, n, repeats, seconds / len(names) / len(ns))
            least.append(min(times))
            yield f"{name},{n},{calls},{' '.join(f'{time / us:.5g}' for time in times)}"
        if world.rank == 0:
            print(
                f"{i}/{len(names)} {name}: {ns[0]} byte in {least[0] / us:.4g} µs … {ns[-1]} byte in "
                f"{least[-1] / us:.4g} µs, content right on all ranks ({perf_counter() - begun:.1f} s)",
                file=sys.stderr, flush=True,
            )  # fmt: skip


def machine() -> str:
    """What this machine is, by its processor and its number of cores; never its name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{model}, {os.cpu_count()} cores"


def write_new(path: Path, text: str) -> None:
    """Write a file that appears whole, and only if there is none of that name."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=".measure-", delete=False) as part:
        part.write(text)
        part.flush()
        os.fsync(part.fileno())
    try:
        os.link(part.name, path)
    except OSError as error:
        raise SystemExit(f"cannot write {path} ({error.strerror}); what was measured is in {part.name}") from None
    os.unlink(part.name)


def run(world: World, out: Path, largest: int, repeats: int, seconds: float, where: str) -> None:
    """The sweep, and its file."""
    if world.ranks < 2:
        raise SystemExit(
            "there is 1 rank: start it with mpiexec -n 4 or srun -n 4. If that is what you did, the launcher and "
            "mpi4py belong to two different MPI libraries"
        )
    refused = world.rank == 0 and (out.exists() or not out.parent.is_dir())
    if world.slowest(float(refused)):
        raise SystemExit(f"{out} exists, or its folder does not: give another with --out" if world.rank == 0 else 1)
    rows = list(sweep(world, largest, repeats, seconds))
    header = {
        "distlib.measure": 1, "machine": where, "date": date.today(), "backend": world.name,
        "versions": f"Python {platform.python_version()}, NumPy {np.__version__}, {world.versions}",
        "ranks": world.ranks, "nodes": world.nodes, "type": "float32", "rows": len(rows),
    }  # fmt: skip
    if world.rank == 0:
        lines = [f"# {name}: {value}" for name, value in header.items()] + ["operation,n_bytes,calls,times_us", *rows]
        write_new(out, "\n".join(lines) + "\n")
        print(f"{out} has {len(rows)} rows of {world.ranks} ranks", file=sys.stderr)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="distlib.measure", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--backend", choices=("mpi", "torch"), default="mpi")
    parser.add_argument("--out", type=Path, default=Path("measured.csv"), help="the file to write; it must not exist")
    parser.add_argument("--largest", type=int, default=int(4 * MiB), help="the largest n, in bytes")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30.0, help="about how long to time; a point has 3 repeats")
    parser.add_argument("--machine", default=machine(), help="what the header says of the machine")
    options = parser.parse_args(arguments)
    world: World = Mpi() if options.backend == "mpi" else Torch()
    try:
        run(world, options.out, options.largest, options.repeats, options.seconds, options.machine)
        world.close()
    except Exception as error:
        print(f"rank {world.rank}: {error}", file=sys.stderr, flush=True)
        world.abort()


if __name__ == "__main__":
    main()
