"""Mutants of what is refused of database servers: versions, and statements that fail."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ERRORS = ("tests/unit/test_server_errors.py",)


def _of(file: str, *changes: tuple[str, str]) -> list[Mutant]:
    return [Mutant(file, old, new, _ERRORS) for old, new in changes]


MUTANTS = [
    *_of(
        "schemas/io/server_errors/versions.py",
        ("    shown = version.removeprefix(_DISGUISE)\n", "    shown = version\n"),
        ('OLDEST_MARIADB if "mariadb" in shown.lower() else OLDEST_MYSQL', 'OLDEST_MYSQL'),
        ("oldest.numbers[: len(numbers)]", "oldest.numbers"),
        ('version.partition("-")[0]', "version"),
    ),
    *_of(
        "schemas/io/mysql_connection.py",
        ("    _require_supported(opened)\n", ""),
        ("        connection.close()\n        raise Unsupported", "        raise Unsupported"),
        ('    if explain_mysql_version_refusal(str(connection.get_server_info())) is None:', "    if False:"),
        ('explain_mysql_version_refusal(str(version))', 'explain_mysql_version_refusal(str(connection.get_server_info()))'),
    ),
    *_of(
        "schemas/io/server_errors/catalog_reads.py",
        ("    view = _CATALOG.match(", "    view = re.match(r'.*', "),
        ('    if text[:6].upper() != "SELECT":\n        return None\n', ""),
        ("_FIRST_FROM.search(text)", "None"),
    ),
    *_of(
        "producer/sources/source_errors.py",
        ("(TransientSourceError if error.transient else SourceRefusedError)", "TransientSourceError"),
        ('{text}: {choose_mysql_remedy(error)}', "{text}"),
    ),
    *_of(
        "producer/checks/binlog_server.py",
        ('SourceCheckResult([*findings, _build_unread_finding(', 'SourceCheckResult([_build_unread_finding('),
        ("        refused := explain_mysql_version_refusal(version)\n    ) is not None:", "        refused := None\n    ) is not None:"),
    ),
    *_of(
        "consumer/targets/shared/inspection.py",
        ("        if isinstance(error, DBAPIError) and error.orig is not None:", "        if False:"),
    ),
    *_of(
        "rowlock/views/target.py",
        ("    except MissingGrantError:\n        raise\n    except TargetConfigError", "    except TargetConfigError"),
        ('        if "rowlock_unit" in str(error):\n', "        if error:\n"),
    ),
    *_of(
        "rowlock/commands/server_errors.py",
        ("    if packages.isdisjoint(_DRIVERS):", "    if packages:"),
        ("    if packages.isdisjoint(_DRIVERS):", "    if not packages:"),
    ),
    *_of(
        "consumer/targets/postgres/connection.py",
        ("                self._require_supported(self._raw)\n", ""),
        ("            except BaseException:\n                self.close()\n                raise\n", "            except BaseException:\n                raise\n"),
    ),
    *_of(
        "consumer/targets/mysql/connection.py",
        ("        except ConsumerError:\n            self.close()\n            raise\n", "        except ConsumerError:\n            raise\n"),
    ),
    *_of("consumer/targets/mysql/errors.py", ('    if read and code in UNKNOWN_OBJECT_CODES:', "    if False:")),
    *_of("consumer/targets/postgres/errors.py", ("    if read and state in _UNKNOWN:", "    if False:")),
    *_of("consumer/targets/oracle/errors.py", ('    if code == UNKNOWN_COLUMN_CODE and ', "    if False and ")),
]  # fmt: skip
