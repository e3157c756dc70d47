"""Mutants of a Kafka target, its formats and shaping."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_FORMATS = "consumer/targets/kafka/formats/"
_DEBEZIUM = ("tests/unit/test_kafka_debezium_format.py",)
_TARGET = ("tests/integration/test_kafka_target.py",)
_ATTEMPTS = ("tests/integration/test_kafka_attempts.py",)
_SHARED = ("tests/integration/test_kafka_shared.py",)
_WRITER = ("tests/unit/test_kafka_writer.py",)
_SECURITY = ("tests/integration/test_kafka_security.py",)
_VERIFY = ("tests/unit/test_verify_topics.py",)
_COPIES = ("tests/integration/test_kafka_copies.py",)
_RECORDS = ("tests/unit/test_kafka_records.py",)
_OWN = ("tests/unit/test_kafka_formats_own.py",)
_FORMS = ("tests/unit/test_kafka_key_forms.py",)
_ZERO = ("tests/unit/test_signed_zero.py",)
_CANAL = ("tests/unit/test_kafka_canal_format.py",)
_RESHAPED = ("tests/integration/test_kafka_reshaped.py",)
_VALUES = ("tests/unit/test_kafka_value_forms.py",)


def _of(file: str, tests: tuple[str, ...], *changes: tuple[str, str]) -> list[Mutant]:
    return [Mutant(file, old, new, tests) for old, new in changes]


MUTANTS = [
    *_of(
        "consumer/targets/kafka/target.py",
        ("tests/unit/test_kafka_commits.py",),
        (
            "                if begun or number is None:\n",
            "                if begun or number is not None:\n",
        ),
        ("                if begun or number is None:\n", "                if number is None:\n"),
        ("            if isinstance(part, BatchFenced):\n                return part\n", ""),
        ("                begun = False\n", "                begun = number is not None\n"),
        ("TransientError(why) if number is None else CommitUnknownError(why)", "TransientError(why)"),
        ("TransientError(why) if number is None else CommitUnknownError(why)", "CommitUnknownError(why)"),
    ),
    *_of(
        f"{_FORMATS}canal_json.py",
        _RECORDS,
        (
            "            image = {} if self._is_other_origin(said) else self._values(said)\n",
            "            image = self._values(said)\n",
        ),
    ),
    *_of(
        "consumer/targets/kafka/records.py",
        _RECORDS,
        ("            if count >= CLEARED or size >= CLEARED_BYTES:", "            if count >= CLEARED:"),
        ("tuple(row.get(name, given) for", "tuple(row.get(name) for"),
        ("            options.tombstones,\n            topic.added,\n", "            options.tombstones,\n"),
        ("        given = self._shaping.mask_row(", "        given = tuple("),
        (
            "            if count >= CLEARED or size >= CLEARED_BYTES:",
            "            if size >= CLEARED_BYTES:",
        ),
    ),
    *_of(
        "consumer/targets/kafka/target.py",
        _ATTEMPTS,
        (
            "        for following in pages:\n",
            "        for following in [[each for more in pages for each in more]]:\n",
        ),
        ("ways, page, rest)", "ways, page, progress)"),
        (
            "            page = following\n        outcome",
            "            page = [*page, *following]\n        outcome",
        ),
    ),
    *_of(
        "consumer/targets/kafka/records.py",
        _COPIES,
        (
            "        images = self._shaping.reshape_change(change.before, change.after)\n",
            "        images = self._shaping.reshape_change(change.before, change.after) or (change.after and (self._shaping.mask_row(change.after), None))\n",
        ),
    ),
    *_of(
        "consumer/tables/shared_topics.py",
        ("tests/unit/test_shared_topics.py",),
        ("for each in formats if not each.names_origin]", "for each in formats if not each.format]"),
        (
            "for each in formats if not each.names_origin]",
            "for each in formats[:1] if not each.names_origin]",
        ),
        ("if one != two or telling & one:", "if one != two or telling:"),
        ("if one != two or telling & one:", "if telling & one:"),
        (' and "plain" not in nameless:', ":"),
        ("if all(not one.issuperset(of.key.columns) for", "if any(not one.issuperset(of.key.columns) for"),
        ("((mine, table), (theirs, there or table))", "((mine, table), (theirs, table))"),
        (
            "            there, place = stored.table, (stored.table.db, stored.table.name)",
            "            continue",
        ),
        (" or origin[1] not in sources:", ":"),
        (" or origin[0] != own[0] or", " or"),
        (
            "if stored.emptied_at is not None and offset < stored.emptied_at:",
            "if stored.emptied_at is not None:",
        ),
    ),
    *_of(
        "consumer/targets/kafka/store/state.py",
        ("tests/unit/test_shared_topics.py",),
        ("first and known.state.stopped is None", "known.state.stopped is None"),
        ("first and known.state.stopped is None", "first"),
        ("mine is None or mine.topic != topic\n", "mine is None\n"),
        (" else written.topic == topic\n", " else True\n"),
        ("if other == unit or other.pipeline != unit.pipeline or", "if other == unit or"),
    ),
    *_of(
        "consumer/attempt/spec.py",
        ("tests/unit/test_shared_topics.py",),
        ("    _keep_apart(spec, session, stored)\n", ""),
    ),
    *_of(
        "rowlock/inspect/checks/flows.py",
        ("tests/unit/test_shared_topics.py",),
        ("        yield from _yield_mixed_topic_findings(config, feeding)", "        pass"),
    ),
    *_of(
        f"{_FORMATS}debezium_columns.py",
        _DEBEZIUM,
        ('int(value).to_bytes(size, "little")', 'int(value).to_bytes(size, "big")'),
        ("    size = (type_.length + 7) // 8\n", "    size = (type_.length + 8) // 8\n"),
        ('return -micros if value.startswith("-") else micros', "return micros"),
        ("    coarse = type_.fsp <= 3\n", "    coarse = type_.fsp < 3\n"),
        ("if wide <= 16 else", "if wide <= 17 else"),
        ("ljust(digits, '0')}\" if digits else whole", "ljust(digits, '0')}\" if fraction else whole"),
        (
            "    if type_.kind is Kind.DECIMAL and not type_.precision:\n        return ColumnForm",
            "    if not type_.fsp and type_.fsp:\n        return ColumnForm",
        ),
    ),
    *_of(
        f"{_FORMATS}canal_json_columns.py",
        _CANAL,
        ('lambda value: f"{value:04d}"', "str"),
        (
            '    return text if text in ("NaN", "Infinity", "-Infinity") else float(text)\n',
            "    return float(text)\n",
        ),
        ("return value if isinstance(value, str) else repr(float(value))", "return repr(float(value))"),
        (
            "return text if text.startswith(\"0000-00-00\") else f\"{text.replace(' ', 'T')}Z\"",
            "return f\"{text.replace(' ', 'T')}Z\"",
        ),
        ('if value else "0"', 'if value else ""'),
    ),
    *_of(
        "consumer/targets/kafka/verifying/reading.py",
        _VERIFY,
        ('scale=int(value["scale"])', "scale=0"),
        ('    any_scale = type_.kind == "decimal" and not type_.precision\n', "    any_scale = False\n"),
        (
            'return value if value in ("NaN", "Infinity", "-Infinity") else convert(value)',
            "return convert(value)",
        ),
    ),
    *_of(
        "consumer/targets/kafka/verifying/canal.py",
        _VERIFY,
        ('text if text.startswith("0000-00-00") else text.replace', "text.replace"),
        (
            'return {"srid": int.from_bytes(raw[:4], "little")',
            'return {"srid": int.from_bytes(raw[:4], "big")',
        ),
        ("    (row,) = message", "    row, *_ = message"),
    ),
    *_of(
        "consumer/targets/kafka/ways.py",
        _VALUES,
        ("each.since and offset < each", "each.since and offset <= each"),
        ("since=since if each.column in other else known[each.column].since", "since=since"),
        (" or was.form not in (now.form, now.form.removesuffix(UNSIGNED)):", ":"),
        ("now.form.removesuffix(UNSIGNED)", "now.form"),
        ("    return not now.labels or now.labels[: len(was.labels)] == was.labels\n", "    return True\n"),
        ("    if was is None or was.form not", "    if was is not None and was.form not"),
        ("    if written.topic_id and seen.id and seen", "    if seen.id and seen"),
        ("    if written.topic_id and seen.id and seen", "    if written.topic_id and seen"),
        ("            if anew\n", "            if not again\n"),
        ("    if seen.partitions != written.partitions:\n", "    if seen.partitions < written.partitions:\n"),
        ("anew and made_again and was is not None and was.topic_id else", "anew and made_again else"),
        ("anew and made_again and was", "made_again and was"),
    ),
    *_of(
        "consumer/targets/kafka/target.py",
        _FORMS,
        (
            "now is not None and (changed := was.list_reshaped_options(now)):",
            "now is not None and (changed := []):",
        ),
    ),
    *_of(
        "consumer/targets/kafka/ways.py",
        _FORMS,
        (
            "        if before.topic_id and now.topic_id and before",
            "        if before.topic_id is None and before",
        ),
    ),
    *_of(
        f"{_FORMATS}key_forms.py",
        _VALUES,
        (" and type_.bits == 64 and not keyed", " and type_.bits == 64"),
        ("{chr(0)}{salt}", ""),
        (
            "_build_value_form(word, each, each.name in keys), _list_labels(word, each.type)",
            "_build_value_form(word, each, each.name in keys)",
        ),
        ("        if each.name not in masked\n", "        if each.name\n"),
    ),
    *_of(
        "consumer/targets/kafka/compacted/topic_contents.py",
        _VALUES,
        ("        if state.origin not in (None, self._origin):\n            return state\n", ""),
        ("        if older & self._primary and any(images):\n", "        if not older:\n"),
        ("{name: None if name in older else value for", "{name: value for"),
    ),
    *_of(
        "consumer/targets/kafka/records.py",
        _TARGET,
        ("                del self._tables[topic]\n", "                pass\n"),
    ),
    *_of(
        "consumer/targets/kafka/target.py",
        _TARGET,
        (
            "get_target_topic(table), anew=anew\n            )\n            if why is not None:\n",
            "get_target_topic(table), anew=anew\n            )\n            if not written:\n",
        ),
        (
            "            values = add_form_ages(self._get_known_unit(unit).written, records.written, ends).values or ()\n",
            "            values = records.written.values or ()\n",
        ),
        (
            "        now = add_form_ages(\n            was, now, partial(",
            "        add_form_ages(\n            was, now, partial(",
        ),
    ),
    *_of(
        "consumer/attempt/spec.py",
        _ATTEMPTS,
        (
            "    if not first and found.target.topic is not None:\n",
            "    if first and found.target.topic is not None:\n",
        ),
    ),
    *_of(
        "consumer/attempt/evolution/next_definition.py",
        _ATTEMPTS,
        ("anew=first", "anew=False"),
    ),
    *_of(
        "consumer/attempt/evolution/machine.py",
        ("tests/unit/test_evolving.py",),
        ("    elif in_force.stored.emptied_at != at[0]:\n", "    elif in_force.stored.emptied_at is None:\n"),
        ("    elif in_force.stored.emptied_at != at[0]:\n", "    else:\n"),
        (
            "emptied = replace(in_force.stored, emptied_at=at[0])",
            "emptied = replace(in_force.stored, emptied_at=None)",
        ),
    ),
    *_of(
        "consumer/attempt/transactions.py",
        ("tests/unit/test_evolving.py",),
        (
            "self._run_transaction(Transact(0, rows, operations), None))",
            "self._run_transaction(Transact(0, rows, operations), rows))",
        ),
    ),
    *_of(
        f"{_FORMATS}partition.py",
        ("tests/unit/test_kafka_partition.py",),
        ("found ^ found >> 13", "found ^ found >> 14"),
        ("    if size > whole:\n", "    if size > whole + 1:\n"),
        ("& 0x7FFFFFFF) %", ") %"),
    ),
    *_of(
        f"{_FORMATS}key_forms.py",
        _FORMS,
        ("now.labels[: len(self.labels)] == self.labels", "True"),
        ("if (self.column, self.form) != (now.column, now.form):", "if self.column != now.column:"),
        ("not type_.scale\n", "type_.scale\n"),
        ("datetime in {'milli' if type_.fsp <= 3 else", "datetime in {'milli' if type_.fsp < 3 else"),
        ("\\0{salt}", ""),
        (
            'KeyForm(column.name, form, _list_labels("", hidden.type))',
            "KeyForm(column.name, _describe_json_form(column.type))",
        ),
        ("{_describe_debezium_form(column)} with the schema {said}", "{_describe_debezium_form(column)}"),
    ),
    *_of(
        "consumer/targets/kafka/store/state.py",
        _FORMS,
        ("                if not was.goes_on_as(other)\n", "                if was.column != other.column\n"),
        ("dict(self.added) != dict(now.added)", "len(self.added) != len(now.added)"),
        (
            "for name, digest in now.shape if was.get(name) != digest]",
            "for name, digest in now.shape if name not in was]",
        ),
        (
            "        if self.shape is None or now.shape is None:\n            return []\n        was = dict(self.shape)",
            "        was = dict(self.shape or ())",
        ),
    ),
    *_of(
        "consumer/targets/kafka/shaping.py",
        _FORMS,
        (
            "hashed = salt if any(mask == SHA256 for _, mask in options.masks) else",
            "hashed = salt if options.masks else",
        ),
        ("(sorted(options.masks), hashed)", "sorted(options.masks)"),
        ("sorted(map(repr, values))", "list(values)"),
    ),
    *_of(
        "consumer/targets/kafka/ways.py",
        _FORMS,
        ("was is None else [was, *ways]", "was else ways"),
        (
            "        if changes := before.list_incompatibilities(now):",
            "        if changes := before.list_incompatibilities(before):",
        ),
    ),
    *_of(
        f"{_FORMATS}keyed.py",
        _DEBEZIUM,
        (
            "            if moves and self.routed.tombstones:",
            "            if moves and not self.routed.tombstones:",
        ),
        (
            "        return encoded(self.encode_primary_key(before)) == encoded(self.encode_primary_key(after))\n",
            "        return before == after\n",
        ),
        ("self.build_move_headers(old, to=False)", "self.build_move_headers(None, to=False)"),
    ),
    *_of(
        f"{_FORMATS}keyed.py",
        _OWN,
        (
            "not moves and self._is_same_row(before, after):\n            return [FormattedRecord(new, self.encode_update(",
            "not moves:\n            return [FormattedRecord(new, self.encode_update(",
        ),
        (
            "not moves and self._is_same_row(before, after):\n            return [FormattedRecord(new, self.encode_update(",
            "self._is_same_row(before, after):\n            return [FormattedRecord(new, self.encode_update(",
        ),
        ("            if moves and self.routed.tombstones:", "            if self.routed.tombstones:"),
        ("self.build_move_headers(new, to=True) if moves else ()", "self.build_move_headers(new, to=True)"),
    ),
    *_of(
        f"{_FORMATS}rowlock.py",
        _OWN,
        (
            "            and not moves\n            and self._routed.has_same_key(before, after)\n",
            "            and not moves\n",
        ),
        (
            "            and not moves\n            and self._routed.has_same_key(before, after)\n",
            "            and self._routed.has_same_key(before, after)\n",
        ),
        ("            if moves and self._routed.tombstones:", "            if self._routed.tombstones:"),
    ),
    *_of(
        f"{_FORMATS}debezium.py",
        _DEBEZIUM,
        ('self._encode_event("r" if place.snapshot else "c", None,', 'self._encode_event("c", None,'),
        ("{max(row, 0)}", "{row}"),
        ("if form is None:", "if not self.word:"),
        ('origin=origin, gone=image) if op == "d" else', 'origin=origin, gone=image) if op == "x" else'),
    ),
    *_of(
        f"{_FORMATS}older_types.py",
        _DEBEZIUM,
        ("            if name not in image:", "            if not name:"),
        ("                if keyed:", "                if not name:"),
        ("                value = None\n", "                continue\n"),
        ("keys = {*routed.key_at, *routed.primary_at}", "keys = {*routed.primary_at}"),
        ("                    write(value)", "                    pass"),
        ("struct.error, *VALUE_ERRORS)", "*VALUE_ERRORS)"),
    ),
    *_of(
        f"{_FORMATS}debezium_columns.py",
        _DEBEZIUM,
        ("        Kind.INT: _reject_booleans,\n", ""),
        (
            'if value in ("NaN", "Infinity", "-Infinity") else read(value)',
            "if isinstance(value, str) else read(value)",
        ),
        ("if number >= _SIGN else", "if number > _SIGN else"),
        ("(~number if number < 0 else number)", "(number)"),
        ("        if len(fraction) != scale:\n", "        if not fraction and scale:\n"),
        ("    if _single.unpack(bits)[0] != value:\n", "    if not bits:\n"),
        ("None if column.nullable or column.default is None", "None if column.default is None"),
        ('    if not value.endswith("Z"):\n', "    if not value:\n"),
        ("    if srid >= _INT32:\n", "    if srid > _INT32:\n"),
    ),
    *_of(
        "consumer/targets/kafka/verifying/reading.py",
        _VERIFY,
        (
            "_make_key_reader(column)\n            if column.name in keys\n            else _make_lenient_reader(",
            "_make_lenient_reader(",
        ),
        (
            "except CONVERSION_ERRORS:\n            return UNREADABLE_VALUE",
            "except CONVERSION_ERRORS:\n            return None",
        ),
    ),
    *_of(
        "consumer/targets/kafka/verifying/topic_reading.py",
        _VERIFY,
        ("return _UNKNOWN if value is UNREADABLE_VALUE else", "return b'' if value is UNREADABLE_VALUE else"),
    ),
    *_of(
        f"{_FORMATS}canal_json_columns.py",
        _CANAL,
        ("        if chosen >> len(bits):", "        if chosen < 0:"),
        ('"little") + from_base64', '"big") + from_base64'),
        ('    labels = ("", *type_.members)\n', "    labels = type_.members\n"),
        ("type_.bits + 1 if type_.unsigned else type_.bits\n    limits", "type_.bits\n    limits"),
        (
            "_build_fixed_form(93, _format_timestamp, _read_timestamp)",
            "_build_fixed_form(93, _format_timestamp)",
        ),
    ),
    *_of(
        f"{_FORMATS}canal_json.py",
        _CANAL,
        (" if value != now[name]}", "}"),
        ("        if not where:\n", "        if where is not None:\n"),
        ('.replace("*/", "*\\\\/")', ""),
        ('State(key, gone=image) if kind == "DELETE" else', 'State(key, gone=image) if kind == "QUERY" else'),
    ),
    *_of(
        "consumer/targets/kafka/shaping.py",
        ("tests/unit/test_shaping.py",),
        (
            "        return None if old is None and new is None else",
            "        return None if old is None or new is None else",
        ),
        (
            "        return self.mask_row(row) if self._inside(row) else None",
            "        return self.mask_row(row)",
        ),
        ("hashlib.sha256(salt.encode())", "hashlib.sha256()"),
        ("lambda value: None if value is None else mask", "lambda value: mask"),
        (
            "        if mask != SHA256 and name in routing.union",
            "        if mask != SHA256 and name in set().union",
        ),
        ("(lacks := sorted((routing | set(table.key.columns))", "(lacks := sorted((routing)"),
        ("and masks.keys().isdisjoint(index.columns)", ""),
    ),
    *_of(
        "consumer/targets/kafka/store/progress.py",
        _TARGET,
        (
            "            writer.known = self._progress.read_new_records().get_unit(unit)\n",
            "            writer.known = known\n",
        ),
        ("any(row.epoch > epoch for row in known.lanes)", "any(row.epoch < 0 for row in known.lanes)"),
    ),
    *_of(
        "consumer/targets/kafka/store/progress_topic.py",
        _TARGET,
        ("    if size > facts.limit:\n", "    if size < 0:\n"),
    ),
    *_of(
        "consumer/targets/kafka/target.py",
        _TARGET,
        ("had is not None\n            and had.batch <= batch\n", "had is not None\n"),
        (
            "            if list_guards(known.lanes) != list_guards(progress.guards):\n",
            "            if not known.lanes:\n",
        ),
        (
            "if number is not None and found.known.lanes == tuple(progress.rows):",
            "if not found.known.lanes:",
        ),
        ("if number is not None and writer.known.commits == number:", "if number is None and not writer:"),
        ("                number = after.commits\n", "                number = writer.known.commits\n"),
    ),
    *_of(
        "consumer/targets/kafka/store/state.py",
        _TARGET,
        ("if each[0] >= before and", "if each[0] > before and"),
    ),
    *_of(
        "consumer/targets/kafka/clients.py",
        _TARGET,
        (
            '"isolation.level": "read_committed",\n        "enable.auto.offset.store": False,\n        "enable.partition.eof"',
            '"isolation.level": "read_uncommitted",\n        "enable.auto.offset.store": False,\n        "enable.partition.eof"',
        ),
    ),
    *_of(
        "consumer/targets/kafka/records.py",
        _TARGET,
        (
            "[] if self._facts.compacted else self.format.build_clear_records",
            "self.format.build_clear_records",
        ),
        ("for row in rows().yield_rows(gone):", "for row in yield_rows().yield_all_rows({}):"),
    ),
    *_of(
        "consumer/targets/kafka/records.py",
        _TARGET,
        (
            "shaped, had = self._shaping.reshape_row(whole), there",
            "shaped, had = self._shaping.mask_row(whole), there",
        ),
    ),
    *_of(
        "consumer/targets/kafka/clients.py",
        _WRITER,
        ("min(MAX_TRANSACTION_S, lease_s * 0.95)", "MAX_TRANSACTION_S"),
        ('int(limits.call_s * 1000),\n        "socket', 'int(ADMIN_CALL_TIMEOUT_S * 1000),\n        "socket'),
    ),
    *_of(
        "schemas/config/load.py",
        _WRITER,
        ("            target._lease_s = config.coordination.lease_s\n", "            pass\n"),
    ),
    *_of(
        "consumer/targets/kafka/writer.py",
        _SECURITY,
        ("            if error.code() not in _PURGED:\n", "            if error:\n"),
    ),
    *_of(
        "consumer/targets/kafka/topics.py",
        ("tests/unit/test_kafka_topics.py",),
        ("            client.poll(0)  # what it has to tell\n", ""),
        ("        if error.code() != KafkaError._ALL_BROKERS_DOWN:\n", "        if True:\n"),
    ),
    *_of(
        "consumer/targets/kafka/reader.py",
        _SECURITY,
        (", KafkaError.GROUP_AUTHORIZATION_FAILED}", "}"),
    ),
    *_of(
        "consumer/targets/kafka/writer.py",
        _WRITER,
        ("{config.prefix}./{unit.pipeline}/{unit.topic}", "{config.prefix}.{unit.pipeline}.{unit.topic}"),
    ),
    *_of(
        "consumer/targets/kafka/topics.py",
        _SHARED,
        ("            self._client = None\n            client.poll(0)", "            client.poll(0)"),
    ),
    *_of(
        "consumer/targets/kafka/records.py",
        _TARGET,
        ("            if measure_record(record) > self._facts.limit:\n", "            if not entry.event:\n"),
    ),
    *_of(
        "consumer/targets/kafka/ways.py",
        _FORMS,
        ("if copied is None or offset >= copied)", "if copied is None)"),
        ("if copied is None or offset >= copied)", "if copied is None or offset > copied)"),
        ("    known = dict(was.outdated) | dict", "    known = dict"),
    ),
    *_of(
        "consumer/targets/kafka/target.py",
        _RESHAPED,
        ("        there = None if _was_emptied(changes, progress) else was\n", "        there = was\n"),
        ("now, progress.guards[0].offset, copied", "now, progress.rows[0].offset, copied"),
        ("copied=progress.copied)", "copied=None)"),
    ),
    *_of(
        "consumer/targets/kafka/routed_topics.py",
        _RESHAPED,
        (
            "for name, _ in written.outdated}.union(written.list_reshaped_options(now))",
            "for name, _ in written.outdated}",
        ),
        ("sorted({name for name, _ in written.outdated}.union(", "sorted(set().union("),
    ),
    *_of(
        "consumer/attempt/drivers/batches.py",
        ("tests/unit/test_batch_commits.py",),
        ('made["copied"] = operation.before', 'made["copied"] = None'),
    ),
    *_of(
        "rowlock/inspect/planned/plan.py",
        ("tests/unit/test_reload_server.py",),
        ("        if flow.topic.conflicts:\n", "        if False:\n"),
        ("        elif outdated := flow.topic.outdated:\n", "        elif outdated := ():\n"),
    ),
    *_of(
        "consumer/targets/kafka/store/state.py",
        ("tests/integration/test_kafka_target.py",),
        ("        if each not in after.held\n    ]", "    ]"),
    ),
    *_of(
        "consumer/tables/definition.py",
        _ATTEMPTS,
        ("        return frozenset(target.table.column_names)\n", "        pass\n"),
    ),
    *_of(
        "consumer/targets/kafka/compacted/topic_rows.py",
        _VERIFY,
        ("if state.origin is None or state.origin == identity.origin:", "if state.origin is None:"),
        ("if state.origin is None or state.origin == identity.origin:", "if state.origin is not None:"),
        ("        elif not identity.many:\n", "        elif identity.many:\n"),
        ("        if origin is not None:\n", "        if origin not in (None, self.origin):\n"),
        ("values.get(name) == value for name, value in self.where", "True for name, value in self.where"),
        (
            "        if not self._identity.many:\n            return place",
            "        if self._identity.primary:\n            return place",
        ),
    ),
    *_of(
        "consumer/targets/kafka/compacted/topic_rows.py",
        _RECORDS,
        ("            return origin == self.origin\n", "            return True\n"),
    ),
    *_of(
        "consumer/targets/kafka/compacted/topic_contents.py",
        _RECORDS,
        ("        if keys and len(keys[0]) < len(self._columns):", "        if not keys:"),
        ("all(whole[i] == value for i, value in at) and ", ""),
    ),
    *_of(
        "consumer/targets/kafka/verifying/topic_reading.py",
        _VERIFY,
        (
            'right = self._partition(key or b"", self._partitions) == partition and is_key_of_row(',
            "right = is_key_of_row(",
        ),
        ("_WRONG if key in found else value[:1]", "value[:1]"),
        (
            "        if shown is None:\n            return None\n",
            "        if shown is None:\n            shown = self._shaping.mask_row(row)\n",
        ),
        ("    if facts.compacted:\n", "    if False:\n"),
        ("_UNKNOWN if fills[column.name] is None else", ""),
    ),
    *_of(
        "consumer/targets/kafka/verifying/reading.py",
        _VERIFY,
        ("list(said.items()) ==", "said and list(said.items()) !="),
        (
            '            return State(key, origin=whose, gone=image(event["before"]))',
            "            return State(key, origin=whose)",
        ),
        (
            "            return State(key, origin=whose, gone=_decode_image(event.before))",
            "            return State(key, origin=whose)",
        ),
    ),
    *_of(
        "consumer/targets/kafka/verifying/canal.py",
        _VERIFY,
        ("labels[int(text) - 1]", "labels[int(text) - 2]"),
        ("int(text) >> i & 1", "int(text) >> i"),
        ("number if abs(number) <= MAX_EXACT else text", "number"),
        ('lambda found: found[1] or "\'"', "lambda found: found[0]"),
    ),
    *_of(
        "rowlock/inspect/topics/sides.py",
        _VERIFY,
        ("    if topic is None or topic.names_origin:\n", "    if topic is None:\n"),
        ("theirs.get(name, value) == value", "theirs.get(name) == value"),
        ("        self._reading.follow_topic()\n        return dict", "        return dict"),
    ),
    *_of(
        "schemas/table/equality.py",
        ("tests/unit/test_schemas_typemap.py",),
        ('f"-{short}" if sign else short', "short"),
        ("exponent + len(text) - len(short)", "exponent"),
        ("        return _encode_float_bits(value).encode()\n", "        return _sorted(value)\n"),
    ),
    *_of(
        "schemas/table/filters.py",
        ("tests/unit/test_shaping.py",),
        ("lambda row: all(format_wire_value(row[i])", "lambda row: any(format_wire_value(row[i])"),
    ),
    *_of(
        "consumer/attempt/copies/sweep.py",
        _COPIES,
        (
            "note_changes(taken.changes, key_of, keys.note_key, inside)",
            "note_changes(taken.changes, key_of, keys.note_key)",
        ),
    ),
    *_of(
        "consumer/tables/router.py",
        _COPIES,
        ("    if not more:\n        return target", "    if key:\n        return target"),
    ),
    *_of(
        "consumer/attempt/drivers/batches.py",
        _COPIES,
        ("lambda some: target.look_up(effect.table, some)", "lambda some: some"),
    ),
    *_of(
        f"{_FORMATS}keyed.py",
        _ZERO,
        (
            "encoded(self.encode_primary_key(before)) == encoded(self.encode_primary_key(after))",
            "self.encode_primary_key(before) == self.encode_primary_key(after)",
        ),
    ),
    *_of(
        "consumer/targets/kafka/records.py",
        _ZERO,
        ("    return encode_identity(list(key))", "    return encode_identity([each or 0 for each in key])"),
    ),
    *_of(
        "consumer/targets/kafka/verifying/topic_reading.py",
        _ZERO,
        ("at in self._floats and is_negative_zero(value)", "at < 0"),
    ),
]
