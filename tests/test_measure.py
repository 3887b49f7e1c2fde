"""Real processes: what they hold in the end, what they send, and what becomes of a run that fails."""

import contextlib
import importlib.util
import io
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import types
from importlib.resources import files
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from distlib import logs, measure
from distlib.collectives import ring_all_reduce_bytes
from distlib.units import us

MPIEXEC = Path(sys.executable).parent / "mpiexec"
needs_mpi = pytest.mark.skipif(
    not MPIEXEC.exists() or importlib.util.find_spec("mpi4py") is None,
    reason="needs the extra `measure`: mpi4py and mpich",
)
QUICK = ["--largest", "4096", "--repeats", "3", "--seconds", "1"]


def ranks(count, *arguments, program=("-m", "distlib.measure")):
    return subprocess.run(
        [MPIEXEC, "-n", str(count), sys.executable, *program, *map(str, arguments)],
        capture_output=True, text=True, timeout=240, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip


# With MPI


@needs_mpi
@pytest.mark.slow
def test_four_ranks_measure_all_operations_and_their_file_is_read(tmp_path):
    out = tmp_path / "times.csv"
    done = ranks(4, *QUICK, "--out", out, "--machine", "a test")
    assert done.returncode == 0, done.stderr
    found = {log.operation: log for log in logs.read(out)}
    assert tuple(found) == measure.operations(4)
    for log in found.values():
        assert log.n.tolist() == [16 * 2**i for i in range(9)]
        assert (log.ranks, log.nodes, log.machine) == (4, 1, "a test")
        assert np.all((log.time > 0) & (log.time <= log.median) & (log.median < 10))
    assert done.stderr.count("content right on all ranks") == 9 and "MPICH" in log.version
    assert [path.name for path in tmp_path.iterdir()] == ["times.csv"]


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_ring_gives_what_the_library_gives_and_sends_what_the_formula_says(count, tmp_path):
    program = tmp_path / "ring.py"
    program.write_text(
        "import numpy as np\n"
        "from distlib.measure import Mpi, ring_all_reduce, values\n"
        "world = Mpi()\n"
        "for length in (1, 2, 7, 12, 60, 1000):\n"
        "    x = world.array(values(world.rank, length))\n"
        "    ring, library = np.full_like(x, np.nan), np.full_like(x, np.nan)\n"
        "    sent = ring_all_reduce(world, x, ring)\n"
        "    world.collectives['all_reduce'](x, library)\n"
        "    assert np.array_equal(ring, library) and library.min() >= 0, length\n"
        "    total = world.comm.allreduce(sent)\n"
        "    if world.rank == 0:\n"
        "        print(length, total, sent)\n"
    )
    done = ranks(count, program=[str(program)])
    assert done.returncode == 0, done.stderr
    for length, total, sent in (map(int, line.split()) for line in done.stdout.splitlines()):
        assert total == count * ring_all_reduce_bytes(4 * length, count)
        assert length % count or sent == ring_all_reduce_bytes(4 * length, count)


BROKEN = """
import os, signal, sys
from distlib import measure

class Broken(measure.Mpi):
    def __init__(self):
        super().__init__()
        self.collectives["all_reduce"] = self.broken

    def broken(self, x, out):
        self.comm.Allreduce(x, out)
        if self.rank == 2:
            {what}

measure.Mpi = Broken
measure.main(sys.argv[1:])
"""


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    "what, says",
    [
        ("out[3] += 1", "all_reduce of 4 elements: wrong content on rank 2 from element 3 on: 163, not 162"),
        ("raise OSError('the cable is cut')", "rank 2: the cable is cut"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "signal 9)"),
    ],
)
def test_a_rank_that_fails_ends_the_run_and_leaves_no_file(what, says, tmp_path):
    program = tmp_path / "broken.py"
    program.write_text(BROKEN.format(what=what))
    done = ranks(4, *QUICK, "--out", tmp_path / "times.csv", program=[str(program)])
    assert done.returncode != 0
    assert says in done.stderr + done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["broken.py"]


