"""REST over a coordinator that is none: answers, errors as problems, who may ask, and its own description."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from coordinator.core.leader.state import (
    CancelMove,
    Drain,
    LeaderCommand,
    Move,
    Pause,
    Rebalance,
    Reload,
    Resign,
    Resume,
    Undrain,
)
from coordinator.rest import RestServer, create_app
from coordinator.rest.access_check import BODY_LIMIT, RequestGuard
from coordinator.rest.app import describe_interface
from coordinator.rest.problems import KINDS
from coordinator.rest.server import Certificate
from coordinator.server.operators.api import CommandRefusedError, LeaderView, NoAnswerError
from coordinator.server.operators.copies import CopyRequested
from schemas.config.addresses import ASKED_BY, SYSTEM
from schemas.problems import Problem
from tests.servers.certificates import Authority
from tests.stands.fake_control import FakeControl, FakeDesk, unit
from tools.docs.rest import render

OTHER = LeaderView(8, "c2", "10.0.0.2:7701", "10.0.0.2:7780", 1.0)
UNIT = "apply/p/t.b1.bank.acct"
DESK = FakeDesk()


@pytest.fixture
def control() -> FakeControl:
    return FakeControl()


Client = Callable[..., httpx.Client]


class Shared:
    """The control of the test that runs, behind servers that all tests use."""

    now: FakeControl

    def __getattr__(self, name: str) -> object:
        return getattr(self.now, name)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Shared, dict[str, str]]]:
    """Yield a shared control, and by token the URL of a server over it."""
    shared, tokens = Shared(), ("", "topsecret")
    servers = {
        token: RestServer(create_app(shared, DESK, token=SecretStr(token)), "127.0.0.1:0") for token in tokens
    }
    yield shared, {token: f"http://{server.start()}" for token, server in servers.items()}
    for server in servers.values():
        server.close()


@pytest.fixture
def client(control: FakeControl, served: tuple[Shared, dict[str, str]]) -> Iterator[Client]:
    """Yield what makes a client of a server over `control`; `host`: the name that it asks for."""
    shared, urls = served
    shared.now = control
    with ExitStack() as stack:

        def make(token: str = "", host: str | None = None) -> httpx.Client:
            headers = {"Host": host} if host else {}
            return stack.enter_context(httpx.Client(base_url=urls[token], headers=headers, trust_env=False))

        yield make


def problem(answer: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert (body["status"], body["type"]) == (status, f"urn:rowlock:problem:{kind}")
    assert body["detail"]
    assert body["instance"] == answer.request.url.path
    assert kind == "not-leader" or body["title"] == HTTPStatus(status).phrase
    return body


def test_listings(client: Client, control: FakeControl) -> None:
    rest = client()
    assert rest.get("/v1/leader").json()["rest"] == "127.0.0.1:7780"
    assert [each["name"] for each in rest.get("/v1/agents").json()["agents"]] == ["a1", "a2"]
    assert rest.get("/v1/agents/a2").json()["draining"] is True
    assert rest.get(f"/v1/units/{UNIT}").json()["pipeline"] == "p"
    assert rest.get("/v1/pipelines").json()["pipelines"][0]["by_source"] == {"b1": 1_790_000_000_000}
    assert rest.get("/v1/counters").json() == {"counters": {"dropped late": 3}}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", [UNIT, "capture/b1"]),
        ("kind=capture", ["capture/b1"]),
        ("pipeline=p", [UNIT]),
        ("agent=a1", [UNIT]),
        ("agent=a3", ["capture/b1"]),
        ("state=absent", []),
        ("source=b1&kind=apply", [UNIT]),
    ],
)
def test_units_that_are_asked_for(client: Client, control: FakeControl, query: str, found: list[str]) -> None:
    control.units = (unit(UNIT), unit("capture/b1", agent="a2", moving_to="a3"))
    answer = client().get(f"/v1/units?{query}").json()
    assert [each["unit"] for each in answer["units"]] == found
    assert answer["next"] is None


def test_pages_of_units_hold_each_unit_once(client: Client, control: FakeControl) -> None:
    control.units = tuple(unit(f"apply/p/t{i:03}") for i in range(25))
    rest, names, after = client(), [], ""
    while after is not None:
        page = rest.get("/v1/units", params={"after": after, "limit": 10}).json()
        names += [each["unit"] for each in page["units"]]
        after = page["next"]
    assert names == [row.unit for row in control.units]


@pytest.mark.parametrize(
    ("path", "body", "command"),
    [
        (f"/v1/units/{UNIT}/pause", None, Pause(UNIT)),
        (f"/v1/units/{UNIT}/resume", None, Resume(UNIT)),
        (f"/v1/units/{UNIT}/move", {"agent": "a2"}, Move(UNIT, "a2")),
        (f"/v1/units/{UNIT}/cancel", None, CancelMove(UNIT)),
        ("/v1/agents/a1/drain", None, Drain("a1")),
        ("/v1/agents/a1/undrain", None, Undrain("a1")),
        ("/v1/rebalance", None, Rebalance()),
        ("/v1/resign", None, Resign()),
    ],
)
def test_commands(
    client: Client, control: FakeControl, path: str, body: object, command: LeaderCommand
) -> None:
    answer = client().post(path, json=body)
    assert (answer.status_code, answer.json()) == (
        202,
        {"status": "accepted", "durable": not isinstance(command, Rebalance | Resign)},
    )
    assert control.commands == [command]


def test_a_refused_command_is_409_and_one_about_nothing_404(client: Client, control: FakeControl) -> None:
    control.fails = {
        Move: CommandRefusedError(Problem("agent a9 is unknown", "name another")),
        Drain: CommandRefusedError(Problem("there is no agent a9")),
    }
    rest = client()
    refused = rest.post(f"/v1/units/{UNIT}/move", json={"agent": "a9"})
    assert problem(refused, 409, "refused")["detail"] == "agent a9 is unknown: name another"
    problem(rest.post("/v1/units/apply/p/no/move", json={"agent": "a1"}), 404, "not-found")
    problem(rest.post("/v1/agents/a9/drain"), 404, "not-found")
    problem(rest.post("/v1/agents/a1/drain"), 409, "refused")


def test_a_reload_says_what_it_changes(client: Client, control: FakeControl) -> None:
    answer = client().post("/v1/reload")
    reported = answer.json()
    assert (answer.status_code, reported["digest"], reported["in_force"]) == (200, "abc", True)
    assert (reported["changed"], reported["gone"]) == (["source/b1"], ["pipeline/old"])
    assert reported["changes"][1] == "pipelines.old: removed"
    assert client().post("/v1/reload", params={"dry_run": "true"}).json()["in_force"] is False
    assert control.reloads == [False, True]
    problem(client().post("/v1/reload", params={"dry": "true"}), 422, "invalid")


def test_a_refused_reload_lists_everything(client: Client, control: FakeControl) -> None:
    control.fails = {
        Reload: CommandRefusedError(Problem("c.yaml:3: wrong"), Problem("agent b: c.yaml:4: wrong"))
    }
    body = problem(client().post("/v1/reload"), 409, "refused")
    assert body["errors"] == ["c.yaml:3: wrong", "agent b: c.yaml:4: wrong"]


def test_an_owner_that_does_not_answer(client: Client, control: FakeControl) -> None:
    control.fails = {Rebalance: NoAnswerError("the owner did not answer within 5 s")}
    problem(client().post("/v1/rebalance"), 504, "no-answer")


@pytest.mark.parametrize("leader", [OTHER, None])
def test_who_does_not_lead_names_the_leader(
    client: Client, control: FakeControl, leader: LeaderView | None
) -> None:
    control.seen_leader = leader
    rest = client()
    for answer in (rest.get("/v1/units"), rest.get("/v1/units/x"), rest.post("/v1/rebalance")):
        body = problem(answer, 503, "not-leader")
        assert answer.headers["retry-after"] == "1"
        assert body["title"] == "Not the leader"
        assert (body["leader"] and body["leader"]["rest"]) == (leader and leader.rest)
    assert rest.get("/v1/leader").status_code == (200 if leader else 503)
    assert rest.get("/readyz").status_code == (200 if leader else 503)
    assert rest.get("/healthz").json() == {"status": "ok", "leads": False}


def test_readiness_names_units_that_are_left_as_they_are(client: Client, control: FakeControl) -> None:
    rest = client()
    assert rest.get("/readyz").json() == {"status": "ok", "leads": True, "warnings": []}
    control.restrictions = ("unit u: wrong: mend it",)
    answer = rest.get("/readyz")
    assert (answer.status_code, answer.json()["warnings"]) == (200, ["unit u: wrong: mend it"])
    secured = client("topsecret")
    right = {"Authorization": "Bearer topsecret"}
    assert secured.get("/readyz", headers=right).json()["warnings"] == ["unit u: wrong: mend it"]


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer guessed"}, {"Origin": "http://elsewhere"}])
def test_readiness_names_no_unit_to_strangers(
    client: Client, control: FakeControl, headers: dict[str, str]
) -> None:
    control.restrictions = ("unit u: wrong: mend it", "unit v: wrong: mend it")
    answer = client("" if "Origin" in headers else "topsecret").get("/readyz", headers=headers)
    assert (answer.status_code, answer.json()["warnings"]) == (
        200,
        ["2 units are left as they are because they violate an invariant: see `rowlock status`"],
    )


def test_mistakes_of_the_asker(client: Client, control: FakeControl) -> None:
    rest = client()
    problem(rest.get("/v1/nothing"), 404, "not-found")
    problem(rest.get("/v1/agents/no"), 404, "not-found")
    problem(rest.get("/v1/units/apply/p/no"), 404, "not-found")
    problem(rest.delete("/v1/agents"), 405, "method-not-allowed")
    invalid = problem(rest.post(f"/v1/units/{UNIT}/move", json={"agnt": "a"}), 422, "invalid")
    assert len(invalid["errors"]) == 2
    problem(rest.post(f"/v1/units/{UNIT}/move", content=b"{"), 422, "invalid")
    problem(rest.get("/v1/units?limit=0"), 422, "invalid")
    problem(rest.get("/v1/units?pipline=p"), 422, "invalid")
    assert control.commands == []


def test_our_own_error_tells_nothing_but_is_a_problem(
    client: Client, control: FakeControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ValueError("geheim")

    monkeypatch.setattr(control, "get_view", broken)
    assert "geheim" not in str(problem(client().get("/v1/units"), 500, "error"))


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Bearer", "Basic dG9wOg==", "Bearer töken"])
def test_without_the_token_nothing_is_told_or_done(
    client: Client, control: FakeControl, header: str | None
) -> None:
    rest = client("topsecret")
    headers = {"Authorization": header.encode()} if header else {}
    for method, path in (("GET", "/v1/units"), ("POST", "/v1/resign"), ("GET", "/v1/openapi.json")):
        answer = rest.request(method, path, headers=headers)
        assert "topsecret" not in str(problem(answer, 401, "unauthorized"))
        assert answer.headers["www-authenticate"] == "Bearer"
    assert control.commands == []
    assert rest.get("/healthz").status_code == 200


@pytest.mark.parametrize(("asked_as", "status"), [("other", 421), ("", 202), (None, 202), ("rowlock", 202)])
def test_who_means_another_system_is_refused(control: FakeControl, asked_as: str | None, status: int) -> None:
    """Two systems on one machine: the second one's command at the first one's address. Who names none is not
    refused."""
    server = RestServer(create_app(control, FakeDesk(), token=None, prefix="rowlock"), "127.0.0.1:0")
    headers = {} if asked_as is None else {SYSTEM: asked_as}
    try:
        with httpx.Client(base_url=f"http://{server.start()}", headers=headers, trust_env=False) as rest:
            answer = rest.post("/v1/resign")
            assert rest.get("/healthz").status_code == 200
    finally:
        server.close()
    assert answer.status_code == status
    assert len(control.commands) == (status == 202)
    if status == 421:
        assert "'rowlock'" in problem(answer, 421, "another-system")["detail"]


def test_events(client: Client, control: FakeControl) -> None:
    for number in range(1200):
        control.journal.record_event(7, "unit moved", {"unit": f"u{number}", "from": "a1", "to": "a2"})
    rest = client()
    found = rest.get("/v1/events").json()["events"]
    assert [each["number"] for each in found] == list(range(201, 1201)), "the last 1,000 are kept"
    assert found[-1]["about"] == {"unit": "u1199", "from": "a1", "to": "a2"}
    assert (found[-1]["what"], found[-1]["rev"]) == ("unit moved", 7)
    assert [each["number"] for each in rest.get("/v1/events?after=1190&limit=3").json()["events"]] == [
        1198,
        1199,
        1200,
    ]
    problem(rest.get("/v1/events?limit=0"), 422, "invalid")
    control.seen_leader = OTHER
    problem(client().get("/v1/events"), 503, "not-leader")


@pytest.mark.parametrize(
    ("reported", "by"),
    [({}, "127.0.0.1"), ({"rowlock-by": "ann@desk" + "k" * 200}, f"ann@desk{'k' * 92} at 127.0.0.1")],
)
def test_who_gives_a_command_is_known(
    client: Client, control: FakeControl, reported: dict[str, str], by: str
) -> None:
    assert client().post("/v1/rebalance", headers=reported).status_code == 202
    assert control.given_by == [by]


MOVE = f"/v1/units/{UNIT}/move"


def _raw(address: str, head: str, chunks: list[bytes]) -> tuple[bytes, int]:
    """Send a request by hand, until the server answers or closes; return its answer and how many chunks it
    let be sent."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=120) as connection:
        connection.sendall(head.encode())
        sent = 0
        with contextlib.suppress(OSError):
            for chunk in chunks:
                if select.select([connection], [], [], 0)[0]:
                    break
                connection.sendall(chunk)
                sent += 1
        reported = b""
        with contextlib.suppress(OSError):
            while part := connection.recv(65536):
                reported += part
    return reported, sent


