"""Where links to folders of the repository lead in the site."""

from types import SimpleNamespace

from docutils import nodes
from docutils.frontend import get_default_settings
from docutils.utils import new_document
from sphinx.addnodes import pending_xref

from tools.site.links import resolve_folders


def resolved(tmp_path, target, kind="myst"):
    """What a link with the text `here` has become; `examples/one` has a README, `sim` has none."""
    for folder in ("examples/one", "sim"):
        (tmp_path / folder).mkdir(parents=True)
    env = SimpleNamespace(
        relfn2path=lambda path, _page: (path, str(tmp_path / path)),
        found_docs={"examples/one/README"},
    )
    page = new_document("page", get_default_settings())
    link = pending_xref("", nodes.inline("", "here"), refdoc="page", reftype=kind, reftarget=target)
    page += nodes.paragraph("", "", link)
    resolve_folders(SimpleNamespace(env=env), page)
    return page[0][0]


def test_a_folder_with_a_page_leads_to_it(tmp_path):
    link = resolved(tmp_path, "examples/one")
    assert (link["refdomain"], link["reftarget"]) == ("doc", "examples/one/README")


def test_a_folder_without_a_page_is_text(tmp_path):
    assert resolved(tmp_path, "sim").astext() == "here"
    assert not isinstance(resolved(tmp_path / "again", "sim"), pending_xref)


def test_other_links_stay(tmp_path):
    assert resolved(tmp_path, "nowhere")["reftarget"] == "nowhere"
    assert resolved(tmp_path / "again", "sim", kind="any")["reftarget"] == "sim"
