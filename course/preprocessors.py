"""The two steps of `nbgrader autograde` that are ours: put back what was deleted, and grade in a process of its own."""

from typing import Any

import nbformat
from nbgrader.preprocessors import NbGraderPreprocessor

from course.grading import ProblemSet, grade_apart, put_back


class Restore(NbGraderPreprocessor):
    """Puts each cell of the released notebook that is missing back where it stood; nbgrader then restores its text."""

    def preprocess(self, nb: nbformat.NotebookNode, resources: Any) -> tuple[nbformat.NotebookNode, Any]:
        for name in put_back(nb, ProblemSet(resources["nbgrader"]["notebook"])):
            self.log.warning("cell %s was deleted and is put back", name)
        return nb, resources


class Grade(NbGraderPreprocessor):
    """Runs the notebook and writes into each test cell whether its task is solved, and if not, why."""

    def preprocess(self, nb: nbformat.NotebookNode, resources: Any) -> tuple[nbformat.NotebookNode, Any]:
        about = resources["nbgrader"]
        return grade_apart(nb, about["notebook"], about["student"]), resources
