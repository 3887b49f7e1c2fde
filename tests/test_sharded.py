"""A block shared among ranks gives what the whole block gives: outputs, gradients and the optimiser's step."""

import numpy as np
import pytest

from distlib.sharded import (
    AXES,
    NAMES,
    Group,
    State,
    adam,
    apart,
    attend,
    backward,
    context,
    contiguous,
    flat,
    forward,
    gradient,
    join_weights,
    merge,
    parameters,
    replica_step,
    sequence,
    split_weights,
    states,
    sum_norm_gradients,
    tensor,
    tokens,
    unflat,
    zero1_step,
    zero2_step,
    zero3_step,
    zigzag,
)

H, SEQ = 12, 10
WEIGHTS = parameters(H, kv_heads=3, group=2, head=2, inner=7, seed=1)
SIZE = flat(WEIGHTS).size
X, TARGET = np.random.default_rng(2).standard_normal((2, 2, SEQ, H))
CLOSE = {"rtol": 1e-12, "atol": 1e-12}  # addition is not associative, so not equal to the last bit


def plain_norm(x, gain, bias):
    centred = x - x.mean(-1, keepdims=True)
    return gain * centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) + bias


def plain_block(w, x):
    """The block written out head by head, each query head with its own keys and values; takes complex numbers."""
    seen, causal, y = 0, np.tril(np.ones((x.shape[1],) * 2)), plain_norm(x, w["gain1"], w["bias1"])
    for kv in range(w["q"].shape[1]):
        for head in range(w["q"].shape[2]):
            scores = (y @ w["q"][:, kv, head]) @ np.swapaxes(y @ w["k"][:, kv], 1, 2) / np.sqrt(w["q"].shape[3])
            weights = np.exp(scores) * causal
            weights = weights / weights.sum(-1, keepdims=True)
            seen = seen + weights @ (y @ w["v"][:, kv]) @ w["o"][kv, head]
    middle = x + seen
    rise = plain_norm(middle, w["gain2"], w["bias2"]) @ w["up"]
    return middle + rise / (1 + np.exp(-rise)) @ w["down"]


def plain_loss(w, x):
    return 0.5 * np.sum((plain_block(w, x) - TARGET) ** 2)


def derivative(array, loss):
    """By complex steps, number by number: exact to rounding."""
    slopes = np.zeros(array.shape)
    for place in np.ndindex(array.shape):
        moved = array.astype(complex)
        moved[place] += 1e-30j
        slopes[place] = loss(moved).imag / 1e-30
    return slopes


def whole(weights=WEIGHTS, x=X, target=TARGET):
    """Output, gradients of weights, gradient of the input."""
    alone = apart(1, x.shape[1])
    (z,), kept = forward([weights], [x], alone)
    (gradients,), (dx,) = backward([weights], [z - target], alone, kept)
    return z, gradients, dx


def assert_same(gradients, expected):
    assert list(gradients) == NAMES == list(expected)
    for name in NAMES:
        np.testing.assert_allclose(gradients[name], expected[name], **CLOSE, err_msg=name)


def test_the_whole_block_is_the_block_written_out():
    np.testing.assert_allclose(whole()[0], plain_block(WEIGHTS, X), **CLOSE)


@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_of_each_weight_is_the_derivative_of_the_loss(name):
    slopes = derivative(WEIGHTS[name], lambda moved: plain_loss(WEIGHTS | {name: moved}, X))
    np.testing.assert_allclose(whole()[1][name], slopes, **CLOSE)


def test_the_gradient_of_the_input_is_the_derivative_of_the_loss():
    np.testing.assert_allclose(whole()[2], derivative(X, lambda moved: plain_loss(WEIGHTS, moved)), **CLOSE)


def test_weights_are_of_unit_gain_and_drawn_by_their_seed():
    drawn = parameters(400, kv_heads=2, group=3, head=5, inner=600, seed=3)
    for name in NAMES:
        centre = 1 if name.startswith("gain") else 0
        assert drawn[name].mean() == pytest.approx(centre, abs=0.01)
        assert drawn[name].std() == pytest.approx(0.05, rel=0.2)
    assert np.array_equal(drawn["q"], parameters(400, 2, 3, 5, 600, 3)["q"])
    assert not np.array_equal(drawn["q"], parameters(400, 2, 3, 5, 600, 4)["q"])
    assert [drawn[name].shape for name in ("q", "v", "o")] == [(400, 2, 3, 5), (400, 2, 5), (2, 3, 5, 400)]


# Tensor and sequence parallel


