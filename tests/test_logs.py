"""Readers of logs: public formats and versions, what they say, and that a damaged file is refused with its line."""

import re
import tempfile
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlib import logs
from distlib.alphabeta import CHUNKED, LAUNCHED, LINE, TWO_PROTOCOLS, Link, chunked_time, launched_time, transfer_time
from distlib.alphabeta import two_protocol_time as two
from distlib.checkpoint import mtbf_from_log
from distlib.published import pairs, sweep
from distlib.units import GB, KiB, MiB, hour, us

DATA = Path(__file__).parent / "data"
OURS = Path(str(files("distlib") / "data" / "measured_4_ranks.csv"))


def text_of(name):
    return (DATA / name).read_text(encoding="utf-8")


def of_text(text, reader, *args, **given):
    """What the reader makes of a file of that text, whatever is in it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.txt"
        path.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
        return reader(path, *args, **given)


def read_text(text, **given):
    return of_text(text, logs.read, **given)


# What the formats say


@pytest.mark.parametrize(
    "name, given, tool, version, operation, ranks, nodes, rows, last",
    [
        ("nccl_h100_all_reduce.log", {}, "nccl-tests", "", "all_reduce", 16, 2, 31, (2**33, 47535, 47743)),
        ("nccl_a100_error_column.log", {"operation": "all_reduce"}, "nccl-tests", "", "all_reduce", 16, None, 30,
         (2**32, 42715, 42677)),
        ("nccl_efa_labelled.log", {"operation": "all_reduce"}, "nccl-tests", "", "all_reduce", 16, None, 28,
         (2**30, 61556, 61303)),
        ("nccl_rtx6000d_alltoall.log", {}, "nccl-tests", "nccl-tests 2.18.3, NCCL 2.30.3+cuda13.0", "all_to_all", 16,
         2, 24, (2**33, 215847, 205790)),
        ("rccl_mi300x_all_reduce.log", {}, "rccl-tests", "rccl-tests :+", "all_reduce", 8, 1, 25,
         (2**27, 801.4, 811.1)),
        ("rccl_mi100_all_reduce.log", {}, "rccl-tests", "", "all_reduce", 2, 2, 25, (2**27, 17524, 17502)),
    ],
)  # fmt: skip
def test_a_log_of_nccl_tests_is_read_in_every_version(name, given, tool, version, operation, ranks, nodes, rows, last):
    (log,) = logs.read(DATA / name, **given)
    assert (log.tool, log.version, log.operation, log.ranks, log.nodes) == (tool, version, operation, ranks, nodes)
    assert len(log.n) == rows and np.all(np.diff(log.n) > 0) and not log.remarks
    assert log.n[-1] == last[0] and log.time[-1] == pytest.approx(last[1] * us)
    assert log.time_in_place[-1] == pytest.approx(last[2] * us) and np.all(np.isnan(log.median))


def test_the_accelerator_and_its_errors_are_read():
    (log,) = logs.read(DATA / "nccl_rtx6000d_alltoall.log")
    assert log.machine == "NVIDIA RTX 6000D" and np.all(log.wrong == 0)
    (log,) = logs.read(DATA / "nccl_a100_error_column.log", operation="all_reduce")
    assert log.machine == "" and np.all(np.isnan(log.wrong))  # a relative error is no count


def test_two_runs_in_a_file_are_two_sweeps():
    fast, slow = logs.read(DATA / "nccl_gb10_two_runs.log")
    assert fast.operation == slow.operation == "all_gather"
    assert fast.n.tolist() == slow.n.tolist() == [2**30, 2**31, 2**32]
    assert slow.time[0] / fast.time[0] == pytest.approx(191408 / 27211)


def test_osu_benchmarks_are_read_with_what_their_sizes_mean():
    (latency,) = logs.read(DATA / "osu_5_6_latency.txt")
    assert (latency.tool, latency.version, latency.operation, latency.ranks) == ("OSU", "5.6.3", "ping_pong", 2)
    assert latency.n[:3].tolist() == [0, 1, 2] and latency.time[[0, -1]] == pytest.approx([1.27 * us, 346.91 * us])
    assert len(latency.sized[0]) == len(latency.sized[1]) == len(latency.n) - 1 and latency.sized[0][0] == 1
    (stream,) = logs.read(DATA / "osu_3_1_bw.txt")
    assert stream.operation == "stream" and (stream.n / stream.time)[-1] == pytest.approx(233.89e6)
    one, reduce, exchange = logs.read(DATA / "osu_7_5_three_tests.txt", ranks=36)
    assert [one.operation, reduce.operation, exchange.operation] == ["ping_pong", "all_reduce", "all_to_all"]
    assert one.ranks == 2 and reduce.ranks == exchange.ranks == 36
    assert reduce.n[-1] == 2**28 and exchange.n[-1] == 36 * 2**26  # a rank's buffer has 36 blocks of the printed size
    (full,) = logs.read(DATA / "osu_7_0_cuda_full.txt", ranks=4)
    assert full.time == pytest.approx([8630.58 * us]) and full.n == 2**24


def test_osu_of_a_failed_validation_has_a_remark():
    table = "# OSU MPI Reduce Latency Test v7.3\n# Size  Avg Latency(us)  Validation\n4  2.5  Pass\n8  2.6  Fail\n"
    (log,) = read_text(table, ranks=8)
    assert log.wrong.tolist() == [0, 1] and log.remarks == ("wrong values: the transport corrupts data",)
    assert not read_text(table.replace("Fail", "Pass"), ranks=8)[0].remarks


def test_our_own_file_is_read_with_two_ranks_and_with_sizes_of_up_to_18_digits():
    two = files("distlib") / "data" / "measured_2_ranks.csv"
    assert {log.ranks for log in logs.read(str(two))} == {2}
    text = OURS.read_text(encoding="utf-8")
    assert read_text(text.replace(",4194304,", f",{10**18 - 1},"))[0].n[-1] == 1e18
    assert read_text(text.replace("ping_pong,16,", "ping_pong,1,"))[0].n[0] == 1
    with pytest.raises(ValueError, match="line 11: sizes of ping_pong must increase, got 0"):
        read_text(text.replace("ping_pong,16,", "ping_pong,0,"))
    with pytest.raises(ValueError, match="n_bytes must be a whole number, got '1000000000000000000'"):
        read_text(text.replace(",4194304,", f",{10**18},"))


def test_our_own_file_gives_least_and_median():
    text = OURS.read_text(encoding="utf-8")
    log = logs.log(OURS, "all_reduce")
    cells = next(line for line in text.split("\n") if line.startswith("all_reduce,1024,")).split(",")
    times = np.array(cells[3].split(), float) * us
    where = log.n.tolist().index(1024)
    assert log.time[where] == pytest.approx(times.min()) and log.median[where] == pytest.approx(np.median(times))
    assert log.ranks == 4 and log.nodes == 1 and log.version.startswith("mpi, 2026-")
    with pytest.raises(ValueError, match="must have one sweep of sendrecv, it has 0"):
        logs.log(OURS, "sendrecv")


def test_one_sweep_of_many_is_found_by_its_operation():
    assert logs.log(DATA / "osu_7_5_three_tests.txt", "all_reduce", ranks=144).ranks == 144
    with pytest.raises(ValueError, match="nccl_gb10_two_runs.log must have one sweep of all_gather, it has 2"):
        logs.log(DATA / "nccl_gb10_two_runs.log", "all_gather")


# Ranks


def table_of(ranks, operation="all_reduce", algbw=300.0, listed=None, rows=6, wrong=0):
    """A log of nccl-tests whose busbw is algbw times the factor of that many ranks."""
    factor = {"all_reduce": 2 * (ranks - 1) / ranks, "broadcast": 1.0}.get(operation, (ranks - 1) / ranks)
    devices = [
        f"#  Rank {r:2d} Group  0 Pid {r} on node-{r // 8} device {r % 8} [0000:04:00] NVIDIA H100"
        for r in range(listed or 0)
    ]
    head = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong"
    lines = [f"# Collective test starting: {operation}_perf", *devices, head]
    for i in range(rows):
        n = 2 ** (30 + i)
        cells = f"{n / (algbw * 1e3):.0f} {algbw:.2f} {algbw * factor:.2f}"
        lines.append(f"  {n}  {n // 4}  float  sum  -1  {cells}  {wrong}  {cells}  N/A")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("ranks", [2, 3, 8, 16, 64, 96])
@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter"])
def test_ranks_follow_from_busbw_over_algbw(ranks, operation):
    (log,) = read_text(table_of(ranks, operation))
    assert log.ranks == ranks and not log.remarks


def test_a_log_that_says_64_ranks_and_means_96_has_a_remark():
    (log,) = read_text(table_of(96), ranks=64)
    assert log.ranks == 64 and log.remarks == ("64 ranks are given; busbw/algbw implies 96",)
    (log,) = read_text(table_of(96, listed=64))
    assert log.ranks == 64 and log.remarks == ("64 ranks are listed; busbw/algbw implies 96",) and log.nodes == 8
    assert not read_text(table_of(64, listed=64), ranks=64)[0].remarks


def test_few_digits_leave_a_range_of_ranks():
    says = r"line 2: the log does not say how many ranks it had, (\d+) to (\d+): give ranks="
    with pytest.raises(ValueError, match=says) as caught:
        read_text(table_of(1000, algbw=10.0))
    low, high = map(int, re.search(says, str(caught.value)).groups())
    assert low <= 1000 <= high and low < high
    with pytest.raises(ValueError, match="it had, 1334 or more: give ranks="):
        read_text(table_of(4000, algbw=10.0))
    with pytest.raises(ValueError, match="does not say how many ranks it had: give ranks="):
        read_text(table_of(16, "broadcast"))  # its factor is 1 for any number
    assert read_text(table_of(16, "broadcast"), ranks=16)[0].ranks == 16


@pytest.mark.parametrize(
    "algbw, busbw, low, high", [(2.00, 3.90, 35, 46), (2.01, 3.92, 36, 47), (2.01, 3.95, 48, 72), (2.11, 4.17, 66, 120)]
)
def test_the_range_of_ranks_is_what_half_a_unit_leaves_open(algbw, busbw, low, high):
    """Least and largest whole N with 2(N − 1)/N between (busbw − 0.005)/(algbw + 0.005) and the reverse."""
    cells = f"1000.0 {algbw:.2f} {busbw:.2f} 0"
    text = table_with([], ["all_reduce_perf"]).split("\n", 1)[1] + f"\n{algbw * 1e6:.0f} 1 float sum -1 {cells} {cells}"
    with pytest.raises(ValueError, match=f"how many ranks it had, {low} to {high}: give ranks="):
        read_text(text)
    assert read_text(text, ranks=low)[0].remarks == read_text(text, ranks=high)[0].remarks == ()
    assert read_text(text, ranks=low - 1)[0].remarks and read_text(text, ranks=high + 1)[0].remarks


def test_an_end_of_the_range_that_is_whole_belongs_to_it():
    """(4.99 + 0.005)/(5.00 − 0.005) = 1: two ranks."""
    cells = "1000.0 5.00 4.99 0"
    text = table_with([], ["all_reduce_perf"]).split("\n", 1)[1] + f"\n5000000 1 float sum -1 {cells} {cells}"
    assert read_text(text)[0].ranks == 2


def test_a_ratio_that_fits_no_number_is_a_remark():
    text = table_of(16, listed=16).replace("562.50", "580.20")
    (log,) = read_text(text)
    assert log.remarks == ("16 ranks are listed; busbw/algbw implies no number of them",)


def printed(found):
    """A published sweep as the rows of its log."""
    head = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong"
    lines = ["all_reduce_perf", head]
    for n, time, algbw, busbw in zip(found.n, found.time, found.algbw, found.busbw, strict=True):
        cells = f"{f'{time / us:.0f}' if time >= 0.01 else f'{time / us:.1f}'}  {algbw / GB:.2f}  {busbw / GB:.2f}  0"
        lines.append(f"  {n:.0f}  4  float  sum  -1  {cells}  {cells}")
    return "\n".join(lines)


def test_published_tables_that_name_wrong_ranks_have_a_remark():
    """The page prints Rank 143 above the one table, and calls the other a job of 128."""
    (log,) = read_text(printed(sweep("cw_gb200_2rack")), ranks=144)
    assert log.remarks == ("144 ranks are given; busbw/algbw implies 128",)
    (log,) = read_text(printed(sweep("cw_a100_32r_sharp")), ranks=128)
    assert log.remarks == ("128 ranks are given; busbw/algbw implies 32",)
    (log,) = read_text(printed(sweep("i290_h100_1n")), ranks=8)
    assert not log.remarks


# Wrong values


def test_wrong_values_are_kept_and_remarked():
    (log,) = read_text(table_of(16, wrong=7))
    assert np.all(log.wrong == 7) and log.remarks == ("wrong values: the transport corrupts data",)
    old = text_of("rccl_mi100_all_reduce.log").replace("values : 0 OK", "values : 5 FAILED")
    assert read_text(old)[0].remarks == ("values out of bounds",)


def test_sizes_of_zero_are_kept_and_left_out_of_fits():
    lines = table_of(16, "all_gather").split("\n")
    empty = "  0  0  float  none  -1  12.5  0.00  0.00  0  12.1  0.00  0.00  N/A"
    (log,) = read_text("\n".join([*lines[:2], empty.replace("none", "sum"), empty.replace("none", "sum"), *lines[2:]]))
    assert log.n[:2].tolist() == [0, 0] and len(log.sized[0]) == len(log.n) - 2


def test_types_and_reductions_are_sweeps_of_their_own():
    lines = table_of(16).rstrip("\n").split("\n")
    again = [line.replace("float", "half") for line in lines[2:]]
    first, second = read_text("\n".join([*lines, *again]))
    assert first.n.tolist() == second.n.tolist() and first.operation == second.operation


def test_a_time_with_an_exponent_has_the_digits_that_it_shows():
    """As nccl-tests prints 18 s: 1.8e+07."""
    head, row = table_of(2, "sendrecv", rows=1).rstrip("\n").rsplit("\n", 1)
    text = head + "\n17179869184  4  float  sum  -1  1.8e+07  0.97  0.97  0  1.7e+07  0.99  0.99  N/A\n"
    (log,) = read_text(text, ranks=2)
    assert log.time == pytest.approx([18.0])
    with pytest.raises(ValueError, match="algbw is printed as 0.91, size over time is between 0.92 and 0.99 GB/s"):
        read_text(text.replace("0.97", "0.91"), ranks=2)


def test_less_memory_than_asked_for_is_read_from_its_line():
    text = text_of("nccl_k80_fewer_rows.log")
    with pytest.raises(ValueError, match="line 19: the head announces 9 sizes, the table has 7: it is damaged"):
        read_text(text, operation="all_reduce")
    lowered = text.replace("# Using", "# Reducing maxBytes to 2500000000 due to memory limitation\n# Using")
    assert len(read_text(lowered, operation="all_reduce")[0].n) == 7


def test_sizes_in_steps_are_counted():
    rows = table_of(16, rows=6).split("\n")
    announced = "# nThread 1 nGpus 1 minBytes 1073741824 maxBytes 4000000000 step: 1073741824(bytes) warmup"
    steps = [rows[0], announced, rows[1]]
    for i in (1, 2, 3):
        n = i * 2**30
        cells = f"{n / 300e3:.0f} 300.00 562.50 0"
        steps.append(f" {n}  {n // 4}  float  sum  -1  {cells}  {cells}")
    assert len(read_text("\n".join(steps))[0].n) == 3
    with pytest.raises(ValueError, match="announces 3 sizes, the table has 2"):
        read_text("\n".join(steps[:-1]))
    with pytest.raises(ValueError, match="neither in even steps nor by one ratio"):
        read_text("\n".join([steps[0], *steps[2:], *table_of(16).split("\n")[5:]]))


def table_with(sizes, announced=()):
    """Rows of those sizes, all in a millisecond."""
    head = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong"
    lines = ["broadcast_perf", *announced, head]
    for n in sizes:
        cells = f"1000.0 {n / 1e6:.4f} {n / 1e6:.4f} 0"
        lines.append(f"{n} 1 float sum 0 {cells} {cells}")
    return "\n".join(lines)


@pytest.mark.parametrize("sizes", [[10, 20, 31], [4, 6, 10], [8, 16, 32, 128]])
def test_a_gap_in_the_sizes_is_noticed_without_a_head(sizes):
    with pytest.raises(ValueError, match="line 5: the sizes above|line 6: the sizes above"):
        read_text(table_with(sizes), ranks=2)


@pytest.mark.parametrize("sizes", [[10, 31], [4, 6, 9], [8, 16, 24], [7]])
def test_even_steps_and_one_ratio_and_two_sizes_are_no_gap(sizes):
    assert read_text(table_with(sizes), ranks=2)[0].n.tolist() == sizes


@pytest.mark.parametrize(
    "low, high, step, sizes",
    [(1, 16, "2(factor)", 5), (2, 9, "2(factor)", 3), (8, 100, "3(factor)", 3), (4, 17, "4(bytes)", 4),
     (5, 5, "1(factor)", 1)],
)
def test_the_head_announces_sizes_by_factor_or_in_steps(low, high, step, sizes):
    factor = int(step[0]) if "factor" in step else 0
    n = [low * factor**i if factor else low + int(step[0]) * i for i in range(sizes)]
    head = [f"# nThread 1 nGpus 1 minBytes {low} maxBytes {high} step: {step} warmup iters: 5"]
    assert read_text(table_with(n, head), ranks=2)[0].n.tolist() == n
    with pytest.raises(ValueError, match=f"announces {sizes} sizes, the table has {sizes + 1}"):
        read_text(table_with([*n, n[-1] * factor if factor > 1 else n[-1] + 4], head), ranks=2)


def test_half_a_unit_of_the_last_digit_is_the_room_that_rounding_leaves():
    def row(n, time="1000.00000", algbw="1.0"):
        cells = f"{time} {algbw} {algbw} 0"
        return table_with([]) + f"\n{n} 1 float sum 0 {cells} {cells}"

    for n in (1_049_500, 950_500):
        assert read_text(row(n), ranks=2)[0].n == n
    for n in (1_050_800, 949_200):
        with pytest.raises(ValueError, match="algbw is printed as 1.0, size over time is between"):
            read_text(row(n), ranks=2)
    for n in (1_000_490, 999_510):
        assert read_text(row(n, "1000.", "1.000000"), ranks=2)[0].n == n
    for n in (1_000_650, 999_350):
        with pytest.raises(ValueError, match="algbw is printed as 1.000000, size over time is between"):
            read_text(row(n, "1000.", "1.000000"), ranks=2)


# Damage


H100 = text_of("nccl_h100_all_reduce.log")


def damaged(old, new, count=1):
    assert old in H100
    return H100.replace(old, new, count)


@pytest.mark.parametrize(
    "text, says",
    [
        ("", "line 1: a log of one tool is needed, got none that is known"),
        ("hello\nworld", "line 1: a log of one tool is needed, got none that is known"),
        (H100 + "# OSU MPI Latency Test v7.5\n", "line 1: a log of one tool is needed, got two"),
        (damaged("all_reduce_perf", "program"), "line 23: the log does not name its program (…_perf): give operation="),
        (damaged("#  Rank  3 Group", "#  Rink  3 Group"), "line 23: the list of devices lacks a rank: it has [0, 1"),
        (H100[: H100.index("   268435456")], "line 49: the head announces 31 sizes, the table has 25: it is damaged"),
        (H100[: H100.index("   2359.9")], "line 50: a row has 13 cells, got '268435456      67108864    "),
        (H100[: H100.index("           8  ")], "line 25: the table has no row"),
        (damaged("1652.2", "   nan"), "line 49: time must be a finite number, got 'nan'"),
        (damaged("1652.2", "     0"), "line 49: time must be > 0, got '0'"),
        (damaged("1652.2", "   N/A"), "line 49: time must be a finite number, got 'N/A'"),
        (damaged("1652.2", "1752.2"), "line 49: algbw is printed as 81.24, size over time is between 76.59 and"),
        (damaged("          64            16", "          16            16"), "line 28: sizes must increase, 16 fo"),
        (damaged("1652.2", "1_65.2"), "line 49: time must be a finite number, got '1_65.2'"),
        (damaged("  152.32", "  149.90"), "line 49: busbw/algbw differs from that of the other rows, 1.875"),
        (damaged("   134217728      33554432", "   134217728"), "line 49: a row has 13 cells"),
        (damaged("   134217728      33554432", "rank 134217728      33554432"), "line 49: a row has 13 cells"),
        (damaged("   134217728      33554432", "   13421a728      33554432"), "line 49: size must be a whole number"),
        (damaged("   134217728      33554432     float", "   134217728      33554432     floop"), "line 49: type"),
        (damaged("   134217728      33554432", "    34217728      33554432"), "line 49: algbw is printed"),
        (damaged("# Avg bus bandwidth    : 70.742", "# Avg bus bandwidth    : 70.752"),
         "line 57: busbw is 70.752 on average, that of the rows 70.741: a row is lost"),
        (damaged("bandwidth    : 70.742", "bandwidth    : many"), "line 57: the mean of busbw must be"),
        (damaged("  algbw   busbw #wrong     time", "  busbw #wrong     time"), "line 23: a head ends in time"),
        (damaged("#       size ", "#       sise "), "line 1: a log of one tool is needed, got none that is known"),
    ],
)  # fmt: skip
def test_a_damaged_log_is_refused_with_its_line_and_the_reason(text, says):
    with pytest.raises(ValueError) as caught:
        read_text(text)
    assert str(caught.value).startswith(says)


OSU = text_of("osu_5_6_latency.txt")


@pytest.mark.parametrize(
    "text, says",
    [
        (OSU.replace("Latency Test", "Gather Latency Test"), "line 1: the test must be one of Latency, Bandwidth"),
        (OSU.replace("# OSU MPI Latency Test v5.6.3", "# OSU MPI Latency Tess"), "line 1: the test must be one of"),
        (OSU.replace("# Size ", "# Sighs"), "line 3: a row has 0 cells, got '0"),
        (OSU.replace("(us)", ""), "line 2: the first head has the size and a time or bandwidth, got '# Size"),
        (OSU.replace("\n64 ", "\n64\n").replace("  1.43", ""), "line 10: a row has 2 cells, got '64'"),
        (OSU.replace("\n64 ", "\n# 64 "), "line 11: sizes double; 128 follows 32"),
        (OSU.replace("1.43", "0.00"), "line 10: Latency (us) must be > 0, got '0.00'"),
        (OSU.replace("1.43", "-1.4"), "line 10: Latency (us) must be a finite number, got '-1.4'"),
        (OSU[: OSU.index("0  ")], "line 3: no row"),
        ("# Size   Latency (us)\n1  2\n" + OSU, "line 1: the table has no title"),
        (text_of("osu_7_0_cuda_full.txt"), "line 4: an OSU log does not say how many ranks all_reduce had"),
    ],
)  # fmt: skip
def test_a_damaged_osu_log_is_refused_with_its_line_and_the_reason(text, says):
    with pytest.raises(ValueError) as caught:
        read_text(text)
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("# ranks: 4", "# ranks: four", "line 1: ranks must be a whole number, got 'four'"),
        ("# ranks: 4", "# ranks: 1", "version 1, 2 ranks or more and 171 rows"),
        ("# ranks: 4", "ranks: 4", "line 6: a line of the header is `# name: value`, got 'ranks: 4'"),
        ("# ranks: 4\n", "", "line 8: the header lacks ranks"),
        ("# distlib.measure: 1", "# distlib.measure: 2", "version 1, 2 ranks or more and 171 rows"),
        ("operation,n_bytes", "operation;n_bytes", "line 1: one line `operation,n_bytes,calls,times_us` must stand"),
        ("\nall_reduce,32,", "\nall_induce,32,", "line 50: a row has an operation, a size, calls and times, got 'all"),
        ("\nall_reduce,32,", "\nall_reduce,16,", "line 50: sizes of all_reduce must increase, got 16"),
        ("\nall_reduce,32,", "\nall_reduce,3e1,", "line 50: n_bytes must be a whole number, got '3e1'"),
        ("\nbroadcast,2097152,", "\nbroadcast,4194304,9,1 2 x\nbroadcast,2097152,", "a time must be a finite number"),
    ],
)  # fmt: skip
def test_a_damaged_file_of_ours_is_refused_with_its_line_and_the_reason(old, new, says):
    text = OURS.read_text(encoding="utf-8")
    assert old in text
    with pytest.raises(ValueError) as caught:
        read_text(text.replace(old, new, 1))
    assert says in str(caught.value) and str(caught.value).startswith("line ")
    with pytest.raises(ValueError, match="and 171 rows; the file has others"):
        read_text(text[: text.rindex("reduce,4194304")])


WHOLE = {
    "nccl_h100_all_reduce.log": {}, "nccl_rtx6000d_alltoall.log": {}, "rccl_mi300x_all_reduce.log": {},
    "rccl_mi100_all_reduce.log": {}, "ours": {},
}  # fmt: skip


def rows_of(found):
    return sum(len(log.n) for log in found)


@settings(max_examples=600)
@given(data=st.data())
def test_no_single_damage_leads_to_fewer_rows_or_to_another_exception(data):
    """Cut, a line lost, doubled or moved, a character lost, changed or put in: refused, or read with all rows."""
    name = data.draw(st.sampled_from(sorted(WHOLE)))
    path = OURS if name == "ours" else DATA / name
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    i, at = data.draw(st.integers(0, len(lines) - 1)), data.draw(st.integers(0, len(text) - 1))
    kind = data.draw(st.sampled_from(["cut", "lose", "double", "move", "drop", "change", "insert"]))
    if kind == "cut":
        text = text[:at]
    elif kind == "lose":
        text = "\n".join(lines[:i] + lines[i + 1 :])
    elif kind == "double":
        text = "\n".join(lines[: i + 1] + lines[i:])
    elif kind == "move":
        j = data.draw(st.integers(0, len(lines) - 2))
        rest = lines[:i] + lines[i + 1 :]
        text = "\n".join(rest[:j] + [lines[i]] + rest[j:])
    else:
        new = {"drop": "", "change": data.draw(st.characters()), "insert": text[at] + data.draw(st.text(max_size=9))}
        text = text[:at] + new[kind] + text[at + 1 :]
    try:
        found = read_text(text)
    except ValueError as error:
        assert re.match(r"line \d+: .", str(error))
    else:
        assert rows_of(found) >= rows_of(logs.read(path))


PIECES = [
    line
    for path in sorted(DATA.glob("*.[lt][ox][gt]"))
    for line in path.read_text(encoding="utf-8").split("\n")[:40]
] + OURS.read_text(encoding="utf-8").split("\n")[:30]


@settings(max_examples=300)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=30)), max_size=40), st.sampled_from([None, 8]))
def test_any_text_is_read_or_refused(lines, ranks):
    try:
        found = read_text("\n".join(lines), ranks=ranks, operation="all_reduce")
    except ValueError as error:
        assert re.match(r"line \d+: .", str(error))
    else:
        for log in found:
            assert len(log.n) == len(log.time) > 0 and np.all(log.time > 0) and np.all(np.isfinite(log.time))


# Jobs


JOBS = """Start|End|State
2026-01-01T00:00:00|2026-01-01T12:00:00|COMPLETED
2026-01-01T12:00:00|2026-01-02T00:00:00|NODE_FAIL
2026-01-02T00:00:00|2026-01-02T06:00:00|CANCELLED by 1001
"""


def test_a_table_of_jobs_tells_failed_from_censored():
    jobs = of_text(JOBS, logs.read_jobs, {"NODE_FAIL"})
    assert jobs.duration.tolist() == [12 * hour, 12 * hour, 6 * hour] and jobs.failed.tolist() == [False, True, False]
    assert mtbf_from_log(jobs.duration, jobs.failed).mtbf == pytest.approx(30 * hour)
    commas = JOBS.replace("|", ",").replace("State", "outcome") + "\n"
    assert of_text(commas, logs.read_jobs, {"CANCELLED"}).failed.tolist() == [False, False, True]


def test_ten_allocations_with_three_failures_have_an_mtbf_of_40_hours():
    """Counting every end as a failure would say 12 hours (LLNL's SCR, pull request 239)."""
    ends = ["FAIL"] * 3 + ["TIMEOUT"] * 7
    rows = [f"2026-01-{day:02d}T00:00,2026-01-{day:02d}T12:00,{end}" for day, end in enumerate(ends, 1)]
    text = "\n".join(["start,end,outcome", *rows])
    jobs = of_text(text, logs.read_jobs, {"FAIL"})
    assert mtbf_from_log(jobs.duration, jobs.failed).mtbf == pytest.approx(40 * hour)
    everything = of_text(text, logs.read_jobs, {"FAIL", "TIMEOUT"})
    assert mtbf_from_log(everything.duration, everything.failed).mtbf == pytest.approx(12 * hour)


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("Start|End", "Begin|End", "line 1: the head lacks start"),
        ("2026-01-02T06:00:00", "Unknown", "line 4: start and end must be dates, got '2026-01-02T00:00:00', 'Unknown'"),
        ("2026-01-02T06:00:00", "2026-01-02T06:00:00Z", "line 4: start and end must be dates"),
        ("2026-01-02T06:00:00", "2026-01-01T06:00:00", "line 4: a job must end after its start, with an outcome"),
        ("|CANCELLED by 1001", "|", "line 4: a job must end after its start, with an outcome"),
        ("|CANCELLED by 1001", "", "line 4: a job has 3 cells"),
        (JOBS[JOBS.index("\n") + 1 :], "", "line 2: the table has no job"),
    ],
)
def test_a_damaged_table_of_jobs_is_refused(old, new, says):
    with pytest.raises(ValueError) as caught:
        of_text(JOBS.replace(old, new), logs.read_jobs, {"NODE_FAIL"})
    assert str(caught.value).startswith(says)


