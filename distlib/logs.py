"""Logs of benchmarks and of jobs, as records: `read` takes a file of `distlib.measure`, of nccl-tests or rccl-tests, or
of the OSU micro-benchmarks; `read_jobs` a table of jobs. `calibrate` fits a law of `distlib.alphabeta` to a sweep.

A log is read whole or not at all: what is damaged raises ValueError with the line and the reason. What a log says twice
must agree: rows and the sizes that its head announces, algbw and size over time, the mean of busbw and the printed one.
The number of ranks is compared with what busbw/algbw implies, and a difference stands in `remarks`. A table cut at its
end that has no head or foot, and any OSU log so cut, cannot be told from a shorter one.

Sizes follow nccl-tests (see `distlib.collectives.busbw`); OSU prints the bytes of one rank's block for an all-gather
and for an all-to-all, and these are multiplied by the ranks.
"""

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from distlib.alphabeta import CHUNKED, LAUNCHED, LINE, TWO_PROTOCOLS, Fit, fit, leave_one_out
from distlib.collectives import BUSBW_FACTORS, busbw_factor
from distlib.domain import POSITIVE, Real, domain
from distlib.units import GB, MB, us

OWN = (*BUSBW_FACTORS, "ring_all_reduce", "ping_pong", "ping_pong_far")


@dataclass(frozen=True, eq=False)
class Log:
    """One operation timed over message sizes. Arrays have one element a row; nan where the tool prints nothing."""

    tool: str  # distlib.measure, nccl-tests, rccl-tests, OSU
    version: str  # as the log states it; empty where it does not
    operation: str  # ping_pong, stream (OSU's bandwidth), or that of a collective
    ranks: int
    nodes: int | None
    machine: str  # the accelerator or the machine, as the log states it
    n: np.ndarray  # byte; 0 where a tool sent nothing
    time: np.ndarray  # s, out-of-place: the mean that a tool prints, the least of the repeats that `measure` writes
    median: np.ndarray  # s, of the repeats
    time_in_place: np.ndarray  # s
    wrong: np.ndarray  # elements with a wrong value, as nccl-tests counts them; 1 where OSU's validation fails
    remarks: tuple[str, ...]  # what a reader should know before using it

    @property
    def sized(self) -> tuple[np.ndarray, np.ndarray]:
        """(n, time) of the rows that sent something, as a fit takes them."""
        return self.n[self.n > 0], self.time[self.n > 0]


def _log(
    tool: str, version: str, operation: str, ranks: int, nodes: int | None, machine: str, n: Any, time: Any,
    median: Any = None, time_in_place: Any = None, wrong: Any = None, remarks: Iterable[str] = (),
) -> Log:  # fmt: skip
    """A `Log` from columns; one that the tool does not print is nan."""
    medians, in_place, errors = (
        np.full(len(n), np.nan) if column is None else np.array(column, float)
        for column in (median, time_in_place, wrong)
    )
    found = ["wrong values: the transport corrupts data"] if np.nansum(errors) else []
    return Log(tool, version, operation, ranks, nodes, machine, np.array(n, float), np.array(time, float), medians,
               in_place, errors, (*remarks, *found))  # fmt: skip


def _fail(number: int, reason: str) -> ValueError:
    return ValueError(f"line {number}: {reason}")


NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d{1,2})?", re.ASCII)
WHOLE = re.compile(r"\d+", re.ASCII)


def _whole(number: int, name: str, cell: str) -> int:
    if not WHOLE.fullmatch(cell) or len(cell) > 18:
        raise _fail(number, f"{name} must be a whole number, got {cell!r}")
    return int(cell)


def _number(number: int, name: str, cell: str, missing: bool = False) -> float:
    if missing and cell == "N/A":
        return np.nan
    if not NUMBER.fullmatch(cell) or not np.isfinite(float(cell)):
        raise _fail(number, f"{name} must be a finite number{' or N/A' * missing}, got {cell!r}")
    return float(cell)


def _positive(number: int, name: str, cell: str) -> float:
    if not (value := _number(number, name, cell)) > 0:
        raise _fail(number, f"{name} must be > 0, got {cell!r}")
    return value


#: What mpirun and srun put before a line to say who wrote it: `[1,0]<stdout>:`, `0: `.
LABEL = re.compile(r"^(\[\d+,\d+\]<std\w+>:|\d+: )")


