"""Links of the pages to folders of the repository.

MyST resolves links to pages and files. A link to a folder leads to its README, or is plain text if
it has none that is a page.
"""

from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx


def resolve_folders(app: Sphinx, page: nodes.document) -> None:
    """Handler of `doctree-read`."""
    for link in list(page.findall(pending_xref)):
        if link["reftype"] != "myst":
            continue
        folder, absolute = app.env.relfn2path(link["reftarget"], link["refdoc"])
        if not Path(absolute).is_dir():
            continue
        readme = f"{folder}/README"
        if readme in app.env.found_docs:
            link["refdomain"], link["reftarget"], link["reftargetid"] = "doc", readme, None
        else:
            link.replace_self(link.children)
