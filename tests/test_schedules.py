"""Pipeline schedules, played: no work is lost, no bound is beaten, the published counts hold; and run on arrays."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlib import schedules
from distlib.parallel import (
    bubble_of_total,
    bubble_over_ideal,
    interleaved_held,
    one_f_one_b_held,
    one_f_one_b_hops,
    zero_bubble_time,
)
from distlib.schedules import Op, gpipe, interleaved, one_f_one_b, peak_activations, play, run, zb_h1, zb_h2

PLAIN = [gpipe, one_f_one_b]
SPLIT = [zb_h1, zb_h2]


def three(stages, microbatches):
    """Interleaved with three chunks, over as many rounds as there are micro-batches."""
    return interleaved(stages, stages * microbatches, 3)


FAMILIES = [*PLAIN, *SPLIT, three]


@st.composite
def unequal(draw):
    """A schedule, and a time of each operation that differs by chunk and stage; some are 0."""
    family = draw(st.sampled_from(FAMILIES))
    stages = draw(st.integers(1, 6))
    schedule = family(stages, draw(st.integers(1, 4 if family is three else 11)))
    chunks = 3 if family is three else 1
    seconds = st.integers(0, 8).map(lambda quarters: quarters / 4)
    table = st.lists(st.lists(seconds, min_size=stages, max_size=stages), min_size=chunks, max_size=chunks)
    forward, part, weight = (np.array(draw(table)) for _ in range(3))
    return schedule, forward, part + weight, weight, draw(st.integers(0, 4)) / 8


@settings(max_examples=150)
@given(unequal())
def test_no_schedule_deadlocks_and_each_conserves_the_work(case):
    schedule, forward, backward, weight, hop = case
    played = play(schedule, forward, backward, weight, hop)
    count = 1 + max(op.microbatch for op in schedule[0])
    assert len(played.spans) == sum(map(len, schedule))
    assert played.busy == pytest.approx(count * (forward + backward).sum(axis=0))


@settings(max_examples=150)
@given(unequal())
def test_a_stage_does_one_thing_at_a_time_and_nothing_before_its_input_arrived(case):
    schedule, forward, backward, weight, hop = case
    played = play(schedule, forward, backward, weight, hop)
    stages, chunks = len(schedule), len(forward)
    ends = {(s.op.kind, s.op.microbatch, s.op.chunk * stages + s.stage): s.end for s in played.spans}
    for stage, ops in enumerate(schedule):
        mine = [s for s in played.spans if s.stage == stage]
        assert [s.op for s in mine] == list(ops)
        assert all(before.end <= after.start for before, after in zip(mine, mine[1:], strict=False))
    for s in played.spans:
        kind, j, c = s.op
        part, wire = c * stages + s.stage, hop if stages > 1 else 0.0
        if kind == "F" and part:
            assert s.start >= ends["F", j, part - 1] + wire
        if kind in "BI":
            assert s.start >= ends["F", j, part]
            if part + 1 < stages * chunks:
                assert s.start >= ends[kind, j, part + 1] + wire
        if kind == "W":
            assert s.start >= ends["I", j, part]


@settings(max_examples=150)
@given(unequal())
def test_no_schedule_beats_the_path_of_a_micro_batch_or_the_work_of_a_stage(case):
    schedule, forward, backward, weight, hop = case
    played = play(schedule, forward, backward, weight, hop)
    split = any(op.kind == "W" for op in schedule[0])
    stages, parts = len(schedule), forward.size
    crossed = 2 * (parts - 1) * hop if stages > 1 else 0.0
    path = forward.sum() + backward.sum() - (weight.sum() - weight[0, 0] if split else 0) + crossed
    assert played.makespan >= path - 1e-9
    for i in range(stages):
        before = forward[0, :i].sum() + i * hop
        after = 0 if split else backward[0, :i].sum() + i * hop
        assert played.makespan >= before + played.busy[i] + after - 1e-9
    assert played.span <= played.makespan
    messages = 2 * (parts - 1) * (1 + max(op.microbatch for op in schedule[0]))
    assert played.makespan <= played.busy.sum() + messages * hop + 1e-9


@pytest.mark.parametrize("family", PLAIN)
@pytest.mark.parametrize("stages, microbatches", [(1, 3), (4, 2), (4, 16), (8, 16), (7, 9)])
def test_the_bubble_of_gpipe_and_1f1b_is_that_of_the_formula_in_both_conventions(family, stages, microbatches):  # B13
    played = play(family(stages, microbatches), 1.0, 2.3)
    assert played.over_ideal == pytest.approx(bubble_over_ideal(stages, microbatches))
    assert played.of_total == pytest.approx(bubble_of_total(stages, microbatches))


@pytest.mark.parametrize("stages, microbatches, virtual", [(8, 16, 4), (4, 4, 3), (3, 9, 2), (1, 2, 2), (5, 10, 1)])
def test_the_bubble_of_interleaved_chunks_is_that_of_the_formula(stages, microbatches, virtual):  # B13
    played = play(interleaved(stages, microbatches, virtual), 1.0 / virtual, 2.3 / virtual)
    assert played.over_ideal == pytest.approx(bubble_over_ideal(stages, microbatches, virtual))
    assert played.of_total == pytest.approx(bubble_of_total(stages, microbatches, virtual))


@pytest.mark.parametrize("forward, of_input, weight, hop", [(1, 1, 1, 0), (1.0, 1.4, 0.8, 0.1), (2, 1, 0.9, 0.4)])
@pytest.mark.parametrize("stages, extra", [(2, 9), (4, 5), (8, 24)])
def test_zb_h1_idles_as_long_as_the_formula_says(stages, extra, forward, of_input, weight, hop):  # B14
    microbatches = stages + extra
    played = play(zb_h1(stages, microbatches), forward, of_input + weight, weight, hop)
    idle = played.makespan - played.busy.max()
    assert idle == pytest.approx(zero_bubble_time(stages, forward, of_input + weight, weight, hop))
    assert idle == pytest.approx((stages - 1) * (forward + of_input - weight + 4 * hop))


@pytest.mark.parametrize("stages", [2, 3, 8])
def test_zb_h2_leaves_no_bubble_between_its_ends_if_all_passes_are_alike_and_as_zb_h1_if_stages_stop_together(stages):
    microbatches = 2 * stages - 1
    played, other = (play(family(stages, microbatches), 1.0, 2.0, 1.0) for family in (zb_h2, zb_h1))
    assert played.span == pytest.approx(3 * microbatches)
    assert played.makespan == pytest.approx(other.makespan)


@pytest.mark.parametrize("stages, microbatches", [(2, 2), (2, 7), (3, 8), (8, 8), (8, 25), (5, 19)])
def test_1f1b_waits_for_two_messages_a_micro_batch_and_gpipe_for_two_a_stage(stages, microbatches):
    for family, hops in (one_f_one_b, one_f_one_b_hops(stages, microbatches)), (gpipe, 2 * (stages - 1)):
        schedule = family(stages, microbatches)
        late = play(schedule, 1.0, 2.0, hop=0.01).makespan - play(schedule, 1.0, 2.0).makespan
        assert late == pytest.approx(0.01 * hops)


@pytest.mark.parametrize("stages, microbatches", [(1, 4), (4, 2), (4, 16), (7, 9)])
def test_activations_held_are_those_published(stages, microbatches):
    i = np.arange(stages)
    assert peak_activations(gpipe(stages, microbatches)) == pytest.approx(microbatches)
    held = one_f_one_b_held(stages, microbatches, i)
    assert peak_activations(one_f_one_b(stages, microbatches)) == pytest.approx(held)
    assert peak_activations(zb_h1(stages, microbatches)).max() == held[0]


@pytest.mark.parametrize("stages", [1, 4, 7])
def test_activations_of_the_split_schedules_are_those_of_qi_et_al_at_each_stage(stages):
    i, kept = np.arange(stages), 0.7
    h1, h2 = (peak_activations(family(stages, 3 * stages), kept) for family in SPLIT)
    assert h1 == pytest.approx(stages - i + i * kept)
    assert h2 == pytest.approx(2 * (stages - i) - 1 + 2 * i * kept)
    assert peak_activations(zb_h2(stages, 3 * stages)) == pytest.approx(2 * stages - 1)


@pytest.mark.parametrize("stages, microbatches, virtual", [(4, 4, 2), (4, 8, 2), (8, 24, 3), (1, 3, 2)])
def test_activations_of_interleaved_chunks_exceed_those_of_1f1b_by_the_published_share(stages, microbatches, virtual):
    held = interleaved_held(stages, microbatches, virtual)
    assert peak_activations(interleaved(stages, microbatches, virtual)).max() == pytest.approx(held)


def test_what_a_backward_pass_frees_is_what_its_forward_pass_took():
    order = [Op("F", 0), Op("B", 0), Op("F", 1), Op("F", 2), Op("B", 1), Op("B", 2)]
    assert peak_activations([order]) == pytest.approx(2)


def test_a_weight_pass_takes_no_time_if_none_is_given():
    assert play(zb_h1(1, 3), 1.0, 2.0).makespan == 9
    assert [s.end - s.start for s in play(zb_h1(1, 1), 1.0, 2.0).spans] == [1, 2, 0]


def test_a_schedule_that_deadlocks_is_refused_and_says_who_waits_for_what():
    first = [Op("F", 0), Op("B", 0), Op("F", 1), Op("B", 1)]
    second = [Op("F", 1), Op("B", 1), Op("F", 0), Op("B", 0)]
    with pytest.raises(ValueError, match="stage 0 waits with B0 for B0 of stage 1; stage 1 waits with F1 for F1 of st"):
        play([first, second], 1.0, 2.0)
    with pytest.raises(ValueError, match="stage 0 waits with B0 of chunk 1 for F0 of chunk 1 of stage 0"):
        play([[Op("B", 0, 1), Op("B", 0), Op("F", 0), Op("F", 0, 1)]], 1.0, 2.0)


@pytest.mark.parametrize(
    "ops, wrong",
    [([Op("F", 0), Op("B", 0), Op("F", 1)], "B1"), ([Op("F", 0), Op("F", 0), Op("B", 0)], "F0"),
     ([Op("F", 0), Op("I", 0)], "W0"), ([], "B0"), ([Op("F", 0, 1), Op("B", 0, 1)], "B0")],
)  # fmt: skip
def test_work_that_is_left_out_or_done_twice_is_refused(ops, wrong):
    with pytest.raises(ValueError, match=f"once at each stage; at stage 0 not so {wrong}"):
        play([ops], 1.0, 2.0)


def test_a_bad_pipeline_is_refused_by_name():
    with pytest.raises(ValueError, match="stages must be a whole number ≥ 1"):
        one_f_one_b(0, 4)
    with pytest.raises(ValueError, match="microbatches must be a whole number ≥ 1"):
        gpipe(2, 0)
    with pytest.raises(ValueError, match="microbatches / stages must be a whole number ≥ 1, got 1.5"):
        interleaved(4, 6, 2)
    with pytest.raises(ValueError, match="virtual must be"):
        interleaved(4, 8, 0)
    with pytest.raises(ValueError, match="backward − weight must be a finite number ≥ 0, got -1"):
        play(zb_h1(2, 2), 1.0, 1.0, 2.0)
    with pytest.raises(ValueError, match="hop must be"):
        play(gpipe(2, 2), 1.0, 1.0, hop=-1.0)
    with pytest.raises(ValueError, match="kept must be a number from 0 to 1"):
        peak_activations(zb_h1(2, 2), 1.5)
    with pytest.raises(ValueError, match="3 layers and 2 rows or more, got 2 and 5"):
        run(gpipe(3, 2), [np.eye(2)] * 2, np.ones((5, 2)), np.ones((5, 2)))


# Run on arrays

WIDTHS = [5, 7, 3, 6, 6, 4, 5, 2]  # seven layers of odd shapes


def network(rows, seed=3):
    rng = np.random.default_rng(seed)
    layers = [rng.normal(size=(a, b)) / np.sqrt(a) for a, b in zip(WIDTHS, WIDTHS[1:], strict=False)]
    return layers, rng.normal(size=(rows, WIDTHS[0])), rng.normal(size=(rows, WIDTHS[-1]))


def whole(layers, inputs, targets):
    """The loss of the network in one piece, and its gradients by complex steps: no backward pass is written here."""

    def loss(weights):
        values = inputs
        for weight in weights:
            values = np.tanh(values @ weight)
        return 0.5 * np.sum((values - targets) ** 2) / len(inputs)

    gradients = []
    for number, layer in enumerate(layers):
        gradient = np.zeros_like(layer)
        for place in np.ndindex(layer.shape):
            bent = [weight.astype(complex) for weight in layers]
            bent[number][place] += 1e-30j
            gradient[place] = loss(bent).imag / 1e-30
        gradients.append(gradient)
    return loss(layers), gradients


CASES = [(gpipe(3, 4), 11), (one_f_one_b(3, 5), 11), (one_f_one_b(7, 3), 4), (interleaved(2, 4, 3), 9),
         (zb_h1(3, 5), 11), (zb_h2(2, 7), 7), (zb_h1(1, 2), 5), (interleaved(1, 2, 3), 5)]  # fmt: skip


@pytest.mark.parametrize("schedule, rows", CASES)
def test_a_pipelined_step_is_the_unsplit_step_forward_backward_and_after_the_optimiser(schedule, rows):
    layers, inputs, targets = network(rows)
    loss, gradients = whole(layers, inputs, targets)
    piped = run(schedule, layers, inputs, targets)
    assert piped.loss == pytest.approx(loss, rel=1e-13)
    for one, other, layer in zip(piped.gradients, gradients, layers, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)
        moved, expected = (layer - 1e-3 * g / (np.abs(g) + 1e-3) for g in (one, other))  # the first step of Adam
        np.testing.assert_allclose(moved, expected, rtol=0, atol=1e-12)


def test_the_order_of_a_schedule_changes_no_bit_if_each_stage_takes_its_micro_batches_in_turn():
    layers, inputs, targets = network(11)
    first, *others = (run(family(3, 5), layers, inputs, targets) for family in (gpipe, one_f_one_b, zb_h1, zb_h2))
    for other in others:
        assert all(np.array_equal(a, b) for a, b in zip(first.gradients, other.gradients, strict=True))


@pytest.mark.parametrize("schedule, rows", CASES)
def test_what_crosses_between_stages_is_one_activation_and_one_gradient_of_each_row(schedule, rows):
    stages = len(schedule)
    chunks = 1 + max(op.chunk for op in schedule[0])
    sent = run(schedule, *network(rows)).sent
    lasts = [int(part[-1]) + 1 for part in np.array_split(np.arange(7), stages * chunks)]
    expected = np.zeros(stages)
    for part, last in enumerate(lasts[:-1]):
        for sender in (part, part + 1):
            expected[sender % stages] += 8 * rows * WIDTHS[last] if stages > 1 else 0
    assert sent == pytest.approx(expected)


@pytest.mark.parametrize("schedule, rows", CASES)
def test_the_arrays_that_a_stage_keeps_are_as_many_as_the_count_says(schedule, rows):
    chunks = 1 + max(op.chunk for op in schedule[0])
    assert run(schedule, *network(rows)).held == pytest.approx(chunks * peak_activations(schedule))


def test_the_schedules_that_are_tested_are_those_of_the_module():
    named = {f.__name__ for f in [*PLAIN, *SPLIT, interleaved]}
    returns = {n: getattr(f, "__annotations__", {}).get("return") for n, f in vars(schedules).items() if n[0] != "_"}
    assert {n for n, kind in returns.items() if kind is schedules.Schedule} == named
