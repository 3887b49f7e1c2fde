"""Times the import of distlib beside that of NumPy, and each chapter's cells."""

import os
import subprocess
import sys
from time import perf_counter, process_time

import chapters

os.environ["MPLBACKEND"] = "agg"


def cell_times(chapter):
    """Seconds of processor that each cell of a chapter takes, in plain Python: not how busy the machine is."""
    names, seconds = {}, []
    for code in chapters.code(chapters.read(chapter)):
        start = process_time()
        exec(code, names)
        seconds.append(process_time() - start)
    return seconds


def import_time(modules):
    """The best of seven imports in a new interpreter, in seconds."""

    def once():
        start = perf_counter()
        subprocess.run([sys.executable, "-c", f"import {modules}"], check=True)
        return perf_counter() - start

    return min(once() for _ in range(7))


def main():
    sys.path.insert(0, str(chapters.ROOT))
    laws = ", ".join(f"distlib.{path.stem}" for path in sorted((chapters.ROOT / "distlib").glob("*.py")))
    numpy, distlib = import_time("numpy"), import_time(laws)
    print(f"import numpy {numpy:.3f} s, all of distlib {distlib:.3f} s: {distlib / numpy:.2f} times")
    for chapter in chapters.chapters():
        seconds = cell_times(chapter)
        slowest = max(range(len(seconds)), key=seconds.__getitem__)
        name = chapter.relative_to(chapters.ROOT)
        print(f"{name}: {sum(seconds):.1f} s of processor, cell {slowest} of {len(seconds)} {seconds[slowest]:.1f} s")


if __name__ == "__main__":
    main()
