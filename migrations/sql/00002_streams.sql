-- +goose Up

CREATE SCHEMA IF NOT EXISTS walrelay;
COMMENT ON SCHEMA walrelay IS
    'State of walrelay, which streams outbox tables to Kafka. Not for applications.';

CREATE TABLE IF NOT EXISTS walrelay.streams (
    name              text        PRIMARY KEY,
    epoch             bigint      NOT NULL DEFAULT 1 CHECK (epoch BETWEEN 1 AND 4294967295),
    system_identifier text        NOT NULL,
    timeline          bigint      NOT NULL,
    slot              text        NOT NULL,
    publication       text        NOT NULL,
    publication_state jsonb,
    created_lsn       pg_lsn,
    confirmed_lsn     pg_lsn,
    delivery          text        NOT NULL,
    routing           text        NOT NULL,
    partitions        jsonb       NOT NULL DEFAULT '{}',
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE walrelay.streams IS
    'One row for each flow from a replication slot into Kafka, committed before the slot is created.';
COMMENT ON COLUMN walrelay.streams.name IS
    'Name of the stream, in the header walrelay-stream of every record.';
COMMENT ON COLUMN walrelay.streams.epoch IS
    'First part of every position. Raised when the order so far can no longer be trusted.';
COMMENT ON COLUMN walrelay.streams.system_identifier IS
    'The database cluster (IDENTIFY_SYSTEM) that the positions belong to.';
COMMENT ON COLUMN walrelay.streams.timeline IS
    'Timeline on which the server was last seen; grows with each promotion.';
COMMENT ON COLUMN walrelay.streams.slot IS
    'Name of the logical replication slot.';
COMMENT ON COLUMN walrelay.streams.publication IS
    'Name of the publication.';
COMMENT ON COLUMN walrelay.streams.publication_state IS
    'OIDs and options of the publication and its tables as last accepted; a difference may mean missed rows.';
COMMENT ON COLUMN walrelay.streams.created_lsn IS
    'Where the slot began (its consistent point); NULL until it was created.';
COMMENT ON COLUMN walrelay.streams.confirmed_lsn IS
    'Written before the position is confirmed to the server, so a slot beyond it was moved by somebody else.';
COMMENT ON COLUMN walrelay.streams.delivery IS
    'Delivery mode: at-least-once or exactly-once.';
COMMENT ON COLUMN walrelay.streams.routing IS
    'Fingerprint of the rules that give an event its topic and key; another one raises the epoch.';
COMMENT ON COLUMN walrelay.streams.partitions IS
    'Partition count of each topic under which the epoch stands; another count raises the epoch.';
COMMENT ON COLUMN walrelay.streams.created_at IS
    'When the stream was registered.';
COMMENT ON COLUMN walrelay.streams.updated_at IS
    'When this row was last written.';

CREATE TABLE IF NOT EXISTS walrelay.releases (
    stream       text        NOT NULL,
    position     text        NOT NULL,
    verdict      text        NOT NULL CHECK (verdict IN ('retry', 'skip', 'dead-letter')),
    requested_at timestamptz NOT NULL DEFAULT now(),
    requested_by text        NOT NULL DEFAULT current_user,
    PRIMARY KEY (stream, position)
);
COMMENT ON TABLE walrelay.releases IS
    'Operators'' verdicts on events that stopped their stream.';
COMMENT ON COLUMN walrelay.releases.stream IS
    'Name of the stream that is stuck.';
COMMENT ON COLUMN walrelay.releases.position IS
    'Position of the stuck event, EEEEEEEE-TTTTTTTT-LLLLLLLLLLLLLLLL-NNNNNNNN in hex.';
COMMENT ON COLUMN walrelay.releases.verdict IS
    'retry: the cause was mended; skip: drop the event; dead-letter: send it to the dead-letter topic.';
COMMENT ON COLUMN walrelay.releases.requested_at IS
    'When the verdict was given.';
COMMENT ON COLUMN walrelay.releases.requested_by IS
    'Database role that gave the verdict.';

CREATE TABLE IF NOT EXISTS walrelay.dead_letters (
    stream         text        NOT NULL,
    position       text        NOT NULL,
    event_id       text        NOT NULL,
    table_name     text        NOT NULL,
    topic          text        NOT NULL,
    key_digest     bytea,
    payload_digest bytea,
    size           bigint      NOT NULL,
    reason         text        NOT NULL,
    action         text        NOT NULL CHECK (action IN ('dead-lettered', 'skipped', 'unfit')),
    follow         boolean     NOT NULL DEFAULT false,
    recorded_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stream, position)
);
COMMENT ON TABLE walrelay.dead_letters IS
    'Events that did not reach their topic, and what became of them. Digests only, no keys or payloads.';
COMMENT ON COLUMN walrelay.dead_letters.stream IS
    'Name of the stream.';
COMMENT ON COLUMN walrelay.dead_letters.position IS
    'Position of the event, EEEEEEEE-TTTTTTTT-LLLLLLLLLLLLLLLL-NNNNNNNN in hex.';
COMMENT ON COLUMN walrelay.dead_letters.event_id IS
    'The event''s id column; empty when the row had none.';
COMMENT ON COLUMN walrelay.dead_letters.table_name IS
    'Outbox table, with its schema, quoted where needed.';
COMMENT ON COLUMN walrelay.dead_letters.topic IS
    'Topic that the event was meant for; empty when none could be derived.';
COMMENT ON COLUMN walrelay.dead_letters.key_digest IS
    'SHA-256 of the record''s key; NULL for a null key.';
COMMENT ON COLUMN walrelay.dead_letters.payload_digest IS
    'SHA-256 of the record''s value; NULL for a null value.';
COMMENT ON COLUMN walrelay.dead_letters.size IS
    'Size in bytes of the record as it would have been produced.';
COMMENT ON COLUMN walrelay.dead_letters.reason IS
    'Why the event could not be delivered, without any byte of the row.';
COMMENT ON COLUMN walrelay.dead_letters.action IS
    'dead-lettered: acknowledged by the dead-letter topic; skipped: dropped; unfit: too large for that topic as well.';
COMMENT ON COLUMN walrelay.dead_letters.follow IS
    'Whether later events of this key go to the dead-letter topic too, which keeps the key''s order.';
COMMENT ON COLUMN walrelay.dead_letters.recorded_at IS
    'When this row was written.';
