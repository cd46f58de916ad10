-- +goose Up

ALTER TABLE walrelay.streams ADD COLUMN IF NOT EXISTS settled_at timestamptz;
COMMENT ON COLUMN walrelay.streams.settled_at IS
    'What was committed before this time lies before confirmed_lsn: the rows of a gap after it are younger.';
