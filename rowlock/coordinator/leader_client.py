"""The command line's connection to the leading coordinator, over REST.

It begins with `coordination.rest` of the configuration. A coordinator that does not lead names the
leader. If no coordinator of this system answers there, the coordinators of the configuration are asked
over gRPC, and after them the control topic is read: of two `rowlock run` on one machine, the second has
other ports. During an election it waits, but not while Kafka does not answer either.
"""

from __future__ import annotations

import getpass
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

import httpx

from rowlock.credentials import build_unreadable_error, load_agent_token, load_security
from rowlock.errors import KAFKA_REMEDY, CommandError, KafkaUnreachableError, NoLeaderError, NoListenerError
from schemas.config.addresses import ASKED_BY, CALLER_KAFKA, SYSTEM
from schemas.config.model import Config, CoordinationConfig, CoordinationTls
from schemas.patience import scale_timeout

ELECTION_TIMEOUT_S = 15.0
"""Seconds that an election may take before a command gives up."""
UNHEARD_S = 6.0
"""Seconds to wait while no coordinator answers in any way, because they may be starting."""
LEADER_RETRY_S = 0.3
LEADER_REQUEST_TIMEOUT_S = 10.0
COPY_REQUEST_TIMEOUT_S = 30.0
"""The leader asks the source whether it has the table."""
RELOAD_REQUEST_TIMEOUT_S = 90.0
"""Seconds that a reload may take: the leader asks sources and targets, and agents have half a minute to
answer.
"""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Redirect:
    """The leader is not at the asked address."""

    why: str
    at: str | None
    """Where to ask next; None: not known at present."""
    heard: bool
    """Whether a coordinator has reported this."""
    is_refused: bool = False
    """Whether nothing listens at the asked address."""


@dataclass(frozen=True, slots=True)
class FoundLeader:
    """The result of a search for the leader."""

    at: str | None = None
    """The leader's REST address; None: not known at present."""
    heard: bool = False
    """Whether a coordinator answered, if only that an election is under way."""
    kafka_problem: str = ""
    """Why Kafka does not answer; no leader can be elected without it."""


