"""Classes, their fields, and every use of a field by attribute; types are found by annotations."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from tests.gates.annotations import Annotation, get_item, infer_plain, is_empty, is_named, is_optional
from tests.gates.sources import Function, Scope, Source

_VALUES = {"NamedTuple", "Protocol", "Exception", "ValueError", "BaseModel"}
"""Bases of classes that hold no state."""
_BUILDERS = {"__init__", "__post_init__", "__new__"}
_WRITES = ast.Assign | ast.AnnAssign | ast.AugAssign


class Field(NamedTuple):
    """A field as it is declared. `value`: its default, or what a constructor gives it."""

    name: str
    annotation: Annotation
    value: ast.expr | None


@dataclass(eq=False)
class Class:
    """A class: its fields with their types, and all that they may have at first."""

    path: str
    name: str
    bases: tuple[str, ...]
    is_value: bool
    is_enum: bool
    has_constructor: bool
    """Whether it has an `__init__` of its own: its arguments are not the fields."""
    fields: dict[str, Annotation] = field(default_factory=dict)
    initial: dict[str, list[ast.expr]] = field(default_factory=lambda: defaultdict(list))

    @cached_property
    def switches(self) -> set[str]:
        """The fields that are Optional or bool."""
        return {name for name, kind in self.fields.items() if is_optional(kind) or is_named(kind, "bool")}


class _Itself(ast.Name):
    """The type of a method's first argument."""

    def __init__(self, found: Class) -> None:
        super().__init__(found.name)
        self.found = found


class Use(NamedTuple):
    """One use of a field. `kind`: write, read, assert, or "maybe" for what may set it: a constructor's
    call, a write to one of several classes. `value`: what is written; None: not known. `function`: with
    its path; `within`: the class whose method it is."""

    owner: Class
    field: str
    kind: str
    value: ast.expr | None
    function: str
    within: Class | None


