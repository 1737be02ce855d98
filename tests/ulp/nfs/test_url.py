"""URLs of NFS files."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecoach.ulp.nfs.client.url import NfsUrl


@pytest.mark.requirement("RPCRDMA-12-02")
@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("nfs+rdma://host/export", NfsUrl("nfs+rdma", "host", 20049, b"/export")),
        ("nfs+tcp://host", NfsUrl("nfs+tcp", "host", 2049, b"/")),
        ("nfs+rdma://10.0.0.1:7/a//b/./c/", NfsUrl("nfs+rdma", "10.0.0.1", 7, b"/a/b/c")),
        ("nfs+tcp://[::1]:9/%41%20%ff%3f", NfsUrl("nfs+tcp", "::1", 9, b"/A \xff?")),
    ],
)
def test_urls(text, url):
    assert NfsUrl.parse(text) == url


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/path",
        "nfs://host/path",
        "nfs+tcp:///path",
        "nfs+tcp://host:x/path",
        "nfs+tcp://host:65536/path",
        "nfs+tcp://[::1/path",
        "nfs+tcp://user@host/path",
        "nfs+tcp://host/path?query",
        "nfs+tcp://host/path#part",
        "nfs+tcp://host/a/../b",
        "nfs+tcp://host/a%00",
        "nfs+tcp://host/a%2Fb",
        "nfs+tcp://host/..%2fb",
    ],
)
def test_what_is_no_url(text):
    with pytest.raises(ValueError, match=r"allowed|invalid URL|write \?"):
        NfsUrl.parse(text)


@given(st.text())
def test_any_text_is_a_url_or_a_value_error(text):
    for each in (text, f"nfs+tcp://{text}", f"nfs+rdma://host/{text}"):
        with contextlib.suppress(ValueError):
            assert NfsUrl.parse(each).path.startswith(b"/")
