-- +goose Up

CREATE SCHEMA IF NOT EXISTS walrelay_kit;

-- Neither state nor token nor lease is in an index, so claim and completion of a key are cheap (HOT)
-- updates. The partial index leaves out what is kept for ever, which a purge need not walk past.
CREATE TABLE IF NOT EXISTS walrelay_kit.idempotency_keys (
    scope            text        NOT NULL,
    key              text        NOT NULL,
    request_hash     bytea       NOT NULL,
    state            text        NOT NULL DEFAULT 'in_progress' CHECK (state IN ('in_progress', 'completed')),
    token            bigint      NOT NULL DEFAULT 1,
    lease_expires_at timestamptz NOT NULL,
    status           integer,
    headers          jsonb,
    body             bytea,
    outcome_hash     bytea,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    completed_at     timestamptz,
    compacted_at     timestamptz,
    PRIMARY KEY (scope, key),
    CHECK ((state = 'completed') = (completed_at IS NOT NULL AND outcome_hash IS NOT NULL)),
    CHECK (compacted_at IS NULL OR (state = 'completed' AND status IS NULL AND headers IS NULL AND body IS NULL))
);
CREATE INDEX IF NOT EXISTS idempotency_keys_created_at
    ON walrelay_kit.idempotency_keys (created_at) WHERE compacted_at IS NULL;

COMMENT ON TABLE walrelay_kit.idempotency_keys IS
    'One row for each idempotency key: who works on the request, and the answer that was given.';
COMMENT ON COLUMN walrelay_kit.idempotency_keys.scope IS
    'Whose key it is, such as a tenant or user: two of them may choose the same key.';
COMMENT ON COLUMN walrelay_kit.idempotency_keys.key IS
    'The key as the caller chose it.';
COMMENT ON COLUMN walrelay_kit.idempotency_keys.request_hash IS
    'SHA-256 over the canonical request; the same key with another one is an error.';
COMMENT ON COLUMN walrelay_kit.idempotency_keys.state IS
    'in_progress: somebody works on it until the lease ends; completed: the answer stands.';
COMMENT ON COLUMN walrelay_kit.idempotency_keys.token IS
    'Fencing token of the owner: raised by each takeover, so that a late owner cannot complete.';
COMMENT ON COLUMN walrelay_kit.idempotency_keys.lease_expires_at IS
    'From then on, by this server''s clock, anybody with the same request may take over.';
COMMENT ON COLUMN walrelay_kit.idempotency_keys.status IS
    'Status of the answer, as HTTP counts; NULL until completed and after compaction.';
COMMENT ON COLUMN walrelay_kit.idempotency_keys.headers IS
    'Headers of the answer: an object of arrays of strings.';
COMMENT ON COLUMN walrelay_kit.idempotency_keys.body IS
    'Body of the answer, byte for byte.';
COMMENT ON COLUMN walrelay_kit.idempotency_keys.outcome_hash IS
    'SHA-256 over status and body; what compaction leaves of the answer.';
COMMENT ON COLUMN walrelay_kit.idempotency_keys.created_at IS
    'When the key was first claimed.';
COMMENT ON COLUMN walrelay_kit.idempotency_keys.completed_at IS
    'When the answer was saved.';
COMMENT ON COLUMN walrelay_kit.idempotency_keys.compacted_at IS
    'When the answer was dropped and only key and hashes stayed; NULL: not so.';
