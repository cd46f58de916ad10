-- +goose Up

ALTER TABLE walrelay.streams
    ADD COLUMN IF NOT EXISTS left_out jsonb;
COMMENT ON COLUMN walrelay.streams.left_out IS
    'What an operator has left out with `walrelay slot advance` or `drop`, until it is published again; NULL: nothing.';