@given(st.text(alphabet="2026-01T:0|,\nZ \"startendoutcome", max_size=120))
def test_any_table_of_jobs_is_read_or_refused(text):
    try:
        jobs = of_text("start,end,outcome\n" + text, logs.read_jobs, {"F"})
    except ValueError as error:
        assert str(error).startswith("line ")
    else:
        assert len(jobs.duration) == len(jobs.failed) and np.all(jobs.duration > 0)


# Outliers


def test_planted_slow_links_are_found_and_no_others():
    rng = np.random.default_rng(3)
    times = np.exp(0.05 * rng.standard_normal(120))
    planted = rng.choice(120, 12, replace=False)
    times[planted] *= 1.5
    assert sorted(np.flatnonzero(logs.slow(times))) == sorted(planted)
    assert logs.slow(1e3 * times).tolist() == logs.slow(times).tolist()


@pytest.mark.parametrize("count", [20, 45, 136])
def test_a_table_of_alike_links_has_one_flagged_at_the_stated_rate(count):
    """Monte Carlo of 20,000 tables: at most the stated 5 %, and not far below."""
    rng = np.random.default_rng(count)
    share = np.mean([logs.slow(np.exp(0.04 * rng.standard_normal(count))).any() for _ in range(20_000)])
    assert 0.02 < share < 0.055
    twice = np.mean([logs.slow(np.exp(0.04 * rng.standard_normal(count)), rate=0.2).any() for _ in range(5_000)])
    assert 0.1 < twice < 0.21


