"""`rowlock init` without servers: its questions, its files, and its exit codes."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from coordinator.control.codec import Candidate
from rowlock.cli import main
from rowlock.commands import init_questions, init_report
from rowlock.commands.init_questions import Questioner
from rowlock.errors import CommandError
from rowlock.inspect.first_config import server_survey
from rowlock.inspect.first_config.new_user import list_new_user_statements
from rowlock.inspect.first_config.server_survey import SurveyedServer
from rowlock.inspect.first_config.server_url import SCHEMES, ServerUrl, Side
from rowlock.inspect.first_config.table_choice import ListedTable, TableList
from rowlock.inspect.scopes import FindingScope, ScopedFinding, attach_scope
from rowlock.views.kafka import KafkaContents, KafkaView
from schemas.config.model import Config, load_config
from schemas.config.secrets import add_secret_place
from schemas.findings import Finding
from schemas.io import refused_logins
from schemas.io.refused_logins import CORRECT_LOGIN, RefusedLogins
from schemas.problems import Problem

URLS = ("mysql://app@branch1/bank", "postgresql://hq/hq")
LISTED = TableList((
    ListedTable(("bank", "acct"), 2_190_000, 1 << 20),
    ListedTable(("bank", "audit"), 5, 10, Problem("table bank.audit has no primary key", "add one")),
    ListedTable(("bank", "card"), 1, 1),
))  # fmt: skip
Init = Callable[..., Result]


@pytest.fixture
def found() -> list[ScopedFinding]:
    """The findings of `check`."""
    return []


@pytest.fixture
def init(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: list[ScopedFinding]) -> Init:
    """Run the command in `tmp_path`, on servers of which the password is "a b"."""

    def detect_make(place: str, url: ServerUrl, password: str) -> SurveyedServer:
        if url.kind == "mysql" and password != "a b":
            raise CommandError(f"{place}: user or password is wrong", "correct them")
        return SurveyedServer(url, "9.7.0")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(init_questions, "explain_missing_broker", lambda _: None)
    monkeypatch.setattr(server_survey, "detect_make", detect_make)
    monkeypatch.setattr(server_survey, "read_mysql_greeting", lambda *_: "")
    monkeypatch.setattr(server_survey, "require_target", lambda *_: None)
    monkeypatch.setattr(server_survey, "read_source", lambda *_: LISTED)
    monkeypatch.setattr(init_report, "list_scoped_findings", lambda *_: found)
    monkeypatch.setattr(init_report, "KafkaView", _NoKafka)
    monkeypatch.setattr(init_report, "find_living_leader", lambda _: None)
    return lambda *words, **more: CliRunner().invoke(main, ["init", *words], **more)


class _NoKafka:
    def __init__(self, _: object) -> None:
        raise CommandError("Kafka does not answer", "start the broker")


def test_a_kafka_that_does_not_answer_is_named_before_check_waits_for_it(init: Init) -> None:
    result = init("mysql://app:a%20b@b/bank", "postgresql://u:p@hq/hq", "--yes")
    assert result.stdout.index("kafka: Kafka does not answer\n") < result.stdout.index("written: ")


def list_files(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_without_urls_everything_is_asked(init: Init, tmp_path: Path) -> None:
    answers = ["branch1", URLS[1], URLS[0], URLS[1], "boss", "kafka1:9092", "a b", "secret", "7", "1"]
    result = init(input="".join(f"{each}\n" for each in answers))
    assert result.exit_code == 0, result.output
    assert "the URL of the source is not of the form" in result.stderr
    assert "postgresql is no kind of source" in result.stderr
    assert "Password of app@branch1:3306: \n" in result.stdout
    assert "the list has no number 7: choose from 1 to 2" in result.stderr
    assert "secret" not in result.output
    config = load_config(tmp_path / "rowlock.yaml", {})
    source, target = config.sources["branch1"], config.targets["hq"]
    assert (source.user, source.password.get_secret_value(), source.tables) == ("app", "a b", ["bank.acct"])
    assert (target.user, target.password.get_secret_value()) == ("boss", "secret")
    assert config.kafka.bootstrap == "kafka1:9092"
    assert list_files(tmp_path) == ["branch1.password", "hq.password", "rowlock.yaml"]
    for file in ("branch1.password", "hq.password"):
        assert stat.S_IMODE((tmp_path / file).stat().st_mode) == 0o600
    text = " ".join(result.stdout.split())
    assert "table bank.audit has no primary key: add one" in text
    assert "copies 1 table, about 2,190,000 rows (1.0 MiB)" in text
    assert "takes about 104.0 s at 21,900 rows a second, as measured on two cores" in text
    assert text.endswith("next: rowlock run")


def test_defaults_are_taken_without_questions(init: Init, tmp_path: Path) -> None:
    (tmp_path / "hq.password").write_text("from a file\n")
    result = init(*URLS, "--yes", env={"BRANCH1_PASSWORD": "a b"})
    assert result.exit_code == 0, result.output
    config = load_config(tmp_path / "rowlock.yaml", {"BRANCH1_PASSWORD": "a b"})
    assert config.sources["branch1"].tables == ["bank.*", "!bank.audit"]
    assert "copies 2 tables" in result.stdout
    assert config.targets["hq"].user == "rowlock"
    assert config.targets["hq"].password.get_secret_value() == "from a file"
    assert list_files(tmp_path) == ["hq.password", "rowlock.yaml"]


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        ((*URLS, "--yes"), "no password is known for user app of branch1: write it into branch1.password"),
        (("--yes",), "SOURCE_URL is missing"),
        (URLS, "a question had no answer"),
        (("mysql://app:wrong@branch1", "mysql://u:p@hq/hq", "--yes"), "source branch1: user or password"),
        (("mysql://app:a%20b@branch1", "mysql://u:p@hq/hq", "--yes"), "target hq: user or password"),
        (("mysql://app:a%20b@branch1", "kafka://b", "--yes", "--kafka", "x"), "'x' is no broker"),
        (("mysql://u:a%20b@branch1", "kafka://b", "--yes", "--tables", "bank.audit"), "no primary key"),
        (("mysql://u:a%20b@b", "kafka://127.0.0.1/rowlock", "--yes"), "are rowlock's own on this cluster"),
        (("mysql://u:a%20b@b", "kafka://b", "--yes", "-c", "no/such/x.yaml"), "cannot be written"),
    ],
)
def test_errors_are_exit_2_and_write_nothing(
    init: Init, tmp_path: Path, words: tuple[str, ...], seen: str
) -> None:
    result = init(*words)
    assert result.exit_code == 2, result.output
    assert seen in result.stderr
    assert list_files(tmp_path) == []


# --- Kafka


def show_kafka_of(
    monkeypatch: pytest.MonkeyPatch, init: Init, contents: KafkaContents, leader: Candidate | None = None
) -> Result:
    view = SimpleNamespace(read_contents=lambda: contents, close=lambda: None)
    monkeypatch.setattr(init_report, "KafkaView", lambda _: view)
    monkeypatch.setattr(init_report, "find_living_leader", lambda _: leader)
    words = ("mysql://app:a%20b@branch1/bank", "kafka://b", "--yes", "--force", "--kafka", "k:1")
    return init(*words)


def test_the_kafka_cluster_is_named_with_what_it_has_of_the_prefix(
    init: Init, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = show_kafka_of(monkeypatch, init, KafkaContents("cl-1", 1, (), ()))
    assert "kafka: cluster cl-1 at k:1, 1 broker; it has no topics with the prefix rowlock\n" in shown.stdout
    assert "warning" not in shown.stderr
    one = show_kafka_of(monkeypatch, init, KafkaContents("cl-1", 3, ("rowlock.control",), ()))
    assert "it has already 1 topic with the prefix rowlock\n" in one.stdout
    used = KafkaContents("cl-1", 3, ("rowlock.b.watermark", "rowlock.control"), ("b",))
    again = show_kafka_of(monkeypatch, init, used)
    assert (
        "3 brokers; it has already 2 topics with the prefix rowlock (sources captured into it: b)"
        in again.stdout
    )
    assert "warning" not in again.stderr


def test_a_source_that_was_captured_with_the_prefix_is_a_warning(
    init: Init, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = KafkaContents("cl-1", 1, ("rowlock.branch1.watermark",), ("branch1",))
    shown = show_kafka_of(monkeypatch, init, used)
    assert (
        "a source branch1 has been captured there: `rowlock run` goes on from its stored position"
        in shown.stderr
    )


def test_a_running_system_with_the_prefix_is_a_warning(init: Init, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Candidate("run-other", "h:1", "h:2")
    shown = show_kafka_of(monkeypatch, init, KafkaContents("cl-1", 1, (), ()), leader)
    assert (
        "a system with the prefix rowlock runs on this Kafka: coordinator run-other leads it" in shown.stderr
    )


def test_contents_of_kafka_are_those_of_the_prefix() -> None:
    topics = dict.fromkeys(["rl.b1.watermark", "rl.b1.bank.watermark", "rl.control", "rlx.b2.watermark"])
    found = SimpleNamespace(cluster_id="c", brokers={1: None}, topics=topics)
    view: Any = object.__new__(KafkaView)
    view._prefix, view._bootstrap = "rl", "k:1"
    view._client = SimpleNamespace(list_topics=lambda **_: found)
    contents = view.read_contents()
    assert contents == KafkaContents(
        "c", 1, ("rl.b1.bank.watermark", "rl.b1.watermark", "rl.control"), ("b1",)
    )


# --- users and passwords


def test_statements_that_create_the_user_are_printed_if_the_log_in_is_refused(
    init: Init, logins: list[tuple[str, str]]
) -> None:
    """The server does not show whether the user exists."""
    result = init("mysql://app:wrong@branch1/bank", "kafka://b", "--yes")
    assert (result.exit_code, len(logins)) == (2, 1)
    first, *statements = result.stdout.splitlines()
    assert first.startswith("source branch1: it refuses user app. If there is no such user yet, an admin")
    assert statements == [
        "  CREATE USER 'app'@'%' IDENTIFIED BY 'PASSWORD';",
        "  GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'app'@'%';",
        "  GRANT SELECT ON `bank`.* TO 'app'@'%';",
    ]


@pytest.mark.parametrize("side", ["source", "target"])
def test_each_kind_of_server_has_statements_for_a_new_user(side: Side) -> None:
    for kind in set(SCHEMES[side].values()) - {"kafka"}:
        first, *rest = list_new_user_statements(side, ServerUrl(kind, "h", user="a\"`'b", database="d"))
        assert first.startswith("CREATE ")
        assert "PASSWORD" in first
        assert rest
        assert all(each.startswith("GRANT ") for each in rest)
        assert all("{" not in each for each in (first, *rest))
        assert all(
            any(name in each for name in ('a""`\'b', "'a\"`''b'@'%'", 'A""`\'B')) for each in (first, *rest)
        )
    assert list_new_user_statements("target", ServerUrl("kafka", "h")) == []


@pytest.fixture
def logins(init: Init, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The log-ins at two servers that accept the password "right" alone."""
    del init  # its fakes are replaced
    made: list[tuple[str, str]] = []
    refused = RefusedLogins()
    monkeypatch.setattr(refused_logins, "REFUSED_LOGINS", refused)

    def log_in(host: str, port: int, user: str, password: str) -> None:
        with refused.try_login(host, port, user, password, lambda _: True):
            made.append((host, password))
            if password != "right":
                raise CommandError("user or password is wrong", "correct them")

    def detect_make(_: str, url: ServerUrl, password: str) -> SurveyedServer:
        if url.host == "away":
            raise CommandError("it does not answer", "start it")
        if url.kind == "mysql":
            log_in(url.host, url.real_port, url.user, password)
        return SurveyedServer(url)

    def require_target(config: Config, name: str) -> None:
        target: Any = config.targets[name]
        log_in(target.host, target.port, target.user, target.password.get_secret_value())

    monkeypatch.setattr(server_survey, "detect_make", detect_make)
    monkeypatch.setattr(server_survey, "require_target", require_target)
    monkeypatch.setattr(Questioner, "can_ask_again", property(lambda questioner: questioner.asks))
    return made


