from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_UNSPECIFIED: _ClassVar[State]
    ABSENT: _ClassVar[State]
    PREPARING: _ClassVar[State]
    PREPARED: _ClassVar[State]
    REPLICATING: _ClassVar[State]
    STOPPING: _ClassVar[State]
    STOPPED: _ClassVar[State]

class Operation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPERATION_UNSPECIFIED: _ClassVar[Operation]
    PREPARE: _ClassVar[Operation]
    START: _ClassVar[Operation]
    REMOVE: _ClassVar[Operation]
    FORGET: _ClassVar[Operation]
STATE_UNSPECIFIED: State
ABSENT: State
PREPARING: State
PREPARED: State
REPLICATING: State
STOPPING: State
STOPPED: State
OPERATION_UNSPECIFIED: Operation
PREPARE: Operation
START: Operation
REMOVE: Operation
FORGET: Operation

class Header(_message.Message):
    __slots__ = ("owner_rev", "agent_epoch", "unit_epoch", "op_seq", "version")
    OWNER_REV_FIELD_NUMBER: _ClassVar[int]
    AGENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    UNIT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    OP_SEQ_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    owner_rev: int
    agent_epoch: int
    unit_epoch: int
    op_seq: int
    version: int
    def __init__(self, owner_rev: _Optional[int] = ..., agent_epoch: _Optional[int] = ..., unit_epoch: _Optional[int] = ..., op_seq: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class Mark(_message.Message):
    __slots__ = ("checkpoint_ts", "resolved_ts", "position")
    CHECKPOINT_TS_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_TS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    checkpoint_ts: int
    resolved_ts: int
    position: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, checkpoint_ts: _Optional[int] = ..., resolved_ts: _Optional[int] = ..., position: _Optional[_Iterable[int]] = ...) -> None: ...

class MarkColumns(_message.Message):
    __slots__ = ("kind", "checkpoint_ts", "resolved_ts", "position")
    KIND_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_TS_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_TS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    kind: _containers.RepeatedScalarFieldContainer[int]
    checkpoint_ts: _containers.RepeatedScalarFieldContainer[int]
    resolved_ts: _containers.RepeatedScalarFieldContainer[int]
    position: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, kind: _Optional[_Iterable[int]] = ..., checkpoint_ts: _Optional[_Iterable[int]] = ..., resolved_ts: _Optional[_Iterable[int]] = ..., position: _Optional[_Iterable[int]] = ...) -> None: ...

class StatusError(_message.Message):
    __slots__ = ("index", "text")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    index: int
    text: str
    def __init__(self, index: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class StatusColumns(_message.Message):
    __slots__ = ("unit", "epoch", "state", "rows_per_s", "marks", "errors")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ROWS_PER_S_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    unit: _containers.RepeatedScalarFieldContainer[str]
    epoch: _containers.RepeatedScalarFieldContainer[int]
    state: _containers.RepeatedScalarFieldContainer[State]
    rows_per_s: _containers.RepeatedScalarFieldContainer[int]
    marks: MarkColumns
    errors: _containers.RepeatedCompositeFieldContainer[StatusError]
    def __init__(self, unit: _Optional[_Iterable[str]] = ..., epoch: _Optional[_Iterable[int]] = ..., state: _Optional[_Iterable[_Union[State, str]]] = ..., rows_per_s: _Optional[_Iterable[int]] = ..., marks: _Optional[_Union[MarkColumns, _Mapping]] = ..., errors: _Optional[_Iterable[_Union[StatusError, _Mapping]]] = ...) -> None: ...

class UnitEpochs(_message.Message):
    __slots__ = ("unit", "epoch")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    unit: _containers.RepeatedScalarFieldContainer[str]
    epoch: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, unit: _Optional[_Iterable[str]] = ..., epoch: _Optional[_Iterable[int]] = ...) -> None: ...

