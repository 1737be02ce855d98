"""Headers for hypothesis."""

from hypothesis import strategies as st

from stagecoach.ulp.rpcrdma.chunks import ChunkLists, ReadSegment, Segment
from stagecoach.ulp.rpcrdma.errors import ErrorCode
from stagecoach.ulp.rpcrdma.header import Fault, Header, Padding, Procedure

words = st.integers(0, 2**32 - 1)
segments = st.builds(Segment, words, words, st.integers(0, 2**64 - 1))
write_chunks = st.lists(segments, max_size=4).map(tuple)
chunk_lists = st.builds(
    ChunkLists,
    st.lists(st.builds(ReadSegment, words, segments), max_size=4).map(tuple),
    st.lists(write_chunks, max_size=3).map(tuple),
    st.none() | write_chunks,
)
_faults = st.just(Fault(ErrorCode.ERR_CHUNK)) | st.builds(
    Fault, st.just(ErrorCode.ERR_VERS), words, words
)
headers = st.one_of(
    st.builds(Header, words, words, st.just(Procedure.RDMA_MSG), chunk_lists),
    st.builds(
        Header,
        words,
        words,
        st.just(Procedure.RDMA_NOMSG),
        chunk_lists.filter(lambda lists: lists != ChunkLists()),
    ),
    st.builds(
        Header,
        words,
        words,
        st.just(Procedure.RDMA_MSGP),
        chunk_lists,
        st.builds(Padding, words, words),
    ),
    st.builds(Header, words, words, st.just(Procedure.RDMA_DONE)),
    st.builds(Header, words, words, st.just(Procedure.RDMA_ERROR), fault=_faults),
)
