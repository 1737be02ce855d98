"""How an end of Linux' rping is judged."""

import pytest

from tools.interop.job import Job, JobError
from tools.interop.rping import finish_server

RACE = "rdma_get_cm_event: Bad file descriptor"


@pytest.mark.parametrize(
    ("status", "line", "good"),
    [(0, "", True), (255, RACE, True), (255, "", False), (1, RACE, False)],
)
def test_a_server_may_end_by_the_race_of_its_threads_alone(status, line, good):
    server = Job("rping -s")
    server.feed(line)
    server.end(status)
    if good:
        finish_server(server)
    else:
        with pytest.raises(JobError, match=f"status {status}"):
            finish_server(server)