class Opening(_message.Message):
    __slots__ = ("instance", "version")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    instance: str
    version: int
    def __init__(self, instance: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("incarnation",)
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    def __init__(self, incarnation: _Optional[str] = ...) -> None: ...

class Sync(_message.Message):
    __slots__ = ("sent", "stopping", "running", "adding", "removing")
    SENT_FIELD_NUMBER: _ClassVar[int]
    STOPPING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    ADDING_FIELD_NUMBER: _ClassVar[int]
    REMOVING_FIELD_NUMBER: _ClassVar[int]
    sent: float
    stopping: bool
    running: StatusColumns
    adding: StatusColumns
    removing: StatusColumns
    def __init__(self, sent: _Optional[float] = ..., stopping: _Optional[bool] = ..., running: _Optional[_Union[StatusColumns, _Mapping]] = ..., adding: _Optional[_Union[StatusColumns, _Mapping]] = ..., removing: _Optional[_Union[StatusColumns, _Mapping]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("sent", "stopping", "statuses")
    SENT_FIELD_NUMBER: _ClassVar[int]
    STOPPING_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    sent: float
    stopping: bool
    statuses: StatusColumns
    def __init__(self, sent: _Optional[float] = ..., stopping: _Optional[bool] = ..., statuses: _Optional[_Union[StatusColumns, _Mapping]] = ...) -> None: ...

class DispatchResponse(_message.Message):
    __slots__ = ("answers", "operation", "status")
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    answers: int
    operation: Operation
    status: StatusColumns
    def __init__(self, answers: _Optional[int] = ..., operation: _Optional[_Union[Operation, str]] = ..., status: _Optional[_Union[StatusColumns, _Mapping]] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("units", "marks")
    UNITS_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    units: UnitEpochs
    marks: MarkColumns
    def __init__(self, units: _Optional[_Union[UnitEpochs, _Mapping]] = ..., marks: _Optional[_Union[MarkColumns, _Mapping]] = ...) -> None: ...

class Rejected(_message.Message):
    __slots__ = ("known_rev",)
    KNOWN_REV_FIELD_NUMBER: _ClassVar[int]
    known_rev: int
    def __init__(self, known_rev: _Optional[int] = ...) -> None: ...

class AgentMessages(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[AgentMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[AgentMessage, _Mapping]]] = ...) -> None: ...

class AgentMessage(_message.Message):
    __slots__ = ("header", "agent", "opening", "hello", "sync", "heartbeat", "dispatch_response", "checkpoint", "rejected", "several")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    OPENING_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    SEVERAL_FIELD_NUMBER: _ClassVar[int]
    header: Header
    agent: str
    opening: Opening
    hello: Hello
    sync: Sync
    heartbeat: Heartbeat
    dispatch_response: DispatchResponse
    checkpoint: Checkpoint
    rejected: Rejected
    several: AgentMessages
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., agent: _Optional[str] = ..., opening: _Optional[_Union[Opening, _Mapping]] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., sync: _Optional[_Union[Sync, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., dispatch_response: _Optional[_Union[DispatchResponse, _Mapping]] = ..., checkpoint: _Optional[_Union[Checkpoint, _Mapping]] = ..., rejected: _Optional[_Union[Rejected, _Mapping]] = ..., several: _Optional[_Union[AgentMessages, _Mapping]] = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ("owner_rev",)
    OWNER_REV_FIELD_NUMBER: _ClassVar[int]
    owner_rev: int
    def __init__(self, owner_rev: _Optional[int] = ...) -> None: ...

class NotLeader(_message.Message):
    __slots__ = ("known_rev", "address")
    KNOWN_REV_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    known_rev: int
    address: str
    def __init__(self, known_rev: _Optional[int] = ..., address: _Optional[str] = ...) -> None: ...

class Announce(_message.Message):
    __slots__ = ("owner", "incarnation", "interval", "lease")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    owner: str
    incarnation: str
    interval: float
    lease: float
    def __init__(self, owner: _Optional[str] = ..., incarnation: _Optional[str] = ..., interval: _Optional[float] = ..., lease: _Optional[float] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("echo", "lease", "interval", "granted", "draining")
    ECHO_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    echo: float
    lease: float
    interval: float
    granted: UnitEpochs
    draining: bool
    def __init__(self, echo: _Optional[float] = ..., lease: _Optional[float] = ..., interval: _Optional[float] = ..., granted: _Optional[_Union[UnitEpochs, _Mapping]] = ..., draining: _Optional[bool] = ...) -> None: ...

class Dispatch(_message.Message):
    __slots__ = ("unit", "operation", "mark", "echo", "lease")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    ECHO_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    unit: str
    operation: Operation
    mark: Mark
    echo: float
    lease: float
    def __init__(self, unit: _Optional[str] = ..., operation: _Optional[_Union[Operation, str]] = ..., mark: _Optional[_Union[Mark, _Mapping]] = ..., echo: _Optional[float] = ..., lease: _Optional[float] = ...) -> None: ...

class Superseded(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OwnerMessages(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[OwnerMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[OwnerMessage, _Mapping]]] = ...) -> None: ...

class OwnerMessage(_message.Message):
    __slots__ = ("header", "opened", "not_leader", "announce", "heartbeat_response", "dispatch", "superseded", "several")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    NOT_LEADER_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_FIELD_NUMBER: _ClassVar[int]
    SUPERSEDED_FIELD_NUMBER: _ClassVar[int]
    SEVERAL_FIELD_NUMBER: _ClassVar[int]
    header: Header
    opened: Opened
    not_leader: NotLeader
    announce: Announce
    heartbeat_response: HeartbeatResponse
    dispatch: Dispatch
    superseded: Superseded
    several: OwnerMessages
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., opened: _Optional[_Union[Opened, _Mapping]] = ..., not_leader: _Optional[_Union[NotLeader, _Mapping]] = ..., announce: _Optional[_Union[Announce, _Mapping]] = ..., heartbeat_response: _Optional[_Union[HeartbeatResponse, _Mapping]] = ..., dispatch: _Optional[_Union[Dispatch, _Mapping]] = ..., superseded: _Optional[_Union[Superseded, _Mapping]] = ..., several: _Optional[_Union[OwnerMessages, _Mapping]] = ...) -> None: ...

class AskLeaderRequest(_message.Message):
    __slots__ = ("known_rev",)
    KNOWN_REV_FIELD_NUMBER: _ClassVar[int]
    known_rev: int
    def __init__(self, known_rev: _Optional[int] = ...) -> None: ...

class LeaderInfo(_message.Message):
    __slots__ = ("rev", "address", "rest", "mine")
    REV_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    REST_FIELD_NUMBER: _ClassVar[int]
    MINE_FIELD_NUMBER: _ClassVar[int]
    rev: int
    address: str
    rest: str
    mine: bool
    def __init__(self, rev: _Optional[int] = ..., address: _Optional[str] = ..., rest: _Optional[str] = ..., mine: _Optional[bool] = ...) -> None: ...
