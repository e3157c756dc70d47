"""Puts a mutant into a process: exchanges the code of functions, or the source of a module to import."""

from __future__ import annotations

import functools
import gc
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from tests.mutants.generated.places import Function


class NoSuchFunctionError(Exception):
    """No function object has the code that is to be exchanged, or it cannot have the new code."""


class LiveFunctions:
    """The function objects of the product in this process, with those that only decorators hold."""

    def __init__(self, root: Path, packages: Sequence[str]) -> None:
        self._root = root
        self._found: dict[Function, list[FunctionType]] = defaultdict(list)
        self._caches: list[functools._lru_cache_wrapper[object]] = []
        heads = tuple(f"{root}/{package}/" for package in packages)
        for thing in gc.get_objects():
            if isinstance(thing, FunctionType) and thing.__code__.co_filename.startswith(heads):
                self._found[self._name(thing.__code__)].append(thing)
            elif isinstance(thing, functools._lru_cache_wrapper) and self._is_ours(thing):
                self._caches.append(thing)

    def _is_ours(self, cache: functools._lru_cache_wrapper[object]) -> bool:
        code = getattr(cache.__wrapped__, "__code__", None)
        return isinstance(code, CodeType) and code.co_filename.startswith(f"{self._root}/")

    def _name(self, code: CodeType) -> Function:
        file = code.co_filename.removeprefix(f"{self._root}/")
        return Function(file, code.co_qualname, code.co_firstlineno)

    def exchange(self, function: Function, source: str) -> None:
        """Give `function` and all within it their code of the mutated source, and empty all caches.

        Raises NoSuchFunctionError if there is no such function, and SyntaxError if the source is none.
        """
        module = compile(source, str(self._root / function.file), "exec", dont_inherit=True)
        new = next((each for each in _walk(module) if self._name(each) == function), None)
        if new is None or not self._found.get(function):
            raise NoSuchFunctionError(function)
        for code in _walk(new):
            for live in self._found.get(self._name(code), ()):
                try:
                    live.__code__ = code
                except ValueError as error:
                    raise NoSuchFunctionError(function) from error
        for cache in self._caches:
            cache.cache_clear()


def _walk(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _walk(constant)


class MutatedImport(MetaPathFinder):
    """Finds one module of the product, with another source than its file has."""

    def __init__(self, root: Path, file: str, source: str) -> None:
        self._path = str(root / file)
        self._module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self._source = source

    def install(self) -> None:
        """Come before all other finders."""
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's spec; None for all other modules."""
        if fullname != self._module:
            return None
        return spec_from_file_location(
            fullname, self._path, loader=_Loader(fullname, self._path, self._source)
        )


class _Loader(SourceFileLoader):
    """Loads the given source instead of the file's."""

    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._mutated = source

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the mutated source; it is not cached."""
        code: CodeType = compile(self._mutated, self.path, "exec", dont_inherit=True)
        return code
