"""The problem sets: the reference has full marks, an untouched release none, what is wrong is told, nothing breaks."""

import copy
import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import chapters
from course.grading import (
    Function,
    Prediction,
    Value,
    close,
    grade,
    grade_apart,
    grade_id,
    is_test,
    judge,
    release,
    released,
    sets,
)  # fmt: skip

ALL = sets()
NAMES = [one.name for one in ALL]
STUDENTS = [f"student{number}" for number in range(40)]
each_set = pytest.mark.parametrize("one", ALL, ids=NAMES)


def marks(cell):
    return cell.metadata.get("nbgrader", {})


def points(one):
    return {grade_id(cell): marks(cell)["points"] for cell in one.notebook.cells if marks(cell).get("grade")}


def by_hand(one):
    return [cell for cell in one.notebook.cells if marks(cell).get("grade") and cell.cell_type == "markdown"]


def filled_in(one, student, cells=None):
    """The notebook with its solutions, handed in by `student`; `cells` replaces answer cells, by task name."""
    notebook = copy.deepcopy(one.notebook)
    for cell in notebook.cells:
        name = grade_id(cell) or ""
        if name == "id":
            cell.source = f'student = "{student}"'
        elif cells and name.removesuffix("-answer") in cells and name.endswith("-answer"):
            cell.source = cells[name.removesuffix("-answer")]
    return notebook


# What each set is


@each_set
def test_a_set_has_four_to_eight_tasks_of_every_kind(one):
    tasks, prose = list(one.tasks.values()), by_hand(one)
    headings = [line for cell in one.notebook.cells for line in cell.source.splitlines() if line.startswith("## Task")]
    assert 4 <= len(headings) <= 8
    assert [heading.split(":")[0] for heading in headings] == [f"## Task {n + 1}" for n in range(len(headings))]
    for kind in (Prediction, Value, Function):
        assert any(isinstance(task, kind) for task in tasks), kind
    assert prose and all("Rubric" in cell.source for cell in prose)


@each_set
def test_every_test_cell_has_its_task_and_every_task_its_cells(one):
    ids = [grade_id(cell) for cell in one.notebook.cells if grade_id(cell)]
    assert len(ids) == len(set(ids))
    tested = [grade_id(cell) for cell in filter(is_test, one.notebook.cells)]
    assert [name for name in ids if name in one.tasks] == tested
    assert set(one.tasks) <= set(ids)
    answers = [name for name in ids if name.endswith("-answer")]
    assert {name.removesuffix("-answer") for name in answers} == set(one.tasks)
    assert ids[:2] == ["id", "parameters"]


@each_set
def test_a_set_says_what_it_follows_how_hard_it_is_and_how_long_it_takes(one):
    about = one.notebook.metadata["course"]
    assert any(path.stem == about["follows"] for path in chapters.BOOK.rglob("*.md"))
    assert about["difficulty"] in (1, 2, 3)
    assert 30 <= about["minutes"] <= 240
    assert about["goals"]
    assert all(value > 0 and value == int(value) for value in points(one).values())


NUMBERS = "none one two three four five six seven eight".split()


@each_set
def test_what_a_set_says_of_itself_is_so(one):
    text = "\n".join(cell.source for cell in one.notebook.cells)
    tasks = re.findall(r"(?m)^## Task .*\((\d+) points?", text)
    minutes = one.notebook.metadata["course"]["minutes"]
    assert f"{NUMBERS[len(tasks)].capitalize()} tasks, about {minutes} minutes" in " ".join(text.split())
    assert "The grader's feedback says why" in text
    said, found = dict(enumerate(map(int, tasks), 1)), dict.fromkeys(range(1, len(tasks) + 1), 0)
    task = 0
    for cell in one.notebook.cells:
        heading = re.search(r"(?m)^## Task (\d+)", cell.source)
        task = int(heading[1]) if heading else task
        found[task or 1] += marks(cell).get("points", 0) if marks(cell).get("grade") else 0
    assert found == said


