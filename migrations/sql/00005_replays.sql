-- +goose Up

CREATE TABLE IF NOT EXISTS walrelay.replays (
    stream       text        NOT NULL,
    name         text        NOT NULL,
    selection    jsonb       NOT NULL,
    state        text        NOT NULL CHECK (state IN ('planned', 'running', 'done')),
    at_table     text,
    at_value     text,
    published    bigint      NOT NULL DEFAULT 0,
    refused      bigint      NOT NULL DEFAULT 0,
    requested_by text        NOT NULL DEFAULT current_user,
    started_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stream, name)
);
COMMENT ON TABLE walrelay.replays IS
    'Rows that were published again, beside their stream, and how far that came.';
COMMENT ON COLUMN walrelay.replays.stream IS
    'Name of the stream.';
COMMENT ON COLUMN walrelay.replays.name IS
    'Name of the replay, in the header walrelay-replay of its records; backfill: the rows before the slot.';
COMMENT ON COLUMN walrelay.replays.selection IS
    'Which rows: ids, a time range or all, and the tables.';
COMMENT ON COLUMN walrelay.replays.state IS
    'planned: before its first row; running: unfinished, interrupted ones included; done.';
COMMENT ON COLUMN walrelay.replays.at_table IS
    'Table of the last row that the brokers acknowledged; tables before it are done.';
COMMENT ON COLUMN walrelay.replays.at_value IS
    'That row''s value of the column that orders the table''s rows; a resumed replay begins with it.';
COMMENT ON COLUMN walrelay.replays.published IS
    'Rows that the brokers acknowledged, repetitions after an interruption included.';
COMMENT ON COLUMN walrelay.replays.refused IS
    'Rows that cannot be delivered.';
COMMENT ON COLUMN walrelay.replays.requested_by IS
    'Database role that began the replay.';
COMMENT ON COLUMN walrelay.replays.started_at IS
    'When the replay was first begun.';
COMMENT ON COLUMN walrelay.replays.updated_at IS
    'When this row was last written.';
