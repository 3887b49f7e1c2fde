"""Plans of small clusters against every layout enumerated one by one; fronts against their definition."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlib import planner
from distlib.estimate import MEGATRON_A100, Stack, estimate
from distlib.hardware import Cluster, interconnect, node
from distlib.parallel import Layout, bubble_of_total, peak_memory, possible
from distlib.planner import layouts, pareto, plan
from distlib.published import layout_sweep
from distlib.transformer import FULL, LLAMA3_8B, LLAMA3_405B, NONE, Transformer
from distlib.units import GB

SMALL = Transformer(layers=12, hidden=96, vocab=1000, heads=12, kv_heads=6, ffn=384)
MIXED = Transformer(
    layers=6, hidden=64, vocab=512, heads=8, kv_heads=4, ffn=256, gated=1, biases=0, experts=4, top_k=2, expert_ffn=64
)
STACK = Stack(product=0.75, memory=0.85, attention=0.5, fabric=0.8)


def cluster(nodes):
    return Cluster(node=node("DGX H100"), nodes=nodes, rails=8, fabric=interconnect("NDR"))


FREE = "tp cp pp dp ep virtual micro_batch recompute zero".split()


def every(model, seq, batch, ranks):
    """Every combination of whole numbers up to N that multiply to it, and of the rest, if it can exist."""
    some = range(1, ranks + 1)
    sizes = [four for four in itertools.product(some, repeat=4) if np.prod(four) == ranks]
    rest = itertools.product(range(1, 5), range(1, 16), range(1, batch + 1), (NONE, FULL), range(4))
    rows = np.array([(*four, *others) for four, others in itertools.product(sizes, rest)], float).T
    fields = dict(zip(FREE, rows, strict=True))
    layout = Layout(**fields, global_batch=batch, sequence_parallel=np.minimum(fields["tp"] - 1, 1), dp_overlap=1)
    return {tuple(row) for row in rows.T[possible(model, layout, seq, ranks)]}


def listed(blocks):
    for block in blocks:
        columns = np.broadcast_arrays(*(getattr(block, name) for name in FREE))
        yield from map(tuple, np.stack(columns, axis=-1).reshape(-1, len(FREE)))


@pytest.mark.parametrize("model, seq, batch, ranks", [(SMALL, 96, 12, 12), (MIXED, 64, 8, 8), (SMALL, 96, 5, 1)])
def test_every_layout_that_can_exist_is_listed_once(model, seq, batch, ranks):
    blocks = list(layouts(model, seq, batch, ranks))
    found = list(listed(blocks))
    assert all(np.array_equal(block.sequence_parallel, block.tp > 1) for block in blocks)
    assert len(found) == len(set(found)) > 0
    assert set(found) == every(model, seq, batch, ranks)


def test_a_search_in_small_blocks_finds_the_same():
    whole = plan(LLAMA3_8B, cluster(4), 8192, 64, 64 * GB, STACK, keep=50)
    usual = planner.BLOCK
    try:
        for planner.BLOCK in (4, 1000):
            pieces = plan(LLAMA3_8B, cluster(4), 8192, 64, 64 * GB, STACK, keep=50)
            assert pieces.possible == whole.possible and pieces.fitting == whole.fitting
            assert pieces.time[:50] == pytest.approx(whole.time[:50], rel=1e-12)
            assert pieces.time[pieces.front] == pytest.approx(whole.time[whole.front], rel=1e-12)
            assert pieces.memory[pieces.front] == pytest.approx(whole.memory[whole.front], rel=1e-12)
        sizes = [8 * block.tp.size for block in layouts(LLAMA3_8B, 8192, 64, 32)]
        assert sum(sizes) == whole.possible
        assert len(sizes) > 2 and all(1000 <= size < 2000 for size in sizes[:-1]) and sizes[-1] < 2000
    finally:
        planner.BLOCK = usual


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=40))
def test_the_front_is_what_nothing_else_beats(points):
    time, memory = np.array(points, float).T
    front = pareto(time, memory)
    beaten = [any((t <= time[i] and m <= memory[i]) and (t < time[i] or m < memory[i]) for t, m in points)
              for i in range(len(points))]  # fmt: skip
    assert {points[i] for i in front} == {point for point, worse in zip(points, beaten, strict=True) if not worse}
    assert len(front) == len({points[i] for i in front})
    assert np.all(np.diff(time[front]) > 0) and np.all(np.diff(memory[front]) < 0)


def test_plans_are_the_quickest_that_fit_in_order_and_priced_by_the_laws():
    room, here = 60 * GB, cluster(1)
    plans = plan(LLAMA3_8B, here, 4096, 4, room, STACK, keep=10)
    everything = [Layout(*row[:6], row[6], 4, row[7], row[8], int(row[0] > 1), 1, 1)
                  for row in listed(layouts(LLAMA3_8B, 4096, 4, 8))]  # fmt: skip
    held = np.array([peak_memory(LLAMA3_8B, layout, 4096) for layout in everything])
    fits = held <= room
    assert (plans.possible, plans.fitting) == (len(everything), fits.sum()) and 0 < fits.sum() < len(everything)
    time = np.array([estimate(LLAMA3_8B, here, layout, 4096, STACK).total for layout in everything])
    assert plans.time[:10] == pytest.approx(np.sort(time[fits])[:10], rel=1e-12)
    assert np.all(np.diff(plans.time) >= 0)
    for index in (0, 7, int(plans.front[-1])):
        assert estimate(LLAMA3_8B, here, plans[index], 4096, STACK).total == pytest.approx(plans.time[index])
        assert peak_memory(LLAMA3_8B, plans[index], 4096) == pytest.approx(plans.memory[index])
    terms = estimate(LLAMA3_8B, here, plans[:10], 4096, STACK)
    assert terms.compute + terms.exposed + terms.bubble == pytest.approx(plans.time[:10])
    front = pareto(time[fits], held[fits])
    assert plans.time[plans.front] == pytest.approx(time[fits][front], rel=1e-12)
    assert plans.memory[plans.front] == pytest.approx(held[fits][front], rel=1e-12)


def test_less_memory_never_gives_a_quicker_plan():
    best = [plan(LLAMA3_8B, cluster(2), 4096, 4, room * GB, STACK, keep=1).time[0] for room in (16, 24, 40, 64)]
    assert np.all(np.diff(best) <= 0) and best[0] > best[-1]


def test_a_reason_is_given_when_nothing_fits_or_nothing_exists():
    with pytest.raises(
        ValueError, match=r"no layout fits into 64.0 GB: the leanest, tp 8, .*recompute 2.*, needs 918.6 GB"
    ):
        plan(LLAMA3_405B, cluster(1), 8192, 8, 64 * GB, STACK)
    with pytest.raises(ValueError, match="no layout of 104 ranks can exist; most often dp·micro_batch does not divide"):
        plan(LLAMA3_405B, cluster(13), 8192, 7, 64 * GB, STACK)
    with pytest.raises(ValueError, match="no layout of 8 ranks can exist; most often cp "):
        plan(Transformer(layers=12, hidden=8, vocab=9, heads=8), cluster(1), 5, 1, 64 * GB, STACK)


def test_the_smallest_bubble_is_not_the_quickest_plan():  # B18, on the machine and models of the trials
    trials = layout_sweep()
    there = Cluster(node=node("DGX A100"), nodes=48, rails=4, fabric=interconnect("RoCE 100G"))
    five = [list(trials.line).index(line) for line in (776, 788, 790, 779, 791)]
    time = estimate(trials.model, there, trials.layout, 2048, MEGATRON_A100).total / trials.layout.global_batch
    bubble = bubble_of_total(trials.layout.pp, trials.layout.microbatches)
    assert np.argmin(bubble[five]) == 4 == np.argmax((trials.step / trials.layout.global_batch)[five])
    assert np.argmin(time[five]) != 4


def test_no_pipeline_has_no_bubble_and_is_not_the_quickest_plan_either():
    plans = plan(LLAMA3_8B, cluster(4), 8192, 64, 64 * GB, STACK)
    bubble = (plans.layout.pp - 1) / plans.layout.virtual / plans.layout.microbatches
    assert plans.time[bubble == 0].max() > 2 * plans.time[0]
