"""The REST interface of a coordinator: listings, and the commands of `rowlock units | agents | rebalance
| resign`.

The handlers are thin: `Coordinator` answers and decides. Only the leader answers about units; another
coordinator answers 503 and names the leader. Handlers are ordinary functions, so they run in threads and
may wait for the leader.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request
from fastapi.openapi.utils import get_openapi
from pydantic import SecretStr

from coordinator.core.leader.state import (
    CancelMove,
    Drain,
    LeaderCommand,
    Move,
    Pause,
    Rebalance,
    Resign,
    Resume,
    Undrain,
)
from coordinator.rest import problems
from coordinator.rest.access import Asker, describe_bearer_token, has_rest_access, require_same_system
from coordinator.rest.access_check import RequestGuard
from coordinator.rest.copies import add_copy_paths
from coordinator.rest.exposition import add_metrics_path, build_registry
from coordinator.rest.metrics import COORDINATOR_METRICS, CoordinatorNumbers
from coordinator.rest.models import (
    Accepted,
    Agent,
    AgentList,
    ClusterEvent,
    Counters,
    EventList,
    EventQuery,
    Health,
    Leader,
    MoveTo,
    Pipeline,
    PipelineList,
    ProblemResponse,
    Readiness,
    Reloaded,
    ReloadQuery,
    Unit,
    UnitList,
    UnitQuery,
)
from coordinator.rest.problems import UnknownError
from coordinator.server.coordinator import Coordinator
from coordinator.server.operators.api import CommandRefusedError, NotLeaderError, View
from coordinator.server.operators.copies import CopyRequests
from schemas.config.coordination import METRICS_PER_TOPIC

TITLE = "rowlock coordinator"
_ABOUT = (
    "Units: where they run, their progress, and commands that change it. Every "
    "error is `application/problem+json`."
)

UnitName = Annotated[
    str, Path(description="Name of the unit, with its slashes.", examples=["capture/branch1"])
]
AgentName = Annotated[str, Path(description="Name of the agent.")]


def create_app(
    coordinator: Coordinator,
    copies: CopyRequests,
    *,
    token: SecretStr | None,
    prefix: str = "",
    bootstrap: str = "",
    version: str = "",
    per_topic: int = METRICS_PER_TOPIC,
) -> FastAPI:
    """Return the application over `coordinator`.

    `token`: required of requests; None: none, for loopback only. `copies`: stores requests for copies.
    `prefix`, `bootstrap`: the system's Kafka; a request that names another is refused. `version`: of rowlock.
    `per_topic`: with more units than this, no metric has a value for each unit.
    """
    app = FastAPI(
        title=TITLE, version="1", description=_ABOUT, openapi_url=None, docs_url=None, redoc_url=None
    )
    problems.install_problem_handlers(app)
    app.add_middleware(RequestGuard, token=token)
    secured = APIRouter(
        prefix="/v1",
        dependencies=[Depends(describe_bearer_token), Depends(require_same_system(prefix, bootstrap))],
    )
    _add_listings(secured, coordinator)
    _add_commands(secured, coordinator)
    add_copy_paths(secured, coordinator, copies)
    _add_description(secured, app)
    app.include_router(secured)
    _add_health(app, coordinator, token)
    numbers = CoordinatorNumbers(coordinator, version, per_topic)
    add_metrics_path(app, build_registry(COORDINATOR_METRICS, numbers.read_values), prefix)
    return app


def _require_leading_view(coordinator: Coordinator) -> View:
    view = coordinator.get_view()
    if not view.leading:
        raise NotLeaderError(view.leader)
    return view


def _add_listings(router: APIRouter, coordinator: Coordinator) -> None:
    @router.get("/leader", tags=["coordinators"])
    def leader() -> Leader:
        """The leader; every coordinator answers this. A leader that sent no message for a lease (5 s) is not
        named."""
        found = coordinator.get_leader()
        if found is None:
            raise NotLeaderError(None)
        return Leader.model_validate(found)

    @router.get("/counters", tags=["coordinators"])
    def counters() -> Counters:
        """The coordinator's counters."""
        return Counters(counters=dict(_require_leading_view(coordinator).counters))

    @router.get("/agents", tags=["agents"])
    def agents() -> AgentList:
        """All agents."""
        return AgentList(
            agents=[Agent.model_validate(row) for row in _require_leading_view(coordinator).agents]
        )

    @router.get("/agents/{name}", tags=["agents"])
    def agent(name: AgentName) -> Agent:
        """One agent."""
        found = next((row for row in _require_leading_view(coordinator).agents if row.name == name), None)
        if found is None:
            raise UnknownError(f"there is no agent {name}")
        return Agent.model_validate(found)

    @router.get("/pipelines", tags=["pipelines"])
    def pipelines() -> PipelineList:
        """All pipelines with their checkpoints."""
        return PipelineList(
            pipelines=[Pipeline.model_validate(row) for row in _require_leading_view(coordinator).pipelines]
        )

    @router.get("/events", tags=["coordinators"])
    def events(query: Annotated[EventQuery, Query()]) -> EventList:
        """Events since this coordinator began to lead, oldest first; the last 1,000 are kept."""
        _require_leading_view(coordinator)
        found = coordinator.list_events(query.after, query.limit)
        return EventList(events=[ClusterEvent.model_validate(row) for row in found])

    _add_units(router, coordinator)


