"""Prints each event of a topic once, though the topic holds some of them several times.

    pip install -r requirements.txt
    python3 consumer.py kafka-1:9092 outbox.event.order
"""

import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition


class Seen:
    """What was handled. Whoever does not begin at the topic's beginning each time keeps it in a database, and
    writes it in the transaction of the effect."""

    def __init__(self):
        self.positions = {}  # (stream, topic, partition) -> the highest one
        self.ids = set()

    def add(self, record):
        """Says whether an event is new, and from then on it is not."""
        headers = dict(record.headers() or [])
        stream, event = headers.get("walrelay-stream"), headers.get("id")
        if not stream or not event:
            raise ValueError(f"not a record of walrelay: partition {record.partition()}, offset {record.offset()}")
        position = headers.get("walrelay-position")
        if position is not None:  # fixed width: the order of the bytes is that of the events
            if len(position) != 43:
                raise ValueError(f"not a position: {position}")
            at = (stream, record.topic(), record.partition())
            if position <= self.positions.get(at, b""):
                return False  # a repetition, or a late write of a process that was replaced
            self.positions[at] = position
        # A replay has walrelay-replay in place of a position, and a new epoch repeats under higher positions.
        if event in self.ids:
            return False
        self.ids.add(event)
        return True


def main(brokers, topic):
    consumer = Consumer({
        "bootstrap.servers": brokers,
        "group.id": "unused",  # the client insists; no offsets are committed
        "enable.auto.commit": False,
        "isolation.level": "read_committed",  # WALRELAY_DELIVERY may be exactly-once
    })
    # From the beginning, each time: so what was seen may be kept in memory.
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
    seen = Seen()
    while True:
        record = consumer.poll(1.0)
        if record is None:
            continue
        if record.error():
            raise KafkaException(record.error())
        if seen.add(record):
            fields = (dict(record.headers())["id"], record.key(), record.value())
            print("\t".join("null" if f is None else f.decode() for f in fields), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:3])
