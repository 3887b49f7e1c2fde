"""The batch scripts of the book, and the simulator, before a real Slurm controller.

The slow tests start one (see slurm.py), and are skipped where Slurm is not installed. The others compare the
simulator with what such a controller answered when distlib/data/slurm_*.csv were recorded.
"""

import re
import subprocess
import time
from datetime import datetime

import numpy as np
import pytest

import chapters
import slurm
from distlib.cluster import Job, Site, conservative, easy, packed, signal_lead, simulate
from distlib.published import slurm_placements, slurm_plans
from distlib.units import minute

SCRIPTS = sorted((chapters.ROOT / "book" / "systems" / "slurm").glob("*.sh"))
SITE = Site(2048, 8, (32, 256))
#: Policy, by the scheduler parameters that make Slurm follow it: its own default is conservative backfill.
SETTINGS = {"conservative": (conservative, ""), "easy": (easy, ",bf_job_part_count_reserve=1")}
names = {"ids": lambda path: path.name}


@pytest.fixture
def needs_slurm():
    if why := slurm.why_not():
        pytest.skip(why)


# What Slurm does not say of a script.


def faults(text):
    """What is wrong with a batch script though `sbatch` takes it."""
    lines = text.splitlines()
    commands = [i for i, line in enumerate(lines) if line.strip() and not line.startswith("#")]
    first = commands[0] if commands else len(lines)
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", text, re.MULTILINE))
    for i, line in enumerate(lines):
        if re.match(r"\s*#+\s+SBATCH|\s+#SBATCH|##+SBATCH|#sbatch", line):
            yield f"line {i + 1} is a comment, not an option"
        if line.startswith("#SBATCH") and i > first:
            yield f"line {i + 1} comes after the first command: Slurm stops reading options there"
    gpus = re.search(r"gpu:(\d+)", options.get("gres", ""))
    asked = int(gpus[1]) if gpus else 0
    for started in re.findall(r"--nproc-per-node=(\d+)", text):
        if int(started) != asked:
            yield f"torchrun starts {started} processes a node, which has {asked} GPUs"
    if "torchrun" in text and options.get("ntasks-per-node", "1") != "1":
        yield "torchrun starts the processes of a node itself: one task a node"
    if "srun" in text and "torchrun" in text and "--nnodes" not in text:
        yield "torchrun is not told how many nodes there are"
    if asked and "time" not in options:
        yield "has no time limit, so no job can be planned behind it"
    if "signal" in options and options["signal"].startswith("B:"):
        if not re.search(r"^\s*trap ", text, re.MULTILINE):
            yield "its shell is warned and sets no trap"
        if not re.search(r"&\n(.*\n)*?.*\bwait\b", text):
            yield "its shell is warned while a program runs in front: the trap runs when that has ended"
    if "scontrol requeue" in text and options.get("open-mode") != "append":
        yield "is requeued and begins its log anew"


@pytest.mark.parametrize("script", SCRIPTS, **names)
def test_a_script_is_what_it_seems(script):
    assert list(faults(script.read_text(encoding="utf-8"))) == []
    assert subprocess.run(["bash", "-n", script], capture_output=True).returncode == 0


TRAIN = (chapters.ROOT / "book" / "systems" / "slurm" / "train.sh").read_text(encoding="utf-8")


@pytest.mark.parametrize("old, new, fault", [
    ("#SBATCH --nodes", "# SBATCH --nodes", "is a comment"),
    ("#SBATCH --nodes", " #SBATCH --nodes", "is a comment"),
    ("#SBATCH --job-name", "true\n#SBATCH --job-name", "after the first command"),
    ("gpu:8", "gpu:4", "starts 8 processes a node, which has 4 GPUs"),
    ("--ntasks-per-node=1", "--ntasks-per-node=8", "one task a node"),
    ('--nnodes="$SLURM_NNODES" ', "", "how many nodes"),
    ("#SBATCH --time=24:00:00\n", "", "no time limit"),
    ("trap ", "echo ", "sets no trap"),
    (" &\n", "\n", "in front"),
    ("--open-mode=append", "--open-mode=truncate", "log anew"),
])  # fmt: skip
def test_a_slip_that_slurm_accepts_is_found(old, new, fault):
    assert old in TRAIN
    assert any(fault in found for found in faults(TRAIN.replace(old, new, 1)))


