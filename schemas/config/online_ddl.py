"""`sources.NAME.online_ddl`: tools that alter a table by filling a copy of it and swapping the two."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from schemas.config.base import ConfigModel
from schemas.table.online_ddl import TOOLS, ToolNames, get_tool_names, refuse_template


def _validate_template(text: str) -> str:
    why = refuse_template(text)
    if why is not None:
        raise PydanticCustomError(
            "template", "{text} is no name of a table: {why}", {"text": text, "why": why}
        )
    return text


Template = Annotated[str, AfterValidator(_validate_template)]


class OnlineDdlConfig(ConfigModel):
    """Names of the tables in which the tools make the next form of a table `t`. A bare list names tools:
    `gh-ost`, `pt-osc`. `{table}` is the table's own name, `{time}` are fourteen digits: gh-ost's are
    `_{table}_gho`, and `_{table}_ghc`, `_{table}_del`, `_{table}_{time}_del`."""

    shadow: list[Template] = Field(
        default_factory=list, description="Names of the table that takes the place of `t` in the end."
    )
    trash: list[Template] = Field(
        default_factory=list, description="Names that `t` gets then, and of what else a tool leaves."
    )
    triggered: list[Template] = Field(
        default_factory=list,
        description="Those of `shadow` that count only where triggers of `t` keep the "
        "table up to date, as pt-osc's do.",
    )

    @model_validator(mode="before")
    @classmethod
    def _expand_bare_list(cls, value: object) -> object:
        tools = [value] if isinstance(value, str) else value
        if not isinstance(tools, list):
            return value
        unknown = [each for each in tools if each not in TOOLS]
        if unknown:
            known = {"seen": ", ".join(map(str, unknown)), "known": " and ".join(TOOLS)}
            raise PydanticCustomError("tool", "no tool is called {seen}: {known} are known", known)
        names = get_tool_names(tools)
        return {kind: list(getattr(names, kind)) for kind in ("shadow", "trash", "triggered")}

    @property
    def names(self) -> ToolNames:
        return ToolNames(tuple(self.shadow), tuple(self.trash), tuple(self.triggered))


def enable_all_tools() -> OnlineDdlConfig:
    return OnlineDdlConfig.model_validate(list(TOOLS))