class LeaderClient:
    """A client of the leader. Raises CommandError with the leader's refusal, or NoLeaderError with the reason
    why no leader was found.

    `prefix`, `bootstrap`: the system's Kafka; a coordinator of another system refuses it, and the leader is
    searched elsewhere, at last by `read_topic`. `at`: where to ask first; default: `coordination.rest`.
    """

    def __init__(
        self,
        config: CoordinationConfig,
        *,
        prefix: str = "",
        bootstrap: str = "",
        patience_s: float = ELECTION_TIMEOUT_S,
        at: str | None = None,
        find: Callable[[], FoundLeader] | None = None,
        read_topic: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._config, self._patience_s = config, patience_s
        self._find = find or (lambda: find_rest(config, prefix))
        self._read_topic = read_topic
        self._at = at or config.advertised_rest
        token = config.token.get_secret_value() if config.token else ""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        headers |= {SYSTEM: prefix} if prefix else {}
        headers |= {CALLER_KAFKA: bootstrap} if bootstrap else {}
        headers[ASKED_BY] = _describe_user()
        self._http = httpx.Client(
            headers=headers,
            verify=_load_trust(config.tls),
            timeout=scale_timeout(LEADER_REQUEST_TIMEOUT_S),
            trust_env=False,
        )

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Return a client that finds the leader of `config` at any address."""
        coordination, prefix = config.coordination, config.kafka.prefix

        def read_topic() -> str | None:
            from rowlock.coordinator.control_view import find_leader_address  # it loads Kafka's client

            return find_leader_address(config.kafka)

        def find() -> FoundLeader:
            found = find_rest(coordination, prefix)
            if found.at is not None:
                return found
            try:
                return FoundLeader(read_topic(), found.heard)
            except KafkaUnreachableError as error:
                return replace(found, kafka_problem=error.problem.what)

        return cls(
            coordination, prefix=prefix, bootstrap=config.kafka.bootstrap, find=find, read_topic=read_topic
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Json:
        return self._send_request("GET", path, params=params)

    def post(self, path: str, body: Json | None = None, **how: Any) -> Json:
        return self._send_request("POST", path, json=body, **how)

    def post_new(self, path: str, body: Json | None = None, **how: Any) -> Json:
        """Post to a path that earlier releases do not have. A coordinator of another system must refuse
        first: otherwise it could report an unknown path instead of the wrong system.
        """
        self.get("/v1/leader")
        return self._send_request("POST", path, json=body, **how)

    def reload_config(self, *, dry_run: bool = False) -> Json:
        """Make the leader reload its file; it asks all agents before it answers. `dry_run`: only return
        what the file would change.
        """
        params = {"dry_run": "true"} if dry_run else {}
        return self.post_new("/v1/reload", params=params, timeout=scale_timeout(RELOAD_REQUEST_TIMEOUT_S))

    def list_units(self, filters: Mapping[str, str]) -> list[Json]:
        """Return the units that match `filters` (query parameters of /v1/units), from all pages."""
        found: list[Json] = []
        after: str | None = ""
        while after is not None:
            page = self.get("/v1/units", {**filters, "after": after, "limit": 10_000})
            found, after = found + page["units"], page["next"]
        return found

    def _send_request(self, method: str, path: str, **how: Any) -> Json:
        began, hops, has_answered = time.monotonic(), 0, False
        while True:
            outcome = self._send_once(method, path, how)
            if not isinstance(outcome, _Redirect):
                return outcome
            has_answered, hops = has_answered or outcome.heard, hops + 1
            patience = self._patience_s if has_answered or outcome.at else min(self._patience_s, UNHEARD_S)
            if time.monotonic() >= began + scale_timeout(patience):
                error = NoLeaderError(f"no coordinator took the command: {outcome.why}", _REMEDY)
                raise NoListenerError.from_problem(error.problem) if outcome.is_refused else error
            known = outcome.at is not None and outcome.at != self._at
            self._at = outcome.at or self._at
            if not known or hops > 3:
                time.sleep(LEADER_RETRY_S)

    def _send_once(self, method: str, path: str, how: Mapping[str, Any]) -> Json | _Redirect:
        scheme = "https" if self._config.tls else "http"
        try:
            answer = self._http.request(method, f"{scheme}://{self._at}{path}", **how)
        except httpx.TransportError as error:
            found, why = self._find(), f"{self._at} does not answer ({error})"
            if found.kafka_problem:
                why += f", and {found.kafka_problem}"
                if not found.heard:
                    raise NoLeaderError(f"no coordinator took the command: {why}", KAFKA_REMEDY) from error
            return _Redirect(why, found.at, found.heard, _is_refused(error))
        if answer.is_success:
            body: Json = answer.json()
            return body
        return self._read_refusal(answer)

    def _read_refusal(self, answer: httpx.Response) -> _Redirect:
        try:
            problem = answer.json()
            kind, detail = str(problem["type"]), str(problem["detail"])
        except (ValueError, KeyError, TypeError) as error:
            seen = f"{self._at} answered {answer.status_code} and is no coordinator"
            raise CommandError(seen, "correct coordination.rest in the configuration") from error
        if kind.endswith(":another-system"):
            return self._leave_other_system(detail)
        if kind.endswith(":not-leader"):
            leader = problem.get("leader")
            return _Redirect(f"{self._at}: {detail}", leader["rest"] if leader else None, heard=True)
        raise CommandError(detail)

    def _leave_other_system(self, detail: str) -> _Redirect:
        """Return where this system's leader is. Raises NoLeaderError.

        A coordinator with another Kafka may have the same prefix, so gRPC may find it, too. If the control
        topic names the very coordinator that refuses, its Kafka is the same by another address.
        """
        found = self._find()
        if found.kafka_problem:
            seen = (
                f"{found.kafka_problem}. So this system's leader is not known; {self._at} refuses: {detail}"
            )
            raise NoLeaderError(seen, KAFKA_REMEDY)
        at = self._read_topic() if found.at == self._at else found.at
        if at is None or (at == self._at and self._http.headers.pop(CALLER_KAFKA, None) is None):
            raise NoLeaderError(detail)
        return _Redirect(f"{self._at}: {detail}", at, heard=False)


def _is_refused(error: BaseException) -> bool:
    """Return whether an error of the HTTP client comes from a refused connection."""
    origin = error.__context__  # `httpcore` names no cause
    return isinstance(error, ConnectionRefusedError) or (origin is not None and _is_refused(origin))


def _describe_user() -> str:
    """Return user and machine, for the leader's events; in ASCII, as a header requires."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        user = "unknown"
    return f"rowlock of {user}@{socket.gethostname()}".encode("ascii", "replace").decode()


_REMEDY = "start `rowlock coordinator`, or correct coordination.rest and coordination.coordinators"


def find_rest(config: CoordinationConfig, prefix: str = "") -> FoundLeader:
    """Return the leader's address according to the coordinators of the configuration."""
    from coordinator.transport.leader_search import ask_leader

    electing: list[str] = []
    leader = ask_leader(
        config.coordinators,
        security=load_security(config.tls),
        timeout=2.0,
        system=prefix,
        token=load_agent_token(config),
        undecided=electing.append,
    )
    at = leader.rest if leader is not None and leader.rest else None
    return FoundLeader(at, heard=leader is not None or bool(electing))


def _load_trust(tls: CoordinationTls | None) -> ssl.SSLContext | bool:
    if tls is None:
        return False  # plain HTTP needs no certificates, and to load them takes a tenth of a second
    try:
        return ssl.create_default_context(cafile=str(tls.ca))
    except OSError as error:
        raise build_unreadable_error(error, tls.ca) from error
