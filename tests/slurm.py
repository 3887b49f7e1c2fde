"""A real Slurm controller on this machine, in a folder of its own; nothing of it is left behind."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

PROGRAMS = ["munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "scancel"]
COMMON = """\
ClusterName=book
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CryptoType=crypto/munge
SlurmctldPort={port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
MailProg=/bin/true
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
PriorityType=priority/basic
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
"""
#: Four nodes that are processes on this machine. Of their eight cores each stands for a GPU.
FOUR = """\
SchedulerParameters=bf_interval=1,bf_resolution=1,sched_interval=5,batch_sched_delay=0,sched_min_interval=0{more}
SlurmdParameters=config_overrides
SlurmdTimeout=60
KillWait=5
NodeName=node[1-4] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{ports}] CPUs=8 Boards=1 \
SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=1000
PartitionName=main Nodes=node[1-4] Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""
#: 2,048 nodes that are only described: 64 leaf switches of 32 nodes, eight pods of eight leaves.
DESCRIBED = """\
GresTypes=gpu
EnforcePartLimits=ALL
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=600
SuspendTimeout=30
ResumeTimeout=300
SlurmdTimeout=0
TopologyPlugin=topology/tree
NodeName=n[0001-2048] NodeAddr=127.0.0.1 Port=17999 CPUs=96 SocketsPerBoard=2 CoresPerSocket=48 \
RealMemory=2000000 Gres=gpu:8 State=CLOUD
PartitionName=train Nodes=n[0001-2048] Default=YES MaxTime=2-00:00:00 State=UP OverSubscribe=NO
"""
TREE = "".join(
    f"SwitchName=leaf{i:02} Nodes=n[{32 * i + 1:04}-{32 * i + 32:04}]\n" for i in range(64)
) + "".join(f"SwitchName=pod{i} Switches=leaf[{8 * i:02}-{8 * i + 7:02}]\n" for i in range(8)) + (
    "SwitchName=core Switches=pod[0-7]\n"
)  # fmt: skip


def why_not():
    """Why no controller can start here, in words, or ''."""
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        return f"Slurm is not installed ({', '.join(missing)}): see .ci/install"
    return "" if os.geteuid() == 0 else "a controller of one's own needs root"


def free_ports(count):
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Controller:
    """A running slurmctld, with or without nodes."""

    def __init__(self, folder):
        self.folder = folder
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")} | {
            "SLURM_CONF": f"{folder}/slurm.conf"
        }

    def run(self, *command, check=True, cwd=None):
        done = subprocess.run([str(part) for part in command], cwd=cwd or self.folder, env=self.environment, text=True,
                              encoding="utf-8", stdin=subprocess.DEVNULL, capture_output=True, timeout=60)  # fmt: skip
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done

    def submit(self, *options, cwd=None):
        return self.run("sbatch", "--parsable", *options, cwd=cwd).stdout.strip()

    def jobs(self):
        """The fields of each job, by its number."""
        lines = self.run("scontrol", "-o", "show", "job").stdout.splitlines()
        fields = [dict(part.partition("=")[::2] for part in line.split()) for line in lines if "JobId=" in line]
        return {job["JobId"]: job for job in fields}

    def until(self, holds, what, seconds=60):
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, f"waited {seconds} s for {what}\n{self.logs()}"
            time.sleep(0.1)

    def logs(self):
        paths = sorted((self.folder / "log").glob("*.log"))
        return "".join(path.read_text(encoding="utf-8", errors="replace")[-2000:] for path in paths)


@contextmanager
def _controller(configuration, more_files=()):
    """munged and slurmctld with this configuration; both, and all that registers a pid file, end with the block."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)  # munged will have no other
    controller = Controller(folder)
    try:
        for name in ("state", "log", "spool"):
            (folder / name).mkdir()
        for name, text in [("slurm.conf", configuration.format(folder=folder, port=free_ports(1)[0])), *more_files]:
            (folder / name).write_text(text, encoding="utf-8")
        (folder / "munge.key").write_bytes(os.urandom(1024))
        (folder / "munge.key").chmod(0o400)
        controller.run("munged", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket",
                       f"--pid-file={folder}/munged.pid", f"--log-file={folder}/log/munged.log",
                       f"--seed-file={folder}/munge.seed")  # fmt: skip
        controller.run("slurmctld", "-c", "-f", folder / "slurm.conf")
        controller.until(lambda: controller.run("scontrol", "ping", check=False).returncode == 0, "slurmctld")
        yield controller
    finally:
        if (folder / "slurmctld.pid").exists():
            _cancel(controller)
        _end_all(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _cancel(controller):
    """Cancel all jobs and wait until they are gone."""
    with suppress(subprocess.TimeoutExpired):  # of a controller that is gone
        for _ in range(300):  # a node that is ended while a job of its ends leaves a process behind
            queue = controller.run("squeue", "-h", "-o", "%i", check=False)
            if queue.returncode or not queue.stdout.strip():
                break
            controller.run("scancel", *queue.stdout.split(), check=False)
            time.sleep(0.1)


def _end_all(folder):
    """End the daemons by their pid files, nodes first; then what else knows this folder, if a daemon died too early."""
    for name in ("slurmd.*.pid", "slurmctld.pid", "munged.pid"):
        for path in folder.glob(name):
            _end(int(path.read_text(encoding="utf-8")))
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"SLURM_CONF={folder}/".encode() in (process / "environ").read_bytes():
                _end(int(process.name))


def _end(pid):
    for number, tries in ((signal.SIGTERM, 100), (signal.SIGKILL, 20)):
        if _lives(pid):
            os.kill(pid, number)
        for _ in range(tries):
            if not _lives(pid):
                return
            time.sleep(0.1)


def _lives(pid):
    """Whether the process runs; one that has ended and that nobody has asked after does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextmanager
def four_nodes(more=""):
    """A controller with four virtual nodes of eight cores; `more` scheduler parameters begin with a comma."""
    ports = free_ports(4)
    nodes = FOUR.replace("{ports}", ",".join(map(str, ports))).replace("{more}", more)
    with _controller(COMMON + nodes) as controller:
        for i in range(1, 5):
            controller.run("slurmd", "-f", controller.folder / "slurm.conf", "-N", f"node{i}")
        idle = lambda: controller.run("scontrol", "-o", "show", "nodes").stdout.count("State=IDLE ") == 4  # noqa: E731
        controller.until(idle, "four idle nodes")
        yield controller


@contextmanager
def described_nodes():
    """A controller that describes 2,048 nodes of eight GPUs: it plans, and nothing can run."""
    with _controller(COMMON + DESCRIBED, [("topology.conf", TREE)]) as controller:
        yield controller
