"""Reads a page of the book as its parts, and finds in its prose the numbers that nobody computed."""

import html
import re
from dataclasses import dataclass

import yaml

FENCE = re.compile(
    r"^\s*(?P<fence>`{3,}|:{3,}|~{3,})\s*(?:\{(?P<directive>[\w:+-]+)\}|(?P<language>[\w+-]*))\s*(?P<title>.*)$"
)
VERBATIM = {"code-cell", "code-block", "code", "sourcecode", "literalinclude", "raw", "mermaid"}
#: The options of a directive that a reader sees.
SEEN = ("caption", "alt", "title", "subtitle")


@dataclass
class Block:
    """A part of a page: `prose` (one paragraph, list item, heading, title or row), `math`, `cell` or `code`."""

    kind: str
    line: int
    text: str
    header: str = ""  # of a table's row: the table's first row


def front_matter(text):
    match = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    return (yaml.safe_load(match[1]) or {}, match[0].count("\n")) if match else ({}, 0)


def blocks(text):
    """The page's parts in order, with their line numbers."""
    lines = text.split("\n")
    found, paragraph, open_fences, header = [], [], [], ""
    i = front_matter(text)[1]

    def end_paragraph():
        if paragraph:
            found.append(Block("prose", paragraph[0][0], " ".join(line for _, line in paragraph)))
            paragraph.clear()

    def verbatim(kind, start, closes):
        body = []
        while i + 1 + len(body) < len(lines) and not closes(lines[i + 1 + len(body)]):
            body.append(lines[i + 1 + len(body)])
        found.append(Block(kind, start + 1, "\n".join(body)))
        return start + len(body) + 2

    while i < len(lines):
        line = lines[i]
        fence = FENCE.match(line)
        if fence:
            end_paragraph()
            mark, directive = fence["fence"], fence["directive"]
            closing = re.compile(rf"^\s*{re.escape(mark[0])}{{{len(mark)},}}\s*$")
            if open_fences and open_fences[-1].match(line) and not (directive or fence["language"] or fence["title"]):
                open_fences.pop()
            elif directive == "math":
                i = verbatim("math", i, closing.match)
                continue
            elif directive in VERBATIM or (directive is None and mark[0] in "`~"):
                i = verbatim("cell" if directive == "code-cell" else "code", i, closing.match)
                continue
            else:
                open_fences.append(closing)
                if fence["title"]:
                    found.append(Block("prose", i + 1, fence["title"]))
                i = _options(lines, i, found)
                continue
        elif line.lstrip().startswith("$$") or line.startswith("\\begin{"):
            end_paragraph()
            first, start, close = line.lstrip(), i, "\\end{" if line.startswith("\\") else "$$"
            body = [first]
            while close not in (first[2:] if body == [first] else body[-1]) and i + 1 < len(lines):
                i += 1
                body.append(lines[i])
            found.append(Block("math", start + 1, "\n".join(body)))
        elif not line.strip() or line.strip() == "+++" or re.fullmatch(r"\([\w-]+\)=", line.strip()):
            end_paragraph()
            header = ""
        elif line.lstrip().startswith("|"):
            end_paragraph()
            header = header or line
            found.append(Block("prose", i + 1, line.strip(), header))
        else:
            if re.match(r"\s*([-*+]|\d+[.)])\s|#", line):
                end_paragraph()
            paragraph.append((i + 1, line.strip()))
        i += 1
    end_paragraph()
    return found


def _options(lines, i, found):
    """Pass over a directive's options below line i, keeping those that a reader sees; return the next line's index."""
    i += 1
    if i < len(lines) and lines[i].strip() == "---":
        end = next((j for j in range(i + 1, len(lines)) if lines[j].strip() == "---"), i)
        options = yaml.safe_load("\n".join(lines[i + 1 : end])) or {}
        found += [Block("prose", i + 1, str(options[name])) for name in SEEN if name in options]
        return end + 1
    while i < len(lines) and (option := re.match(r"\s*:([\w-]+):\s*(.*)$", lines[i])):
        if option[1] in SEEN:
            found.append(Block("prose", i + 1, option[2]))
        i += 1
    return i


def cell_options(cell):
    """The options above a cell's code, in either form, and the code."""
    lines = cell.split("\n")
    if lines[0].strip() == "---":
        end = lines.index("---", 1)
        return yaml.safe_load("\n".join(lines[1:end])) or {}, "\n".join(lines[end + 1 :])
    end = next((i for i, line in enumerate(lines) if not line.startswith(":")), len(lines))
    return yaml.safe_load("\n".join(line[1:] for line in lines[:end])) or {}, "\n".join(lines[end:]).lstrip("\n")


# --- typed numbers ---

_NUMBER = r"(?<![\w.\\])\d(?:[\d.,\u202f]*\d)?(?:[⁰¹²³⁴-⁹⁻]+|\^\{?-?\d+\}?|[eE][-+]?\d+)?"
_SCALE = r"(?:\s(?:thousand|million|billion|trillion))?"
_TIME = r"[mµμnu]?s|(?:milli|micro|nano)?seconds?|min|minutes?|h|hours?|days?|weeks?|months?|years?"
_DATA = r"(?:[kKMGTPE]i?|kilo|mega|giga|tera|peta)(?:B|bytes?|bits?|b)(?:ps)?|bytes?|bits?|bps|tokens?"
_WORK = r"[kMGTPEZ]?(?:FLOPs?|FLOPS)|[kMG]?Wh?|watts?|[kMG]?J|joules?|[kMG]?Hz|nats?|dollars?|USD|euros?"
_UNIT = rf"(?:[-\s]?(?:{_TIME}|{_DATA}|{_WORK})|\sB)(?:/\w+|\sper\s\w+)?(?![\w-])"
_PERCENT = r"[-\s]?(?:\\?%|per\s?cent\b|percentage\b)"
_TIMES = r"(?:×(?!\w)|\s×(?=\s*(?:$|[.,;:)?]|[a-z]{2}))|x\b|\stimes\b|[-\s]?fold\b|\sorders?\sof\smagnitude)"

