"""Bugs of the order in which changes are applied, and of where an attempt resumes."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

BUGS = [
    Mutant(
        bug="other lanes go past a change before its transaction has committed",
        file="consumer/attempt/lane_group.py",
        old="batch = lane.build_batch()\n",
        new=("batch = lane.build_batch()\n        self._tickets.release(number, batch.events[1])\n"),
        tests=("tests/unit/test_lane_order.py",),
    ),
    Mutant(
        bug="a batch whose commit failed counts as applied",
        file="consumer/attempt/lane_group.py",
        old="            lane.handle_failure(error)\n            return\n",
        new="            lane.handle_failure(error)\n",
        tests=("tests/unit/test_lane_order.py",),
    ),
    Mutant(
        bug="an insert overtakes the delete of the same unique value",
        file="consumer/ordering/tickets.py",
        old="last[1] == ticket[1] or self._released[last[1]] >= last[0]",
        new="last[1] == ticket[1] or self._released[last[1]] > (-1, 0)",
        tests=("tests/unit/test_lane_order.py",),
    ),
    Mutant(
        bug="an insert does not reserve its unique value",
        file="consumer/ordering/tickets.py",
        old="        holders[value] = ticket\n        if last",
        new="        if last",
        tests=("tests/unit/test_lane_order.py",),
    ),
    Mutant(
        bug="the second half of a key move waits for a first half that was applied before the restart",
        file="consumer/ordering/dispatch.py",
        old="order: tuple[Ticket, ...] = ()",
        new="order: tuple[Ticket, ...] = ((first.id, source),)",
        tests=("tests/unit/test_lane_order.py",),
    ),
    Mutant(
        bug="a prefix index counts bytes instead of characters",
        file="consumer/ordering/collations.py",
        old="text = text[:prefix]",
        new="text = text.encode()[:prefix].decode(errors='replace')",
        tests=("tests/unit/test_lane_order.py",),
    ),
    Mutant(
        bug="an attempt resumes where the fastest lane stands",
        file="consumer/attempt/transactions.py",
        old="def lowest(self) -> LaneProgress:\n        return min(",
        new="def lowest(self) -> LaneProgress:\n        return max(",
        tests=("tests/unit/test_lane_order.py",),
    ),
    Mutant(
        bug="lanes that stand apart are evened out only up to the slowest one",
        file="consumer/ordering/progress.py",
        old="finish=max(offsets)",
        new="finish=min(offsets)",
        tests=("tests/unit/test_consumer_core.py",),
    ),
    Mutant(
        bug="changes that slower lanes still lack count as duplicates",
        file="consumer/ordering/dedup.py",
        old="lowest = min(lanes, key=lambda row: row.offset)\n        self.offset",
        new="lowest = max(lanes, key=lambda row: row.offset)\n        self.offset",
        tests=("tests/unit/test_consumer_core.py",),
    ),
    Mutant(
        bug="changes of a superseded capture assignment are applied",
        file="consumer/ordering/dedup.py",
        old="        if gen < self.gen:\n            return _ZOMBIE\n",
        new="",
        tests=("tests/unit/test_consumer_core.py",),
    ),
    Mutant(
        bug="rows before a truncate are written again behind it",
        file="consumer/attempt/readers/reader.py",
        old="                    changes = []\n                    yield self._build_barrier",
        new="                    yield self._build_barrier",
        tests=("tests/unit/test_unit_apply.py",),
    ),
    Mutant(
        bug="rows read before an unreadable event are lost",
        file="consumer/attempt/readers/reader.py",
        old=(
            "            yield self._build_row_batch(changes, offset - 1)\n"
            "            raise\n"
            "        yield self._build_row_batch(changes, offset)\n"
            "\n"
            "    def _get_decoders"
        ),
        new=(
            "            raise\n        yield self._build_row_batch(changes, offset)\n\n    def _get_decoders"
        ),
        tests=("tests/unit/test_unit_apply.py",),
    ),
    Mutant(
        bug="a truncate overtakes rows that other lanes have not written",
        file="consumer/attempt/attempt.py",
        old="        if isinstance(taken, Truncated):\n            yield from self._state.drain()\n",
        new="        if isinstance(taken, Truncated):\n",
        tests=("tests/unit/test_unit_apply.py",),
    ),
    Mutant(
        bug="a value that the target would change silently is written in a small batch",
        file="consumer/attempt/applier.py",
        old="[_build_write(net, batch.displacing) for net in batch.nets]",
        new="[WriteChanges(net, batch.displacing) for net in batch.nets]",
        tests=("tests/unit/test_evolving.py",),
    ),
    Mutant(
        bug="lanes go on with quarantine entries that were closed",
        file="consumer/attempt/attempt_state.py",
        old="yield from self._note_quarantine(held, resolved)\n        self.applier = self._make_applier()",
        new="self.applier = self._make_applier()\n        yield from self._note_quarantine(held, resolved)",
        tests=("tests/unit/test_apply_copies.py",),
    ),
    Mutant(
        bug="an event that its own batch releases counts as quarantined",
        file="consumer/attempt/applier.py",
        old="self.held += len(remaining)",
        new="self.held += len(batch.quarantine.added)",
        tests=("tests/unit/test_quarantine_in_attempts.py",),
    ),
    Mutant(
        bug="a key that was refused for a unique value waits for its next event",
        file="consumer/ordering/recovery.py",
        old="return find_trial_offset(self.newest) < level",
        new="return False",
        tests=("tests/unit/test_quarantine_waits_for_value.py",),
    ),
    Mutant(
        bug="a recovery leaves keys alone that were tried in vain before it",
        file="consumer/attempt/recovery.py",
        old="*build_retry_operations(again)]",
        new="]",
        tests=("tests/unit/test_quarantine_waits_for_value.py",),
    ),
    Mutant(
        bug="a slow target is asked for the same keys for ever",
        file="consumer/ordering/recovery.py",
        old="seconds > MAX_SECONDS and self._is_any_decided and",
        new="seconds > MAX_SECONDS and",
        tests=("tests/unit/test_quarantine_recovers.py",),
    ),
]