def read(path: str | Path, ranks: int | None = None, operation: str | None = None) -> tuple[Log, ...]:
    """Every sweep of a file. `ranks` and `operation` say what the file does not; what it says itself is compared."""
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    lines = [LABEL.sub("", line).strip() for line in text.split("\n")]
    readers = [
        (r"# distlib\.measure:", lambda: _read_own(lines)),
        (r"# OSU MPI", lambda: _read_osu(lines, ranks)),
        (HEAD.pattern, lambda: _read_nccl(lines, ranks, operation)),
    ]
    found = [reader for pattern, reader in readers if any(re.match(pattern, line) for line in lines)]
    if len(found) != 1:
        raise _fail(1, f"a log of one tool is needed, got {'two' if found else 'none that is known'}")
    logs = found[0]()
    if not logs:
        raise _fail(len(lines), "the log ends without a row")
    return logs


def log(path: str | Path, operation: str, ranks: int | None = None) -> Log:
    """The sweep of that operation from a file that has one of it."""
    logs = [log for log in read(path, ranks) if log.operation == operation]
    if len(logs) != 1:
        raise ValueError(f"{Path(path).name} must have one sweep of {operation}, it has {len(logs)}")
    return logs[0]


# distlib.measure


def _read_own(lines: list[str]) -> tuple[Log, ...]:
    head: dict[str, str] = {}
    sweeps: dict[str, list[tuple[int, np.ndarray]]] = {}
    titles = [i for i, line in enumerate(lines) if line == "operation,n_bytes,calls,times_us"]
    if len(titles) != 1:
        raise _fail(1, "one line `operation,n_bytes,calls,times_us` must stand between the header and the rows")
    for number, line in enumerate(lines[: titles[0]], 1):
        name, colon, head[name] = line.removeprefix("# ").partition(": ")
        if not line.startswith("# ") or not colon:
            raise _fail(number, f"a line of the header is `# name: value`, got {line!r}")
    if missing := {"distlib.measure", "machine", "date", "backend", "versions", "ranks", "nodes", "rows"} - set(head):
        raise _fail(titles[0], f"the header lacks {', '.join(sorted(missing))}")
    for number, line in enumerate(lines[titles[0] + 1 :], titles[0] + 2):
        cells = line.split(",")
        if line and (len(cells) != 4 or cells[0] not in OWN):
            raise _fail(number, f"a row has an operation, a size, calls and times, got {line!r}")
        if line:
            n, rows = _whole(number, "n_bytes", cells[1]), sweeps.setdefault(cells[0], [])
            _whole(number, "calls", cells[2])
            if n <= (rows[-1][0] if rows else 0):
                raise _fail(number, f"sizes of {cells[0]} must increase, got {n}")
            rows.append((n, us * np.array([_positive(number, "a time", cell) for cell in cells[3].split(" ")])))
    ranks, nodes, count = (_whole(1, name, head[name]) for name in ("ranks", "nodes", "rows"))
    if head["distlib.measure"] != "1" or ranks < 2 or count != sum(map(len, sweeps.values())):
        raise _fail(len(lines), f"the header says version 1, 2 ranks or more and {count} rows; the file has others")
    version = f"{head['backend']}, {head['date']}, {head['versions']}"
    return tuple(
        _log("distlib.measure", version, operation, ranks, nodes, head["machine"], [n for n, _ in rows],
             [times.min() for _, times in rows], median=[np.median(times) for _, times in rows])
        for operation, rows in sweeps.items()
    )  # fmt: skip


# OSU micro-benchmarks

OSU_TITLE = re.compile(r"# OSU MPI(?:-\S+)? (.+?)(?: Latency)? Test v?(\S+)\s*$")
OSU_COLUMN = re.compile(r"Size|Iterations|Validation|[A-Z][\w ]*\([^)]*\)")
#: Title: the operation, and whether the printed size is that of one block of as many as there are ranks.
OSU_OPERATIONS = {
    "Latency": ("ping_pong", False), "Bandwidth": ("stream", False), "Allreduce": ("all_reduce", False),
    "Allgather": ("all_gather", True), "Reduce_scatter": ("reduce_scatter", False), "Reduce": ("reduce", False),
    "All-to-All Personalized Exchange": ("all_to_all", True), "Broadcast": ("broadcast", False),
}  # fmt: skip


