"""REST interface of a running coordinator: `create_app` over a `Coordinator`, and a server thread for it."""

from coordinator.rest.app import create_app
from coordinator.rest.server import RestServer

__all__ = ["RestServer", "create_app"]
