"""What counts as loaded from another host."""

import pytest

from tools.site.offline import outside


@pytest.mark.parametrize(
    "text",
    [
        '<script async src="https://x.org/a.js"></script>',
        "<img alt='a'\n src='//x.org/a.png'>",
        '<link rel="stylesheet" href="http://x.org/a.css">',
        "a { background: url(https://x.org/a.png) }",
        '@import "https://x.org/a.css";',
    ],
)
def test_what_a_browser_loads_is_found(text):
    (address,) = outside(text)
    assert address.removeprefix("https:").removeprefix("http:").startswith("//x.org/a.")


@pytest.mark.parametrize(
    "text",
    [
        '<a href="https://x.org">',
        '<img src="../_images/a.svg">',
        '<svg xmlns="http://www.w3.org/2000/svg">',
        '<link rel="license" href="https://x.org/license">',
        "a { background: url('data:image/svg+xml,<svg xmlns=\"http://www.w3.org/2000/svg\">') }",
    ],
)
def test_links_and_what_is_inside_are_not(text):
    assert outside(text) == []