def test_a_refused_password_is_asked_for_again_and_nothing_else(
    init: Init, logins: list[tuple[str, str]], tmp_path: Path
) -> None:
    answers = [*URLS, "boss", "kafka1:9092", "wrong", "worse", "right", "mistyped", "right", "all"]
    result = init(input="".join(f"{each}\n" for each in answers))
    assert result.exit_code == 0, result.output
    tried = [
        ("branch1", "wrong"),
        ("branch1", "worse"),
        ("branch1", "right"),
        ("hq", "mistyped"),
        ("hq", "right"),
    ]
    assert logins == tried
    assert result.stderr.count("user or password is wrong; type the password again") == 3
    config = load_config(tmp_path / "rowlock.yaml", {})
    assert {each.password.get_secret_value() for each in config.sources.values()} == {"right"}
    assert (tmp_path / "hq.password").read_text() == "right"
    assert list_files(tmp_path) == ["branch1.password", "hq.password", "rowlock.yaml"]


def test_a_password_is_asked_for_three_times(
    init: Init, logins: list[tuple[str, str]], tmp_path: Path
) -> None:
    result = init("mysql://app:in%20url@branch1/bank", "kafka://b", input="\nsecond\nthird\nright\n")
    assert (result.exit_code, [password for _, password in logins]) == (2, ["in url", "second", "third"])
    assert result.stderr.endswith("rowlock: user or password is wrong: correct them\n")
    assert list_files(tmp_path) == []