def _read_osu(lines: list[str], ranks: int | None) -> tuple[Log, ...]:
    titles = [i for i, line in enumerate(lines) if line.startswith("# OSU MPI")]
    if stray := [i for i, line in enumerate(lines[: titles[0]], 1) if line.startswith("# Size")]:
        raise _fail(stray[0], "the table has no title")
    return tuple(_osu_table(lines, *ends, ranks) for ends in pairwise([*titles, len(lines)]))


def _osu_table(lines: list[str], start: int, end: int, ranks: int | None) -> Log:
    title = OSU_TITLE.match(lines[start])
    if not title or title[1] not in OSU_OPERATIONS:
        raise _fail(start + 1, f"the test must be one of {', '.join(OSU_OPERATIONS)}, got {lines[start]!r}")
    operation, blocks = OSU_OPERATIONS[title[1]]
    columns: list[str] = []
    sizes: list[int] = []
    times, wrong = [], []
    for number, line in enumerate(lines[start + 1 : end], start + 2):
        cells = line.split()
        if line.startswith("# Size"):
            columns = OSU_COLUMN.findall(line)
            if sizes or len(columns) < 2 or not columns[1].endswith(("(us)", "(MB/s)")):
                raise _fail(number, f"the first head has the size and a time or bandwidth, got {line!r}")
        elif cells and line[0] != "#" and (WHOLE.fullmatch(cells[0]) or len(cells) == len(columns)):
            if len(cells) != len(columns):
                raise _fail(number, f"a row has {len(columns)} cells, got {line!r}")
            n, value = _whole(number, "size", cells[0]), _positive(number, columns[1], cells[1])
            if sizes and n != max(2 * sizes[-1], 1):
                raise _fail(number, f"sizes double; {n} follows {sizes[-1]}")
            sizes.append(n)
            times.append(n / (value * MB) if "MB/s" in columns[1] else value * us)
            wrong.append("Validation" in columns and cells[columns.index("Validation")] != "Pass")
    where = 2 if operation in ("ping_pong", "stream") else ranks
    if where is None or not sizes:
        raise _fail(end, f"an OSU log does not say how many ranks {operation} had: give ranks=" if sizes else "no row")
    n_bytes = [size * where if blocks else size for size in sizes]
    return _log("OSU", title[2], operation, where, None, "", n_bytes, times, wrong=wrong)


# nccl-tests and rccl-tests

TYPES = (
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2",
    "fp8_e4m3", "fp8_e5m2", "char", "int",
)  # fmt: skip
HEAD = re.compile(r"#?\s*size\s+count\s+type\s.*time\s+algbw\s+busbw")
ROW = re.compile(rf"\d\s+\d+\s+({'|'.join(TYPES)})\s")
PROGRAM = re.compile(r"\b(all_reduce|all_gather|reduce_scatter|alltoall|broadcast|reduce|sendrecv)_perf")
ANNOUNCED = re.compile(r"# nThread.*minBytes:? (\d{1,18}) maxBytes:? (\d{1,18}) step: (\d{1,18})\((factor|bytes)\)")
LOWERED = re.compile(r"# Reducing maxBytes to (\d{1,18})")
DEVICE = re.compile(r"#\s+Rank\s+(\d{1,9}) .*? on +(\S+) device +\d+ \[\S+\] (.*\S)")
TOOL = re.compile(r"(rccl-tests|nccl-tests|NCCL|RCCL) ?:? [vV]ersion ?:? (\S+)")
OUT_OF_BOUNDS = re.compile(r"# Out of bounds values : [1-9]")
FOOT = re.compile(r"# Avg bus bandwidth\s*: (\S+)")


def _read_nccl(lines: list[str], ranks: int | None, operation: str | None) -> tuple[Log, ...]:
    heads = [i for i, line in enumerate(lines) if HEAD.match(line)]
    if stray := [i for i, line in enumerate(lines[: heads[0]], 1) if ROW.search(line)]:
        raise _fail(stray[0], "a row stands before the head of its table")
    ends = zip([0, *heads], heads, [*heads[1:], len(lines)], strict=False)
    return tuple(log for before, head, end in ends for log in _nccl_run(lines, before, head, end, ranks, operation))


