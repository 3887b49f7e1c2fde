"""distlib.transformer: products counted one by one, and a published log line reproduced to its digits."""

import numpy as np
import pytest

from distlib import transformer
from distlib.hardware import accelerator
from distlib.transformer import (
    BLOOM,
    FULL,
    GPT3,
    LLAMA3_8B,
    LLAMA3_70B,
    LLAMA3_405B,
    MIXTRAL_8X7B,
    NONE,
    SELECTIVE,
    Transformer,
)
from distlib.units import TFLOP, day

BATCH = 2048 * 2048  # tokens an iteration


def counted_flops(layers, hidden, seq, vocab, recompute):
    """Training FLOPs of one sequence, product by product: 2·rows·inner·columns forward, twice that backward."""

    def product(rows, inner, columns):
        return 2 * rows * inner * columns

    layer = (
        3 * product(seq, hidden, hidden)  # queries, keys, values
        + product(seq, hidden, seq)  # scores, over all heads
        + product(seq, seq, hidden)  # weighted values, over all heads
        + product(seq, hidden, hidden)  # output projection
        + product(seq, hidden, 4 * hidden)
        + product(seq, 4 * hidden, hidden)
    )
    return layers * layer * (4 if recompute else 3) + 3 * product(seq, hidden, vocab)


@pytest.mark.parametrize("layers, hidden, seq, vocab", [(2, 64, 128, 1000), (70, 14336, 2048, 250880)])
def test_exact_flops_equal_the_products_counted_one_by_one(layers, hidden, seq, vocab):
    model = Transformer(layers, hidden, vocab)
    assert transformer.model_flops(model, seq, seq) == pytest.approx(counted_flops(layers, hidden, seq, vocab, False))
    assert transformer.hardware_flops(model, seq, seq) == pytest.approx(counted_flops(layers, hidden, seq, vocab, True))


def test_exact_flops_equal_the_forms_with_72_and_96():  # B06
    L, h, s, V, D = 70, 14336, 2048, 250880, BATCH
    assert transformer.model_flops(BLOOM, s, D) == pytest.approx(
        72 * D * L * h**2 * (1 + s / (6 * h) + V / (12 * h * L)), rel=1e-12
    )
    assert transformer.hardware_flops(BLOOM, s, D) == pytest.approx(
        96 * D * L * h**2 * (1 + s / (6 * h) + V / (16 * h * L)), rel=1e-12
    )
    assert transformer.attention_flops(L, h, s, D) == 12 * (D / s) * s**2 * h * L  # 12, not 60


def test_a_log_line_of_bloom_is_reproduced_to_its_four_digits():  # B07: 384 A100, 105.22 s an iteration, log 149.02
    per_gpu = 1 / (105.22 * 384 * TFLOP)
    assert transformer.hardware_flops(BLOOM, 2048, BATCH) == pytest.approx(6.0212e18, rel=1e-4)
    assert transformer.hardware_flops(BLOOM, 2048, BATCH) * per_gpu == pytest.approx(149.02, abs=0.005)
    assert transformer.model_flops(BLOOM, 2048, BATCH) * per_gpu == pytest.approx(112.3, abs=0.05)
    parameters = transformer.all_parameters(BLOOM)
    assert parameters == 176_247_271_424
    assert transformer.training_flops(parameters, BATCH) * per_gpu == pytest.approx(109.8, abs=0.05)


def test_llama_2_7b_has_47_gflop_a_token_with_attention():  # B02
    dense = transformer.training_flops(6.738e9, 1)
    attention = transformer.attention_flops(32, 4096, 4096, 1)
    assert attention == pytest.approx(6.44e9, rel=1e-3)
    rate = 9600 / (989 * TFLOP)
    assert (dense + attention) * rate == pytest.approx(0.455, abs=5e-4)
    assert dense * rate == pytest.approx(0.392, abs=5e-4)
    assert (dense + attention / 2) * rate == pytest.approx(0.424, abs=5e-4)


def test_gpt_2_has_124_million_parameters_of_which_85_million_in_its_layers():
    gpt2 = Transformer(layers=12, hidden=768, vocab=50257, positions=1024)
    assert transformer.all_parameters(gpt2) == 124_439_808  # the published checkpoint
    assert transformer.layer_parameters(gpt2) == 84_934_656
    assert transformer.matmul_parameters(gpt2) == 84_934_656 + 50257 * 768


