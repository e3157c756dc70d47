"""The page "What stops what, and what does not" is what the code decides, and names the origin of every
cause."""

from __future__ import annotations

from pathlib import Path

from producer.statements.actions import ACTIONS
from producer.stops import CAUSES
from tools.docs.effects import logged, page, statements

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "what-stops-what.md"


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text() == page(), (
        "run: python -m tools.docs.effects > docs/explanation/what-stops-what.md"
    )


def test_every_known_action_and_cause_is_on_it() -> None:
    text = PAGE.read_text()
    for action in ACTIONS:
        assert not action.example or action.example.format(other="u") in text
    assert all(f"`{cause}`" in text for cause in CAUSES)


def test_it_holds_both_what_stops_and_what_does_not() -> None:
    for rows in (list(statements()), list(logged())):
        assert {effect.stops for effect in rows} > {"nothing"}
