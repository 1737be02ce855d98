"""What one end asks for in MPA startup, whatever it connects for (RFC 5044 7.1, RFC 6581)."""

from dataclasses import asdict, dataclass
from typing import Any

from stagecoach.host_driver.mpa_exchange import DEFAULT_TIMEOUT
from stagecoach.host_driver.mpa_startup import ENHANCED_REVISION


@dataclass(frozen=True, kw_only=True)
class StartupOptions:
    """Arguments that `connect` and `ConnectionRequest.accept` take, in one value.

    Attributes
    ----------
    crc: whether this end wants CRCs; they are off only if neither end wants them.
    markers: whether this end wants Markers in what it receives.
    revision: of MPA, 1 or 2; of the Initiator's Request. A Responder takes none that is newer, and
        answers with the same.
    peer_to_peer: whether the Initiator begins with an RTR frame, so that the Responder may send. A
        Responder takes only such peers then.
    timeout: seconds for the connection and MPA startup together.

    >>> StartupOptions(crc=False).arguments
    {'crc': False, 'markers': False, 'revision': 2, 'peer_to_peer': False, 'timeout': 10.0}
    """

    crc: bool = True
    markers: bool = False
    revision: int = ENHANCED_REVISION
    peer_to_peer: bool = False
    timeout: float = DEFAULT_TIMEOUT

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of `connect` and of `ConnectionRequest.accept`."""
        return asdict(self)
