"""A training that is killed, hung, torn and resharded ends with the bits of one that was left alone."""

import contextlib
import copy
import os
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from distlib.resume import (
    HIDDEN,
    INPUTS,
    SIZE,
    Checkpoint,
    Disk,
    Fault,
    Job,
    PowerCutDisk,
    Training,
    Watched,
    adam,
    bounds,
    checkpoints,
    checksum,
    corrupt,
    declare,
    flip_bit,
    hang,
    load,
    miscompute,
    prune,
    put,
    run,
    save_shard,
    warn,
)

JOB = Job(steps=10, every=4, patience=60.0)
CHANGES = ("create", "append", "sync", "rename", "sync_folder", "remove")


@cache
def alone(steps=JOB.steps, seed=JOB.seed):
    """The checkpoint of the same training in one process, without files or messages."""
    training = Training(Job(steps=steps, seed=seed))
    while training.step < steps:
        training.advance()
    return Checkpoint(steps, training.arrays, training.rest)


def end(folder):
    return checkpoints(Disk(folder))[0][0]


def nothing_declared_is_lost(lives):
    """The last step that a checkpoint was declared for, or found: a rank may die between the two."""
    declared = 0
    for life in lives:
        assert life.start >= declared
        declared = max([life.start, *life.declared])
    return declared


@cache
def finished(steps, ranks):
    """A folder with that training, run to its end, checkpoints after each four steps; it goes with the tests."""
    folder = tempfile.TemporaryDirectory()
    run(Job(steps=steps, every=4, ranks=ranks), folder.name)
    return folder


