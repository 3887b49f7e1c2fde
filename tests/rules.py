"""The rules of a page, each a function that yields what breaks it."""

import ast
import re
from functools import cached_property
from pathlib import Path

import nbformat

import chapters
import prose

#: The sections that close a chapter, in this order.
CLOSING = ["Where the model stops", "Takeaways", "Exercises", "Sources"]


class Page:
    """One page of the book: its text, its cells and what they recorded."""

    def __init__(self, path, text=None, recorded=None):
        self.path, self._recorded = Path(path), recorded
        self.text = self.path.read_text(encoding="utf-8") if text is None else text
        self.meta = prose.front_matter(self.text)[0]
        self.blocks = prose.blocks(self.text)
        self.cells = [Cell(block) for block in self.blocks if block.kind == "cell"]
        #: The page without its cells and code, for what is looked for in the text as it stands.
        self.outside = re.sub(r"(?ms)^\s*(`{3,})\{?(?:code|bash|python|text).*?^\s*\1\s*$", "", self.text)
        # Folded answers are written to be skipped: a page's length and number of cells do not count them.
        self.unfolded = re.sub(r"(?ms)^(`{3,}|:{3,})\{solution-start\}.*?\{solution-end\}", "", self.text)
        self.solutions = re.findall(r"(?ms)^(?:`{3,}|:{3,})\{solution-start\}(.*?)\{solution-end\}", self.text)

    @property
    def name(self):
        return self.path.resolve().relative_to(chapters.ROOT).as_posix()

    @property
    def runs(self):
        return "kernelspec" in self.meta

    @property
    def is_chapter(self):
        """A page of one law or one system, which has the whole anatomy."""
        return self.path.parent.name in ("principles", "systems") and self.path.name != "index.md"

    @cached_property
    def recorded(self):
        """The names that the page's cells record, figures apart."""
        if self._recorded is not None:
            return self._recorded
        if not self.runs:
            return set()
        if not chapters.golden_path(self.path).exists():
            return set()
        golden = nbformat.read(chapters.golden_path(self.path), as_version=4)
        return {name for name in chapters.records(golden) if not name.startswith("figure-")}

    def section(self, title):
        match = re.search(rf"(?ms)^## {re.escape(title)}\n(.*?)(?=^## |\Z)", self.text)
        return match[1] if match else ""


class Cell:
    def __init__(self, block):
        self.line = block.line
        self.options, self.code = prose.cell_options(block.text)
        self.tags = self.options.get("tags", [])
        self.lines = [line for line in self.code.split("\n") if line.strip()]
        try:
            self.tree = ast.parse(self.code)
        except SyntaxError:
            self.tree = ast.parse("")

    @property
    def folded(self):
        return {"hide-input", "hide-cell"} & set(self.tags)

    def calls(self):
        """(name as written, call) of each call in the cell."""
        return [(ast.unparse(node.func), node) for node in ast.walk(self.tree) if isinstance(node, ast.Call)]


# --- anatomy ---


def opens_with_a_question(page):
    titles = re.findall(r"(?m)^# (.+)", page.outside)
    if len(titles) != 1:
        yield f"has {len(titles)} titles (#), not one"
    first = re.search(r"(?m)^# .+\n\s*\n((?:.+\n?)+)", page.outside)
    if page.is_chapter and not (first and "?" in first[1]):
        yield "the first lines under the title ask no question"


def is_a_notebook(page):
    if page.is_chapter and not page.runs:
        yield "has no kernelspec in its front matter: it is not executed"
    form = page.meta.get("jupytext", {}).get("text_representation", {}).get("format_name")
    if page.runs and form != "myst":
        yield "does not say in its front matter that it is a notebook in MyST (jupytext: text_representation)"
    if page.cells and not page.runs:
        yield "has code cells but no kernelspec"


def has_its_parts_in_order(page):
    if not page.is_chapter:
        return
    if "**Predict.**" not in page.text:
        yield "has no paragraph that begins **Predict.**"
    sections = re.findall(r"(?m)^## (.+?)\s*$", page.outside)
    if sections[-4:] != CLOSING:
        yield f"closes with {sections[-4:]}, not with {CLOSING}"
    if "{glue:text}" not in page.section("Takeaways"):
        yield "its takeaways have no recorded number"
    if "{cite" not in page.section("Sources") and "{bibliography}" not in page.section("Sources"):
        yield "its sources cite nothing"


