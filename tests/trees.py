"""Copies of the repository for tests that build, break or publish it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import chapters


def listed():
    """The repository's own files (in an exported tree, where git has no list, all that was not built)."""
    command = ["git", "ls-files", "-z", "-co", "--exclude-standard"]
    names = subprocess.run(command, cwd=chapters.ROOT, capture_output=True)
    if names.returncode == 0:
        paths = [chapters.ROOT / name for name in names.stdout.decode("utf-8").split("\0")[:-1]]
    else:
        built = (".venv", "_build", "dist", ".git")
        top = [path for path in chapters.ROOT.iterdir() if path.name not in built]
        paths = [path for root in top for path in (root.rglob("*") if root.is_dir() else [root])]
    return [path for path in paths if path.is_file() and "__pycache__" not in path.parts]


def copy(target, keep=lambda name: True):
    """Copy the repository's files to `target`, those whose name (from the root) is to be kept."""
    for path in listed():
        name = path.relative_to(chapters.ROOT)
        if keep(name.as_posix()):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target / name)
    return target


def run(*command, cwd, **environment):
    """Run a program with the tree's own distlib; return (exit status, all that it printed)."""
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, encoding="utf-8", env=os.environ | {"PYTHONPATH": str(cwd)} | environment,
    )  # fmt: skip
    return done.returncode, done.stdout


def build(tree):
    """Build the site of a tree; return (exit status, what was printed)."""
    return run(sys.executable, "tests/make_book.py", cwd=tree)


def virtual_environment(path, *requirements, cwd):
    """An environment of its own with what `requirements` name; its Python."""
    uv, python = Path(sys.executable).with_name("uv"), path / "bin" / "python"
    for command in (["venv", "--quiet", "--python", sys.executable, path],
                    ["pip", "install", "--quiet", "--python", python, *requirements]):  # fmt: skip
        status, printed = run(uv, *command, cwd=cwd)
        assert status == 0, printed
    return python
