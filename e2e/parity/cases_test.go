package parity

import (
	"maps"
	"slices"
)

type options = map[string]string

// parity is one configuration of both.
type parity struct {
	name, table string
	connector   options // converters, and what else is not the router's
	router      options // transforms.outbox.…
	walrelay    options
	stamped     bool // timestamps are those of a column
	spread      bool // the partition of a NULL key is random in Kafka Connect
	topics      []string
	differences []difference
	refused     bool      // walrelay does not start
	logged      [2]string // what Kafka Connect and walrelay have to write into their logs
}

const (
	stringConverter = "org.apache.kafka.connect.storage.StringConverter"
	bytesConverter  = "org.apache.kafka.connect.converters.ByteArrayConverter"
	jsonConverter   = "org.apache.kafka.connect.json.JsonConverter"
)

var (
	rawText  = options{"key.converter": stringConverter, "value.converter": stringConverter}
	rawBytes = options{"key.converter": stringConverter, "value.converter": bytesConverter}
	rawKey   = options{"key.converter": bytesConverter, "value.converter": stringConverter}
	plain    = options{
		"key.converter": jsonConverter, "key.converter.schemas.enable": "false",
		"value.converter": jsonConverter, "value.converter.schemas.enable": "false",
	}
	described = options{"key.converter": jsonConverter, "value.converter": jsonConverter}
)

