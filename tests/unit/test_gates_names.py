"""The gate of names finds what is planted."""

from __future__ import annotations

import pytest

from tests.gates import names
from tests.gates.sources import Source


def judge(text: str) -> dict[str, int]:
    return {
        key.partition(": ")[2]: count for key, count in names.measure_verbs([Source("a/b.py", text)]).items()
    }


@pytest.mark.parametrize(
    "name",
    [
        "load_table",
        "_load_table",
        "is_late",
        "accepts_kind",
        "carries_rows",
        "to_text",
        "from_row",
        "shut_down_server",
    ],
)
def test_verb_and_object_predicates_and_conversions_pass(name: str) -> None:
    assert judge(f"def {name}(): pass") == {}


@pytest.mark.parametrize(
    "name", ["table", "table_name", "said", "place_of_topic", "lost_rows", "not_late", "up_to_row"]
)
def test_names_without_a_verb_are_found(name: str) -> None:
    assert judge(f"def {name}(): pass") == {"no verb": 1}
    assert judge(f"class Store:\n    def {name}(self): pass") == {"no verb": 1}


@pytest.mark.parametrize("name", ["load", "shut_down", "carry_out"])
def test_verbs_alone_need_a_class_that_names_the_object(name: str) -> None:
    assert judge(f"def {name}(): pass") == {"no object": 1}
    assert judge(f"class Store:\n    def {name}(self): pass") == {}
    assert judge(f"def load_table():\n    def {name}(): pass") == {}


def test_entry_points_need_no_verb() -> None:
    assert judge("def main(): pass") == {}
    assert judge("def main_loop(): pass") == {"no verb": 1}


def test_properties_dunders_published_names_and_overrides_of_libraries_do_not_count() -> None:
    assert judge("class Store:\n    @property\n    def size(self): pass\n    def __len__(self): pass") == {}
    assert judge("@main.command()\ndef units(): pass") == {}
    assert judge("@router.get('/units')\ndef units(): pass\n@router.post('/units')\ndef unit(): pass") == {}
    thread = "from threading import Thread\nclass Reader(Thread):\n    def native_id(self): pass\n"
    assert judge(thread) == {}
    assert judge(thread + "    def rows(self): pass\n") == {"no verb": 1}


def test_names_of_one_word_are_counted() -> None:
    methods = "    def _load(self): pass\n    @property\n    def size(self): pass"
    text = f"def load(): pass\ndef load_table(): pass\nclass A:\n{methods}"
    assert names.measure_one_word([Source("a.py", text)]) == (2, 3)


def meanings(**modules: str) -> list[str]:
    sources = [Source(f"{name.replace('__', '/')}.py", text) for name, text in modules.items()]
    return list(names.find_several_meanings(sources))


@pytest.mark.parametrize(
    "text", ["def load(): pass", "class load: pass", "load = tuple[str, str]", "load: int = 1"]
)
def test_a_public_name_of_two_modules_is_found(text: str) -> None:
    assert meanings(a="def load(): pass", b=text) == ["load"]
    assert meanings(a="def _load(): pass", b=text.replace("load", "_load")) == []


def test_loggers_type_variables_and_names_with_a_reason_may_be_repeated() -> None:
    text = "log = get_logger()\nT = TypeVar('T')\ndef main(): pass"
    assert meanings(a=text, b=text) == []


def test_a_part_that_each_dialect_has_is_one_name() -> None:
    text = "SYNTAX = 1"
    dialects = {f"consumer__targets__{name}__sql": text for name in ("mysql", "postgres")}
    assert meanings(**dialects) == []
    assert meanings(**dialects, a=text) == ["SYNTAX"]


def test_few_names_are_excused_and_each_with_a_reason() -> None:
    assert len(names.REASONS) <= names.MOST_REASONS
    assert all(names.REASONS.values())


def test_each_verb_is_listed_once_in_its_base_form() -> None:
    verbs = names.list_verbs()
    assert len(verbs) == len(set(verbs))
    assert not set(verbs) & set(map(names.add_s, verbs))


@pytest.mark.parametrize(
    ("verb", "third"), [("load", "loads"), ("carry", "carries"), ("pass", "passes"), ("play", "plays")]
)
def test_the_third_person_of_a_verb(verb: str, third: str) -> None:
    assert names.add_s(verb) == third
