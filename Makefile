# make demo    install into .venv and run the demonstration
# make test    install into .venv and run the linter, the type checker and the tests
#              but the slow ones, each of which has a quicker sibling here
# make test-slow     run the slow tests
# make test-lowest   run the tests' core on the lowest versions that are allowed
# make test-wheel    build the sdist and from it the wheel, install it in an environment
#              of its own, and run the README's examples there
# make docs    install into .venv, build docs/_build/html and look up the links inside
# make links   look up the documentation's links to other sites; needs a network
# make clean   remove .venv and everything that was built

PYTHON ?= python3
BIN := .venv/bin
DOCS := docs/_build docs/auto_examples docs/generated

# Enough to find what old versions lack: the cases fit, predict, clone and pickle all six
# methods on every kind of table; the rest is whatever meets another library directly:
# frames, messages, processes, encryption, privacy accounting, plots and progress. What
# the methods compute does not depend on versions that torch and scikit-learn allow.
CORE := $(addprefix tests/,cases nn privacy) \
	$(patsubst %,tests/federation/test_%.py,log transports wire) \
	$(patsubst %,tests/test_%.py,alignment columns evaluation partition preprocessing \
	random_projection)

# One worker for each core: tests share no files, and none depends on another's speed.
PARALLEL := -n auto --maxprocesses 8 --dist worksteal

export OMP_NUM_THREADS := 1

.PHONY: demo test test-slow test-lowest test-wheel docs links clean

demo: .venv/.installed-frames
	$(BIN)/python examples/demo.py

test: .venv/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow"

test-slow: .venv/.installed-test
	$(BIN)/python -m pytest $(PARALLEL) -m slow

# Releases of long ago call what others have deprecated since: no error of ours.
test-lowest: .venv-lowest/.installed
	.venv-lowest/bin/python -m pytest -q -W ignore::DeprecationWarning $(PARALLEL) \
		-m "not slow" $(CORE)

# Whatever the checkout has and the wheel lacks, such as a module of a new folder, fails
# here: the examples run where there is no checkout.
test-wheel: .venv/.installed-test
	rm -rf build dist .venv-wheel
	$(BIN)/python -m build --no-isolation --outdir dist . > /dev/null
	rm -rf build *.egg-info
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip install --quiet -c constraints.txt "$$(ls dist/*.whl)[frames,plot]"
	mkdir .venv-wheel/tests
	cp README.md .venv-wheel/
	cp tests/test_readme.py .venv-wheel/tests/
	cd .venv-wheel && bin/python -c "import runpy; \
		checks = runpy.run_path('tests/test_readme.py'); \
		[each() for name, each in checks.items() if name.startswith('test_')]"

docs: .venv/.installed-docs
	rm -rf $(DOCS)
	$(BIN)/sphinx-build -W -n -q -b html docs docs/_build/html
	$(BIN)/python docs/check_links.py

# No part of `make docs`: another site that is down for a day is no fault of ours.
links: .venv/.installed-docs
	@echo "This needs a network; without one every link to another site counts as broken"
	$(BIN)/sphinx-build -q -b linkcheck -D plot_gallery=0 docs docs/_build/links

clean:
	rm -rf .venv .venv-lowest .venv-wheel build dist *.egg-info $(DOCS)

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
