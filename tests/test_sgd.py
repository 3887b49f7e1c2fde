"""Small trainings against hand-made loops, known limits and the mean of the maximum; the clock counts every second."""

import numpy as np
import pytest

from distlib.sgd import (
    Clock,
    Problem,
    asynchronous,
    compressed,
    local,
    low_rank,
    low_rank_ratio,
    regression,
    synchronous,
    top_k,
    top_k_ratio,
)

SMALL = regression(workers=4, rows=32, d=6, c=3)
FIELDS = ("time", "loss", "gradients", "computing", "waiting", "communicating")


def plain_loss(problem, weights):
    return 0.5 * np.mean(np.sum((problem.inputs @ weights - problem.targets) ** 2, axis=2))


def same(one, other, **tolerance):
    return all(getattr(one, f) == pytest.approx(getattr(other, f), **tolerance) for f in FIELDS)


def test_the_loss_is_the_mean_square_less_its_minimum_and_is_least_at_the_best_weights():
    weights = np.random.default_rng(1).standard_normal(SMALL.shape)
    assert SMALL.loss(weights) == pytest.approx(plain_loss(SMALL, weights) - plain_loss(SMALL, SMALL.best))
    assert SMALL.loss(SMALL.best) == 0


def test_a_gradient_is_the_slope_of_the_loss_on_the_rows_drawn():
    weights = np.random.default_rng(2).standard_normal(SMALL.shape)
    found = SMALL.gradients(weights, np.random.default_rng(7), 5)
    rows = np.random.default_rng(7).integers(32, size=(4, 5, 1))[..., 0]
    for worker in range(4):
        drawn = Problem(
            SMALL.inputs[worker : worker + 1, rows[worker]], SMALL.targets[worker : worker + 1, rows[worker]]
        )
        for place in np.ndindex(SMALL.shape):
            step = np.zeros(SMALL.shape)
            step[place] = 1e-4
            slope = (plain_loss(drawn, weights + step) - plain_loss(drawn, weights - step)) / 2e-4
            assert found[worker][place] == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_one_worker_s_gradient_is_its_part_of_all():
    alone = Problem(SMALL.inputs[2:3], SMALL.targets[2:3])
    weights = np.ones(SMALL.shape)
    one = SMALL.gradient(weights, 2, np.random.default_rng(3), 6)
    assert one == pytest.approx(alone.gradients(weights, np.random.default_rng(3), 6)[0])


def test_the_problem_has_scales_from_one_to_a_third_and_workers_that_differ():
    wide = regression(workers=8, rows=20_000, d=4, c=5, unlike=0.5, noise=0.1)
    assert wide.inputs.std(axis=(0, 1)) == pytest.approx(np.geomspace(1, 1 / 3, 4), rel=0.01)
    own = np.array([np.linalg.lstsq(x, y)[0] for x, y in zip(wide.inputs, wide.targets, strict=True)])
    assert (own - own.mean(axis=0)).std() == pytest.approx(0.5 * np.sqrt(7 / 8), rel=0.15)
    left = wide.targets - wide.inputs @ own
    assert left.std() == pytest.approx(0.1, rel=0.01)
    assert (regression().workers, regression().inputs.shape[1], regression().shape) == (16, 64, (24, 16))
    assert own.mean(axis=0).std() == pytest.approx(1, rel=0.3)


def test_synchronous_training_is_the_plain_loop():
    clock = Clock(compute=2.0, jitter=0.3, comm=0.7)
    found = synchronous(SMALL, clock, 0.05, 6, batch=5, seed=9)
    data, times = np.random.default_rng([9, 0]), np.random.default_rng([9, 1])
    weights, now, busy = np.zeros(SMALL.shape), 0.0, 0.0
    for step in range(1, 7):
        weights = weights - 0.05 * SMALL.gradients(weights, data, 5).mean(axis=0)
        each = 2.0 * (1 + 0.3 * times.exponential(size=4))
        now, busy = now + each.max() + 0.7, busy + each.sum()
        assert found.loss[step] == pytest.approx(SMALL.loss(weights))
        assert found.time[step] == pytest.approx(now)
        assert found.computing[step] == pytest.approx(busy)
        assert found.communicating[step] == pytest.approx(step * 4 * 0.7)
        assert found.gradients[step] == 4 * step