def test_a_password_that_is_typed_again_is_tried_again(
    init: Init, logins: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The administrator has created the user meanwhile."""

    def detect_make(_: str, url: ServerUrl, password: str) -> SurveyedServer:
        login = (url.host, url.real_port, url.user, password)
        with refused_logins.REFUSED_LOGINS.try_login(*login, lambda _: True):
            logins.append((url.host, password))
            if url.kind == "mysql" and len(logins) == 1:
                raise CommandError("no such user", "create it")
        return SurveyedServer(url)

    monkeypatch.setattr(server_survey, "detect_make", detect_make)
    monkeypatch.setattr(server_survey, "require_target", lambda *_: None)
    result = init("mysql://app@branch1/bank", "kafka://b", input="\nright\nright\nall\n")
    assert (result.exit_code, logins) == (0, [*[("branch1", "right")] * 2, ("b", "")]), result.output
    assert result.stderr == "rowlock: no such user; type the password again\n"


@pytest.mark.parametrize(("scheme", "version"), [("mysql", "5.5.5-10.11.6-MariaDB"), ("mariadb", "9.7.0")])
def test_statements_for_a_refused_user_are_those_of_the_server_that_answers(
    init: Init, logins: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, scheme: str, version: str
) -> None:
    del logins
    monkeypatch.setattr(server_survey, "read_mysql_greeting", lambda *_: version)
    right = "REPLICATION CLIENT" if scheme == "mariadb" else "BINLOG MONITOR, SLAVE MONITOR"

    def refuse(_: str, url: ServerUrl, password: str) -> SurveyedServer:
        with refused_logins.REFUSED_LOGINS.try_login(
            url.host, url.real_port, url.user, password, lambda _: True
        ):
            raise CommandError("refused", "correct it")

    monkeypatch.setattr(server_survey, "detect_make", refuse)
    result = init(f"{scheme}://app:wrong@branch1/bank", "kafka://b", "--yes")
    assert f"GRANT REPLICATION SLAVE, {right} ON *.* TO 'app'@'%';" in result.stdout


def test_the_anonymous_user_is_named_from_the_second_refusal_on(
    init: Init, logins: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    del logins

    def refuse(_: str, url: ServerUrl, password: str) -> SurveyedServer:
        with refused_logins.REFUSED_LOGINS.try_login(
            url.host, url.real_port, url.user, password, lambda _: True
        ):
            raise CommandError("Access denied for user 'app'@'localhost'", "correct it")

    monkeypatch.setattr(server_survey, "detect_make", refuse)
    first, second, last = init(
        "mysql://app@branch1/bank", "kafka://b", input="\none\ntwo\nthree\n"
    ).stderr.splitlines()
    assert first == "rowlock: Access denied for user 'app'@'localhost'; type the password again"
    assert second.startswith(first)
    assert "look for an anonymous user" in second
    assert last.endswith("correct it")


def test_a_server_that_does_not_answer_is_no_reason_for_another_password(
    init: Init, logins: list[tuple[str, str]]
) -> None:
    result = init("mysql://app@away/bank", "kafka://b", input="\nfirst\nsecond\n")
    assert (result.exit_code, logins) == (2, [])
    assert result.stderr == "rowlock: it does not answer: start it\n"


@pytest.mark.parametrize("variable", [True, False])
def test_a_refused_stored_password_is_replaced_by_the_answer(
    init: Init, logins: list[tuple[str, str]], tmp_path: Path, *, variable: bool
) -> None:
    """It is no longer that of the environment; a file is replaced after a question."""
    if not variable:
        (tmp_path / "branch1.password").write_text("old")
    env, replace_it = ({"BRANCH1_PASSWORD": "old"}, []) if variable else ({}, ["y"])
    answers = ["", "y", *replace_it, "right", "right", "all"]
    result = init(URLS[0], "mysql://u@hq/hq", input="".join(f"{each}\n" for each in answers), env=env)
    assert result.exit_code == 0, result.output
    config = load_config(tmp_path / "rowlock.yaml", env)
    assert config.sources["branch1"].password.get_secret_value() == "right"


def test_a_script_ends_at_a_refused_password(
    init: Init, logins: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next line answers another question."""
    assert init("mysql://app:wrong@branch1/bank", "kafka://b", "--yes").exit_code == 2
    monkeypatch.undo()
    assert not Questioner(True, Path("x"), False).can_ask_again


def test_a_pattern_is_completed_with_the_database_of_the_url(init: Init, tmp_path: Path) -> None:
    result = init(
        URLS[0].replace("app", "app:a%20b"), "kafka://b", "--yes", "--tables", "acct", "--tables", "c*"
    )
    assert result.exit_code == 0, result.output
    assert load_config(tmp_path / "rowlock.yaml", {}).sources["branch1"].tables == ["bank.acct", "bank.c*"]


def test_a_file_that_only_the_variable_names_is_not_written(init: Init, tmp_path: Path) -> None:
    production = tmp_path / "production"
    production.mkdir()
    (production / "prod.yaml").write_text("mine")
    words = ("mysql://app:a%20b@branch1/bank", "kafka://b", "--yes", "--force")
    result = init(*words, env={"ROWLOCK_CONFIG": str(production / "prod.yaml")})
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith("next: rowlock run -c rowlock.yaml\n")
    assert list_files(tmp_path) == ["branch1.password", "production", "rowlock.yaml"]
    assert list_files(production) == ["prod.yaml"]
    assert (production / "prod.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("place", "answers", "sent"),
    [
        ("branch1.password", [""], []),
        ("branch1.password", ["", "y", "all"], ["a b"]),
        ("branch1.password", ["", "n", "n"], []),
        ("branch1.password", ["", "n", "y", "other", "all"], ["other"]),
        ("BRANCH1_PASSWORD", [""], []),
        ("BRANCH1_PASSWORD", ["", "y", "all"], ["a b"]),
        ("BRANCH1_PASSWORD", ["", "n", "other", "all"], ["other"]),
    ],
)
def test_a_stored_password_is_sent_only_after_a_question(
    init: Init,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    answers: list[str],
    sent: list[str],
) -> None:
    """It may be that of another host with the same first label."""
    got: list[str] = []

    def detect_make(_: str, url: ServerUrl, password: str) -> SurveyedServer:
        got.extend([password] if url.has_login else [])
        return SurveyedServer(url)

    monkeypatch.setattr(server_survey, "detect_make", detect_make)
    env = {place: "a b"} if place.isupper() else {}
    if not env:
        (tmp_path / place).write_text("a b")
    words = ("mysql://app@branch1.vendor.example/bank", "kafka://b")
    result = init(*words, input="".join(f"{each}\n" for each in answers), env=env)
    assert f"Use the password in {place} for app@branch1.vendor.example:3306?" in result.stdout
    assert got == sent
    assert result.exit_code == (0 if sent else 2), result.output
    if sent:
        source = load_config(tmp_path / "rowlock.yaml", env).sources["branch1"]
        assert source.password.get_secret_value() == sent[0]


@pytest.mark.parametrize(
    ("place", "env"), [("branch1.password", {}), ("BRANCH1_PASSWORD", {"BRANCH1_PASSWORD": "no"})]
)
def test_without_questions_the_use_of_a_stored_password_is_printed_before_it(
    init: Init, tmp_path: Path, place: str, env: dict[str, str]
) -> None:
    if not env:
        (tmp_path / place).write_text("no")
    result = init(URLS[0], "kafka://b", "--yes", env=env)
    assert "user or password is wrong" in result.stderr
    assert result.stdout == f"source branch1: the password in {place} is used for app@branch1:3306\n"


@pytest.mark.parametrize("words", [("--yes", "--force"), ("--force",)])
def test_a_password_of_another_configuration_is_not_replaced(
    init: Init, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "branch1.password").write_text("theirs")
    (tmp_path / "prod.yaml").write_text("sources: {b: {password_file: ./branch1.password}}")
    urls = ("mysql://app:a%20b@branch1/bank", "kafka://b")
    for _ in range(2):  # the second time, both files are its own
        result = init(*urls, *words, input="\nall\n")
        assert result.exit_code == 0, result.output
        assert "branch1.password belongs to prod.yaml and stays as it is" in result.stdout
        assert (tmp_path / "branch1.password").read_text() == "theirs"
        assert list_files(tmp_path) == ["branch1.2.password", "branch1.password", "prod.yaml", "rowlock.yaml"]
        source = load_config(tmp_path / "rowlock.yaml", {}).sources["branch1"]
        assert source.password.get_secret_value() == "a b"


@pytest.mark.parametrize("file", ["rowlock.yaml", "branch1.password"])
def test_files_are_replaced_only_on_demand(init: Init, tmp_path: Path, file: str) -> None:
    words = ("mysql://app:a%20b@branch1/bank", "kafka://b/out")
    (tmp_path / file).write_text("mine")
    refused = [init(*words, "--yes"), init(*words, input="127.0.0.1:9092\nn\n"), init(*words, input="n\n")]
    assert {each.exit_code for each in refused} == {2}
    assert f"{file} exists: add --force" in refused[0].stderr
    assert (tmp_path / file).read_text() == "mine"
    assert list_files(tmp_path) == [file]
    assert init(*words, "--yes", "--force").exit_code == 0
    assert load_config(tmp_path / "rowlock.yaml", {}).sources["branch1"].password.get_secret_value() == "a b"
    assert init(*words, "--force", input="\ny\n\n").exit_code == 0, "the password is already there"


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        (["k1:1", "", "k2:2"], ["k1:1", "k2:2"]),
        (["k1:1", "n", "k1:1", "y"], ["k1:1", "k1:1"]),
        (["k1:1", "n", "", "y"], ["k1:1", "k1:1"]),
        (["k2:2"], ["k2:2"]),
    ],
)
def test_kafka_is_asked_for_until_it_answers_or_a_person_insists(
    init: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[str], asked: list[str]
) -> None:
    """What was typed last is the default of the next question."""
    seen: list[str] = []

    def explain(broker: str) -> str | None:
        seen.append(broker)
        return None if broker == "k2:2" else f"no Kafka broker answers at {broker}: it is off"

    monkeypatch.setattr(init_questions, "explain_missing_broker", explain)
    words = ("mysql://app:a%20b@branch1/bank", "kafka://b")
    result = init(*words, input="".join(f"{each}\n" for each in [*answers, "all"]))
    assert result.exit_code == 0, result.output
    assert load_config(tmp_path / "rowlock.yaml", {}).kafka.bootstrap == asked[-1]
    trial = "To try rowlock on this machine: `python -m deploy.embedded up --kafka --keep broker`"
    assert result.stdout.count(f"at k1:1: it is off. {trial}") == asked.count("k1:1")
    assert seen == asked


