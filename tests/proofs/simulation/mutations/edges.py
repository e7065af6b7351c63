"""Planted bugs at the edges of a queue: holds, callbacks, settings, attempts, forks, and work that has to be bounded."""

from __future__ import annotations

from collections.abc import Sequence

from .planting import Mutation, bug

EDGES: Sequence[Mutation] = (
    # Contexts: which ring a send reaches, and until when.
    bug(
        "send by any queue goes to the delivery", "engine/queue/context.py",
        "return delivery if delivery is not None and delivery.context.place == place else None", "return delivery",
    ),
    bug(
        "service and plan of another ring refused in a processor", "engine/queue/context.py",
        "if delivery.context.place == place and not delivery.sealed:", "if not delivery.sealed:",
    ),
    bug(
        "service and plan of the processor's own ring", "engine/queue/context.py",
        "if delivery.context.place == place and not delivery.sealed:", "if False:",
    ),
    bug(
        "callbacks send within the last delivery", "engine/queue/context.py",
        "while delivery is not None and delivery.context.place == place:", "while False:",
        "        delivery = delivery.context.outer\n    mark", "        pass\n    mark",
    ),
    bug(
        "delivery that has answered takes messages", "engine/queue/values.py",
        "        if self.sealed:\n            raise DeliverySealed()", "        pass",
    ),
    # Quotas.
    bug(
        "quota unknown to senders", "engine/queue/session.py",
        "LATEST if quotas.keys().isdisjoint(above) else 0", "LATEST",
    ),
    bug(
        "quota without high messages", "engine/store/sqlite.py",
        "names = list(books_of(path))", "names = [path]",
    ),
    bug(
        "quota without delayed messages", "engine/store/sql/book.sql",
        "NULL FROM {s}delayed d WHERE d.ring = :ring", "NULL FROM {s}delayed d WHERE false AND d.ring = :ring",
        test="tests/store/queue/test_quota.py::test_what_is_stored_counts_in_every_state",
    ),
    bug(
        "quota without headers", "engine/store/sql/book.sql",
        "iif(instr(r.attributes, '\"headers\":'), length(r.attributes), 0)", "0",
        test="tests/store/queue/test_quota.py::test_headers_count_in_every_state",
    ),
    bug(
        "quota counts rows of pages twice", "engine/store/books.py",
        "for _, size, *_ in rows) - twice", "for _, size, *_ in rows)",
        test="tests/store/queue/test_quota.py::test_what_is_stored_is_exact",
    ),
    bug(
        "quota of the database counts rows of pages twice", "engine/store/migrations/postgres/0001_baseline.sql",
        "stored := stored - size;", "stored := stored;", store="postgres",
        test="tests/store/queue/test_quota.py::test_what_is_stored_is_exact",
    ),
    bug(
        "sum of inbox rows holds rows of pages", "engine/store/sql/book.sql",
        "s.below >= b.floor AND b.ahead = x''", "s.below >= 0",
        test="tests/store/queue/test_quota.py::test_checks_of_long_inboxes_read_few_rows",
    ),
    bug(
        "sum of the database misses rows that commit late", "engine/store/migrations/postgres/0001_baseline.sql",
        "IF last.mark <= oldest THEN", "IF true THEN", store="postgres",
        test="tests/store/queue/test_quota.py::test_a_sum_waits_for_open_transactions",
    ),
    bug(
        "room of a check is taken for ever", "engine/queue/quota.py",
        "last + min(room // session.config.heap_size, most)", "last + most",
        test="tests/store/queue/test_quota.py::test_senders_that_skip_checks_keep_the_quota",
    ),
    # Settings.
    bug(
        "settings read before the ring's lock", "engine/store/postgres.py",
        "        last, found = self.soon(\"last_id\"), self.soon(statement, ring=ring)\n"
        "        ((oldest, own, now, version, config),) = self.rows(\"snapshot\", ring=ring)\n",
        "        ((*_, config),) = self.rows(\"snapshot\", ring=ring)\n"
        "        last, found = self.soon(\"last_id\"), self.soon(statement, ring=ring)\n"
        "        ((oldest, own, now, version, _),) = self.rows(\"snapshot\", ring=ring)\n",
        store="postgres",
    ),
    # Ends.
    bug(
        "end of a block without messages is not recorded", "engine/queue/blocks/settlement.py",
        "            unit.blocks.forget_claims(row.id)\n        else:\n",
        "            unit.blocks.forget_claims(row.id)\n        elif any(claim.messages for claim in settling.claims):\n",
    ),
    # Attempts of parts.
    bug(
        "first outcome of all attempts counts", "engine/queue/blocks/reports.py",
        "return _collect(reports(), {page: _layers(spans) for page, spans in begun.items()})[0] if begun else found",
        "return found",
    ),
    bug(
        "whole share begun with its first message", "engine/queue/blocks/blocks.py",
        "        if most is None:\n", "        if True:\n",
    ),
    bug(
        "message of an earlier attempt begun with its neighbours", "engine/queue/batches.py",
        "groupby(batch.attempts, is_alone)", "groupby(batch.attempts, lambda attempt: False)",
    ),
    bug(
        "repeated micro-batch gets a block of its own", "spark/source.py",
        'return block if block and block_name(block) == offset["block"] else None', "return block",
        "        log.warning(\n            \"the block of micro-batch %d has ended",
        "        block = self.queue.blocks.plan(self._key(batch_number(end)), lease=self.checked.lease)\n"
        "        self._keep(block)\n        return _shares(self.queue, block.token, self.checked.partitions)\n"
        "        log.warning(\n            \"the block of micro-batch %d has ended",
        test="tests/spark/test_restarts.py::test_a_batch_whose_block_has_ended_is_empty_and_settles_nothing",
    ),
    bug(
        "output that could not be replaced is lost", "spark/output.py",
        "                self._rename(replaced, self._final)\n        if not moved:", "                pass\n        if not moved:",
        test="tests/spark/test_output.py::test_output_that_cannot_be_replaced_stays",
    ),
    bug(
        "output that a killed process moved away stays there", "spark/output.py",
        "        if self._exists(self._final) or not self._exists(self._aside):\n            return\n", "        return\n",
        test="tests/spark/test_output.py::test_output_that_a_killed_process_moved_away_is_recovered",
    ),
    bug(
        "renewal by the seconds of a fixed lease", "engine/store/sql/block.sql",
        "CAST(coalesce(:seconds, seconds) * 1000000 AS INTEGER)", "CAST(coalesce(:seconds, 900) * 1000000 AS INTEGER)",
        test="tests/store/queue/test_blocks.py::"
        "test_a_renewal_extends_by_the_seconds_of_the_block_and_never_moves_its_deadline_back[sqlite]",
    ),
    # What a service takes.
    bug(
        "typed service of all origins", "engine/queue/typed.py",
        "decoding(self.codec, processor, refused if delete_undecodable else kept), origins=origins, **how",
        "decoding(self.codec, processor, refused if delete_undecodable else kept), **how",
        test="tests/store/queue/test_typed.py::test_a_typed_service_leaves_other_origins_alone",
    ),
    # Processes: SQLite and forks.
    bug(
        "inherited connection stays open", "engine/store/sqlite.py",
        "            connection.close()\n            return\n        # Closing it would change",
        "            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))\n            return\n"
        "        # Closing it would change",
        test="tests/proofs/concurrency/test_fork.py::test_what_a_child_sends_outlives_its_parents_queues[sqlite]",
    ),
    bug(
        "child that cannot be safe is not refused", "engine/store/sqlite.py",
        "        _lost.add(self._file)\n", "",
        test="tests/proofs/concurrency/test_fork.py::test_child_that_a_transaction_itself_forks_is_refused",
    ),
    # Settings in open sessions.
    bug(
        "window of keys as a session knows it", "engine/queue/sending/sender.py",
        "int(session.remember_config(ring.config).key_window * 1_000_000)",
        "int(session.config.key_window * 1_000_000)",
        test="tests/proofs/concurrency/test_settings.py::test_a_longer_window_counts_in_open_sessions_at_once[sqlite]",
    ),
    bug(
        "open session never reads settings again", "engine/queue/session.py",
        "if time.monotonic() - self._ring_read_at > CONFIG_AGE:", "if False:",
        test="tests/proofs/concurrency/test_settings.py::test_open_sessions_of_senders_read_settings_again[sqlite]",
    ),
    bug(
        "pages opened for ever for a message that fits none", "engine/rules/working_set.py",
        "if full is not None and not full.lengths:", "if False:",
        test="tests/proofs/concurrency/test_settings.py::test_a_page_that_takes_nothing_is_an_error",
    ),
    # Ends.
    bug(
        "overrun of a recorded end not charged", "engine/queue/blocks/settling.py",
        "                    charge_overrun(working_set,",
        "                    if self.before is None:\n                        charge_overrun(working_set,",
        test="tests/proofs/concurrency/test_ends.py::test_overrun_is_charged_if_the_block_settles_during_a_service",
    ),
    bug(
        "service gives up the ring's lock before its lease ends", "engine/queue/holding.py",
        "left = max(RING_LEASE, self.session.busy_timeout)", "left = self.session.busy_timeout",
        test="tests/proofs/concurrency/test_ends.py::test_a_service_waits_for_the_lock_as_long_as_its_lease_lives",
    ),
    bug(
        "block that cannot be settled stops plans", "engine/queue/blocks/settlement.py",
        "                if _is_outage(error):\n                    raise\n                log.debug(\"block",
        "                raise\n                log.debug(\"block",
        test="tests/store/queue/test_absurd.py::test_a_block_that_cannot_be_settled_is_isolated",
    ),
    # Housekeeping, and second rows.
    bug(
        "deletion of keys waits for a sender's transaction", "engine/store/sql/key.sql",
        "SELECT e.ctid FROM {s}sent_key e {part oldest}",
        "SELECT e.ctid FROM {s}sent_key e WHERE e.ring = :ring AND e.at > :after AND e.at <= :before\n"
        "    ORDER BY e.at LIMIT :limit FOR UPDATE",
        test="tests/store/queue/test_forgetting.py::test_an_open_transaction_of_a_sender_holds_up_no_end",
    ),
    bug(
        "deletion behind a commit fails the caller of the commit", "engine/queue/session.py",
        "        except (Busy, StoreBusy):\n            pass\n        except MessageQueueError as error:\n            log",
        "        except InvalidInput as error:\n            log",
        test="tests/store/queue/test_forgetting.py::test_a_store_in_use_delays_no_end",
    ),
    bug(
        "book with a second row", "engine/store/migrations/postgres/0001_baseline.sql",
        "CREATE TRIGGER one_row BEFORE INSERT ON {s}book FOR EACH ROW EXECUTE FUNCTION {s}refuse_second_book();\n", "",
        test="tests/proofs/concurrency/test_second_rows.py::test_a_writer_without_the_lock_makes_no_second_row",
    ),
    bug(
        "second rows pass the check", "engine/queue/inspect/check/ring.py",
        "found = list(_check_rows(unit, session.ring_id))", "found: list[Violation] = []",
        test="tests/proofs/concurrency/test_second_rows.py::test_the_check_finds_second_rows",
    ),
    # Bounds of work.
    bug(
        "outcomes sorted at each look", "engine/rules/settle.py",
        "        if not self._starts:\n            self._sort()", "        self._sort()",
        test="tests/unit/rules/test_answers.py::test_finding_outcomes_takes_steps_in_proportion_to_reports",
    ),
    bug(
        "decisions bounded for each queue, not for a walk", "engine/rules/claims.py",
        "        self._begin_run(page)\n        processed, status",
        "        self._begin_run(page)\n        self._decisions = 0\n        processed, status",
        test="tests/store/queue/test_decisions.py::test_the_decisions_of_a_walk_do_not_grow_with_its_queues",
    ),
    bug(
        "rows ahead of the floor remembered without a bound", "engine/store/working_set/writer.py",
        "        if self.existing is None or count < MANY_AHEAD", "        if True or count < MANY_AHEAD",
        test="tests/proofs/concurrency/test_long_transactions.py::test_rows_ahead_of_the_floor_are_forgotten_once_deleted",
    ),
    bug(
        "requests that were not sent stay behind an error", "engine/store/pipelined.py",
        "        self._unsent = []\n        if self.pgconn.transaction_status != TransactionStatus.IDLE:\n",
        "        if self.pgconn.transaction_status != TransactionStatus.IDLE:\n",
        test="tests/proofs/concurrency/test_settings.py::test_a_failed_read_leaves_no_request_behind",
    ),
    bug(
        "error of a pipeline hidden by those that follow from it", "engine/store/pipelined.py",
        "first = first or error", "first = error",
        test="tests/store/test_pipelined.py::test_the_error_of_a_statement_in_a_pipeline_is_raised_whatever_follows",
    ),
    bug(
        "statement used that an error kept from being prepared", "engine/store/pipelined.py",
        "            self._conn._prepared.clear()\n            raise first", "            raise first",
        test="tests/store/test_pipelined.py::"
        "test_statements_that_an_error_kept_from_being_prepared_are_prepared_later",
    ),
    bug(
        "death of a service that counts for no message", "engine/queue/service.py",
        "page.notes[item] = note._replace(attempts=note.attempts + 1)\n            self.working_set.touch(book, page)\n",
        "pass\n",
        test="tests/proofs/crash/test_killers.py::test_neighbours_of_a_killer_keep_their_attempts[sqlite]",
    ),
    bug(
        "attempt of a careful service that counts twice", "engine/queue/service.py",
        "            page.notes[item] = note\n", "            pass\n",
        test="tests/proofs/crash/test_killers.py::test_an_attempt_that_ends_counts_once[sqlite]",
    ),
)  # fmt: skip
