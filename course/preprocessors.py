"""The two steps of `nbgrader autograde` that are ours: put back what was deleted, and grade in a process of its own."""

from typing import Any

import nbformat
from nbgrader.preprocessors import NbGraderPreprocessor

from course.grading import ProblemSet, grade_apart, grade_id, released


class Restore(NbGraderPreprocessor):
    """Puts each cell of the released notebook that is missing back where it stood; nbgrader then restores its text."""

    def preprocess(self, nb: nbformat.NotebookNode, resources: Any) -> tuple[nbformat.NotebookNode, Any]:
        position = 0
        for cell in released(ProblemSet(resources["nbgrader"]["notebook"])):
            where = [index for index, mine in enumerate(nb.cells) if grade_id(mine) == grade_id(cell)]
            if not where:
                self.log.warning("cell %s was deleted and is put back", grade_id(cell))
                nb.cells.insert(position, cell)
                where = [position]
            position = where[0] + 1
        return nb, resources


class Grade(NbGraderPreprocessor):
    """Runs the notebook and writes into each test cell whether its task is solved, and if not, why."""

    def preprocess(self, nb: nbformat.NotebookNode, resources: Any) -> tuple[nbformat.NotebookNode, Any]:
        about = resources["nbgrader"]
        return grade_apart(nb, about["notebook"], about["student"]), resources
