-- +goose Up

ALTER TABLE walrelay.streams
    ADD COLUMN IF NOT EXISTS covered_since timestamptz,
    ADD COLUMN IF NOT EXISTS detached jsonb NOT NULL DEFAULT '[]';
COMMENT ON COLUMN walrelay.streams.covered_since IS
    'Rows with an earlier time may never have been streamed, so retention leaves them alone. NULL: there is no slot yet.';
COMMENT ON COLUMN walrelay.streams.detached IS
    'Partitions that retention has detached from their outbox, the last ones: their rows still in the log are events.';

-- What was streamed before this column existed cannot be told from what was not.
UPDATE walrelay.streams SET covered_since = now() WHERE created_lsn IS NOT NULL AND covered_since IS NULL;
