"""What a layout costs: each formula against the thing played."""

import itertools
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlib.alphabeta import Link
from distlib.collectives import ring_all_reduce
from distlib.experts import distinct, scores, top_k
from distlib.parallel import (
    Layout,
    bubble_of_total,
    bubble_over_ideal,
    context_backward_bytes,
    context_forward_bytes,
    context_hidden_tokens,
    data_hidden_tokens,
    direct_nic_bytes,
    direct_nvlink_bytes,
    end_activations,
    expert_capacity,
    expert_nic_bytes,
    expert_nvlink_bytes,
    in_flight,
    interleaved_held,
    key_value_bytes,
    layer_activations,
    layer_held,
    layout_at,
    mean_groups,
    microbatches_per_step,
    one_f_one_b_held,
    one_f_one_b_hops,
    peak_memory,
    pipeline_crossover,
    possible,
    replica_bytes,
    require,
    sequence_bytes,
    sequence_regather_bytes,
    stage_held,
    stage_layers,
    stage_memory,
    tensor_break_even,
    tensor_bytes,
    zero1_bytes,
    zero2_bytes,
    zero3_bytes,
    zero_bubble_time,
)
from distlib.schedules import one_f_one_b, play
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
from distlib.transformer import (
    BLOOM,
    FULL,
    GPT3,
    LLAMA3_405B,
    NONE,
    SELECTIVE,
    Transformer,
    all_parameters,
    expert_parameters,
    inference_flops,
    layer_parameters,
)
from distlib.units import GB, GiB

# The layout: what can exist

SMALL = Transformer(layers=12, hidden=96, vocab=1000, heads=12, kv_heads=6, ffn=384)
MIXED = Transformer(layers=8, hidden=64, vocab=512, heads=8, kv_heads=4, ffn=256, gated=1, biases=0, tied=0, dropout=0,
                    experts=8, top_k=2, shared=1, expert_ffn=64, dense_layers=2)  # fmt: skip


@pytest.mark.parametrize(
    "fields, reason",
    [
        ({"tp": 2}, "tp·cp·pp·dp is not the number of ranks"),
        ({"tp": 8, "ranks": 8}, "tp does not divide the heads"),
        ({"tp": 4, "ranks": 4}, "tp does not divide the key/value heads"),
        ({"cp": 3, "ranks": 3}, r"cp \(times tp, with sequence parallelism\) does not divide the sequence"),
        ({"tp": 2, "cp": 128, "ranks": 256, "sequence_parallel": 1}, "with sequence parallelism"),
        ({"pp": 14, "ranks": 14}, "there are more stages than layers"),
        ({"virtual": 2}, r"virtual stages need a pipeline, pp > 1"),
        ({"pp": 5, "ranks": 5}, r"pp·virtual divides neither the layers nor the layers \+ 2"),
        ({"pp": 3, "virtual": 3, "ranks": 3, "global_batch": 3}, "divides neither the layers nor"),
        ({"dp": 2, "ranks": 2}, "dp·micro_batch does not divide the global batch"),
        ({"micro_batch": 2}, "dp·micro_batch does not divide the global batch"),
        ({"pp": 2, "virtual": 2, "ranks": 2, "global_batch": 3}, "interleaving needs a multiple of pp micro-batches"),
        ({"ep": 2}, "ep does not divide the experts"),
    ],
)
def test_a_layout_that_cannot_exist_is_refused_with_the_reason(fields, reason):
    fields = dict(fields)
    ranks = fields.pop("ranks", 1)
    layout = Layout(**fields)
    assert not possible(SMALL, layout, 128, ranks)
    with pytest.raises(ValueError, match=reason):
        require(SMALL, layout, 128, ranks)


def test_experts_and_widths_are_divided_too():
    with pytest.raises(ValueError, match="ep does not divide dp"):
        require(MIXED, Layout(ep=4, dp=2, global_batch=2), 128, 2)
    odd = Transformer(layers=2, hidden=64, vocab=512, heads=8, ffn=100)
    with pytest.raises(ValueError, match="width of the feed-forward: tp 8; 8 ranks, sequence of 128"):
        require(odd, Layout(tp=8), 128, 8)
    with pytest.raises(ValueError, match="tp does not divide the width of an expert"):
        require(replace(odd, ffn=64, experts=2, expert_ffn=100), Layout(tp=8), 128, 8)
    with pytest.raises(ValueError, match="heads must be a whole number ≥ 1, got None"):
        require(Transformer(layers=2, hidden=64, vocab=512), Layout(), 128, 1)


