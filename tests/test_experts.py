"""A layer of experts: on many ranks it is the layer in one place; its bytes, loads and drops are those of the laws."""

import numpy as np
import pytest

from distlib.experts import (
    dense,
    distinct,
    expert_parallel,
    kept,
    loads,
    mean_largest_load,
    mean_overflow,
    node_limited,
    scores,
    top_k,
)
from distlib.parallel import (
    expert_capacity,
    expert_nic_bytes,
    expert_nvlink_bytes,
    mean_groups,
)


def routed(tokens, experts, topk, seed=0, skew=0.0):
    return top_k(scores(tokens, experts, np.random.default_rng(seed), skew), topk)


# Routing


def test_a_token_goes_to_its_highest_scores_best_first_and_to_the_first_of_equals():
    score = np.array([[1.0, 3.0, 2.0, 3.0], [0.0, -1.0, 5.0, 4.0]])
    assert top_k(score, 3).tolist() == [[1, 3, 2], [2, 3, 0]]
    with pytest.raises(ValueError, match="experts − topk"):
        top_k(score, 5)


def test_first_choices_fall_as_the_softmax_of_the_preferences_says():
    rng = np.random.default_rng(5)
    preference = 1.5 * np.random.default_rng(5).standard_normal(6)
    share = loads(top_k(scores(40000, 6, rng, skew=1.5), 1), 6) / 40000
    expected = np.exp(preference) / np.exp(preference).sum()
    assert np.all(np.abs(share - expected) < 4 * np.sqrt(expected / 40000))


def test_experts_are_alike_unless_a_skew_is_given():
    one, other = (scores(7, 4, np.random.default_rng(3), *skew) for skew in ((), (0.0,)))
    assert np.array_equal(one, other)


def test_routing_is_limited_to_the_nodes_whose_best_scores_add_up_to_most():
    score = np.array([[9.0, 0.0, 5.0, 5.0, 8.0, 1.5]])  # three nodes of two experts
    assert np.isneginf(node_limited(score, 3, 1, each=1)).tolist() == [[False, False, True, True, True, True]]
    assert np.isneginf(node_limited(score, 3, 1, each=2)).tolist() == [[True, True, False, False, True, True]]
    assert np.isneginf(node_limited(score, 3, 2, each=2)).tolist() == [[True, True, False, False, False, False]]


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_no_token_goes_to_more_nodes_than_the_limit(limit):
    score = scores(500, 64, np.random.default_rng(1))
    choice = top_k(node_limited(score, 8, limit, each=2), 8)
    assert distinct(choice, 64, 8).max() <= limit
    assert np.array_equal(node_limited(score, 8, 8, each=2), score)


# To how many groups a token goes


def test_distinct_groups_are_counted_one_by_one():
    assert distinct(np.array([[0, 1, 2], [0, 5, 3], [4, 4, 5]]), 6, 3).tolist() == [2, 3, 1]
    with pytest.raises(ValueError, match="experts / groups must be a whole number"):
        distinct(np.array([[0]]), 6, 4)


def test_a_random_router_meets_the_mean_number_of_groups_within_its_interval():
    for groups in (2, 4, 8, 32):
        counts = distinct(routed(20000, 256, 8, seed=groups), 256, groups)
        assert abs(counts.mean() - mean_groups(256, groups, 8)) < 4 * counts.std() / np.sqrt(20000)


# Load


def test_an_expert_takes_the_first_tokens_that_come_up_to_its_capacity():
    choice = np.array([[0, 1], [0, 2], [1, 0], [2, 0]])
    assert kept(choice, 3, 2).tolist() == [[True, True], [True, True], [True, False], [True, False]]
    assert kept(choice, 3, 1).tolist() == [[True, True], [False, True], [False, False], [False, False]]
    assert loads(choice, 4).tolist() == [4, 2, 2, 0]
    for capacity in (1, 5, 40):
        many = routed(300, 12, 3, skew=1.0)
        fits = kept(many, 12, capacity)
        assert np.array_equal(loads(many[fits], 12), np.minimum(loads(many, 12), capacity))


