"""Grades a notebook: runs it in a kernel of its own, reads the answers out of it, and compares them here.

A set is a folder of `course/sets` with two files. `notebook.md` is the notebook with its solutions, in MyST, with
nbgrader's metadata; `answers.py` has TASKS, one record for each cell that is graded by program. The notebook's locked
cell `parameters` draws a student's numbers from the name in `student`; the grader runs the same cell for the name of
the folder that was handed in, and computes each right value from `distlib`. What a notebook does in its kernel cannot
reach the comparison: only numbers, as text, come back.

    python -m course.grading SET STUDENT < notebook.ipynb > graded.ipynb
"""

import ast
import contextlib
import importlib.util
import io
import math
import os
import queue
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jupytext
import nbformat
from jupyter_client import KernelManager

SETS = Path(__file__).resolve().parent / "sets"
CELL_SECONDS, NOTEBOOK_SECONDS = 10, 60
MEMORY, FILE_SIZE = 4 * 2**30, 64 * 2**20
OUTPUTS = 200
SHOWN = ("stream", "display_data", "execute_result", "error")

Parameters = SimpleNamespace

#: What nbgrader takes out of a release.
SOLUTION = re.compile(r"([ \t]*)### BEGIN SOLUTION\n.*?### END SOLUTION", re.DOTALL)

#: What a number that is off by a constant factor usually means.
SLIPS = (
    (1000.0, "a factor of 1,000: check the unit that the task asks for"),
    (1e6, "a factor of 1,000,000: check the unit that the task asks for"),
    (1e9, "a factor of 1,000,000,000: the answer is wanted in base units"),
    (8.0, "a factor of 8: bits and bytes, or GPUs per node"),
    (2.0, "a factor of 2: one way or both, forward or both passes, or a ring's two phases"),
    (2**30 / 1e9, "1.074: GiB (2^30 bytes) and GB (10^9 bytes)"),
    (100.0, "a factor of 100: a fraction or a percentage"),
    (3600.0, "a factor of 3,600: hours or seconds"),
)


@dataclass(frozen=True, kw_only=True)
class Value:
    """A variable `name` that holds a number. `wrong` maps what is said of a known wrong answer to that answer."""

    name: str
    right: Callable[[Parameters], float]
    wrong: dict[str, Callable[[Parameters], float]]
    tolerance: float = 0.005

    @property
    def probe(self) -> Callable[[Parameters], str]:
        return lambda p: f"[float({self.name})]"

    def expected(self, p: Parameters) -> list[float]:
        return [float(self.right(p))]

    def mistaken(self, p: Parameters) -> dict[str, list[float]]:
        return {message: [float(answer(p))] for message, answer in self.wrong.items()}

    def wrong_sources(self, p: Parameters) -> list[str]:
        """Cells that give a known wrong answer."""
        return [f"{self.name} = {value!r}" for [value] in self.mistaken(p).values()]


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function `name`, called with each of `cases`. `wrong` maps what is said to the source of a wrong function.

    It has to be the student's own: a call that runs code of `distlib` does not pass. `shortcut` is such a source.
    """

    name: str
    right: Callable[..., float]
    cases: Callable[[Parameters], list[tuple[float, ...]]]
    wrong: dict[str, str]
    shortcut: str
    tolerance: float = 1e-6

    @property
    def probe(self) -> Callable[[Parameters], str]:
        def call(p: Parameters) -> str:
            plain = [[value.item() if hasattr(value, "item") else value for value in case] for case in self.cases(p)]
            return f"_graded({self.name}, {plain!r})"

        return call

    def expected(self, p: Parameters) -> list[float]:
        return [float(self.right(*case)) for case in self.cases(p)]

    def mistaken(self, p: Parameters) -> dict[str, list[float]]:
        answers = {}
        for message, source in self.wrong.items():
            space: dict[str, Any] = {}
            exec(source, space)
            answers[message] = [float(space[self.name](*case)) for case in self.cases(p)]
        return answers

    def wrong_sources(self, p: Parameters) -> list[str]:
        return [*self.wrong.values(), self.shortcut]


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A variable `name` that holds one of `options`. Any of them earns the point: what counts is to have guessed."""

    name: str
    options: tuple[str, ...]

    @property
    def probe(self) -> Callable[[Parameters], str]:
        return lambda p: f"str({self.name})"


Task = Value | Function | Prediction

#: Calls a function and says whether code of distlib ran meanwhile.
CALLER = '''
def _graded(function, cases):
    import sys
    used = []
    def watch(frame, event, arg):
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.split(".")[0] == "distlib":
            used.append(module)
    sys.setprofile(watch)
    try:
        values = [float(function(*case)) for case in cases]
    finally:
        sys.setprofile(None)
    return "distlib" if used else values
'''