def has_exercises_with_folded_answers(page):
    if not page.is_chapter:
        return
    opening = r"(?m)^(?:`{3,}|:{3,})\{exercise(?:-start)?\}[^\n]*\n(?:^:[\w-]+:.*\n)*"
    asked = re.findall(opening, page.section("Exercises"))
    labels = [label for options in asked for label in re.findall(r":label:\s*([\w-]+)", options)]
    if not 4 <= len(asked) <= 6:
        yield f"has {len(asked)} exercises, not 4 to 6"
    if len(labels) != len(asked):
        yield "has an exercise without a label"
    answered = [solution.split("\n")[0].strip() for solution in page.solutions]
    for label in labels:
        if label not in answered:
            yield f"exercise {label} has no answer (solution-start {label})"
    if page.text.count("{solution-start}") != len(page.solutions):
        yield "has a solution-start without its solution-end"
    if any(":class: dropdown" not in solution for solution in page.solutions):
        yield "has an answer that is not folded (:class: dropdown)"
    if not any("{code-cell}" in solution for solution in page.solutions):
        yield "has no answer that executes"


def has_the_length_of_a_chapter(page):
    if not page.is_chapter:
        return
    words, cells = prose.words(page.unfolded), page.unfolded.count("{code-cell}")
    if not 1500 <= words <= 3300:
        yield f"has {words} words outside answers, far from 1,800 to 3,000"
    if not 10 <= cells <= 20:
        yield f"has {cells} cells outside answers, not 10 to 20"


# --- numbers ---


def types_no_number(page):
    for line, what in prose.typed_numbers(page.text):
        yield f"line {line}: {what!r} is typed: record it, or cite it in the same sentence"


def records_what_it_shows(page):
    shown = set()
    for content in re.findall(r"\{glue(?::\w+)?\}`([^`]+)`", page.text):
        other, _, key = content.rpartition("::")
        key = key.split(":")[0]
        if other:
            path = (page.path.parent / other).with_suffix(".md")
            if not path.exists() or key not in Page(path).recorded:
                yield f"shows {content!r}, which {other} does not record"
        elif key not in page.recorded:
            yield f"shows {key!r}, which no cell records"
        else:
            shown.add(key)
    mine = re.compile(rf"\{{glue(?::\w+)?\}}`[^`]*{re.escape(page.path.stem)}(?:\.md)?::([^`:]+)")
    elsewhere = {key for path in chapters.BOOK.rglob("*.md") for key in mine.findall(path.read_text(encoding="utf-8"))}
    for key in sorted(page.recorded - shown - elsewhere):
        yield f"records {key!r}, which no page shows"


def records_what_it_computed(page):
    for cell in page.cells:
        for name, call in cell.calls():
            if name == "record" and len(call.args) > 1 and isinstance(call.args[1], ast.Constant | ast.UnaryOp):
                yield f"line {cell.line}: {ast.unparse(call)} records a typed number"


# --- code ---


def imports_once(page):
    for number, cell in enumerate(page.cells):
        imports = any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(cell.tree))
        if number == 0 and (not imports or "hide-cell" not in cell.tags):
            yield "its first cell is not the imports, tagged hide-cell"
        if number == 0 and "use_style" not in [name for name, _ in cell.calls()]:
            yield "its first cell does not call use_style()"
        if number and imports:
            yield f"line {cell.line}: imports, which stand in the first cell only"


def has_short_cells(page):
    folded = "\n".join(page.solutions)
    for number, cell in enumerate(page.cells):
        limit = 15 if cell.folded or cell.code in folded else 8
        if number and len(cell.lines) > limit:
            yield f"line {cell.line}: {len(cell.lines)} lines in a cell, {limit} are allowed"
        for line in cell.lines:
            if len(line) > 72:
                yield f"line {cell.line}: {len(line)} characters in {line.strip()!r}, 72 are allowed"
            if line.rstrip().endswith(";"):
                yield f"line {cell.line}: {line.strip()!r} ends with a semicolon, which hides nothing here"
        if not cell.lines:
            yield f"line {cell.line}: an empty cell"