@pytest.mark.parametrize("tp", [1, 2, 3])  # three key/value heads and seven columns do not divide by two
def test_tensor_parallel_is_the_whole_block(tp):
    z, gradients, dx = whole()
    shards, split = split_weights(WEIGHTS, tp), tensor(Group(tp), SEQ)
    outputs, kept = forward(shards, [X] * tp, split)
    parts, inputs = backward(shards, [output - TARGET for output in outputs], split, kept)
    for output, back in zip(outputs, inputs, strict=True):
        np.testing.assert_allclose(output, z, **CLOSE)
        np.testing.assert_allclose(back, dx, **CLOSE)
    assert_same(join_weights(parts), gradients)
    for part in parts:
        for name in set(NAMES) - set(AXES):  # everyone finds the whole gradient of what everyone has
            np.testing.assert_allclose(part[name], gradients[name], **CLOSE)


@pytest.mark.parametrize("tp", [1, 2])
def test_sequence_parallel_is_the_whole_block(tp):
    z, gradients, dx = whole()
    group = Group(tp)
    shards, split = split_weights(WEIGHTS, tp), sequence(group, SEQ)
    outputs, kept = forward(shards, np.split(X, tp, 1), split)
    ds = [output - target for output, target in zip(outputs, np.split(TARGET, tp, 1), strict=True)]
    parts, inputs = backward(shards, ds, split, kept)
    np.testing.assert_allclose(np.concatenate(outputs, 1), z, **CLOSE)
    np.testing.assert_allclose(np.concatenate(inputs, 1), dx, **CLOSE)
    if tp > 1:  # its normalisations saw a part of the sequence
        assert not np.allclose(parts[0]["gain1"], gradients["gain1"], rtol=0.01)
    summed = sum_norm_gradients(parts, group)
    assert_same(join_weights(summed), gradients)
    assert all(np.array_equal(part["bias2"], summed[0]["bias2"]) for part in summed)


def test_sequence_parallel_refuses_a_sequence_that_does_not_divide_and_takes_it_padded():
    with pytest.raises(ValueError, match="an axis of 10 must divide into 3 equal parts: pad it"):
        sequence(Group(3), SEQ).leave([X] * 3)
    padded = np.split(np.pad(X, ((0, 0), (0, 2), (0, 0))), 3, 1)
    outputs, _ = forward(split_weights(WEIGHTS, 3), padded, sequence(Group(3), SEQ + 2))
    np.testing.assert_allclose(np.concatenate(outputs, 1)[:, :SEQ], whole()[0], **CLOSE)


def test_a_tensor_parallel_step_of_adam_is_the_whole_one():
    gradients = whole()[1]
    moved = unflat(adam(states(WEIGHTS)[0], flat(gradients)).weights, WEIGHTS)
    pairs = zip(split_weights(WEIGHTS, 2), split_weights(gradients, 2), strict=True)
    apiece = [unflat(adam(states(w)[0], flat(g)).weights, w) for w, g in pairs]
    assert_same(join_weights(apiece), moved)


def test_no_head_is_cut():
    with pytest.raises(ValueError, match="tp must be at most 3: no key/value head or column is cut, got 4"):
        split_weights(WEIGHTS, 4)


@pytest.mark.parametrize("bad", [0, 1.5, -1])
def test_a_bad_count_is_refused_by_name(bad):
    for name, call in (
        ("tp", lambda: split_weights(WEIGHTS, bad)), ("shards", lambda: states(WEIGHTS, bad)),
        ("ranks", lambda: Group(bad)), ("cp", lambda: zigzag(SEQ, bad)), ("cp", lambda: contiguous(SEQ, bad)),
        ("inner", lambda: parameters(12, 3, 2, 2, bad, seed=1)),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"{name} must be a whole number ≥ 1, got {bad}"):
            call()


# Context parallel


@pytest.mark.parametrize("cut", [zigzag, contiguous])
@pytest.mark.parametrize("cp", [1, 2, 3, 4])  # ten tokens do not divide by three or four
def test_context_parallel_is_the_whole_block(cut, cp):
    z, gradients, dx = whole()
    places = cut(SEQ, cp)
    split, order = context(Group(cp), places), np.argsort(np.concatenate(places))
    outputs, kept = forward([WEIGHTS] * cp, [X[:, at] for at in places], split)
    ds = [output - TARGET[:, at] for output, at in zip(outputs, places, strict=True)]
    parts, inputs = backward([WEIGHTS] * cp, ds, split, kept)
    np.testing.assert_allclose(np.concatenate(outputs, 1)[:, order], z, **CLOSE)
    np.testing.assert_allclose(np.concatenate(inputs, 1)[:, order], dx, **CLOSE)
    assert_same({name: sum(part[name] for part in parts) for name in NAMES}, gradients)