def _add_units(router: APIRouter, coordinator: Coordinator) -> None:
    @router.get("/units", tags=["units"])
    def units(query: Annotated[UnitQuery, Query()]) -> UnitList:
        """Units, a page at a time."""
        found = [row for row in _require_leading_view(coordinator).units if query.matches_row(row)]
        page = [Unit.model_validate(row) for row in found[: query.limit]]
        return UnitList(units=page, next=page[-1].unit if len(found) > query.limit else None)

    @router.get("/units/{unit:path}", tags=["units"])
    def unit(unit: UnitName) -> Unit:
        """One unit."""
        found = next((row for row in _require_leading_view(coordinator).units if row.unit == unit), None)
        if found is None:
            raise UnknownError(f"there is no unit {unit}")
        return Unit.model_validate(found)


def _add_commands(router: APIRouter, coordinator: Coordinator) -> None:
    def give(command: LeaderCommand, by: str) -> Accepted:
        try:
            coordinator.execute_command(command, by=by)
        except CommandRefusedError as refused:
            raise (_find_unknown_object(coordinator, command) or refused) from None
        return Accepted(durable=not isinstance(command, Rebalance | Resign))

    @router.post("/units/{unit:path}/pause", tags=["units"], status_code=202)
    def pause(unit: UnitName, by: Asker) -> Accepted:
        """Stop a unit until it is resumed, also if another coordinator is elected."""
        return give(Pause(unit), by)

    @router.post("/units/{unit:path}/resume", tags=["units"], status_code=202)
    def resume(unit: UnitName, by: Asker) -> Accepted:
        """Let a paused unit run again."""
        return give(Resume(unit), by)

    @router.post("/units/{unit:path}/move", tags=["units"], status_code=202)
    def move(unit: UnitName, to: MoveTo, by: Asker) -> Accepted:
        """Move a unit to another agent; the old agent runs it until the new one is ready."""
        return give(Move(unit, to.agent), by)

    @router.post("/units/{unit:path}/cancel", tags=["units"], status_code=202)
    def cancel(unit: UnitName, by: Asker) -> Accepted:
        """Cancel the move of a unit, so that it stays on its agent. Refused once the old agent was asked to
        stop."""
        return give(CancelMove(unit), by)

    @router.post("/agents/{name}/drain", tags=["agents"], status_code=202)
    def drain(name: AgentName, by: Asker) -> Accepted:
        """Move all units of an agent to other agents, and place no more on it."""
        return give(Drain(name), by)

    @router.post("/agents/{name}/undrain", tags=["agents"], status_code=202)
    def undrain(name: AgentName, by: Asker) -> Accepted:
        """End a drain: the agent keeps the units that it still has, and is given units again."""
        return give(Undrain(name), by)

    @router.post("/rebalance", tags=["coordinators"], status_code=202)
    def rebalance(by: Asker) -> Accepted:
        """Even out the load now."""
        return give(Rebalance(), by)

    @router.post("/reload", tags=["coordinators"])
    def reload(by: Asker, query: Annotated[ReloadQuery, Query()]) -> Reloaded:
        """Activate the current content of the configuration file of this coordinator; the files of all agents
        must be the same."""
        found = coordinator.reload_config(dry_run=query.dry_run, by=by)
        return Reloaded(
            digest=found.digest,
            changes=found.changes,
            changed=sorted(found.changed),
            removed=sorted(found.removed),
            is_active=not query.dry_run,
        )

    @router.post("/resign", tags=["coordinators"], status_code=202)
    def resign(by: Asker) -> Accepted:
        """Make this coordinator step down; a new leader is elected, which may be the same one."""
        return give(Resign(), by)


