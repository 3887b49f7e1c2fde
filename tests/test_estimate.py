"""The estimate of a step: each part against an independent count, a limit, or the laws of the other modules."""

from dataclasses import fields, replace

import numpy as np
import pytest

from distlib.alphabeta import Link, chunked_time
from distlib.collectives import flat_ring_all_reduce, ring_all_gather, ring_all_reduce
from distlib.estimate import (
    FSDP_A100,
    FSDP_H100,
    MEGATRON_A100,
    NEMO_H100,
    SOURCES,
    Estimate,
    Stack,
    estimate,
    parts,
)
from distlib.hardware import Cluster, node
from distlib.parallel import Layout, bubble_over_ideal, layer_held, stage_held, stage_layers
from distlib.transformer import (
    FULL,
    NONE,
    SELECTIVE,
    Transformer,
    attention_flops,
    causal_attention_flops,
    hardware_flops,
    layer_flops,
    logit_flops,
    recomputed_flops,
)

GPT = Transformer(layers=48, hidden=6144, vocab=51200, heads=64)
LLAMA = Transformer(layers=80, hidden=8192, vocab=128256, heads=64, kv_heads=8, ffn=28672, gated=1, biases=0, tied=0,
                    dropout=0)  # fmt: skip
SPARSE = Transformer(layers=32, hidden=4096, vocab=32000, heads=32, kv_heads=8, ffn=14336, gated=1, biases=0, tied=0,
                     dropout=0, experts=8, top_k=2)  # fmt: skip
SHARED = replace(SPARSE, experts=16, top_k=3, shared=2, expert_ffn=2048, dense_layers=4)
TWO = replace(SPARSE, experts=2, expert_ffn=4096)
SEQ = 2048
FREE = 1e40  # a rate that costs nothing
IDEAL = Stack(1, 1, 1, 1, backward=1, contention=0, accumulation=0, loss=0, update=0)
RATES = ("product", "memory", "attention", "fabric", "backward")
COSTS = ("contention", "accumulation", "loss", "update", "gradient")


def machine(nodes=1, name="DGX A100", peak=None, memory=None, inside=None, alpha=None, outside=None, start=None):
    """That node's cluster with some rates replaced."""
    base = node(name)
    device, port = base.accelerator, base.nic
    link = replace(device.scale_up, measured=inside or device.scale_up.measured,
                   alpha=device.scale_up.alpha if alpha is None else alpha)  # fmt: skip
    port = replace(port, bandwidth=outside or port.bandwidth, alpha=port.alpha if start is None else start)
    device = replace(device, peak=peak or device.peak, scale_up=link,
                     memory_bandwidth=memory or device.memory_bandwidth)  # fmt: skip
    return Cluster(node=replace(base, accelerator=device, nic=port), nodes=nodes, rails=8, fabric=port)


#: Only arithmetic takes time; only the memory; only the links.
ARITHMETIC = machine(memory=FREE, inside=FREE, outside=FREE, alpha=0, start=0)
MEMORY = machine(peak=FREE, inside=FREE, outside=FREE, alpha=0, start=0)
LINKS = machine(peak=FREE, memory=FREE, alpha=0, start=0)
PEAK, BYTES = 312e12, 2.039e12
INSIDE, OUTSIDE = 230e9, 25e9


def messages(model, layout, seq):
    return 2 * layout.micro_batch * seq / layout.cp * model.hidden


# Arithmetic


@pytest.mark.parametrize("recompute", [NONE, SELECTIVE, FULL])
@pytest.mark.parametrize("model", [GPT, replace(LLAMA, dropout=1), SPARSE, SHARED, TWO])
def test_on_a_machine_that_only_computes_the_step_is_the_hardware_flops_over_the_peak(model, recompute):
    layout = Layout(tp=2, dp=4, micro_batch=2, global_batch=64, recompute=recompute, flash=0)
    tokens = 64 * SEQ
    found = parts(model, ARITHMETIC, layout, SEQ, IDEAL)
    router = 6 * model.expert_layers * model.hidden * (model.experts > 1) * model.experts * tokens  # left out, < 0.1 %
    rate = layout.ranks * PEAK
    assert found.total == pytest.approx((hardware_flops(model, SEQ, tokens, recompute) - router) / rate, rel=3e-4)
    assert found.vocabulary == pytest.approx(logit_flops(model, tokens) / rate)
    assert found.attention == pytest.approx(attention_flops(model.layers, model.hidden, SEQ, tokens) / rate)
    assert found.recomputation == pytest.approx(recomputed_flops(model, SEQ, tokens, recompute) / rate, rel=5e-4)
    assert found.exposed == pytest.approx(0, abs=1e-12 * found.total)


def test_flash_attention_does_the_causal_half_of_two_products_forward_and_of_five_backward():
    layout = Layout(tp=2, cp=2, dp=2, micro_batch=2, global_batch=64)
    stack = replace(IDEAL, product=0.5, attention=0.4, backward=0.8)
    found = parts(LLAMA, ARITHMETIC, layout, SEQ, stack)
    forward = causal_attention_flops(LLAMA.layers, LLAMA.hidden, SEQ, 64 * SEQ) / 3 / (8 * PEAK * 0.4)
    assert found.attention == pytest.approx(forward * (1 + 2.5 / 0.8))
    again = parts(LLAMA, ARITHMETIC, replace(layout, recompute=SELECTIVE), SEQ, stack)
    assert again.recomputation == pytest.approx(forward)
    dense = layer_flops(LLAMA, SEQ, 64 * SEQ) - attention_flops(LLAMA.layers, LLAMA.hidden, SEQ, 64 * SEQ)
    assert found.products == pytest.approx(dense / (8 * PEAK * 0.5))


