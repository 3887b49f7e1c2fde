"""What of the problem sets is held back, and where of that something is found."""

import html
import re
from pathlib import Path

from course.grading import SETS, SOLUTION, ProblemSet, Value, release, sets

#: Shorter lines are no secret: anybody writes them.
LENGTH = 24


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(text)).strip()


def secrets() -> set[str]:
    """Lines of the solutions, sentences of the rubrics and the code of right and wrong answers."""
    held = []
    for one in sets():
        for cell in one.notebook.cells:
            for region in SOLUTION.finditer(cell.source):
                text = region[0].replace("### BEGIN SOLUTION", "").replace("### END SOLUTION", "")
                held += text.split("\n") if cell.cell_type == "code" else re.split(r"(?<=[.;:])\s", text)
        code = (SETS / one.name / "answers.py").read_text(encoding="utf-8").split("\n")
        held += [line for line in code if not line.startswith(("from ", "import "))]
    shared = re.compile(r"(from|import|def) |.*import |name=|wrong=|tolerance=")
    lines = {plain(line) for line in held}
    given = plain("\n".join(cell.source for one in sets() for cell in release(one).cells))
    return {
        line for line in lines
        if len(line) >= LENGTH and " " in line and not shared.match(line) and line not in given
    }  # fmt: skip


def values(problem_set: ProblemSet, students: list[str]) -> set[str]:
    """The first digits of the right values of some students, where there are enough of them to be told by."""
    numbers = [
        repr(task.expected(problem_set.parameters(student))[0])
        for task in problem_set.tasks.values() for student in students if isinstance(task, Value)
    ]  # fmt: skip
    return {number[:8] for number in numbers if len(number.strip("0.-")) > 8}


def found(root: Path, held: set[str]) -> list[tuple[str, str]]:
    """(file, what is held back and is in it), over all files of a folder that are text, and their names."""
    hits = []
    for path in sorted(root.rglob("*")):
        if not path.is_file() or path.suffix in (".woff", ".woff2", ".png", ".ttf", ".eot"):
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        if path.suffix == ".ipynb":
            text = text.replace("\\n", " ").replace('\\"', '"').replace('",', " ")
        text = plain(re.sub(r"<[^>]*>", "", text) if path.suffix == ".html" else text)
        hits += [(path.relative_to(root).as_posix(), secret) for secret in held if secret in text]
    return hits
