"""What a layout costs: each formula against the thing played."""

import numpy as np
import pytest

from distlib.parallel import (
    bubble_of_total,
    bubble_over_ideal,
    interleaved_held,
    microbatches_per_step,
    one_f_one_b_held,
    one_f_one_b_hops,
    pipeline_crossover,
    zero_bubble_time,
)

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