@pytest.mark.parametrize("field, bad", [("tp", 0), ("recompute", 3), ("zero", 4), ("flash", 2), ("global_batch", 1.5)])
def test_a_field_outside_its_domain_is_refused(field, bad):
    with pytest.raises(ValueError, match=field):
        Layout(**{field: bad})


def test_the_published_layout_of_llama_3_exists_only_with_uneven_ends():
    layout = Layout(tp=8, pp=16, dp=128, virtual=8, global_batch=2048)
    assert require(LLAMA3_405B, layout, 8192, 16384) is layout
    assert layout.microbatches == 16
    assert [stage_layers(126, layout, stage) for stage in (0, 1, 14, 15)] == [7, 8, 8, 7]
    assert stage_layers(12, Layout(pp=3, virtual=2), [0, 1, 2]) == pytest.approx([4, 4, 4])


sizes = st.integers(1, 16)
layouts = st.builds(
    Layout, tp=sizes, cp=st.integers(1, 4), pp=sizes, dp=sizes, ep=st.integers(1, 4), virtual=st.integers(1, 4),
    micro_batch=st.integers(1, 4), global_batch=st.integers(1, 96), sequence_parallel=st.integers(0, 1),
)  # fmt: skip


@given(layouts, st.sampled_from([SMALL, MIXED]))
def test_what_is_possible_can_be_dealt_out_whole(layout, model):
    """Every share of a possible layout is a whole number; some share of an impossible one is not, or is missing."""
    chunks, seq = layout.pp * layout.virtual, 24
    whole = [model.heads / layout.tp, model.kv_heads / layout.tp, model.ffn / layout.tp, model.expert_ffn / layout.tp,
             seq / layout.cp / (layout.tp if layout.sequence_parallel else 1), layout.microbatches,
             layout.dp / layout.ep, model.experts / layout.ep,
             0 if model.layers % chunks == 0 else (model.layers + 2) / chunks,
             layout.microbatches / layout.pp if layout.virtual > 1 else 0]  # fmt: skip
    expected = all(share == int(share) for share in whole) and layout.pp <= model.layers
    expected = expected and (layout.virtual == 1 or layout.pp > 1)
    assert possible(model, layout, seq, layout.ranks) == expected
    assert not possible(model, layout, seq, layout.ranks + 1)


def test_many_layouts_are_judged_as_each_of_them_alone():
    grid = Layout(tp=[[1], [2], [3], [4]], pp=[1, 2, 3, 5], dp=2, virtual=[1, 1, 2, 1], global_batch=12)
    mask = possible(SMALL, grid, 96, grid.ranks)
    assert mask.shape == (4, 4) and mask.sum() == 9
    alone = [possible(SMALL, layout_at(grid, i), 96, layout_at(grid, i).ranks) for i in range(16)]
    assert mask.ravel().tolist() == alone
    with pytest.raises(ValueError, match="key/value heads: tp 4, dp 2, global_batch 2; "):
        require(SMALL, Layout(tp=[1, 2, 4], dp=2, global_batch=2), 96, [2, 4, 8])


# The memory of a rank

MODES = list(itertools.product([NONE, SELECTIVE, FULL], [0, 1], [0, 1]))


def kept_tensors(model, layout, seq):
    """Bytes that each tensor of one layer of one micro-batch keeps on a rank, in the order of the forward pass."""
    b, t = layout.micro_batch, layout.tp
    s = seq // layout.cp
    h, a, d = model.hidden, model.heads, model.dropout
    kv = h * model.kv_heads // a
    r = t if layout.sequence_parallel else 1
    if layout.recompute == FULL:
        return {"input": 2 * s * b * h / r}
    kept = {
        "input of the first normalisation": 2 * s * b * h / r,
        "input of queries, keys and values": 2 * s * b * h / r,
        "queries": 2 * s * b * h / t,
        "keys": 2 * s * b * kv / t,
        "values": 2 * s * b * kv / t,
        "input of the output projection": 2 * s * b * h / t,
        "mask after attention": d * s * b * h / r,
        "input of the second normalisation": 2 * s * b * h / r,
        "input of the feed-forward": 2 * s * b * h / r,
        "mask after the feed-forward": d * s * b * h / r,
    }
    if not layout.flash and layout.recompute == NONE:
        kept["softmax"] = 2 * a * s * seq * b / t
        kept["mask of softmax"] = d * a * s * seq * b / t
        kept["softmax after dropout"] = d * 2 * a * s * seq * b / t
    width = model.ffn if model.experts == 1 else (model.top_k + model.shared) * model.expert_ffn
    kept["input of the function"] = 2 * s * b * width / t
    kept["output of the function"] = 2 * s * b * width / t
    if model.gated:
        kept["gate"] = 2 * s * b * width / t
    if model.experts > 1:
        kept["copies sent to experts"] = 2 * s * b * h * model.top_k / t
    return kept


