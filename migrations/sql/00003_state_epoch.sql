-- +goose Up

ALTER TABLE walrelay.streams
    ADD COLUMN IF NOT EXISTS state_epoch bigint CHECK (state_epoch BETWEEN 1 AND 4294967295);
COMMENT ON COLUMN walrelay.streams.state_epoch IS
    'Epoch under which the line of states in Kafka began; NULL: none has, or delivery is at-least-once.';