@needs_mpi
@pytest.mark.slow
def test_a_file_is_never_written_over_and_one_rank_measures_nothing(tmp_path):
    out = tmp_path / "times.csv"
    out.write_text("mine")
    done = ranks(2, *QUICK, "--out", out)
    assert done.returncode != 0 and f"{out} exists" in done.stderr and out.read_text() == "mine"
    done = ranks(1, *QUICK, "--out", tmp_path / "other.csv")
    assert done.returncode != 0 and "there is 1 rank: start it with mpiexec -n 4 or srun -n 4" in done.stderr


# With a stand-in for torch: threads for ranks, arrays for tensors


class Tensor(np.ndarray):
    def to(self, device):
        assert device == "cpu"
        return self

    def cpu(self):
        return self

    def copy_(self, x):
        self[:] = x
        return self

    def numpy(self):
        return np.asarray(self)


class FakeDistributed(types.ModuleType):
    """The few calls of torch.distributed that `measure` makes, with their meaning."""

    ReduceOp = types.SimpleNamespace(MAX="max")
    isend, irecv = "isend", "irecv"

    def __init__(self, count):
        super().__init__("torch.distributed")
        self.count, self.local = count, threading.local()
        self.meet, self.board = threading.Barrier(count, timeout=60), [None] * count
        self.mail = {(a, b): queue.Queue() for a in range(count) for b in range(count)}

    def init_process_group(self, backend):
        assert backend == "gloo"

    def destroy_process_group(self):
        self.meet.wait()

    def get_rank(self):
        return self.local.rank

    def get_world_size(self):
        return self.count

    def shared(self, x):
        self.board[self.local.rank] = x.copy() if isinstance(x, np.ndarray) else x
        self.meet.wait()
        found = list(self.board)
        self.meet.wait()
        return found

    def barrier(self):
        self.meet.wait()

    def all_gather_object(self, out, x):
        out[:] = self.shared(x)

    def all_reduce(self, x, op=None):
        x[:] = (np.max if op == "max" else np.sum)(self.shared(x), axis=0)

    def reduce(self, x, root):
        total = np.sum(self.shared(x), axis=0)
        x[:] = total if self.local.rank == root else -1

    def broadcast(self, x, root):
        x[:] = self.shared(x)[root]

    def all_gather_into_tensor(self, out, x):
        out[:] = np.concatenate(self.shared(x))

    def reduce_scatter_tensor(self, out, x):
        out[:] = np.split(np.sum(self.shared(x), axis=0), self.count)[self.local.rank]

    def all_to_all_single(self, out, x):
        out[:] = np.concatenate([np.split(other, self.count)[self.local.rank] for other in self.shared(x)])

    def send(self, x, to):
        self.mail[self.local.rank, to].put(x.copy())

    def recv(self, out, source):
        out[:] = self.mail[source, self.local.rank].get(timeout=60)

    def P2POp(self, kind, x, other):
        return kind, x, other

    def batch_isend_irecv(self, operations):
        for kind, x, other in operations:
            if kind == "isend":
                self.send(x, other)
        return [
            types.SimpleNamespace(wait=(lambda x=x, other=other: self.recv(x, other)) if kind == "irecv" else int)
            for kind, x, other in operations
        ]


def with_fake_torch(count, arguments):
    """`main` on each of `count` threads; returns what each raised, and what they wrote to stderr."""
    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(is_available=lambda: False)
    torch.tensor = lambda values: np.array(values, np.float32).view(Tensor)
    torch.__version__, torch.distributed = "stand-in", FakeDistributed(count)

    def abort(world):
        torch.distributed.meet.abort()
        raise RuntimeError("aborted")

    raised, said = [None] * count, io.StringIO()

    def rank(i):
        torch.distributed.local.rank = i
        try:
            measure.main(["--backend", "torch", *arguments])
        except BaseException as error:
            raised[i] = error

    threads = [threading.Thread(target=rank, args=(i,)) for i in range(count)]
    stand_in = mock.patch.dict(sys.modules, {"torch": torch, "torch.distributed": torch.distributed})
    with stand_in, mock.patch.object(measure.Torch, "abort", abort), contextlib.redirect_stderr(said):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    return raised, said.getvalue()


