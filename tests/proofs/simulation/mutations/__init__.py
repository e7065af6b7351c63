"""Planted bugs: small changes of the package that the simulation has to find, or a test where no run can."""

from __future__ import annotations

from collections.abc import Sequence

from .budgets import BUDGETS
from .charges import CHARGES
from .edges import EDGES
from .ends import ENDS
from .guests import GUESTS
from .parts import PARTS
from .planting import PACKAGE, Mutation
from .planting import bug as _bug
from .quotes import QUOTES
from .uploads import UPLOADS

__all__ = ["MUTATIONS", "PACKAGE", "Mutation"]

MUTATIONS: Sequence[Mutation] = (
    # Tokens, leases and holders.
    _bug(
        "settle without the token check", "engine/store/sql/block.sql",
        "WHERE b.ring = :ring AND b.token = :token {part for_update}\n",
        "WHERE b.ring = :ring AND (b.token = :token OR b.state = 0)\nORDER BY b.state LIMIT 1\n",
    ),
    _bug(
        "renewal that moves a deadline back", "engine/store/sql/block.sql",
        "max(deadline, :now + CAST(coalesce(:seconds, seconds) * 1000000 AS INTEGER))",
        "(:now + CAST(coalesce(:seconds, seconds) * 1000000 AS INTEGER))",
    ),
    _bug(
        "holder writes without the fence", "engine/queue/holding.py",
        "if ring.locked.state.lease_token != self.token:", "if False:",
    ),
    _bug(
        "former holder still has its lease", "engine/queue/holding.py",
        "            unit.rings.drop_lease(self.ring_id, held_by, locked.state.lease_holder)\n", "            pass\n",
    ),
    *(_bug(*texts) for texts in ENDS),
    _bug(
        "ring's lease compared with the client's clock", "engine/queue/holding.py",
        "if state.lease_until <= locked.now:", "if state.lease_until <= int(time.time() * 1_000_000):",
    ),
    _bug(
        "block's deadline compared with the client's clock", "engine/queue/blocks/settlement.py",
        "unit.blocks.dead(self.ring_id, unit.now())", "unit.blocks.dead(self.ring_id, int(time.time() * 1_000_000))",
        "if dead and (row.state != PLANNED or row.deadline > ring.locked.now):", "if False:",
    ),
    _bug(
        "set-aside message executed by two blocks", "engine/queue/blocks/blocks.py",
        "            refuse_claimed_by_hand(unit, self.ring_id, [address])\n", "",
    ),
    _bug(
        "set-aside message executed in place beside a block", "engine/queue/execution.py",
        "            refuse_claimed_by_hand(unit, session.ring_id, [address])\n", "",
    ),
    _bug(
        "message executed that was processed", "engine/rules/overweight.py",
        "    if mark == PROCESSED:\n        raise AlreadyProcessed", "    if False:\n        raise AlreadyProcessed",
    ),
    _bug(
        "reaping a page of which a block holds a message", "engine/queue/admin.py",
        "            refuse_claimed_page(unit, self.ring_id, name, page)\n", "",
    ),
    _bug(
        "expiry of a held message", "engine/queue/set_aside.py",
        "                        if message.address in held:\n", "                        if False:\n",
    ),
    _bug(
        "ordered queue claimed while it is in flight", "engine/store/working_set/books.py",
        "is_ordered = self.options.skip_in_flight or self.working_set.is_ordered(book)",
        "is_ordered = self.options.skip_in_flight",
    ),
    _bug(
        "absurd use charged in full", "engine/rules/tree.py",
        "    parts = min(parts, MOST_DEBT)\n", "",
        "book.deficit = max(book.deficit - parts, -MOST_DEBT)", "book.deficit -= parts",
        test="tests/store/queue/test_absurd.py::test_a_queue_pays_for_absurd_use_with_few_blocks[sqlite]",
    ),
    # Inbox and ring.
    _bug(
        "inbox cut by a cursor over ids", "engine/store/working_set/inbox.py",
        "return min(self.after, self.horizon - 1)", "return self.after",
        "        reached = self.horizon\n", "        reached = max(self.horizon, self.after + 1)\n",
        "min(self.next_id, reached)", "min(self.next_id, self.after + 1)",
        store="postgres",
    ),
    _bug(
        "rows ahead of the floor forgotten while they are stored", "engine/store/working_set/writer.py",
        "cut.ahead - known | self.existing(origin, known)", "cut.ahead - known",
        store="postgres",
    ),
    _bug(
        "horizon past an uncommitted sender", "engine/store/postgres.py",
        "certain = [pair for pair in known if pair[0] <= oldest]", "certain = known",
        store="postgres",
    ),
    _bug(
        "queue leaves the ring and keeps its ticket", "engine/store/working_set/writer.py",
        "self._ticket(origin, tickets.get(origin, stored.ticket)) if book.is_ready else None",
        "self._ticket(origin, tickets.get(origin, stored.ticket))",
    ),
    _bug(
        "due message is copied into its queue", "engine/store/sqlite.py",
        '            unit.run("delete_due", {"id": due})\n', "",
    ),
    _bug(
        "delayed message joins its queue early", "engine/queue/holding.py",
        "self.store.promote_due(unit, self.ring_id, locked.now)",
        "self.store.promote_due(unit, self.ring_id, locked.now + 600_000_000)",
    ),
    _bug(
        "shared inbox row deleted with its first page", "engine/store/sql/inbox.sql",
        "DELETE FROM {s}inbox\nWHERE ring = :ring AND origin = :origin AND id = :id AND NOT EXISTS (\n"
        "    SELECT 1 FROM {s}page p\n    WHERE p.ring = :ring AND p.origin = :origin AND p.page BETWEEN",
        "DELETE FROM {s}inbox\nWHERE ring = :ring AND origin = :origin AND id = :id AND NOT EXISTS (\n"
        "    SELECT 1 FROM {s}page p\n    WHERE FALSE AND p.ring = :ring AND p.origin = :origin AND p.page BETWEEN",
    ),
    # Senders.
    _bug(
        "key remembered before the message", "engine/queue/sending/sender.py",
        "        refused[place] = row.size\n    return refused\n",
        "        refused[place] = row.size\n    if keys:\n"
        '        unit.connection.execute("COMMIT")\n        unit.connection.execute("BEGIN IMMEDIATE")\n'
        "    return refused\n",
    ),
    _bug(
        "key not remembered", "engine/store/inbox.py",
        'return bool(self.unit.run("claim_key", ring=ring, now=now, window=window, **values))',
        'return bool(self.unit.run("claim_key", ring=ring, now=now, window=window, **values)) or True',
    ),
    _bug(
        "command commits the caller's transaction", "engine/store/guest.py",
        '                plain.execute(f"RELEASE {_SAVEPOINT}")\n            except BaseException as error:',
        '                plain.execute("COMMIT")\n                plain.execute("BEGIN IMMEDIATE")\n'
        "            except BaseException as error:",
    ),
    _bug(
        "transfer of the bytes of a neighbour", "engine/queue/sending/commands.py",
        "sum(lengths[:place]), self.size)", "sum(lengths[: place + 1]), self.size)",
    ),
    # Weight, attempts and outcomes.
    _bug(
        "weight budget off by one", "engine/rules/weight.py",
        "return Weight(self.limit[0] - self.time, self.limit[1] - self.size)",
        "return Weight(self.limit[0] - self.time + 1, self.limit[1] - self.size)",
    ),
    _bug("attempt not counted", "engine/rules/service.py", "attempts=note.attempts + 1)", "attempts=note.attempts)"),
    _bug(
        "message that waits aside keeps its place, too", "engine/rules/service.py",
        "        working_set.put_off(book, page, item, due)\n        mark_gone(working_set, book, page, item)\n",
        "        working_set.put_off(book, page, item, due)\n",
    ),
    _bug(
        "message that waits aside joins its queue at once", "engine/rules/service.py",
        "working_set.put_off(book, page, item, due)", "working_set.put_off(book, page, item, working_set.now)",
    ),
    _bug(
        "message that waits aside is forgotten", "engine/store/working_set/writer.py",
        "            self.unit.inbox.put_off(self.ring_id, [delayed_row(id_, *one) for id_, one in zip(ids, rows.put_off)])\n",
        "",
    ),
    _bug(
        "message that waits aside loses its attempts", "engine/rules/working_set.py",
        "        attributes = self.attributes(book.origin, page, item)\n        payload",
        "        attributes = self.attributes(book.origin, page, item)._replace(attempts=0)\n        payload",
    ),
    _bug(
        "message behind one that returned is processed in place", "engine/rules/claims.py",
        "            return 0, ladder.stop_at(book, outcome)\n        page.first_index += 1\n",
        "            page.first_index += 1\n            return 0, None\n        page.first_index += 1\n",
    ),
    _bug(
        "messages of an outcome are not sent", "engine/rules/settle.py",
        "                self.working_set.post_all(outcome.enqueue)\n", "                pass\n",
    ),
    _bug(
        "expired message deleted without an event", "engine/rules/service.py",
        "    working_set.emit(Fate.EXPIRED, book.origin, page.index, item, id_)\n", "",
    ),
    _bug(
        "processed message still counted", "engine/rules/service.py",
        '    """Count a message as processed."""\n    book.message_count -= 1\n', '    """Count a message as processed."""\n',
    ),
    _bug(
        "claims of an ended block stay", "engine/store/blocks.py",
        '        self.unit.put("delete_claims", block=block, seq=LATEST)\n', "",
    ),
    _bug(
        "requeued message stays set aside, too", "engine/rules/overweight.py",
        "    mark_gone(working_set, book, page, address.index)\n", "",
    ),
    # Progress behind many queues.
    _bug(
        "no look past queues that do not fit", "engine/rules/deficit.py",
        "            self._look_on(LOOK_PAST)\n", "            pass\n",
        runs="crowd",
    ),
    _bug(
        "no look past queues that do not fit, with paths", "engine/rules/paths.py",
        "self._service_found(self.look_on(LOOK_PAST))", "self._service_found(())",
        runs="crowd",
    ),
    _bug(
        "place of the last look not remembered", "engine/queue/walk.py",
        "    guaranteed: list[str] = []\n", "    working_set.loader.ring.look_anew()\n    guaranteed: list[str] = []\n",
        runs="crowd",
    ),
    _bug(
        "queues that give nothing count as queues of the block", "engine/rules/service.py",
        "len(self.givers) >= most or len(self.serviced) >= most + IN_VAIN", "len(self.serviced) >= most",
        runs="crowd",
    ),
    _bug(
        "block that took nothing does not look further", "engine/queue/walk.py",
        "self.goes_on = ladder.is_cut_short and not took()", "self.goes_on = False",
        runs="crowd",
    ),
    *PARTS,
    *EDGES,
    *CHARGES,
    *BUDGETS,
    *QUOTES,
    *UPLOADS,
    *GUESTS,
)  # fmt: skip
