"""Executes remote procedure calls: finds the handler, answers what has none (RFC 5531, 9)."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stagecoach.ulp.oncrpc.auth import Credential, unpack_credential
from stagecoach.ulp.oncrpc.complaints import Complaints
from stagecoach.ulp.oncrpc.errors import (
    CallRefused,
    GarbageArguments,
    MessageTooLong,
    MisplacedItem,
    ProcedureUnavailable,
    ProgramMismatch,
    ProgramUnavailable,
    RpcConnectionError,
    RpcTransportError,
    SystemFailure,
    XdrError,
)
from stagecoach.ulp.oncrpc.header import (
    CallHeader,
    pack_refusal,
    pack_success,
    unpack_call,
    unpack_call_type,
)
from stagecoach.ulp.oncrpc.message import Message
from stagecoach.ulp.oncrpc.program import Procedure, Program
from stagecoach.ulp.oncrpc.transport import Call, ServerTransport
from stagecoach.ulp.oncrpc.xdr import Decoder, Encoder

_LOG = logging.getLogger(__name__)
_COMPLAINTS = Complaints(_LOG)

CALLS_AT_A_TIME = 64
"""Of one connection that are executed at a time; others wait in the transport."""


@dataclass(frozen=True)
class Request:
    """What a handler learns of its call besides the arguments.

    credential: who calls, as the client says. buffer: memory for a bulk item of the result, as
    `Call.buffer`. reserve: as `Call.reserve`. client: the address that it calls from.
    """

    credential: Credential
    buffer: Callable[[int], memoryview]
    reserve: Callable[[int], Awaitable[None]]
    client: str = ""


Handler = Callable[[Request, Any], Any | Awaitable[Any]]
"""From request and arguments to the result; a function or a coroutine function.

Raises a `CallRefused`, if the call shall be answered so.
"""


class Service:
    """A program with a handler for each of its procedures.

    Parameters
    ----------
    handlers: by procedure. NULL has one already. Procedures without one are refused.
    """

    def __init__(self, program: Program, handlers: Mapping[Procedure[Any, Any], Handler]):
        unknown = set(handlers) - set(program.procedures)
        if unknown:
            raise ValueError(
                f"handlers for {[procedure.name for procedure in unknown]}; allowed: procedures of "
                f"{program.name}"
            )
        self.program = program
        self._handlers = {procedure.number: handler for procedure, handler in handlers.items()}
        self._handlers.setdefault(0, lambda request, arguments: None)

    def find(self, number: int) -> tuple[Procedure[Any, Any], Handler]:
        """Raises `ProcedureUnavailable`."""
        if number not in self._handlers:
            raise ProcedureUnavailable(number)
        return self.program.by_number[number], self._handlers[number]


class RpcServer:
    """Answers the calls of connections.

    Parameters
    ----------
    services: the programs, each with one or more versions.
    """

    def __init__(self, services: Sequence[Service]):
        self._services: dict[int, dict[int, Service]] = {}
        for service in services:
            versions = self._services.setdefault(service.program.number, {})
            versions[service.program.version] = service

    async def serve(self, transport: ServerTransport) -> None:
        """Answers the calls of a connection until the client closes it, then closes it, too."""
        places = asyncio.Semaphore(CALLS_AT_A_TIME)
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await places.acquire()
                    call = await transport.receive()
                    task = tasks.create_task(self.answer(call, transport.peer))
                    task.add_done_callback(lambda _: places.release())
        except* RpcConnectionError as gone:
            _LOG.debug("connection ended: %s", gone.exceptions[0])
        finally:
            await transport.close()

    async def answer(self, call: Call, client: str = "") -> None:
        """Executes one call of a client and answers it."""
        decoder = Decoder(call.message)
        try:
            xid = unpack_call_type(decoder)
        except MisplacedItem:
            # Only a call has such chunks (RFC 8166, 4.3.1).
            xid = call.message.xid
            reply = _refusal(xid, GarbageArguments())
        except XdrError as error:
            _COMPLAINTS.warning("no call", f"no RPC call: {error}")
            await call.drop()
            return
        else:
            reply = await self._execute(xid, decoder, call, client)
        try:
            await call.reply(reply)
        except MessageTooLong as error:
            _COMPLAINTS.warning("too long", f"call {xid:#x}: {error}")
        except RpcTransportError as error:
            _COMPLAINTS.warning("reply", f"reply to call {xid:#x}: {error}")

    async def _execute(self, xid: int, decoder: Decoder, call: Call, client: str) -> Message:
        encoder = Encoder()
        try:
            header = self._header(xid, decoder)
            credential = unpack_credential(header.credential, header.verifier)
            procedure, handler = self._find(header)
            arguments = self._arguments(procedure, decoder)
            request = Request(credential, call.buffer, call.reserve, client)
            result = handler(request, arguments)
            if inspect.isawaitable(result):
                result = await result
            pack_success(encoder, xid)
            procedure.result.pack(encoder, result)
        except CallRefused as why:
            return _refusal(xid, why)
        except Exception as error:
            # Whatever is wrong with a handler, its client gets an answer.
            _COMPLAINTS.error("fault", f"call {xid:#x} failed", error)
            return _refusal(xid, SystemFailure())
        return encoder.message()

    def _header(self, xid: int, decoder: Decoder) -> CallHeader:
        try:
            return unpack_call(xid, decoder)
        except XdrError as error:
            raise GarbageArguments from error

    def _find(self, header: CallHeader) -> tuple[Procedure[Any, Any], Handler]:
        versions = self._services.get(header.program)
        if versions is None:
            raise ProgramUnavailable(header.program)
        if header.version not in versions:
            raise ProgramMismatch(min(versions), max(versions))
        return versions[header.version].find(header.procedure)

    def _arguments(self, procedure: Procedure[Any, Any], decoder: Decoder) -> Any:
        try:
            arguments = procedure.arguments.unpack(decoder)
            decoder.done()
        except XdrError as error:
            raise GarbageArguments from error
        return arguments


def _refusal(xid: int, why: CallRefused) -> Message:
    encoder = Encoder()
    pack_refusal(encoder, xid, why)
    return encoder.message()
