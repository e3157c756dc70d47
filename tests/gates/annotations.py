"""Types as annotations: what an expression of the tree makes known about them."""

from __future__ import annotations

import ast

Annotation = ast.expr | None


def is_optional(kind: Annotation) -> bool:
    match kind:
        case ast.BinOp(left, _, right):
            return is_optional(left) or is_optional(right)
        case ast.Constant(str(text)):
            return text.endswith("| None")
        case ast.Constant(None):
            return True
    return False


def is_empty(value: ast.expr | None) -> bool:
    """Whether an expression is None or False as it is written."""
    return isinstance(value, ast.Constant) and (value.value is None or value.value is False)


def is_named(node: ast.expr | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def get_item(kind: Annotation) -> Annotation:
    """Return what a container holds: `dict[K, V]` and `list[V]` hold V."""
    match kind:
        case ast.Subscript(_, ast.Tuple([_, item])) | ast.Subscript(_, item):
            return item
    return None


def infer_plain(value: ast.expr | None, given: dict[str, Annotation]) -> Annotation:
    match value:
        case ast.Name(name):
            return given.get(name)
        case ast.Call(ast.Name(name)):
            return ast.Name(name)
        case ast.Constant(None):
            return value
        case ast.Constant(bool()):
            return ast.Name("bool")
    return None
