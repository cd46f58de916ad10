-- +goose Up

-- The outbox: an application inserts a row here in the transaction of its business change. The
-- columns are those that Debezium's event router expects by default, plus headers and created_at.
-- A table of this name that exists already is left as it is.
-- +goose StatementBegin
DO $$
BEGIN
    IF to_regclass('public.outbox') IS NOT NULL THEN
        RETURN;
    END IF;

    CREATE TABLE public.outbox (
        id            uuid         PRIMARY KEY DEFAULT gen_random_uuid(),
        aggregatetype varchar(255) NOT NULL,
        aggregateid   varchar(255) NOT NULL,
        type          varchar(255) NOT NULL,
        payload       jsonb,
        headers       jsonb,
        created_at    timestamptz  NOT NULL DEFAULT now()
    );

    COMMENT ON TABLE public.outbox IS
        'Events for Kafka. Only inserts are published, so rows may be deleted at any time.';
    COMMENT ON COLUMN public.outbox.id IS
        'Identifies the event, for consumers that drop duplicates by id.';
    COMMENT ON COLUMN public.outbox.aggregatetype IS
        'Kind of thing that the event is about; names the topic, by default outbox.event.{aggregatetype}.';
    COMMENT ON COLUMN public.outbox.aggregateid IS
        'The thing itself; key of the record, so that its events keep their order.';
    COMMENT ON COLUMN public.outbox.type IS
        'What happened; sent as a header.';
    COMMENT ON COLUMN public.outbox.payload IS
        'Value of the record, sent as PostgreSQL prints it; NULL makes a tombstone.';
    COMMENT ON COLUMN public.outbox.headers IS
        'Further headers of the record: an object whose members become one header each.';
    COMMENT ON COLUMN public.outbox.created_at IS
        'When the row was inserted, on the server''s clock. For housekeeping; events are ordered by commit.';
END
$$;
-- +goose StatementEnd

-- The publication must be committed before the replication slot is created: up to PostgreSQL 17 a
-- slot that meets rows older than its publication fails for good, from 18 on it skips them silently.
-- Inserts only: publishing deletes too would forbid them on a table without replica identity.
-- publish_via_partition_root makes a partitioned outbox appear under its own name.
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = 'walrelay') THEN
        RETURN;
    END IF;

    CREATE PUBLICATION walrelay FOR TABLE public.outbox
        WITH (publish = 'insert', publish_via_partition_root = true);
END
$$;
-- +goose StatementEnd