@pytest.mark.parametrize("tokens, p, capacity", [(5, 0.3, 2), (7, 0.5, 0), (6, 0.2, 3.5), (4, 1.0, 3), (3, 0.4, 3)])
def test_the_mean_overflow_is_the_sum_over_the_binomial(tokens, p, capacity):
    from math import comb

    terms = [comb(tokens, x) * p**x * (1 - p) ** (tokens - x) * max(x - capacity, 0) for x in range(tokens + 1)]
    assert mean_overflow(tokens, p, capacity) == pytest.approx(sum(terms), abs=1e-15)


@pytest.mark.parametrize("topk, factor", [(1, 1.0), (2, 1.25), (4, 1.1)])
def test_dropped_choices_are_as_many_as_the_binomial_says_within_the_interval_over_seeds(topk, factor):
    tokens, experts, seeds = 512, 16, 60
    capacity = expert_capacity(tokens, topk, experts, factor)
    dropped = [np.mean(~kept(routed(tokens, experts, topk, seed), experts, int(capacity))) for seed in range(seeds)]
    expected = experts * mean_overflow(tokens, topk / experts, capacity) / (tokens * topk)
    assert abs(np.mean(dropped) - expected) < 3.5 * np.std(dropped) / np.sqrt(seeds)


def test_drops_of_a_skewed_router_are_those_of_its_softmax():
    tokens, experts, seeds, skew = 400, 8, 80, 1.0
    gaps = []
    for seed in range(seeds):
        preference = skew * np.random.default_rng(seed).standard_normal(experts)
        share = np.exp(preference) / np.exp(preference).sum()
        choice = routed(tokens, experts, 1, seed, skew)
        gaps.append(np.sum(~kept(choice, experts, 60)) - mean_overflow(tokens, share, 60).sum())
    assert abs(np.mean(gaps)) < 3.5 * np.std(gaps) / np.sqrt(seeds)
    assert np.std(gaps) < 20


@pytest.mark.parametrize("experts, topk", [(16, 1), (64, 8)])
def test_the_largest_load_is_that_of_the_law_and_not_above_it(experts, topk):
    largest = [loads(routed(512, experts, topk, seed), experts).max() for seed in range(200)]
    law = mean_largest_load(512, experts, topk)
    assert -0.03 < np.mean(largest) / law - 1 < 3 * np.std(largest) / np.sqrt(200) / law


def test_the_largest_load_at_its_edges():
    assert mean_largest_load(100, 1, 1) == pytest.approx(100)
    assert mean_largest_load(100, 4, 4) == pytest.approx(100)
    assert mean_largest_load(1, 8, 1) == pytest.approx(1 - (7 / 8) ** 8)
    with pytest.raises(ValueError, match="topk / experts must be a number from 0 to 1"):
        mean_largest_load(100, 4, 5)


# The layer

SIZES = [
    (1, 1, 3, [4]),
    (1, 3, 1, [4, 1, 5]),
    (2, 2, 2, [3, 5, 0, 2]),
    (3, 2, 1, [2, 1, 4, 3, 3, 5]),
    (2, 4, 1, [3] * 8),
]


def problem(nodes, gpus, here, counts, topk=2, hidden=5, inner=7, seed=4):
    rng = np.random.default_rng(seed)
    experts = nodes * gpus * here
    up, down = rng.normal(size=(experts, hidden, inner)), rng.normal(size=(experts, inner, hidden))
    tokens, gradients = ([rng.normal(size=(count, hidden)) for count in counts] for _ in range(2))
    gates = []
    for count in counts:
        gate = np.zeros((count, experts))
        choice = top_k(rng.normal(size=(count, experts)), topk)
        np.put_along_axis(gate, choice, rng.uniform(0.2, 1, choice.shape), axis=1)
        gates.append(gate)
    return tokens, gates, up, down, gradients