@pytest.mark.parametrize("recompute, sequence_parallel, flash", MODES)
@pytest.mark.parametrize("model", [SMALL, replace(MIXED, dense_layers=0), replace(SMALL, gated=1, dropout=0, ffn=480)])
def test_activations_of_a_layer_are_its_tensors_added_up(model, recompute, sequence_parallel, flash):
    layout = Layout(tp=2, cp=4, micro_batch=3, recompute=recompute, sequence_parallel=sequence_parallel, flash=flash)
    assert layer_activations(model, layout, 96) == pytest.approx(sum(kept_tensors(model, layout, 96).values()))


def test_layers_with_and_without_experts_are_averaged():
    sparse, dense = replace(MIXED, dense_layers=0), replace(MIXED, experts=1, top_k=1, shared=0, expert_ffn=256)
    mean = 0.75 * layer_activations(sparse, Layout(), 64) + 0.25 * layer_activations(dense, Layout(), 64)
    assert layer_activations(MIXED, Layout(), 64) == pytest.approx(mean)


def test_gpt_3_keeps_275_gb_of_activations_82_selectively_and_5_fully_recomputed():  # B10: bytes, not elements
    kept = 96 * layer_activations(GPT3, Layout(flash=0, recompute=[NONE, SELECTIVE, FULL]), 2048)
    assert kept / GB == pytest.approx([275.4, 82.1, 4.83], rel=1e-3)
    assert kept[0] / 96 / GB == pytest.approx(2.869, rel=2e-4)
    assert 96 * layer_activations(GPT3, Layout(flash=1), 2048) == kept[1]  # flash attention stores no scores
    s, h, a = 2048, 12288, 96
    assert kept[0] == pytest.approx(96 * s * h * (34 + 5 * a * s / h), rel=1e-12)
    for t in (1, 8):
        split = layer_activations(GPT3, Layout(tp=t, flash=0, sequence_parallel=[0, 1]), s)
        assert split == pytest.approx(
            [s * h * (10 + 24 / t + 5 * a * s / (h * t)), s * h / t * (34 + 5 * a * s / h)], rel=1e-12
        )


def played_in_flight(stages, microbatches, virtual, stage):
    """The most (micro-batch, chunk) pairs that a stage holds while it runs 1F1B, interleaved or not, over virtual."""
    units = microbatches * virtual
    ahead = stages - stage - 1 if virtual == 1 else 2 * (stages - stage - 1) + (virtual - 1) * stages
    warm = min(ahead, units)
    order = [1] * warm + [1, -1] * (units - warm) + [-1] * warm
    assert sum(order) == 0
    return max(np.cumsum(order)) / virtual


@pytest.mark.parametrize("stages, microbatches", [(1, 4), (2, 1), (4, 4), (4, 8), (8, 16), (8, 3)])
@pytest.mark.parametrize("virtual", [1, 2, 3])
def test_micro_batches_in_flight_are_those_of_the_schedule_played(stages, microbatches, virtual):
    if virtual > 1 and (stages == 1 or microbatches % stages):
        return
    layout = Layout(pp=stages, virtual=virtual, global_batch=microbatches)
    played = [played_in_flight(stages, microbatches, virtual, stage) for stage in range(stages)]
    assert in_flight(layout, np.arange(stages)) == pytest.approx(np.array(played))


def test_interleaving_raises_activations_by_the_published_factor():
    layout = Layout(pp=8, virtual=[1, 3], global_batch=64)
    held = in_flight(layout, 0) * 96 / 8
    assert held == pytest.approx([96, 96 * (1 + 7 / (8 * 3))])  # Korthikanti et al. (2022): L(1 + (p−1)/(pm))


