"""The book keeps its own rules, and the rules find what breaks them."""

import ast
import io
import re
import subprocess
import tarfile
import tomllib

import nbformat
import pybtex.database
import pytest
import yaml

import chapters
import prose
import rules
import trees

ROOT = chapters.ROOT
PAGES = [rules.Page(path) for path in sorted(chapters.BOOK.rglob("*.md"))]
CHAPTERS = [page for page in PAGES if page.runs]
EXECUTED = [page for page in CHAPTERS if chapters.golden_path(page.path).exists()]
REFERENCES = chapters.BOOK / "references.bib"
BIBLIOGRAPHY = set(re.findall(r"(?m)^@\w+\{([^,\s]+),", REFERENCES.read_text(encoding="utf-8")))


def tracked(*patterns):
    """(name, text) of the repository's own text files."""
    for path in trees.listed():
        if patterns and not any(path.match(pattern) for pattern in patterns):
            continue
        if "mathjax" not in path.parts and b"\0" not in (data := path.read_bytes()):
            yield path.relative_to(ROOT).as_posix(), data.decode("utf-8")


def none(faults):
    """Fail with each fault on a line of its own."""
    if faults := list(faults):
        pytest.fail("\n".join(faults), pytrace=False)


# --- each page ---


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page(page, rule):
    none(rule(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_equations_are_referred_to_and_references_resolve(page):
    none(rules.refers_to_equations(page, PAGES))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_citations_resolve(page):
    none(rules.cites_what_exists(page, BIBLIOGRAPHY))


def test_the_bibliography_can_be_read_and_names_each_source_once():
    assert set(pybtex.database.parse_file(REFERENCES, encoding="utf-8").entries) == BIBLIOGRAPHY


def test_every_page_is_in_the_table_of_contents_and_the_other_way_round():
    toc = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    listed = re.findall(r"(?:file|root): (\S+)", toc)
    assert sorted(listed) == sorted(page.name.removesuffix(".md") for page in PAGES)


# --- reference outputs ---

PRIVATE = r"0x[0-9a-f]{6,}|Figure size|<[\w. ]+ at |/(?:tmp|home|root|usr|work|var)/|site-packages|ipykernel|[A-Z]:\\\\"
CLOCK = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\d\d:\d\d:\d\d"


@pytest.mark.parametrize("page", EXECUTED, ids=lambda page: page.name)
def test_outputs_hold_no_address_path_or_time(page):
    golden = nbformat.read(chapters.golden_path(page.path), as_version=4)
    for cell in golden.cells:
        for output in cell.get("outputs", []):
            assert output.output_type != "stream" or output.name != "stderr", output.text
            text = output.get("text", "") + "".join(map(str, output.get("data", {}).values()))
            assert re.search(f"{PRIVATE}|{CLOCK}", text) is None


def test_every_golden_belongs_to_a_chapter():
    assert set(chapters.GOLDEN.rglob("*.ipynb")) <= {chapters.golden_path(page.path) for page in CHAPTERS}


# --- the repository ---


def test_the_repository_stands_on_its_own():
    outside = "|".join([r"\.\./" + "shared", "/" + r"work/(?:main|shared)", "/tmp" + r"/w\b"])
    hosts = "|".join(["pypi" + r"\.org", "pythonhosted" + r"\.org", "registry" + r"\.npmjs", "deb" + r"\.debian\.org"])
    for name, text in tracked():
        assert re.search(f"{outside}|{hosts}", text) is None, name


def test_files_are_read_and_written_as_utf_8_whatever_the_machine():
    reads = {"open", "read_text", "write_text", "loadtxt", "genfromtxt", "savetxt", "NamedTemporaryFile"}
    sources = [(name, text) for name, text in tracked("*.py")]
    sources += [(page.name, cell.code) for page in CHAPTERS for cell in page.cells]
    for name, source in sources:
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.Call):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
            called = called if isinstance(node.func, ast.Attribute) or called == "open" else ""
            words = {keyword.arg for keyword in node.keywords}
            constants = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            modes = [value for value in constants if isinstance(value, str)]
            binary = any(re.fullmatch(r"[rwax]b\+?|b[rwax]", mode) for mode in modes)
            binary |= ast.unparse(node.func) in ("Image.open", "os.open")
            if (called in reads and not binary) or "text" in words:
                assert "encoding" in words, f"{name}:{node.lineno} {ast.unparse(node)}"


def test_the_published_tree_holds_no_course():
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True)
    if archive.returncode:
        pytest.skip("not a git checkout")
    names = tarfile.TarFile(fileobj=io.BytesIO(archive.stdout)).getnames()
    assert [name for name in names if name.split("/")[0] == "course"] == []
    assert "README.md" in names


