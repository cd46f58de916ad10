-- +goose Up

ALTER TABLE walrelay.dead_letters
    ADD COLUMN IF NOT EXISTS redriven_at timestamptz,
    ADD COLUMN IF NOT EXISTS redriven_by text;
COMMENT ON COLUMN walrelay.dead_letters.redriven_at IS
    'When the event was published after all, by `walrelay deadletters redrive`; NULL: it was not.';
COMMENT ON COLUMN walrelay.dead_letters.redriven_by IS
    'Database role that had it published.';
