"""The rules of the queue. Read this page and you know the product.

What it is for
--------------
Many *origins* (tenants, sources, tables) send *messages*, opaque bytes, into one queue.
Whoever processes them has a budget: so much time, so many bytes. The queue decides what
is processed next so that no origin can starve another and no message can blow the budget.
Nothing is lost, nothing is settled twice, and the messages of an origin keep their order.

The nouns
---------
Every origin has its own queue, kept in a **book** of **pages**. A page is a bounded row of
messages. The book's **window**, from `begin` up to `end`, holds the pages still to be
serviced; pages that keep **set-aside** messages stay behind it. A book whose window is not
empty is **ready**. All ready books stand in a circle, the **ready ring**; the one whose turn
is next is the **head**. A book is **knit** into the ring just before the head, and
**unknit** when its window is empty.

What work costs is a **weight** of two parts, time and size. A **meter** has a limit and
pays: either a step fits whole, or nothing is paid and servicing **bails**. Every step of
servicing has a **cost** of its own, and is paid before it is taken.

Four scenes
-----------
*A quiet tenant and a loud one.* `loud` sends ten thousand messages, `quiet` one. The next
block visits both: in the deficit order each visited queue earns a quantum per round and
spends it on messages from its front, so `quiet` is served in the first round, and what
`loud` leaves of the block is its own.

*A message that is too heavy.* It weighs more than any block can pay. It is set aside: its
page stays behind the window, an event says so, and the queue goes on with the next
message. A person executes it with a limit of its own, or discards it and says why. If it
merely does not fit what is *left* of this block, the queue stops there, and it comes first
next time.

*A block that takes minutes.* A **plan** walks the ring with a **weigher** in the place of
the processor and **claims** what fits. Nothing else moves: for everybody else the claimed
messages are still queued. The processors run wherever they run and **report**; **settling**
replays the plan with their answers, in one transaction. What nobody answered for goes back
to its old place. A block that nobody renews can be released by anyone, and is refused when
it comes too late.

*A processor in this process.* It is called for one message after the other, may enqueue
more, and is answered by the same rules, step by step: there is one ladder, and a plan is
the same walk on a shelf that is thrown away.

Promises
--------
- *Always open.* Enqueuing succeeds whatever the state of any queue, paused or not.
- *Bounded.* What a block plans never weighs more than its limit.
- *Progress.* If anything ready fits a full block, each block tries at least one message.
- *Order.* The messages of an ordered origin start in the order in which they were sent.
- *Conservation.* A message is waiting, in flight, set aside, or gone with exactly one event
  that says how.
- *Fairness.* Among queues that are always ready, weight is shared as their shares say; a
  message that costs c quanta starts within c + 1 rounds, however many small ones wait.

Where to read on
----------------
`weight` and `config` say what things cost and how a ring is set; `page`, `book` and `ring`
are the data; `shelf` is how the rules see it. `service` is the ladder (queue, page, item),
`judging` says what a message may weigh, `orders` decides whose turn it is (`paths`, where
origins are paths), `claims` plans and `settle` settles, `overweight` treats what lies behind
the window, `events` tells what became of everything, and `invariants` checks that all of this
page is true of what is stored. Nothing here waits, reads a clock, or opens anything;
`airflow_mq.store` is where it is kept.
"""

from __future__ import annotations
