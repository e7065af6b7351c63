"""Rules of the queue, and an overview of the product on one page.

Purpose
-------
Many *origins* (tenants, sources, tables) send *messages*, opaque bytes, into one queue. Processors have a budget of
time and bytes. The queue decides what is processed next, so that no origin starves another and no message exceeds the
budget. No message is lost or settled twice, and the messages of an origin keep their order.

Nouns
-----
Every origin has its own queue, stored in a **book** of **pages**. A page is a bounded row of messages. The book's
**window**, from `begin` up to `end`, holds the pages still to be serviced. Pages that keep **set-aside** messages stay
behind it. A book whose window is not empty is **ready**. All ready books form a circle, the **ready ring**; the book
whose turn is next is the **head**. A book is **knit** into the ring directly before the head, and **unknit** when its
window is empty.

The cost of work is a **weight** of two parts, time and size. A **meter** has a limit and pays: a step fits whole, or it
is not paid and servicing **bails**. Every step of servicing has a **cost** of its own, paid before the step is taken.

Scenes
------
*A quiet tenant and a loud one.* `loud` sends ten thousand messages, `quiet` one. The next block visits both. In the
deficit order each visited queue earns a quantum per round and spends it on messages from its front. So `quiet` is
served in the first round, and `loud` gets the rest of the block.

*A message that is too heavy.* It weighs more than any block can pay. It is set aside: its page stays behind the window,
an event records the reason, and the queue goes on with the next message. A person executes it with another limit, or
discards it with a reason. A message that only exceeds the *rest* of this block stops its queue and comes first next
time.

*A block that takes minutes.* A **plan** walks the ring with a **weigher** in place of the processor and **claims** what
fits. Nothing else changes: for all other callers the claimed messages are still queued. The processors run anywhere and
**report**. **Settling** replays the plan with their outcomes, in one transaction. A message without an outcome goes
back to its old place. Any process may release a block that was not renewed; its late reports are refused.

*A processor in this process.* It is called for one message after the other and may enqueue more. The same rules apply,
step by step: there is one ladder, and a plan is the same walk on a working set that is discarded.

Promises
--------
- *Always open.* Enqueuing succeeds whatever the state of any queue, paused or not.
- *Bounded.* The planned weight of a block never exceeds its limit.
- *Progress.* If any ready message fits a full block, each block tries at least one message, however many queues it
  cannot serve. Messages that expired or are too heavy come to their end without a processor. A walk decides about a
  bounded number of them, and the next walk goes on with another queue.
- *Order.* The messages of an ordered origin start in the order in which they were sent.
- *Conservation.* A message is waiting, in flight, set aside, or gone with exactly one event that records how.
- *Fairness.* Among queues that are always ready, weight is divided by their shares. A message that costs c quanta
  starts within c + 1 rounds, however many small ones wait.

Modules
-------
`weight` and `config` define costs and the settings of a ring. `page`, `book` and `ring` are the data; `working_set` is
the part of a ring on which the rules operate, and `changes` records their changes. `service` is the ladder (queue,
page, item), `judging` bounds the weight of a message, and `orders` decides whose turn it is (`deficit` and `paths` for
these orders). `claims` plans, `settle` settles, and `overweight` handles messages behind the window. `events` records
the fate of every message, `fairness` computes figures from the ledger, and `invariants` checks stored data. No
rule waits, reads a clock or does I/O; the folder `store` stores what they decide.
"""

from __future__ import annotations