def test_one_address_serves_everywhere():
    address = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert config["repository"]["url"] == citation["repository-code"] == address
    assert config["repository"]["branch"] == "main"
    place = address.removeprefix("https://github.com/")
    for name, text in tracked("*.md", "*.yml", "*.toml", "*.cff"):
        for other in re.findall(r"(?:github\.com|mybinder\.org/v2/gh)/([\w.-]*distributed-ml[\w.-]*/[\w-]+)", text):
            assert other == place, name


@pytest.mark.parametrize("name", [name for name, _ in tracked("*requirements*.txt", "requirements/*.txt")])
def test_requirements_are_pinned_and_name_version_one_of_jupyter_book(name):
    lines = (ROOT / name).read_text(encoding="utf-8").split("\n")
    for line in (line for line in lines if line and not line.startswith(("#", " "))):
        assert re.match(r"[\w.\[\]-]+==[\w.]+(?: ;.*)?$", line), line
        assert not line.startswith("jupyter-book==") or re.match(r"jupyter-book==1\.", line)


# --- the rules find what they look for ---

SAMPLE = r'''---
jupytext:
  text_representation:
    format_name: myst
kernelspec:
  name: python3
---

# A law

How long does one message take?

```{code-cell}
:tags: [hide-cell]
from distlib.book import record, show, use_style

use_style()
```

**Predict.** Is it short?

$$ T(n) = \alpha + \frac{n}{\beta} $$ (eq-sample)

```{code-cell}
t = transfer_time(n, link)
record("t", t / us)
```

By {eq}`eq-sample` it takes {glue:text}`t:.1f` µs; the vendor says 50 GB/s {cite}`somebody`.

```{code-cell}
---
tags: [hide-input]
mystnb:
  figure:
    name: fig-sample
    caption: Time rises with size once the message is long.
  image:
    alt: A curve that is flat and then straight.
---
show(fig)
```

{numref}`fig-sample` shows it.

## Where the model stops

No two messages share a link.

## Takeaways

One message takes {glue:text}`t:.1f` µs.

## Exercises

EXERCISES

## Sources

{cite}`somebody`
'''
EXERCISE = """```{exercise}
:label: ex-K
Why?
```

````{solution-start} ex-K
:class: dropdown
````

```{code-cell}
t
```

````{solution-end}
````
"""
SAMPLE = SAMPLE.replace("EXERCISES", "\n".join(EXERCISE.replace("K", str(k)) for k in range(4)))
SAMPLE_PATH = chapters.BOOK / "principles" / "99-sample.md"


def faults(text, rule, recorded=("t",)):
    return list(rule(rules.Page(SAMPLE_PATH, text, set(recorded))))


SAMPLED = [rule for rule in rules.RULES if rule is not rules.has_the_length_of_a_chapter]


@pytest.mark.parametrize("rule", SAMPLED, ids=lambda rule: rule.__name__)
def test_a_sound_page_breaks_no_rule(rule):
    assert faults(SAMPLE, rule) == []
    page = rules.Page(SAMPLE_PATH, SAMPLE, {"t"})
    assert list(rules.refers_to_equations(page, [page])) == []
    assert list(rules.cites_what_exists(page, {"somebody"})) == []


