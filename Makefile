# Needs git, make and Python 3.11 or newer with venv; sets up the rest in .venv and needs no activation.
PYTHON ?= python3
BIN := .venv/bin
SHELL := /bin/sh

# Every program started here imports the distlib of this tree.
export PYTHONPATH := $(CURDIR)
# uv trusts what the machine trusts, as pip does: some networks have certificates of their own.
export UV_SYSTEM_CERTS := true

.PHONY: help book serve test test-slow golden course course-test pins public wheel bench clean
.DELETE_ON_ERROR:

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | while IFS='	' read -r target text; do \
	  printf '  make %-11s %s\n' "$$target" "$$text"; done

# uv is quicker; where it does not work, pip does the same.
PIP := $(BIN)/python -m pip install --disable-pip-version-check
.venv/.ok: requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is missing or older than 3.11: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) has no venv module (on Debian: apt-get install python3-venv)" >&2; exit 1; }
	@echo "sets up .venv (once, about a minute)"
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv
	@$(PIP) --quiet "$$(grep '^uv==' requirements.txt)" && \
	  $(BIN)/uv pip install --quiet --python $(BIN)/python -r requirements.txt || \
	  $(PIP) -r requirements.txt
	@touch $@

book: .venv/.ok  ## run every chapter and build the site
	@$(BIN)/python tests/make_book.py

serve: book  ## build the site and serve it on this machine
	@echo "http://localhost:8000 (Ctrl-C ends it)"
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory _build/html 8000

test: .venv/.ok  ## run every chapter and every test that takes no minutes
	@$(BIN)/python -m pytest -n auto --dist loadfile -m "not slow" $(PYTEST)

test-slow: .venv/.ok  ## run the tests that take minutes or other programs (see .ci/install)
	@$(BIN)/python -m pytest -n auto --dist loadfile -m slow $(PYTEST)

golden: .venv/.ok  ## store the chapters' outputs as the reference; one: CHAPTER=book/…/name.md
	@$(BIN)/python tests/make_golden.py $(CHAPTER)

# The problem sets for instructors; the published tree has none.
.venv/.course: .venv/.ok requirements/course.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python -r requirements/course.txt || \
	  $(PIP) -r requirements/course.txt
	@touch $@

HAS_COURSE = @[ -d course ] || \
  { echo "this tree has no course/: the problem sets are held back from the published tree" >&2; exit 1; }

course:  ## build the problem sets, for instructors, in dist/course
	$(HAS_COURSE)
	@$(MAKE) --no-print-directory .venv/.course
	@$(BIN)/python course/make_course.py $(SET)

course-test:  ## grade right, wrong, broken and hostile hand-ins of the problem sets
	$(HAS_COURSE)
	@$(MAKE) --no-print-directory .venv/.course
	@$(BIN)/python -m pytest -n auto course $(PYTEST)

PINS = $(BIN)/uv pip compile --quiet --python-version 3.11 --universal --no-header --no-annotate --no-emit-index-url
pins: .venv/.ok  ## pin again what requirements/*.in names
	@{ echo '# What CI runs, on Python 3.11; other versions of Python are untried.'; \
	   echo '# Made from requirements/book.in by `make pins`: every package, pinned.'; \
	   $(PINS) requirements/book.in; } > .pins && mv .pins requirements.txt
	@{ echo '# Made from requirements/ci.in by `make pins`, in step with requirements.txt.'; \
	   $(PINS) requirements/ci.in --constraint requirements.txt; } > .pins && mv .pins requirements/ci.txt
	@{ echo '# Made from requirements/course.in by `make pins`, in step with requirements.txt.'; \
	   $(PINS) requirements/course.in --constraint requirements.txt; } > .pins && mv .pins requirements/course.txt

public:  ## write the tree that is published, without what is held back, to dist/public
	@rm -rf dist/public && mkdir -p dist/public
	@git archive --format=tar -o dist/public.tar HEAD && tar -xf dist/public.tar -C dist/public && rm dist/public.tar
	@echo "dist/public holds the published tree of $$(git rev-parse --short HEAD)"

wheel: .venv/.ok  ## build the package distlib, wheel and sdist, in dist
	@$(BIN)/uv build --quiet --python $(BIN)/python --out-dir dist
	@ls dist/*.whl dist/*.tar.gz

bench: .venv/.ok  ## time the import of distlib, the planner and each chapter's cells
	@$(BIN)/python tests/bench.py

clean:  ## remove what was built, not .venv
	@rm -rf _build dist build .pytest_cache .hypothesis .mypy_cache .ruff_cache *.egg-info
	@find distlib tests book -name __pycache__ -prune -exec rm -rf {} +
