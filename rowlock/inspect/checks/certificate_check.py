"""Check of the certificate files that the configuration names: each is reported before it expires."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from schemas.config.model import Config, CoordinationTls, KafkaTargetConfig, TlsConfig
from schemas.findings import Finding
from schemas.io.certificates import read_expiries

#: A certificate that expires within this time is reported.
NOTICE = timedelta(days=14)


def yield_certificate_findings(config: Config, now: datetime | None = None) -> Iterator[Finding]:
    """Yield a warning for each file. Only files are read: a refused connection is a finding of its own."""
    now = now or datetime.now(UTC)
    for section, key, file, is_authority in _list_files(config):
        try:
            expiries = read_expiries(file)
        except (OSError, ValueError):
            continue  # the connection reports it
        # Of several authorities the newest one counts, of a chain its first certificate.
        expiry = max(expiries) if is_authority else expiries[0]
        if expiry <= now + NOTICE:
            verb = "expired" if expiry <= now else "expires"
            message = f"{key}: the certificate in {file} {verb} at {expiry:%Y-%m-%d %H:%M} UTC"
            yield Finding("warning", config.find_line(*section), message, "replace the file with a newer one")


def _list_files(config: Config) -> Iterator[tuple[tuple[str, ...], str, Path, bool]]:
    """Yield the files of certificates: section of the configuration, key, file, and whether the file holds
    authorities.
    """
    for name, source in config.sources.items():
        yield from _list_tls_files(("sources", name), source.tls)
    for name, target in config.targets.items():
        yield from _list_tls_files(("targets", name), target.tls)
        if isinstance(target, KafkaTargetConfig):
            yield from _list_kafka_files(("targets", name), target.options)
    yield from _list_tls_files(("coordination",), config.coordination.tls)
    yield from _list_kafka_files(("kafka",), config.kafka.options)


def _list_tls_files(
    section: tuple[str, ...], tls: TlsConfig | CoordinationTls | None
) -> Iterator[tuple[tuple[str, ...], str, Path, bool]]:
    for key in ("ca", "cert"):
        if tls is not None and (file := getattr(tls, key)) is not None:
            yield section, f"tls.{key}", file, key == "ca"


def _list_kafka_files(
    section: tuple[str, ...], options: Mapping[str, str]
) -> Iterator[tuple[tuple[str, ...], str, Path, bool]]:
    for option in ("ssl.ca.location", "ssl.certificate.location"):
        if option in options:
            yield section, f"options.{option}", Path(options[option]), option == "ssl.ca.location"
