-- +goose Up

CREATE SCHEMA IF NOT EXISTS walrelay_kit;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION walrelay_kit.envelope_value(value bytea) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN value IS NULL THEN '\xffffffff' ELSE int4send(octet_length(value)) || value END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION walrelay_kit.envelope_value(bytea) IS
    'A value of the binary envelope of logical messages: its length and its bytes; NULL is length -1.';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION walrelay_kit.envelope_pairs(pairs jsonb) RETURNS bytea
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
        SELECT int2send(count(*)::int2) || coalesce(string_agg(
            walrelay_kit.envelope_value(convert_to(key, 'UTF8'))
                || walrelay_kit.envelope_value(convert_to(value, 'UTF8')), ''::bytea ORDER BY key), ''::bytea)
        FROM jsonb_each_text(coalesce(pairs, '{}'))
    $$;
-- +goose StatementEnd
COMMENT ON FUNCTION walrelay_kit.envelope_pairs(jsonb) IS
    'Pairs of the binary envelope of logical messages: the members of a JSON object, their values as text.';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION walrelay_kit.emit(
    prefix text, route jsonb, key text, type text, payload bytea, headers jsonb DEFAULT NULL,
    id text DEFAULT gen_random_uuid()::text, occurred_at timestamptz DEFAULT NULL
) RETURNS text
    LANGUAGE sql VOLATILE
    AS $$
        SELECT id FROM pg_logical_emit_message(true, prefix, '\x01'::bytea
            || walrelay_kit.envelope_value(convert_to(id, 'UTF8'))
            || walrelay_kit.envelope_pairs(route)
            || walrelay_kit.envelope_value(convert_to(key, 'UTF8'))
            || walrelay_kit.envelope_value(convert_to(type, 'UTF8'))
            || walrelay_kit.envelope_value(int8send(floor(extract(epoch FROM occurred_at) * 1000)::bigint))
            || walrelay_kit.envelope_pairs(headers)
            || walrelay_kit.envelope_value(payload))
    $$;
-- +goose StatementEnd
COMMENT ON FUNCTION walrelay_kit.emit(text, jsonb, text, text, bytea, jsonb, text, timestamptz) IS
    'Emits an event as a logical message with the binary envelope; returns its id. route: the fields of WALRELAY_TOPIC.';
