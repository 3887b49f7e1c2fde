"""Every chapter is a test: its cells run in order, and each output must equal the reference in tests/golden.

nbval compares notebooks; here it is handed the MyST source, so that a chapter that was edited without `make golden`
fails. `--no-skip` turns every skip into a failure: what CI runs.
"""

import os
from unittest import mock

import hypothesis
import pytest
from nbval.plugin import IPyNbFile

import chapters

# Kernels and programs that tests start import this tree's distlib.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(chapters.ROOT), os.environ.get("PYTHONPATH")]))

# The same examples on every machine, however slow it is.
hypothesis.settings.register_profile("book", deadline=None, derandomize=True)
hypothesis.settings.load_profile("book")


def pytest_addoption(parser):
    parser.addoption("--no-skip", action="store_true", help="a skipped test fails")


def pytest_collect_file(file_path, parent):
    if parent.config.option.nbval and chapters.is_chapter(file_path):
        return Chapter.from_parent(parent, path=file_path)
    return None


class Chapter(IPyNbFile):
    """A chapter, from its source, with the reference outputs of its cells."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.skip_compare += chapters.PICTURES

    def collect(self):
        golden = chapters.read_golden(self.path)
        if golden is None:
            return [Stale.from_parent(self, name="golden")]
        with mock.patch("nbformat.read", return_value=golden):
            cells = list(super().collect())
        for cell in cells:
            cell.output_timeout = 60  # nbval waits 5 s for the outputs of a cell, too few for a busy machine
        return cells

    def setup(self):
        if chapters.read_golden(self.path) is not None:
            super().setup()


class Stale(pytest.Item):
    """A chapter whose reference outputs are missing or belong to other code: always fails."""

    def runtest(self):
        chapter = self.path.relative_to(chapters.ROOT).as_posix()
        pytest.fail(
            f"tests/golden has no outputs for the code of {chapter} as it is now: look at what changed, then run "
            f"`make golden CHAPTER={chapter}`",
            pytrace=False,
        )

    def repr_failure(self, excinfo):
        return str(excinfo.value)


def _no_skip(config, report, reason):
    if config.option.no_skip and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and --no-skip allows none: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    return _no_skip(item.config, report, call.excinfo and call.excinfo.value)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    return _no_skip(collector.config, report, report.longrepr)