SMALL = ["--largest", "64", "--repeats", "3", "--seconds", "0.1", "--machine", "threads"]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_torch_measures_the_same_operations(count):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "torch.csv"
        raised, said = with_fake_torch(count, [*SMALL, "--out", str(out)])
        assert raised == [None] * count
        found = {log.operation: log for log in logs.read(out)}
    assert tuple(found) == measure.operations(count)
    assert {log.ranks for log in found.values()} == {count} and {log.nodes for log in found.values()} == {1}
    assert found["reduce"].version.startswith("torch gloo, ") and found["reduce"].version.endswith("torch stand-in")
    assert said.count("content right on all ranks") == len(found) and f"rows of {count} ranks" in said
    for number, (name, line) in enumerate(zip(found, said.split("\n"), strict=False), 1):
        spans = r"(\d+) byte in (\S+) µs … (\d+) byte in (\S+) µs, .*"
        shown = re.fullmatch(f"{number}/{len(found)} {name}: {spans}", line)
        n, time = found[name].n, found[name].time / us
        assert [float(x) for x in shown.groups()] == pytest.approx([n[0], time[0], n[-1], time[-1]], rel=1e-3)


def test_torch_finds_wrong_content_too():
    def nothing(self, out, x):
        self.shared(x)

    with tempfile.TemporaryDirectory() as folder, mock.patch.object(FakeDistributed, "all_to_all_single", nothing):
        raised, said = with_fake_torch(2, [*SMALL, "--out", str(Path(folder) / "torch.csv")])
        assert all(raised) and not list(Path(folder).iterdir())
    assert "all_to_all of 2 elements: wrong content on rank" in said


@pytest.mark.parametrize("taken", [True, False])
def test_torch_leaves_a_file_that_is_there_and_needs_a_folder(taken):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / ("taken.csv" if taken else "none/torch.csv")
        if taken:
            out.write_text("mine")
        raised, _ = with_fake_torch(2, [*SMALL, "--out", str(out)])
        assert all(isinstance(error, SystemExit) for error in raised)
        assert "exists, or its folder does not" in str(raised[0])
        assert not taken or out.read_text() == "mine"


# Without either


@pytest.mark.parametrize(
    "module, arguments, says",
    [
        ("mpi4py", [], r"needs mpi4py and an MPI library: pip install 'distributed-ml-principles\[measure\]'"),
        ("torch", ["--backend", "torch"], "--backend torch needs torch"),
    ],
)
def test_a_missing_library_is_named_with_the_extra_that_brings_it(module, arguments, says):
    with mock.patch.dict(sys.modules, {module: None}), pytest.raises(SystemExit, match=says):
        measure.main(arguments)


# The pieces


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_what_each_rank_must_get_follows_from_what_all_have(count):
    length = 6 * count

    def of(name):
        has, sizes, expected = zip(*(measure.task(name, rank, count, length) for rank in range(count)), strict=True)
        assert all(e is None or len(e) == s for e, s in zip(expected, sizes, strict=True))
        return has, expected

    for name in ("all_reduce", "ring_all_reduce", "reduce"):
        has, expected = of(name)
        assert np.array_equal(expected[0], np.sum(has, axis=0))
        assert [e is None for e in expected] == [name == "reduce" and rank > 0 for rank in range(count)]
    has, expected = of("reduce_scatter")
    assert np.array_equal(np.concatenate(expected), np.sum(has, axis=0)) and len({len(e) for e in expected}) == 1
    has, expected = of("all_gather")
    assert all(np.array_equal(e, np.concatenate(has)) for e in expected) and len(has[0]) == 6
    has, expected = of("all_to_all")
    blocks = np.array([np.split(x, count) for x in has])
    assert all(np.array_equal(e.reshape(count, 6), blocks[:, rank]) for rank, e in enumerate(expected))
    has, expected = of("broadcast")
    assert expected[0] is None and all(np.array_equal(e, has[0]) for e in expected[1:])
    for name, partner in (("ping_pong", 1), ("ping_pong_far", count - 1)):
        has, expected = of(name)
        assert [rank for rank, e in enumerate(expected) if e is not None] == [0, partner]
        assert np.array_equal(expected[partner], has[0])