BANNED = {
    r"^\s*[%!]|\bpip\b": "a shell or magic command",
    r"https?://|\burllib\b|\brequests\b|\bsocket\b": "the network",
    r"\bwarnings\b": "hiding a warning",
    r"np\.random\.(?!default_rng\b|Generator\b|SeedSequence\b)|default_rng\(\s*\)|\bimport random\b": "unseeded chance",
    r"\bimport myst_nb\b|\bfrom myst_nb\b": "the book's builder",
}


def stays_in_the_kernel(page):
    for cell in page.cells:
        for pattern, what in BANNED.items():
            if match := re.search(pattern, cell.code, re.MULTILINE):
                yield f"line {cell.line}: {match[0].strip()!r}: a chapter does without {what}"
        for tag in {"remove-cell", "remove-input", "nbval-skip", "raises-exception", "skip-execution"} & set(cell.tags):
            yield f"line {cell.line}: tag {tag}: a reader sees, and the tests compare, every cell"


# --- figures, equations, references ---


def describes_its_figures(page):
    for cell in page.cells:
        if "show" not in [name for name, _ in cell.calls()]:
            continue
        options = cell.options.get("mystnb", {})
        figure, alt = options.get("figure", {}), str(options.get("image", {}).get("alt", ""))
        name, caption = figure.get("name", ""), str(figure.get("caption", ""))
        where = f"line {cell.line}: figure {name!r}"
        if not name.startswith("fig-"):
            yield f"{where}: its name does not begin with fig-"
        elif f"{{numref}}`{name}`" not in page.text and not re.search(rf"\{{numref\}}`[^`]*<{name}>`", page.text):
            yield f"{where}: the text does not refer to it ({{numref}})"
        if len(caption.split()) < 6 or not caption.rstrip().endswith("."):
            yield f"{where}: its caption is no sentence that states a finding"
        if len(alt.split()) < 5 or "Figure size" in alt or re.search(r"\.(svg|png)", alt):
            yield f"{where}: its alternative text says not what the picture shows"
        if alt.strip(". ") == caption.strip(". "):
            yield f"{where}: its alternative text repeats the caption"
    for alt, target in re.findall(r"!\[([^\]]*)\]\(([^)]*)\)", page.outside):
        if not alt.strip():
            yield f"picture {target} has no alternative text"
    for options in re.findall(r"(?m)^(?:`{3,}|:{3,})\{(?:figure|image)\}[^\n]*\n((?:^:[\w-]+:.*\n)*)", page.text):
        if not re.search(r":alt:\s*\S", options):
            yield "a figure or image directive has no :alt:"


def labels(page):
    """The labels of a page's equations."""
    mathematics = "\n".join(block.text for block in page.blocks if block.kind == "math")
    return re.findall(r"\$\$\s*\(([\w-]+)\)", page.outside) + re.findall(r"(?m)^:label:\s*([\w-]+)", mathematics)


def refers_to_equations(page, pages):
    used = {label for other in pages for label in re.findall(r"\{eq\}`([\w-]+)`", other.text)}
    known = [label for other in pages for label in labels(other)]
    for label in re.findall(r"\{eq\}`([\w-]+)`", page.text):
        if label not in known:
            yield f"refers to the equation {label}, which no page has"
    for label in labels(page):
        if label not in used:
            yield f"labels the equation {label}, to which nothing refers"
        if known.count(label) > 1:
            yield f"labels the equation {label}, and so does another page"


def cites_what_exists(page, bibliography):
    for keys in re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", page.text):
        for key in keys.split(","):
            if key.strip() not in bibliography:
                yield f"cites {key.strip()!r}, which references.bib has not"


def has_portable_mathematics(page):
    for block in page.blocks:
        inside_dollars = block.kind == "math" and block.text.startswith("$$")
        if inside_dollars and re.search(r"\\begin\{(align|gather|eqnarray)", block.text):
            yield f"line {block.line}: align or gather inside $$ breaks the PDF"


def has_no_doubled_doi(page):
    if re.search(r"doi\.org/+(https?:|doi)", page.text):
        yield "has a doubled DOI"


RULES = [
    opens_with_a_question, is_a_notebook, has_its_parts_in_order, has_exercises_with_folded_answers,
    has_the_length_of_a_chapter, types_no_number, records_what_it_shows, records_what_it_computed, imports_once,
    has_short_cells, stays_in_the_kernel, describes_its_figures, has_portable_mathematics, has_no_doubled_doi,
]  # fmt: skip