@pytest.mark.parametrize("words", [("--yes",), ()])
def test_a_kafka_that_does_not_answer_is_asked_once(
    init: Init, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """It is the question for its address that asks, or else the look at what Kafka has; `check` knows."""
    known: list[Problem | None] = []
    views: list[object] = []

    def list_scoped_findings(_: object, unreached: Problem | None) -> list[ScopedFinding]:
        known.append(unreached)
        return []

    def open_view(config: object) -> None:
        views.append(config)
        raise CommandError("Kafka does not answer: it is off", "start the broker")

    off = "no Kafka broker answers at k1:1: it is off"
    monkeypatch.setattr(init_questions, "explain_missing_broker", lambda _: off)
    monkeypatch.setattr(init_report, "list_scoped_findings", list_scoped_findings)
    monkeypatch.setattr(init_report, "KafkaView", open_view)
    result = init("mysql://app:a%20b@branch1/bank", "kafka://b", *words, input="k1:1\ny\nall\n")
    assert result.exit_code == 0, result.output
    [problem] = known
    assert problem is not None
    assert problem.what == ("Kafka does not answer: it is off" if words else off)
    assert problem.remedy.startswith("start the broker")
    assert len(views) == len(words)


@pytest.mark.parametrize("words", [("--yes",), ("--kafka", "k1:1", "--yes"), ("--kafka", "k1:1")])
def test_kafka_is_not_asked_where_nobody_was_asked_for_it(
    init: Init, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(init_questions, "explain_missing_broker", lambda _: pytest.fail("it was asked"))
    result = init("mysql://app:a%20b@branch1/bank", "kafka://b", *words, input="all\n")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("words", "patterns"), [((), "bank.*"), (("--tables", "a*", "--tables", "eu.x"), "bank.a*, eu.x")]
)
def test_a_source_without_tables_is_named_with_what_was_looked_for(
    init: Init, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], patterns: str
) -> None:
    monkeypatch.setattr(server_survey, "read_source", lambda *_: TableList(()))
    result = init("mysql://app:a%20b@branch1/bank", "kafka://b", "--yes", *words)
    seen = (
        f"source branch1: user app sees no table that matches {patterns}: there is none yet, or the user may"
    )
    assert seen in result.stdout