def _head(path: str, *lines: str) -> str:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: 127.0.0.1", *lines, "", ""])


@pytest.mark.parametrize("path", [MOVE, "/v1/rebalance", "/v1/nothing"])
def test_a_stranger_is_refused_before_a_byte_of_the_body_is_read(control: FakeControl, path: str) -> None:
    """No body is sent at all: a server that waited for it would not answer."""
    server = RestServer(create_app(control, FakeDesk(), token=SecretStr("topsecret")), "127.0.0.1:0")
    try:
        reported, _ = _raw(server.start(), _head(path, "Content-Length: 400000000"), [])
    finally:
        server.close()
    assert reported.startswith(b"HTTP/1.1 401 ")
    assert b"connection: close" in reported.lower()
    assert control.commands == []


@pytest.mark.parametrize("host", ["node1.example/healthz?", "node1.example/healthz#"])
@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/rebalance"), ("GET", "/metrics")])
def test_host_header_hides_no_path_from_the_check(
    control: FakeControl, host: str, method: str, path: str
) -> None:
    """The URL of a request is put together from its header `Host`; what is executed is its path."""
    server = RestServer(create_app(control, FakeDesk(), token=SecretStr("topsecret")), "127.0.0.1:0")
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    try:
        reported, _ = _raw(server.start(), head, [])
    finally:
        server.close()
    assert reported[:13] in (b"HTTP/1.1 401 ", b"HTTP/1.1 400 ")
    assert control.commands == []