var cases = []parity{
	{name: "raw", table: "outbox_json", connector: rawText, spread: true, differences: unrouted},
	{
		name: "raw_text", table: "outbox_text,outbox_more", connector: rawText, stamped: true,
		router: options{
			"table.fields.additional.placement": "n:partition,type:header:eventType", "table.field.event.timestamp": "at",
			"route.tombstone.on.empty.payload": "true",
		},
		walrelay: options{
			"WALRELAY_ADDITIONAL_COLUMNS": "n:partition,type:header:eventType", "WALRELAY_COLUMN_TIMESTAMP": "at",
			"WALRELAY_TOMBSTONE_ON_EMPTY": "true",
		},
	},
	{
		name: "raw_bytes", table: "outbox_bytea", connector: rawBytes, stamped: true, spread: true,
		router:   options{"table.field.event.timestamp": "at", "table.op.invalid.behavior": "error"},
		walrelay: options{"WALRELAY_COLUMN_TIMESTAMP": "at", "WALRELAY_ON_UPDATE": "error"},
		logged: [2]string{
			"ERROR EventRouterDelegate: Unexpected update", "an update of an outbox table is not published",
		},
	},
	{
		name: "headers", table: "outbox_types", connector: rawText, differences: inHeaders, spread: true,
		router:   options{"table.fields.additional.placement": placement("header")},
		walrelay: options{"WALRELAY_ADDITIONAL_COLUMNS": placement("header")},
	},
	{
		name: "missing", table: "outbox_text", connector: rawText,
		router: options{
			"table.fields.additional.placement": "none:header,type:header", "table.field.additional.missing": "ignore",
			"table.field.event.key": "type",
		},
		walrelay: options{
			"WALRELAY_ADDITIONAL_COLUMNS": "none:header,type:header", "WALRELAY_ADDITIONAL_MISSING": "ignore",
			"WALRELAY_COLUMN_KEY": "type",
		},
		spread: true,
	},
	{
		name: "fatal", table: "outbox_fatal", connector: with(rawText, "errors.tolerance", "none"),
		router:      options{"table.op.invalid.behavior": "fatal"},
		walrelay:    options{"WALRELAY_ON_UPDATE": "fatal"},
		logged:      [2]string{"Unexpected update message", "has an update in the log"},
		differences: []difference{{"behind the update", none, none}},
	},
	{
		name: "snapshot", table: "outbox_before", connector: with(rawText, "snapshot.mode", "initial"), stamped: true,
		router:   options{"table.field.event.timestamp": "at"},
		walrelay: options{"WALRELAY_COLUMN_TIMESTAMP": "at", "WALRELAY_BACKFILL": "true"},
	},
	{
		name: "message", table: "outbox_none",
		connector: with(plain, "transforms", "decode,outbox", "transforms.decode.type",
			"io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent",
			"message.prefix.include.list", "orders"),
		walrelay:    jsonFormats("json", "WALRELAY_EXPAND_JSON", "true", "WALRELAY_MESSAGE_PREFIX", "orders"),
		differences: []difference{{"message 6", none, `value=null`}},
	},
	{
		name: "tracing", table: "outbox_more", connector: rawText,
		router: options{
			"tracing.span.context.field": "tracingspancontext", "tracing.operation.name": "read",
			"tracing.with.context.field.only": "true",
		},
	},
	{
		name: "missing_error", table: "outbox_bytea", connector: with(rawBytes, "errors.log.enable", "true"),
		router:   options{"table.fields.additional.placement": "none:header"},
		walrelay: options{"WALRELAY_ADDITIONAL_COLUMNS": "none:header"},
		refused:  true, logged: [2]string{"none is not a valid field name", `has no column \"none\", which is mapped`},
		differences: missing,
	},
	{
		name: "raw_typed", table: "outbox_types", connector: rawText, spread: true,
		router:      options{"table.field.event.key": "clock3", "table.field.event.payload": "flag"},
		walrelay:    options{"WALRELAY_COLUMN_KEY": "clock3", "WALRELAY_COLUMN_PAYLOAD": "flag"},
		differences: rawTyped,
	},
	{
		name: "stamped", table: "outbox_types", connector: rawText, spread: true,
		router:      options{"table.field.event.timestamp": "big"},
		walrelay:    options{"WALRELAY_COLUMN_TIMESTAMP": "big"},
		differences: []difference{{"big/0", none, "value null"}, {"big/1", none, "value null"}},
	},
	{
		name: "routed", table: "outbox_text", connector: rawText, topics: []string{"ers-ord", "oices-inv"},
		router: options{
			"route.by.field": "aggregatetype", "route.topic.regex": "(?<head>ord|inv)(.*)",
			"route.topic.replacement": "PREFIX$2-${head}",
		},
		walrelay: options{
			"WALRELAY_TOPIC": "{aggregatetype}", "WALRELAY_TOPIC_REGEX": "(?<head>ord|inv)(.*)",
			"WALRELAY_TOPIC_REPLACEMENT": "PREFIX$2-${head}",
		},
	},
	{
		name: "json", table: "outbox_json", connector: plain, differences: unrouted,
		router:   options{"table.field.event.key": "ref"},
		walrelay: jsonFormats("json", "WALRELAY_COLUMN_KEY", "ref"),
	},
	{name: "json_text", table: "outbox_text", connector: plain, walrelay: jsonFormats("json")},
	{name: "json_bytes", table: "outbox_bytea", connector: plain, walrelay: jsonFormats("json")},
	{
		name: "expanded", table: "outbox_expand", connector: plain, differences: expanding,
		router:   options{"table.expand.json.payload": "true"},
		walrelay: jsonFormats("json", "WALRELAY_EXPAND_JSON", "true"),
	},
	{
		name: "expanded_all", table: "outbox_expand", connector: plain, differences: expanding,
		router: options{
			"table.expand.json.payload": "true", "table.json.payload.null.behavior": "optional_bytes",
			"route.tombstone.on.empty.payload": "true",
		},
		walrelay: jsonFormats("json", "WALRELAY_EXPAND_JSON", "true", "WALRELAY_EXPAND_NULLS", "true",
			"WALRELAY_TOMBSTONE_ON_EMPTY", "true"),
	},
	{
		name: "envelope", table: "outbox_types", connector: plain, differences: inEnvelopes,
		router:   options{"table.fields.additional.placement": placement("envelope", "at", "when it was")},
		walrelay: jsonFormats("json", "WALRELAY_ADDITIONAL_COLUMNS", placement("envelope", "at", "when it was")),
	},
	{
		name: "schema", table: "outbox_json", connector: described, differences: unrouted,
		router:   options{"table.field.event.key": "ref"},
		walrelay: jsonFormats("json-schema", "WALRELAY_COLUMN_KEY", "ref"),
	},
	{name: "schema_text", table: "outbox_text", connector: described, walrelay: jsonFormats("json-schema")},
	{name: "schema_bytes", table: "outbox_bytea", connector: described, walrelay: jsonFormats("json-schema")},
	{
		name: "schema_expanded", table: "outbox_expand", connector: described,
		differences: append(slices.Clone(expanding),
			difference{"[]", `{"schema":null,`, `{"schema":{"type":"string","optional":true},`}),
		router: options{
			"table.expand.json.payload": "true", "table.json.payload.null.behavior": "optional_bytes",
		},
		walrelay: jsonFormats("json-schema", "WALRELAY_EXPAND_JSON", "true", "WALRELAY_EXPAND_NULLS", "true"),
	},
	{
		name: "schema_envelope", table: "outbox_types", connector: described,
		differences: slices.Concat(inSchemas, inEnvelopes),
		router:      options{"table.fields.additional.placement": placement("envelope", "at", "when it was")},
		walrelay: jsonFormats("json-schema", "WALRELAY_ADDITIONAL_COLUMNS", placement("envelope", "at", "when it was"),
			"WALRELAY_SCHEMA_PREFIX", "schema_envelope"),
	},
	{
		name: "domains", table: "outbox_domain", connector: rawKey, spread: true,
		router:   options{"table.fields.additional.placement": domains("header")},
		walrelay: options{"WALRELAY_ADDITIONAL_COLUMNS": domains("header")},
	},
	{
		name: "domains_json", table: "outbox_domain", connector: plain,
		router:   options{"table.fields.additional.placement": domains("envelope")},
		walrelay: jsonFormats("json", "WALRELAY_ADDITIONAL_COLUMNS", domains("envelope")),
	},
	{
		name: "domains_schema", table: "outbox_domain", connector: described,
		router: options{"table.fields.additional.placement": domains("envelope")},
		walrelay: jsonFormats("json-schema", "WALRELAY_ADDITIONAL_COLUMNS", domains("envelope"),
			"WALRELAY_SCHEMA_PREFIX", "domains_schema"),
	},
	{
		name: "envelope_expanded", table: "outbox_expand", connector: described,
		differences: append(slices.Clone(expanding), difference{"[]", none, `{"payload":"[]"`}),
		router:      options{"table.expand.json.payload": "true", "table.fields.additional.placement": "type:envelope"},
		walrelay: jsonFormats("json-schema", "WALRELAY_EXPAND_JSON", "true", "WALRELAY_ADDITIONAL_COLUMNS", "type:envelope",
			"WALRELAY_SCHEMA_PREFIX", "envelope_expanded"),
	},
}

func jsonFormats(name string, more ...string) options {
	return with(options{"WALRELAY_KEY_FORMAT": name, "WALRELAY_VALUE_FORMAT": name}, more...)
}

// domains are the columns of outbox_domain.
func domains(place string) string {
	list := "type:" + place + ":eventType"
	for _, name := range []string{"n", "zoned", "double", "ref", "bin", "flag", "at", "day"} {
		list += "," + name + ":" + place
	}
	return list
}

// with adds pairs of names and values to options.
func with(o options, more ...string) options {
	o = maps.Clone(o)
	for i := 0; i < len(more); i += 2 {
		o[more[i]] = more[i+1]
	}
	return o
}