def test_inference_is_a_third_of_training():
    assert transformer.inference_flops(7e9, 1e12) * 3 == transformer.training_flops(7e9, 1e12)


def test_flops_broadcast_over_models_and_tokens():
    models = Transformer(layers=[[2], [4]], hidden=64, vocab=1000)
    assert transformer.model_flops(models, 128, np.array([1e6, 2e6, 3e6])).shape == (2, 3)


@pytest.mark.parametrize("field", ["layers", "hidden", "vocab"])
@pytest.mark.parametrize("bad", [0, -1, 2.5, np.nan, "12", None])
def test_a_model_needs_whole_positive_sizes(field, bad):
    with pytest.raises(ValueError, match=field):
        Transformer(**{"layers": 2, "hidden": 64, "vocab": 1000, field: bad})


def test_negative_tokens_are_refused():
    with pytest.raises(ValueError, match="tokens"):
        transformer.training_flops(1e9, -1)
    with pytest.raises(ValueError, match="seq"):
        transformer.model_flops(BLOOM, 0, 1)


# Models that are no GPT: matrices listed one by one


def tensors(model):
    """(entries, tokens' share that passes it) of every matrix and vector of a model with whole sizes."""
    h, kv = model.hidden, model.hidden * model.kv_heads // model.heads
    inner = 3 if model.gated else 2

    def mlp(width):
        return [h * width] * inner

    found = []
    for layer in range(model.layers):
        found += [(x, 1) for x in (h * h, h * kv, h * kv, h * h)]
        vectors = [h, h] + ([h, h] + [h, kv, kv, h] if model.biases else [])
        if model.experts > 1 and layer >= model.dense_layers:
            found += [(h * model.experts, 1)]
            found += [(x, 1) for _ in range(model.shared) for x in mlp(model.expert_ffn)]
            found += [(x, model.top_k / model.experts) for _ in range(model.experts) for x in mlp(model.expert_ffn)]
        else:
            found += [(x, 1) for x in mlp(model.ffn)]
            vectors += ([model.ffn] * (inner - 1) + [h]) if model.biases else []
        found += [(x, 0) for x in vectors]
    found += [(model.vocab * h, 0 if not model.tied else 1), (model.positions * h, 0)]
    found += [(h, 0)] * (model.norms * (2 if model.biases else 1))
    return found if model.tied else [*found, (model.vocab * h, 1)]


SPARSE = Transformer(
    layers=5, hidden=96, vocab=1000, heads=12, kv_heads=4, ffn=320, gated=1, biases=0, tied=0,
    experts=6, top_k=2, shared=1, expert_ffn=48, dense_layers=2,
)  # fmt: skip
BIASED = Transformer(layers=3, hidden=64, vocab=500, positions=32, norms=2, heads=8, kv_heads=2, ffn=200, gated=1)


@pytest.mark.parametrize("model", [SPARSE, BIASED, GPT3, BLOOM, LLAMA3_8B, MIXTRAL_8X7B])
def test_parameters_equal_the_matrices_and_vectors_added_one_by_one(model):
    listed = tensors(model)
    assert transformer.all_parameters(model) == sum(entries for entries, _ in listed)
    assert transformer.matmul_parameters(model) == pytest.approx(sum(entries * share for entries, share in listed))
    idle = sum(entries * (1 - share) for entries, share in listed if 0 < share < 1)
    assert transformer.active_parameters(model) == pytest.approx(transformer.all_parameters(model) - idle)
    assert transformer.layer_parameters(model) - transformer.active_layer_parameters(model) == pytest.approx(idle)


def test_parameters_are_those_of_the_published_checkpoints():
    assert transformer.all_parameters(LLAMA3_8B) == 8_030_261_248  # C07
    assert transformer.all_parameters(LLAMA3_70B) == 70_553_706_496
    assert transformer.all_parameters(LLAMA3_405B) == 405_853_388_800
    assert transformer.all_parameters(MIXTRAL_8X7B) == 46_702_792_704
    assert transformer.active_parameters(MIXTRAL_8X7B) == pytest.approx(12.9e9, rel=5e-3)
    assert transformer.all_parameters(GPT3) == pytest.approx(174.6e9, rel=1e-3)