FIGURE = re.compile(
    rf"{_NUMBER}{_SCALE}(?:{_UNIT}|{_PERCENT}|{_TIMES})|\bfactors?(?:\sof)?(?:\s\w+)?\s{_NUMBER}|\\\$\s?\d[\d.,]*"
)
IN_MATH = re.compile(
    rf"{_NUMBER}(?:\\[,;: ]|~|\s)*(?:\\%|\\(?:text|mathrm|textrm|operatorname)\{{\s*(?:{_TIME}|{_DATA}|{_WORK}|B)\b"
    r"|\\mu\s*\\?(?:text|mathrm)?\{?s|\\times\s*$)"
)
_UNIT_IN_HEADING = re.compile(rf"[(\[,]\s*(?:{_TIME}|{_DATA}|{_WORK}|B|%|×)(?:/\w+)?\s*[)\]]?\s*$|^\s*(?:%|×)\s*$")
_BARE = re.compile(rf"^\W*{_NUMBER}\W*$")

#: What may stand as typed, and why. Short: a number that follows from others is recorded, one that was read is cited.
ALLOWED = {
    r"\b\d+-bit\b": "names a number format or a word length, not a result",
    r"\b[AHB]\d00[- ]\d+ ?GB\b": "the name of a product",
}


def typed_numbers(text, allowed=ALLOWED):
    """(line, what) for each figure with a unit, percentage or multiplier that was typed and not cited."""
    found = []
    for block in blocks(text):
        if block.kind == "math":
            found += [(block.line, match[0]) for match in IN_MATH.finditer(block.text)]
        elif block.kind == "prose":
            found += [(block.line, what) for what in _typed_in_prose(block, allowed)]
        elif block.kind == "cell":
            options = cell_options(block.text)[0].get("mystnb", {})
            seen = [options.get("figure", {}).get("caption", ""), options.get("image", {}).get("alt", "")]
            found += [(block.line, what) for part in seen for what in _typed_in_prose(Block("prose", 0, part), allowed)]
    return found


def _typed_in_prose(block, allowed):
    text = html.unescape(block.text)
    text = re.sub(r"\{(?:math)\}`([^`]*)`", r"$\1$", text)
    text = re.sub(r"\{(?!cite)[\w:+-]+\}`[^`]*`", "\ufffc", text)  # a role: what it shows was computed
    text = re.sub(r"(?<!\{cite)(?<!\{cite:[pt])(?<!\})`+[^`]*`+", "\ufffc", text)  # code
    text = re.sub(r"(?<!\\)\$([^$]+)\$", _mathematics, text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    found = re.findall(r"<t[dh][^>]*>\s*(\d[\d.,]*)\s*</t", text)
    text = re.sub(r"\s+", " ", re.sub(r"</?\w[^>]*>|<!--.*?-->", " ", text))
    text = re.sub(r"[*_]{1,3}(?=\S)|(?<=\S)[*_]{1,3}", "", text)
    for phrase in allowed:
        text = re.sub(phrase, "\ufffc", text)
    cells = _columns(text)
    headings = _columns(block.header)
    for sentence in [text] if block.header else sentences(text):
        if "{cite" in sentence:
            continue
        found += [match[0] for match in FIGURE.finditer(sentence)]
        found += re.findall("\ufdd0([^\ufdd1]*)\ufdd1", sentence)
        if block.header and block.text != block.header:
            pairs = zip(cells, headings, strict=False)
            found += [cell for cell, heading in pairs if _BARE.match(cell) and _UNIT_IN_HEADING.search(heading)]
    return [what.strip() for what in found]


def _mathematics(match):
    """What a formula in a line leaves to look at: its figures with units, and a number that it ends with."""
    inside = "".join(f"\ufdd0{figure[0]}\ufdd1" for figure in IN_MATH.finditer(match[1]))
    last = re.search(rf"(?:^|[=<>~≈]|\\(?:approx|simeq|sim|leq?|geq?|times))\s*({_NUMBER})\s*$", match[1])
    return f"\ufffc{inside}{last[1] if last and '^' not in last[1] else ''}"


def _columns(row):
    return [cell.strip() for cell in row.strip().strip("|").split("|")] if row.lstrip().startswith("|") else []


def sentences(text):
    """The sentences of a paragraph; a citation after the full stop belongs to the sentence before."""
    text = re.sub(r"([.?])(\s*\{cite[:\w]*\}`[^`]*`)", r"\2\1", text)
    ends = r"(?<=[.?])(?<!e\.g\.)(?<!i\.e\.)(?<!cf\.)(?<!vs\.)(?<!al\.)(?<!Fig\.)(?<!Eq\.)(?<!Sec\.)(?<!Table\.)"
    return re.split(ends + r"\s+(?=[A-Z\ufffc*(\[\d])", text)


def words(text):
    """How many words of prose a page has, code and mathematics apart."""
    prose = " ".join(block.text for block in blocks(text) if block.kind == "prose")
    prose = re.sub(r"\$[^$]+\$|\{[\w:+-]+\}`[^`]*`", "x", prose)
    return len(re.findall(r"[^\W\d_][\w'’-]*", prose))
