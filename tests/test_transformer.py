"""distlib.transformer: products counted one by one, and a published log line reproduced to its digits."""

import numpy as np
import pytest

from distlib import transformer
from distlib.transformer import Transformer
from distlib.units import TFLOP

BLOOM = Transformer(layers=70, hidden=14336, vocab=250880, norms=2)  # ALiBi: no learned positions
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
