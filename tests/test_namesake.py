"""`distlib` is also the import name of a package on PyPI, a part of virtualenv: the wrong one must not be used."""

import re
from pathlib import Path

import pytest

import chapters
import distlib


def wrong_distlib(module):
    """In one sentence, what is wrong with the imported distlib; nothing if it is the book's."""
    if "laws" in (module.__doc__ or "") and not hasattr(module, "DistlibException"):
        return ""
    return (
        f"`import distlib` found {Path(module.__file__).parent}, which is the PyPI package distlib and not this "
        "book's: uninstall it (pip uninstall distlib) or run in .venv (make test)."
    )


def test_the_distlib_imported_is_the_books():
    if message := wrong_distlib(distlib):
        pytest.fail(message, pytrace=False)


def test_the_distlib_imported_lies_in_this_tree():
    assert Path(distlib.__file__).resolve().parent == chapters.ROOT / "distlib"


def test_the_namesake_is_told_apart():
    class Namesake:
        __file__ = "/somewhere/site-packages/distlib/__init__.py"
        __doc__ = None
        DistlibException = Exception

    assert "the PyPI package distlib" in wrong_distlib(Namesake)


@pytest.mark.parametrize("path", [path for path in chapters.ROOT.glob("*/*.*") if "requirements" in path.as_posix()])
def test_no_requirements_file_brings_the_namesake_in(path):
    bringers = r"(?m)^(distlib|virtualenv|pre-commit|tox|nox|hatch|poetry)\b"
    assert re.search(bringers, path.read_text(encoding="utf-8")) is None


def test_the_distribution_has_another_name():
    assert 'name = "distributed-ml-principles"' in (chapters.ROOT / "pyproject.toml").read_text(encoding="utf-8")
