-- +goose Up

CREATE SCHEMA IF NOT EXISTS walrelay_kit;

CREATE TABLE IF NOT EXISTS walrelay_kit.consumer_positions (
    consumer   text        NOT NULL,
    stream     text        NOT NULL,
    topic      text        NOT NULL,
    partition  integer     NOT NULL,
    position   text        NOT NULL COLLATE "C",
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, topic, partition, stream)
) WITH (fillfactor = 50);
COMMENT ON TABLE walrelay_kit.consumer_positions IS
    'How far each consumer has applied a partition, written in the transaction of the effects.';
COMMENT ON COLUMN walrelay_kit.consumer_positions.consumer IS
    'Name of the consumer, as its group.';
COMMENT ON COLUMN walrelay_kit.consumer_positions.stream IS
    'Header walrelay-stream of the records.';
COMMENT ON COLUMN walrelay_kit.consumer_positions.topic IS
    'Topic of the records.';
COMMENT ON COLUMN walrelay_kit.consumer_positions.partition IS
    'Partition of the records.';
COMMENT ON COLUMN walrelay_kit.consumer_positions.position IS
    'Highest header walrelay-position applied; bytes compare as positions do.';
COMMENT ON COLUMN walrelay_kit.consumer_positions.updated_at IS
    'When this row was last written.';
