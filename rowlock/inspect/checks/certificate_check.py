"""Check of the certificate files that the configuration names, and of the certificates that servers present:
each is reported before it expires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from consumer.errors import ConsumerError
from rowlock.errors import CommandError
from rowlock.views.kafka import KafkaView
from schemas.config.model import Config, CoordinationTls, KafkaConfig, KafkaTargetConfig, TlsConfig
from schemas.findings import Finding
from schemas.io.certificates import OwnCertificate, probe_expiry, read_expiries

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
        if (end := _describe_near_end(expiry, now)) is not None:
            message = f"{key}: the certificate in {file} {end}"
            yield Finding("warning", config.find_line(*section), message, "replace the file with a newer one")


def _describe_near_end(expiry: datetime, now: datetime) -> str | None:
    """Return that a certificate expires, or has expired; None: not within NOTICE."""
    if expiry > now + NOTICE:
        return None
    verb = "expired" if expiry <= now else "expires"
    return f"{verb} at {expiry:%Y-%m-%d %H:%M} UTC"


def yield_server_findings(
    config: Config,
    section: tuple[str, ...],
    tls: TlsConfig | None,
    read_expiry: Callable[[], datetime | None],
    now: datetime | None = None,
) -> Iterator[Finding]:
    """Yield a warning if the certificate that a source or target presents expires soon, or cannot be read.

    It does not matter where nothing verifies it.
    """
    if tls is not None and tls.verify != "none":
        server = " ".join((section[0].removesuffix("s"), *section[1:]))
        yield from _judge_presented(config.find_line(*section), server, read_expiry, now)


def yield_broker_findings(config: Config, now: datetime | None = None) -> Iterator[Finding]:
    """Yield the warnings about certificates of brokers. A cluster that does not answer is another finding."""
    yield from _yield_cluster_findings(config.find_line("kafka", "bootstrap"), config.kafka, now)
    for name, target in config.targets.items():
        if isinstance(target, KafkaTargetConfig):
            cluster = KafkaConfig(bootstrap=target.bootstrap, options=target.options)
            yield from _yield_cluster_findings(config.find_line("targets", name), cluster, now)


def _yield_cluster_findings(place: str, cluster: KafkaConfig, now: datetime | None) -> Iterator[Finding]:
    options = cluster.options
    is_tls = options.get("security.protocol", "").upper() in ("SSL", "SASL_SSL")
    if not is_tls or options.get("enable.ssl.certificate.verification", "true").lower() == "false":
        return
    cert, key = (options.get(f"ssl.{each}.location") for each in ("certificate", "key"))
    own = OwnCertificate(
        Path(cert) if cert else None, Path(key) if key else None, options.get("ssl.key.password")
    )
    try:
        with closing(KafkaView(cluster)) as view:
            brokers = view.list_brokers()
    except CommandError:
        return  # reported where the cluster is needed
    for host, port in brokers:
        yield from _judge_presented(
            place, f"broker {host}:{port}", partial(probe_expiry, host, port, own), now
        )


def _judge_presented(
    place: str, server: str, read_expiry: Callable[[], datetime | None], now: datetime | None
) -> Iterator[Finding]:
    try:
        expiry = read_expiry()
    except CommandError:
        return  # a source that cannot be reached is another finding
    except (OSError, ValueError, ConsumerError) as error:
        seen = f"{server}: its certificate cannot be read, so it is not known when it expires ({error})"
        yield Finding("warning", place, seen, "let this machine reach the server")
        return
    if expiry is not None and (end := _describe_near_end(expiry, now or datetime.now(UTC))) is not None:
        message = f"{server}: the certificate that it presents {end}; connections are refused from then on"
        yield Finding("warning", place, message, "renew the server's certificate before")


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