def test_the_rule_is_students_quantile_of_the_median_deviation():
    """By hand, nine times: median 0, median deviation ln 1.1, Student's quantile with 3.33 degrees of freedom."""
    from scipy.stats import t

    spread = np.array([-3, -2, -1, -1, 0, 1, 1, 2]) * np.log(1.1)
    edge = 1.4826 * np.log(1.1) * t.ppf(1 - 0.05 / 9, 0.37 * 9)
    assert logs.slow(np.exp([*spread, edge * 1.001])).tolist() == [False] * 8 + [True]
    assert not logs.slow(np.exp([*spread, edge * 0.999])).any()


def test_a_spread_below_a_hundredth_is_taken_for_one():
    from scipy.stats import t

    edge = 0.01 * t.ppf(1 - 0.05 / 21, 0.37 * 21)
    assert logs.slow(np.exp([0.0] * 20 + [edge * 1.001]))[-1]
    assert not logs.slow(np.exp([0.0] * 20 + [edge * 0.999])).any()


def test_half_of_the_links_may_be_slow_and_a_spread_below_a_hundredth_is_none():
    assert logs.slow([1.0] * 6 + [2.0] * 5).tolist() == [False] * 6 + [True] * 5
    assert not logs.slow([1.0] * 20 + [1.03]).any() and logs.slow([1.0] * 20 + [1.06])[-1]
    assert logs.slow([1.0] * 20 + [1.03], least=0.001)[-1]
    with pytest.raises(ValueError, match="time must be a finite number > 0"):
        logs.slow([1.0, 0.0])


