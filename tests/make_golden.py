"""Run chapters and store their outputs in tests/golden: all of them, or those named on the command line."""

import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from time import perf_counter

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

import chapters


def execute(chapter):
    """The chapter's code and what it put out, without what changes from one run or machine to the next."""
    notebook = chapters.read(chapter)
    place = {"metadata": {"path": chapter.parent}}
    NotebookClient(notebook, timeout=120, record_timing=False, resources=place).execute()
    notebook.metadata = chapters.KERNEL.copy()
    notebook.cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
        for output in cell.get("outputs", []):
            for picture in chapters.PICTURES:
                output.get("data", {}).pop(picture, None)
    return notebook


def write_golden(chapter):
    """Run one chapter, write its golden; return what went wrong, or nothing."""
    start = perf_counter()
    try:
        notebook = execute(chapter)
    except CellExecutionError as error:
        return f"{chapter}: a cell failed\n{error}"
    path = chapters.golden_path(chapter)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    print(f"{path.relative_to(chapters.ROOT)}  {perf_counter() - start:.1f} s", flush=True)
    return ""


def main(names):
    chosen = [Path(name).resolve() for name in names] or chapters.chapters()
    for chapter in chosen:
        if not chapter.exists() or not chapters.is_chapter(chapter):
            sys.exit(f"{chapter} is not a chapter under {chapters.BOOK}")
    if not names:
        for orphan in set(chapters.GOLDEN.rglob("*.ipynb")) - set(map(chapters.golden_path, chosen)):
            print(f"removes {orphan.relative_to(chapters.ROOT)}: its chapter is gone")
            orphan.unlink()
    os.environ["PYTHONPATH"] = str(chapters.ROOT)
    with ProcessPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        runs = as_completed([pool.submit(write_golden, chapter) for chapter in chosen])
        faults = [fault for run in runs if (fault := run.result())]
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main(sys.argv[1:])
