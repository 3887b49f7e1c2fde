"""Times the import of distlib beside that of NumPy, and each chapter's cells."""

import subprocess
import sys
from datetime import datetime
from time import perf_counter

from nbclient import NotebookClient

import chapters


def cell_times(chapter):
    """Seconds that each cell of a chapter takes."""
    notebook = chapters.read(chapter)
    place = {"metadata": {"path": chapter.parent}}
    NotebookClient(notebook, timeout=120, record_timing=True, resources=place).execute()
    runs = [cell.metadata["execution"] for cell in notebook.cells if cell.cell_type == "code"]
    ends = [[run["iopub.execute_input"], run["shell.execute_reply"]] for run in runs]
    return [(datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds() for start, end in ends]


def import_time(modules):
    """The best of seven imports in a new interpreter, in seconds."""

    def once():
        start = perf_counter()
        subprocess.run([sys.executable, "-c", f"import {modules}"], check=True)
        return perf_counter() - start

    return min(once() for _ in range(7))


def main():
    laws = ", ".join(f"distlib.{path.stem}" for path in sorted((chapters.ROOT / "distlib").glob("*.py")))
    numpy, distlib = import_time("numpy"), import_time(laws)
    print(f"import numpy {numpy:.3f} s, all of distlib {distlib:.3f} s: {distlib / numpy:.2f} times")
    for chapter in chapters.chapters():
        seconds = cell_times(chapter)
        slowest = max(range(len(seconds)), key=seconds.__getitem__)
        print(f"{chapter.relative_to(chapters.ROOT)}: {sum(seconds):.1f} s in {len(seconds)} cells,", end=" ")
        print(f"at most {seconds[slowest]:.1f} s in cell {slowest}")


if __name__ == "__main__":
    main()
