"""Calls of remote procedures with asyncio."""

import itertools
import random
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar

from stagecoach.ulp.oncrpc.auth import Credential, pack_credential
from stagecoach.ulp.oncrpc.header import REPLY_OCTETS, CallHeader, unpack_reply
from stagecoach.ulp.oncrpc.program import Procedure, Program
from stagecoach.ulp.oncrpc.transport import ClientTransport, ReplyRoom
from stagecoach.ulp.oncrpc.xdr import Decoder, Encoder
from stagecoach.ulp.oncrpc.xdr_types import UNLIMITED

A = TypeVar("A")
R = TypeVar("R")

_XIDS = 1 << 32


class RpcClient:
    """Calls the programs at the other end of a connection. One per transport: it gives the XIDs.

    Parameters
    ----------
    transport: a connected one, which is closed with the client.
    credential: `AuthSys`, such as `this_user()`, or `None` for AUTH_NONE.
    """

    def __init__(self, transport: ClientTransport, credential: Credential):
        self._transport = transport
        self._credential = pack_credential(credential)
        # From a random one on, so that a new connection does not repeat the last one's.
        self._xids = itertools.count(random.randrange(_XIDS))

    async def call(
        self,
        program: Program,
        procedure: Procedure[A, R],
        arguments: A,
        *,
        into: Sequence[memoryview] = (),
        result_octets: int | None = None,
    ) -> R:
        """Calls a procedure and returns its result. Any number of calls may be under way.

        Parameters
        ----------
        into: buffers for the bulk items of the result, in order. If the transport can, the items
            are placed there; in any case what the result holds then is the start of the buffer, but
            for an empty one, which asks for its item in the stream.
        result_octets: the most that the result takes in the stream, if its type does not limit it.

        Raises
        ------
        CallRefused: one of its subclasses says why the server did not execute the call.
        XdrError: arguments or reply are not as declared. RpcTransportError, RpcConnectionError: as
            `ClientTransport.call`.
        """
        header = CallHeader(
            next(self._xids) % _XIDS,
            program.number,
            program.version,
            procedure.number,
            self._credential,
        )
        encoder = Encoder()
        header.pack(encoder)
        procedure.arguments.pack(encoder, arguments)
        if result_octets is None:
            result_octets = procedure.result.octets
            # An item with an empty buffer comes inline (RFC 8166, 4.3.2.3); if its type has no
            # limit, it is empty itself, such as that of an NFS READ of 0 bytes.
            is_limited = procedure.result.bulk_octets < UNLIMITED
            if not into or (is_limited and not all(map(len, into))):
                result_octets += procedure.result.bulk_octets
        if result_octets >= UNLIMITED:
            raise ValueError(
                f"result_octets of {procedure.name} is {result_octets}; allowed: a limit, since "
                "the type of the result has none"
            )
        room = ReplyRoom(REPLY_OCTETS + result_octets, tuple(into))
        reply = await self._transport.call(encoder.message(), room)
        decoder = Decoder(reply, into)
        unpack_reply(decoder, header)
        result = procedure.result.unpack(decoder)
        decoder.done()
        return result

    async def close(self) -> None:
        """Closes the connection. Repeatable."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
