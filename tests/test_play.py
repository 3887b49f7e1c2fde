"""The played algorithms end with the right arrays, and cost what the formulas of `collectives` say."""

import dataclasses
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlib import collectives, play
from distlib.alphabeta import Link, exposed_time, transfer_time
from distlib.collectives import LevelBytes
from played import (
    ALGORITHMS,
    LINK,
    RANKS,
    arrays,
    divisible,
    links_of,
    needs_power_of_two,
    operation,
    played,
    takes,
)
from played import settings as settings_of

ITEM = 8  # bytes of an element
ONE_LEVEL = [name for name in ALGORITHMS if not takes(name, "rails")]
TWO_LEVELS = [name for name in ALGORITHMS if takes(name, "rails")]
IN_SWITCH = ["in_network_all_reduce", "nvls_all_reduce"]
ON_WIRES = [name for name in ALGORITHMS if name.startswith(("line", "torus"))]


def counts(name, count):
    """The argument after the link, if there is one."""
    return (count,) if takes(name, "chunks") or takes(name, "axes") else ()


def array_size(name, ranks, size):
    """n in bytes, when each rank brings `size` elements."""
    return ITEM * size * (ranks if operation(name) == "all_gather" else 1)


def formula(name, n, ranks, arguments):
    """The time that `collectives` gives; there gpus come before the links too, the array size and N before all."""
    return getattr(collectives, name)(n, ranks, *arguments)