@dataclass(frozen=True)
class ProblemSet:
    """A folder of `course/sets`."""

    name: str

    @cached_property
    def notebook(self) -> nbformat.NotebookNode:
        """The notebook with its solutions."""
        path = SETS / self.name / "notebook.md"
        return jupytext.reads(path.read_text(encoding="utf-8"), fmt="md:myst")

    @cached_property
    def tasks(self) -> dict[str, Task]:
        """The tasks that a program grades, by name; a test cell has the name of its task."""
        spec = importlib.util.spec_from_file_location(f"answers_{self.name}", SETS / self.name / "answers.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return {task.name: task for task in module.TASKS}

    def parameters(self, student: str) -> Parameters:
        """A student's numbers: the notebook's cell `parameters`, run for that name."""
        [cell] = [cell for cell in self.notebook.cells if grade_id(cell) == "parameters"]
        space: dict[str, Any] = {"student": student}
        with contextlib.redirect_stdout(io.StringIO()):
            exec(cell.source, space)
        return SimpleNamespace(**{key: value for key, value in space.items() if not key.startswith("__")})


def sets() -> list[ProblemSet]:
    return [ProblemSet(path.parent.name) for path in sorted(SETS.glob("*/notebook.md"))]


def grade_id(cell: nbformat.NotebookNode) -> str | None:
    return cell.metadata.get("nbgrader", {}).get("grade_id")


def released(problem_set: ProblemSet) -> list[nbformat.NotebookNode]:
    """The cells that nbgrader marks, as the student gets them: solutions taken out, nothing run."""
    cells = []
    for cell in problem_set.notebook.cells:
        if grade_id(cell):
            stub = "# YOUR CODE HERE" if cell.cell_type == "code" else "YOUR ANSWER HERE"
            copy = nbformat.from_dict({**cell, "source": SOLUTION.sub(rf"\1{stub}", cell.source)})
            cells.append(copy)
    return cells


def release(problem_set: ProblemSet) -> nbformat.NotebookNode:
    """The whole notebook as nbgrader hands it out."""
    stubs = {grade_id(cell): cell for cell in released(problem_set)}
    notebook = nbformat.from_dict(problem_set.notebook)
    notebook.cells = [stubs.get(grade_id(cell) or "", cell) for cell in notebook.cells]
    return notebook


def put_back(notebook: nbformat.NotebookNode, problem_set: ProblemSet) -> list[str]:
    """Put each released cell that was deleted back where it stood; return the names of those."""
    position, missing = 0, []
    for cell in released(problem_set):
        where = [index for index, mine in enumerate(notebook.cells) if grade_id(mine) == grade_id(cell)]
        if not where:
            missing.append(grade_id(cell) or "")
            notebook.cells.insert(position, cell)
            where = [position]
        position = where[0] + 1
    return missing


def is_test(cell: nbformat.NotebookNode) -> bool:
    """A code cell with points that the student cannot edit."""
    marks = cell.metadata.get("nbgrader", {})
    return cell.cell_type == "code" and bool(marks.get("grade")) and not marks.get("solution")


def close(values: list[float], others: list[float], tolerance: float) -> bool:
    return len(values) == len(others) and all(
        math.isclose(value, other, rel_tol=tolerance, abs_tol=0.0 if other else 1e-12)
        for value, other in zip(values, others, strict=True)
    )


def judge(task: Task, p: Parameters, answer: Any) -> str | None:
    """None if `answer`, as it came out of the kernel, is right; else what to tell the student."""
    if isinstance(task, Prediction):
        return None if answer in task.options else f"{task.name} is one of {', '.join(task.options)}, got {answer!r}"
    if answer == "distlib":
        return f"{task.name} runs code of distlib: the task is to write the law yourself"
    right = task.expected(p)
    numbers = isinstance(answer, list) and all(isinstance(value, float) and math.isfinite(value) for value in answer)
    if not numbers or len(answer) != len(right):
        return f"{task.name} is to be a finite number, got {answer!r}"
    if close(answer, right, task.tolerance):
        return None
    for message, values in task.mistaken(p).items():
        if close(answer, values, task.tolerance):
            return f"{task.name}: {message}"
    for factor, message in SLIPS:
        for times in (factor, 1 / factor):
            if close(answer, [times * value for value in right], task.tolerance):
                return f"{task.name} is off by {message}"
    return f"{task.name} is not right: {answer[0]:.6g} is too {'large' if answer[0] > right[0] else 'small'}"


class Kernel:
    """A kernel that a notebook cannot hold on to: each cell has a time limit, the whole has one, and it may die."""

    def __init__(self, folder: str) -> None:
        self.manager = KernelManager(kernel_name="python3")
        inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ}
        self.manager.start_kernel(cwd=folder, env={**inherited, "HOME": folder, "OMP_NUM_THREADS": "1"})
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=NOTEBOOK_SECONDS)
        self.until = time.monotonic() + NOTEBOOK_SECONDS
        self.lost = ""

    def run(self, source: str, probe: str = "None") -> tuple[list[nbformat.NotebookNode], str, str]:
        """Run a cell; return its outputs, the error that it ended in, if any, and the value of `probe` as text."""
        if self.lost:
            return [], self.lost, ""
        outputs: list[nbformat.NotebookNode] = []

        def keep(message: dict[str, Any]) -> None:
            if message["msg_type"] in SHOWN and len(outputs) < OUTPUTS:
                outputs.append(nbformat.v4.output_from_msg(message))

        seconds = min(CELL_SECONDS, max(self.until - time.monotonic(), 0))
        try:
            reply = self.client.execute_interactive(
                source, store_history=False, allow_stdin=False, user_expressions={"probe": probe},
                output_hook=keep, timeout=seconds,
            )["content"]  # fmt: skip
        except (TimeoutError, queue.Empty):
            return outputs, self._stop(), ""
        if reply["status"] != "ok":
            return outputs, f"{reply['ename']}: {reply['evalue']}", ""
        answer = reply["user_expressions"]["probe"]
        if answer["status"] != "ok":
            return outputs, f"{answer['ename']}: {answer['evalue']}", ""
        return outputs, "", answer["data"]["text/plain"]

    def _stop(self) -> str:
        """Interrupt a cell that does not end; give the kernel up if it is dead, does not listen, or time is up."""
        if not self.manager.is_alive():
            self.lost = "the kernel died: a cell ended the process or took too much memory"
        elif time.monotonic() >= self.until:
            self.lost = f"the notebook was stopped after {NOTEBOOK_SECONDS} s"
        else:
            self.manager.interrupt_kernel()
            try:
                self.client.execute_interactive("", store_history=False, output_hook=lambda message: None, timeout=3)
            except (TimeoutError, queue.Empty):
                self.lost = f"a cell took more than {CELL_SECONDS} s and could not be interrupted"
        return self.lost or f"TooSlow: the cell was stopped after {CELL_SECONDS} s"

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def failure(message: str) -> nbformat.NotebookNode:
    """An output that nbgrader counts as an error, and that feedback shows."""
    return nbformat.v4.new_output("error", ename="", evalue=message, traceback=[message])