ALT = "alt: A curve that is flat and then straight."
CAPTION = "Time rises with size once the message is long."
PLANTED = [
    (rules.opens_with_a_question, "message take?", "message take."),
    (rules.opens_with_a_question, "**Predict.**", "# Another title\n\n**Predict.**"),
    (rules.is_a_notebook, "kernelspec:", "other:"),
    (rules.is_a_notebook, "format_name: myst", "format_name: light"),
    (rules.has_its_parts_in_order, "**Predict.**", "Predict."),
    (rules.has_its_parts_in_order, "## Takeaways", "## Summary"),
    (rules.has_its_parts_in_order, "One message takes {glue:text}`t:.1f` µs.", "One message is quick."),
    (rules.has_its_parts_in_order, "## Sources\n\n{cite}`somebody`", "## Sources\n\nA friend."),
    (rules.has_exercises_with_folded_answers, ":label: ex-3\n", ""),
    (rules.has_exercises_with_folded_answers, "{solution-start} ex-2", "{solution-start} ex-9"),
    (rules.has_exercises_with_folded_answers, ":class: dropdown", ":class: open"),
    (rules.records_what_it_shows, "it takes {glue:text}`t:.1f`", "it takes {glue:text}`u:.1f`"),
    (rules.records_what_it_computed, 'record("t", t / us)', 'record("t", 12.5)'),
    (rules.records_what_it_computed, 'record("t", t / us)', 'record("t", -12.5)'),
    (rules.imports_once, "t = transfer_time", "import os\nt = transfer_time"),
    (rules.imports_once, ":tags: [hide-cell]\n", ""),
    (rules.imports_once, "use_style()", "pass"),
    (rules.has_short_cells, "t = transfer_time(n, link)", "\n".join(f"t{k} = {k}" for k in range(9))),
    (rules.has_short_cells, "t = transfer_time(n, link)", "t = transfer_time(n, link);"),
    (rules.has_short_cells, "t = transfer_time(n, link)", "t = " + "a" * 80),
    (rules.stays_in_the_kernel, "t = transfer_time", "!pip install x\nt = transfer_time"),
    (rules.stays_in_the_kernel, "t = transfer_time", 'page = "https://example.com"\nt = transfer_time'),
    (rules.stays_in_the_kernel, "t = transfer_time", 'warnings.filterwarnings("ignore")\nt = transfer_time'),
    (rules.stays_in_the_kernel, "t = transfer_time", "x = np.random.rand(3)\nt = transfer_time"),
    (rules.stays_in_the_kernel, "t = transfer_time", "rng = np.random.default_rng()\nt = transfer_time"),
    (rules.stays_in_the_kernel, "tags: [hide-input]", "tags: [remove-cell]"),
    (rules.describes_its_figures, ALT, "alt: Figure size 640x480 with 1 Axes"),
    (rules.describes_its_figures, ALT, "other: nothing"),
    (rules.describes_its_figures, ALT, f"alt: {CAPTION}"),
    (rules.describes_its_figures, CAPTION, "Time against size"),
    (rules.describes_its_figures, "name: fig-sample", "name: sample"),
    (rules.describes_its_figures, "{numref}`fig-sample` shows it.", "This shows it."),
    (rules.describes_its_figures, "No two messages", "![](picture.png) No two messages"),
    (rules.describes_its_figures, "No two messages", ":::{figure} a.png\n:width: 80%\nText.\n:::\n\nNo two messages"),
    (rules.has_portable_mathematics, "$$ T(n)", "$$\n\\begin{align}\na\n\\end{align}\n$$\n\n$$ T(n)"),
    (rules.has_no_doubled_doi, "No two messages", "https://doi.org/https://doi.org/10.1/2 No two messages"),
]


@pytest.mark.parametrize(("rule", "sound", "broken"), PLANTED, ids=lambda value: getattr(value, "__name__", None))
def test_a_planted_fault_is_found(rule, sound, broken):
    assert sound in SAMPLE
    assert faults(SAMPLE.replace(sound, broken, 1), rule)


def test_a_recorded_number_that_nobody_shows_is_found():
    assert faults(SAMPLE, rules.records_what_it_shows, recorded=("t", "u"))


def test_references_to_nothing_are_found():
    def sample(sound, broken):
        return rules.Page(SAMPLE_PATH, SAMPLE.replace(sound, broken), {"t"})

    lost, unused = sample("{eq}`eq-sample`", "{eq}`eq-other`"), sample("By {eq}`eq-sample` it", "It")
    assert len(list(rules.refers_to_equations(lost, [lost]))) == 2
    assert list(rules.refers_to_equations(unused, [unused]))
    assert list(rules.cites_what_exists(lost, {"somebody else"}))


def test_a_page_that_is_too_short_is_found():
    assert faults(SAMPLE, rules.has_the_length_of_a_chapter)