def test_the_warning_of_the_training_script_lasts_for_a_step_and_a_save():
    asked = int(re.search(r"--signal=B:USR1@(\d+)", TRAIN)[1])
    assert asked - 10 < signal_lead(105.0, 40.0) <= asked


# The recorded answers.


def modelled(plan):
    """The simulator's start of each job of a recorded plan, where those that run started when they really did."""
    policy = SETTINGS[plan[0].policy][0]
    jobs = [Job(row.job, row.start if row.running else row.submit, row.nodes, 8, row.limit, row.limit) for row in plan]
    jobs.sort(key=lambda job: job.submit)
    result = simulate(jobs, Site(4, 8), policy)
    return {row.job: result.starts[row.job] for row in plan}


@pytest.mark.parametrize("policy", SETTINGS)
def test_the_simulator_plans_as_the_recorded_controller_did(policy):
    plan = [row for row in slurm_plans() if row.policy == policy]
    starts = modelled(plan)
    assert len(plan) == 6
    for row in plan:
        assert row.start is None or abs(starts[row.job] - row.start) <= 1
    assert {row.job for row in plan if row.start is None} == ({"C", "Y"} if policy == "easy" else set())


def drained(text):
    free = np.full(2048, 8)
    for low, high in re.findall(r"(\d+)-(\d+)", text):
        free[int(low) - 1 : int(high)] = 0
    return free


def numbers(text):
    """The nodes, from 0, of a list such as n[0021-0028,0065]."""
    spans = [part.partition("-")[::2] for part in re.sub(r"[n\[\]]", "", text).split(",")]
    return np.concatenate([np.arange(int(low) - 1, int(high or low)) for low, high in spans])


