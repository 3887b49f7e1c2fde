"""The built site in a real browser: wide and narrow, light and dark, served and from disk, with nothing fetched.

And what it hands out: each downloaded notebook runs in the environment that Binder makes.
"""

import functools
import http.server
import io
import re
import shutil
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import numpy as np
import pytest

import chapters
import trees

pytestmark = pytest.mark.slow

WIDE, NARROW = 1280, 360
#: In a page: how many formulas MathJax has not set.
RAW = "[...document.querySelectorAll('.math')].filter(e => !e.querySelector('mjx-container')).length"


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    tree = trees.copy(tmp_path_factory.mktemp("site"))
    status, printed = trees.build(tree)
    assert status == 0, printed[-3000:]
    return tree


@pytest.fixture(scope="module")
def site(tree):
    return tree / "_build" / "html"


def pages(site):
    return [path.relative_to(site).as_posix() for path in sorted(site.glob("book/**/*.html"))] + ["search.html"]


# --- what the files say ---


class Links(HTMLParser):
    """The pictures, the links and the anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.pictures, self.links, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors |= {attrs[name] for name in ("id", "name") if attrs.get(name)}
        if tag == "img":
            self.pictures.append((attrs.get("src", ""), attrs.get("alt")))
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])


@pytest.fixture(scope="module")
def read(site):
    return {name: Links((site / name).read_text(encoding="utf-8")) for name in [*pages(site), "genindex.html"]}


def test_every_picture_says_what_it_shows(read):
    for name, page in read.items():
        for source, alt in page.pictures:
            assert alt and "Figure size" not in alt and not re.search(r"\.(svg|png)$", alt), (name, source, alt)


def test_links_within_the_site_lead_somewhere(site, read):
    for name, page in read.items():
        for link in page.links:
            address = urlsplit(link)
            if address.scheme or link.startswith("//"):
                continue
            target = (site / name).parent / unquote(address.path) if address.path else site / name
            target = target.resolve()
            assert target.exists(), (name, link)
            other = read.get(target.relative_to(site.resolve()).as_posix())
            if address.fragment and other:
                assert unquote(address.fragment) in other.anchors, (name, link)


def test_links_to_the_outside_are_well_formed(read):
    for name, page in read.items():
        for link in page.links:
            address = urlsplit(link)
            assert address.scheme in ("", "http", "https", "mailto"), (name, link)
            assert link.count("doi.org") <= 1, (name, link)


def test_launch_buttons_open_files_that_exist(tree, read):
    launched = {
        link for page in read.values() for link in page.links if "mybinder" in link or "urlpath" in link
    }
    assert len(launched) == len(chapters.chapters())
    for link in launched:
        found = re.fullmatch(r"https://mybinder\.org/v2/gh/[\w.-]+/[\w.-]+/main\?urlpath=lab/tree/(book/.+\.md)", link)
        assert found and (tree / found[1]).exists(), link


def test_pages_ask_for_nothing_from_elsewhere(site):
    """In the text of the pages; what their scripts fetch is watched in the browser."""
    for name in pages(site):
        text = (site / name).read_text(encoding="utf-8")
        for tag in re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", text):
            if 'rel="canonical"' not in tag:
                assert not re.search(r"""(?:src|href)=["'](?:https?:)?//""", tag), (name, tag)


# --- what a browser shows ---


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if not program:
        pytest.skip("chromium is not installed")
    quiet = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync", "--disable-quic"]  # fmt: skip
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=program, args=quiet)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(site):
    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def open_page(browser, address, theme="light", width=WIDE):
    """The page, settled, with the requests that it made and what its console complained about."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    page = context.new_page()
    page.asked, page.complaints = [], []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("console", lambda message: message.type == "error" and page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.add_init_script(f"localStorage.setItem('mode', '{theme}'); localStorage.setItem('theme', '{theme}')")
    page.goto(address)
    page.wait_for_load_state("networkidle")
    page.evaluate("window.MathJax && MathJax.startup && MathJax.startup.promise")
    return page


@pytest.fixture(scope="module")
def visited(browser, server, site):
    """What was found on each page as served, in each theme and width: {what: [(page, theme, width, detail)]}."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = {"asked": [], "complaints": [], "overflow": [], "axe": [], "raw mathematics": []}
    for name in pages(site):
        for theme, width in [("light", WIDE), ("dark", WIDE), ("light", NARROW), ("dark", NARROW)]:
            page = open_page(browser, f"{server}/{name}", theme, width)
            where = (name, theme, width)
            found["asked"] += [(*where, url) for url in page.asked if not url.startswith((server, "data:", "blob:"))]
            found["complaints"] += [(*where, text) for text in page.complaints]
            extent = page.evaluate("document.documentElement.scrollWidth")
            found["overflow"] += [(*where, extent)] if extent > width else []
            raw = page.evaluate(RAW)
            found["raw mathematics"] += [(*where, raw)] if raw else []
            results = axe.run(page, options={"resultTypes": ["violations"]}) if width == WIDE else None
            found["axe"] += [
                (*where, violation["id"], [node["html"][:200] for node in violation["nodes"]][:4])
                for violation in (results.response["violations"] if results else [])
                if violation["impact"] in ("serious", "critical")
            ]
            page.context.close()
    return found