def test_a_checkpoint_that_stops_early_leaves_the_last_product_out():
    layout = Layout(dp=8, micro_batch=2, global_batch=64, recompute=FULL)
    whole, short = (parts(GPT, ARITHMETIC, layout, SEQ, replace(IDEAL, early_stop=x)) for x in (0, 1))
    last = 2 * GPT.layers * GPT.ffn * GPT.hidden * 64 * SEQ / (8 * PEAK)
    assert whole.recomputation - short.recomputation == pytest.approx(last)
    assert whole.products == short.products


def test_products_of_few_rows_are_bound_by_memory():
    thin = Transformer(layers=1, hidden=4096, vocab=1, heads=32)
    found = parts(thin, machine(inside=FREE, outside=FREE, alpha=0, start=0), Layout(dp=8, global_batch=8), 1, IDEAL)
    shapes = [(1, 3 * 4096, 4096), (1, 4096, 4096), (1, 4 * 4096, 4096), (1, 4096, 4 * 4096)]
    bytes = sum(2 * (m * k + k * n + m * n) for m, n, k in shapes)
    assert found.products == pytest.approx(3 * bytes / BYTES)


def test_experts_read_the_weights_that_a_rank_holds_for_the_tokens_that_reach_it():
    few = Layout(tp=2, dp=4, ep=4, micro_batch=1, global_batch=4)
    model = replace(SHARED, layers=1, dense_layers=0, vocab=1)
    found = parts(model, MEMORY, few, 8, replace(IDEAL, accumulation=8))
    h, inner, tokens = 4096, 2048 / 2, 8

    def moved(rows, inside, count=1):
        return 2 * count * (2 * (rows * (2 * inside + h) + 2 * inside * h) + 2 * (rows * (h + inside) + inside * h)) / 2

    attend = 2 * (tokens * (h * 1.5 / 2 + h) + h * 1.5 / 2 * h) + 2 * (tokens * (h / 2 + h) + h * h / 2)
    bytes = attend + moved(tokens * 3 * 4 / 16, inner, 4) + moved(tokens, 2 * inner)
    held = layer_held(model, few)
    assert found.products == pytest.approx((3 * bytes + 8 * (held.shared + held.experts)) / BYTES)


# Bytes


def elementwise_bytes(h, ffn, dropout, gated, biases, qkv, expanded, tokens, split, tp):
    """Operation by operation: numbers read and written at 2 bytes, dropout masks at 1."""
    whole = 2 * (2 + 2)  # two normalisations: read, write
    whole += 2 * (2 + 2 + 2 + dropout)  # two sums of the residual: read, read, write, mask
    whole += 2 * (2 + 2 + 2 + 2)  # normalisations backward: gradient and input, for input and weight; write
    whole += 2 * (2 + 2 + 2)  # gradients meet at the residual: read, read, write
    whole += 2 * dropout * (2 + 1 + 2)  # dropout backward: gradient, mask, write
    whole += 2 * biases * 2  # gradient of two biases of width h: read
    part = ffn * (2 * (1 + gated) + 2)  # function: inputs, output
    part += ffn * (2 + 2 * (1 + gated) + 2 * (1 + gated))  # backward: gradient, inputs, their gradients
    part += 2 * biases * (qkv + expanded)  # gradients of biases: read
    return tokens * (whole * h / split + part / tp)


@pytest.mark.parametrize("model", [GPT, LLAMA, replace(GPT, gated=1, biases=0), replace(LLAMA, biases=1)])
@pytest.mark.parametrize("split", [0, 1])
def test_element_wise_work_moves_the_bytes_of_its_operations(model, split):
    layout = Layout(tp=4, dp=2, micro_batch=2, global_batch=64, sequence_parallel=split)
    found = parts(model, MEMORY, layout, SEQ, replace(IDEAL, memory=0.5))
    bytes = elementwise_bytes(model.hidden, model.ffn, model.dropout, model.gated, model.biases,
                              model.hidden * (1 + 2 * model.kv_share), model.ffn * (1 + model.gated),
                              64 * SEQ / 2, 4 if split else 1, 4)  # fmt: skip
    assert found.elementwise == pytest.approx(model.layers * bytes / (0.5 * BYTES))


@pytest.mark.parametrize("dropout", [0, 1])
def test_a_stored_score_matrix_is_read_and_written_by_softmax_dropout_and_products(dropout):
    model, layout = replace(GPT, dropout=dropout), Layout(tp=4, dp=2, micro_batch=2, global_batch=64, flash=0)
    found = parts(model, MEMORY, layout, SEQ, IDEAL)
    scores, depth = 64 / 2 * 64 / 4 * SEQ * SEQ, 96
    forward = (2 + 2) + dropout * (2 + 2 + 1) + 2 * (2 * 2 * depth / SEQ + 2)
    backward = (2 + 2 + 2) + dropout * (2 + 1 + 2) + 4 * (2 * 2 * depth / SEQ + 2)
    assert found.attention == pytest.approx(48 * scores * (forward + backward) / BYTES)
    copies = 2 * (2 + 2) * 64 / 2 * SEQ * 6144 / 4
    flash = parts(model, MEMORY, replace(layout, flash=1), SEQ, IDEAL)
    assert found.elementwise - flash.elementwise == pytest.approx(48 * copies / BYTES)


def test_gradients_are_added_each_micro_batch_and_weights_updated_each_step():
    layout = Layout(tp=2, pp=4, dp=1, micro_batch=2, global_batch=64)
    base = parts(GPT, MEMORY, layout, SEQ, IDEAL)
    more = parts(GPT, MEMORY, layout, SEQ, replace(IDEAL, accumulation=8, update=58, loss=52))
    one, held = layer_held(GPT, layout), stage_held(GPT, layout, 0)
    assert more.products - base.products == pytest.approx(32 * 12 * 8 * one.shared / BYTES)
    assert more.optimiser == pytest.approx(58 * held.shared / BYTES)
    words = GPT.vocab / 2
    gained = 8 * words * GPT.hidden + 52 * 2 * SEQ * words
    assert more.vocabulary - base.vocabulary == pytest.approx(32 * gained / BYTES)