@pytest.mark.parametrize("token", ["", "topsecret"])
def test_a_body_that_is_too_long_is_not_read(control: FakeControl, token: str) -> None:
    server = RestServer(create_app(control, FakeDesk(), token=SecretStr(token)), "127.0.0.1:0")
    known = [f"Authorization: Bearer {token}"] if token else []
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    try:
        address = server.start()
        reported, _ = _raw(address, _head(MOVE, *known, f"Content-Length: {BODY_LIMIT + 1}"), [])
        chunked, sent = _raw(address, _head(MOVE, *known, "Transfer-Encoding: chunked"), [piece] * 6400)
        health, _ = _raw(address, _head("/healthz", "Content-Length: 400000000"), [])
    finally:
        server.close()
    assert [each[:13] for each in (reported, health)] == [b"HTTP/1.1 413 "] * 2
    assert chunked[:13] in (b"HTTP/1.1 413 ", b"")  # a reset may overtake the answer
    assert sent < 640, "400 MB were offered; what the sockets hold is all that may go"
    assert control.commands == []


def test_a_body_that_does_not_come_is_not_waited_for(control: FakeControl) -> None:
    app = RequestGuard(create_app(control, FakeDesk(), token=None), None, body_s=0.05)
    server = RestServer(app, "127.0.0.1:0")
    try:
        reported, _ = _raw(server.start(), _head(MOVE, "Content-Length: 10"), [b"{"])
    finally:
        server.close()
    assert reported.startswith(b"HTTP/1.1 408 ")
    assert b"too-slow" in reported