def test_two_tests_of_one_cluster_name_the_same_eight_slow_links():
    named = []
    for operation in ("sendrecv", "all_to_all"):
        links = pairs("cluster00", operation, 1)
        ran = ~np.isnan(links.busbw)
        slow = logs.slow(1 / links.busbw[ran])
        named.append(list(zip(links.node[ran][slow].tolist(), links.other[ran][slow].tolist(), strict=True)))
    assert named[0] == named[1] == [(1, 4), (2, 3), (2, 6), (4, 6), (4, 9), (11, 12), (13, 16), (13, 17)]
    calm = pairs("cluster01", "all_to_all", 8)
    assert not logs.slow(1 / calm.busbw).any()


# Calibration


SIZES = 2.0 ** np.arange(4, 30)
NOISE = np.exp(0.02 * np.random.default_rng(5).standard_normal(len(SIZES)))
A, B = Link(2 * us, 3 * GB), Link(9 * us, 12 * GB)


@pytest.mark.parametrize(
    "law, time",
    [
        (LINE, transfer_time(SIZES, B)),
        (CHUNKED, chunked_time(SIZES, B)),
        (LAUNCHED, launched_time(SIZES, 40 * us, B)),
        (TWO_PROTOCOLS, two(SIZES, A, B)),
    ],
)
def test_the_law_that_made_the_times_is_chosen(law, time):
    found = logs.calibrate(SIZES, time * NOISE)
    assert found.fit.law is law and found.verdict == "good" and found.error < 0.05
    assert found.fit.predict(SIZES) == pytest.approx(time, rel=0.08)