def right_results(name, given):
    """The definition of each operation, for one array a rank."""
    ranks, size = given.shape
    total = given.sum(axis=0)
    cuts = [slice(size * i // ranks, size * (i + 1) // ranks) for i in range(ranks)]
    return {
        "all_reduce": [total] * ranks,
        "all_gather": [given.ravel()] * ranks,
        "reduce_scatter": [total[cut] for cut in cuts],
        "all_to_all": [np.concatenate([row[cut] for row in given]) for cut in cuts],
        "broadcast": [given[0]] * ranks,
        "reduce": [total],
    }[operation(name)]


def every(name):
    for ranks, arguments in settings_of(name):
        size = divisible(ranks, arguments)
        yield ranks, arguments, size, played(name, ranks, arguments, size)


def assert_results(name, results, given):
    right = right_results(name, np.array(given))
    assert len(results) == len(right)
    for result, expected in zip(results, right, strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_rank_ends_with_what_the_operation_defines(name):
    for ranks, _, size, result in every(name):
        assert_results(name, result.results, arrays(ranks, size))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_formula_is_the_played_time(name):
    for ranks, arguments, size, result in every(name):
        time = formula(name, array_size(name, ranks, size), ranks, arguments)
        assert result.time == pytest.approx(time, rel=1e-12), (ranks, arguments)


@pytest.mark.parametrize("name", ONE_LEVEL)
def test_the_formula_with_no_bytes_counts_the_rounds(name):
    for ranks, (_, *chunks), _, result in every(name):
        assert result.rounds == formula(name, 0, ranks, (Link(1, 1), *chunks)), (ranks, chunks)


@pytest.mark.parametrize("name", TWO_LEVELS)
def test_the_formula_with_no_bytes_counts_the_rounds_of_both_levels(name):
    for ranks, (gpus, *links, rails), _, result in every(name):
        assert result.rounds == formula(name, 0, ranks, (gpus, *[Link(1, 1) for _ in links], rails)), (ranks, gpus)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_formula_is_the_mean_of_the_bytes_sent(name):
    for ranks, arguments, size, result in every(name):
        gpus = arguments[:1] if name in TWO_LEVELS else ()
        bytes_sent = getattr(collectives, name + "_bytes")(array_size(name, ranks, size), ranks, *gpus)
        if isinstance(bytes_sent, LevelBytes):
            assert result.intra.mean() == pytest.approx(bytes_sent.intra, rel=1e-12), (ranks, arguments)
            assert result.inter.mean() == pytest.approx(bytes_sent.inter, rel=1e-12), (ranks, arguments)
        else:
            assert result.sent.mean() == pytest.approx(bytes_sent, rel=1e-12), (ranks, arguments)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_busiest_rank_sends_what_its_formula_says_or_as_much_as_all(name):
    busiest = getattr(collectives, name + "_busiest_bytes", None)
    for ranks, arguments, size, result in every(name):
        most = busiest(array_size(name, ranks, size), ranks) if busiest else result.sent.mean()
        assert result.sent.max() == pytest.approx(most, rel=1e-12), (ranks, arguments)


@pytest.mark.parametrize("name", ONE_LEVEL)
def test_of_one_level_nothing_leaves_the_one_node(name):
    for _, _, _, result in every(name):
        assert not result.inter.any()


def test_only_the_exits_of_a_flat_ring_send_to_other_nodes():
    for ranks, arguments, size, result in every("flat_ring_all_reduce"):
        gpus, _, _, rails = arguments
        if gpus < ranks:
            assert np.count_nonzero(result.inter) == rails * ranks // gpus
            assert result.inter.max() == pytest.approx(2 * (ranks - 1) * ITEM * size / (ranks * rails))


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_a_pairwise_exchange_sends_the_off_node_share_across_and_a_little_inside(gpus):
    ranks, n = 8, 8 * 16 * ITEM
    result = play.pairwise_all_to_all(arrays(ranks, 8 * 16), LINK, gpus=gpus)
    assert np.all(result.inter == n * collectives.off_node_share(ranks, gpus))
    assert np.all(result.intra == n * (gpus - 1) / ranks)
    assert result.time == pytest.approx(collectives.pairwise_all_to_all(n, ranks, LINK))


def test_every_formula_of_an_algorithm_has_been_played_and_every_play_has_its_formula():
    assert {name.removesuffix("_bytes") for name in vars(collectives) if name.endswith("_bytes")} == {
        *ALGORITHMS,
        *(f"{name}_busiest" for name in ALGORITHMS if hasattr(collectives, name + "_busiest_bytes")),
    }


# The shape of the algorithms


@pytest.mark.parametrize("name", sorted({*ONE_LEVEL} - {"double_tree_all_reduce", *IN_SWITCH, *ON_WIRES}))
def test_a_rank_sends_and_receives_at_most_one_message_a_round(name):
    for _, _, _, result in every(name):
        for messages in result.schedule:
            assert max(Counter(m.source for m in messages).values()) == 1
            assert max(Counter(m.to for m in messages).values()) == 1


@pytest.mark.parametrize("name", ON_WIRES)
def test_on_direct_wires_only_neighbours_talk_and_a_wire_carries_one_message_a_round_each_way(name):
    for ranks, (_, *axes), _, result in every(name):
        side = round(ranks ** (1 / sum(axes))) if axes else ranks
        places = np.array(np.unravel_index(range(ranks), (side,) * sum(axes or [1]))).T
        for messages in result.schedule:
            assert max(Counter((m.source, m.to) for m in messages).values()) == (2 if axes and side == 2 else 1)
            for m in messages:
                steps = np.abs(places[m.source] - places[m.to])
                assert np.minimum(steps, side - steps).sum() == 1 if axes else steps.sum() == 1


@pytest.mark.parametrize(("ranks", "axes"), [(3, 1), (16, 1), (9, 2), (16, 2), (64, 3)])
def test_a_torus_keeps_every_wire_busy_in_every_round(ranks, axes):
    result = played("torus_all_reduce", ranks, (LINK, axes), 2 * ranks * axes)
    for messages in result.schedule:
        assert len({(m.source, m.to) for m in messages}) == 2 * axes * ranks
        assert len({m.take.stop - m.take.start for m in messages}) == 1


def test_in_a_double_tree_a_rank_sends_and_receives_at_most_two_messages_a_round():
    for ranks, _, _, result in every("double_tree_all_reduce"):
        for messages in result.schedule:
            assert max(Counter(m.source for m in messages).values()) <= 2
            assert max(Counter(m.to for m in messages).values()) <= 2
        assert result.rounds == 0 or ranks > 1


@pytest.mark.parametrize("ranks", range(1, 131))
def test_the_two_trees_span_all_ranks_and_no_rank_has_children_in_both(ranks):
    interior = []
    for tree in play.double_tree(ranks):
        assert tree.count(-1) == 1 and len(tree) == ranks
        children = Counter(parent for parent in tree if parent >= 0)
        assert max(children.values(), default=0) <= 2
        interior.append(set(children))
        depths = []
        for rank in range(ranks):
            path = [rank]
            while tree[path[-1]] >= 0:
                path.append(tree[path[-1]])
                assert len(path) <= ranks  # no cycle
            depths.append(len(path) - 1)
        assert max(depths) == collectives.double_tree_depth(ranks) == ranks.bit_length() - 1
    assert not interior[0] & interior[1]


@pytest.mark.parametrize("chunks", [1, 2, 5])
def test_without_its_clock_a_double_tree_would_gain_at_powers_of_two_alone(monkeypatch, chunks):
    one_play = play._play
    monkeypatch.setattr(play, "_play", lambda *args, full, **kwargs: one_play(*args, **kwargs))
    for ranks in RANKS[1:]:
        n = ITEM * 2 * ranks * chunks
        free = play.double_tree_all_reduce(arrays(ranks, 2 * ranks * chunks), LINK, chunks).time
        gain = n / LINK.beta if ranks == 2 else n / (chunks * LINK.beta) if ranks & (ranks - 1) == 0 else 0
        assert collectives.double_tree_all_reduce(n, ranks, LINK, chunks) - free == pytest.approx(gain, abs=1e-9)


def test_holdings_tell_whose_data_a_rank_has_summed():
    ranks = 5
    result = play.ring_all_reduce([np.full(ranks, 2**rank) for rank in range(ranks)], LINK)
    memories = list(result.holdings())
    assert len(memories) == result.rounds + 1
    np.testing.assert_array_equal(memories[0], result.start)
    for after, memory in enumerate(memories[:ranks]):  # in the reduce-scatter the richest piece gains one term a round
        assert all(max(int(held).bit_count() for held in row) == after + 1 for row in memory)
    np.testing.assert_array_equal(memories[-1], 2**ranks - 1)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_playing_leaves_the_arrays_alone_and_its_record_cannot_be_set(name):
    ranks, rest = 4, (2, *links_of(name), 2) if name in TWO_LEVELS else (LINK, *counts(name, 2))
    mine, untouched = arrays(ranks, 16), arrays(ranks, 16)
    result = getattr(play, name)(mine, *rest)
    for held in result.results:
        held[:] = 0
    np.testing.assert_array_equal(mine, untouched)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.time = 0


# What does not divide


@settings(max_examples=150)
@given(st.data())
def test_uneven_pieces_still_give_the_right_results_in_a_time_between_two_formulas(data):
    name = data.draw(st.sampled_from([name for name in ALGORITHMS if operation(name) != "all_to_all"]))
    ranks = data.draw(st.sampled_from([1, 2, 4, 8, 16] if needs_power_of_two(name) else range(1, 13)))
    size = data.draw(st.integers(0, 60))
    if name in TWO_LEVELS:
        gpus = data.draw(st.sampled_from([g for g in range(1, ranks + 1) if ranks % g == 0]))
        rails = data.draw(st.sampled_from([r for r in range(1, gpus + 1) if gpus % r == 0]))
        arguments = (gpus, *links_of(name), rails)
    else:
        roots = [x for x in range(1, 5) if round(ranks ** (1 / x)) ** x == ranks]
        count = data.draw(st.sampled_from(roots) if takes(name, "axes") else st.integers(1, 9))
        arguments = (LINK, *counts(name, count))
    mine = arrays(ranks, size)
    result = getattr(play, name)(mine, *arguments)
    assert_results(name, result.results, mine)
    even = divisible(ranks, arguments)
    below, above = (
        formula(name, array_size(name, ranks, elements), ranks, arguments)
        for elements in (size, -(-size // even) * even)
    )
    assert below * (1 - 1e-12) <= result.time <= above * (1 + 1e-12)
    gpus = arguments[:1] if name in TWO_LEVELS else ()
    sent = getattr(collectives, name + "_bytes")(array_size(name, ranks, size), ranks, *gpus)
    in_all = sent.intra + sent.inter if name in TWO_LEVELS else sent
    assert result.sent.mean() == pytest.approx(in_all, rel=1e-12)


# Bad input


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("bad", [[], None, 3, "ab", [[1.0, 2.0], [1.0]], [[[1.0]]], [["a"]], [[True]], [[None]], [1.0]])
def test_arrays_that_are_not_one_row_of_numbers_a_rank_are_refused(name, bad):
    rest = (1, *links_of(name), 1) if name in TWO_LEVELS else (LINK, *counts(name, 1))
    with pytest.raises(ValueError, match="^arrays must be one array of numbers a rank"):
        getattr(play, name)(bad, *rest)


@pytest.mark.parametrize("bad", [0, 2.5, -1, np.nan, np.inf, "2", None, True, [2, 1]])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_bad_count_is_refused_by_name(name, bad):
    mine, call = arrays(4, 8), getattr(play, name)
    if name in TWO_LEVELS:
        with pytest.raises(ValueError, match=r"^gpus must be .*whole number"):
            call(mine, bad, *links_of(name), 1)
        with pytest.raises(ValueError, match=r"^rails must be .*whole number"):
            call(mine, 2, *links_of(name), bad)
    for count in ("chunks", "axes"):
        if takes(name, count):
            with pytest.raises(ValueError, match=rf"^{count} must be .*whole number"):
                call(mine, LINK, bad)
    if name in ONE_LEVEL and takes(name, "gpus") and bad is not None:
        rest = (LINK, *counts(name, 1))
        with pytest.raises(ValueError, match=r"^gpus must be .*whole number"):
            call(mine, *rest, gpus=bad)


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if needs_power_of_two(name)])
@pytest.mark.parametrize("ranks", [3, 5, 6, 7, 12])
def test_ranks_that_are_no_power_of_two_are_refused_by_name(name, ranks):
    with pytest.raises(ValueError, match=f"^ranks must be a power of two .*, got {ranks}"):
        getattr(play, name)(arrays(ranks, 12), LINK)


@pytest.mark.parametrize("name", TWO_LEVELS)
def test_nodes_and_rails_that_do_not_divide_are_refused_by_name(name):
    with pytest.raises(ValueError, match=r"^ranks / gpus must be a whole number ≥ 1, got 1.5"):
        getattr(play, name)(arrays(6, 12), 4, *links_of(name), 1)
    with pytest.raises(ValueError, match=r"^gpus / rails must be a whole number ≥ 1, got 1.5"):
        getattr(play, name)(arrays(6, 12), 3, *links_of(name), 2)


@pytest.mark.parametrize(("ranks", "axes"), [(8, 2), (6, 2), (9, 3), (2, 2)])
def test_ranks_that_are_no_power_of_their_axes_are_refused_by_name(ranks, axes):
    for call in (play.torus_all_reduce, lambda rows, link, axes: collectives.torus_all_reduce(1, ranks, link, axes)):
        with pytest.raises(ValueError, match=r"^ranks \*\* \(1 / axes\) must be a whole number ≥ 1, got [12]\.[0-9]"):
            call(arrays(ranks, 12), LINK, axes)


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if operation(name) == "all_to_all"])
def test_an_all_to_all_that_does_not_divide_is_refused(name):
    rest = (1, *links_of(name), 1) if name in TWO_LEVELS else (LINK,)
    with pytest.raises(ValueError, match="^arrays must have a multiple of 4 .* elements, got 6"):
        getattr(play, name)(arrays(4, 6), *rest)


def test_a_double_tree_needs_a_whole_number_of_ranks():
    with pytest.raises(ValueError, match="^ranks must be a whole number"):
        play.double_tree(0)


def test_the_ranks_that_are_tested_are_those_the_book_promises():
    assert RANKS == [*range(1, 18), 64]


# The backward pass as a timeline

LAYER = st.floats(0.0, 2.0)


@st.composite
def passes(draw):
    """The arguments of `play.backward`: layers, ranks, sizes and links of all sorts."""
    ranks, depth = draw(st.integers(1, 5)), draw(st.integers(1, 7))
    compute = np.array([[draw(LAYER) for _ in range(depth)] for _ in range(ranks)])
    n = np.array([draw(st.floats(0.0, 3.0)) for _ in range(depth)])
    link = Link(draw(st.floats(0.0, 0.5)), draw(st.floats(0.2, 5.0)))
    rest = draw(st.floats(0.0, 1.0)), draw(st.floats(0.0, 1.0))
    return compute, n, draw(st.floats(0.1, 8.0)), lambda size: collectives.ring_all_reduce(size, ranks + 1, link), *rest


def meeting(one, other):
    """How long two spans (…, 2) run at once."""
    return np.clip(np.minimum(one[..., 1], other[..., 1]) - np.maximum(one[..., 0], other[..., 0]), 0, None)


@settings(max_examples=150, deadline=None)
@given(passes())
def test_no_stream_of_a_rank_does_two_things_at_once_and_none_runs_backwards(arguments):
    played = play.backward(*arguments)
    for rank in range(len(arguments[0])):
        for stream in ("compute", "comm"):
            spans = sorted((s.start, s.end) for s in played.spans if (s.rank, s.stream) == (rank, stream))
            assert all(start <= end for start, end in spans)
            assert all(before <= after + 1e-12 for (_, before), (after, _) in pairwise(spans))


@settings(max_examples=150, deadline=None)
@given(passes())
def test_the_work_done_is_the_work_given(arguments):
    compute, n, bucket, reduce, contention, drag = arguments
    played = play.backward(*arguments)
    ends = play.bucket_ends(n, bucket)
    parts = np.split(n, [end + 1 for end in ends[:-1]])
    for rank, layers in enumerate(played.layers):
        slowed = meeting(layers[:, None], played.buckets[None]).sum(axis=1)
        done = layers[:, 1] - layers[:, 0] - slowed * contention / (1 + contention)
        assert done == pytest.approx(compute[rank], abs=1e-9)
    last = played.layers[:, -1, 1].max()
    dragged = meeting(played.buckets, np.array([0.0, last]))
    sent = played.buckets[:, 1] - played.buckets[:, 0] - dragged * drag / (1 + drag)
    assert sent == pytest.approx([reduce(part.sum()) for part in parts], abs=1e-9)
    assert sum(part.sum() for part in parts) == pytest.approx(n.sum())
    clean = played.layers[:, -1, 1].mean() - compute.sum(axis=1).mean()
    assert played.slowdown == pytest.approx(clean, abs=1e-12)


@settings(max_examples=150, deadline=None)
@given(passes())
def test_a_bucket_waits_for_every_rank_and_for_the_one_before(arguments):
    played = play.backward(*arguments)
    for i, end in enumerate(play.bucket_ends(arguments[1], arguments[2])):
        free = played.buckets[i - 1, 1] if i else 0.0
        own = np.maximum(played.layers[:, end, 1], free)
        assert played.waits[:, i, 0] == pytest.approx(own)
        assert played.waits[:, i, 1] == pytest.approx(own.max())
        assert played.buckets[i, 0] == pytest.approx(own.max())


@settings(max_examples=150, deadline=None)
@given(passes())
def test_the_terms_of_a_played_pass_keep_their_bounds_and_give_its_length(arguments):  # B15
    played = play.backward(*arguments)
    step = played.step  # outside its bounds it would raise
    assert step.total == pytest.approx(played.total, abs=1e-9)
    assert step.share == pytest.approx(played.layers[:, -1, 1].mean())
    assert step.comm == pytest.approx((played.buckets[:, 1] - played.buckets[:, 0]).sum())
    streams = {name: [s for s in played.spans if s.stream == name] for name in ("compute", "comm")}
    both = sum(meeting(np.array([a.start, a.end]), np.array([b.start, b.end]))
               for a in streams["compute"] for b in streams["comm"] if a.rank == b.rank)  # fmt: skip
    assert step.overlap == pytest.approx(both / len(arguments[0]), abs=1e-9)


@pytest.mark.parametrize("buckets", [1, 3, 12])
@pytest.mark.parametrize("compute", [1.0, 12.0, 40.0])
def test_equal_buckets_leave_exposed_what_the_formula_says(buckets, compute):
    link = Link(0.3, 2.0)
    played = play.backward(np.full((1, 12), compute / 12), np.full(12, 2.5), 30 / buckets,
                           lambda n: transfer_time(n, link))  # fmt: skip
    assert len(played.buckets) == buckets
    assert played.total - compute == pytest.approx(exposed_time(30.0, buckets, compute, link))
    assert played.step.exposed == pytest.approx(exposed_time(30.0, buckets, compute, link))


def test_the_last_bucket_is_exposed_whatever_the_link():
    for beta in (1.0, 1e3, 1e9):
        link = Link(0.01, beta)
        played = play.backward(np.ones((3, 8)), np.ones(8), 2.0, lambda n, link=link: transfer_time(n, link))
        assert played.step.exposed >= (0.01 + 2.0 / beta) * (1 - 1e-9)


def test_contention_stretches_both_as_worked_out_by_hand():
    # layers of 4 s and 4 s, buckets of 3 s: the first is reduced beside the second layer at 2/3 of its speed for 4.5 s,
    # in which half of the speed of computation gives 2.25 s; the other 1.75 s run alone, then the last bucket
    played = play.backward(np.full((2, 2), 4.0), np.full(2, 3.0), 3.0, lambda n: n, contention=1.0, drag=0.5)
    assert played.buckets == pytest.approx(np.array([[4.0, 8.5], [10.25, 13.25]]))
    assert played.layers[0] == pytest.approx(np.array([[0.0, 4.0], [4.0, 10.25]]))
    assert played.slowdown == pytest.approx(2.25)
    assert (played.step.share, played.step.comm, played.step.overlap) == pytest.approx((10.25, 7.5, 4.5))


def test_a_late_rank_makes_the_others_wait_and_hides_less():
    compute = np.ones((4, 3))
    compute[2] = 1.5
    played = play.backward(compute, np.ones(3), 1.0, lambda n: 0.25)
    # ready at 1.5, 3 and 4.5 on the late rank; on the others at 1, 2 and 3
    assert played.buckets[:, 0] == pytest.approx([1.5, 3.0, 4.5])
    waited = (0.5 + 1.0 + 1.25) * 3 / 4  # the third could start at 3.25, when the second is through
    assert played.step.sync == pytest.approx(waited)
    assert played.step.overlap == pytest.approx((3 * (0.75 + 1.0) + 0.5) / 4)
    assert played.total == pytest.approx(4.75)


def test_a_bucket_closes_with_the_layer_that_fills_it():
    assert play.bucket_ends([4.0, 1.0, 1.0, 5.0, 1.0], 2.0) == [0, 2, 3, 4]
    assert play.bucket_ends([1.0, 1.0], 2.0) == [1]
    assert play.bucket_ends([1.0, 1.0], 9.0) == [1]
    assert play.bucket_ends([1.99, 1.0, 1.99, 1.0], 2.0) == [1, 3]


@pytest.mark.parametrize("name, bad", [
    ("compute", {"compute": [[1.0, -1.0]]}), ("compute", {"compute": [1.0, 2.0]}), ("compute", {"compute": [[1.0]]}),
    ("n", {"n": [1.0, np.nan]}), ("bucket", {"bucket": 0.0}), ("contention", {"contention": -0.1}),
    ("drag", {"drag": np.inf}),
])  # fmt: skip
def test_a_bad_backward_pass_is_refused_by_name(name, bad):
    good = {"compute": [[1.0, 2.0]], "n": [1.0, 1.0], "bucket": 1.0, "reduce": lambda n: n}
    with pytest.raises(ValueError, match=f"^{name} must be"):
        play.backward(**good | bad)
