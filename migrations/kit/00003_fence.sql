-- +goose Up

CREATE SCHEMA IF NOT EXISTS walrelay_kit;

CREATE TABLE IF NOT EXISTS walrelay_kit.fences (
    resource          text        PRIMARY KEY,
    system_identifier bigint      NOT NULL,
    timeline          bigint      NOT NULL,
    term_offset       bigint      NOT NULL DEFAULT 0,
    counter           bigint      NOT NULL CHECK (counter BETWEEN 0 AND 1099511627775),
    holder            text,
    expires_at        timestamptz,
    updated_at        timestamptz NOT NULL DEFAULT now(),
    CHECK (timeline + term_offset BETWEEN 0 AND 8388607)
) WITH (fillfactor = 50);
COMMENT ON TABLE walrelay_kit.fences IS
    'Fencing tokens and leases: one row for each resource, one that only its highest token may write to.';
COMMENT ON COLUMN walrelay_kit.fences.resource IS
    'Name of what is guarded. The row with the empty name holds the highest counter of removed rows.';
COMMENT ON COLUMN walrelay_kit.fences.system_identifier IS
    'The database cluster that gave the last token; another one (restored dump, upgrade) raises the term.';
COMMENT ON COLUMN walrelay_kit.fences.timeline IS
    'Timeline of the server when it gave the last token; grows with each promotion.';
COMMENT ON COLUMN walrelay_kit.fences.term_offset IS
    'Term of the token = timeline + term_offset; 0 until the timeline has gone back, as after an upgrade.';
COMMENT ON COLUMN walrelay_kit.fences.counter IS
    'Second part of the last token; grows by one with each.';
COMMENT ON COLUMN walrelay_kit.fences.holder IS
    'Who holds the lease, for people to read; NULL: nobody.';
COMMENT ON COLUMN walrelay_kit.fences.expires_at IS
    'When the lease ends unless it is renewed, on the server''s clock.';
COMMENT ON COLUMN walrelay_kit.fences.updated_at IS
    'When this row was last written.';

INSERT INTO walrelay_kit.fences (resource, system_identifier, timeline, counter)
VALUES ('', 0, 0, 0) ON CONFLICT (resource) DO NOTHING;

CREATE TABLE IF NOT EXISTS walrelay_kit.fence_marks (
    resource   text        PRIMARY KEY,
    mark       bigint      NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
COMMENT ON TABLE walrelay_kit.fence_marks IS
    'Highest fencing token that each resource has accepted, where its own rows have no column for it.';
COMMENT ON COLUMN walrelay_kit.fence_marks.resource IS
    'Name of the resource.';
COMMENT ON COLUMN walrelay_kit.fence_marks.mark IS
    'Highest token accepted; smaller ones come from holders that were replaced.';
COMMENT ON COLUMN walrelay_kit.fence_marks.updated_at IS
    'When this row was last written.';