def test_the_optimiser_is_split_among_the_replicas_from_zero_1_on():
    layout = Layout(dp=8, micro_batch=2, global_batch=64)
    whole, split = (parts(GPT, MEMORY, replace(layout, zero=z), SEQ, replace(IDEAL, update=58)) for z in (0, 1))
    assert whole.optimiser == pytest.approx(8 * split.optimiser)


# Communication


def test_tensor_parallel_sends_an_all_reduce_twice_each_pass():
    layout = Layout(tp=8, dp=1, micro_batch=2, global_batch=16)
    one = ring_all_reduce(messages(GPT, layout, SEQ), 8, Link(0, INSIDE))
    found = parts(GPT, LINKS, layout, SEQ, IDEAL)
    assert found.tensor == pytest.approx(8 * 48 * 4 * one)
    assert found.vocabulary == pytest.approx(8 * one)
    assert parts(GPT, LINKS, replace(layout, recompute=FULL), SEQ, IDEAL).tensor == pytest.approx(8 * 48 * 6 * one)
    assert parts(GPT, LINKS, replace(layout, sequence_parallel=1), SEQ, IDEAL).tensor == pytest.approx(8 * 48 * 5 * one)
    assert parts(GPT, LINKS, replace(layout, tp=1, dp=8), SEQ, IDEAL).tensor == 0


def test_context_parallel_ranks_share_tokens_and_with_them_messages_and_products():
    layout = Layout(tp=4, pp=2, dp=1, micro_batch=2, global_batch=16)
    split = replace(layout, cp=2)
    for cluster, names in ((LINKS, "tensor vocabulary"), (ARITHMETIC, "products vocabulary"), (MEMORY, "elementwise")):
        whole, half = (parts(GPT, cluster, x, SEQ, IDEAL) for x in (layout, split))
        for name in names.split():
            assert getattr(half, name) == pytest.approx(getattr(whole, name) / 2), name
    crossing = machine(nodes=2, peak=FREE, memory=FREE, inside=FREE, alpha=0, start=0)
    hop = parts(GPT, crossing, split, SEQ, IDEAL).hops
    assert hop == pytest.approx(8 * 2 * messages(GPT, split, SEQ) / 4 / OUTSIDE)
    assert parts(GPT, crossing, layout, SEQ, IDEAL).hops < 1e-20
    assert parts(GPT, crossing, replace(layout, dp=2), SEQ, IDEAL).hops == pytest.approx(hop)
    many = Layout(tp=4, cp=2, dp=4, micro_batch=2, global_batch=16)
    held = stage_held(GPT, many, 0).shared
    found = parts(GPT, replace(crossing, nodes=4), many, SEQ, IDEAL).data
    assert found == pytest.approx(ring_all_reduce(4 * held, 8, Link(0, 2 * OUTSIDE)))


def test_a_group_that_fills_no_node_still_counts_its_nodes():
    one = replace(GPT, layers=1, vocab=1)
    layout = Layout(dp=12, micro_batch=1, global_batch=12)
    found = parts(one, machine(nodes=2, peak=FREE, memory=FREE, inside=FREE, outside=FREE), layout, SEQ, IDEAL)
    assert found.data == pytest.approx(2 * (2.7e-6 + 10 * 0.47e-6), rel=1e-3)


def test_a_node_holds_whole_ranks_of_a_group():
    layout = Layout(tp=3, dp=4, ep=4, micro_batch=1, global_batch=4)
    cluster = machine(nodes=2, peak=FREE, memory=FREE, inside=FREE, alpha=0, start=0)
    held = stage_held(SPARSE, layout, 0)
    found = parts(SPARSE, cluster, layout, SEQ, IDEAL)
    assert found.data == pytest.approx(ring_all_reduce(4 * held.shared, 4, Link(0, 2 * OUTSIDE)))
    assert found.experts == pytest.approx(32 * 4 * 2 * messages(SPARSE, layout, SEQ) * 2 / 4 / OUTSIDE)


def test_overlap_hides_the_reduction_of_input_gradients_behind_products_and_no_more():
    layout = Layout(tp=8, micro_batch=2, global_batch=16)
    for split, shown in ((0, 2), (1, 3)):  # all-reduces a layer that stay, of 4 and 5
        chosen = replace(layout, sequence_parallel=split)
        plenty = machine(alpha=0, start=0, memory=FREE, peak=1e9)
        some = parts(GPT, plenty, chosen, SEQ, IDEAL), parts(GPT, plenty, replace(chosen, tp_overlap=1), SEQ, IDEAL)
        one = ring_all_reduce(messages(GPT, layout, SEQ), 8, Link(0, INSIDE))
        assert some[0].tensor - some[1].tensor == pytest.approx(8 * 48 * 2 * one)
        assert some[1].tensor == pytest.approx(8 * 48 * shown * one)
        assert some[1].hidden == pytest.approx(8 * 48 * 2 * one)
        none = parts(GPT, LINKS, replace(chosen, tp_overlap=1), SEQ, IDEAL)
        assert none.tensor == pytest.approx(8 * 48 * (4 + split) * one)
        assert none.hidden == pytest.approx(0, abs=1e-9 * none.total)