def test_attention_over_two_sets_of_keys_merges_to_attention_over_both():
    rng = np.random.default_rng(4)
    q, kv, rows = rng.standard_normal((1, 2, 3, 5, 4)), rng.standard_normal((2, 1, 2, 9, 4)), np.arange(4, 9)
    some, rest = np.array([0, 3, 8]), np.array([1, 2, 4, 5, 6, 7])
    both, log_sum = attend(q, kv, rows, np.arange(9))
    parts = [attend(q, kv[:, :, :, part], rows, part) for part in (some, rest)]
    for merged in (merge(*parts), merge(*parts[::-1])):
        np.testing.assert_allclose(merged[0], both, **CLOSE)
        np.testing.assert_allclose(merged[1], log_sum, **CLOSE)


def test_keys_that_are_all_masked_weigh_nothing():
    q, kv = np.ones((1, 1, 1, 2, 4)), np.arange(16.0).reshape(2, 1, 1, 2, 4)
    seen = attend(q, kv, np.array([1, 2]), np.array([0, 1]))
    for masked in (attend(q, kv, np.array([1, 2]), np.array([5, 6])),):
        assert np.array_equal(merge(seen, masked)[0], seen[0])
        assert np.array_equal(merge(masked, seen)[0], seen[0])


def pairs_attended(places):
    """Queries times keys up to them, by rank."""
    return [sum(at + 1 for at in own) for own in places]


def test_a_zigzag_gives_all_ranks_the_same_work_and_contiguous_parts_nearly_twice_the_mean_to_the_last():
    assert np.ptp(pairs_attended(zigzag(48, 4))) == 0
    work = pairs_attended(contiguous(4800, 4))
    assert work[-1] / np.mean(work) == pytest.approx(2 - 1 / 4, rel=1e-3)
    for cut in (zigzag, contiguous):
        assert sorted(np.concatenate(cut(SEQ, 3))) == list(range(SEQ))
        assert sorted(np.concatenate(cut(200, 50))) == list(range(200))


# Data parallel: replicas and ZeRO

STEPS = {"replicas": replica_step, "ZeRO-1": zero1_step, "ZeRO-2": zero2_step, "ZeRO-3": zero3_step}


