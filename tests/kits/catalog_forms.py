"""The forms of the catalogs of the newest servers."""

from __future__ import annotations

from schemas.io.catalog_form import build_catalog_form

MYSQL = build_catalog_form(
    "9.7.4", {"columns.srs_id", "columns.generation_expression", "statistics.expression"}
)
MARIADB = build_catalog_form(
    "11.4.5-MariaDB",
    {
        "columns.generation_expression",
        "collation_character_set_applicability.full_collation_name",
        "collation_character_set_applicability.id",
    },
)