def test_what_overlap_hides_is_bounded_by_each_product():
    layout = Layout(tp=8, micro_batch=2, global_batch=2, tp_overlap=1)
    one = replace(GPT, layers=1)
    slow = machine(alpha=0, start=0, memory=FREE, peak=PEAK)
    found = parts(one, slow, layout, SEQ, IDEAL)
    reduce = ring_all_reduce(messages(one, layout, SEQ), 8, Link(0, INSIDE))
    attend, expand = (2 * 2 * SEQ * one.hidden * width / 8 / PEAK for width in (3 * one.hidden, one.ffn))
    assert attend < reduce < 2 * expand
    late = (reduce - attend) + max(reduce - expand, 0)
    assert found.tensor == pytest.approx(2 * reduce + late)
    split = parts(one, slow, replace(layout, sequence_parallel=1), SEQ, IDEAL)
    late = sum(2 * max(reduce / 2 - cover, 0) for cover in (attend, expand))
    assert split.tensor == pytest.approx(3 * reduce + late)


def test_contention_is_a_share_of_what_is_hidden():
    layout = Layout(tp=8, dp=4, micro_batch=2, global_batch=64, tp_overlap=1, dp_overlap=1)
    found = parts(GPT, machine(nodes=4), layout, SEQ, replace(MEGATRON_A100, contention=0.3))
    assert found.contention == pytest.approx(0.3 * found.hidden)
    assert found.hidden > 0


def test_a_collective_is_chunked_and_its_start_counts_the_hops_on_each_level():
    inside, outside = Link(7 * 0.47e-6, INSIDE), Link(3 * 2.7e-6 + 4 * 0.47e-6, OUTSIDE)
    one = replace(GPT, layers=1, vocab=1)
    layout = Layout(tp=8, micro_batch=1, global_batch=1)
    busy = machine(peak=FREE, memory=FREE)
    n = messages(one, layout, SEQ)
    assert parts(one, busy, layout, SEQ, IDEAL).tensor == pytest.approx(8 * chunked_time(n * 7 / 8, inside))
    data = Layout(tp=4, dp=8, micro_batch=1, global_batch=8)  # two ranks of a group in each of four nodes
    held = stage_held(one, data, 0).shared
    found = parts(one, machine(nodes=4, peak=FREE, memory=FREE), data, SEQ, IDEAL)
    assert found.data == pytest.approx(2 * chunked_time(4 * held * 7 / 8 / 2, outside))


def test_small_messages_cost_the_hops_and_large_ones_the_bandwidth_of_the_ring():
    for seq, rel in ((1, 0.35), (2**24, 0.02)):
        layout = Layout(tp=8, micro_batch=1, global_batch=1)
        found = parts(replace(GPT, layers=1), machine(peak=FREE, memory=FREE), layout, seq, IDEAL)
        ring = 8 * ring_all_gather(messages(GPT, layout, seq), 8, Link(0.47e-6, INSIDE))
        assert ring < found.tensor
        assert found.tensor == pytest.approx(ring, rel=rel if seq > 1 else 1.2)


def test_a_tensor_group_that_crosses_nodes_takes_the_rings_of_all_its_rails():
    layout = Layout(tp=16, micro_batch=2, global_batch=16)
    wide = replace(GPT, layers=1)
    crossing = machine(nodes=2, peak=FREE, memory=FREE, alpha=0, start=0)
    found = parts(wide, crossing, layout, SEQ, IDEAL)
    one = flat_ring_all_reduce(messages(wide, layout, SEQ), 16, 8, Link(0, INSIDE), Link(0, OUTSIDE), 8)
    assert found.tensor == pytest.approx(8 * 4 * one)
    assert found.tensor > 8 * 4 * ring_all_reduce(messages(wide, layout, SEQ), 16, Link(0, INSIDE))


def test_data_parallel_ranks_reduce_gradients_once_over_their_rails():
    layout = Layout(tp=8, dp=4, micro_batch=2, global_batch=64)
    held = stage_held(GPT, layout, 0).shared
    slow = machine(nodes=4, peak=FREE, memory=FREE, alpha=0, start=0)
    stack = replace(IDEAL, fabric=0.6)
    own = Link(0, 0.6 * OUTSIDE)
    for gradient in (2, 4):
        found = parts(GPT, slow, layout, SEQ, replace(stack, gradient=gradient)).data
        assert found == pytest.approx(ring_all_reduce(gradient * held, 4, own))
    split = parts(GPT, slow, replace(layout, zero=1), SEQ, stack).data
    assert split == pytest.approx(ring_all_gather(4 * held, 4, own) + ring_all_gather(2 * held, 4, own))
    each = parts(GPT, slow, replace(layout, zero=2), SEQ, stack).data
    assert each == pytest.approx(8 * ring_all_gather(4 * held, 4, own) + ring_all_gather(2 * held, 4, own))
    eight = Layout(tp=1, dp=32, micro_batch=2, global_batch=64)
    rails = parts(GPT, slow, eight, SEQ, stack).data
    assert rails == pytest.approx(ring_all_reduce(4 * stage_held(GPT, eight, 0).shared, 32, Link(0, 8 * 0.6 * OUTSIDE)))
    near = parts(GPT, slow, replace(eight, dp=8), SEQ, stack).data
    assert near == pytest.approx(ring_all_reduce(4 * stage_held(GPT, eight, 0).shared, 8, Link(0, INSIDE)))


def test_exposed_data_parallel_time_lies_between_what_cannot_hide_and_all_of_it():
    layout = Layout(tp=8, pp=2, dp=4, micro_batch=1, global_batch=64)
    for peak in (1e11, 1e13, 1e14, 1e15, FREE):
        for zero in (0, 1):
            cluster = machine(nodes=8, peak=peak, memory=FREE, alpha=0, start=0)
            bare, over = (parts(GPT, cluster, replace(layout, zero=zero, dp_overlap=x), SEQ, IDEAL) for x in (0, 1))
            words = GPT.vocab * GPT.hidden / 8
            last = ring_all_gather((8 if zero == 0 else 6) * words, 4, Link(0, OUTSIDE))
            layers = stage_layers(GPT.layers, layout, 0)
            micro = layers * (layer_flops(GPT, SEQ, SEQ) / GPT.layers / 8 / peak)  # flash attention: less than this
            assert over.data >= max(bare.data - micro, last) - 1e-12
            assert over.data <= bare.data * (1 + 1e-12)
            assert over.data + over.hidden == pytest.approx(bare.data + bare.hidden)
            if peak == 1e11:
                assert over.data == pytest.approx(last)
    assert over.data == pytest.approx(bare.data)