def test_no_request_leaves_the_machine(visited):
    assert visited["asked"] == []


def test_the_console_is_silent(visited):
    assert visited["complaints"] == []


def test_no_page_is_wider_than_the_screen(visited):
    assert visited["overflow"] == []


def test_mathematics_is_set(visited):
    assert visited["raw mathematics"] == []


def test_accessible_in_light_and_dark(visited):
    """No serious or critical finding of axe-core, contrast of 4.5:1 among its rules."""
    assert visited["axe"] == []


def test_from_disk_a_page_is_whole(browser, site):
    for name in pages(site):
        page = open_page(browser, (site / name).as_uri())
        assert [url for url in page.asked if not url.startswith(("file:", "data:", "blob:"))] == [], name
        assert page.evaluate("[...document.images].filter(i => i.complete && !i.naturalWidth).length") == 0, name
        assert page.evaluate(RAW) == 0, name
        page.context.close()


def test_search_finds_a_word_from_disk_and_served(browser, server, site):
    for root in (server, site.as_uri()):
        page = open_page(browser, f"{root}/search.html?q=bandwidth")
        page.wait_for_selector("#search-results li a", timeout=10_000)
        page.context.close()


def test_figures_are_legible_in_both_themes(browser, server, site):
    """Ink against the ground, as the picture's edge shows it: 4.5:1 or more by WCAG, and the ground is the page's."""
    from PIL import Image

    def luminance(pixels):
        channel = pixels / 255
        linear = np.where(channel <= 0.04045, channel / 12.92, ((channel + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    for name in pages(site):
        for theme in ("light", "dark"):
            page = open_page(browser, f"{server}/{name}", theme)
            for picture in page.query_selector_all(".bd-article .cell_output img"):
                picture.scroll_into_view_if_needed()
                pixels = np.asarray(Image.open(io.BytesIO(picture.screenshot())).convert("RGB"))
                light = luminance(pixels.astype(float))
                edge = np.concatenate([light[0], light[-1], light[:, 0], light[:, -1]])
                ground, ink = np.median(edge), light.min() if theme == "light" else light.max()
                contrast = (max(ground, ink) + 0.05) / (min(ground, ink) + 0.05)
                assert contrast >= 4.5 and (ground > 0.8) == (theme == "light"), (name, theme, contrast)
            page.context.close()


# --- what the site hands out ---


@pytest.fixture(scope="module")
def binder(tree, tmp_path_factory):
    """Python in an environment made from binder/ alone, as Binder makes it."""
    # Binder's own base has the notebook server and its kernel.
    needs = ["-r", tree / "binder" / "requirements.txt", "ipykernel", "nbclient", tree]
    folder = tmp_path_factory.mktemp("binder")
    return trees.virtual_environment(folder / "env", *needs, cwd=folder)


def test_binders_environment_is_small(binder):
    folder = binder.parent.parent
    size = sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
    assert size < 1e9
    installed = trees.run(Path(sys.executable).with_name("uv"), "pip", "list", "--python", binder, cwd=folder)[1]
    assert "torch" not in installed and "myst-nb" not in installed


RUN = """
import resource, sys, nbformat, nbclient
notebook = nbformat.read(sys.argv[1], as_version=4)
assert not any("{glue:" in cell.source for cell in notebook.cells if cell.cell_type == "markdown")
nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute(cwd=sys.argv[2])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
"""


@pytest.mark.parametrize("chapter", chapters.chapters(), ids=lambda path: path.stem)
def test_a_downloaded_chapter_runs_in_binders_environment(chapter, binder, site, tmp_path):
    download = site / "_sources" / chapter.relative_to(chapters.ROOT).with_suffix(".ipynb")
    status, printed = trees.run(binder, "-c", RUN, download, tmp_path, cwd=tmp_path, PYTHONPATH="")
    assert status == 0, printed[-3000:]
    assert float(printed.split()[-1]) < 1000  # MB, at its peak


# --- the problem sets, where the tree has them: not in the site, and at home in Binder ---

if (chapters.ROOT / "course").exists():
    from course import grading, leaks

    def test_nothing_of_the_problem_sets_is_in_the_site(site):
        assert leaks.found(site, leaks.secrets()) == []
        pages = [path.relative_to(site).as_posix() for path in site.rglob("*") if "course" in path.parts]
        assert pages == [] and '"course/' not in (site / "searchindex.js").read_text(encoding="utf-8")

    @pytest.mark.parametrize("one", grading.sets(), ids=lambda one: one.name)
    def test_a_problem_set_opens_and_runs_in_binders_environment(one, binder, tmp_path):
        """Untouched, only the checks that an answer is there fail; with the reference's answers nothing does."""
        for notebook, allowed in ((grading.release(one), {"AssertionError"}), (one.notebook, set())):
            nbformat.write(notebook, tmp_path / "set.ipynb")
            status, printed = trees.run(binder, "-c", ERRORS, "set.ipynb", cwd=tmp_path, PYTHONPATH="")
            assert status == 0, printed[-3000:]
            assert set(printed.split("errors:")[1].split()) == allowed, printed[-3000:]


ERRORS = """
import sys, nbformat, nbclient
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", allow_errors=True).execute()
outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
print("errors:", *[output.ename for output in outputs if output.output_type == "error"])
"""