def uneven(ranks, micro=2, seq=SEQ, seed=5):
    """Micro-batches of one to three sequences: the last ranks' are smaller or larger than the others'."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, (ranks, micro))
    return [[tuple(rng.standard_normal((2, size, seq, H))) for size in own] for own in sizes]


def together(batches):
    """All micro-batches of all ranks as one."""
    x, target = zip(*(batch for own in batches for batch in own), strict=True)
    return [[(np.concatenate(x), np.concatenate(target))]]


def after(step, ranks, batches, like=WEIGHTS, steps=3, group=None):
    """The states after some steps."""
    own = states(like) * ranks if step is replica_step else states(like, ranks)
    for _ in range(steps):
        own = step(own, batches, like, group or Group(ranks))
    return own


def joined(step, own, part="weights"):
    vectors = [getattr(state, part) for state in own]
    return vectors[0] if step is replica_step else np.concatenate(vectors)[:SIZE]


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])  # three and seven do not divide the weights
@pytest.mark.parametrize("name", STEPS)
def test_three_steps_of_data_parallel_are_three_steps_of_the_whole(name, ranks):
    batches = uneven(ranks)
    (one,) = after(replica_step, 1, together(batches))
    own = after(STEPS[name], ranks, batches)
    for part in ("weights", "mean", "square"):
        np.testing.assert_allclose(joined(STEPS[name], own, part), getattr(one, part), **CLOSE)
    assert not np.allclose(one.weights, flat(WEIGHTS), atol=1e-3)
    assert [state.steps for state in own] == [3] * ranks


def test_the_first_step_moves_by_the_mean_gradient_of_all_tokens():
    state, batches = states(WEIGHTS)[0], [[(X, TARGET)], [(X[:1], TARGET[:1])]]
    sums = [gradient(state, state.weights, state.weights, b, WEIGHTS) for (b,) in batches]
    np.testing.assert_allclose(sums[0], flat(whole()[1]), **CLOSE)
    for name, step in STEPS.items():
        mean = joined(step, after(step, 2, batches, steps=1), "mean")
        np.testing.assert_allclose(mean, 0.1 * (sums[0] + sums[1]) / (3 * SEQ), **CLOSE, err_msg=name)


@pytest.mark.parametrize("name", ["ZeRO-2", "ZeRO-3"])
def test_a_rank_without_its_micro_batch_is_refused_and_with_an_empty_one_is_not(name):
    some, none = (X, TARGET), (X[:0], TARGET[:0])
    with pytest.raises(ValueError, match=r"as many micro-batches at each rank .*, got \[2, 1\]"):
        after(STEPS[name], 2, [[some, some], [some]])
    own = after(STEPS[name], 2, [[some, some], [some, none]])
    (one,) = after(replica_step, 1, [[some] * 3])
    np.testing.assert_allclose(joined(STEPS[name], own), one.weights, **CLOSE)


def test_replicas_agree_to_the_last_bit():
    own = after(replica_step, 3, uneven(3))
    assert all(np.array_equal(state.weights, own[0].weights) for state in own)


def test_a_shard_holds_its_part_of_the_weights_and_moments_and_padding_stays_zero():
    own = states(WEIGHTS, 7)
    assert [len(state.weights) for state in own] == [-(-SIZE // 7)] * 7
    assert [state.steps for state in own] == [0] * 7
    assert not any(state.mean.any() or state.square.any() for state in own)
    padding = np.concatenate([s.weights for s in after(zero3_step, 7, uneven(7))])[SIZE:]
    assert padding.size and not padding.any()


def test_in_single_precision_the_order_of_the_sum_shows_at_its_rounding():
    single = {name: array.astype(np.float32) for name, array in WEIGHTS.items()}
    batches = [[tuple(part.astype(np.float32) for part in batch) for batch in own] for own in uneven(4)]
    sums = [sum(gradient(s, s.weights, s.weights, b, single) for b in own)
            for s, own in zip(states(single) * 4, batches, strict=True)]  # fmt: skip
    ((all_of_it,),), (state,) = together(batches), states(single)
    total = gradient(state, state.weights, state.weights, all_of_it, single)
    error = np.abs(Group(4).all_reduce(sums)[0] - total).max() / np.abs(total).max()
    assert total.dtype == np.float32
    assert 1e-9 < error < 1e-5


def test_a_mean_of_the_ranks_means_is_wrong_unless_all_have_as_many_tokens():
    state = states(WEIGHTS)[0]
    for batches, right in ((uneven(3), False), ([[(X, TARGET)], [(2 * X, TARGET)]], True)):
        sums = [sum(gradient(state, state.weights, state.weights, b, WEIGHTS) for b in own) for own in batches]
        mean = np.sum(sums, axis=0) / tokens(batches)
        of_means = np.mean([part / tokens([own]) for part, own in zip(sums, batches, strict=True)], axis=0)
        assert np.allclose(of_means, mean, rtol=1e-9) is right
    assert tokens(uneven(3)) == sum(x.shape[0] * SEQ for own in uneven(3) for x, _ in own)


def test_adam_is_its_textbook_and_does_not_notice_a_sum_in_place_of_a_mean():
    rng = np.random.default_rng(6)
    state = State(rng.standard_normal(5), np.zeros(5), np.zeros(5))
    summed, w, m, v = state, state.weights.copy(), np.zeros(5), np.zeros(5)
    for step in range(1, 5):
        g = rng.standard_normal(5)
        m, v = m + (g - m) * 0.1, v + (g * g - v) * 0.01
        w -= 0.01 * m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.99**step)) + 1e-8)
        state, summed = adam(state, g), adam(summed, 64 * g)
        np.testing.assert_allclose(state.weights, w, rtol=1e-13)
    np.testing.assert_allclose(summed.weights, w, rtol=1e-6)


def test_weights_survive_being_a_vector_and_being_split():
    assert_same(unflat(np.pad(flat(WEIGHTS), (0, 3)), WEIGHTS), WEIGHTS)
    assert_same(join_weights(split_weights(WEIGHTS, 3)), WEIGHTS)
    assert [shard["q"].shape[1] for shard in split_weights(WEIGHTS, 2)] == [2, 1]


def test_what_is_shifted_comes_back_after_a_round_and_each_sends_its_own():
    group, arrays = Group(3), [np.zeros(r + 1) for r in range(3)]
    moved = group.shift(arrays)
    assert [len(array) for array in moved] == [3, 1, 2]
    assert list(group.sent) == [8, 16, 24]
    assert [len(array) for array in group.shift(group.shift(moved))] == [1, 2, 3]