def test_bloom_s_ramp_of_batches_has_three_bubbles_and_only_whole_micro_batches():  # B19
    layout = Layout(dp=8, tp=4, pp=12, micro_batch=[2, 2, 1], global_batch=[2048, 784, 784])
    assert layout.microbatches.tolist() == [128, 49, 98]
    assert bubble_of_total(12, layout.microbatches) == pytest.approx([0.079, 0.183, 0.101], abs=5e-4)
    with pytest.raises(ValueError, match="does not divide the global batch"):
        require(BLOOM, Layout(dp=8, tp=4, pp=12, micro_batch=3, global_batch=2048), 2048, 384)


@pytest.mark.parametrize("model", [SMALL, MIXED, GPT3, replace(SMALL, positions=64, norms=2)])
@pytest.mark.parametrize("tp, pp, ep", [(1, 1, 1), (2, 1, 2), (2, 4, 1), (1, 2, 4)])
def test_the_parameters_of_all_ranks_are_those_of_the_model_and_the_stated_copies(model, tp, pp, ep):
    ep = ep if model.experts > 1 else 1
    layout, stages = Layout(tp=tp, pp=pp, ep=ep, dp=ep), range(pp)
    shared = sum(stage_held(model, layout, stage).shared for stage in stages) * tp
    experts = sum(stage_held(model, layout, stage).experts for stage in stages) * tp * ep
    h, ffn_vectors = model.hidden, model.ffn * (1 + model.gated) * model.biases
    vectors = 2 * h * (1 + model.biases) + model.biases * h * (3 + 2 * model.kv_heads / model.heads) + ffn_vectors
    sparse = model.expert_layers
    copies = (tp - 1) * (model.layers * vectors + sparse * h * model.experts)
    copies += (tp - 1) * (model.positions + model.norms * (1 + model.biases)) * h
    second_embedding = model.vocab * h if model.tied and pp > 1 else 0
    assert shared + experts == pytest.approx(all_parameters(model) + copies + second_embedding, rel=1e-12)
    assert experts == pytest.approx(sparse * model.experts * expert_parameters(model))


def states_of(parameters, zero, dp, gradient=2):
    """Bytes of weights, gradients and optimiser of so many parameters, all in one stage."""
    model = replace(SMALL, layers=2)
    held = stage_held(model, Layout(), 0)
    layout = Layout(dp=dp, zero=zero, global_batch=dp)
    return stage_memory(model, layout, 64, 0, gradient).states * parameters / (held.shared + held.experts)


def test_zero_2_of_2_85_billion_parameters_on_8_gpus_takes_9_96_gib():  # B08: 2 + 2 + 12 bytes, of which 14 are split
    assert states_of(2.851e9, 2, 8) / GB == pytest.approx(10.69, abs=5e-3)
    assert states_of(2.851e9, 2, 8) / GiB == pytest.approx(9.96, abs=5e-3)
    assert states_of(1, 0, 1, gradient=4) == pytest.approx(18)


def test_memory_that_does_not_fall_with_the_ranks_was_not_split():  # B09: a full copy is 12.1 GB
    assert states_of(6.05e9, 3, np.array([2, 4])) / GB == pytest.approx([48.4, 24.2])
    assert states_of(6.05e9, 3, 8) == pytest.approx(states_of(6.05e9, 3, 1) / 8)
    saved = states_of(1, 0, 64) / np.array([states_of(1, zero, 64) for zero in (1, 2, 3)])
    assert saved == pytest.approx([16 / (4 + 12 / 64), 16 / (2 + 14 / 64), 64])  # B16


def test_experts_are_split_among_fewer_replicas_and_context_ranks_count_as_replicas():
    alone = stage_held(MIXED, Layout(), 0)
    for zero, parts in ((0, (0, 0, 0)), (1, (0, 0, 1)), (2, (0, 1, 1)), (3, (1, 1, 1))):
        memory = stage_memory(MIXED, Layout(dp=8, cp=2, ep=4, zero=zero, global_batch=8), 64, 0)
        states = memory.weights, memory.gradients, memory.optimiser
        for part, each, split in zip(states, (2, 4, 12), parts, strict=True):
            shared = alone.shared / (16 if split else 1)
            experts = alone.experts / 4 / (16 / 4 if split else 1)
            assert part == pytest.approx(each * (shared + experts))


