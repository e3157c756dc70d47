"""The checks of how and where a unit's records are written: what must not change while records exist,
and since when values have their form. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec.structs import replace

from consumer.errors import TransientError, UnitStoppedError
from consumer.ordering.model import ApplyUnit, TargetTopic
from consumer.targets.kafka.formats.key_forms import UNSIGNED, ValueForm
from consumer.targets.kafka.store.state import RecordScheme
from consumer.targets.kafka.topics import TopicIdentity
from schemas.findings import START_OVER, format_copy_remedy
from schemas.problems import Problem

ReadTopicEnds = Callable[[], Mapping[int, int]]
"""Returns partition → the topic's end offset."""


def require_one_scheme(
    unit: ApplyUnit, was: RecordScheme | None, ways: Sequence[RecordScheme]
) -> RecordScheme | None:
    """Return the scheme in which the records of a commit are written after the existing ones.

    `was`: that of the existing records; None: there are none. Raises UnitStoppedError if records would
    be written in another way than those before them, TransientError if the topic was just created
    again.
    """
    every = ways if was is None else [was, *ways]
    for before, now in pairwise(every):
        if before.topic_id and now.topic_id and before.topic_id != now.topic_id:
            raise TransientError(
                f"topic {now.topic} of the target is currently being recreated: rowlock retries"
            )
        if changes := before.list_incompatibilities(now):
            raise UnitStoppedError(
                f"{unit.topic}: records in the topic {before.topic} exist already, and rows would be "
                f"written under two keys: {'; '.join(changes)}",
                "if that comes from the configuration, set the route back, or `mask_salt`; if it is "
                f"intended, or the source's definition has changed, {START_OVER} with another topic",
            )
    return every[-1] if every else None


def explain_misplaced_records(
    written: RecordScheme | None, seen: TopicIdentity | None, topic: TargetTopic, *, anew: bool = False
) -> Problem | None:
    """Return why the written records are not in the present topic; None: they are, as far as is known.

    `written`: the unit's (None: no records); `topic`: where its table is written now; `anew`: whether
    every row is written once more, so that the topic may be another one.
    """
    if written is None or written.topic != topic.name:
        return None
    name = topic.name
    copy_remedy = (
        f"{format_copy_remedy(topic.db, topic.table)} (of a source with `events: debezium` {START_OVER})"
    )
    if seen is None:
        return Problem(
            f"topic {name} of the target was deleted, and its records are lost",
            f"find out who deleted it, then {copy_remedy}, which creates it again where "
            "`create_tables` allows it; readers that stored offsets of the old topic must start "
            "from the beginning of the new one",
        )
    if written.topic_id and seen.id and seen.id != written.topic_id:
        if anew:
            return None
        return Problem(
            f"topic {name} of the target was deleted and created again (its id was {written.topic_id} and "
            f"is {seen.id}): the records that were written to it are lost",
            f"find out who did that, then {copy_remedy}, which writes all rows to the new one; readers that "
            "kept offsets of the old one must start from its beginning",
        )
    if seen.partitions != written.partitions:
        return Problem(
            f"topic {name} of the target had {written.partitions} partitions and has {seen.partitions}: "
            "keys would change their partitions, and a row's later changes would be in another "
            "partition than its earlier ones",
            f"Kafka cannot remove partitions, so {START_OVER} with another topic",
        )
    return None


def choose_compared_scheme(
    was: RecordScheme | None, now: Sequence[RecordScheme], *, anew: bool
) -> RecordScheme | None:
    """Return the scheme that `now` is to be compared with.

    None if every row is written again to a topic that was created again: it has no older records.
    """
    recreated = was is not None and any(each.topic_id != was.topic_id for each in now)
    return None if anew and recreated and was is not None and was.topic_id else was


def add_form_ages(was: RecordScheme | None, now: RecordScheme, ends: ReadTopicEnds) -> RecordScheme:
    """Return `now` with the known ages of its values' forms.

    `was`: the scheme after the last commit; None: there are no records.
    """
    if was is None or was.values is None or now.values is None:
        return now
    known = {each.column: each for each in was.values}
    other = [each.column for each in now.values if not _does_form_continue(known.get(each.column), each)]
    found = ends() if other else {}
    since = tuple(found[each] for each in sorted(found))
    values = (
        replace(each, since=since if each.column in other else known[each.column].since)
        for each in now.values
    )
    return replace(now, values=tuple(values))


def _does_form_continue(was: ValueForm | None, now: ValueForm) -> bool:
    """Return whether values of the column are written in the same form as before.

    A column that was not written until now counts as another one, because one of its name may have
    existed long before.
    """
    if was is None or was.form not in (now.form, now.form.removesuffix(UNSIGNED)):
        return False
    return not now.labels or now.labels[: len(was.labels)] == was.labels


def add_reshape_offsets(
    was: RecordScheme | None, now: RecordScheme, at: int, *, copied: int | None = None
) -> RecordScheme:
    """Return `now` with the options of the route that changed since existing records were written.

    `was`: the scheme after the last commit; None: the table has no records. `at`: the unit's offset
    after that commit. `copied`: the offset at which a copy of the whole table began that ends with this
    commit.
    """
    if was is None:
        return now
    known = dict(was.outdated) | dict.fromkeys(was.list_reshaped_options(now), at)
    left = ((name, offset) for name, offset in known.items() if copied is None or offset >= copied)
    return replace(now, outdated=tuple(sorted(left)))


def list_older_columns(values: Iterable[ValueForm], partition: int, offset: int) -> set[str]:
    """Return the columns for which the record at this place may have a value in an older form."""
    return {each.column for each in values if each.since and offset < each.since[partition]}