TYPED = {
    "a sentence": "It reaches 43.2 GB/s here.",
    "a list item": "- the ring needs 12 µs\n- the tree does not",
    "a numbered list": "1. It takes 40GB/s.",
    "a table's cell": "| law | time |\n|---|---|\n| ring | 12 ms |",
    "a table whose heading has the unit": "| law | time (ms) |\n|---|---|\n| ring | 12.5 |",
    "a heading": "## The ring is 12× slower",
    "a box's title": ":::{note} Within 3 %\nA word.\n:::",
    "a box": "```{admonition} Note\nIt is within 3% of it.\n```",
    "a caption": ":::{figure} a.svg\n:alt: a curve\n\nThe ring takes 12 ms.\n:::",
    "an alternative text": ":::{figure} a.svg\n:alt: a curve that ends at 12 ms\n:::",
    "a figure's caption": "```{code-cell}\n---\nmystnb:\n  figure:\n    caption: It takes 12 ms.\n---\nshow(fig)\n```",
    "HTML": "<p>It is <b>12</b>&nbsp;GB/s.</p>",
    "an HTML table": "<table><tr><td>12.5</td></tr></table>",
    "a multiplier, ×": "It is 12× faster.",
    "a multiplier, spaced ×": "It is 12 × faster.",
    "a multiplier, x": "It is 2.5x faster.",
    "a multiplier, times": "It is 12 times faster.",
    "a multiplier, fold": "It is a 12-fold gain.",
    "a multiplier, factor": "It gains a factor of 12.",
    "a percentage": "A gain of 3 %.",
    "a percentage in words": "A gain of 3 percent.",
    "a range": "Between 2–16 % of it.",
    "thousands": "It does 1,979 TFLOP/s.",
    "a power of ten": "It moves 10⁹ bytes.",
    "an adjective": "A 100-MB message.",
    "emphasis": "It moves **12** GB/s.",
    "a link": "It moves [12 GB/s](notation.md).",
    "two lines": "It takes\n12\nseconds.",
    "mathematics": r"It moves $12\,\text{GB/s}$.",
    "mathematics, then a unit": "It takes $T = 12$ µs.",
    "a displayed equation": "$$\nT = 5\\,\\mathrm{ms}\n$$",
    "money": r"It costs \$5.",
    "beside a citation in another sentence": "They say so {cite}`a`. It moves 12 GB/s.",
    "an exercise": "```{exercise}\n:label: ex-a\nA link of 25 GB/s takes how long?\n```",
}


@pytest.mark.parametrize("text", TYPED.values(), ids=TYPED.keys())
def test_a_typed_number_is_found_in(text):
    assert prose.typed_numbers(text)


FINE = {
    "a word": "It is twice as fast, in two steps, a tenfold gain.",
    "a recorded number": "It moves {glue:text}`x:.1f` GB/s, {glue:text}`y:.0f` times as much.",
    "a citation in the sentence": "They moved 12 GB/s {cite}`a`. It is so.",
    "a citation after the full stop": "They moved 12 GB/s. {cite}`a`",
    "a citation in the row": "| who | GB/s |\n|---|---|\n| they {cite}`a` | 12 |",
    "a definition": r"With $C \approx 6PD$, $2(N-1)$ rounds and $\text{GiB} = 2^{30}$ bytes.",
    "a displayed definition": "$$ T = 2(N-1)\\left(\\alpha + \\frac{n}{N\\beta}\\right) $$ (eq)",
    "a count": "On 8 ranks and 2 nodes, 4×8 of them, in 2024, by Principle 11 and PCIe 5.0.",
    "a model's name": "Of a 405B model on p5.48xlarge.",
    "a number format": "An 8-bit number.",
    "code": "Write `12 * GB`, not 12.",
    "a code cell": "```{code-cell}\nn = 12 * GB  # 12 GB\n```",
    "an option": ":::{figure} a.svg\n:width: 80%\n:alt: a curve\n:::",
}


@pytest.mark.parametrize("text", FINE.values(), ids=FINE.keys())
def test_no_typed_number_is_found_in(text):
    assert prose.typed_numbers(text) == []


def test_what_may_be_typed_is_a_short_list_with_reasons():
    assert len(prose.ALLOWED) <= 8
    assert all(len(reason.split()) >= 4 for reason in prose.ALLOWED.values())
