-- +goose Up

ALTER TABLE walrelay.dead_letters
    DROP CONSTRAINT IF EXISTS dead_letters_action_check,
    ADD CONSTRAINT dead_letters_action_check CHECK (action IN ('dead-lettered', 'skipped', 'unfit', 'refused'));
COMMENT ON COLUMN walrelay.dead_letters.action IS
    'dead-lettered: acknowledged by the dead-letter topic; skipped: dropped; unfit: too large for that topic as well; '
    'refused: a replay could not publish the row.';
COMMENT ON COLUMN walrelay.dead_letters.position IS
    'Position of the event, EEEEEEEE-TTTTTTTT-LLLLLLLLLLLLLLLL-NNNNNNNN in hex. With epoch 0 it is a digest of table and '
    'id: of a row that a replay refused, and not read from the log.';
