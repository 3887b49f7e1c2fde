"""Nothing that is held back is in what is handed out: the release, the published tree; tests/test_site.py: the site."""

import nbformat
import pytest

import chapters
import trees
from course import leaks
from course.grading import SETS, grade_id, released, sets

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """All sets as nbgrader releases them."""
    pytest.importorskip("nbgrader", reason="nbgrader is not installed: `make course` does")
    from course import make_course

    target = tmp_path_factory.mktemp("course")
    make_course.build(target)
    return target / "release"


@pytest.fixture(scope="module")
def public(tmp_path_factory):
    """The tree that `make public` writes, which Binder builds from."""
    folder = tmp_path_factory.mktemp("public")
    tree = trees.copy(folder / "all")
    for command in ("git init --quiet", "git add --all", "mkdir ../public"):
        assert trees.run(*command.split(), cwd=tree)[0] == 0
    status, printed = trees.run("sh", "-c", "git archive $(git write-tree) | tar -x -C ../public", cwd=tree)
    assert status == 0, printed
    return folder / "public"


def test_the_search_finds_what_is_held_back():
    held = leaks.secrets()
    assert len(held) > 300
    assert {name.split("/")[0] for name, _ in leaks.found(SETS, held)} == {one.name for one in sets()}


def test_no_release_holds_a_solution_or_a_rubric(release):
    assert sorted(path.parent.name for path in release.rglob("*.ipynb")) == [one.name for one in sets()]
    assert leaks.found(release, leaks.secrets()) == []


def test_no_release_holds_a_students_values(release):
    students = [f"student{number}" for number in range(5)] + ["reference"]
    for one in sets():
        assert leaks.found(release / one.name, leaks.values(one, students)) == []


def test_the_release_is_what_the_tests_take_for_it(release):
    for one in sets():
        notebook = nbformat.read(release / one.name / f"{one.name}.ipynb", as_version=4)
        handed = {grade_id(cell): cell.source for cell in notebook.cells if grade_id(cell)}
        assert handed == {grade_id(cell): cell.source for cell in released(one)}


def test_the_published_tree_holds_nothing(public):
    assert (public / "README.md").exists() and (public / "binder").exists() and not (public / "course").exists()
    assert leaks.found(public, leaks.secrets()) == []
    assert (chapters.ROOT / "course").exists()