def test_gradients_hide_behind_one_backward_pass_and_weights_also_behind_a_forward_pass():
    cluster = machine(nodes=4, peak=2e14, memory=FREE, alpha=0, start=0)
    model = replace(GPT, heads=64)
    layout = Layout(tp=8, dp=4, micro_batch=1, global_batch=64, dp_overlap=1)
    tensor = layer_flops(model, SEQ, SEQ) - attention_flops(48, model.hidden, SEQ, SEQ)
    causal = causal_attention_flops(48, model.hidden, SEQ, SEQ)
    forward = (tensor / 3 + causal / 3) / 8 / 2e14
    backward = (2 * tensor / 3 + 2.5 / 3 * causal) / 8 / 2e14
    held, own = stage_held(model, layout, 0).shared, Link(0, OUTSIDE / 4)
    stack = replace(IDEAL, fabric=0.25)
    plain = parts(model, cluster, layout, SEQ, stack)
    assert plain.data == pytest.approx(ring_all_reduce(4 * held, 4, own) - backward)
    split = parts(model, cluster, replace(layout, zero=1), SEQ, stack)
    assert split.data == pytest.approx(ring_all_gather(6 * held, 4, own) - backward - forward)
    many = parts(model, cluster, replace(layout, zero=2), SEQ, stack)
    assert many.data == pytest.approx(ring_all_gather((16 * 4 + 2) * held, 4, own) - 16 * backward - forward)


def test_work_hides_one_communication_at_a_time():
    cluster = machine(nodes=4, peak=2e14, memory=FREE, alpha=0, start=0)
    layout = Layout(tp=8, dp=4, micro_batch=1, global_batch=64, dp_overlap=1)
    stack = replace(IDEAL, fabric=0.25)
    alone = parts(GPT, cluster, layout, SEQ, stack)
    both = parts(GPT, cluster, replace(layout, tp_overlap=1), SEQ, stack)
    hidden = (alone.tensor - both.tensor) / 16
    assert hidden > 0
    assert both.data - alone.data == pytest.approx(hidden)


def test_zero_3_gathers_weights_twice_and_reduces_gradients_each_micro_batch():
    layout = Layout(dp=16, micro_batch=2, global_batch=64, zero=3)
    cluster = machine(nodes=2, peak=FREE, memory=FREE, alpha=0, start=0)
    held, rails = stage_held(GPT, layout, 0).shared, Link(0, 8 * OUTSIDE)
    each = ring_all_gather((2 + 2 + 4) * held, 16, rails)
    for overlap in (0, 1):
        found = parts(GPT, cluster, replace(layout, dp_overlap=overlap), SEQ, IDEAL)
        assert found.data == pytest.approx(2 * each)
    slow = machine(nodes=2, peak=1e12, memory=FREE, alpha=0, start=0)
    hidden = parts(GPT, slow, replace(layout, dp_overlap=1), SEQ, IDEAL)
    assert hidden.data == 0
    assert hidden.hidden == pytest.approx(2 * each)


def test_zero_3_hides_a_layer_behind_its_own_passes():
    layout = Layout(dp=16, micro_batch=1, global_batch=16, zero=3, dp_overlap=1)
    cluster = machine(nodes=2, peak=PEAK, memory=FREE, alpha=0, start=0)
    stack = replace(IDEAL, fabric=0.25)
    one = stage_held(GPT, layout, 0).shared / 48
    rails = Link(0, 2 * OUTSIDE)
    dense = (layer_flops(GPT, SEQ, SEQ) - attention_flops(48, GPT.hidden, SEQ, SEQ)) / 48 / PEAK
    causal = causal_attention_flops(1, GPT.hidden, SEQ, SEQ) / PEAK
    fetch, drop = ring_all_gather(2 * one, 16, rails), ring_all_gather(4 * one, 16, rails)
    late = max(fetch - (dense + causal) / 3, 0) + max(fetch + drop - (2 * dense + 2.5 * causal) / 3, 0)
    assert 0 < late < 2 * fetch + drop
    assert parts(GPT, cluster, layout, SEQ, stack).data == pytest.approx(48 * late)


def test_zero_3_gathers_experts_among_their_replicas():
    layout = Layout(tp=2, dp=16, ep=4, micro_batch=1, global_batch=16, zero=3)
    cluster = machine(nodes=4, peak=FREE, memory=FREE, alpha=0, start=0)
    held = stage_held(SPARSE, layout, 0)
    found = parts(SPARSE, cluster, layout, SEQ, IDEAL).data
    assert found == pytest.approx(ring_all_gather(8 * held.shared, 16, Link(0, 4 * OUTSIDE))
                                  + ring_all_gather(8 * held.experts, 4, Link(0, OUTSIDE)))  # fmt: skip
    deep = replace(layout, cp=2)
    held = stage_held(SPARSE, deep, 0)
    found = parts(SPARSE, replace(cluster, nodes=8), deep, SEQ, IDEAL).data
    assert found == pytest.approx(ring_all_gather(8 * held.shared, 32, Link(0, 4 * OUTSIDE))
                                  + ring_all_gather(8 * held.experts, 8, Link(0, OUTSIDE)))  # fmt: skip