@pytest.mark.parametrize("row", slurm_placements(), ids=lambda row: str(row.nodes))
def test_the_simulator_places_as_the_recorded_controller_did(row):
    found = packed(SITE, drained(row.drained), Job("a", 0, row.nodes, 8, 1, 1))
    assert np.array_equal(found, numbers(row.chosen)) == row.agrees
    if not row.agrees:  # beyond what is left of the first pod the controller takes more leaves, or leaves of two pods
        assert len(set(numbers(row.chosen) // 32)) >= len(set(found // 32))


def test_two_plans_of_six_jobs_are_recorded_and_slurm_plans_all_of_them_by_default():
    plans = {policy: [row for row in slurm_plans() if row.policy == policy] for policy in ("conservative", "easy")}
    for rows in plans.values():
        assert [(row.job, row.nodes, row.limit) for row in rows] == [
            ("A", 2, 120), ("A2", 1, 240), ("B", 2, 60), ("C", 4, 60), ("X", 1, 300), ("Y", 1, 180)
        ]  # fmt: skip
        assert all(row.start >= row.submit for row in rows if row.start is not None)
    assert [row.start for row in plans["conservative"]] == [0, 1, 120, 241, 301, 5]
    assert [row.start for row in plans["easy"]] == [0, 1, 120, None, 4, None]
    assert [row.job for row in plans["easy"] if row.running] == ["A", "A2", "X"]


def test_the_recorded_placements_are_of_the_size_that_was_asked():
    for row in slurm_placements():
        spans = [part.partition("-")[::2] for part in row.chosen.strip("n[]").split(",")]
        assert sum(int(high or low) - int(low) + 1 for low, high in spans) == row.nodes
        assert not any(int(low) <= 20 or 33 <= int(low) <= 40 for low, _ in spans)
    assert [row.agrees for row in slurm_placements()].count(False) == 4


# A controller.


@pytest.mark.slow
def test_every_script_is_accepted_for_two_thousand_nodes_and_placed_as_simulated(needs_slurm):
    with slurm.described_nodes() as controller:
        for script in SCRIPTS:
            done = controller.run("sbatch", "--test-only", script, check=False, cwd=script.parent)
            assert done.returncode == 0 and "to start at" in done.stderr, (script.name, done.stderr)
        for options in (["-N2049"], ["-N33", "--switches=1"], ["--gres=gpu:9"], ["--gres=tpu:1"], ["-t", "3-0"],
                        ["-p", "nowhere"], ["-t", "banana"]):  # fmt: skip
            refused = controller.run("sbatch", "--test-only", *options, "--wrap", "true", check=False)
            assert refused.returncode != 0, options
        for nodes in ("n[0001-0020]", "n[0033-0040]"):
            controller.run("scontrol", "update", f"nodename={nodes}", "state=drain", "reason=test")
        for row in slurm_placements():
            whole = ["-N", row.nodes, "--gres=gpu:8", "--exclusive", "--wrap", "true"]
            answer = controller.run("sbatch", "--test-only", *whole)
            chosen = numbers(re.search(r"on nodes (\S+)", answer.stderr)[1])
            assert np.array_equal(chosen, numbers(row.chosen)), row.nodes


def ask(policy):
    """The recorded plan's jobs before a real controller: rows with the starts that it gave or planned."""
    recorded = [row for row in slurm_plans() if row.policy == policy]
    with slurm.four_nodes(SETTINGS[policy][1]) as controller:
        numbers = {}
        for row in recorded:
            time.sleep(1.1)
            numbers[controller.submit(f"-N{row.nodes}", "--ntasks-per-node=1", "-c8", f"-t{row.limit / minute:.0f}",
                                      "--output=/dev/null", "--wrap", "sleep 600")] = row  # fmt: skip
        time.sleep(4)
        jobs = controller.jobs()
        first = seconds(next(iter(jobs[number]["StartTime"] for number in numbers)))
        return [
            type(row)(row.policy, row.job, seconds(jobs[number]["SubmitTime"]) - first, row.nodes, row.limit,
                      jobs[number]["JobState"] == "RUNNING",
                      None if jobs[number]["StartTime"] == "Unknown" else seconds(jobs[number]["StartTime"]) - first)
            for number, row in numbers.items()
        ]  # fmt: skip


def seconds(stamp):
    return datetime.fromisoformat(stamp).timestamp()


@pytest.mark.slow
@pytest.mark.parametrize("policy", SETTINGS)
def test_a_controller_plans_as_the_simulator_does_and_as_it_did(needs_slurm, policy):
    plan = ask(policy)
    starts = modelled(plan)
    for row, before in zip(plan, (row for row in slurm_plans() if row.policy == policy), strict=True):
        assert (row.job, row.running, row.start is None) == (before.job, before.running, before.start is None)
        assert row.start is None or abs(starts[row.job] - row.start) <= 1, (row, starts)


#: Stands for torchrun: steps of a second until the stop file is there, then a save; done after a restart.
STAND_IN = """#!/bin/bash
stop=$(printf '%s\\n' "$@" | sed -n 's/^--stop-if-exists=//p')
echo "run ${SLURM_RESTART_COUNT:-0} on $SLURMD_NODENAME"
[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || exit 0
for _ in $(seq 100); do
  sleep 1
  if [ -e "$stop" ]; then sleep 2; echo "saved on $SLURMD_NODENAME"; exit 0; fi
done
"""


@pytest.mark.slow
def test_the_training_script_saves_at_the_warning_and_runs_again(needs_slurm):
    with slurm.four_nodes() as controller:
        work = controller.folder / "work"
        work.mkdir()
        (work / "torchrun").write_text(STAND_IN, encoding="utf-8")
        (work / "torchrun").chmod(0o755)
        controller.environment["PATH"] = f"{work}:{controller.environment['PATH']}"
        script = work / "train.sh"
        unavailable = r"(?m)^#SBATCH --(partition|gres|cpus-per-task|switches|nodes|time)=.*\n"
        script.write_text(re.sub(unavailable, "", TRAIN), encoding="utf-8")
        number = controller.submit("-N2", "-c8", "-t1", script, cwd=work)
        state = lambda: controller.jobs()[number]["JobState"]  # noqa: E731
        controller.until(lambda: state() == "COMPLETED", "the second run", 90)
        log = (work / f"pretrain-{number}.log").read_text(encoding="utf-8")
        for run, count in (("run 0", 2), ("saved", 2), ("run 1", 2)):
            assert log.count(run) == count, log
        assert controller.jobs()[number]["Restarts"] == "1"
