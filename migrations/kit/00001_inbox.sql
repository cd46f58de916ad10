-- +goose Up

CREATE SCHEMA IF NOT EXISTS walrelay_kit;

CREATE TABLE IF NOT EXISTS walrelay_kit.inbox (
    consumer   text        NOT NULL,
    message_id text        NOT NULL,
    digest     bytea,
    seen_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, message_id)
);
-- Rows come in the order of time, so block ranges find the old ones at next to no cost.
CREATE INDEX IF NOT EXISTS inbox_seen_at ON walrelay_kit.inbox USING brin (seen_at);
COMMENT ON TABLE walrelay_kit.inbox IS
    'One row for each message whose effect was committed, in the transaction of that effect.';
COMMENT ON COLUMN walrelay_kit.inbox.consumer IS
    'Who applied the message; every consumer sees a message once. For webhooks: webhook/ and the provider.';
COMMENT ON COLUMN walrelay_kit.inbox.message_id IS
    'Identifies the message: walrelay''s header id, or the provider''s event id.';
COMMENT ON COLUMN walrelay_kit.inbox.digest IS
    'SHA-256 of the body where it has to stay the same; NULL: not compared.';
COMMENT ON COLUMN walrelay_kit.inbox.seen_at IS
    'Begin of the transaction that applied it, on the server''s clock. Rows are deleted by it.';

CREATE TABLE IF NOT EXISTS walrelay_kit.inbox_timed (
    consumer   text        NOT NULL,
    message_id text        NOT NULL,
    sent_at    timestamptz NOT NULL,
    digest     bytea,
    PRIMARY KEY (consumer, message_id, sent_at)
) PARTITION BY RANGE (sent_at);
COMMENT ON TABLE walrelay_kit.inbox_timed IS
    'As inbox, in partitions that are dropped as a whole; they are made and dropped by Partitions.Maintain of kit/inbox.';
COMMENT ON COLUMN walrelay_kit.inbox_timed.consumer IS
    'Who applied the message.';
COMMENT ON COLUMN walrelay_kit.inbox_timed.message_id IS
    'Identifies the message.';
COMMENT ON COLUMN walrelay_kit.inbox_timed.sent_at IS
    'A time that the message carries itself, the same in every delivery: a unique key must contain the partition key.';
COMMENT ON COLUMN walrelay_kit.inbox_timed.digest IS
    'SHA-256 of the body where it has to stay the same; NULL: not compared.';

CREATE TABLE IF NOT EXISTS walrelay_kit.inbox_marks (
    consumer   text             NOT NULL,
    stream     text             NOT NULL,
    topic      text             NOT NULL,
    partition  integer          NOT NULL,
    position   text COLLATE "C" NOT NULL
        CHECK (position ~ '^[0-9A-F]{8}-[0-9A-F]{8}-[0-9A-F]{16}-[0-9A-F]{8}$'),
    updated_at timestamptz      NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, stream, topic, partition)
) WITH (fillfactor = 50); -- room for updates in place: every message writes its row anew
COMMENT ON TABLE walrelay_kit.inbox_marks IS
    'Position of the last message applied, for each partition. What is not above it was applied before.';
COMMENT ON COLUMN walrelay_kit.inbox_marks.consumer IS
    'Who applied the message.';
COMMENT ON COLUMN walrelay_kit.inbox_marks.stream IS
    'Header walrelay-stream.';
COMMENT ON COLUMN walrelay_kit.inbox_marks.topic IS
    'Topic that the record was read from.';
COMMENT ON COLUMN walrelay_kit.inbox_marks.partition IS
    'Partition that the record was read from.';
COMMENT ON COLUMN walrelay_kit.inbox_marks.position IS
    'Header walrelay-position. Compared byte by byte, which its collation sees to.';
COMMENT ON COLUMN walrelay_kit.inbox_marks.updated_at IS
    'When the mark was last moved.';

CREATE TABLE IF NOT EXISTS walrelay_kit.inbox_attempts (
    consumer   text        NOT NULL,
    message_id text        NOT NULL,
    attempts   integer     NOT NULL,
    reason     text,
    started_at timestamptz NOT NULL DEFAULT now(),
    parked_at  timestamptz,
    stream     text,
    topic      text,
    partition  integer,
    position   text,
    sent_at    timestamptz,
    digest     bytea,
    body       bytea,
    PRIMARY KEY (consumer, message_id)
);
COMMENT ON TABLE walrelay_kit.inbox_attempts IS
    'Messages under way, failed or parked. Counted outside of the effect''s transaction, removed within it.';
COMMENT ON COLUMN walrelay_kit.inbox_attempts.consumer IS
    'Who tries to apply the message.';
COMMENT ON COLUMN walrelay_kit.inbox_attempts.message_id IS
    'Identifies the message.';
COMMENT ON COLUMN walrelay_kit.inbox_attempts.attempts IS
    'Attempts begun, those that ended with the process among them.';
COMMENT ON COLUMN walrelay_kit.inbox_attempts.reason IS
    'Error of the last attempt that could tell one.';
COMMENT ON COLUMN walrelay_kit.inbox_attempts.started_at IS
    'When the last attempt began.';
COMMENT ON COLUMN walrelay_kit.inbox_attempts.parked_at IS
    'Since when the message is not tried any more; NULL: it still is.';
COMMENT ON COLUMN walrelay_kit.inbox_attempts.stream IS
    'Header walrelay-stream of a parked message, if it had one.';
COMMENT ON COLUMN walrelay_kit.inbox_attempts.topic IS
    'Topic of a parked message, if it had one.';
COMMENT ON COLUMN walrelay_kit.inbox_attempts.partition IS
    'Partition of a parked message that has a topic.';
COMMENT ON COLUMN walrelay_kit.inbox_attempts.position IS
    'Header walrelay-position of a parked message, if it had one.';
COMMENT ON COLUMN walrelay_kit.inbox_attempts.sent_at IS
    'The time that a parked message carries, if it had one.';
COMMENT ON COLUMN walrelay_kit.inbox_attempts.digest IS
    'SHA-256 of the body of a parked message where it has to stay the same.';
COMMENT ON COLUMN walrelay_kit.inbox_attempts.body IS
    'Body of a parked message as the consumer gave it, to apply it later.';
