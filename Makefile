# make demo    install into .venv and run the demonstration
# make test    install into .venv and run the linter, the type checker and the tests
# make test-lowest   run the tests' core on the lowest versions that are allowed
# make docs    install into .venv and build docs/_build/html
# make clean   remove .venv and everything that was built

PYTHON ?= python3
BIN := .venv/bin
DOCS := docs/_build docs/auto_examples docs/generated

CORE := $(addprefix tests/,cases federation nn privacy) \
	$(patsubst %,tests/test_%.py,alignment evaluation partition preprocessing splitters \
	random_projection splitnn fedonce vfedsec)

export OMP_NUM_THREADS := 1

.PHONY: demo test test-lowest docs clean

demo: .venv/.installed-frames
	$(BIN)/python examples/demo.py

test: .venv/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

# Releases of long ago call what others have deprecated since: no error of ours.
test-lowest: .venv-lowest/.installed
	.venv-lowest/bin/python -m pytest -q -W ignore::DeprecationWarning $(CORE)

docs: .venv/.installed-docs
	rm -rf $(DOCS)
	$(BIN)/sphinx-build -W -n -q -b html docs docs/_build/html

clean:
	rm -rf .venv .venv-lowest build dist *.egg-info $(DOCS)

$(BIN)/python:
	$(PYTHON) -m venv .venv

.venv/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing skvfl[$*] into .venv; the first time takes a minute or more"
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[$*]'
	touch $@

.venv-lowest/.installed: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet -c constraints-lowest.txt -e '.[test]'
	touch $@
