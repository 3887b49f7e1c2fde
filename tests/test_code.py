"""The code itself: linted, typed, quick to import, and at home in any console."""

import os
import subprocess
import sys

import pytest

import chapters


def run(*command, **environment):
    return subprocess.run(
        command, cwd=chapters.ROOT, env=os.environ | environment, capture_output=True, text=True, encoding="utf-8"
    )


@pytest.mark.parametrize("command", [["ruff", "check", "."], ["mypy"]], ids=lambda command: command[0])
def test_the_code_is_clean_by(command):
    done = run(sys.executable, "-m", *command)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_laws_import_no_scipy_and_no_matplotlib():
    modules = [f"distlib.{path.stem}" for path in sorted((chapters.ROOT / "distlib").glob("*.py"))]
    program = f"import sys, {', '.join(modules)}; print({{'scipy', 'matplotlib', 'IPython'}} & set(sys.modules))"
    assert run(sys.executable, "-c", program).stdout == "set()\n"


def test_a_console_and_files_that_know_no_greek_do_not_matter():
    """As on a Windows console, cp1252 out and a locale without UTF-8 for files."""
    modules = [f"distlib.{path.stem}" for path in sorted((chapters.ROOT / "distlib").glob("*.py"))]
    program = f"import {', '.join(modules)}; distlib.alphabeta.Link(-1, 1)"
    done = run(
        sys.executable, "-c", program, PYTHONIOENCODING="cp1252", PYTHONUTF8="0", LC_ALL="C", PYTHONCOERCECLOCALE="0"
    )
    assert "ValueError: alpha must be a finite number" in done.stderr and "UnicodeEncodeError" not in done.stderr