def test_messages_do_not_name_the_file_of_a_new_password(
    init: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written only once both servers have taken the passwords."""
    places: list[str] = []

    def require_target(config: Config, name: str) -> None:
        places.append(add_secret_place(CORRECT_LOGIN, config.targets[name].password))

    monkeypatch.setattr(server_survey, "require_target", require_target)
    words = ("mysql://app:a%20b@branch1/bank", "postgresql://hq/hq", "--yes", "--force")
    for url in ("postgresql://u:p@hq/hq", "postgresql://u@hq/hq"):
        init(words[0], url, *words[2:])
    placed = CORRECT_LOGIN.replace("the password", "the password (read from the file hq.password)")
    assert places == [CORRECT_LOGIN, placed]


def show_settings(init: Init, found: list[ScopedFinding], *remedies: str) -> str:
    """Return what `init` prints below its findings, about a source that lacks settings."""
    findings = [Finding(level, "source b", "no", each) for level, each in zip(LEVELS, remedies, strict=False)]
    found += attach_scope(FindingScope.SOURCE, "b", findings)
    result = init("mysql://app:a%20b@b/bank", "postgresql://u:p@hq/hq", "--yes")
    return result.stdout.partition("\nsource b needs")[2] or result.stdout.partition("\nsource b: write")[2]


LEVELS = ("error", "error", "warning")
SET_FORMAT = "SET GLOBAL f = ROW; and set it in the server's configuration; and reconnect"
SET_METADATA = "SET GLOBAL m = FULL; and set it in the server's configuration"


def test_settings_are_one_block_for_the_file_of_a_server_that_needs_a_restart(
    init: Init, found: list[ScopedFinding]
) -> None:
    restart = "write log_bin = binlog into the server's configuration ([mysqld] of my.cnf) and restart it"
    shown = show_settings(init, found, SET_FORMAT, restart, SET_METADATA)
    sentence, _, rest = shown.partition(":\n")
    assert "and restart the server, because log_bin needs it. Debian's MariaDB reads" in sentence
    assert "/etc/mysql/mariadb.conf.d/" in sentence
    assert "MySQL reads my.cnf" in sentence
    assert rest.startswith(
        "  [mysqld]\n  f = ROW\n  log_bin = binlog\n  # recommended:\n  m = FULL\n`rowlock"
    )
    assert "SET GLOBAL" not in rest, "the restart sets them"


def test_settings_of_a_server_that_needs_no_restart_are_also_statements(
    init: Init, found: list[ScopedFinding]
) -> None:
    shown = show_settings(init, found, SET_FORMAT, "GRANT A TO u;", SET_METADATA)
    assert shown.startswith(", from an administrator:\n  GRANT A TO u;\nsource b: write this into")
    assert shown.count("[mysqld]") == 1
    assert (
        "\nsource b: no restart is needed, because these statements have the same effect at once:\n"
        "  SET GLOBAL f = ROW;  -- and reconnect\n  SET GLOBAL m = FULL;\n`rowlock run"
    ) in shown


def test_missing_rights_are_printed_by_server(
    init: Init, found: list[ScopedFinding], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_survey, "read_source", lambda *_: TableList(()))
    lacks = Finding("error", "source b", "no right", "GRANT X TO app;")
    found += [ScopedFinding(lacks, FindingScope.SOURCE, "b")]
    found += [
        ScopedFinding(Finding(level, "target hq", "no", f"GRANT {right} TO u;"), FindingScope.TARGET, "hq")
        for level, right in (("warning", "Y"), ("error", "Z"))
    ]
    result = init("mysql://app:a%20b@b/bank", "postgresql://u:p@hq/hq", "--yes")
    assert result.exit_code == 1
    assert result.stdout.endswith(
        "source b needs, from an administrator:\n  GRANT X TO app;\n"
        "target hq needs, from an administrator:\n  GRANT Z TO u;\n"
        "target hq should get, from an administrator:\n  GRANT Y TO u;\n"
        "`rowlock run` copies the tables as soon as they exist and the user may read them\n"
        "next: correct what was found, then rowlock check, which may find more: some things only show once "
        "rights are granted and the server has been restarted\n"
    )