def test_every_kind_of_problem_is_in_the_reference() -> None:
    page = render()
    assert [kind for status, kind in KINDS.items() if f"| {status} | `{kind}` |" not in page] == []


def test_with_the_token_from_anywhere(client: Client, control: FakeControl) -> None:
    rest = client("topsecret", "node1.example")
    assert rest.post("/v1/resign", headers={"Authorization": "Bearer topsecret"}).status_code == 202


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost:80", None, 202),
        ("[::1]:7780", None, 202),
        ("127.0.0.1:7780", "http://127.0.0.1:7780", 202),
        ("127.0.0.1:7780", "http://127.0.0.1:8080", 403),
        ("127.0.0.1:7780", "http://evil.example", 403),
        ("127.0.0.1:7780", "null", 403),
        ("rebound.example", "http://rebound.example", 403),
    ],
)
def test_without_a_token_no_page_in_a_browser_may_ask(
    client: Client, control: FakeControl, host: str, origin: str | None, status: int
) -> None:
    answer = client(host=host).post("/v1/resign", headers={"Origin": origin} if origin else {})
    assert answer.status_code == status
    assert len(control.commands) == (status == 202)


def test_the_description_says_what_the_interface_does(client: Client, control: FakeControl) -> None:
    rest = client()
    reported = rest.get("/v1/openapi.json").json()
    assert set(reported["paths"]) == {
        "/v1/leader", "/v1/counters", "/v1/agents", "/v1/agents/{name}", "/v1/agents/{name}/drain",
        "/v1/pipelines", "/v1/agents/{name}/undrain", "/v1/units/{unit}/cancel",
        "/v1/units", "/v1/units/{unit}", "/v1/units/{unit}/pause", "/v1/units/{unit}/resume",
        "/v1/units/{unit}/move", "/v1/copies", "/v1/copies/cancel", "/v1/copies/rate", "/v1/events",
        "/v1/rebalance", "/v1/reload", "/v1/resign", "/healthz", "/readyz",
    }  # fmt: skip
    assert "ValidationError" not in str(reported)
    for path, methods in reported["paths"].items():
        for method, operation in methods.items():
            answers = operation["responses"]
            assert operation["summary"], (path, method)
            assert operation["tags"], (path, method)
            assert {"500", "503"} <= set(answers)
            assert ({"401", "403", "421", "504"} <= set(answers)) == path.startswith("/v1")
            assert ("409" in answers) == (method == "post")
            for status, answer in answers.items():
                kind = "application/problem+json" if int(status) >= 400 else "application/json"
                assert list(answer["content"]) == [kind], (path, method, status)