def test_the_dense_layer_is_its_definition_and_its_gradients_are_those_of_complex_steps():
    tokens, gates, up, down, gradients = problem(1, 1, 3, [4])

    def loss(x, g, a, b):
        outputs = sum(g[:, e, None] * (np.tanh(x @ a[e]) @ b[e]) for e in range(3))
        return np.sum(outputs * gradients[0]), outputs

    given = [tokens[0], gates[0], up, down]
    layer = dense(tokens, gates, up, down, gradients)
    np.testing.assert_allclose(layer.outputs[0], loss(*given)[1], rtol=1e-12)
    for number, found in enumerate([layer.inputs[0], layer.gates[0], layer.up, layer.down]):
        for place in np.ndindex(found.shape):
            if number == 1 and gates[0][place] == 0:
                assert found[place] == 0
                continue
            bent = [array.astype(complex) for array in given]
            bent[number][place] += 1e-30j
            assert found[place] == pytest.approx(loss(*bent)[0].imag / 1e-30, rel=1e-10, abs=1e-13)


@pytest.mark.parametrize("nodes, gpus, here, counts", SIZES)
def test_experts_on_many_ranks_are_the_layer_in_one_place_forward_and_backward(nodes, gpus, here, counts):
    given = problem(nodes, gpus, here, counts)
    whole, spread = dense(*given), expert_parallel(*given, gpus)
    for name in ("outputs", "inputs", "gates"):
        for one, other in zip(getattr(whole, name), getattr(spread, name), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(spread.up, whole.up, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(spread.down, whole.down, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("nodes, gpus, here, counts", SIZES)
def test_bytes_are_one_vector_a_node_on_the_nic_and_one_a_rank_on_nvlink_in_all_four_phases(nodes, gpus, here, counts):
    tokens, gates, up, down, gradients = problem(nodes, gpus, here, counts)
    played = expert_parallel(tokens, gates, up, down, gradients, gpus)
    nic = nvlink = 0
    for rank, gate in enumerate(gates):
        for row in gate:
            ranks = {expert // here for expert in np.flatnonzero(row)}
            nic += len({r // gpus for r in ranks} - {rank // gpus})
            nvlink += len([r for r in ranks if r % gpus != rank % gpus])
    assert played.nic.sum(axis=0).tolist() == [8 * 5 * nic] * 4
    assert played.nvlink.sum(axis=0).tolist() == [8 * 5 * nvlink] * 4
    assert np.array_equal(played.nic[:, 0], played.nic[:, 2])


@pytest.mark.parametrize("limit", [None, 2])
def test_played_bytes_are_those_of_the_formulas(limit):
    nodes, gpus, experts, topk, hidden, count = 4, 2, 32, 4, 3, 250
    rng = np.random.default_rng(8)
    score = scores(8 * count, experts, rng)
    choice = top_k(score if limit is None else node_limited(score, nodes, limit, 2), topk)
    gates = np.zeros((8 * count, experts))
    np.put_along_axis(gates, choice, 1.0, axis=1)
    rows = np.split(rng.normal(size=(8 * count, hidden)), 8)
    played = expert_parallel(rows, np.split(gates, 8), np.ones((experts, 3, 1)), np.ones((experts, 1, 3)), rows, gpus)
    n = rows[0].nbytes
    to_nodes, to_ranks = (distinct(choice, experts, groups).mean() for groups in (nodes, 8))
    assert played.nic[:, 0].mean() == pytest.approx(expert_nic_bytes(n, to_nodes, nodes), rel=0.02)
    assert played.nvlink[:, 0].mean() == pytest.approx(expert_nvlink_bytes(n, to_ranks, gpus), rel=0.02)
    if limit is None:
        assert to_nodes == pytest.approx(mean_groups(experts, nodes, topk), rel=0.01)
        assert to_ranks == pytest.approx(mean_groups(experts, 8, topk), rel=0.01)
    else:
        assert to_nodes <= limit


def test_what_does_not_divide_is_refused_by_name():
    tokens, gates, up, down, gradients = problem(2, 2, 1, [1, 1, 1, 1])
    with pytest.raises(ValueError, match=r"ranks / gpus must be a whole number"):
        expert_parallel(tokens, gates, up, down, gradients, 3)
    with pytest.raises(ValueError, match=r"experts / ranks must be a whole number"):
        expert_parallel(tokens, gates, up[:3], down[:3], gradients, 2)