def test_64_experts_hold_64_times_the_feed_forward_and_two_of_them_work():  # B17
    dense = Transformer(layers=4, hidden=256, vocab=1, heads=4)
    sparse = Transformer(layers=4, hidden=256, vocab=1, heads=4, experts=64, top_k=2)
    router = 4 * 256 * 64
    attention = 4 * transformer.attention_parameters(dense)
    held = transformer.layer_parameters(sparse) - router - attention
    used = transformer.active_layer_parameters(sparse) - router - attention
    of_one = 4 * transformer.ffn_parameters(dense)
    assert (held / of_one, used / of_one) == (64, 2)


def test_grouped_keys_and_gates_change_the_products_as_counted():
    def product(rows, inner, columns):
        return 2 * rows * inner * columns

    s, h, f = 64, BIASED.hidden, BIASED.ffn
    layer = 2 * product(s, h, h) + 2 * product(s, h, h // 4) + 2 * product(s, s, h) + 3 * product(s, h, f)
    forward = 3 * layer + product(s, h, 500)
    assert transformer.model_flops(BIASED, s, s) == pytest.approx(3 * forward)
    assert transformer.logit_flops(BIASED, s) == 3 * product(s, h, 500)
    assert transformer.layer_flops(BIASED, s, s) == pytest.approx(9 * layer)


# Conventions


def test_a_causal_count_halves_the_products_of_scores_and_nothing_else():  # B05
    whole = transformer.attention_flops(32, 4096, 16384, 1e6)
    assert whole / transformer.causal_attention_flops(32, 4096, 16384, 1e6) == 2
    for convention in transformer.model_flops, transformer.causal_model_flops:
        assert convention(BLOOM, 2048, BATCH) < transformer.hardware_flops(BLOOM, 2048, BATCH)
    dropped = transformer.model_flops(BLOOM, 2048, 1e6) - transformer.causal_model_flops(BLOOM, 2048, 1e6)
    assert dropped == pytest.approx(6 * 70 * 14336 * 2048 * 1e6, rel=1e-6)
    # A kernel at 189 TFLOP/s of half the matrix is at 60.6 % of an A100; of the whole matrix it would be at 121 %.
    assert transformer.utilisation(189 * TFLOP, 1, 1, 312 * TFLOP) == pytest.approx(0.606, abs=5e-4)
    with pytest.raises(ValueError, match="utilisation must be a number from 0 to 1, got 1.21"):
        transformer.utilisation(2 * 189 * TFLOP, 1, 1, 312 * TFLOP)


def test_recomputation_repeats_the_scores_or_the_whole_forward_pass_of_the_layers():
    s, D = 2048, BATCH
    model = transformer.model_flops(GPT3, s, D)
    none, selective, full = (transformer.hardware_flops(GPT3, s, D, mode) for mode in (NONE, SELECTIVE, FULL))
    assert none == model
    assert selective - model == pytest.approx(4 * 96 * 12288 * s * D, rel=1e-6)  # QKᵀ and AV, forward
    assert full - model == pytest.approx(2 * 96 * 12 * 12288**2 * D + 4 * 96 * 12288 * s * D)
    assert transformer.hardware_flops(GPT3, s, D, [NONE, SELECTIVE, FULL]) == pytest.approx([none, selective, full])
    with pytest.raises(ValueError, match=r"recompute must be 0 \(none\), 1 \(selective\) or 2 \(full\), got 3"):
        transformer.hardware_flops(GPT3, s, D, 3)


def test_mfu_without_the_number_of_gpus_cannot_be_asked_for():  # B01: the article printed 45.5 %
    tokens, time, peak = 2048 * 16 * 500, 13.5 * 3600, accelerator("A100 80GB").peak
    flops = transformer.training_flops(70e9, tokens)
    assert flops == pytest.approx(6.881e18, rel=1e-4)
    assert transformer.utilisation(flops, time, 16, peak) == pytest.approx(0.0284, abs=5e-5)
    assert transformer.utilisation(flops, time, 1, peak) == pytest.approx(0.455, abs=1.5e-3)
    with pytest.raises(TypeError, match="peak"):
        transformer.utilisation(flops, time, peak)


def test_llama_2_7b_runs_at_46_percent_of_the_dense_peak_and_42_if_causal():  # B02
    llama = Transformer(layers=32, hidden=4096, vocab=32000, heads=32, ffn=11008, gated=1, biases=0, tied=0, dropout=0)
    time, peak = 1 / 9600, 989 * TFLOP
    assert transformer.all_parameters(llama) == 6_738_415_616
    # The source's 6P counts the embedding; what multiplies is 1.9 % less.
    lookup = 6 * 32000 * 4096 / (989 * TFLOP) * 9600
    assert transformer.mfu(llama, 4096, 1, time, 1, peak) + lookup == pytest.approx(0.455, abs=5e-4)
    assert transformer.causal_mfu(llama, 4096, 1, time, 1, peak) + lookup == pytest.approx(0.424, abs=5e-4)


def test_a_wrong_peak_raises_instead_of_printing_more_than_all():  # B03
    flops = 1.04 * 312 * TFLOP
    assert transformer.utilisation(flops, 1, 1, 989 * TFLOP) == pytest.approx(0.328, abs=5e-4)
    with pytest.raises(ValueError, match="utilisation must be a number from 0 to 1"):
        transformer.utilisation(flops, 1, 1, accelerator("A100 80GB").peak)
    with pytest.raises(ValueError, match="accelerator must be one of"):
        accelerator("H100 PCIe Turbo")


def test_corrected_peaks_double_the_years_that_a_book_had_printed():  # B04
    h100 = 989 * TFLOP
    assert transformer.training_flops(175e9, 300e9) / h100 / day / 365 == pytest.approx(10.1, abs=0.01)
    assert transformer.training_flops(70e9, 1e6) / (128 * 0.45 * h100) == pytest.approx(7.37, abs=5e-3)
    assert transformer.training_flops(7e9, 2e12) / (0.5 * h100) / day == pytest.approx(1966, abs=0.5)


def test_bloom_s_149_is_hfu_and_its_mfu_is_36_percent():  # B07
    time, peak = 105.22, accelerator("A100 80GB").peak
    assert transformer.hfu(BLOOM, 2048, BATCH, time, 384, peak, FULL) == pytest.approx(0.478, abs=5e-4)
    assert transformer.mfu(BLOOM, 2048, BATCH, time, 384, peak) == pytest.approx(0.360, abs=5e-4)


def test_five_layouts_of_a_sweep_log_what_the_form_with_96_gives():  # B18
    model = Transformer(layers=72, hidden=14336, vocab=250880)
    for batch, time, log in (
        (2048, 114.11, 141.27), (2016, 113.16, 140.24), (2016, 114.81, 138.22), (2048, 117.07, 137.70),
        (2016, 145.45, 109.11),
    ):  # fmt: skip
        rate = transformer.hardware_flops(model, 2048, batch * 2048) / time / 384 / TFLOP
        assert rate == pytest.approx(log, abs=0.011)


def test_recomputation_explains_a_rate_of_three_quarters():  # B20
    done = transformer.hardware_flops(LLAMA3_70B, 8192, 1)
    layers = transformer.layer_flops(LLAMA3_70B, 8192, 1)
    logits = transformer.logit_flops(LLAMA3_70B, 1)
    assert layers / (done - logits) == pytest.approx(3 / 4)
    assert 420.5 * layers / (done - logits) == pytest.approx(315.4, abs=0.05)
    # FLOP/s to tokens/s and back: both logs of InternLM hold 44.41 GFLOP a token.
    for rate, tokens in ((188.03e12, 4233.73), (93.48e12, 2104.89)):
        assert rate / tokens == pytest.approx(44.41e9, rel=1e-4)


@pytest.mark.parametrize(
    "fields, named",
    [
        ({"heads": 7}, "hidden / heads"), ({"heads": 8, "kv_heads": 3}, "heads / kv_heads"),
        ({"top_k": 2}, "experts − top_k"), ({"dense_layers": 5}, "layers − dense_layers"), ({"gated": 2}, "gated"),
    ],
)  # fmt: skip
def test_a_model_that_does_not_divide_is_refused(fields, named):
    with pytest.raises(ValueError, match=named):
        Transformer(layers=4, hidden=64, vocab=100, **fields)


def test_a_model_is_a_gpt_unless_said_otherwise():
    assert Transformer(2, 64, 100) == Transformer(
        2, 64, 100, positions=0, norms=1, ffn=256, gated=0, biases=1, tied=1, dropout=1,
        experts=1, top_k=1, shared=0, expert_ffn=256, dense_layers=0,
    )  # fmt: skip
    assert Transformer(2, 64, 100, norms=0, dense_layers=2, experts=2, top_k=2).expert_layers == 0
    assert Transformer(2, 64, 100, experts=2, top_k=2).expert_layers == 2
    assert transformer.hardware_flops(BLOOM, 2048, 1, [0, 1, 2]).argsort().tolist() == [0, 1, 2]
