"""Grades one hand-in behind an autograder that takes a results.json, as Gradescope's does: same grader, no nbgrader.

    python -m course.gradescope SET NOTEBOOK STUDENT RESULTS

Unlike nbgrader, nothing restored locked cells before: they are put back here from the release.
"""

import json
import sys
from pathlib import Path
from typing import Any

import nbformat

from course.grading import ProblemSet, grade_apart, grade_id, is_test, put_back, released


def restored(notebook: nbformat.NotebookNode, problem_set: ProblemSet) -> nbformat.NotebookNode:
    """The hand-in with the released text of each locked cell; cells that were deleted are put back."""
    put_back(notebook, problem_set)
    ours = {grade_id(cell): cell for cell in released(problem_set)}
    seen: set[str] = set()
    for index, cell in enumerate(notebook.cells):
        name = grade_id(cell)
        if name in seen:
            cell.metadata.pop("nbgrader")  # a copy of a cell: it is run, and has no points
        elif name in ours and ours[name].metadata.nbgrader["locked"]:
            notebook.cells[index] = ours[name]
        if name:
            seen.add(name)
    return notebook


def results(notebook: nbformat.NotebookNode, problem_set: ProblemSet, student: str) -> dict[str, Any]:
    """What results.json holds: one test a task, with its points and, if it has none, why."""
    graded = grade_apart(restored(notebook, problem_set), problem_set.name, student)
    tests = []
    for cell in filter(is_test, graded.cells):
        points = cell.metadata.nbgrader["points"]
        said = cell.outputs[0].evalue if cell.outputs else "right"
        score = 0 if cell.outputs else points
        tests.append({"name": grade_id(cell), "score": score, "max_score": points, "output": said})
    return {"tests": tests, "output": "Tasks in prose are read by your instructor."}


def main() -> None:
    name, path, student, target = sys.argv[1:]
    try:
        notebook = nbformat.read(path, as_version=4)
        found = results(notebook, ProblemSet(name), student)
    except Exception as fault:  # whatever was handed in, the student is told
        found = {"score": 0, "output": f"the file could not be graded: {type(fault).__name__}: {fault}"}
    Path(target).write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