def test_what_ranks_have_differs_by_rank_and_place_and_sums_exactly():
    has = np.array([measure.values(rank, 1000) for rank in range(8)])
    assert len({tuple(x) for x in has}) == 8 and has.min() == 0 and has.max() == 100
    assert np.all(has == has.astype(int)) and np.all(np.diff(has) != 0)


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_sizes_double_and_each_rank_has_its_share(count):
    sizes = measure.sizes(4096, count)
    assert sizes[0] == 4 * count and sizes[-1] <= 4096 < 2 * sizes[-1]
    assert all(b == 2 * a for a, b in zip(sizes, sizes[1:], strict=False))
    assert measure.sizes(1, count) == [4 * count]


class Clockwork:
    """A world of one rank in which a call takes `cost` seconds of a clock that only calls move."""

    rank, ranks = 0, 2

    def __init__(self, cost):
        self.now, self.cost, self.calls = 0.0, cost, 0

    def repeats(self, *arguments):
        with mock.patch.object(measure, "perf_counter", lambda: self.now):
            return measure.repeats_of(self, *arguments)

    def array(self, values):
        return values.astype(np.float32)

    def numpy(self, x):
        return x

    def finish(self):
        pass

    def barrier(self):
        self.now += 1.0  # not timed

    def slowest(self, seconds):
        return 2 * seconds  # another rank takes twice as long

    def send(self, x, to):
        self.kept, self.calls, self.now = x, self.calls + 1, self.now + self.cost

    def receive(self, out, source):
        out[:] = self.kept

    @property
    def collectives(self):
        return {"all_gather": self.all_gather}

    def all_gather(self, x, out):
        out[:] = measure.values(0, len(out))
        self.calls, self.now = self.calls + 1, self.now + self.cost


@pytest.mark.parametrize(
    "cost, calls, repeats",
    [(1 * us, 100, 10), (20 * us, 50, 10), (240 * us, 4, 10), (10e-3, 1, 6), (1.0, 1, 3)],
)
def test_a_repeat_lasts_two_milliseconds_and_the_repeats_end_in_time(cost, calls, repeats):
    world = Clockwork(cost)
    found, times = world.repeats("all_gather", 64, 10, 0.105)
    assert found == calls and len(times) == repeats
    assert times == pytest.approx([2 * cost] * repeats, rel=1e-9)  # of the slowest rank
    assert world.calls == 3 + calls * repeats  # the check before, the trial, the repeats, the check after


def test_a_ping_pong_counts_one_way():
    world = Clockwork(40 * us)
    _, times = world.repeats("ping_pong", 64, 4, 1.0)
    assert times == pytest.approx([40 * us] * 4)  # half of twice 40 µs


def test_a_file_appears_whole_or_not_at_all():
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "a.csv"
        measure.write_new(out, "first")
        assert out.read_text() == "first" and [path.name for path in out.parent.iterdir()] == ["a.csv"]
        with pytest.raises(SystemExit, match="cannot write .*a.csv .File exists.; what was measured is in"):
            measure.write_new(out, "second")
        kept = next(path for path in out.parent.iterdir() if path.name != "a.csv")
        assert out.read_text() == "first" and kept.read_text() == "second"


def test_the_machine_is_described_without_its_name():
    assert os.uname().nodename not in measure.machine()
    assert f"{os.cpu_count()} cores" in measure.machine()


# The recorded files


@pytest.mark.parametrize("count", [2, 4])
def test_the_recorded_files_have_every_operation_and_say_on_what_machine(count):
    path = files("distlib") / "data" / f"measured_{count}_ranks.csv"
    found = logs.read(str(path))
    assert tuple(log.operation for log in found) == measure.operations(count)
    for log in found:
        assert log.ranks == count and log.nodes == 1 and "virtual machine, 2 cores" in log.machine
        assert log.n.tolist() == measure.sizes(4 * 2**20, count) and "2026-" in log.version
