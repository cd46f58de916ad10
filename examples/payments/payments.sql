-- The database that the API writes to. `walrelay migrate up` adds the outbox and the relay's own tables,
-- `walrelay migrate up --kit` the idempotency keys.

CREATE TABLE accounts (
    id      text   PRIMARY KEY,
    balance bigint NOT NULL CHECK (balance >= 0)
);
COMMENT ON COLUMN accounts.balance IS 'In cents.';

-- Nothing here refuses a second row of the same invoice, so that only the idempotency key stands between a
-- repeated request and a second charge. Outside of a demonstration, add UNIQUE (merchant, invoice).
CREATE TABLE payments (
    id         uuid        PRIMARY KEY,
    merchant   text        NOT NULL,
    invoice    text        NOT NULL,
    account    text        NOT NULL REFERENCES accounts,
    amount     bigint      NOT NULL CHECK (amount > 0),
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN payments.amount IS 'In cents.';
