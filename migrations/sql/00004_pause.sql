-- +goose Up

ALTER TABLE walrelay.streams
    ADD COLUMN IF NOT EXISTS paused_at timestamptz,
    ADD COLUMN IF NOT EXISTS paused_by text,
    ADD COLUMN IF NOT EXISTS pause_reason text;
COMMENT ON COLUMN walrelay.streams.paused_at IS
    'Since when the stream rests at the operator''s word; NULL: it does not. The slot keeps its log meanwhile.';
COMMENT ON COLUMN walrelay.streams.paused_by IS
    'Who paused it.';
COMMENT ON COLUMN walrelay.streams.pause_reason IS
    'Why, in the words of who paused it.';
