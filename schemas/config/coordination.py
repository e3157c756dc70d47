"""The section `coordination`: where coordinators listen, who may connect to them, how fast a loss is
noticed.

All of it is optional: the defaults make coordinators and agents on one machine work.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr

from schemas.config.addresses import join_address, split_address
from schemas.config.base import ConfigModel, Text

METRICS_PER_TOPIC = 1000
"""The default of `coordination.metrics_per_topic`."""


class CoordinationTls(ConfigModel):
    """TLS between coordinators and agents, and of the REST interface. One authority signs all
    certificates."""

    ca: Path = Field(description="File with the certificates to trust.")
    cert: Path = Field(
        description="File with the certificate of this machine's coordinator or agent. An agent's name must "
        "be its common name or one of its alternative names."
    )
    key: Path = Field(description="File with its private key.")
    mutual: bool = Field(
        default=True,
        description="Whether agents must also present a certificate. REST asks for "
        "`token`, never for a certificate.",
    )


class CoordinationConfig(ConfigModel):
    """Placement of units by `rowlock coordinator` and `rowlock agent`. All machines can use the same file;
    settings that differ can be given on the command line."""

    coordinators: list[Text] = Field(
        default=["127.0.0.1:7701"],
        min_length=1,
        description="Addresses at which agents find the coordinators: `host:port` of each one's `listen`.",
    )
    listen: Text = Field(
        default="127.0.0.1:7701",
        description="Address on which the coordinator of this machine listens for agents: "
        "`host:port`; port 0 takes a free one.",
    )
    rest: Text = Field(
        default="127.0.0.1:7780",
        description="Address on which that coordinator serves REST, and where `rowlock units`, `agents`, "
        "… try it first: `host:port`.",
    )
    advertise: Text | None = Field(
        default=None,
        description="Host name or address under which others reach this coordinator "
        "(default: those it listens on).",
    )
    token: SecretStr | None = Field(
        default=None,
        description="Bearer token that REST requires, and that authenticates agents if `tls` is not mutual: "
        "`${NAME}` from the environment, or `token_file: F` instead. Required unless `rest` and `listen` are "
        "on loopback; for `listen`, mutual TLS is sufficient as well.",
    )
    tls: CoordinationTls | None = Field(
        default=None,
        description="TLS between coordinators and agents, and of REST (default: none). Required "
        "unless `listen` is on loopback.",
    )
    agent_metrics: Text | None = Field(
        default=None,
        description="Address on which the agent of this machine serves its metrics for Prometheus: "
        "`host:port` (default: it serves none). `token` and `tls` apply as they do to `rest`, where the "
        "coordinator serves its own.",
    )
    metrics_per_topic: int = Field(
        default=METRICS_PER_TOPIC,
        ge=0,
        le=1_000_000,
        description="Maximum number of topics for which a metric has a value each; if there are more, "
        "their values are added up or left out.",
    )
    lease_s: float = Field(
        default=10.0,
        ge=1,
        le=600,
        description="Seconds after which an agent that receives no message of the leader stops writing, and "
        "its units move to other agents.",
    )
    interval_s: float = Field(
        default=1.0, ge=0.1, le=60, description="Seconds between heartbeats; at most a third of `lease_s`."
    )
    balance_every_s: float = Field(
        default=60.0, ge=1, le=86400, description="Seconds between checks of the balance of the load."
    )
    prepare_timeout_s: float = Field(
        default=60.0,
        ge=1,
        le=86400,
        description="Seconds that the preparation of a unit on an agent may take without progress; then it "
        "is abandoned there. The next time the unit has twice as long, up to eight times.",
    )
    prepare_most_s: float = Field(
        default=3600.0,
        ge=1,
        le=864000,
        description="Maximum seconds of a preparation, whatever its progress.",
    )
    retry_first_s: float = Field(
        default=1.0,
        ge=0.1,
        le=3600,
        description="Seconds before a unit that failed is tried again; doubled each time.",
    )
    retry_most_s: float = Field(default=60.0, ge=0.1, le=86400, description="The most of these seconds.")
    agent_failures: int = Field(
        default=3,
        ge=1,
        le=10_000,
        description="Failed preparations in a row on an agent, after which it is given no units for a while.",
    )
    agent_retry_first_s: float = Field(
        default=10.0,
        ge=0.1,
        le=86400,
        description="Seconds before such an agent is tried again, with one unit; doubled each time.",
    )
    agent_retry_most_s: float = Field(
        default=600.0, ge=0.1, le=86400, description="The most of these seconds."
    )
    agents: int = Field(default=1000, ge=1, le=100_000, description="Maximum number of agents.")
    concurrent_moves: int = Field(
        default=10, ge=1, le=100_000, description="Maximum number of simultaneous moves of units."
    )
    moves_per_agent: int = Field(
        default=5, ge=1, le=100_000, description="Maximum number of simultaneous moves to one agent."
    )
    burst: int = Field(
        default=2000,
        ge=1,
        le=1_000_000,
        description="Maximum number of units without an agent that one plan places (one plan each 0.1 s).",
    )
    burst_per_agent: int = Field(
        default=20,
        ge=1,
        le=1_000_000,
        description="Maximum number of units that one plan places on one agent.",
    )
    apart: dict[str, str] = Field(
        default_factory=dict,
        description="Source → label: units of sources with the same label are kept on different "
        "agents, if there are enough.",
    )

    @property
    def advertised_rest(self) -> str:
        """The address under which others reach the coordinator's REST interface."""
        return self.get_reachable_address(self.rest)

    def get_reachable_address(self, address: str) -> str:
        """Return the address under which others reach a server that listens on `address` here."""
        host, port = split_address(address)
        return join_address(self.advertise or host, port)
