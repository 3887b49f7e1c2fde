"""Published step times: their rows, and the errors that the book claims for the estimate on them."""

from dataclasses import replace

import numpy as np
import pytest

from distlib.estimate import FSDP_A100, FSDP_H100, MEGATRON_A100, NEMO_H100, fit_stack, left_out, predicted
from distlib.hardware import Cluster, node
from distlib.parallel import possible
from distlib.published import peer_step_times, step_times, sweep
from distlib.transformer import hardware_flops, model_flops
from distlib.units import GB, TFLOP


def dgx(name):
    kind = node(name)
    return Cluster(node=kind, nodes=1, rails=8, fabric=kind.nic)


A100, H100 = dgx("DGX A100"), dgx("DGX H100")
CORE = ("SC21-T1", "SC21-T2-PTD", "Korthikanti-T5", "MegaScale-T2-MegatronLM")
FITS = {
    "A100": (step_times().of(*CORE), A100, MEGATRON_A100),
    "H100": (step_times().of("DGXC-H100"), H100, NEMO_H100),
    "FSDP A100": (step_times().of("Mosaic-FSDP-A100"), A100, FSDP_A100),
    "FSDP H100": (step_times().of("Mosaic-FSDP-H100"), H100, FSDP_H100),
}


def errors(runs, times):
    return np.abs(times / runs.time - 1)


def test_step_times_have_their_rows_layouts_that_exist_and_sources():
    runs = step_times()
    tables, counts = np.unique(runs.table, return_counts=True)
    assert dict(zip(tables.tolist(), counts.tolist(), strict=True)) == {
        "DGXC-H100": 25, "Korthikanti-T5": 8, "Llama3-T4": 3, "MCore-H100": 6, "MT-NLG": 3,
        "MegaScale-T2-MegaScale": 8, "MegaScale-T2-MegatronLM": 8, "Mosaic-FSDP-A100": 34,
        "Mosaic-FSDP-A100-unseen": 19, "Mosaic-FSDP-H100": 44, "Mosaic-FSDP-H100-unseen": 15, "SC21-T1": 10,
        "SC21-T2-PTD": 6, "SC21-T2-ZeRO3": 6,
    }  # fmt: skip
    assert len(set(runs.id)) == len(runs) == 195
    assert np.all(possible(runs.model, runs.layout, runs.seq, runs.layout.ranks))
    assert all("arXiv" in s or "github.com" in s for s in runs.source)
    assert np.all(runs.layout.ranks % 8 == 0)
    with pytest.raises(ValueError, match="table must be one of SC21-T1, .*; got SC21"):
        runs.of("SC21")


def test_step_times_give_back_the_rates_that_their_papers_print():
    runs = step_times()
    tokens = runs.layout.global_batch * runs.seq
    whole = hardware_flops(runs.model, runs.seq, tokens) / (runs.time * runs.layout.ranks)
    model = model_flops(runs.model, runs.seq, tokens) / (runs.time * runs.layout.ranks)
    rate = dict(zip(runs.id, whole / TFLOP, strict=True)), dict(zip(runs.id, model / TFLOP, strict=True))
    for id, printed in {"sc21t1-1.7B": 137, "sc21t1-1T": 163, "sc21t2-ptd-530B-560": 171, "mtnlg-2240": 126}.items():
        assert rate[0][id] == pytest.approx(printed, abs=0.5), id
    for id, printed in {"kor22-1T-selective": 175.6, "megascale-mlm-256": 165.5, "mcore-h100-462B": 459.9,
                        "dgxc-nemotron15b-16": 544.2}.items():  # fmt: skip
        assert rate[1][id] == pytest.approx(printed, rel=0.01), id