def _nccl_run(
    lines: list[str], before: int, head: int, end: int, given: int | None, operation: str | None
) -> Iterator[Log]:
    """The sweeps of one run, one for each type, reduction and root."""
    preamble = [line for line in lines[before:head] if "concluded" not in line]
    programs = [match[1] for line in preamble if (match := PROGRAM.search(line))]
    if not programs and operation is None:
        raise _fail(head + 1, "the log does not name its program (…_perf): give operation=")
    name = "all_to_all" if programs[-1:] == ["alltoall"] else programs[-1] if programs else operation or ""
    devices = {int(match[1]): match.groups()[1:] for line in preamble if (match := DEVICE.match(line))}
    if sorted(devices) != list(range(len(devices))):
        raise _fail(head + 1, f"the list of devices lacks a rank: it has {sorted(devices)}")
    announced = _announced(preamble)
    columns = lines[head].strip().lstrip("#").split()
    if columns[-4:-1] != ["time", "algbw", "busbw"] or columns[-8:-4] != columns[-4:]:
        raise _fail(head + 1, f"a head ends in time, algbw, busbw and errors, twice; got {lines[head].strip()!r}")

    sweeps: dict[tuple[str, ...], list[_Row]] = {}
    for number, line in enumerate(lines[head + 1 : end], head + 2):
        if _like_a_row(line, columns):
            row = _Row(number, line, columns)
            same = sweeps.setdefault(row.kind, [])
            if same and (row.size < same[-1].size or row.size == same[-1].size > 0):
                raise _fail(number, f"sizes must increase, {row.size} follows {same[-1].size}")
            same.append(row)
    rows = [row for same in sweeps.values() for row in same]
    if not rows:
        raise _fail(end, "the table has no row")
    implied = _implied_ranks(name, rows)
    busbw = np.array([row.values[:, 2] for row in rows]).mean()
    for number, line in enumerate(lines[head:end], head + 1):
        if foot := FOOT.match(line):
            if abs(busbw - _number(number, "the mean of busbw", foot[1])) > 0.006:
                raise _fail(number, f"busbw is {foot[1]} on average, that of the rows {busbw:.3f}: a row is lost")
    count = len(devices) or given
    if count is None and implied and implied[0] == implied[1]:
        count = int(implied[0])
    if count is None:
        raise _fail(head + 1, f"the log does not say how many ranks it had{_words(implied)}: give ranks=")
    remarks = [
        f"{said} ranks are {how}; busbw/algbw implies{_words(implied)[1:]}"
        for said, how in ((len(devices), "listed"), (given, "given"))
        if said and implied and not implied[0] <= said <= implied[1]
    ]
    if any(OUT_OF_BOUNDS.search(line) for line in lines[head:end]):
        remarks.append("values out of bounds")
    tools = list(dict.fromkeys(" ".join(match.groups()) for line in lines[before:end] if (match := TOOL.search(line))))
    machine = ", ".join(dict.fromkeys(accelerator for _, accelerator in devices.values()))
    for rows in sweeps.values():
        _complete(rows, announced)
        table = np.array([row.values for row in rows])
        yield _log(
            "rccl-tests" if any("rccl" in line.lower() for line in preamble) else "nccl-tests", ", ".join(tools), name,
            count, len({host for host, _ in devices.values()}) or None, machine, [row.size for row in rows],
            table[:, 0, 0] * us, time_in_place=table[:, 1, 0] * us, remarks=remarks,
            wrong=table[:, 0, 3] if columns[-1] == "#wrong" else None,
        )  # fmt: skip


def _announced(preamble: list[str]) -> int | None:
    """How many sizes the head says that there will be: from minBytes to maxBytes, by a factor or in steps."""
    match = next((match for line in preamble if (match := ANNOUNCED.search(line))), None)
    if match is None:
        return None
    low, high, step = (int(cell) for cell in match.groups()[:3])
    for line in preamble:
        high = int(lowered[1]) if (lowered := LOWERED.search(line)) else high
    if match[4] == "bytes" or low < 1 or step < 2:
        return (high - low) // max(step, 1) + 1
    return next(count for count in range(1100) if low * step**count > high)


