"""What a layout costs: each formula against the thing played."""

import numpy as np
import pytest

from distlib.alphabeta import Link
from distlib.collectives import ring_all_reduce
from distlib.parallel import (
    bubble_of_total,
    bubble_over_ideal,
    context_backward_bytes,
    context_forward_bytes,
    context_hidden_tokens,
    data_hidden_tokens,
    key_value_bytes,
    pipeline_crossover,
    replica_bytes,
    sequence_bytes,
    sequence_regather_bytes,
    tensor_break_even,
    tensor_bytes,
    zero1_bytes,
    zero2_bytes,
    zero3_bytes,
    zero_bubble_time,
)
from distlib.sharded import (
    Group,
    backward,
    context,
    contiguous,
    flat,
    forward,
    parameters,
    replica_step,
    sequence,
    split_weights,
    states,
    sum_norm_gradients,
    tensor,
    zero1_step,
    zero2_step,
    zero3_step,
    zigzag,
)
from distlib.transformer import Transformer, inference_flops, layer_parameters

# Data, tensor, sequence and context parallel: the bytes that `distlib.sharded` really sends

H, SEQ, HEADS, KV_HEADS = 12, 10, 6, 3
WEIGHTS = parameters(H, KV_HEADS, HEADS // KV_HEADS, H // HEADS, inner=7, seed=1)
LIGHT = {name: array.astype(np.float32) for name, array in WEIGHTS.items()}
INPUT = np.random.default_rng(2).standard_normal((2, SEQ, H))


def sent_by_step(step, ranks, micro):
    """Mean bytes a rank: weights travel in four bytes a number, gradients in eight."""
    group = Group(ranks)
    wide = states(WEIGHTS) * ranks if step is replica_step else states(WEIGHTS, ranks)
    step(wide, [[(INPUT, INPUT)] * micro] * ranks, LIGHT, group)
    return group.sent.mean()


@pytest.mark.parametrize("ranks, micro", [(1, 1), (2, 1), (3, 2), (7, 3)])
def test_each_way_of_data_parallel_sends_what_its_formula_says(ranks, micro):
    size = flat(WEIGHTS).size
    padded = size + -size % ranks
    assert sent_by_step(replica_step, ranks, micro) == pytest.approx(replica_bytes(8 * size, ranks))
    assert sent_by_step(zero1_step, ranks, micro) == pytest.approx(zero1_bytes(8 * padded, 4 * padded, ranks))
    assert sent_by_step(zero2_step, ranks, micro) == pytest.approx(zero2_bytes(8 * padded, 4 * padded, ranks, micro))
    assert sent_by_step(zero3_step, ranks, micro) == pytest.approx(zero3_bytes(8 * padded, 4 * padded, ranks, micro))


def test_zero_sends_once_or_one_and_a_half_times_what_replicas_send():  # B16
    n, ranks = 2 * 7.5e9, np.array([2, 64])
    plain = replica_bytes(n, ranks)
    assert plain == pytest.approx(2 * (ranks - 1) / ranks * n)
    assert zero1_bytes(n, n, ranks) == pytest.approx(plain)
    assert zero2_bytes(n, n, ranks) == pytest.approx(plain)
    assert zero3_bytes(n, n, ranks) == pytest.approx(1.5 * plain)
    assert zero3_bytes(n, n, ranks, 4) == pytest.approx(6 * plain)
    assert zero2_bytes(n, n, ranks, 4) == pytest.approx(2.5 * plain)
    assert replica_bytes(n, 1) == zero3_bytes(n, n, 1, 8) == 0


def test_from_so_many_tokens_a_rank_the_gradient_hides_whatever_the_model():
    rate, beta, ranks, P = 4e14, 2e11, 10**6, np.array([1e9, 1e12])
    tokens = data_hidden_tokens(rate, beta)
    forward, backward = inference_flops(P, tokens) / rate, 2 * inference_flops(P, tokens) / rate
    assert replica_bytes(2 * P, ranks) / beta == pytest.approx(backward, rel=1e-5)
    gather = (zero3_bytes(2 * P, 2 * P, ranks) - replica_bytes(2 * P, ranks)) / beta
    assert gather == pytest.approx(forward, rel=1e-5)
    assert zero3_bytes(2 * P, 2 * P, ranks) / beta - gather == pytest.approx(backward, rel=1e-5)


def sent_by_passes(shards, inputs, split, group):
    """Mean bytes a rank, forward and backward."""
    outputs, kept = forward(shards, inputs, split)
    there = group.sent.mean()
    gradients, _ = backward(shards, outputs, split, kept)
    return there, group.sent.mean() - there, gradients


@pytest.mark.parametrize("tp", [1, 2, 3])
def test_tensor_parallel_sends_what_its_formula_says(tp):
    group, n = Group(tp), INPUT.nbytes
    there, back, _ = sent_by_passes(split_weights(WEIGHTS, tp), [INPUT] * tp, tensor(group, SEQ), group)
    assert there == back == pytest.approx(tensor_bytes(n, tp))


@pytest.mark.parametrize("tp", [1, 2])
def test_sequence_parallel_sends_as_much_and_gathers_again_what_it_did_not_keep(tp):
    group, n = Group(tp), INPUT.nbytes
    shards, parts = split_weights(WEIGHTS, tp), np.split(INPUT, tp, 1)
    there, back, gradients = sent_by_passes(shards, parts, sequence(group, SEQ), group)
    assert there == pytest.approx(sequence_bytes(n, tp)) == pytest.approx(tensor_bytes(n, tp))
    assert back - there == pytest.approx(sequence_regather_bytes(n, tp)) == pytest.approx(tensor_bytes(n, tp) / 2)
    before = group.sent.mean()
    sum_norm_gradients(gradients, group)
    assert group.sent.mean() - before == pytest.approx(replica_bytes(8 * 4 * H, tp))


@pytest.mark.parametrize("cut", [zigzag, contiguous])
@pytest.mark.parametrize("cp", [1, 2, 3, 5])
def test_context_parallel_sends_what_its_formulas_say(cut, cp):
    group, places = Group(cp), cut(SEQ, cp)
    parts, keys_values = [INPUT[:, at] for at in places], key_value_bytes(INPUT.nbytes, HEADS, KV_HEADS)
    there, back, _ = sent_by_passes([WEIGHTS] * cp, parts, context(group, places), group)
    assert there == pytest.approx(context_forward_bytes(keys_values, cp))
    assert back == pytest.approx(context_backward_bytes(keys_values, keys_values, cp)) == pytest.approx(2 * there)


def test_keys_and_values_weigh_twice_the_activations_or_less_if_heads_share_them():
    assert key_value_bytes(100.0, 32, [32, 8, 1]) == pytest.approx([200, 50, 6.25])


def test_at_the_break_even_a_layer_communicates_as_long_as_it_computes():
    hidden, seq, rate, beta, tokens = 8192, 4096, 4e14, 3e11, 4096
    layer = Transformer(layers=1, hidden=hidden, vocab=1)
    flops = inference_flops(layer_parameters(layer), tokens) + 4 * tokens * seq * hidden
    tp = tensor_break_even(hidden, seq, rate, beta)
    compute = flops / tp / rate
    n, at = 2 * tokens * hidden, np.array([2, 8])
    assert 4 * (tp - 1) / tp * n / beta == pytest.approx(compute)
    ring = 2 * ring_all_reduce(n, at, Link(0.0, beta)) / (flops / at / rate)
    assert ring == pytest.approx((at - 1) / (tp - 1))
    assert tensor_break_even(hidden, seq, rate, [beta, beta / 8]) - 1 == pytest.approx([tp - 1, (tp - 1) / 8])


def test_from_so_many_tokens_a_round_of_the_ring_computes_as_long_as_it_sends():
    rate, beta, heads, kv_heads, hidden, cp = 4e14, 5e10, 64, 8, 8192, 4
    part = context_hidden_tokens(rate, beta, heads, kv_heads)
    attended = sum(sum(at + 1) for at in zigzag(64, cp)) / 64**2  # of all pairs, those that are not masked
    flops = 4 * hidden * (part * cp) ** 2 * (attended - 0.5 / 64) / cp / cp  # of a rank, in one of cp rounds
    sent = context_forward_bytes(key_value_bytes(2 * part * cp * hidden, heads, kv_heads), cp) / (cp - 1)
    assert flops / rate / (sent / beta) == pytest.approx(1)


# Pipeline parallel: the bubble


def played_bubble(stages, microbatches):
    """Idle over work of a stage when each micro-batch passes each stage in one tick, forward then back."""
    free, ends = np.zeros(stages), np.zeros((microbatches, stages))
    for m in range(microbatches):
        ready = 0.0
        for stage in range(stages):
            ready = free[stage] = max(ready, free[stage]) + 1
            ends[m, stage] = ready
    return ends.max() / microbatches - 1


@pytest.mark.parametrize("stages, microbatches", [(1, 3), (4, 1), (4, 16), (8, 16)])
def test_the_bubble_is_that_of_played_stages(stages, microbatches):
    assert bubble_over_ideal(stages, microbatches) == pytest.approx(played_bubble(stages, microbatches))


def test_bubbles_of_total_and_of_ideal_are_told_apart():  # B13
    assert bubble_of_total(8, 16) == pytest.approx(7 / 23)
    assert bubble_of_total(8, 16, 4) == pytest.approx(7 / 71)
    assert bubble_of_total([16, 16], [32, 64]) == pytest.approx([15 / 47, 15 / 79])
    assert bubble_over_ideal([16, 16], [32, 64]) == pytest.approx([15 / 32, 15 / 64])
    assert bubble_over_ideal(8, 16, 4) == pytest.approx(7 / 64)


def test_at_the_crossover_pipeline_and_split_layers_cost_the_same():
    t, c, hop = 3.0, np.array([0.9, 5.0]), 0.2
    m = pipeline_crossover(8, t, c, hop)
    assert m * c == pytest.approx(7 * t + 2 * m * hop)
    with pytest.raises(ValueError, match="hop"):
        pipeline_crossover(8, t, 0.4, hop)


def test_b14_two_meanings_of_b_give_one_zero_bubble_time():
    forward, of_input, of_weight = 1.0, 1.0, 1.0
    assert zero_bubble_time(8, forward, of_input + of_weight, of_weight) == 7
    for forward, of_input, of_weight in ((1.0, 1.2, 0.8), (2.0, 1.5, 1.4)):
        printed = 7 * (forward + of_input - of_weight)
        assert zero_bubble_time(8, forward, of_input + of_weight, of_weight) == pytest.approx(printed)


def test_zb_h1_leaves_a_third_of_the_idle_time_of_1f1b_if_all_passes_are_alike():
    assert zero_bubble_time(8, 1.0, 2.0, 1.0) == pytest.approx(16 * 3 * bubble_over_ideal(8, 16) / 3)


def test_weights_cannot_take_longer_than_the_idle_time_that_they_fill():
    assert zero_bubble_time(8, 1.0, 1.0, 1.0) == 0
    with pytest.raises(ValueError, match=r"\(F \+ B\) − 2W must be a finite number ≥ 0, got -1"):
        zero_bubble_time(8, 1.0, 2.0, 2.0)
