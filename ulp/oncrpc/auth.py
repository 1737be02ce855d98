"""Credentials and verifiers: AUTH_NONE and AUTH_SYS (RFC 5531, 8.2, 10 and appendix A)."""

import os
import socket
from dataclasses import dataclass
from typing import Annotated

from stagecoach.ulp.oncrpc.errors import AuthenticationFailed, AuthStatus, XdrError
from stagecoach.ulp.oncrpc.message import Message
from stagecoach.ulp.oncrpc.records import Record, Uint
from stagecoach.ulp.oncrpc.xdr import Decoder, Encoder
from stagecoach.ulp.oncrpc.xdr_types import UINT, Array, Opaque

AUTH_NONE = 0
AUTH_SYS = 1
AUTH_SHORT = 2
MAXIMUM_BODY = 400
"""Bytes of the body of an opaque_auth."""
_MAXIMUM_MACHINE_NAME = 255
_MAXIMUM_GIDS = 16


@dataclass(frozen=True)
class OpaqueAuth:
    """opaque_auth: what a message carries, of whatever flavor."""

    flavor: Uint
    body: Annotated[bytes, Opaque(MAXIMUM_BODY)]


OPAQUE_AUTH = Record(OpaqueAuth)
NONE = OpaqueAuth(AUTH_NONE, b"")


@dataclass(frozen=True)
class AuthSys:
    """authsys_parms: who calls, as the client says. Nothing proves it."""

    stamp: Uint
    machine_name: Annotated[bytes, Opaque(_MAXIMUM_MACHINE_NAME)]
    uid: Uint
    gid: Uint
    gids: Annotated[list[int], Array(UINT, _MAXIMUM_GIDS)]


_AUTH_SYS = Record(AuthSys)

Credential = AuthSys | None
"""Of a caller; `None` is AUTH_NONE."""


def this_user() -> AuthSys:
    """The credential of the process."""
    name = socket.gethostname().encode()[:_MAXIMUM_MACHINE_NAME]
    return AuthSys(0, name, os.geteuid(), os.getegid(), os.getgroups()[:_MAXIMUM_GIDS])


def pack_credential(credential: Credential) -> OpaqueAuth:
    """What a call carries for it."""
    if credential is None:
        return NONE
    encoder = Encoder()
    _AUTH_SYS.pack(encoder, credential)
    return OpaqueAuth(AUTH_SYS, encoder.message().stream)


def unpack_credential(credential: OpaqueAuth, verifier: OpaqueAuth) -> Credential:
    """Who calls. Raises `AuthenticationFailed` with the status that RFC 5531 has for it."""
    if verifier.flavor != AUTH_NONE:
        raise AuthenticationFailed(AuthStatus.BADVERF)
    if credential.flavor == AUTH_NONE:
        return None  # its body may hold anything (RFC 5531, 10.1)
    if credential.flavor == AUTH_SHORT:
        raise AuthenticationFailed(AuthStatus.REJECTEDCRED)  # no server here gives one out
    if credential.flavor != AUTH_SYS:
        raise AuthenticationFailed(AuthStatus.BADCRED)
    decoder = Decoder(Message(credential.body))
    try:
        found = _AUTH_SYS.unpack(decoder)
        decoder.done()
    except XdrError as error:
        raise AuthenticationFailed(AuthStatus.BADCRED) from error
    return found
