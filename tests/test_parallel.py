"""What a layout costs: each formula against the thing played."""

from itertools import combinations

import numpy as np
import pytest

from distlib.experts import distinct, scores, top_k
from distlib.parallel import (
    bubble_of_total,
    bubble_over_ideal,
    direct_nic_bytes,
    direct_nvlink_bytes,
    expert_capacity,
    expert_nic_bytes,
    expert_nvlink_bytes,
    interleaved_held,
    mean_groups,
    microbatches_per_step,
    one_f_one_b_held,
    one_f_one_b_hops,
    pipeline_crossover,
    zero_bubble_time,
)
from distlib.schedules import one_f_one_b, play

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