def _like_a_row(line: str, columns: list[str]) -> bool:
    """A whole number first, the middle of a row anywhere, or as many cells as a row has and most of them numbers."""
    cells = line.split()
    numbers = sum(bool(NUMBER.fullmatch(cell)) for cell in cells)
    first = bool(cells) and bool(WHOLE.fullmatch(cells[0]))
    return first or bool(ROW.search(line)) or (len(cells) == len(columns) and numbers >= 5)


class _Row:
    """One row: its size, its kind (type, reduction, root), and out-of-place and in-place time, algbw, busbw, errors."""

    def __init__(self, number: int, line: str, columns: list[str]) -> None:
        cells = line.split()
        if len(cells) != len(columns):
            raise _fail(number, f"a row has {len(columns)} cells, got {line.strip()!r}")
        self.number, self.size, self.kind = number, _whole(number, "size", cells[0]), tuple(cells[2:-8])
        _whole(number, "count", cells[1])
        if cells[2] not in TYPES:
            raise _fail(number, f"type must be one of {', '.join(TYPES)}, got {cells[2]!r}")
        _positive(number, "time", cells[-8])
        groups = cells[-8:-4], cells[-4:]
        self.values = np.array([[_number(number, *cell, missing=True) for cell in zip(columns[-4:], group, strict=True)]
                                for group in groups])  # fmt: skip
        for (time, algbw, _, _), group in zip(self.values, groups, strict=True):
            half_time, half_rate = _half(group[0]), _half(group[1])
            slowest = self.size * MB / GB / (time + half_time) - half_rate
            fastest = self.size * MB / GB / max(time - half_time, 1e-9) + half_rate
            if not slowest * (1 - 1e-4) <= algbw <= fastest * (1 + 1e-4) and not np.isnan(time + algbw):
                raise _fail(number, f"algbw is printed as {group[1]}, size over time is between {slowest:.2f} and "
                                    f"{fastest:.2f} GB/s")  # fmt: skip


def _half(cell: str) -> float:
    """Half a unit of the last printed digit."""
    mantissa, _, exponent = cell.lower().partition("e")
    return 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def _complete(rows: list[_Row], announced: int | None) -> None:
    """As many rows as the head announces; without a head, sizes in even steps or of one ratio."""
    if announced not in (None, len(rows)):
        raise _fail(rows[-1].number, f"the head announces {announced} sizes, the table has {len(rows)}: it is damaged")
    n = np.array([row.size for row in rows if row.size])
    if announced is None and len(n) > 2 and np.ptp(np.diff(n)) > 0 and np.ptp(n[1:] / n[:-1]) > 0:
        raise _fail(rows[-1].number, "the sizes above go up neither in even steps nor by one ratio: a row is lost")


def _implied_ranks(operation: str, rows: list[_Row]) -> tuple[float, float] | None:
    """The least and the largest N with busbw/algbw = factor(operation, N) in every row, within rounding."""
    if busbw_factor(operation, 1):
        return None  # the factor is 1 whatever N
    limit = 2 * busbw_factor(operation, 2)
    rates = np.array([(row.number, *group[1:3]) for row in rows for group in row.values]).T
    numbers, algbw, busbw = rates[:, ~np.isnan(rates).any(axis=0)]
    if not algbw.size:
        return None
    lows, highs = (busbw - 0.005) / (algbw + 0.005), (busbw + 0.005) / np.maximum(algbw - 0.005, 1e-9)
    low, high = lows.max(), highs.min()
    if low > high:
        middle = np.median((lows + highs)[algbw >= np.median(algbw)] / 2)
        odd = numbers[np.argmax(np.maximum(lows - middle, middle - highs))]
        raise _fail(int(odd), f"busbw/algbw differs from that of the other rows, {middle:.4f}")
    least, most = (1 / (1 - ratio / limit) if ratio < limit else np.inf for ratio in (low, high))
    return float(np.ceil(max(least, 1) - 1e-6)), float(np.floor(most + 1e-6))


def _words(implied: tuple[float, float] | None) -> str:
    if implied is None:
        return ""
    low, high = implied
    to = "" if low == high else " or more" if high == np.inf else f" to {high:.0f}"
    return f", {low:.0f}{to}" if low <= high else ", no number of them"


# Jobs


