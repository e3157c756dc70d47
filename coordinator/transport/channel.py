"""The methods of the transport, and the channel to a coordinator.

The stubs are made by hand with bytes in and out: `wire` does the rest, and a frame is parsed in one
place only.
"""

from __future__ import annotations

import grpc

from coordinator.transport.security import Security
from schemas.io.grpc_settings import Keepalive

#: The name is the same in every version of the protocol, so that a peer of another version can be
#: recognised as one (`wire`).
SERVICE = "rowlock.coordination.v1.Coordination"
HEARTBEAT_METHOD = f"/{SERVICE}/Heartbeat"
ASK_LEADER = f"/{SERVICE}/AskLeader"


def open_channel(address: str, security: Security | None, keepalive: Keepalive | None = None) -> grpc.Channel:
    """Return a channel that shares nothing with others."""
    options = (keepalive or Keepalive()).build_client_options()
    if security is None:
        return grpc.insecure_channel(address, options)
    return grpc.secure_channel(address, security.load_channel_credentials(), options)