class ClassModel:
    """All classes of some sources, and every use of their fields by attribute."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self._by_name: dict[str, list[Class]] = defaultdict(list)
        self._by_field: dict[str, list[Class]] = defaultdict(list)
        known: list[tuple[Source, ast.ClassDef, Class]] = []
        sources = list(sources)
        for source in sources:
            for node in source.nodes:
                if isinstance(node, ast.ClassDef):
                    known.append((source, node, self._add(source, node)))
        self._assign_fields()
        of_node = {id(node): found for _, node, found in known}
        self.uses = [
            use
            for source in sources
            for scope in source.functions
            if not scope.is_nested
            for use in self._find_uses(source, scope, of_node.get(id(scope.owner)))
        ]

    def _add(self, source: Source, node: ast.ClassDef) -> Class:
        bases = tuple(ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases)
        frozen = any("frozen=True" in ast.unparse(each) for each in [*node.decorator_list, *node.keywords])
        enum = any(base.endswith("Enum") for base in bases)
        found = Class(
            source.path,
            node.name,
            bases,
            is_value=frozen or enum or not _VALUES.isdisjoint(bases),
            is_enum=enum,
            has_constructor=any(isinstance(each, Function) and each.name == "__init__" for each in node.body),
        )
        for name, annotation, value in declared_fields(node):
            if found.fields.get(name) is None:
                found.fields[name] = annotation
            if value is not None:
                found.initial[name].append(value)
        self._by_name[node.name].append(found)
        return found

    def _assign_fields(self) -> None:
        """Leave a field that a base has to the base, and note who has a field of a name."""
        for each in self.all_classes():
            bases = [base for name in each.bases if (base := self._get(name)) and base is not each]
            for name in [*each.fields]:
                if any(self.find_holder(base, name) for base in bases):
                    del each.fields[name]
                elif not each.is_value:
                    self._by_field[name].append(each)

    def all_classes(self) -> Iterator[Class]:
        for group in self._by_name.values():
            yield from group

    def find_holder(self, start: Class, name: str) -> Class | None:
        """Return the class among `start` and its bases that declares a field."""
        if name in start.fields:
            return start
        bases = (self._get(base) for base in start.bases)
        return next((held for base in bases if base and (held := self.find_holder(base, name))), None)

    def is_phase(self, kind: Annotation) -> bool:
        """Whether an annotation is an enum, a Literal, or a union of classes."""
        match kind:
            case ast.Name(name):
                return any(each.is_enum for each in self._by_name.get(name, ()))
            case ast.Subscript(value):
                return ast.unparse(value).endswith("Literal")
            case ast.BinOp(left, _, right):
                sides = [each for each in (left, right) if not is_empty(each)]
                return all(self._find_class(each) or self.is_phase(each) for each in sides) and len(sides) > 1
        return False

    def _get(self, name: str) -> Class | None:
        found = self._by_name.get(name, [])
        return found[0] if len(found) == 1 else None

    def _find_class(self, kind: Annotation) -> Class | None:
        """Return the one class that an annotation names, beside None."""
        match kind:
            case _Itself():
                return kind.found
            case ast.Constant(str(name)):
                return self._get(name.partition(" |")[0])
            case ast.BinOp(left, _, right):
                sides = [each for each in (self._find_class(left), self._find_class(right)) if each]
                return sides[0] if len(sides) == 1 else None
            case ast.Name(name):
                return self._get(name)
        return None

    def _infer(self, node: ast.expr, local: dict[str, Annotation]) -> Annotation:
        """Return the annotation of what an expression gives, as far as it is known."""
        match node:
            case ast.Name(name):
                return local.get(name)
            case ast.Attribute(value, name):
                owner = self._find_class(self._infer(value, local))
                held = owner and self.find_holder(owner, name)
                return held.fields[name] if held else None
            case ast.Call(ast.Name(name)) if self._get(name):
                return ast.Name(name)
            case ast.Call(ast.Attribute(value, "get" | "pop" | "setdefault")) | ast.Subscript(value):
                return get_item(self._infer(value, local))
        return None

    def _find_uses(self, source: Source, scope: Scope, within: Class | None) -> Iterator[Use]:
        local = self._infer_locals(scope, within)
        writes = [node for node in scope.nodes if isinstance(node, _WRITES)]
        values = {id(target): value for node in writes for target, value, _ in find_targets(node)}
        asserts = [node.test for node in scope.nodes if isinstance(node, ast.Assert)]
        asserted = {id(each) for test in asserts for each in _find_asserted(test)}
        where = f"{source.path} {within.name + '.' if within else ''}{scope.node.name}"
        for node in scope.nodes:
            if isinstance(node, ast.Attribute):
                owners = self._find_owners(node, local)
                kind = "read" if isinstance(node.ctx, ast.Load) else "write" if len(owners) == 1 else "maybe"
                kind = "assert" if id(node) in asserted else kind
                yield from (
                    Use(each, node.attr, kind, values.get(id(node)), where, within) for each in owners
                )
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                for owner in self._by_name.get(node.func.id, ()):
                    for name, value in _list_arguments(owner, node):
                        yield Use(owner, name, "maybe", value, where, within)

    def _infer_locals(self, scope: Scope, within: Class | None) -> dict[str, Annotation]:
        """Return local names with their types, as far as these are known. (The first argument of a method
        is one, too.)"""
        local: dict[str, Annotation] = {}
        for node in scope.nodes:
            if isinstance(node, ast.arg):
                local[node.arg] = node.annotation
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                local[node.target.id] = node.annotation
        if within and scope.node.args.args:
            local[scope.node.args.args[0].arg] = _Itself(within)
        for node in scope.nodes:
            for name, value, is_item in _find_bindings(node):
                found = self._infer(value, local)
                local[name] = local.get(name) or (get_item(found) if is_item else found)
        return local

    def _find_owners(self, node: ast.Attribute, local: dict[str, Annotation]) -> list[Class]:
        """Return the class whose field an attribute is; where its receiver is not known, all that have
        such a field."""
        known = self._find_class(self._infer(node.value, local))
        if known is None:
            return self._by_field.get(node.attr, [])
        held = self.find_holder(known, node.attr)
        return [held] if held else []


def declared_fields(node: ast.ClassDef) -> Iterator[Field]:
    """Yield the fields of a class, some of them several times: those of its body, and what its methods
    write to their first argument."""
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            if "ClassVar" not in ast.unparse(each.annotation):
                yield Field(each.target.id, each.annotation, each.value)
        elif isinstance(each, Function) and each.args.args:
            given = {arg.arg: arg.annotation for arg in [*each.args.args, *each.args.kwonlyargs]}
            me = each.args.args[0].arg
            for part in (node for node in ast.walk(each) if isinstance(node, _WRITES)):
                for target, value, annotation in find_targets(part):
                    if isinstance(target, ast.Attribute) and is_named(target.value, me):
                        first = value if each.name in _BUILDERS else None
                        yield Field(target.attr, annotation or infer_plain(value, given), first)


def find_targets(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None, Annotation]]:
    """Yield each target that a statement assigns to, its value (None: unknown), and its annotation."""
    if isinstance(node, ast.AnnAssign):
        yield node.target, node.value, node.annotation
    elif isinstance(node, ast.AugAssign):
        yield node.target, None, None
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if not isinstance(target, ast.Tuple):
                yield target, node.value, None
            elif isinstance(node.value, ast.Tuple) and len(node.value.elts) == len(target.elts):
                yield from (
                    (one, value, None) for one, value in zip(target.elts, node.value.elts, strict=True)
                )
            else:
                yield from ((one, None, None) for one in target.elts)


def _list_arguments(owner: Class, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Yield the fields that a constructor's call gives, with their values."""
    if owner.has_constructor:
        return
    yield from zip(owner.fields, call.args, strict=False)
    yield from ((each.arg, each.value) for each in call.keywords if each.arg in owner.fields)


def _find_bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr, bool]]:
    """Yield local names, what they are bound to, and whether to an item of it."""
    match node:
        case ast.Assign([ast.Name(name)], value) | ast.NamedExpr(ast.Name(name), value):
            yield name, value, False
        case ast.For(ast.Name(name), value) | ast.comprehension(ast.Name(name), value):
            match value:
                case ast.Call(ast.Attribute(held, "values")):
                    yield name, held, True
                case _:
                    yield name, value, True


def _find_asserted(test: ast.expr) -> Iterator[ast.expr]:
    match test:
        case ast.BoolOp(ast.And(), values):
            for each in values:
                yield from _find_asserted(each)
        case ast.Compare(left, [ast.IsNot()], [ast.Constant(None)]):
            yield left
        case ast.Attribute():
            yield test