@dataclass(frozen=True, eq=False)
class Jobs:
    """Jobs of a table: how long each ran, in s, and whether a failure ended it."""

    duration: np.ndarray
    failed: np.ndarray


def read_jobs(path: str | Path, failures: Iterable[str]) -> Jobs:
    """A table with the columns start, end and outcome (or State, as `sacct --parsable2` prints it).

    Times are ISO 8601, the outcome's first word counts, and one of `failures` is a failure: `{"NODE_FAIL"}`. Every
    other outcome ended the watch, not the machine. Cells are separated by | or by commas.
    """
    lines = Path(path).read_text(encoding="utf-8", errors="replace").split("\n")
    failures, jobs = set(failures), []
    separator = "|" if "|" in lines[0] else ","
    head = [{"state": "outcome"}.get(cell.strip().lower(), cell.strip().lower()) for cell in lines[0].split(separator)]
    if missing := [name for name in ("start", "end", "outcome") if name not in head]:
        raise _fail(1, f"the head lacks {', '.join(missing)}")
    for number, line in enumerate(lines[1:], 2):
        cells = next(csv.reader([line], delimiter=separator), [])
        if cells and len(cells) != len(head):
            raise _fail(number, f"a job has {len(head)} cells, got {line!r}")
        if cells:
            job = dict(zip(head, cells, strict=True))
            try:
                duration = (datetime.fromisoformat(job["end"]) - datetime.fromisoformat(job["start"])).total_seconds()
            except (ValueError, TypeError):
                raise _fail(number, f"start and end must be dates, got {job['start']!r}, {job['end']!r}") from None
            if duration <= 0 or not job["outcome"].split():
                raise _fail(number, f"a job must end after its start, with an outcome, got {line!r}")
            jobs.append((duration, job["outcome"].split()[0] in failures))
    if not jobs:
        raise _fail(len(lines), "the table has no job")
    return Jobs(*(np.array(column) for column in zip(*jobs, strict=True)))


# Outliers


@domain(time=POSITIVE)
def slow(time: Real, rate: float = 0.05, least: float = 0.01) -> np.ndarray:
    """ln t > median + c·σ, σ = 1.4826·median|ln t − median|, c = t⁻¹(1 − rate/m; 0.37·m): which of m alike are slow.

    Median and σ stand firm while fewer than half of the times are strange. If all m are log-normal, about `rate` of
    all tables have a time flagged: the median deviation knows σ as well as 0.37·m values would, so Student's quantile
    with as many degrees of freedom. σ is taken to be `least` or more, since tools print three digits.
    """
    from scipy.special import stdtrit

    logs = np.log(np.asarray(time, float))
    middle = np.median(logs)
    sigma = max(1.4826 * float(np.median(np.abs(logs - middle))), least)
    return logs > middle + stdtrit(0.37 * logs.size, 1 - rate / logs.size) * sigma


# Calibration


@dataclass(frozen=True, eq=False)
class Calibration:
    """The law chosen for a sweep; `misses` are its relative errors at sizes that it did not see."""

    fit: Fit
    misses: np.ndarray

    @property
    def error(self) -> float:
        """The mean of |misses|."""
        return float(np.abs(self.misses).mean())

    @property
    def verdict(self) -> str:
        """good to 10 % of error, rough to 25 %, else no law."""
        return "good" if self.error <= 0.10 else "rough" if self.error <= 0.25 else "no law"

    @property
    def outliers(self) -> np.ndarray:
        """The sizes, in bytes, whose time is slow for the law, by the rule of `slow`."""
        return self.fit.n[slow(self.fit.time / self.fit.predict(self.fit.n))]


def calibrate(n: Real, time: Real) -> Calibration:
    """Of a line, chunks, a launch with chunks, and two protocols: the first that misses left-out sizes least.

    A law with more constants must beat those before it by a tenth.
    """
    chosen: Calibration | None = None
    for law in (LINE, CHUNKED, LAUNCHED, TWO_PROTOCOLS):
        if len(n) > len(law.constants) + 1:
            fitted = fit(law, n, time)
            found = Calibration(fitted, leave_one_out(fitted))
            chosen = found if chosen is None or found.error < 0.9 * chosen.error else chosen
    if chosen is None:
        raise ValueError(f"n must have 4 sizes or more, got {len(n)}")
    return chosen
