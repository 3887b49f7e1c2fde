"""The published sweeps: their structure, their sources, and their arithmetic."""

from dataclasses import replace

import numpy as np
import pytest

from distlib.checkpoint import best_goodput, checkpoint_bytes, system_mtbf, waste
from distlib.collectives import flat_ring_all_reduce
from distlib.hardware import ACCELERATORS, node
from distlib.parallel import (
    bubble_of_total,
    direct_nic_bytes,
    direct_nvlink_bytes,
    expert_nic_bytes,
    expert_nvlink_bytes,
    mean_groups,
    microbatches_per_step,
    peak_memory,
    possible,
    stage_memory,
    tensor_bytes,
)
from distlib.published import (
    bloom_layouts,
    communication_reduction,
    communication_reductions,
    context_runs,
    expert_exchanges,
    layout_sweep,
    llama3_interruptions,
    pairs,
    pipeline_runs,
    published_memory,
    reliability,
    reported,
    sharded_runs,
    strong_scaling,
    sweep,
    sweeps,
)
from distlib.schedules import interleaved, one_f_one_b, zb_h1, zb_h2
from distlib.schedules import play as play_pipeline
from distlib.transformer import Transformer, hardware_flops, layer_parameters
from distlib.units import GB, TFLOP, GiB, TiB, us

ALL = sweeps()
OPERATIONS = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "sendrecv"}

# busbw / algbw, from what each operation must move, written out here so that it is no copy of the package's own
SHARE = {
    "all_reduce": lambda N: 2 * (N - 1) / N,
    "all_gather": lambda N: (N - 1) / N,
    "reduce_scatter": lambda N: (N - 1) / N,
    "all_to_all": lambda N: (N - 1) / N,
    "broadcast": lambda N: 1.0,
    "reduce": lambda N: 1.0,
    "sendrecv": lambda N: 1.0,
}


def test_every_operation_is_covered_and_the_counts_are_those_of_the_tables():
    assert {s.operation for s in ALL} == OPERATIONS
    assert len(ALL) == 120
    assert sum(s.n.size for s in ALL) == 2425
    assert len(sweeps(min_sizes=10)) == 76


def test_sizes_increase_and_times_are_positive_and_finite():
    for s in ALL:
        assert np.all(np.diff(s.n) > 0), s.id
        assert np.all(s.n > 0), s.id
        assert np.all((s.time > 0) & np.isfinite(s.time)), s.id
        assert s.n.shape == s.time.shape == s.time_in_place.shape == s.algbw.shape == s.busbw.shape, s.id


def test_ranks_are_nodes_times_gpus_per_node():
    for s in ALL:
        assert s.ranks == s.nodes * s.gpus_per_node, s.id
        assert s.ranks >= 2, s.id


def test_printed_algbw_is_size_over_time_to_the_digits_printed():
    # both columns are rounded, algbw to 0.01 GB/s and the time to four or five digits
    checked = 0
    for s in ALL:
        if not s.derived:
            given = ~np.isnan(s.algbw)
            computed = s.n[given] / s.time[given]
            slack = 0.0051 * GB + 1e-3 * computed
            assert np.all(np.abs(computed - s.algbw[given]) <= slack), s.id
            checked += given.sum()
    assert checked > 2000


def test_printed_busbw_is_algbw_times_the_share_that_each_rank_must_move():
    checked = 0
    for s in ALL:
        given = s.busbw > 1 * GB
        computed = s.n[given] / s.time[given] * SHARE[s.operation](s.ranks)
        assert s.busbw[given] == pytest.approx(computed, rel=0.01), s.id
        checked += given.sum()
    assert checked > 1000


def test_a_derived_time_follows_the_printed_algbw_where_there_is_one():
    for s in (s for s in ALL if s.derived):
        given = s.algbw > 1 * GB
        assert s.algbw[given] == pytest.approx(s.n[given] / s.time[given], rel=0.01), s.id


def test_the_reference_sweep_reads_as_its_source_prints_it():
    s = sweep("aws_p5_1n")
    assert (s.ranks, s.nodes, s.n.size) == (8, 1, 32)
    assert (s.n[0], s.n[-1]) == (8, 16 * GiB)
    assert s.time[0] == pytest.approx(12.84 * us, rel=0.05)
    assert s.busbw.max() == pytest.approx(483 * GB, rel=0.01)