def test_the_description_names_the_token(control: FakeControl) -> None:
    with_token: FastAPI = create_app(control, FakeDesk(), token=SecretStr("x"))
    reported = describe_interface(with_token)
    assert reported["paths"]["/v1/units"]["get"]["security"] == [{"HTTPBearer": []}]
    assert "security" not in reported["paths"]["/healthz"]["get"]


@pytest.fixture(params=["http", "https"])
def server(request: pytest.FixtureRequest, control: FakeControl, tmp_path: Path) -> Iterator[tuple[str, Any]]:
    """Yield a real server's URL and what its certificate is verified with."""
    ssl, verify = None, True
    if request.param == "https":
        issued = Authority(tmp_path).issue("127.0.0.1")
        ssl, verify = Certificate(issued.cert, issued.key), str(issued.ca)
    server = RestServer(create_app(control, FakeDesk(), token=None), "127.0.0.1:0", ssl)
    yield f"{request.param}://{server.start()}", verify
    server.close()


def test_a_real_server(server: tuple[str, Any], control: FakeControl) -> None:
    import ssl

    url, verify = server
    context = ssl.create_default_context(cafile=verify) if isinstance(verify, str) else True
    with httpx.Client(base_url=url, verify=context, trust_env=False) as rest:
        assert len(rest.get("/v1/units").json()["units"]) == 2
        assert rest.post("/v1/rebalance").status_code == 202
    assert control.commands == [Rebalance()]


