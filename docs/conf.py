"""The manual as a site: `make site` has Sphinx write it to build/site.

The sources are those of the repository: its folder is Sphinx's, so that pages outside docs are
pages of the site, too, and links lead where they lead in a browser of the repository.
"""

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tools.site import (  # noqa: E402 - of the folder above
    components,
    conformance,
    docstrings,
    interface,
    links,
    state_diagrams,
)

project = "Stagecoach"
html_title = "Stagecoach"
smartquotes = False  # `--option` stays what it is
html_theme = "furo"
root_doc = "docs/index"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
include_patterns = ["*.md", "docs/**", "examples/*/README.md"]
# What is not looked into; links of src lead back to folders beside it.
exclude_patterns = [
    path.name for path in ROOT.iterdir() if path.is_dir() and path.name not in ("docs", "examples")
]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinxarg.ext",
]

# `[text](page.md#heading)` leads to a heading, as on GitHub.
myst_heading_anchors = 3

# `Name` is a link if it is documented, else literal.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 88
napoleon_google_docstring = False
# Several names may share an entry.
napoleon_custom_sections = [(section, "params_style") for section in docstrings.SECTIONS]

# The registers as PeakRDL shows them, queue entries and headers: what `make docs` has written.
html_extra_path = ["../build/docs"]
html_show_copyright = False
html_copy_source = False
# The first page is docs/index.html; opening the folder shows it.
html_additional_pages = {"index": "redirect.html"}
templates_path = ["templates"]


def setup(app: Any) -> None:
    """Adds what is ours."""
    app.add_directive("components", components.Components)
    app.add_directive("conformance", conformance.Conformance)
    app.add_directive("registers", interface.Registers)
    app.add_directive("queue-entries", interface.QueueEntries)
    app.connect("autodoc-process-signature", components.show_constructor)
    # Before and after napoleon, whose handler has the usual priority, 500.
    app.connect("autodoc-process-docstring", docstrings.convert, priority=400)
    app.connect("autodoc-process-docstring", docstrings.draw_dashes, priority=600)
    app.connect("doctree-read", links.resolve_folders)
    app.connect("doctree-read", state_diagrams.draw_all)