@contextlib.contextmanager
def a_folder(steps=8, ranks=2):
    """A copy of such a folder."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(finished(steps, ranks).name, folder, dirs_exist_ok=True)
        yield Path(folder)


# The arithmetic


def test_the_gradient_is_the_slope_of_the_loss():
    training = Training(Job(seed=3))
    samples, kept = np.array([5, 9, 40]), np.random.default_rng(0).random((3, HIDDEN)) < 0.5

    def loss(parameters):
        weights, out = parameters[: INPUTS * HIDDEN].reshape(INPUTS, HIDDEN), parameters[INPUTS * HIDDEN :]
        output = (np.tanh(training.inputs[samples] @ weights) * kept) @ out
        return np.sum((output - training.targets[samples]) ** 2)

    start, gradient = training.arrays[0].copy(), training.gradient(samples, kept)
    for i in range(0, SIZE, 17):
        there = np.zeros(SIZE)
        there[i] = 1e-6
        slope = (loss(start + there) - loss(start - there)) / 2e-6
        assert gradient[i] == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_adams_first_step_is_the_rate_against_the_sign_and_moments_decay():
    arrays = np.zeros((3, 3))
    adam(arrays, np.array([2.0, -0.5, 1e-3]), 1)
    assert arrays[0] == pytest.approx([-0.01, 0.01, -0.01], rel=1e-4)
    assert arrays[1:] == pytest.approx(np.array([[0.2, -0.05, 1e-4], [0.04, 0.0025, 1e-8]]))
    adam(arrays, np.zeros(3), 2)
    assert arrays[1:] == pytest.approx(np.array([[0.18, -0.045, 9e-5], [0.0396, 0.002475, 9.9e-9]]))


def test_the_training_learns():
    training = Training(Job(steps=200))
    first = training.loss()
    while training.step < 200:
        training.advance()
    assert training.loss() < 0.1 * first


def test_each_epoch_draws_every_sample_once_in_a_new_order():
    training, epochs = Training(Job()), []
    for _ in range(3):
        drawn = []
        for _ in range(4):  # 96 samples in batches of 24
            drawn += training.draw()[0].tolist()
            training.step += 1
        assert sorted(drawn) == list(range(96))
        epochs.append(drawn)
    assert epochs[0] != epochs[1] != epochs[2]
    kept = np.mean([training.draw()[1].mean() for training.step in range(100)])
    assert kept == pytest.approx(0.9, abs=0.005)


@pytest.mark.parametrize("part", ["order", "rng", "moments"])
def test_each_part_of_a_checkpoint_decides_the_next_steps(part):
    half = alone(6)
    wrong = alone(2)
    rest = half.rest | ({part: wrong.rest[part]} if part in half.rest else {})
    arrays = half.arrays.copy()
    if part == "moments":
        arrays[1:] = wrong.arrays[1:]
    for given, same in ((half, True), (Checkpoint(6, arrays, rest), False)):
        training = Training(JOB, given)
        while training.step < JOB.steps:
            training.advance()
        assert (Checkpoint(training.step, training.arrays, training.rest).digest == alone().digest) is same


@pytest.mark.parametrize("size, ranks", [(10, 3), (288, 5), (4, 4), (3, 1)])
def test_slices_are_contiguous_and_even(size, ranks):
    slices = [bounds(size, rank, ranks) for rank in range(ranks)]
    assert np.concatenate([np.arange(size)[s] for s in slices]).tolist() == list(range(size))
    lengths = [s.stop - s.start for s in slices]
    assert max(lengths) - min(lengths) <= 1


# Real processes


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_number_of_ranks_changes_no_bit(ranks):
    with a_folder(steps=JOB.steps, ranks=ranks) as folder:
        assert end(folder).digest == alone().digest
        assert end(folder).step == 10
        assert end(folder).arrays.tobytes() == alone().arrays.tobytes()


def test_a_kill_at_each_stage_of_a_save_loses_nothing_that_was_declared_and_changes_no_bit():
    job = Job(steps=40, every=2)
    with tempfile.TemporaryDirectory() as whole:
        trace = run(Job(steps=4, every=2), whole)[0].trace
    # From the step before the first save to the step after it: in this order nearly all lives end before they declare.
    events = [(rank, event, what.split()[0]) for rank in (1, 0) for event, (step, what) in enumerate(trace[rank])
              if step in (1, 2) and not what.startswith(("names", "read"))]  # fmt: skip
    assert {what for _, _, what in events} == {"step", "send", "wait", *CHANGES} - {"remove"}
    faults = [Fault(rank, event) for rank, event, _ in events]
    with tempfile.TemporaryDirectory() as folder:
        lives = run(job, folder, faults)
        assert [life.ended for life in lives] == ["killed"] * len(faults) + ["done"]
        assert nothing_declared_is_lost(lives) == 40
        assert end(folder).digest == alone(40).digest
        assert {name[:8] for name in Disk(folder).names()} == {"00000038", "00000040"}


def test_what_was_declared_is_what_the_next_life_starts_from():
    with tempfile.TemporaryDirectory() as folder:
        lives = run(JOB, folder, [Fault(1, 10), Fault(0, 45), Fault(1, 32)])
    assert [life.start for life in lives] == [0, 0, 4, 8]
    assert [life.declared for life in lives] == [[], [4], [8], [10]]
    assert [(life.ended, life.rank) for life in lives] == [("killed", 1), ("killed", 0), ("killed", 1), ("done", None)]


@pytest.mark.parametrize("rank", [0, 1])
def test_no_rank_goes_on_before_the_checkpoint_is_declared(rank):
    with tempfile.TemporaryDirectory() as folder:
        trace = run(Job(steps=5, every=4), folder)[0].trace[rank]
    with tempfile.TemporaryDirectory() as folder:
        lives = run(Job(steps=5, every=4), folder, [Fault(rank, trace.index((4, "step")))])
        assert [(life.start, life.declared) for life in lives] == [(0, [4]), (4, [5])]


@pytest.mark.parametrize("event", [16, 21])
def test_a_rank_that_hangs_is_named_and_replaced(event):
    with tempfile.TemporaryDirectory() as folder:
        lives = run(Job(steps=6, every=2, ranks=3, patience=1.0), folder, [Fault(2, event, hang)])
        assert lives[0].ended == "silent" and lives[0].rank == 2 and lives[-1].ended == "done"
        assert nothing_declared_is_lost(lives) == 6
        assert end(folder).digest == alone(6).digest


@pytest.mark.parametrize("event", [1, 7])
def test_a_warning_to_one_rank_stops_all_after_the_same_step(event):  # C09
    with tempfile.TemporaryDirectory() as folder:
        lives = run(Job(steps=10, every=100, ranks=3), folder, [Fault(1, event, warn)])
        (stopped,) = lives[0].declared
        assert len(lives) == 1 and lives[0].ended == "done" and 1 <= stopped < 10
        assert {life_trace[-1][0] for life_trace in lives[0].trace.values()} == {stopped}
        run(JOB, folder)
        assert end(folder).digest == alone().digest


def test_a_bit_flipped_in_one_ranks_parameters_is_seen_by_the_next_step_and_undone():
    with tempfile.TemporaryDirectory() as folder:
        lives = run(JOB, folder, [Fault(1, 10, corrupt)])
        assert lives[0].ended == "differ" and lives[0].last == (2, "wait")
        assert nothing_declared_is_lost(lives) == 10
        assert end(folder).digest == alone().digest


def test_a_bit_flipped_before_the_sum_is_shared_by_all_ranks_and_seen_only_by_a_second_copy():
    for copies, ended in ((1, ["done"]), (2, ["differ", "done"])):
        with tempfile.TemporaryDirectory() as folder:
            lives = run(Job(steps=10, every=4, copies=copies), folder, [Fault(1, 10, miscompute)])
            assert [life.ended for life in lives] == ended
            assert (end(folder).digest == alone().digest) is (copies == 2)


def test_a_flipped_bit_flips_back():
    array = np.array([1.5, -2.0])
    flip_bit(array, 1, 63)
    assert array.tolist() == [1.5, 2.0]
    flip_bit(array, 0, 0)
    assert array[0] == np.nextafter(1.5, 2)
    flip_bit(array, 0, 0)
    assert array[0] == 1.5


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
def test_no_process_outlives_its_supervisor(monkeypatch):
    mark = f"test-{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setenv("RESUME_TEST", mark)

    def left():
        found = []
        for entry in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if entry.parent.name != str(os.getpid()) and mark.encode() in entry.read_bytes():
                    found.append(entry.parent.name)
        return found

    with tempfile.TemporaryDirectory() as folder:
        with pytest.raises(subprocess.TimeoutExpired):
            run(Job(patience=600.0), folder, [Fault(1, 20, hang)], timeout=1.5)
        limit = time.monotonic() + 30
        while left() and time.monotonic() < limit:
            time.sleep(0.1)
        assert not left()
        run(Job(steps=2), folder)
        assert not left()


def test_a_training_that_always_dies_is_given_up():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "00000004.0of2.tmp").mkdir()  # no shard can be written
        with pytest.raises(subprocess.CalledProcessError):
            run(JOB, folder)
        assert checkpoints(Disk(folder)) == ([], [])


# Checkpoints


def damage(folder, how, name):
    path = folder / name
    data = bytearray(path.read_bytes())
    if how == "torn":
        path.write_bytes(data[: len(data) // 2])
    elif how == "flipped":
        data[len(data) // 3] ^= 4
        path.write_bytes(data)
    elif how == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()


@pytest.mark.parametrize("how", ["torn", "flipped", "empty", "gone"])
@pytest.mark.parametrize("name", ["00000008.1of2", "00000008.manifest"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_taken(how, name):
    with a_folder() as folder:
        damage(folder, how, name)
        whole, refused = checkpoints(Disk(folder))
        assert [checkpoint.step for checkpoint in whole] == [4]
        assert whole[0].digest == alone(4).digest
        assert (how, name) == ("gone", "00000008.manifest") or (len(refused) == 1 and name in refused[0])
        if how == "torn":
            lives = run(JOB, folder)
            assert lives[0].start == 4 and lives[0].refused == refused
            assert end(folder).digest == alone().digest


def test_any_flipped_bit_of_a_shard_or_manifest_is_seen():
    disk, state = PowerCutDisk(), alone(4)
    declare(disk, 4, [save_shard(disk, 4, r, 2, state.arrays[:, bounds(SIZE, r, 2)]) for r in (0, 1)], state.rest)
    files = {name: disk.read(name) for name in disk.names()}
    rng = np.random.default_rng(8)
    for name, data in files.items():
        for place in rng.integers(0, len(data), 40):
            broken = bytearray(data)
            broken[place] ^= 1 << int(rng.integers(8))
            with pytest.raises(ValueError, match="is not what"):
                load(PowerCutDisk(files | {name: bytes(broken)}), "00000004.manifest")


@pytest.mark.parametrize("before, after", [(2, 3), (3, 1)])
def test_shards_of_other_ranks_give_the_same_parameters_and_the_same_end(before, after):
    with a_folder(ranks=before) as folder:
        assert sum(".manifest" not in name for name in Disk(folder).names()) == 2 * before
        assert end(folder).digest == alone(8).digest
        lives = run(Job(steps=JOB.steps, ranks=after), folder)
        assert lives[0].start == 8
        assert end(folder).digest == alone().digest


def test_a_checkpoint_is_declared_after_every_flush_and_older_ones_go_only_then():
    with tempfile.TemporaryDirectory() as folder:
        life = run(Job(steps=12, every=4), folder)[0]
    for rank, trace in life.trace.items():
        calls = [what for _, what in trace if what.split()[0] in CHANGES]
        for step in (4, 8, 12):
            files = [f"{step:08d}.{rank}of2", *([f"{step:08d}.manifest"] if rank == 0 else [])]
            each = ("create {}.tmp", "append {}.tmp", "sync {}.tmp", "rename {}.tmp", "sync_folder")
            order = [call.format(name) for name in files for call in each]
            assert calls[: len(order)] == order
            calls = calls[len(order) :]
            while calls and calls[0].startswith("remove"):
                assert calls.pop(0).split()[1][:8] == f"{step - 8:08d}"
        assert not calls
    trace = life.trace[0]
    last_shard = max(i for i, (step, what) in enumerate(trace) if step == 8 and what == "rename 00000008.0of2.tmp")
    assert trace.index((8, "create 00000008.manifest.tmp")) > last_shard + 2  # after the ranks' checksums came


def test_pruning_keeps_the_newest_whole_ones_and_clears_what_broken_writes_left():
    disk = PowerCutDisk()
    for step in (1, 2, 3, 4):
        declare(disk, step, [save_shard(disk, step, 0, 1, alone(step).arrays)], alone(step).rest)
    for name, data in {"00000005.0of1.tmp": b"half", "00000004.0of1": b"damaged"}.items():
        put(disk, name, data)
    prune(disk, keep=2)
    assert disk.names() == [f"{step:08d}.{kind}" for step in (2, 3) for kind in ("0of1", "manifest")]


# Power cuts


def cut_points(disk, ranks, steps):
    """Save after save of the newest alone; (newest declared step, the disk then) before each call, and at the end."""
    points, declared = [], 0
    watched = Watched(disk, lambda *call: points.append((declared, copy.deepcopy(disk))))
    for step in steps:
        state = alone(step)
        slices = [state.arrays[:, bounds(SIZE, rank, ranks)] for rank in range(ranks)]
        declare(watched, step, [save_shard(watched, step, r, ranks, part) for r, part in enumerate(slices)], state.rest)
        declared = step
        prune(watched, keep=1)
    return [*points, (declared, disk)]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_power_cut_at_any_call_leaves_the_newest_declared_checkpoint_whole(ranks):
    count = 0
    for declared, disk in cut_points(PowerCutDisk(), ranks, (1, 2, 3)):
        for left in disk.survivors():
            count += 1
            whole, _ = checkpoints(left)
            assert (whole[0].step if whole else 0) >= declared
            assert all(checkpoint.digest == alone(checkpoint.step).digest for checkpoint in whole)
    assert count > 100 * ranks


@pytest.mark.parametrize("forgotten", ["sync", "sync_folder"])
def test_without_either_flush_a_power_cut_can_lose_what_was_declared_but_never_gives_wrong_bits(forgotten):
    disk, lost = PowerCutDisk(), 0
    setattr(disk, forgotten, lambda *name: None)
    for declared, state in cut_points(disk, 1, (1, 2)):
        for left in state.survivors():
            whole, _ = checkpoints(left)
            lost += (whole[0].step if whole else 0) < declared
            assert all(checkpoint.digest == alone(checkpoint.step).digest for checkpoint in whole)
    assert lost


def test_the_disk_of_power_cuts_keeps_what_was_synced_and_anything_of_the_rest():
    disk = PowerCutDisk({"a": b"old"})
    assert [left.read("a") for left in disk.survivors()] == [b"old"]
    disk.create("b")
    disk.append("b", b"1234")
    found = {tuple((name, left.read(name)) for name in left.names()) for left in disk.survivors()}
    assert found == {(("a", b"old"),), *((("a", b"old"), ("b", b)) for b in (b"", b"12", b"1234"))}
    disk.sync("b")
    disk.rename("b", "a")
    found = {tuple((name, left.read(name)) for name in left.names()) for left in disk.survivors()}
    assert found == {(("a", b"old"),), (("a", b"old"), ("b", b"1234")), (("a", b"1234"),)}
    disk.sync_folder()
    assert [(left.names(), left.read("a")) for left in disk.survivors()] == [(["a"], b"1234")]


def test_both_disks_do_the_same():
    with tempfile.TemporaryDirectory() as folder:
        for disk in (real := Disk(folder), fake := PowerCutDisk()):
            put(disk, "x", b"a" * 10_000)
            put(disk, "x", b"b" * 5)
            put(disk, "y", b"")
            disk.remove("y")
            disk.create("z")
        assert real.names() == fake.names() == ["x", "z"]
        assert real.read("x") == fake.read("x") == b"bbbbb"
        real.create("x")
        assert real.read("x") == b""


# What a job must be


@pytest.mark.parametrize("wrong", [{"ranks": 0}, {"steps": 2.5}, {"every": 0}, {"keep": 0}, {"patience": 0.0}])
def test_a_job_names_what_is_wrong_with_it(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        Job(**wrong)


def test_checksums_tell_arrays_apart_by_one_bit():
    array = np.arange(5.0)
    before = checksum(array)
    flip_bit(array, 3, 0)
    assert checksum(array) != before == checksum(np.arange(5.0).tobytes())


# Many times


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_twenty_random_kills_lose_nothing_and_change_no_bit(seed):
    """A hundred in all: half at a random event, half at a random moment after one."""
    rng, kills = np.random.default_rng(seed), 0
    while kills < 20:
        ranks = int(rng.integers(1, 5))
        delays = 0.03 * rng.random(6) * rng.integers(2, size=6)
        faults = [Fault(int(rng.integers(ranks)), int(rng.integers(160)), delay=float(delay)) for delay in delays]
        with tempfile.TemporaryDirectory() as folder:
            lives = run(Job(steps=24, ranks=ranks, every=int(rng.integers(1, 6))), folder, faults)
            kills += [life.ended for life in lives].count("killed")
            assert nothing_declared_is_lost(lives) == 24
            assert end(folder).digest == alone(24).digest
