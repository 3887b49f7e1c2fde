"""Build the site into _build/html, every chapter executed, every warning an error; the cause of a failure comes last.

Chapters are executed again when their code or anything in distlib has changed.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import chapters

BUILD = chapters.ROOT / "_build"


def forget_stale_outputs():
    """Remove the execute cache if distlib is another than at the last build: the cache looks at a cell's code alone."""
    digest = hashlib.sha256()
    for path in sorted(path for path in (chapters.ROOT / "distlib").rglob("*") if path.suffix in (".py", ".csv")):
        digest.update(path.relative_to(chapters.ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    stamp = BUILD / "distlib.sha256"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != digest.hexdigest():
        for folder in (".jupyter_cache", ".doctrees", "jupyter_execute"):
            shutil.rmtree(BUILD / folder, ignore_errors=True)
        BUILD.mkdir(exist_ok=True)
        stamp.write_text(digest.hexdigest(), encoding="utf-8")


def run_jupyter_book():
    """Run jupyter-book, its output passed on; return its exit status and its lines."""
    command = [str(Path(sys.executable).parent / "jupyter-book"), "build", ".", "-W", "-n", "--keep-going"]
    environment = os.environ | {"PYTHONPATH": str(chapters.ROOT), "NO_COLOR": "1", "PYTHONUTF8": "1"}
    lines = []
    with subprocess.Popen(
        command, cwd=chapters.ROOT, env=environment, text=True, encoding="utf-8", errors="replace",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        for line in process.stdout:
            if "Kernel is running over TCP" not in line:  # on this machine alone, and so said for nothing
                print(line, end="", flush=True)
            lines.append(re.sub(r"\x1b\[[0-9;]*m", "", line.rstrip()))
    return process.returncode, lines


def causes(lines):
    """Of the lines of a failed build those that say why: a failing cell with its traceback, else the warnings."""
    cell = [i for i, line in enumerate(lines) if "An error occurred while executing the following cell" in line]
    if cell:
        end = next((i for i in range(cell[0], len(lines)) if lines[i].startswith("The above exception")), len(lines))
        chapter = [line for line in lines if "Executing notebook failed" in line]
        return chapter[:1] + [line for line in lines[cell[0] : end] if line.strip()]
    start = [i for i, line in enumerate(lines) if re.match(r"(Extension|Configuration|Theme|Application) error", line)]
    if start:
        return lines[start[0] : start[0] + 2]
    return [line for line in lines if "WARNING: " in line or "ERROR: " in line] or lines[-30:]


def main():
    forget_stale_outputs()
    status, lines = run_jupyter_book()
    if status:
        # A page that warned must be read again: an unchanged page is silent.
        shutil.rmtree(BUILD / ".doctrees", ignore_errors=True)
        sys.exit("\nThe book was not built:\n" + "\n".join(causes(lines)))
    print(f"\nOpen {Path(BUILD / 'html' / 'index.html').as_uri()}")


if __name__ == "__main__":
    main()
