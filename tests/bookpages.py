"""What the build adds to the pages (a Sphinx extension): downloads that any Jupyter can show, and two repairs.

In a notebook for download MyST's own markup becomes Markdown: numbers recorded for the prose are written in, equations
and figures are numbered, boxes become bold titles.
"""

import re
import tomllib
from pathlib import Path

import nbformat
from jupyter_cache import get_cache
from myst_nb.core.variables import format_plain_text

import chapters

FENCE = re.compile(r"^\s*(:{3,}|`{3,})(?:\{([\w:-]+)\}\s*(.*))?$")
SILENT = {"bibliography", "solution-end", "exercise-end", "contents", "index", "figure", "image"}


def address():
    """Where the book lives: the one place is pyproject.toml."""
    project = tomllib.loads((chapters.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return project["project"]["urls"]["Repository"]


def plain(notebook, values):
    """The notebook with MyST's markup turned into plain Markdown; `values` are its records."""
    numbers = {}
    cells = [nbformat.v4.new_markdown_cell(f"*This notebook needs the book's package:* `pip install git+{address()}`")]
    for cell in notebook.cells:
        cells.append(cell)
        figure = cell.metadata.pop("mystnb", {}).get("figure")
        if cell.cell_type == "markdown":
            cell.source = _number_equations(cell.source, numbers)
        elif figure:
            numbers[figure["name"]] = f"Fig. {sum(text.startswith('Fig.') for text in numbers.values()) + 1}"
            cells.append(nbformat.v4.new_markdown_cell(f"**{numbers[figure['name']]}.** {figure['caption']}"))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
        if cell.cell_type == "markdown":
            cell.source = _roles(_boxes(cell.source), values, numbers)
    notebook.cells = [cell for cell in cells if cell.source.strip()]
    return notebook


def _number_equations(text, numbers):
    def tag(label):
        numbers[label] = f"Eq. ({sum(text.startswith('Eq.') for text in numbers.values()) + 1})"
        return rf"\tag{{{numbers[label][5:-1]}}}"

    text = re.sub(r"\$\$([^$]+?)\s*\$\$ *\(([\w-]+)\)", lambda m: f"$${m[1]} {tag(m[2])}$$", text)
    directive = r"(?m)^```\{math\}\n((?::[\w-]+:.*\n)*)((?:.*\n)*?)```"

    def block(match):
        label = re.search(r":label: *([\w-]+)", match[1])
        return f"$$\n{match[2].strip()} {tag(label[1]) if label else ''}\n$$"

    return re.sub(directive, block, text)


def _boxes(text):
    """Directives without their fences and options: the title in bold, then the content."""
    lines, open_boxes, options = [], [], False
    for line in text.split("\n"):
        fence = FENCE.match(line)
        if fence and fence[2]:
            open_boxes.append((fence[1], fence[2] in SILENT))
            options = True
            kind = fence[2].split(":")[-1].removesuffix("-start")
            title = fence[3] if fence[3] and kind != "solution" else kind.capitalize()
            if not open_boxes[-1][1]:
                lines += [f"**{title}**", ""]
        elif fence and open_boxes and fence[1] == open_boxes[-1][0]:
            open_boxes.pop()
        elif options and re.match(r"\s*:[\w-]+:|---$", line):
            continue
        elif re.fullmatch(r"\(([\w-]+)\)=", line):
            continue
        elif not any(silent for _, silent in open_boxes):
            options = False
            lines.append(line)
    return "\n".join(lines)


def _roles(text, values, numbers):
    def role(match):
        name, content = match[1], match[2]
        if name == "glue:text":
            key, _, spec = content.partition(":")
            return format_plain_text(values[key], spec or "s")
        if name.startswith("cite"):
            return f"[{content}]"
        if name == "math":
            return f"${content}$"
        title, _, target = content.rpartition("<")
        return numbers.get(target.rstrip(">").strip()) or title.strip() or content

    text = re.sub(r"\{([\w:-]+)\}`([^`]+)`", role, text)
    return re.sub(r"\[\]\(#?([^)\s]+)\)", r"\1", text)


def write_downloads(app, exception):
    """Rewrite each notebook in the built site that a page offers for download, with what its run recorded."""
    if exception or app.builder.name != "html":
        return
    cache, sources = get_cache(app.env.mystnb_config.execution_cache_path), Path(app.outdir) / "_sources"
    for path in sorted(sources.rglob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        if "source_map" not in notebook.metadata:
            continue  # written here at an earlier build, its chapter unchanged since
        run = cache.get_cache_bundle(cache.match_cache_notebook(notebook).pk).nb
        notebook.metadata = chapters.KERNEL.copy()
        path.write_text(nbformat.writes(plain(notebook, chapters.records(run))) + "\n", encoding="utf-8")


def repair_page(app, pagename, templatename, context, doctree):
    """Leave out Thebe, which declares its constants twice and is not offered; give sources roles that screens read."""
    scripts = context.get("script_files", [])
    scripts[:] = [script for script in scripts if "thebe" not in f"{vars(script)}"]
    if "body" in context:
        context["body"] = context["body"].replace('<div role="list" class="citation', '<div class="citation')


def setup(app):
    app.connect("build-finished", write_downloads)
    app.connect("html-page-context", repair_page, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