@each_set
def test_a_set_reads_a_published_measurement(one):
    assert any("from distlib.published import" in cell.source for cell in one.notebook.cells)


def test_the_known_misconceptions_are_tasks():
    told = " ".join(said for one in ALL for task in one.tasks.values() for said in getattr(task, "wrong", ()))
    words = ("both ways", "algbw", "busbw", "sparsity", "mean of means", "sum over the samples", "of the ideal time")
    for word in (*words, "HFU", "MTBF of one GPU"):
        assert word in told, word


@each_set
def test_a_release_holds_no_solution(one):
    for cell in released(one):
        assert "SOLUTION" not in cell.source
        if marks(cell)["solution"]:
            assert "YOUR CODE HERE" in cell.source or "YOUR ANSWER HERE" in cell.source


@each_set
def test_a_task_knows_three_wrong_answers_and_tells_them_apart_for_every_student(one):
    for student in STUDENTS:
        p = one.parameters(student)
        for task in one.tasks.values():
            if isinstance(task, Prediction):
                continue
            right, wrong = task.expected(p), task.mistaken(p)
            assert len(wrong) >= 3, task.name
            assert judge(task, p, right) is None
            for message, answer in wrong.items():
                assert not close(answer, right, 4 * task.tolerance), (student, task.name, message)
                assert judge(task, p, answer), (student, task.name, message)


@each_set
def test_students_get_numbers_of_their_own(one):
    drawn = {tuple(map(repr, vars(one.parameters(student)).values()))[2:] for student in STUDENTS}
    assert len(drawn) > len(STUDENTS) / 2
    assert one.parameters(" Student1 ").__dict__.keys() == one.parameters("student1").__dict__.keys()
    for task in one.tasks.values():
        if isinstance(task, Value):
            assert len({round(task.expected(one.parameters(student))[0], 9) for student in STUDENTS}) > 3, task.name


# What the grader tells


def near(factor):
    task = Value(name="t", right=lambda p: 3.0, wrong={"known": lambda p: 7.0})
    return judge(task, None, [3.0 * factor])


@pytest.mark.parametrize(
    "factor, hint",
    [
        (1000, "unit"), (1e-6, "unit"), (8, "bits"), (0.5, "one way"), (2**30 / 1e9, "GiB"), (1 / 3600, "hours"),
        (100, "percentage"),
    ],
)
def test_a_near_miss_gets_a_hint_and_no_point(factor, hint):
    message = near(factor)
    assert message and hint in message


def test_a_right_number_needs_no_more_than_its_tolerance():
    assert near(1.004) is None
    assert near(1.006) == "t is not right: 3.018 is too large"
    assert near(7 / 3) == "t: known"


@pytest.mark.parametrize("answer", [[float("nan")], [float("inf")], "3", [None], [True], ["3.0"], [3.0, 3.0], []])
def test_what_is_no_number_is_not_right(answer):
    assert judge(Value(name="t", right=lambda p: 3.0, wrong={}), None, answer)


# Whole notebooks

slow = pytest.mark.slow


@slow
@each_set
def test_the_reference_has_full_marks(one):
    for student in ("reference", "student7"):
        assert set(grade(filled_in(one, student), one, student).values()) == {None}


@slow
@each_set
def test_an_untouched_release_has_no_automatic_point(one):
    verdicts = grade(release(one), one, "student1")
    assert set(verdicts) == set(one.tasks)
    assert all(verdicts.values())


@slow
@each_set
def test_known_wrong_answers_have_no_point_and_are_named(one):
    p = one.parameters("student3")
    tasks = {name: task for name, task in one.tasks.items() if not isinstance(task, Prediction)}
    sources = {name: task.wrong_sources(p) for name, task in tasks.items()}
    for number in range(max(map(len, sources.values()))):
        chosen = {name: wrong[number % len(wrong)] for name, wrong in sources.items()}
        verdicts = grade(filled_in(one, "student3", chosen), one, "student3")
        for name, task in tasks.items():
            said = verdicts[name]
            assert said, (name, chosen[name])
            known = list(task.wrong)
            index = number % len(sources[name])
            expected = known[index] if index < len(known) else "write the law yourself"
            assert expected in said, (name, said)