def test_peers_predict_the_rows_that_they_can_express():
    core, dgxc = step_times().of(*CORE), step_times().of("DGXC-H100")
    mean = {peer: np.nanmean(errors(core, peer_step_times(peer, core))) for peer in ("calculon", "mlsysim")}
    assert mean == pytest.approx({"calculon": 0.085, "mlsysim": 0.102}, abs=5e-4)
    assert np.isfinite(peer_step_times("calculon", dgxc)).sum() < len(dgxc)
    with pytest.raises(ValueError, match="peer must be one of calculon, mlsysim, llm-analysis; got 'x'"):
        peer_step_times("x", core)


@pytest.mark.parametrize("name", FITS)
def test_the_constants_of_the_stacks_are_the_fit_to_their_rows(name):
    runs, cluster, stack = FITS[name]
    found = fit_stack(runs, cluster, replace(stack, product=0.7))
    for constant in stack.fitted:
        assert round(getattr(found, constant), 3) == getattr(stack, constant), constant


def test_fixed_constants_are_the_figures_that_they_name():
    assert round(sweep("polaris_1024_all_reduce").busbw.max() / (2 * 25 * GB), 2) == MEGATRON_A100.fabric
    assert round(sweep("h100x_10n8_reduce_scatter").busbw.max() / (8 * 50 * GB), 2) == NEMO_H100.fabric
    assert round(529 / 989.5, 3) == NEMO_H100.attention
    assert round(318 / 370, 2) == NEMO_H100.backward
    assert NEMO_H100.memory == MEGATRON_A100.memory
    assert (NEMO_H100.contention, MEGATRON_A100.attention) == (0.189, 0.6)
    assert (FSDP_A100.fabric, FSDP_H100.fabric) == (MEGATRON_A100.fabric, NEMO_H100.fabric)


def test_a100_steps_are_predicted_within_the_bars():
    runs, cluster, stack = FITS["A100"]
    fitted = errors(runs, predicted(runs, cluster, stack))
    assert fitted.mean() < 0.025 and fitted.max() < 0.07
    alone = errors(runs, left_out(runs, cluster, stack, runs.id))
    assert alone.mean() < 0.027 and alone.max() < 0.08
    tables = errors(runs, left_out(runs, cluster, stack, runs.table))
    assert all(tables[runs.table == t].mean() < 0.045 for t in CORE)
    assert tables.max() < 0.095


def test_h100_families_are_predicted_from_one_another():
    runs, cluster, stack = FITS["H100"]
    fitted, families = (errors(runs, t) for t in (
        predicted(runs, cluster, stack), left_out(runs, cluster, stack, runs.family)))  # fmt: skip
    assert fitted.mean() < 0.013 and families.mean() < 0.016 and families.max() < 0.045


@pytest.mark.parametrize(("name", "mean", "unseen"), [("FSDP A100", 0.045, 0.033), ("FSDP H100", 0.036, 0.024)])
def test_fsdp_models_are_predicted_from_one_another_and_so_are_rows_that_no_fit_saw(name, mean, unseen):
    runs, cluster, stack = FITS[name]
    assert errors(runs, left_out(runs, cluster, stack, runs.family)).mean() < mean
    new = step_times().of(f"{runs.table[0]}-unseen")
    assert errors(new, predicted(new, cluster, stack)).mean() < unseen


def test_rows_that_miss_are_missed_by_what_the_book_says():
    def signed(table, cluster, stack):
        runs = step_times().of(table)
        return predicted(runs, cluster, stack) / runs.time - 1

    assert signed("MT-NLG", A100, MEGATRON_A100) == pytest.approx([-0.20, -0.21, -0.22], abs=0.02)
    assert np.all(signed("SC21-T2-ZeRO3", A100, MEGATRON_A100) < -0.3)
    one_port = replace(A100, node=replace(A100.node, accelerators=1, nics=1), rails=1)
    alone = signed("SC21-T2-ZeRO3", one_port, MEGATRON_A100)
    assert np.all((alone > 0) & (alone < 0.42))
    assert np.all(signed("Llama3-T4", H100, NEMO_H100) < -0.15)
