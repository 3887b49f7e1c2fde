"""What builds, packs and runs the book: a failure is never silent, and what is handed out works on its own."""

import sys
from pathlib import Path

import pytest

import bench
import chapters
import trees

pytestmark = pytest.mark.slow

CHAPTER = """---
jupytext:
  text_representation:
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# One cell

```{code-cell}
from distlib.book import record
from distlib.units import us

record("t", 3 * us / us)
```

It takes {glue:text}`t:.1f` µs.
"""


@pytest.fixture
def tree(tmp_path):
    """The repository with one page, which has one cell."""
    held = ("book/", "tests/golden/")
    tree = trees.copy(tmp_path, lambda name: not name.startswith(held) or name.startswith("book/_static/"))
    (tree / "_toc.yml").write_text("format: jb-book\nroot: book/index\n", encoding="utf-8")
    (tree / "book" / "references.bib").write_text("", encoding="utf-8")
    (tree / "book" / "index.md").write_text(CHAPTER, encoding="utf-8")
    return tree


def change(tree, name, old, new):
    text = (tree / name).read_text(encoding="utf-8")
    assert old in text
    (tree / name).write_text(text.replace(old, new), encoding="utf-8")


def page(tree):
    return (tree / "_build" / "html" / "book" / "index.html").read_text(encoding="utf-8")


def compare(tree):
    return trees.run(sys.executable, "-m", "pytest", "-q", "book/index.md", cwd=tree)


# --- building ---


def test_an_exception_in_a_cell_fails_every_build_and_comes_last(tree):
    change(tree, "book/index.md", "3 * us / us", "1 / 0")
    for _ in range(2):
        status, printed = trees.build(tree)
        assert status == 1
        assert printed.rstrip().endswith("ZeroDivisionError: division by zero")


def test_a_warning_fails_every_build_and_comes_last(tree):
    change(tree, "book/index.md", "It takes", "By {eq}`nowhere` it takes")
    for _ in range(2):
        status, printed = trees.build(tree)
        assert status == 1
        assert printed.rstrip().endswith("WARNING: equation not found: nowhere")


def test_a_warning_in_a_cell_fails_the_build(tree):
    change(tree, "book/index.md", "record(", "import warnings\n\nwarnings.warn('a fault')\nrecord(")
    status, printed = trees.build(tree)
    assert status == 1 and "stderr was found in the cell outputs" in printed.split("The book was not built")[1]


def test_a_change_in_distlib_runs_the_chapters_again(tree):
    assert trees.build(tree)[0] == 0
    assert "3.0</span> µs" in page(tree)
    change(tree, "distlib/units.py", "1e-9, 1e-6, 1e-3, 1.0", "1e-9, 1e-6, 1e-3, 1.0\n_us, us = us, 1.0")
    change(tree, "distlib/book.py", "digits: int = 12", "digits: int = 12, grow=2")
    change(tree, "distlib/book.py", "{float(value):", "{grow * float(value):")
    assert trees.build(tree)[0] == 0
    assert "6.0</span> µs" in page(tree)


def test_the_last_line_of_a_build_names_the_file_to_open(tree):
    status, printed = trees.build(tree)
    assert status == 0
    last = printed.rstrip().split("\n")[-1]
    assert last == f"Open {(tree / '_build' / 'html' / 'index.html').as_uri()}"


# --- reference outputs ---


def test_outputs_are_compared_with_a_reference_that_belongs_to_the_code(tree):
    golden = [sys.executable, "tests/make_golden.py"]
    status, printed = compare(tree)
    assert status == 1 and "make golden" in printed  # there is none

    status, printed = trees.run(*golden, cwd=tree)
    assert status == 0, printed
    assert compare(tree)[0] == 0

    change(tree, "book/index.md", "3 * us / us", "4 * us / us")
    status, printed = compare(tree)
    assert status == 1 and "make golden" in printed  # it belongs to other code

    change(tree, "book/index.md", "4 * us / us", "3 * us / us")
    assert compare(tree)[0] == 0
    change(tree, "tests/golden/index.ipynb", '"3.0"', '"3.06"')
    status, printed = compare(tree)
    assert status == 1 and "'3.06' == '3.0'" in printed  # another number


