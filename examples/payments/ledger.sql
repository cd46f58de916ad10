-- The database that the consumer writes to. `walrelay migrate up --kit` adds the inbox.

-- Nothing here refuses a second entry of the same payment, so that only the inbox stands between a repeated
-- record and a second entry. Outside of a demonstration, make payment the primary key.
CREATE TABLE entries (
    payment   uuid        NOT NULL,
    merchant  text        NOT NULL,
    amount    bigint      NOT NULL CHECK (amount > 0),
    booked_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN entries.amount IS 'In cents.';

CREATE TABLE merchants (
    id    text   PRIMARY KEY,
    total bigint NOT NULL
);
COMMENT ON COLUMN merchants.total IS 'What the merchant has been paid, in cents: the sum of its entries.';