@pytest.mark.parametrize("slow", [1.0, 3.0])
def test_every_worker_second_is_computing_waiting_or_communicating(slow):
    clock = Clock(jitter=0.4, comm=0.2, slow=slow)
    runs = [
        synchronous(SMALL, clock, 0.05, 20),
        local(SMALL, clock, 0.05, 5, 4),
        asynchronous(SMALL, clock, 0.05, 80)[0],
        compressed(SMALL, clock, 0.05, 20, top_k(3), True),
    ]
    for run in runs:
        assert run.computing + run.waiting + run.communicating == pytest.approx(4 * run.time)
        assert run.loss[0] == pytest.approx(SMALL.loss(np.zeros(SMALL.shape)))
        assert run.time[0] == run.gradients[0] == 0


def test_a_step_waits_for_the_harmonic_mean_maximum():
    many = regression(workers=16, rows=2, d=2, c=1)
    run = synchronous(many, Clock(compute=3.0, jitter=0.5), 1e-3, 4000, batch=1)
    spread = 3 * 0.5 * np.sqrt(sum(1 / k**2 for k in range(1, 17)))
    expected = 3 * (1 + 0.5 * sum(1 / k for k in range(1, 17)))
    assert run.time[-1] / 4000 == pytest.approx(expected, abs=3.5 * spread / np.sqrt(4000))
    assert run.computing[-1] / 4000 / 16 == pytest.approx(3 * 1.5, abs=3.5 * 1.5 / np.sqrt(64_000))


def test_local_steps_average_the_waiting_away():
    many = regression(workers=16, rows=2, d=2, c=1)
    clock = Clock(jitter=0.5, comm=1.0)
    one, nine = local(many, clock, 1e-3, 900, 1, 1), local(many, clock, 1e-3, 100, 9, 1)
    assert nine.communicating[-1] == pytest.approx(one.communicating[-1] / 9)
    assert nine.waiting[-1] < 0.45 * one.waiting[-1]
    assert nine.gradients[-1] == one.gradients[-1] == 900 * 16


def test_local_training_is_the_plain_loop_and_takes_the_mean():
    found = local(SMALL, Clock(), 0.05, 3, 4, batch=5, seed=2)
    data, common = np.random.default_rng([2, 0]), np.zeros(SMALL.shape)
    for step in range(1, 4):
        own = np.array([common] * 4)
        for _ in range(4):
            own = own - 0.05 * SMALL.gradients(own, data, 5)
        common = own.mean(axis=0)
        assert found.loss[step] == pytest.approx(SMALL.loss(common))


def test_a_single_worker_trains_the_same_whether_it_synchronises_or_not():
    alone = regression(workers=1, rows=32, d=6, c=3)
    clock = Clock(jitter=0.2, comm=0.5)
    one, (other, stale) = synchronous(alone, clock, 0.05, 12), asynchronous(alone, clock, 0.05, 12)
    assert same(one, other)
    assert not stale.any()


def test_equal_workers_have_a_staleness_of_all_the_others():
    run, stale = asynchronous(SMALL, Clock(compute=2.0, comm=0.5), 0.05, 400)
    assert stale[:4].tolist() == [0, 1, 2, 3]
    assert np.all(stale[4:] == 3)
    assert run.time[-1] == pytest.approx(100 * 2.5)
    assert not run.waiting.any()
    assert run.communicating[-1] == pytest.approx(400 * 0.5)
    assert run.gradients.tolist() == list(range(0, 401, 4))


def test_a_slow_worker_slows_its_own_updates_alone():
    run, stale = asynchronous(SMALL, Clock(slow=5.0), 0.05, 4000)
    assert run.time[-1] == pytest.approx(4000 / (3 + 1 / 5), rel=0.01)
    assert stale.mean() == pytest.approx(3, abs=0.02)
    barrier = synchronous(SMALL, Clock(slow=5.0), 0.05, 10)
    assert barrier.time[-1] == pytest.approx(50)
    assert barrier.waiting[-1] == pytest.approx(10 * 3 * 4)


def test_asynchronous_updates_use_the_weights_that_were_read():
    found, _ = asynchronous(SMALL, Clock(), 0.05, 8, batch=5, seed=6)
    data, weights = np.random.default_rng([6, 0]), np.zeros(SMALL.shape)
    read = [weights] * 4
    for update in range(8):  # equal times: in turn
        worker = update % 4
        weights = weights - 0.05 / 4 * SMALL.gradient(read[worker], worker, data, 5)
        read[worker] = weights
    assert found.loss[2] == pytest.approx(SMALL.loss(weights))


