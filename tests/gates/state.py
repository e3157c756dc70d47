"""Gate (a): fields of classes that hold state.

A class *holds state* if one of its fields is written after its construction. Values (frozen dataclasses,
NamedTuples, enums), exceptions and protocols do not; configuration, wire and REST models are exempt by
their module (EXEMPT).

A breach is one of these:

- *outside*: a field is written by code that is not of its class: `other.field = …`.
- *unused*: an Optional or bool field is never set, or never read, or is read only by functions that set
  it, and there are several of these: no state in which it is set is read at another place. (One function
  alone may keep what it needs for its next call.)
- *assumed*: a function asserts that an Optional field is set. It may run in some states only, and the type
  does not show in which.
- *paired*: a function empties an Optional or bool field (None, False) together with a change of the phase,
  or with another such field. They are set in the same states, and belong into one record that only these
  states have.

A *phase* is a field whose type is an enum, a Literal, or a union of classes of the product. The class of
`other` is found by annotations, constructor calls, and fields' names that one class alone has
(tests/gates/classes.py).
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from tests.gates.annotations import is_empty, is_optional
from tests.gates.classes import Class, ClassModel, Use, declared_fields
from tests.gates.sources import Source

EXEMPT = (
    "schemas/config/",
    "schemas/wire/",
    "coordinator/rest/models.py",
    "coordinator/core/messages.py",
    "coordinator/core/records.py",
)
"""Modules whose fields a contract fixes: configuration, wire, REST. (Models of `status` are frozen, and no
state.)"""
MOST_FIELDS = 12
SHAPED = (
    "LeaderState",
    "PipelineShell",
    "HeartbeatServer",
    "HeartbeatClient",
    "AgentState",
    "CaptureLoop",
)
"""Classes that may have MOST_FIELDS fields. One that is renamed is renamed here, too."""
RULES = ("outside", "unused", "assumed", "paired")
_BUILDERS = {"__init__", "__post_init__", "__new__"}


def find_breaches(sources: Iterable[Source]) -> set[str]:
    """Return "rule path: Class.field" of every breach."""
    model = ClassModel([each for each in sources if not each.path.startswith(EXEMPT)])
    written = {id(each.owner) for each in model.uses if each.kind == "write"}
    holders = [each for each in model.all_classes() if id(each) in written and not each.is_value]
    held = {id(each) for each in holders}
    uses = [each for each in model.uses if id(each.owner) in held]
    return {
        f"{rule} {owner.path}: {owner.name}.{field}"
        for rule, owner, field in (
            *_find_outside(model, uses),
            *_find_assumed(uses),
            *_find_paired(model, uses),
            *_find_unused(holders, uses),
        )
    }


def measure_shapes(sources: Iterable[Source]) -> dict[str, int]:
    """Return how many fields each class of SHAPED has."""
    counts = {line.rpartition(" ")[2]: count for line, count in count_fields(sources).items()}
    for name in SHAPED:
        if name not in counts:
            raise LookupError(
                f"no class {name}: if it has another name now, put that into SHAPED of {__name__}"
            )
    return {name: counts[name] for name in SHAPED}


def count_fields(sources: Iterable[Source]) -> Counter[str]:
    """Return "path: Class" → how many fields it has, for every class."""
    return Counter(
        {
            f"{source.path}: {node.name}": len({each.name for each in declared_fields(node)})
            for source in sources
            for node in source.nodes
            if isinstance(node, ast.ClassDef)
        }
    )


_Breach = tuple[str, Class, str]


def _find_outside(model: ClassModel, uses: list[Use]) -> Iterator[_Breach]:
    for each in uses:
        inside = each.within and model.find_holder(each.within, each.field) is each.owner
        if each.kind == "write" and not inside:
            yield "outside", each.owner, each.field


def _find_assumed(uses: list[Use]) -> Iterator[_Breach]:
    for each in uses:
        if each.kind == "assert" and is_optional(each.owner.fields[each.field]):
            yield "assumed", each.owner, each.field


def _find_paired(model: ClassModel, uses: list[Use]) -> Iterator[_Breach]:
    groups: dict[tuple[str, int], list[Use]] = defaultdict(list)
    for each in uses:
        if each.kind == "write" and each.function.rpartition(".")[2] not in _BUILDERS:
            groups[each.function, id(each.owner)].append(each)
    for group in groups.values():
        owner = group[0].owner
        emptied = {each.field for each in group if is_empty(each.value) and each.field in owner.switches}
        if len(emptied) > 1 or (emptied and any(model.is_phase(owner.fields[each.field]) for each in group)):
            yield from (("paired", owner, field) for field in emptied)


def _find_unused(holders: list[Class], uses: list[Use]) -> Iterator[_Breach]:
    setters: dict[tuple[int, str], set[str]] = defaultdict(set)
    readers: dict[tuple[int, str], set[str]] = defaultdict(set)
    for each in uses:
        if each.kind in {"read", "assert"}:
            readers[id(each.owner), each.field].add(each.function)
        elif not is_empty(each.value):
            setters[id(each.owner), each.field].add(each.function)
    for owner in holders:
        for field in owner.switches:
            sets, reads = setters[id(owner), field], readers[id(owner), field]
            sets |= {"the constructor"} if any(not is_empty(each) for each in owner.initial[field]) else set()
            if not sets or not reads or (len(sets) > 1 and reads <= sets):
                yield "unused", owner, field