def test_a_server_ends_and_frees_its_port(control: FakeControl) -> None:
    app = create_app(control, FakeDesk(), token=None)
    first = RestServer(app, "127.0.0.1:0")
    address = first.start()
    with pytest.raises(OSError, match="in use"):
        RestServer(app, address).start()
    first.close()
    first.close()
    again = RestServer(app, address)
    assert again.start() == address
    again.close()


def test_the_reference_is_current() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "reference" / "rest.md"
    assert page.read_text() == render(), "run: python -m tools.docs.rest > docs/reference/rest.md"


def test_copies(client: Client, control: FakeControl, served: tuple[Shared, dict[str, str]]) -> None:
    rest, desk = client(), DESK
    desk.asked.clear()
    answer = rest.post("/v1/copies", json={"table": "bank.acct", "where": "id > 3"}, headers={ASKED_BY: "me"})
    assert answer.status_code == 202
    assert answer.json() == {"id": "7f3c", "source": "b1", "table": "bank.acct"}
    assert rest.post("/v1/copies/cancel", json={"table": "bank.acct", "source": "b2"}).status_code == 202
    changed = {"table": "bank.acct", "max_rows_per_second": None}
    assert rest.post("/v1/copies/rate", json=changed).status_code == 202
    problem(rest.post("/v1/copies/rate", json={"table": "bank.acct"}), 422, "invalid")
    (asked, by), (cancelled, _), (rate, _) = desk.asked
    assert rate == CopyRequested("bank.acct", rate_only=True)
    assert (asked.table, asked.where, asked.cancel, cancelled.cancel) == ("bank.acct", "id > 3", False, True)
    assert by.startswith("me at ")
    notified = [row for row in control.journal.list_events_after(0, 10) if row.what == "copy asked for"]
    assert notified[0].about["table"] == "bank.acct"
    assert rest.get("/v1/copies").json() == {"copies": []}


def test_a_copy_that_cannot_be(client: Client, control: FakeControl) -> None:
    rest = client()
    problem(rest.post("/v1/copies", json={"table": "t"}), 422, "invalid")
    DESK.refuses = "no such table"
    try:
        assert (
            problem(rest.post("/v1/copies", json={"table": "bank.x"}), 409, "refused")["detail"]
            == "no such table"
        )
    finally:
        DESK.refuses = None
    control.seen_leader = OTHER
    problem(rest.post("/v1/copies", json={"table": "bank.acct"}), 503, "not-leader")
    problem(rest.get("/v1/copies"), 503, "not-leader")