def test_the_ends_keep_the_embedding_s_mask_and_the_logits():
    layout = Layout(tp=2, pp=4, micro_batch=3, global_batch=24)
    rows, h, V = 64 * 3, SMALL.hidden, SMALL.vocab
    first, inner, last = (end_activations(SMALL, layout, 64, stage) for stage in (0, 1, 3))
    assert (first, inner, last) == pytest.approx((4 * rows * h, 0, rows * (4 * h + 4 * V / 2)))
    split = replace(layout, sequence_parallel=1, cp=2)
    assert end_activations(SMALL, split, 64, [0, 3]) == pytest.approx([rows * h, rows / 2 * (2 * h + 2 * V)])
    assert end_activations(replace(SMALL, dropout=0), layout, 64, 0) == 0


def test_recomputation_and_gathered_weights_need_room_of_their_own():
    none, selective, full = (Layout(flash=0, recompute=mode) for mode in (NONE, SELECTIVE, FULL))
    working = [stage_memory(SMALL, layout, 64, 0).working for layout in (none, selective, full)]
    kept = [layer_activations(SMALL, layout, 64) for layout in (none, selective)]
    assert working == pytest.approx([0, kept[0] - kept[1], kept[0]])
    one = layer_held(SMALL, Layout())
    gathered = stage_memory(SMALL, Layout(zero=3), 64, 0).working
    assert gathered == pytest.approx(2 * 2 * (one.shared + one.experts))
    assert stage_memory(SMALL, Layout(zero=2), 64, 0).working == 0
    one = layer_held(MIXED, Layout(ep=2))
    gathered = stage_memory(MIXED, Layout(ep=2, zero=3, dp=2, global_batch=2), 64, 0).working
    assert gathered == pytest.approx(4 * (one.shared + one.experts))


@given(layouts, st.sampled_from([SMALL, MIXED]), st.sampled_from([NONE, FULL]), st.integers(0, 3))
def test_the_fullest_rank_is_the_fullest_of_all_stages(layout, model, recompute, zero):
    layout = replace(layout, recompute=recompute, zero=zero)
    if not possible(model, layout, 24, layout.ranks):
        return
    totals = stage_memory(model, layout, 24, np.arange(layout.pp)).total
    assert peak_memory(model, layout, 24) == pytest.approx(np.max(totals))


@pytest.mark.parametrize(
    "model, fullest", [(SMALL, 0), (replace(SMALL, layers=10), 1), (replace(SMALL, vocab=10**6), 3)]
)
def test_the_fullest_stage_may_be_the_first_the_second_or_the_last(model, fullest):
    layout = Layout(pp=4, global_batch=4, micro_batch=1)
    totals = stage_memory(model, layout, 4096, np.arange(4)).total
    assert np.argmax(totals) == fullest
    assert peak_memory(model, layout, 4096) == totals[fullest]


def test_memory_is_the_sum_of_its_named_parts():
    layout = Layout(tp=2, pp=3, dp=4, micro_batch=2, global_batch=48, zero=1, recompute=SELECTIVE, flash=0)
    memory = stage_memory(SMALL, layout, 64, 0)
    parts = memory.weights + memory.gradients + memory.optimiser + memory.activations + memory.ends + memory.working
    assert memory.total == pytest.approx(parts)
    assert memory.activations == pytest.approx(3 * 4 * layer_activations(SMALL, layout, 64))
    held = stage_held(SMALL, layout, 0)
    assert memory.states == pytest.approx((2 + 4 + 12 / 4) * held.shared)


def test_memory_broadcasts_over_layouts():
    grid = Layout(tp=[[1], [2]], pp=[1, 2, 3], dp=2, global_batch=12, zero=1)
    together = peak_memory(SMALL, grid, 64)
    assert together.shape == (2, 3)
    assert together.ravel() == pytest.approx([peak_memory(SMALL, layout_at(grid, i), 64) for i in range(6)])


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


def test_b19_micro_batches_of_a_ramp_of_the_batch_are_whole_and_their_bubbles_known():
    m = microbatches_per_step([2048, 784, 784], [2, 2, 1], 8)
    assert list(m) == [128, 49, 98]
    assert bubble_of_total(12, m) == pytest.approx([11 / 139, 11 / 60, 11 / 109])
    with pytest.raises(ValueError, match=r"global_batch / \(microbatch · dp\) must be a whole number ≥ 1, got 12.25"):
        microbatches_per_step(196, 2, 8)