# Compression


def test_a_compressor_that_sends_all_is_no_compression():
    clock = Clock(jitter=0.3, comm=0.1)
    plain = synchronous(SMALL, clock, 0.05, 15)
    for compress in (top_k(18), low_rank(3)):
        for feedback in (True, False):
            assert same(compressed(SMALL, clock, 0.05, 15, compress, feedback), plain, rel=1e-9)


def test_feedback_sends_later_what_was_not_sent_and_without_it_that_is_lost():
    def every_other():
        count = iter(range(100))
        return lambda whole: whole * (next(count) % 2)

    data = np.random.default_rng([4, 0])
    gradient = [SMALL.gradients(np.zeros(SMALL.shape), data, 5).mean(axis=0) for _ in range(2)]
    kept = compressed(SMALL, Clock(), 0.05, 2, every_other(), True, batch=5, seed=4)
    lost = compressed(SMALL, Clock(), 0.05, 2, every_other(), False, batch=5, seed=4)
    assert kept.loss[1] == lost.loss[1] == kept.loss[0]
    assert kept.loss[2] == pytest.approx(SMALL.loss(-0.05 * (gradient[0] + gradient[1])))
    assert lost.loss[2] == pytest.approx(SMALL.loss(-0.05 * gradient[1]))


def test_top_k_keeps_the_largest_magnitudes_of_each_worker():
    whole = np.random.default_rng(5).standard_normal((300, 6, 4))
    sent = top_k(5)(whole)
    for before, after in zip(whole, sent, strict=True):
        least = np.sort(np.abs(before).ravel())[-5]
        assert after == pytest.approx(np.where(np.abs(before) >= least, before, 0))


def test_a_low_rank_repeated_tends_to_the_best_one():
    whole = np.random.default_rng(6).standard_normal((3, 6, 4))
    left, scale, right = np.linalg.svd(whole.mean(axis=0), full_matrices=False)
    compress = low_rank(2)
    for _ in range(200):
        sent = compress(whole)
    assert sent[0] == pytest.approx((left[:, :2] * scale[:2]) @ right[:2], abs=1e-9)
    assert np.all(sent == sent[0])
    assert np.linalg.matrix_rank(low_rank(2)(whole)[0]) == 2


def test_what_is_sent_is_counted_in_numbers():
    assert top_k_ratio(24, 16, 16) == 384 / 32
    assert low_rank_ratio(24, 16, 2) == 384 / 80


# What the book shows


def test_the_book_s_problem_is_the_same_wherever_it_is_drawn():
    assert regression().loss(np.zeros((24, 16))) == pytest.approx(82.19495297850766, rel=1e-9)
    assert np.abs(regression().targets).sum() == pytest.approx(45711.00051772355, rel=1e-9)


def test_a_target_is_reached_at_the_first_entry_below_it():
    run = synchronous(SMALL, Clock(), 0.05, 10)
    assert [run.reached(loss) for loss in run.loss[:4]] == [0, 1, 2, 3]


def test_on_the_book_s_problem_feedback_decides_and_staleness_costs_gradients():
    problem, clock = regression(), Clock(jitter=0.2, comm=0.1)
    plain = synchronous(problem, clock, 0.2, 60)
    with pytest.raises(ValueError, match="target"):
        compressed(problem, clock, 0.2, 150, top_k(16), False).reached(1.0)
    kept = compressed(problem, clock, 0.2, 150, top_k(16), True)
    assert plain.reached(1.0) < kept.reached(1.0) < 90
    fast, slow = synchronous(problem, clock, 0.4, 60), asynchronous(problem, clock, 0.4, 60 * 16)[0]
    assert slow.gradients[slow.reached(1.0)] > 1.05 * fast.gradients[fast.reached(1.0)]
    assert slow.time[slow.reached(1.0)] < fast.time[fast.reached(1.0)]


@pytest.mark.parametrize("bad", [{"compute": 0.0}, {"jitter": -0.1}, {"comm": -1.0}, {"slow": 0.0}])
def test_a_clock_out_of_its_domain_is_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Clock(**bad)
