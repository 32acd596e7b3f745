# Two commands for a fresh clone: `make run` and `make test`. Both make an environment of their own in .venv first.
VENV ?= .venv
PYTHON ?= python3
SCENARIO ?= scenarios/facade_30_2.yaml
PYTEST_FLAGS ?=
export PIP_DISABLE_PIP_VERSION_CHECK = 1

SOURCES = pyproject.toml CMakeLists.txt $(shell find csrc cmake ddlsim scenarios -type f -not -name '*.pyc' -not -name '*.so')

.PHONY: run test docs clean

run: $(VENV)/installed
	$(VENV)/bin/ddlsim run $(SCENARIO)

test: $(VENV)/installed-test
	$(VENV)/bin/pytest $(PYTEST_FLAGS)

# In the active environment if there is one (it needs the extra "docs"), otherwise in .venv.
ACTIVE = $(or $(VIRTUAL_ENV),$(CONDA_PREFIX))
docs: $(if $(ACTIVE),,$(VENV)/installed-docs)
	$(MAKE) -C docs html PYTHON=$(or $(ACTIVE),$(abspath $(VENV)))/bin/python

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(VENV)/bin/python $(SOURCES)
	$(VENV)/bin/pip install --quiet '.[vision]'
	touch $@

$(VENV)/installed-%: $(VENV)/bin/python $(SOURCES)
	$(VENV)/bin/pip install --quiet '.[$*]'
	touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) build docs/_build
