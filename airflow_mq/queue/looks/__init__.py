"""A ring as those see it who look again and again: bounded reads, however much waits, that never cut mail into pages.

    for_page       what the page in Airflow's UI asks
    for_top        what `airflow-mq top` asks, and how quickly the ring moves from one look to the next
    for_metrics    the backlog as figures: sums over the whole ring, and its deepest queues

They stand on `glances` (how a queue, a block, a page stands), `lines` (which queues come first) and `survey` (how deep
all queues are, added up piece by piece).
"""

from __future__ import annotations