def test_a_failing_cell_fails_make_golden_and_leaves_the_reference(tree):
    assert trees.run(sys.executable, "tests/make_golden.py", cwd=tree)[0] == 0
    before = (tree / "tests" / "golden" / "index.ipynb").read_bytes()
    change(tree, "book/index.md", "3 * us / us", "1 / 0")
    status, printed = trees.run(sys.executable, "tests/make_golden.py", cwd=tree)
    assert status == 1 and printed.rstrip().endswith(": division by zero")
    assert (tree / "tests" / "golden" / "index.ipynb").read_bytes() == before


def test_with_no_skip_a_skipped_test_fails(tree):
    test = tree / "tests" / "test_skip.py"
    test.write_text("import pytest\n\ndef test_it():\n    pytest.skip('no browser')\n", encoding="utf-8")
    assert trees.run(sys.executable, "-m", "pytest", "-q", test, cwd=tree)[0] == 0
    status, printed = trees.run(sys.executable, "-m", "pytest", "-q", "--no-skip", test, cwd=tree)
    assert status == 1 and "no browser" in printed
    test.write_text("import pytest\n\npytest.importorskip('nowhere')\n\ndef test_it():\n    pass\n", encoding="utf-8")
    assert trees.run(sys.executable, "-m", "pytest", "-q", "--no-skip", test, cwd=tree)[0] != 0


# --- what is handed out ---


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_the_package_installs_where_there_is_nothing_else(kind, tmp_path):
    tree = trees.copy(tmp_path / "tree")
    status, printed = trees.run(Path(sys.executable).with_name("uv"), "build", "--quiet", cwd=tree)
    assert status == 0, printed
    (package,) = (tree / "dist").glob(kind)
    python = trees.virtual_environment(tmp_path / "env", package, cwd=tmp_path)
    program = (
        "import distlib, importlib.metadata as m, importlib.resources as r;"
        "import distlib.alphabeta, distlib.book;"
        "files = {f.name for f in r.files('distlib').joinpath('data').iterdir()};"
        "assert r.files('distlib').joinpath('py.typed').is_file();"
        "print(m.version('distributed-ml-principles'), *sorted(files))"
    )
    status, printed = trees.run(python, "-c", program, cwd=tmp_path, PYTHONPATH="")
    data = sorted(path.name for path in (chapters.ROOT / "distlib" / "data").iterdir() if path.is_file())
    assert status == 0 and printed.split() == ["0.1.0", *data], printed


def test_what_is_held_back_stays_out_of_the_published_tree(tmp_path):
    tree = trees.copy(tmp_path)
    (tree / "course").mkdir(exist_ok=True)
    (tree / "course" / "solution.md").write_text("the answer\n", encoding="utf-8")
    for command in ("init --quiet", "add --all", "write-tree"):
        status, printed = trees.run("git", *command.split(), cwd=tree)
        assert status == 0, printed
    names = trees.run("git", "ls-tree", "-r", "--name-only", printed.strip(), cwd=tree)[1].split("\n")
    assert "course/solution.md" in names
    archive = trees.run("sh", "-c", f"git archive {printed.strip()} | tar -t", cwd=tree)[1].split("\n")
    assert "README.md" in archive and not [name for name in archive if name.startswith("course")]


def test_binder_accepts_the_repository(tmp_path):
    program = Path(sys.executable).with_name("jupyter-repo2docker")
    if not program.exists():
        pytest.skip("jupyter-repo2docker is not installed")
    status, printed = trees.run(program, "--no-build", "--debug", trees.copy(tmp_path), cwd=tmp_path)
    assert status == 0, printed
    assert 'pip install --no-cache-dir -r "binder/requirements.txt"' in printed and "RUN ./binder/postBuild" in printed
    assert "3.11" in printed


def test_binder_has_the_versions_of_the_tests():
    def pins(name):
        return set((chapters.ROOT / name).read_text(encoding="utf-8").split("\n"))

    ours = {line for line in pins("binder/requirements.txt") if line and not line.startswith("#")}
    assert [line.split("==")[0] for line in ours - pins("requirements.txt")] == ["jupyterlab-myst"]


@pytest.mark.parametrize("chapter", chapters.chapters(), ids=lambda path: path.stem)
def test_no_cell_takes_ten_seconds(chapter):
    assert max(bench.cell_times(chapter)) < 10
