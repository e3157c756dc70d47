"""The base of all models of the configuration: strict keys, immutable values, no input in error messages."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Port = Annotated[int, Field(ge=1, le=65535)]
Text = Annotated[str, Field(min_length=1)]


class ConfigModel(BaseModel):
    """A mapping of the file: unknown keys are refused, values do not change after loading."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        populate_by_name=True,
        coerce_numbers_to_str=True,
    )