def test_context_parallel_sends_keys_and_values_round_a_ring_behind_attention():
    layout = Layout(cp=4, dp=2, micro_batch=1, global_batch=8)
    found = parts(LLAMA, LINKS, layout, 8192, IDEAL)
    block = 2 * 2 * 8192 / 4 * 8192 / 8  # bytes of keys and values of one rank's part
    assert found.context == pytest.approx(4 * 80 * 3 * (1 + 2) * block / INSIDE)
    crossing = replace(layout, tp=4)
    found = parts(LLAMA, machine(nodes=4, peak=FREE, memory=FREE, alpha=0, start=0), crossing, 8192, IDEAL)
    assert found.context == pytest.approx(4 * 80 * 3 * (1 + 2) * block / 4 / OUTSIDE)
    full = parts(LLAMA, LINKS, replace(layout, recompute=FULL), 8192, IDEAL)
    assert full.context == pytest.approx(4 * 80 * 3 * (1 + 1 + 2) * block / INSIDE)
    hidden = parts(LLAMA, machine(peak=1e12, memory=FREE), layout, 8192, IDEAL)
    assert hidden.context == 0
    late = parts(LLAMA, machine(peak=FREE, memory=FREE, inside=FREE, alpha=1e-5), layout, 8192, IDEAL)
    assert late.context == pytest.approx(4 * 80 * 2 * 3e-5)


def test_a_ring_hides_behind_the_attention_that_is_left_while_it_runs():
    layout = Layout(cp=2, dp=4, micro_batch=1, global_batch=4)
    cluster = machine(peak=3e14, memory=FREE, inside=2e9, alpha=0)
    found = parts(LLAMA, cluster, layout, 8192, IDEAL)
    block = 2 * 2 * 8192 / 2 * 8192 / 8
    scores = causal_attention_flops(1, 8192, 8192, 8192 / 2) / 3 / 3e14
    late = max(block / 2e9 - scores / 2, 0) + max(2 * block / 2e9 - 2.5 * scores / 2, 0)
    assert 0 < late < 3 * block / 2e9
    assert found.context == pytest.approx(80 * late)


def test_experts_cost_two_exchanges_each_pass_on_the_level_of_their_group():
    buffer = messages(SPARSE, Layout(micro_batch=2), SEQ) * 2
    near = Layout(dp=8, ep=8, micro_batch=2, global_batch=64)
    found = parts(SPARSE, LINKS, near, SEQ, IDEAL)
    assert found.experts == pytest.approx(4 * 32 * 4 * buffer * 7 / 8 / INSIDE)
    assert parts(SPARSE, LINKS, replace(near, recompute=FULL), SEQ, IDEAL).experts == pytest.approx(1.5 * found.experts)
    far = Layout(tp=4, dp=8, ep=8, micro_batch=2, global_batch=64, sequence_parallel=1)
    crossing = machine(nodes=4, peak=FREE, memory=FREE, alpha=0, start=0)
    assert parts(SPARSE, crossing, far, SEQ, IDEAL).experts == pytest.approx(
        4 * 32 * 4 * buffer / 4 * 6 / 8 / OUTSIDE
    )
    start = parts(SPARSE, machine(nodes=4, peak=FREE, memory=FREE, inside=FREE, outside=FREE), far, SEQ, IDEAL)
    assert start.experts == pytest.approx(4 * 32 * 4 * (1 * 0.47e-6 + 6 * 2.7e-6))
    assert parts(GPT, LINKS, replace(near, ep=1), SEQ, IDEAL).experts == 0
    apart = Layout(tp=8, cp=2, dp=4, ep=4, micro_batch=2, global_batch=64)
    cluster = machine(nodes=8, peak=FREE, memory=FREE, inside=FREE, outside=FREE)
    assert parts(SPARSE, cluster, apart, SEQ, IDEAL).experts == pytest.approx(8 * 32 * 4 * 3 * 2.7e-6)
    dense = replace(SHARED, experts=8, top_k=2, shared=0, expert_ffn=14336, dense_layers=8)
    assert parts(dense, LINKS, near, SEQ, IDEAL).experts == pytest.approx(found.experts * 24 / 32)
    pair = Layout(tp=2, cp=2, dp=4, ep=4, micro_batch=2, global_batch=64)
    split = parts(SPARSE, replace(LINKS, nodes=2), pair, SEQ, IDEAL).experts
    assert split == pytest.approx(8 * 32 * 4 * buffer / 2 * 2 / 4 / OUTSIDE)


