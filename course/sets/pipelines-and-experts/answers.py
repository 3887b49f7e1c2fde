"""Right and known wrong answers of the set on pipeline and expert parallelism."""

from course.grading import Function, Prediction, Value
from distlib.parallel import (
    Layout,
    bubble_of_total,
    bubble_over_ideal,
    expert_nic_bytes,
    in_flight,
    zero_bubble_time,
)  # fmt: skip
from distlib.published import pipeline_runs
from distlib.schedules import gpipe, play


def m(p):
    return Layout(dp=p.dp, micro_batch=p.micro_batch, global_batch=p.global_batch).microbatches


def plain(p):
    return p.forward + p.backward


def zero(p):
    return zero_bubble_time(p.stages, p.forward, p.backward, p.weight)


def published(p):
    return [run for run in pipeline_runs() if run.model == p.model and run.schedule == "1F1B"][p.which]


def miss(p, bubble=1.0, weight=1.0):
    run = published(p)
    a_pass = run.forward + run.of_input + weight * run.weight
    predicted = run.microbatches * a_pass * (1 + bubble * bubble_over_ideal(run.stages, run.microbatches))
    return 100 * (predicted * run.throughput * run.stages / (run.microbatches * run.microbatch) - 1)


def ends(stages, microbatches, forward, backward):
    return play(gpipe(int(stages), int(microbatches)), forward, backward).makespan


TASKS = (
    Prediction(name="guess", options=("it halves", "it stays", "it doubles")),
    Value(
        name="bubble",
        right=lambda p: 100 * bubble_of_total(p.stages, m(p)),
        wrong={
            "that is a part of the ideal time, not of the total": lambda p: 100 * bubble_over_ideal(p.stages, m(p)),
            "m counts micro-batches of one pipeline: the batch is shared among dp of them": (
                lambda p: 100 * bubble_of_total(p.stages, m(p) * p.dp)
            ),
            "pp stages fill in pp − 1 passes": lambda p: 100 * p.stages / (m(p) + p.stages),
        },
    ),
    Function(
        name="gpipe",
        right=ends,
        cases=lambda p: [
            (p.stages, int(m(p)), p.forward, p.backward), (4, 1, 1.0, 2.0), (1, 5, 1.0, 3.0), (3, 7, 2.0, 1.0),
        ],
        wrong={
            "a pipeline drains too: the last backward pass ends stages − 1 passes later": (
                "def gpipe(stages, m, forward, backward):\n"
                "    return (m + stages - 1) * forward + m * backward\n"
            ),
            "that has no bubble": "def gpipe(stages, m, forward, backward):\n    return m * (forward + backward)\n",
            "passes of a stage are one after another, but stages work at the same time": (
                "def gpipe(stages, m, forward, backward):\n    return stages * m * (forward + backward)\n"
            ),
        },
        shortcut=(
            "from distlib.schedules import gpipe as schedule, play\n"
            "def gpipe(stages, m, forward, backward):\n"
            "    return play(schedule(int(stages), int(m)), forward, backward).makespan\n"
        ),
    ),
    Value(
        name="fewer",
        right=lambda p: m(p) - in_flight(Layout(pp=p.stages, global_batch=m(p)), 0),
        wrong={
            "that is what 1F1B holds": lambda p: float(in_flight(Layout(pp=p.stages, global_batch=m(p)), 0)),
            "that is what GPipe holds": lambda p: float(m(p)),
            "the first stage holds pp micro-batches, not pp − 1": lambda p: m(p) - p.stages + 1,
        },
        tolerance=0.001,
    ),
    Value(
        name="filled",
        right=lambda p: (p.stages - 1) * plain(p) - zero(p),
        wrong={
            "that is what still idles": lambda p: float(zero(p)),
            "with `backward` the whole backward pass the idle time is (pp − 1)(F + B − 2W)": (
                lambda p: (p.stages - 1) * p.weight
            ),
            "that is the idle time of 1F1B": lambda p: (p.stages - 1) * plain(p),
        },
    ),
    Value(
        name="nic",
        right=lambda p: expert_nic_bytes(p.counted, 1.0, p.nodes),
        wrong={
            "the benchmark counts tokens that stay on the node: they pass no NIC": lambda p: p.counted,
            "that is the share that stays": lambda p: p.counted / p.nodes,
            "that is the other way: the wire carries less than is counted": (
                lambda p: p.counted * p.nodes / (p.nodes - 1)
            ),
        },
    ),
    Value(
        name="miss",
        right=miss,
        wrong={
            "the pipeline fills and drains: the bubble is missing": lambda p: miss(p, bubble=0.0),
            "the backward pass has both parts": lambda p: miss(p, weight=0.0),
            "the sign: above the measured step is positive": lambda p: -miss(p),
            "the throughput is of one GPU; the pipeline has one for each stage": (
                lambda p: (100 + miss(p)) / published(p).stages - 100
            ),
        },
        tolerance=0.01,
    ),
)
