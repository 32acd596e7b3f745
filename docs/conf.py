"""The documentation as a site: `make -C docs html` writes docs/_build/html. The reference is made from the package."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))

import ddlsim  # noqa: E402

project = "ddlsim"
author = "The ddlsim developers"
release = version = ddlsim.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "generated_reference"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"ddlsim {release}"
html_show_sphinx = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_class_signature = "separated"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

# `make -C docs linkcheck`: pages of publishers that answer programs with an error.
linkcheck_ignore = [r"https://doi\.org/.*"]
linkcheck_timeout = 20