def _find_unknown_object(coordinator: Coordinator, command: LeaderCommand) -> UnknownError | None:
    """Return the error for an unknown object (404) if a refused command names one, otherwise None (409)."""
    view = coordinator.get_view()
    match command:
        case Move(unit) | CancelMove(unit) | Pause(unit) | Resume(unit):
            known = any(row.unit == unit for row in view.units)
            return None if known else UnknownError(f"there is no unit {unit}")
        case Drain(agent) | Undrain(agent):
            known = any(row.name == agent for row in view.agents)
            return None if known else UnknownError(f"there is no agent {agent}")
    return None


def _add_health(app: FastAPI, coordinator: Coordinator, token: SecretStr | None) -> None:
    @app.get("/healthz", tags=["health"])
    def healthz() -> Health:
        """The process serves; needs no token."""
        leader = coordinator.get_leader()
        return Health(status="ok", leads=leader is not None and leader.am_i)

    @app.get("/readyz", tags=["health"])
    def readyz(request: Request) -> Readiness:
        """This coordinator leads, or has received a message of the leader within a lease; needs no token."""
        leader = coordinator.get_leader()
        if leader is None:
            raise NotLeaderError(None)
        warnings = list(coordinator.list_restrictions())
        if warnings and not has_rest_access(token, request):
            warnings = [_format_warning_count(len(warnings))]
        return Readiness(status="ok", leads=leader.am_i, warnings=warnings)


def _format_warning_count(count: int) -> str:
    """Return the warning for a caller that may not know the names of units."""
    if count == 1:
        return "1 unit is left as it is because it violates an invariant: see `rowlock status`"
    return f"{count} units are left as they are because they violate an invariant: see `rowlock status`"


def _add_description(router: APIRouter, app: FastAPI) -> None:
    @router.get("/openapi.json", include_in_schema=False)
    def openapi() -> dict[str, Any]:
        """This interface, described."""
        return describe_interface(app)


def describe_interface(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI description: the framework's, with the errors as this interface really answers
    them.
    """
    found = get_openapi(title=app.title, version=app.version, description=_ABOUT, routes=app.routes)
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    own = ProblemResponse.model_json_schema(ref_template="#/components/schemas/{model}")
    own.pop("$defs", None)  # the model is published although no path refers to it otherwise
    schemas["Problem"] = own
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            _describe_errors(path, method, operation["responses"])
    return found


def _describe_errors(path: str, method: str, responses: dict[str, Any]) -> None:
    descriptions = {
        "503": "Another coordinator leads, or none does at the moment.",
        "500": "An error in rowlock.",
    }
    if path.startswith("/v1"):
        descriptions |= {
            "401": "The token is missing or wrong.",
            "403": "Without a token: not from this machine.",
        }
        descriptions |= {
            "421": "The request names another system's Kafka, or prefix there.",
            "504": "The leader did not answer in time.",
        }
    if "{" in path:
        descriptions["404"] = "There is no object of this name."
    if "422" in responses:
        descriptions["422"] = "The request does not fit."
    if method == "post":
        descriptions["409"] = "The command cannot be carried out; `detail` gives the reason."
    content = {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for status, what in sorted(descriptions.items()):
        responses[status] = {"description": what, "content": content}
