"""Times the import of distlib beside that of NumPy, the planner on ten million layouts, and each chapter's cells."""

import os
import resource
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


def planner():
    """Layouts that the planner finds and prices, seconds of processor, and the process's peak memory in MiB."""
    from distlib.estimate import NEMO_H100
    from distlib.hardware import Cluster, interconnect, node
    from distlib.planner import plan
    from distlib.transformer import Transformer
    from distlib.units import GB

    model = Transformer(layers=96, hidden=12288, vocab=51200, heads=96, experts=64, top_k=2, expert_ffn=3072)
    cluster = Cluster(node=node("DGX H100"), nodes=6912, rails=8, fabric=interconnect("NDR"))
    start = process_time()
    found = plan(model, cluster, 3 * 8192, 35 * cluster.ranks, 64 * GB, NEMO_H100)
    return found.possible, process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    sys.path.insert(0, str(chapters.ROOT))
    count, seconds, memory = planner()
    print(f"planner: {count / 1e6:.1f} million layouts in {seconds:.1f} s of processor, one core, ", end="")
    print(f"{count / seconds / 1e6:.1f} million/s, {memory:.0f} MiB at most")
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