def test_every_sweep_states_a_source_a_licence_column_and_the_day_it_was_read():
    for s in ALL:
        assert s.path, s.id
        assert s.retrieved >= "2026-11-29", s.id
        assert isinstance(s.licence, str), s.id


def test_accelerators_are_named_as_in_the_hardware_table_or_are_not_in_it():
    elsewhere = {"A100 PCIe 40GB", "GH200", "B300", "GB300"}
    assert {s.accelerator for s in ALL} <= {a.name for a in ACCELERATORS} | elsewhere


def test_bad_sweeps_stay_and_say_what_is_wrong_with_them():
    for id in ("dgx_h100_2n", "i290_h100_2n_ring", "cscs_gh200_2n4_nohook", "polaris_8_all_reduce_tcp"):
        assert sweep(id).anomaly, id
    slow, fast = sweep("polaris_8_all_reduce_tcp"), sweep("polaris_8_all_reduce")
    assert fast.busbw.max() > 3 * slow.busbw.max()


def test_arrays_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        sweep("aws_p5_1n").time[0] = 0.0


def test_an_unknown_sweep_is_an_error_that_lists_near_names():
    with pytest.raises(ValueError, match="aws_p5_1n"):
        sweep("aws_p5")
    with pytest.raises(ValueError, match="published sweep"):
        sweep("")


def test_an_unknown_field_is_an_error_that_lists_the_fields():
    with pytest.raises(ValueError, match="operation"):
        sweeps(op="all_reduce")


def test_sweeps_selects_by_field_and_by_number_of_sizes():
    chosen = sweeps(operation="all_reduce", nodes=1, min_sizes=10)
    assert "aws_p5_1n" in {s.id for s in chosen}
    assert all(s.operation == "all_reduce" and s.nodes == 1 and s.n.size >= 10 for s in chosen)


# Reliability


def test_the_causes_of_llama_3_are_the_419_interruptions_and_the_printed_shares_are_not_all_theirs():
    causes = llama3_interruptions()
    total = sum(cause.count for cause in causes)
    assert len(causes) == 18 and total == reported("llama3", "unexpected") == 419
    assert reported("llama3", "all") == total + reported("llama3", "planned")
    wrong = [c.component for c in causes if abs(c.count / total - c.printed_share) > 6e-4]
    assert wrong == ["Faulty GPU"]
    assert causes[0].count / total == pytest.approx(0.353, abs=5e-4) and causes[0].printed_share == 0.301
    assert sum(c.printed_share for c in causes) == pytest.approx(1 - (0.353 - 0.301), abs=2e-3)
    gpu = sum(c.count for c in causes if c.category == "GPU")
    assert gpu / total == pytest.approx(0.640, abs=5e-4) and reported("llama3", "gpu_share") == pytest.approx(0.587)
    assert round(0.301 * total) == 126 and (gpu - 148 + 126) / total == pytest.approx(0.587, abs=5e-4)


def test_every_fact_of_reliability_is_positive_and_has_its_source():
    for fact in reliability():
        assert fact.value > 0 and fact.source and fact.study and fact.quantity
        assert fact.kind in {"measured", "specified", "estimated", "projected", "bound"}
    keys = [(fact.study, fact.quantity) for fact in reliability()]
    assert len(set(keys)) == len(keys)


def test_reliability_is_in_si_and_an_unknown_fact_is_an_error():
    assert reported("llama3", "window") == 54 * 86400
    assert reported("bloom", "lost") == pytest.approx(26_280)
    assert reported("opt", "checkpoint") == 1.6e12
    assert reported("llama3", "storage_sustained") == 2e12
    assert 1 / (128 * reported("rsc1", "node_failures")) == pytest.approx(28.8 * 3600, rel=2e-3)
    with pytest.raises(ValueError, match="must be one of bloom checkpoint"):
        reported("bloom", "temperature")


def test_checkpoint_sizes_are_met_within_ten_percent_and_one_unit_is_unclear():
    fourteen = {
        name: checkpoint_bytes(reported(name, "parameters")) for name in ("bloom", "nemotron15b", "nemotron340b")
    }
    errors = [100 * (size / reported(name, "checkpoint") - 1) for name, size in fourteen.items()]
    assert errors == pytest.approx([7.3, 2.9, 8.2], abs=0.05)
    assert fourteen["bloom"] / 2.3 / TiB == pytest.approx(0.976, abs=5e-4)  # if the log's 2.3 TB are TiB
    opt = checkpoint_bytes(reported("opt", "parameters"), master=0)
    assert 100 * (opt / reported("opt", "checkpoint") - 1) == pytest.approx(9.4, abs=0.05)
    assert 100 * (opt / (992 * 1.7 * GB) - 1) == pytest.approx(3.8, abs=0.05)


