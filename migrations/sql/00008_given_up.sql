-- +goose Up

ALTER TABLE walrelay.streams
    ADD COLUMN IF NOT EXISTS given_up jsonb;
COMMENT ON COLUMN walrelay.streams.given_up IS
    'When and where the slot was dropped because it kept more log than allowed, until a new epoch; NULL: it was not.';