@pytest.mark.parametrize("experts", [2, 8])
def test_experts_gradients_are_reduced_among_their_own_replicas(experts):
    model, layout = replace(SPARSE, experts=experts), Layout(dp=32, ep=experts, micro_batch=1, global_batch=32)
    cluster = machine(nodes=4, peak=FREE, memory=FREE, alpha=0, start=0)
    held = stage_held(model, layout, 0)
    found = parts(model, cluster, layout, SEQ, IDEAL).data
    rails = Link(0, 8 // experts * OUTSIDE)
    assert found == pytest.approx(ring_all_reduce(4 * held.shared, 32, Link(0, 8 * OUTSIDE))
                                  + ring_all_reduce(4 * held.experts, 32 // experts, rails))  # fmt: skip


def test_the_function_of_the_experts_works_on_the_tokens_that_pass_them():
    layout = Layout(tp=2, dp=8, ep=8, micro_batch=1, global_batch=8)
    found = parts(SHARED, MEMORY, layout, SEQ, IDEAL).elementwise
    width = (4 * 14336 + 28 * 5 * 2048) / 32
    bytes = elementwise_bytes(4096, width, 0, 1, 0, 0, 0, SEQ, 1, 2) + 28 / 32 * 2 * 8 * SEQ * 3 * 4096 / 2
    assert found == pytest.approx(32 * bytes / BYTES)


def test_tokens_sent_to_experts_are_moved_in_memory_too():
    layout = Layout(dp=8, ep=8, micro_batch=1, global_batch=8)
    dense = replace(SPARSE, experts=1, top_k=1, ffn=2 * 14336)
    gained = [parts(m, MEMORY, layout if m is SPARSE else replace(layout, ep=1), SEQ, IDEAL).elementwise
              for m in (SPARSE, dense)]  # fmt: skip
    assert gained[0] - gained[1] == pytest.approx(32 * 2 * 8 * SEQ * 2 * 4096 / BYTES)


# The pipeline


def test_without_ends_and_hops_the_bubble_is_its_law():
    model = replace(GPT, vocab=1)
    for pp, v, m in ((1, 1, 8), (2, 1, 8), (4, 1, 8), (4, 3, 8), (8, 6, 16)):
        found = parts(model, ARITHMETIC, Layout(pp=pp, virtual=v, global_batch=m), SEQ, IDEAL)
        ideal = found.products + found.attention
        assert found.bubble == pytest.approx(ideal * bubble_over_ideal(pp, m, v), rel=1e-6)


@pytest.mark.parametrize("model", [LLAMA, replace(SPARSE, experts=2, top_k=1)])
def test_the_bubble_repeats_all_that_a_layer_takes(model):
    layout = Layout(tp=2, cp=2, pp=4, dp=2, ep=1 if model is LLAMA else 2, virtual=4, micro_batch=1, global_batch=32,
                    recompute=FULL, tp_overlap=1)  # fmt: skip
    cluster = machine(nodes=4, inside=5e9, outside=FREE, start=0)
    found = parts(replace(model, vocab=1), cluster, layout, 8192, replace(NEMO_H100, update=0, loss=0))
    layers = found.total - found.bubble - found.vocabulary - found.hops - found.data
    assert min(found.contention, found.tensor, found.context, found.recomputation) > 0
    assert (found.experts > 0) == (model is not LLAMA)
    hops = found.hops + (found.hidden - found.contention / NEMO_H100.contention)
    assert found.bubble == pytest.approx(3 / 4 / 16 * (layers + hops))


def test_activations_travel_twice_a_chunk_and_micro_batch_and_fill_the_pipeline():
    layout = Layout(tp=8, pp=4, virtual=3, global_batch=8)
    cluster = machine(nodes=4, peak=FREE, memory=FREE, inside=FREE, alpha=0)
    found = parts(GPT, cluster, layout, SEQ, IDEAL)
    hop = 2.7e-6 + messages(GPT, layout, SEQ) / 8 / OUTSIDE
    assert found.hops == pytest.approx(8 * 2 * 3 * hop)
    assert found.bubble == pytest.approx(3 / 3 * 2 * 3 * hop)
    single = replace(layout, virtual=1)
    assert parts(GPT, cluster, single, SEQ, replace(IDEAL, hop_overlap=1)).hops == pytest.approx(8 * 2 * hop)
    hidden = parts(GPT, cluster, layout, SEQ, replace(IDEAL, hop_overlap=1))
    assert hidden.hops == parts(GPT, cluster, replace(layout, virtual=2), SEQ, replace(IDEAL, hop_overlap=1)).hops == 0
    assert hidden.hidden == pytest.approx(found.hops)
    assert hidden.bubble == found.bubble
    assert parts(GPT, cluster, replace(layout, pp=1, virtual=1, dp=4), SEQ, IDEAL).hops == 0


def test_a_hop_ends_with_a_gathering_unless_the_sequence_is_split():
    layout = Layout(tp=4, pp=2, global_batch=8)
    whole, split = (parts(GPT, LINKS, replace(layout, sequence_parallel=x), SEQ, IDEAL) for x in (0, 1))
    n = messages(GPT, layout, SEQ)
    assert whole.hops - split.hops == pytest.approx(8 * 2 * n * 3 / 4 / INSIDE)
    assert split.hops == pytest.approx(8 * 2 * n / 4 / INSIDE)


def test_the_output_head_slows_the_last_stage_unless_layers_made_room_for_it():
    even = parts(replace(GPT, vocab=512000), ARITHMETIC, Layout(tp=8, pp=4, global_batch=8), SEQ, IDEAL)
    assert even.vocabulary == pytest.approx(logit_flops(replace(GPT, vocab=512000), 8 * SEQ) / 8 / PEAK)
    assert even.products == pytest.approx(8 * 12 * 6 * 12 * 6144**2 * SEQ / 8 / PEAK)
    room = parts(replace(GPT, layers=62), ARITHMETIC, Layout(tp=8, pp=4, global_batch=8), SEQ, IDEAL)
    assert room.vocabulary == 0
    assert room.products == pytest.approx(8 * 16 * 6 * 12 * 6144**2 * SEQ / 8 / PEAK)
    tight = parts(replace(GPT, layers=62, vocab=512000), ARITHMETIC, Layout(tp=8, pp=4, global_batch=8), SEQ, IDEAL)
    assert tight.products == pytest.approx(8 * 15 * 6 * 12 * 6144**2 * SEQ / 8 / PEAK)
    assert tight.bubble == pytest.approx(3 / 8 * (room.products + room.attention))
    odd = parts(replace(GPT, layers=61), ARITHMETIC, Layout(tp=8, pp=3, global_batch=9), SEQ, IDEAL)
    assert odd.products == pytest.approx(9 * 21 * 6 * 12 * 6144**2 * SEQ / 8 / PEAK)
    two = parts(replace(GPT, layers=62), ARITHMETIC, Layout(tp=8, pp=2, virtual=4, global_batch=8), SEQ, IDEAL)
    assert two.products == pytest.approx(8 * 31 * 6 * 12 * 6144**2 * SEQ / 8 / PEAK)


# The whole


def layouts(count, seed=5):
    """Layouts that exist for LLAMA on 1,024 ranks, at random."""
    rng = np.random.default_rng(seed)
    tp, pp, cp = rng.choice([1, 2, 4, 8], count), rng.choice([1, 2, 4], count), rng.choice([1, 2], count)
    pick = {name: rng.integers(0, top + 1, count) for name, top in dict(
        recompute=2, zero=3, sequence_parallel=1, flash=1, dp_overlap=1, tp_overlap=1).items()}  # fmt: skip
    micro = rng.choice([1, 2], count)
    return Layout(tp=tp * 1.0, cp=cp * 1.0, pp=pp * 1.0, dp=1024.0 / (tp * cp * pp),
                  virtual=np.where(pp > 1, rng.choice([1, 5], count), 1) * 1.0, micro_batch=micro * 1.0,
                  global_batch=np.full(count, 8192.0), **{k: v * 1.0 for k, v in pick.items()})  # fmt: skip


def one(layout, i):
    return Layout(**{f.name: float(np.broadcast_to(getattr(layout, f.name), (200,))[i]) for f in fields(layout)})


def test_many_layouts_at_once_are_the_same_as_one_by_one():
    many, cluster = layouts(200), machine(nodes=128, name="DGX H100")
    together = estimate(LLAMA, cluster, many, 4096, NEMO_H100)
    for i in range(0, 200, 7):
        alone = estimate(LLAMA, cluster, one(many, i), 4096, NEMO_H100)
        for field in fields(Estimate):
            values = np.broadcast_to(getattr(together, field.name), (200,))
            assert values[i] == pytest.approx(getattr(alone, field.name), rel=1e-12), field.name


@pytest.mark.parametrize("experts", [1, 4])
def test_the_parts_add_up_and_are_the_terms_of_principle_10(experts):
    many, cluster = layouts(200), machine(nodes=128, name="DGX H100")
    many, model = replace(many, ep=experts), replace(LLAMA, experts=experts, top_k=1)
    found = parts(model, cluster, many, 4096, NEMO_H100)
    values = {f.name: getattr(found, f.name) for f in fields(Estimate)}
    assert all(np.all(v >= 0) for v in values.values())
    assert all(np.any(v > 0) for k, v in values.items() if k != "experts" or experts > 1)
    assert found.total == pytest.approx(sum(v for k, v in values.items() if k != "hidden"))
    step = found.step(many.ranks)
    assert step.total == pytest.approx(found.total)
    assert step.sync == pytest.approx(found.bubble)
    assert step.share == pytest.approx(found.compute)
    assert step.exposed == pytest.approx(found.exposed + found.bubble)


def test_hidden_communication_counts_once_as_overlap():
    both = Estimate(products=1.0, attention=0, elementwise=0, recomputation=0, vocabulary=0, optimiser=0, contention=0,
                    tensor=0.5, context=0, experts=0, hops=0, data=0, bubble=0.25, hidden=3.0)  # fmt: skip
    step = both.step(4)
    assert (step.total, step.overlap, step.comm, step.compute) == (1.75, 1.0, 1.5, 4.0)
    part = replace(both, hidden=0.5).step(4)
    assert (part.total, part.overlap, part.comm) == (1.75, 0.5, 1.0)


def test_a_faster_machine_of_the_same_proportions_scales_every_part():
    many = layouts(200)
    base = machine(nodes=128, name="DGX H100")
    device, port = base.node.accelerator, base.fabric
    fast = machine(128, "DGX H100", 2 * device.peak, 2 * device.memory_bandwidth, 2 * device.scale_up.measured,
                   device.scale_up.alpha / 2, 2 * port.bandwidth, port.alpha / 2)  # fmt: skip
    slow, quick = (parts(LLAMA, cluster, many, 4096, NEMO_H100) for cluster in (base, fast))
    for field in fields(Estimate):
        assert getattr(slow, field.name) == pytest.approx(2 * getattr(quick, field.name), abs=1e-12), field.name


@pytest.mark.parametrize("stack", [MEGATRON_A100, NEMO_H100, FSDP_A100, FSDP_H100])
def test_no_layout_gets_slower_by_a_better_rate_or_faster_by_a_higher_cost(stack):
    many, cluster = layouts(200), machine(nodes=128)
    base = parts(LLAMA, cluster, many, 4096, stack).total
    for name in RATES + COSTS:
        more = parts(LLAMA, cluster, many, 4096, replace(stack, **{name: getattr(stack, name) * 1.05})).total
        change = (more - base) * (1 if name in COSTS else -1)
        slack = 1e-9 * base if name != "contention" else 0
        assert np.all(change >= -slack), name
        assert np.any(change > 0), name


def test_a_layout_that_cannot_exist_is_refused_with_the_reason():
    layout = Layout(tp=8, pp=4, dp=4, global_batch=64)
    assert estimate(GPT, machine(nodes=16), layout, SEQ, MEGATRON_A100).total > 0
    with pytest.raises(ValueError, match="number of ranks"):
        estimate(GPT, machine(nodes=8), layout, SEQ, MEGATRON_A100)
    with pytest.raises(ValueError, match="more stages than layers"):
        estimate(replace(GPT, layers=2), machine(nodes=16), layout, SEQ, MEGATRON_A100)
    with pytest.raises(ValueError, match="global batch"):
        estimate(GPT, machine(nodes=16), replace(layout, global_batch=63), SEQ, MEGATRON_A100)
    with pytest.raises(ValueError, match="seq must be a whole number"):
        estimate(GPT, machine(nodes=16), layout, 0.5, MEGATRON_A100)


def test_every_constant_has_its_source_or_is_fitted():
    names = {f.name for f in fields(Stack)} - {"fitted"}
    for stack in (MEGATRON_A100, NEMO_H100, FSDP_A100, FSDP_H100):
        assert set(stack.fitted) <= names
        assert names - set(stack.fitted) <= set(SOURCES)
    with pytest.raises(ValueError, match="product must be a number from 0 to 1, got 1.2"):
        replace(MEGATRON_A100, product=1.2)