def test_the_law_of_the_mtbf_holds_between_job_sizes_and_misses_from_a_node_rate():
    node = 1 / reported("rsc1", "node_failures")
    projected = [system_mtbf(node, gpus // 8) / reported("rsc1", f"mtbf_{gpus}") for gpus in (16384, 131072)]
    assert projected == pytest.approx([1.002, 0.980], abs=5e-4)
    assert system_mtbf(reported("rsc1", "mtbf_8"), 128) / reported("rsc1", "mtbf_1024") == pytest.approx(1.13, abs=5e-3)
    assert system_mtbf(node, 128) / reported("rsc1", "mtbf_1024") == pytest.approx(3.65, abs=5e-3)


def test_the_goodput_of_large_rsc_1_jobs_lies_between_its_two_mtbf():
    tau, write, short, long = (reported("rsc1", x) for x in ("interval", "write", "restart_short", "restart_long"))
    by_jobs = 1 - waste(tau, write, reported("rsc1", "mtbf_1024"), np.array([short, long]))
    by_nodes = 1 - waste(tau, write, system_mtbf(1 / reported("rsc1", "node_failures"), 128), np.array([short, long]))
    assert by_jobs == pytest.approx([0.852, 0.826], abs=5e-4)
    assert by_nodes == pytest.approx([0.903, 0.895], abs=5e-4)
    assert by_jobs.max() < reported("rsc1", "effective_time") < by_nodes.max()


def test_llama_3_can_have_had_its_effective_time():
    mtbf = reported("llama3", "window") / reported("llama3", "unexpected")
    write = checkpoint_bytes(reported("llama3", "parameters")) / reported("llama3", "storage_sustained")
    assert best_goodput(write, mtbf, 300.0) == pytest.approx(0.952, abs=5e-4)
    assert best_goodput(write, mtbf, 300.0) > reported("llama3", "effective_time")


def test_less_communication_reads_as_its_papers_print_it():
    assert communication_reduction("DiLoCo", "validation_perplexity") == 15.02
    assert communication_reduction("data parallel, 8x batch", "validation_perplexity") == 15.3
    assert communication_reduction("data parallel", "hours_at_1_Gbps", 100e9) == 438 * 3600
    assert communication_reduction("Streaming DiLoCo FP4 overlapped", "terabytes_exchanged", 25e9) == 1.1e12
    assert communication_reduction("n-softsync, lr/staleness", "test_error") == 0.18
    with pytest.raises(ValueError, match="DiLoCo validation_perplexity"):
        communication_reduction("DiLoCo", "eval_loss")


def test_each_result_on_communication_has_its_source_and_two_workers_send_400_times_less():
    assert len(communication_reductions()) == 33
    assert all(
        "arXiv" in r.source and r.kind in {"measured", "simulated", "computed"} for r in communication_reductions()
    )
    for tokens in (25e9, 100e9, 250e9):
        many, few = (communication_reduction(m, "terabytes_exchanged", tokens)
                     for m in ("data parallel", "Streaming DiLoCo FP4 overlapped"))  # fmt: skip
        assert many / few == pytest.approx(400, rel=0.003)


def test_a_strong_scaling_table_has_its_rows_in_order_and_their_source():
    runs = [strong_scaling(system, batch) for system in ("MegaScale", "Megatron-LM") for batch in (768, 6144)]
    for run in runs:
        assert len(run.ranks) == len(run.time) == 4
        assert np.all(np.diff(run.ranks) > 0) and np.all(np.diff(run.time) < 0)
        assert (run.tp, run.pp, run.virtual) == (8, 8, 6)
        assert "2402.15627" in run.source
    assert (runs[1].ranks[-1], runs[1].time[-1]) == (12288, 6.34)
    assert (runs[2].ranks[0], runs[2].time[0]) == (256, 40.0)
    assert np.all(runs[0].time < runs[2].time) and np.all(runs[1].time < runs[3].time)
    with pytest.raises(ValueError, match="MegaScale 768, MegaScale 6144, Megatron-LM 768, .*got 'MegaScale', 1"):
        strong_scaling("MegaScale", 1)


# Data and context parallelism


def test_sharded_runs_have_their_one_node_run_first_and_their_source():
    runs = sharded_runs()
    assert len(runs) == 19
    for model in {run.model for run in runs}:
        gpus = [run.gpus for run in runs if run.model == model]
        assert gpus[0] == 8 and gpus == sorted(gpus)
    assert all("llm-foundry 8c8dd48" in run.source and run.accelerator == "A100 40GB" for run in runs)
    assert [(run.gpus, run.rate) for run in runs if run.model == "MPT 3b"][-1] == (128, 9538)
    assert runs[0].time == pytest.approx(26 * 2048 / 136334)


def test_sharding_over_more_nodes_costs_between_nothing_and_all_of_its_communication_but_for_small_models():
    links = node("DGX A100").measured_link(), node("DGX A100").nic.measured_link()
    runs, bounds = sharded_runs(), []
    for run in runs:
        compute = run.micro_batch * run.seq / next(r for r in runs if r.model == run.model).rate
        layer = flat_ring_all_reduce(2 * run.parameters / run.layers, run.gpus, 8, *links, 8)
        comm = 1.5 * run.layers * layer  # ZeRO-3: two gathers and a reduce-scatter a layer
        if run.gpus > 8:
            bounds.append((run.model, max(compute, comm) / run.time - 1, (compute + comm) / run.time - 1))
    hidden, apart = np.array([errors for _, *errors in bounds]).T
    assert len(bounds) == 14
    assert (np.abs(hidden).mean(), hidden.min(), hidden.max()) == pytest.approx((0.0385, -0.0909, 0.0125), abs=1e-4)
    assert (np.abs(apart).mean(), apart.min(), apart.max()) == pytest.approx((0.0288, -0.0580, 0.0464), abs=1e-4)
    assert [model for model, _, most in bounds if most < 0] == ["MPT 125m"] * 2 + ["MPT 350m"] * 2


def test_context_runs_flag_the_rows_whose_sizes_do_not_make_their_gpus():
    runs = context_runs()
    assert len(runs) == 17
    for run in runs:
        assert bool(run.anomaly) == (run.tp * run.pp * run.dp * run.cp != run.gpus) == (run.accelerator == "B200")
    assert (runs[7].rate_without_cp, runs[-1].rate_without_cp, runs[-1].rate) == (None, 26.5e12, 536e12)
    assert all("NVIDIA/NeMo" in run.source for run in runs)


def test_two_rates_and_the_tensor_parallel_bytes_predict_long_sequences():
    runs = [run for run in context_runs() if not run.anomaly]
    hidden, layers = 4096, 32
    weights = layers * (4 * hidden**2 + 3 * hidden * 11008) + 32000 * hidden
    seq, tp, rate = (np.array([getattr(run, name) for run in runs]) for name in ("seq", "tp", "rate"))
    products, attention = np.full(9, 6 * weights), 12.0 * layers * hidden * seq
    time = (products + attention) / rate
    errors = {}
    for name, share in (("counted", 1), ("left out", 0)):
        comm = share * layers * 2 * tp * tensor_bytes(2.0 * hidden, tp) / (370 * GB)
        design, rest = np.stack([products, attention], 1) / time[:, None], 1 - comm / time
        missed = []
        for row in range(9):
            kept = np.arange(9) != row
            inverse, *_ = np.linalg.lstsq(design[kept], rest[kept], rcond=None)
            missed.append(design[row] @ inverse - rest[row])
        errors[name] = np.abs(missed).mean(), np.abs(missed).max()
    assert errors["counted"] == pytest.approx((0.0132, 0.0211), abs=3e-4)
    assert errors["left out"] == pytest.approx((0.0190, 0.0304), abs=3e-4)



# Layouts: a sweep of them, and what a rank's memory holds


def test_each_trial_logs_the_flops_of_its_model_and_its_layout_exists():  # B18, on every row
    trials = layout_sweep()
    assert trials.step.size == 87 and np.isfinite(trials.memory).sum() == 57
    flops = hardware_flops(trials.model, 2048, trials.layout.global_batch * 2048)
    assert flops / trials.step / 384 / trials.rate == pytest.approx(1, abs=1e-3)
    assert np.all(possible(trials.model, trials.layout, 2048, 384))


def test_the_trial_with_the_smallest_bubble_is_the_slowest_of_its_five():  # B18
    trials = layout_sweep()
    layout = trials.layout
    five = [list(trials.line).index(line) for line in (776, 788, 790, 779, 791)]
    bubble = bubble_of_total(layout.pp, layout.microbatches)[five]
    assert bubble == pytest.approx([0.072, 0.077, 0.067, 0.079, 0.012], abs=5e-4)
    assert np.argmin(bubble) == np.argmin(trials.rate[five]) == 4
    assert trials.rate[five] / TFLOP == pytest.approx([141.27, 140.24, 138.22, 137.70, 109.11])


def test_what_a_rank_s_memory_leaves_out_is_15_gib_in_the_trials_whatever_the_layout():
    trials = layout_sweep()
    ours = peak_memory(trials.model, trials.layout, 2048, trials.gradient)
    printed = np.isfinite(trials.memory)
    left = (trials.memory - ours) / GiB
    for gradient in (2, 6):  # bytes: a sum in 32 bits came beside those of 16, as the source says
        assert np.median(left[printed & (trials.gradient == gradient)]) == pytest.approx(15, abs=0.4)
    error = np.abs(ours + 14.9 * GiB - trials.memory)[printed] / trials.memory[printed]
    assert np.mean(error) == pytest.approx(0.046, abs=1e-3)


def test_activations_are_those_that_their_authors_computed():
    rows = [row for row in published_memory() if row.study == "korthikanti2022"]
    assert len(rows) == 28
    for row in rows:
        first = stage_memory(row.model, row.layout, row.seq, 0)
        if row.quantity == "activations":
            assert first.activations == pytest.approx(row.value, rel=1e-9)
        elif row.quantity == "states":  # theirs have neither vocabulary nor biases; 18 bytes of what is left
            matrices = layer_parameters(row.model) / (row.layout.tp * row.layout.pp)
            assert row.value == pytest.approx(18 * matrices, rel=1e-9)
            assert 1.02 < first.states / row.value < 1.12
        else:
            plain = stage_memory(row.model, replace(row.layout, recompute=0, sequence_parallel=0), row.seq, 0)
            share = first.activations / plain.activations
            assert share == pytest.approx(row.value, abs=2e-3)


def test_the_peaks_that_qi_et_al_measured_are_met_within_nine_percent():
    rows = [row for row in published_memory() if row.kind == "measured"]
    error = np.array([peak_memory(row.model, row.layout, row.seq) / row.value - 1 for row in rows])
    assert len(error) == 6
    assert np.mean(np.abs(error)) == pytest.approx(0.046, abs=1e-3)
    assert np.min(error) == pytest.approx(-0.087, abs=1e-3)



# Pipeline schedules (Qi et al. 2024)

SCHEDULES = {"1F1B": one_f_one_b, "ZB-H1": zb_h1, "ZB-1p": zb_h1, "ZB-H2": zb_h2}
RUNS = [run for run in pipeline_runs() if run.schedule in [*SCHEDULES, "1F1B-I"]]


def played_pipeline(run):
    if run.schedule == "1F1B-I":
        schedule, v = interleaved(run.stages, run.microbatches, run.virtual), run.virtual
    else:
        schedule, v = SCHEDULES[run.schedule](run.stages, run.microbatches), 1
    return play_pipeline(schedule, run.forward / v, (run.of_input + run.weight) / v, run.weight / v, run.hop)


def test_the_published_schedules_are_those_of_the_tables():
    runs = pipeline_runs()
    assert len(runs) == 76
    assert len([r for r in runs if r.bubble is not None]) == 72
    assert len([r for r in runs if r.throughput is not None]) == 52
    assert {r.virtual for r in runs} == {2, 3, 4}
    assert all("2401.10241" in r.source for r in runs)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.schedule} {run.model} {run.microbatches}")
def test_a_played_schedule_has_the_bubble_that_its_authors_computed(run):
    bubble = 1 - run.microbatches * (run.forward + run.of_input + run.weight) / played_pipeline(run).span
    if run.schedule == "1F1B-I":  # here one message a stage more is waited for than there
        early = played_pipeline(run).span - run.stages * run.hop
        bubble = 1 - run.microbatches * (run.forward + run.of_input + run.weight) / early
        assert bubble == pytest.approx(run.bubble, abs=3e-4)
    else:
        assert bubble == pytest.approx(run.bubble, abs=5.1e-5)  # the last digit printed


def test_measured_throughput_falls_short_of_the_played_schedules_by_what_the_book_says():
    errors = {}
    for run in RUNS:
        if run.throughput is not None:
            rate = run.microbatches * run.microbatch / run.stages / played_pipeline(run).span
            errors.setdefault(run.schedule, []).append(rate / run.throughput - 1)
    means = {name: round(float(np.mean(error)), 3) for name, error in errors.items()}
    assert means == {"1F1B": 0.063, "ZB-1p": 0.077, "1F1B-I": 0.13}
    assert all(error > 0 for row in errors.values() for error in row)


# Layouts tried for BLOOM


def test_b18_the_logged_rates_of_bloom_s_layouts_are_those_of_the_96_form():
    for run in bloom_layouts():
        model = Transformer(run.layers, run.hidden, 250880)
        rate = hardware_flops(model, 2048, run.global_batch * 2048) / run.time / 384
        assert rate == pytest.approx(run.rate, rel=2e-3)
        assert run.dp * run.tp * run.pp == 384


def test_b18_the_layout_with_the_smallest_bubble_is_the_slowest():
    runs = [run for run in bloom_layouts() if run.layers == 72]
    bubbles = [bubble_of_total(r.pp, microbatches_per_step(r.global_batch, r.microbatch, r.dp)) for r in runs]
    smallest = int(np.argmin(bubbles))
    assert runs[smallest].rate == min(run.rate for run in runs)
    assert bubbles[smallest] == pytest.approx(1 / 85)
    four = [b for b, r in zip(bubbles, runs, strict=True) if r.microbatch == 4]
    assert four == pytest.approx([5 / 69, 7 / 91, 3 / 45, 11 / 139])


def test_b19_steps_of_the_ramp_follow_the_bubble_from_the_largest_batch_alone():
    runs = [run for run in bloom_layouts() if run.layers == 78]
    m = np.array([microbatches_per_step(r.global_batch, r.microbatch, r.dp) for r in runs])
    predicted = runs[-1].time * (m + 11) / (m[-1] + 11)
    assert list(m) == [32, 64, 96, 128]
    assert predicted / [r.time for r in runs] - 1 == pytest.approx([-0.0736, -0.0310, -0.0078, 0.0], abs=2e-4)


# Expert parallelism (DeepEP)


def test_low_latency_rows_print_all_choices_over_the_time():
    rows = [row for row in expert_exchanges() if row.mode == "low-latency"]
    assert len(rows) == 12
    for row in rows:
        n = row.tokens * row.topk * row.token_bytes  # up to ten of 1,024 choices are masked in the benchmark
        assert row.bandwidth == pytest.approx(n / row.latency, rel=0.025)


def test_normal_rows_name_what_they_count():
    rows = [row for row in expert_exchanges() if row.mode == "normal"]
    assert len(rows) == 18
    assert {(row.nodes == 1, row.counted) for row in rows} == {(True, "nvlink"), (False, "nic")}


def test_no_nic_carries_more_than_its_port_once_what_stays_is_taken_off():  # A11
    for row in expert_exchanges():
        if row.counted == "nic":
            carried = expert_nic_bytes(row.bandwidth, 1, row.nodes)
            assert 0.4 * 50 * GB < carried < 50 * GB
            assert (carried < 22 * GB) == (row.nodes == 2 and row.accelerator == "H800")


def test_low_latency_times_follow_one_start_and_two_links_within_fifteen_percent():
    rows = [row for row in expert_exchanges() if row.mode == "low-latency"]
    time = np.array([row.latency for row in rows])
    carried = []
    for row in rows:
        n = row.tokens * row.token_bytes
        nic = direct_nic_bytes(n, row.topk, row.nodes) / (50 * GB)
        carried.append(max(nic, direct_nvlink_bytes(n, row.topk, row.nodes, row.gpus) / (160 * GB)))
    start = np.sum((time - carried) / time**2) / np.sum(1 / time**2)
    assert start == pytest.approx(41.3 * us, rel=0.01)
    errors = (start + np.array(carried)) / time - 1
    assert np.abs(errors).mean() == pytest.approx(0.0495, abs=0.0005)
    assert np.abs(errors).max() == pytest.approx(0.143, abs=0.002)


def test_training_kernels_reach_three_quarters_of_the_slower_link_or_more_and_never_all_of_it():
    nvlink = {"H800": 160 * GB, "SM90": 370 * GB, "SM100": 700 * GB}
    shares = []
    for row in expert_exchanges():
        if row.mode == "normal":
            visited = min(row.nodes, 4)  # of 256 experts a token sees those of four nodes
            seen = 256 * visited // row.nodes
            to_nodes, to_ranks = mean_groups(seen, visited, 8), mean_groups(seen, 8 * visited, 8)
            nic = expert_nic_bytes(1, to_nodes, row.nodes) / (50 * GB)
            inside = expert_nvlink_bytes(1, to_ranks, row.gpus) / nvlink[row.accelerator]
            counted = to_nodes if row.counted == "nic" else to_ranks
            shares.append(row.bandwidth * max(nic, inside) / counted)
            if row.nodes > 1:
                assert row.bandwidth * (nic + inside) / counted > 1
    assert 0.75 < min(shares) < 0.78
    assert 0.92 < max(shares) < 0.93



# Goodput of whole runs (fault tolerance)


def test_the_exponential_links_the_two_stalls_at_100_000_gpus_and_llama_3s_rate_does_not():
    stall = np.array([reported("fthsdp", "restart_whole"), reported("fthsdp", "restart_replica")])
    said = np.array([reported("fthsdp", "effective_whole"), reported("fthsdp", "effective_replica")])
    implied = -stall[0] / np.log(said[0])
    assert implied / 60 == pytest.approx(12.18, abs=0.005)
    assert np.exp(-stall[1] / implied) - said[1] == pytest.approx(-0.0183, abs=5e-4)
    llama = 16384 * reported("llama3", "window") / reported("llama3", "unexpected") / 100_000
    assert np.exp(-stall / llama) - said == pytest.approx([0.280, 0.106], abs=5e-4)


def test_the_bounds_of_megascale_and_the_share_of_byterobust_are_met_at_llama_3s_rate():
    part = 16384 * reported("llama3", "window") / reported("llama3", "unexpected")
    write = checkpoint_bytes(reported("llama3", "parameters")) / reported("llama3", "storage_sustained")
    restart = reported("megascale", "detect_and_diagnose") + reported("megascale", "catch_up")
    assert restart == 1500
    mega = best_goodput(write, system_mtbf(part, 10_000), restart)
    assert mega == pytest.approx(0.905, abs=5e-4) and mega > reported("megascale", "effective_time")
    byte = best_goodput(write, system_mtbf(part, 9600), 300.0)
    assert byte - reported("byterobust", "effective_time") == pytest.approx(-0.003, abs=1e-3)
    assert reported("megascale", "slow_machines") == 0.005 and reported("megascale", "slow_by") == 0.1
    assert reported("megascale", "restarts") == 100



# Pairs of nodes


def test_every_pair_of_two_clusters_is_there_once_and_failed_tests_are_nan():
    for cluster, nodes, gpus in (("cluster00", range(1, 18), (1, 4, 8)), ("cluster01", range(2, 12), (1, 2, 4, 8))):
        for count in gpus:
            for operation in ("sendrecv", "all_to_all"):
                links = pairs(cluster, operation, count)
                listed = list(zip(links.node.tolist(), links.other.tolist(), strict=True))
                assert listed == [(a, b) for a in nodes for b in nodes if b > a]
                assert (links.cluster, links.operation, links.gpus_per_node) == (cluster, operation, count)
                assert cluster in links.source
                ran = links.busbw[~np.isnan(links.busbw)]
                assert len(ran) >= 118 * len(listed) / 136 and np.all((ran > 0.5 * GB) & (ran < 100 * GB))
    assert pairs("cluster00", "sendrecv", 1).busbw[:3] == pytest.approx([13.59 * GB, 13.51 * GB, 1.76 * GB])
    assert np.isnan(pairs("cluster00", "sendrecv", 1).busbw).sum() == 5
    with pytest.raises(ValueError, match="pairs must be one of cluster00 sendrecv 1, "):
        pairs("cluster00", "sendrecv", 2)