def test_held_activations_and_messages_at_their_edges():
    assert list(one_f_one_b_held(4, [2, 9], [0, 1])) == [2, 3]
    assert one_f_one_b_held(4, 9) == 4
    assert interleaved_held(8, 24, [1, 3]) == pytest.approx([15, 8 + 7 / 3])
    assert list(one_f_one_b_hops([1, 8, 8], [5, 24, 25])) == [0, 54, 56]
    with pytest.raises(ValueError, match="stages − stage must be a whole number ≥ 1, got 0"):
        one_f_one_b_held(4, 9, 4)
    with pytest.raises(ValueError, match="microbatches / stages must be a whole number ≥ 1"):
        interleaved_held(8, 20, 2)


def test_a_message_costs_zb_h1_four_hops_a_stage_as_long_as_the_weights_cover_two():
    assert zero_bubble_time(8, 1.0, 2.0, 1.0, 0.5) == pytest.approx(7 * (1 + 2))
    with pytest.raises(ValueError, match="W − 2·hop must be a finite number ≥ 0"):
        zero_bubble_time(8, 1.0, 2.0, 1.0, 0.51)


def test_the_messages_that_1f1b_waits_for_are_those_of_the_played_schedule():
    small = [(stages, m) for stages in range(1, 7) for m in range(stages, 3 * stages + 2)]
    for stages, microbatches in [*small, (6, 400), (32, 33)]:
        schedule = one_f_one_b(stages, microbatches)
        free, paid = (play(schedule, 1.0, 2.0, hop=hop).makespan for hop in (0.0, 0.125))
        assert (paid - free) / 0.125 == one_f_one_b_hops(stages, microbatches)


# Expert parallel


@pytest.mark.parametrize("experts, groups, topk", [(6, 3, 1), (6, 3, 2), (6, 2, 5), (8, 8, 3), (8, 1, 3), (6, 3, 6)])
def test_the_mean_number_of_groups_is_that_over_all_sets_of_experts(experts, groups, topk):
    every = np.array(list(combinations(range(experts), topk)))
    assert mean_groups(experts, groups, topk) == pytest.approx(distinct(every, experts, groups).mean())


def test_the_mean_number_of_groups_broadcasts_and_is_refused_where_it_has_no_meaning():
    table = mean_groups(64, np.array([[2], [8]]), np.array([1, 4, 8]))
    assert table.shape == (2, 3)
    assert table[1, 2] == pytest.approx(mean_groups(64, 8, 8))
    with pytest.raises(ValueError, match="experts / groups must be a whole number"):
        mean_groups(64, 7, 2)
    with pytest.raises(ValueError, match="experts − topk must be a finite number ≥ 0, got -1"):
        mean_groups(64, 8, 65)


def test_capacity_is_rounded_up():
    assert list(expert_capacity(512, 2, 16, [1.0, 1.25, 1.01])) == [64, 80, 65]


def test_sent_directly_a_token_crosses_for_each_choice():
    nodes, gpus, experts, topk, count = 4, 2, 16, 3, 4000
    choice = top_k(scores(count, experts, np.random.default_rng(0)), topk)
    to = choice // 2  # two experts a rank; the sender is rank 0
    assert direct_nic_bytes(count, topk, nodes) == pytest.approx(np.sum(to // gpus != 0), rel=0.02)
    assert direct_nvlink_bytes(count, topk, nodes, gpus) == pytest.approx(np.sum(to == 1), rel=0.06)
    assert direct_nic_bytes(8.0, 3, 4) == 18
    assert direct_nvlink_bytes(8.0, 3, 4, 3) == 4


def test_what_a_rank_passes_on_is_what_is_not_for_its_own_place():
    assert expert_nvlink_bytes(8.0, 3, 4) == 18
    assert expert_nic_bytes(8.0, 3, 4) == 18
    assert list(expert_nvlink_bytes(8.0, [1, 2], 1)) == [0, 0]


def test_a11_tokens_that_stay_are_counted_by_the_benchmark_and_not_carried_by_the_nic():
    printed = 43.24
    assert expert_nic_bytes(printed, 1, 2) == pytest.approx(21.62)
    assert expert_nic_bytes(58.0, 1, 4) == pytest.approx(58 * 3 / 4)
    # DeepEP's own log prints 141.14 GB/s of NVLink beside it: tokens to ranks against tokens to nodes
    assert printed * mean_groups(256, 16, 8) / mean_groups(256, 2, 8) == pytest.approx(141.14, rel=0.005)
