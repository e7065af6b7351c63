"""Planted bugs: small changes of the package that the simulation has to find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[3] / "airflow_mq"


@dataclass(frozen=True)
class Mutation:
    """One planted bug."""

    name: str
    #: Path within the package.
    file: str
    #: Pairs of the exact text of today and the text that replaces it. Each text occurs once.
    changes: Sequence[tuple[str, str]]
    store: str = "sqlite"
    #: Whether the runs are those of a sharded queue.
    sharded: bool = False

    def apply(self, package: Path = PACKAGE) -> str:
        """Return the changed text of the file; raise if it does not apply."""
        text = (package / self.file).read_text("utf-8")
        for old, new in self.changes:
            if text.count(old) != 1:
                raise LookupError(f"{self.name}: {self.file} has {text.count(old)} times, expected once: {old!r}")
            text = text.replace(old, new)
        return text


def _bug(name: str, file: str, *texts: str, store: str = "sqlite", sharded: bool = False) -> Mutation:
    return Mutation(name, file, list(zip(texts[::2], texts[1::2])), store, sharded)


MUTATIONS: Sequence[Mutation] = (
    # Tokens, leases and holders.
    _bug(
        "settle without the token check", "store/sql/block.sql",
        "-- name: lock_block\n-- Return a block by its token, for settling or releasing it.\n{part block}\n"
        "WHERE b.ring = :ring AND b.token = :token\n",
        "-- name: lock_block\n-- Return a block by its token, for settling or releasing it.\n{part block}\n"
        "WHERE b.ring = :ring AND (b.token = :token OR b.state = 0)\nORDER BY b.state LIMIT 1\n",
    ),
    _bug(
        "slice written without the fence", "queue/service.py",
        "if locked.state.lease_token != self.token:", "if False:",
    ),
    _bug(
        "plan with a weigher written without the version check", "queue/blocks/plan.py",
        "if locked.state.lease_token != token or locked.state.version != ", "if False and locked.state.version != ",
    ),
    _bug(
        "ring's lease compared with the client's clock", "queue/session.py",
        "if state.lease_until <= locked.now:", "if state.lease_until <= int(time.time() * 1_000_000):",
    ),
    _bug(
        "block's deadline compared with the client's clock", "queue/blocks/settlement.py",
        "unit.blocks.dead(self.ring_id, unit.now())", "unit.blocks.dead(self.ring_id, int(time.time() * 1_000_000))",
        "import logging\n", "import logging\nimport time\n",
    ),
    _bug(
        "set-aside message executed by two blocks", "queue/blocks/blocks.py",
        "            refuse_claimed_by_hand(unit, self.ring_id, address)\n", "",
    ),
    _bug(
        "set-aside message executed in place beside a block", "queue/execution.py",
        "                    refuse_claimed_by_hand(unit, self.ring_id, address)\n", "",
    ),
    _bug(
        "message executed that was processed", "core/overweight.py",
        "    if mark == PROCESSED:\n        raise AlreadyProcessed", "    if False:\n        raise AlreadyProcessed",
    ),
    _bug(
        "reaping a page of which a block holds a message", "queue/admin.py",
        "            refuse_claimed_page(unit, self.ring_id, name, page)\n", "",
    ),
    _bug(
        "expiry of a held message", "queue/set_aside.py",
        "                        refuse_claimed_by_hand(unit, self.ring_id, message.address)\n", "",
    ),
    _bug(
        "ordered queue claimed while it is in flight", "store/working_set/books.py",
        "if row.in_flight and (self.skip_in_flight or self.working_set.is_ordered(book)):",
        "if row.in_flight and self.skip_in_flight:",
    ),
    # Inbox and ring.
    _bug(
        "inbox cut by a cursor over ids", "store/working_set/inbox.py",
        "return min(self.after, self.horizon - 1)", "return self.after",
        "        reached = self.horizon\n", "        reached = max(self.horizon, self.after + 1)\n",
        "min(self.next_id, reached)", "min(self.next_id, self.after + 1)",
        store="postgres",
    ),
    _bug(
        "horizon past an uncommitted sender", "store/horizon.py",
        "certain = [pair for pair in known if pair[0] <= oldest]", "certain = known",
        store="postgres",
    ),
    _bug(
        "queue leaves the ring and keeps its ticket", "store/working_set/writer.py",
        "tickets.get(origin, stored.ticket) if book.is_ready else None", "tickets.get(origin, stored.ticket)",
    ),
    _bug(
        "due message is copied into its queue", "store/sqlite.py",
        '            unit.run_for("delete_due", {"id": due})\n', "",
    ),
    _bug(
        "delayed message joins its queue early", "queue/session.py",
        "self.store.promote_due(unit, self.ring_id, locked.now)",
        "self.store.promote_due(unit, self.ring_id, locked.now + 600_000_000)",
    ),
    _bug(
        "shared inbox row deleted with its first page", "store/sql/inbox.sql",
        "DELETE FROM {s}mail\nWHERE ring = :ring AND origin = :origin AND id = :id AND NOT EXISTS (\n"
        "    SELECT 1 FROM {s}page p\n    WHERE p.ring = :ring AND p.origin = :origin AND p.page BETWEEN",
        "DELETE FROM {s}mail\nWHERE ring = :ring AND origin = :origin AND id = :id AND NOT EXISTS (\n"
        "    SELECT 1 FROM {s}page p\n    WHERE FALSE AND p.ring = :ring AND p.origin = :origin AND p.page BETWEEN",
    ),
    # Senders.
    _bug(
        "key remembered before the message", "queue/sending/sender.py",
        "        refused[place] = row.size\n    return refused\n",
        "        refused[place] = row.size\n    if keys:\n"
        '        unit.connection.execute("COMMIT")\n        unit.connection.execute("BEGIN IMMEDIATE")\n'
        "    return refused\n",
    ),
    _bug(
        "key not remembered", "store/inbox.py",
        'return bool(self.unit.run("claim_key", ring=ring, now=now, window=window, **values))',
        'return bool(self.unit.run("claim_key", ring=ring, now=now, window=window, **values)) or True',
    ),
    _bug(
        "command commits the caller's transaction", "store/guest.py",
        '            plain.execute(f"RELEASE {_SAVEPOINT}")\n        except BaseException as error:',
        '            plain.execute("COMMIT")\n            plain.execute("BEGIN IMMEDIATE")\n'
        "        except BaseException as error:",
    ),
    _bug(
        "loan released while another borrower needs it", "store/inbox.py",
        "            if lender not in lending:\n", "            if True:\n",
    ),
    _bug(
        "lender released though it lends", "store/inbox.py",
        "[key for key in keys if key not in lent]", "keys",
    ),
    # Weight, attempts and outcomes.
    _bug(
        "weight budget off by one", "core/weight.py",
        "return Weight(self.limit[0] - self.time, self.limit[1] - self.size)",
        "return Weight(self.limit[0] - self.time + 1, self.limit[1] - self.size)",
    ),
    _bug("attempt not counted", "core/service.py", "attempts=note.attempts + 1)", "attempts=note.attempts)"),
    _bug(
        "message behind one that went back is processed in place", "core/service.py",
        "            return (PageStatus.BAILED if isinstance(outcome, Overweight) else PageStatus.NO_PROGRESS), 0\n"
        "        page.first_index += 1\n",
        "            page.first_index += 1\n            return None, 0\n        page.first_index += 1\n",
    ),
    _bug(
        "messages of an outcome are not sent", "core/settle.py",
        "                self.working_set.post_all(outcome.enqueue)\n", "                pass\n",
    ),
    _bug(
        "expired message deleted without an event", "core/service.py",
        "    working_set.emit(Fate.EXPIRED, book.origin, page.index, item, id_)\n", "",
    ),
    _bug(
        "processed message still counted", "core/service.py",
        '    """Count a message as processed."""\n    book.message_count -= 1\n', '    """Count a message as processed."""\n',
    ),
    _bug(
        "claims of an ended block stay", "store/blocks.py",
        '        self.unit.put("delete_claims", block=block)\n', "",
    ),
    _bug(
        "requeued message stays set aside, too", "core/overweight.py",
        "    mark_gone(working_set, book, page, address.index)\n", "",
    ),
    # Shards.
    _bug(
        "send without the fence of its shard", "store/store.py",
        "if unit.shards.fence(ring) != fence:", "if False:",
        sharded=True,
    ),
    _bug(
        "send to a pinned origin without a look at the pin", "sharding/router.py",
        "if pinned and len(unit.shards.pinned(self._ring, pinned)) < len(pinned):", "if False:",
        sharded=True,
    ),
    _bug(
        "pin asked for in a shard that is behind", "sharding/router.py",
        "            _require(shard, layout.version, unit.shards.fence(queue.session.ring_id))\n", "",
        sharded=True,
    ),
    _bug(
        "change of the layout does not wait for sends in progress", "sharding/change.py",
        "    ring = queue.session.ring_id\n    with queue.store.writing() as unit:\n        unit.shards.lock()\n        row",
        "    ring = queue.session.ring_id\n    with queue.store.loose() as unit:\n"
        "        early = unit.shards.present(ring, _since(queue, unit))\n"
        "    with queue.store.writing() as unit:\n        unit.shards.lock()\n        row",
        "        present = unit.shards.present(ring, _since(queue, unit))\n", "        present = early\n",
        sharded=True,
    ),
    _bug(
        "change of the layout without the lock", "store/sql/shard.sql",
        "LOCK TABLE {s}shard IN ACCESS EXCLUSIVE MODE", "SELECT 1",
        store="postgres", sharded=True,
    ),
    _bug(
        "keys do not keep an origin in its shard", "store/shards.py",
        'for (origin,) in self.unit.rows("keyed_origins", ring=ring, since=since)',
        'for (origin,) in self.unit.rows("keyed_origins", ring=ring, since=1 << 62)',
        sharded=True,
    ),
    _bug(
        "origin released that has got messages meanwhile", "sharding/change.py",
        "unpin(ring, [origin for origin in idle if origin not in present])", "unpin(ring, idle)",
        sharded=True,
    ),
    _bug(
        "former layouts forgotten while origins are pinned", "sharding/change.py",
        "if not answers.missing and not any(pinned.values()):", "if not answers.missing:",
        "if not any(members.each(count_leaving, current.shards).all().values()):", "if True:",
        sharded=True,
    ),
    _bug(
        "change of the layout of a shard that has a newer one", "sharding/change.py",
        "if row is not None and row.version >= layout.version:", "if row is not None and row.version == layout.version:",
        sharded=True,
    ),
    _bug(
        "shard removed that holds messages", "sharding/change.py",
        "    _refuse_full(members, current, leaving)\n", "",
        sharded=True,
    ),
    _bug(
        "call fails in all shards because one is down", "sharding/members.py",
        "        if not isinstance(error, MessageQueueError):\n            raise error", "        raise error",
        sharded=True,
    ),
    _bug(
        "sender keeps an old layout while a shard is down", "sharding/queue.py",
        "elif isinstance(error, (ShardUnavailable, StoreFull)) and self._router.is_outdated(version):", "elif False:",
        sharded=True,
    ),
    _bug(
        "call reports as unsent what a shard has stored", "sharding/queue.py",
        "            sent = reduce(_plus, answers.found.values(), sent)\n", "",
        "        if len(failed) == 1 and not sent.count",
        "        unsent += [pair for part in parts.values() for pair in part] if failed else []\n"
        "        if len(failed) == 1 and not sent.count",
        sharded=True,
    ),
)  # fmt: skip
