"""Builds the course folder `dist/course` from `course/sets`: nbgrader's source and release, the instructor's versions.

    python course/make_course.py            # all sets
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jupytext
import nbformat

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from course.grading import ProblemSet, grade, is_test, sets  # noqa: E402

TARGET = ROOT / "dist" / "course"


def nbgrader(*arguments: str, cwd: Path = TARGET) -> None:
    """Run nbgrader in the course folder; its messages are shown if it fails."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", *arguments], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True,
        encoding="utf-8", env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"nbgrader {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")


def build(target: Path = TARGET, names: tuple[str, ...] = ()) -> None:
    """Write source, release and instructor's versions of the sets to `target`, and an index."""
    shutil.rmtree(target / "source", ignore_errors=True)
    (target / "instructor").mkdir(parents=True, exist_ok=True)
    if not (target / "nbgrader_config.py").exists():
        shutil.copy(ROOT / "course" / "nbgrader_config.py", target)
    chosen = [one for one in sets() if not names or one.name in names]
    for number, one in enumerate(chosen, 1):
        print(f"[{number}/{len(chosen)}] {one.name}", flush=True)
        folder = target / "source" / one.name
        folder.mkdir(parents=True)
        jupytext.write(one.notebook, folder / f"{one.name}.ipynb", fmt="ipynb")
        nbgrader("generate_assignment", one.name, "--create", "--force", cwd=target)
        shown = nbformat.from_dict(one.notebook)
        grade(shown, one, "reference")
        nbformat.write(shown, target / "instructor" / f"{one.name}.ipynb")
    (target / "index.md").write_text(index(chosen), encoding="utf-8")
    print(f"{target}: release/ is for students, source/ and instructor/ are not")


def index(chosen: list[ProblemSet]) -> str:
    """The sets in a table: what each follows, its points, its time."""
    lines = [
        "# Problem sets", "",
        "| set | follows | goals | difficulty (1–3) | minutes | tasks | points, by program + by hand |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for one in chosen:
        about = one.notebook.metadata["course"]
        graded = [cell for cell in one.notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]
        tasks = sum(cell.source.count("\n## Task") + cell.source.startswith("## Task") for cell in one.notebook.cells)
        auto = sum(cell.metadata.nbgrader["points"] for cell in graded if is_test(cell))
        hand = sum(cell.metadata.nbgrader["points"] for cell in graded) - auto
        row = (
            one.name, about["follows"], ", ".join(about["goals"]), about["difficulty"], about["minutes"], tasks,
            f"{auto} + {hand}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, row))} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    build(names=tuple(sys.argv[1:]))