def grade(notebook: nbformat.NotebookNode, problem_set: ProblemSet, student: str) -> dict[str, str | None]:
    """Run `notebook`, handed in by `student`, in place; return for each task None or why it has no points.

    The output of a test cell says it too: nothing if right, an error if not.
    """
    p = problem_set.parameters(student)
    verdicts: dict[str, str | None] = {}
    with tempfile.TemporaryDirectory() as folder:
        kernel = Kernel(folder)
        try:
            for cell in notebook.cells:
                if cell.cell_type != "code":
                    continue
                cell.execution_count = None
                cell.outputs, error, _ = kernel.run(cell.source)
                if not is_test(cell):
                    if error and not any(output.output_type == "error" for output in cell.outputs):
                        cell.outputs.append(failure(error))
                    continue
                task = problem_set.tasks[grade_id(cell) or ""]
                message = error or _verdict(kernel, task, p, student)
                verdicts[task.name] = message
                cell.outputs = [failure(message)] if message else []
        finally:
            kernel.close()
    return verdicts


def _verdict(kernel: Kernel, task: Task, p: Parameters, student: str) -> str | None:
    _, _, named = kernel.run("", "str(student)")
    if named.strip("'\"").strip().lower() != student.lower():
        return f"the notebook is filled in for student {named or 'nobody'}, and was handed in by {student!r}"
    _, error, text = kernel.run(CALLER if isinstance(task, Function) else "", task.probe(p))
    if error:
        return f"{task.name}: {error}"
    try:
        answer = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return f"{task.name} is to be a finite number, got {text[:80]}"
    return judge(task, p, answer)


def grade_apart(notebook: nbformat.NotebookNode, name: str, student: str) -> nbformat.NotebookNode:
    """Grade in a process of its own, which ends in time whatever the notebook does; return the graded notebook."""
    command = [sys.executable, "-m", "course.grading", name, student]
    try:
        done = subprocess.run(
            command, input=nbformat.writes(notebook), capture_output=True, encoding="utf-8",
            timeout=NOTEBOOK_SECONDS + 60, cwd=SETS.parent.parent,
        )  # fmt: skip
        if done.returncode == 0:
            return nbformat.reads(done.stdout, as_version=4)
        reason = f"the grader ended with status {done.returncode}: {done.stderr.strip()[-300:]}"
    except subprocess.TimeoutExpired:
        reason = "the grader was stopped: the notebook held it up"
    for cell in filter(is_test, notebook.cells):
        cell.outputs = [failure(reason)]
    return notebook


def main() -> None:
    name, student = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
    notebook = nbformat.reads(sys.stdin.read(), as_version=4)
    grade(notebook, ProblemSet(name), student)
    sys.stdout.write(nbformat.writes(notebook))


if __name__ == "__main__":
    from course import grading

    grading.main()