def test_a_verdict_says_when_no_law_holds_and_names_the_sizes():
    time = transfer_time(SIZES, B) * NOISE
    time[[7, 12]] *= 3
    found = logs.calibrate(SIZES, time)
    assert found.outliers.tolist() == SIZES[[7, 12]].tolist()
    jumps = transfer_time(SIZES, B) * np.exp(np.random.default_rng(1).choice([-1, 1], len(SIZES)))
    assert logs.calibrate(SIZES, jumps).verdict == "no law"
    rough = transfer_time(SIZES, B) * np.exp(0.2 * np.random.default_rng(2).choice([-1, 1], len(SIZES)))
    assert logs.calibrate(SIZES, rough).verdict == "rough"


@pytest.mark.parametrize("error, verdict", [(0.0999, "good"), (0.1001, "rough"), (0.2499, "rough"), (0.2501, "no law")])
def test_the_verdict_by_the_mean_miss(error, verdict):
    calm = logs.calibrate(SIZES, transfer_time(SIZES, B))
    assert logs.Calibration(calm.fit, np.array([error, -error])).verdict == verdict


def test_few_sizes_have_few_laws_and_fewer_than_four_none():
    assert logs.calibrate(SIZES[:4] * KiB, transfer_time(SIZES[:4] * KiB, B)).fit.law in (LINE, CHUNKED)
    with pytest.raises(ValueError, match="n must have 4 sizes or more, got 3"):
        logs.calibrate(SIZES[:3] * MiB, SIZES[:3])
