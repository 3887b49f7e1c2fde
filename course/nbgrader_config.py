"""nbgrader's settings for this course. `make course` copies the file into the course folder; there, edit away."""

from nbgrader.preprocessors import (
    AssignLatePenalties,
    CheckCellMetadata,
    ClearOutput,
    DeduplicateIds,
    LimitOutput,
    OverwriteCells,
    OverwriteKernelspec,
    SaveAutoGrades,
)  # fmt: skip

from course.preprocessors import Grade, Restore

c = get_config()  # noqa: F821  nbgrader defines it
c.CourseDirectory.course_id = "distributed-ml"
c.ClearSolutions.code_stub = {"python": "# YOUR CODE HERE"}
c.Autograde.sanitize_preprocessors = [
    ClearOutput, DeduplicateIds, OverwriteKernelspec, Restore, OverwriteCells, CheckCellMetadata,
]  # fmt: skip
c.Autograde.autograde_preprocessors = [
    Grade, LimitOutput, SaveAutoGrades, AssignLatePenalties, CheckCellMetadata,
]  # fmt: skip
