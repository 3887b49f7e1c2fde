"""The chapters as notebooks: where they are, and their reference outputs in tests/golden."""

from pathlib import Path

import jupytext
import nbformat

ROOT = Path(__file__).resolve().parent.parent
BOOK, GOLDEN = ROOT / "book", ROOT / "tests" / "golden"

#: Pictures differ with fonts and versions; the fingerprint that `show` records beside each is compared instead.
PICTURES = ("image/svg+xml", "image/png", "image/jpeg")
#: What a notebook says of its kernel, and nothing of the machine.
KERNEL = nbformat.from_dict({"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}})


def is_chapter(path):
    """A page that runs: MyST Markdown with a kernelspec in its front matter."""
    if path.suffix != ".md" or BOOK not in path.resolve().parents:
        return False
    text = path.read_text(encoding="utf-8")
    return text.startswith("---\n") and "\nkernelspec:" in text.split("\n---", 1)[0]


def chapters():
    return sorted(path for path in BOOK.rglob("*.md") if is_chapter(path))


def golden_path(chapter):
    return GOLDEN / chapter.resolve().relative_to(BOOK).with_suffix(".ipynb")


def read(chapter):
    """The chapter as a notebook without outputs."""
    notebook = jupytext.read(chapter, fmt="md:myst")
    notebook.metadata = KERNEL.copy()
    return notebook


def code(notebook):
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def read_golden(chapter):
    """The chapter's reference outputs, or None if there are none or they belong to other code."""
    path = golden_path(chapter)
    if not path.exists():
        return None
    golden = nbformat.read(path, as_version=4)
    return golden if code(golden) == code(read(chapter)) else None


RECORD = "application/papermill.record/text/plain"


def records(executed):
    """Name → text of all that an executed notebook's cells recorded."""
    outputs = [output for cell in executed.cells for output in cell.get("outputs", [])]
    return {
        output["metadata"]["scrapbook"]["name"]: output["data"][RECORD]
        for output in outputs
        if "scrapbook" in output.get("metadata", {})
    }