BROKEN = {
    "a syntax error": ("def (:", "SyntaxError"),
    "an endless loop": ("while True:\n    pass", "stopped after"),
    "a loop that no interrupt ends": (
        "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
        "interrupted",
    ),
    "the end of the process": ("import os\nos._exit(0)", "died"),
    "too much memory": ("hog = [bytearray(2**28) for _ in range(64)]", "MemoryError"),
    "a file too large": ("with open('big', 'wb') as file:\n    file.write(bytes(2**27))", "File too large"),
    "a flood of output": ("for _ in range(10**5):\n    print('x' * 100)", None),
}  # fmt: skip
FIRST = ALL[0]


@slow
@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_cell_costs_its_own_task_and_the_rest_is_graded(kind):
    source, said = BROKEN[kind]
    names = list(FIRST.tasks)
    last = next(name for name in reversed(names) if isinstance(FIRST.tasks[name], Value))
    graded = grade_apart(filled_in(FIRST, "student1", {last: source}), FIRST.name, "student1")
    failed = {grade_id(cell): cell.outputs[0].evalue for cell in graded.cells if is_test(cell) and cell.outputs}
    assert list(failed) == [last]
    shown = str([cell.outputs for cell in graded.cells if cell.cell_type == "code"])
    assert said is None or said in shown


@slow
def test_renamed_deleted_and_overwritten_cells_are_told_and_the_rest_is_graded():
    values = [name for name, task in FIRST.tasks.items() if isinstance(task, Value)]
    [function, *_] = [name for name, task in FIRST.tasks.items() if isinstance(task, Function)]
    notebook = filled_in(FIRST, "student1", {function: "def my_own(*arguments):\n    return 1.0"})
    notebook.cells = [cell for cell in notebook.cells if grade_id(cell) != f"{values[0]}-answer"]
    cheat = (
        "import builtins, json, sys\n"
        "def _graded(function, cases):\n    return [1.0]\n"
        "builtins.float = lambda x: 0.0\n"
        "class Always:\n    def __eq__(self, other):\n        return True\n"
        "judge = grade = lambda *a: None\n"
    )
    notebook.cells.insert(2, nbformat.v4.new_code_cell(cheat))
    verdicts = grade(notebook, FIRST, "student1")
    assert "NameError" in verdicts[values[0]]
    assert "NameError" in verdicts[function]
    assert all(verdicts[name] for name in values)


@slow
def test_a_notebook_of_somebody_else_has_no_points_and_says_why():
    verdicts = grade(filled_in(FIRST, "student1"), FIRST, "student2")
    assert all("student1" in said and "student2" in said for said in verdicts.values())


# Through nbgrader, as an instructor would


PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def run(folder, *command):
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, encoding="utf-8",
        env=os.environ | {"PATH": PATH, "PYTHONPATH": str(chapters.ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A course folder with two sets."""
    pytest.importorskip("nbgrader", reason="nbgrader is not installed: `make course` does")
    from course import make_course

    target = tmp_path_factory.mktemp("course")
    make_course.build(target, tuple(NAMES[:2]))
    return target


def hand_in(folder, student, name, change):
    notebook = nbformat.read(folder / "release" / name / f"{name}.ipynb", as_version=4)
    place = folder / "submitted" / student / name
    place.mkdir(parents=True)
    nbformat.write(change(notebook, student), place / f"{name}.ipynb")


def solved(one, wrong=()):
    solution = {grade_id(cell): cell.source for cell in one.notebook.cells}

    def change(notebook, student):
        for cell in notebook.cells:
            if grade_id(cell) == "id":
                cell.source = f'student = "{student}"'
            elif marks(cell).get("solution"):
                cell.source = solution[grade_id(cell)]
        for name, source in wrong:
            [cell] = [cell for cell in notebook.cells if grade_id(cell) == f"{name}-answer"]
            cell.source = source
        return notebook

    return change


def scores(folder, name):
    """Automatic points by student, from nbgrader's database."""
    with sqlite3.connect(folder / "gradebook.db") as book:
        rows = book.execute(
            "select submitted_assignment.student_id, sum(grade.auto_score) from grade "
            "join submitted_notebook on grade.notebook_id = submitted_notebook.id "
            "join submitted_assignment on submitted_notebook.assignment_id = submitted_assignment.id "
            "join assignment on submitted_assignment.assignment_id = assignment.id "
            "where assignment.name = ? group by 1", (name,),
        ).fetchall()  # fmt: skip
    return dict(rows)


@slow
@pytest.mark.parametrize("one", ALL[:2], ids=NAMES[:2])
def test_the_whole_path_from_release_to_feedback(one, folder):
    full = sum(points(one)[name] for name in one.tasks)
    value = [name for name, task in one.tasks.items() if isinstance(task, Value)][-1]  # on which no other builds

    def deleted(notebook, student):
        notebook = solved(one)(notebook, student)
        gone = (f"{value}-answer", value, "parameters")
        notebook.cells = [cell for cell in notebook.cells if grade_id(cell) not in gone]
        return notebook

    def hostile(notebook, student):
        notebook = solved(one)(notebook, student)
        for cell in notebook.cells:
            if is_test(cell):
                cell.source, marks(cell)["points"] = "pass", 100
        return notebook

    worth = points(one)[value]
    changes = {
        "ada": (solved(one), full),
        "ben": (solved(one, [(value, f"{value} = 1.2345e-7")]), full - worth),
        "cleo": (lambda notebook, student: notebook, 0),
        "dan": (solved(one, [(value, "while True: pass")]), full - worth),
        "eve": (deleted, full - worth),
        "fay": (hostile, full),
        "gil": (solved(one, [(value, "def (:")]), full - worth),
    }
    for student, (change, _) in changes.items():
        hand_in(folder, student, one.name, change)
    run(folder, "-m", "nbgrader", "autograde", one.name)
    assert scores(folder, one.name) == {student: score for student, (_, score) in changes.items()}
    run(folder, "-m", "nbgrader", "generate_feedback", one.name)
    page = (folder / "feedback" / "ben" / one.name / f"{one.name}.html").read_text(encoding="utf-8")
    assert f"{value} is not right" in page or f"{value}:" in page
    run(folder, "-m", "nbgrader", "export")
    assert "ada" in (folder / "grades.csv").read_text(encoding="utf-8")


@slow
def test_a_hand_in_behind_a_server_that_takes_a_results_file(tmp_path):
    """Locked cells are put back first: what a student made of them counts for nothing."""
    value = next(name for name, task in FIRST.tasks.items() if isinstance(task, Value))
    notebook = filled_in(FIRST, "student1", {value: f"{value} = 1.2345e-7"})
    for cell in filter(is_test, notebook.cells):
        cell.source, marks(cell)["points"] = "pass", 100
    notebook.cells = [cell for cell in notebook.cells if grade_id(cell) != "parameters"]
    nbformat.write(notebook, tmp_path / "in.ipynb")
    (tmp_path / "broken.ipynb").write_text("no notebook", encoding="utf-8")
    for source in ("in", "broken"):
        run(chapters.ROOT, "-m", "course.gradescope", FIRST.name, str(tmp_path / f"{source}.ipynb"), "student1",
            str(tmp_path / f"{source}.json"))  # fmt: skip
    found = json.loads((tmp_path / "in.json").read_text(encoding="utf-8"))["tests"]
    worth = points(FIRST)
    assert {test["name"]: test["max_score"] for test in found} == {name: worth[name] for name in FIRST.tasks}
    assert [test["name"] for test in found if test["score"] < test["max_score"]] == [value]
    assert json.loads((tmp_path / "broken.json").read_text(encoding="utf-8"))["score"] == 0
