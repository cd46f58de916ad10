package main

// Settings declares every setting of walrelay, once: the field's name (or name tag) gives the flag
// --kafka-brokers and the variable WALRELAY_KAFKA_BROKERS, the tags its default, unit, choices, help
// and group. Secrets are fields of type Secret; each has a sibling that names a file.
//
//nolint:lll // a struct tag cannot be broken over lines
type Settings struct {
	DatabaseURL     Secret `group:"Database" help:"PostgreSQL URL or keyword string; several hosts are tried in order. Unset: PGHOST, PGSERVICE and the other PG* variables."`
	DatabaseURLFile Text   `group:"Database" help:"File that holds the database URL, read at every connection."`

	Stream       Text `group:"Stream" help:"Name of the stream, carried by every record. Unset: the slot's name."`
	Slot         Text `group:"Stream" default:"walrelay" help:"Replication slot: up to 63 of a-z, 0-9 and _. It is also the lock: one instance streams, others stand by."`
	SlotFailover Bool `group:"Stream" default:"false" help:"Create the slot so that standbys can take it over (PostgreSQL 17 and later)."`
	Backfill     Bool `group:"Stream" default:"false" help:"When the slot is created, first publish the rows that are in the tables already, as a replay named backfill."`
	Publication  Text `group:"Stream" default:"walrelay" help:"Publication that the slot reads, named as in the catalog, without quotes."`

	Tables            Tables `group:"Tables" default:"public.outbox" help:"Outbox tables, comma-separated SQL names: double quotes where SQL needs them; without a schema: public."`
	ColumnID          Text   `group:"Tables" default:"id" help:"Column of the event id, unique and not NULL. Columns are named as in the catalog, without quotes."`
	ColumnKey         Text   `group:"Tables" default:"aggregateid" help:"Column of the record key, whose bytes are sent if it is bytea and else its text; events of a key stay in order."`
	KeyTemplate       Text   `group:"Tables" help:"Record key made of several columns, in place of WALRELAY_COLUMN_KEY: {tenant}:{order}. A column that is NULL there makes the event undeliverable."`
	ColumnType        Text   `group:"Tables" default:"type" help:"Column of the event type, sent as a header if the table has it. Empty: none."`
	ColumnPayload     Text   `group:"Tables" default:"payload" help:"Column of the record value, sent byte for byte, likewise."`
	ColumnHeaders     Text   `group:"Tables" default:"headers" help:"JSON column of further headers, if the table has it. Empty: none."`
	ColumnTimestamp   Text   `group:"Tables" help:"Column of the record timestamp. Unset: the commit time."`
	ColumnTraceparent Text   `group:"Tables" default:"traceparent" help:"Column of the W3C trace context, sent as a header if the table has it. Empty: none."`
	ColumnTracestate  Text   `group:"Tables" default:"tracestate" help:"Column of the W3C trace state, sent as a header if the table has it. Empty: none."`

	ColumnTracingspancontext Text `group:"Tables" default:"tracingspancontext" help:"Column of a span context as Debezium has it: a text of java.util.Properties, whose entries are sent as headers if the table has it. Empty: none."`

	TableColumns TableColumns `group:"Tables" help:"Columns of single tables where they have other names, as table: part=column, ...; table: ...: audit.events: id=no, key=subject, {aggregatetype}=kind. Parts are id, key, payload, type, headers, timestamp, traceparent, tracestate, tracingspancontext and the fields of the topic template in braces; and key_template and topic, templates of the table's own, see wire-format.md; and retention, in place of WALRELAY_RETENTION_COLUMN. An optional part may be empty: none."`
	OnUpdate     Choice       `group:"Tables" default:"ignore" choices:"ignore,warn,error,fatal" help:"What an UPDATE of an outbox table calls for, if the publication publishes it; it is never published: nothing but a count, a line in the log at each, or the end of the stream."`

	MessagePrefix           Text   `group:"Messages" help:"Prefix of the logical messages that are events, exactly: pg_logical_emit_message(true, prefix, content), with a JSON envelope, see wire-format.md. Unset: none are. Messages of other prefixes are ignored."`
	MessageBinaryPrefix     Text   `group:"Messages" help:"The same for messages with the binary envelope, whose payload may be any bytes. Both may be set. Unset: none are."`
	MessageNontransactional Choice `group:"Messages" default:"ignore" choices:"ignore,refuse" help:"Messages of these prefixes outside of a transaction, which come even if it is rolled back, are never events. ignore: they are counted, and the log warns once. refuse: each is also logged and recorded as a skipped dead letter. The stream goes on."`

	Retention       Duration `group:"Retention" default:"0s" help:"Age from which rows of the outbox tables are deleted, once their events are confirmed; see operations.md. 0: never."`
	RetentionColumn Text     `group:"Retention" default:"created_at" help:"Column of the time of the insert, by which a row's age is told and rows are replayed: timestamptz, timestamp (read as UTC) or date. A table's own: WALRELAY_TABLE_COLUMNS."`

	WALBudget       Size   `name:"wal-budget" group:"Write-ahead log" help:"Write-ahead log that the server may keep for the slot, looked at while an instance streams; see operations.md. Unset: no limit."`
	WALBudgetAction Choice `name:"wal-budget-action" group:"Write-ahead log" default:"alert" choices:"alert,pause-others,drop-slot" help:"Beyond the budget: say so; or pause the streams of WALRELAY_WAL_BUDGET_PAUSE until half of it is free; or DROP THE SLOT and end, which loses events to the stream."`
	WALBudgetPause  Text   `name:"wal-budget-pause" group:"Write-ahead log" help:"Streams of lesser value that pause-others pauses, comma-separated."`

	Topic               Text   `group:"Topics" default:"outbox.event.{aggregatetype}" help:"Topic of an event; {column} stands for that column's value."`
	TopicMap            Topics `group:"Topics" help:"Other topics in place of those that the template makes, as from=topic, comma-separated: orders=shop.orders.v2. What stands before = need not be a legal name."`
	TopicByType         Topics `group:"Topics" help:"Topics of event types, whatever template and map say, as type=topic, comma-separated."`
	TopicInvalid        Choice `group:"Topics" default:"refuse" choices:"refuse,replace" help:"What becomes of an event whose topic would have a character other than letters, digits, '.', '_' and '-': it is undeliverable, or each is replaced by '_', counted by walrelay_renamed_events_total."`
	TopicRegex          Text   `group:"Topics" help:"Regular expression for the name that WALRELAY_TOPIC yields; one that matches as a whole is replaced. Unset: none is."`
	TopicReplacement    Text   `group:"Topics" help:"What replaces it, in the syntax of java.util.regex: $ and a number, or $ and a name in braces, stand for groups of the expression."`
	CreateTopics        Bool   `group:"Topics" default:"false" help:"Create topics that do not exist."`
	TopicPartitions     Int    `group:"Topics" default:"0" unit:"partitions" help:"Partitions of a created topic; 0: the brokers' default."`
	TopicReplication    Int    `group:"Topics" default:"0" unit:"replicas" help:"Replicas of a created topic; 0: the brokers' default."`
	OnPoison            Choice `group:"Topics" default:"stop" choices:"stop,dead-letter,skip" help:"What becomes of an event that cannot be delivered: the stream stops and waits for a verdict, the event goes to the dead-letter topic, or it is logged and dropped."`
	DeadLetterTopic     Text   `group:"Topics" default:"walrelay.dead-letters" help:"Topic of dead letters."`
	DeadLetterFollowKey Bool   `group:"Topics" default:"false" help:"Send later events of a dead-lettered key to the dead-letter topic too, which keeps order within the key."`

	Format                 Choice `group:"Records" default:"raw" choices:"raw,cloudevents-binary,cloudevents-structured" help:"Format of records: the payload as it is, or CloudEvents 1.0, with its attributes in headers ce_* or with attributes and payload in one JSON document."`
	CloudeventsSource      Text   `group:"Records" help:"CloudEvents: attribute source, a URI reference. Unset: /walrelay/ and the stream's name."`
	CloudeventsContentType Text   `group:"Records" default:"application/json" help:"CloudEvents: media type of the payload. In structured mode JSON is embedded, and what is not JSON undeliverable; any other is embedded in base64."`

	TransactionHeaders Bool `group:"Records" default:"false" help:"Tell every event's transaction, its index there, and on the last one the number of events, in headers walrelay-transaction-*; see wire-format.md."`

	KeyFormat         Choice     `group:"Records" default:"raw" choices:"raw,json,json-schema" help:"Format of the key: the column's bytes, or as Kafka Connect's JsonConverter has it, without schemas or with them. It and those that follow: see migrating-from-debezium.md."`
	ValueFormat       Choice     `group:"Records" default:"raw" choices:"raw,json,json-schema" help:"Format of the value, likewise: json makes a JSON string of a payload that is text, json or jsonb."`
	ExpandJSON        Bool       `name:"expand-json" group:"Records" default:"false" help:"Make JSON of a payload that is the text of a JSON object, instead of a string: compact, without null members and empty arrays. What cannot be expanded stays a string."`
	ExpandNulls       Bool       `group:"Records" default:"false" help:"Keep members that are null when expanding."`
	ExpandEmptyArrays Bool       `group:"Records" default:"false" help:"Keep members that are empty arrays when expanding."`
	TombstoneOnEmpty  Bool       `group:"Records" default:"false" help:"Send a null value for a payload that is NULL or blank, in every format but cloudevents-structured, and instead of an envelope."`
	AdditionalColumns Additional `group:"Records" help:"Further columns, comma-separated: column:header, column:envelope or column:partition, with :name behind it for another name. Any in the envelope makes the value an object of payload and these. Rows of tables only."`
	AdditionalMissing Choice     `group:"Records" default:"error" choices:"error,ignore" help:"What a table that lacks an additional column makes of its events: none that can be delivered, or records without."`
	SchemaPrefix      Text       `group:"Records" default:"walrelay" help:"First part of the name that an envelope has in its schema; Debezium's topic.prefix."`

	KafkaBrokers        Brokers  `group:"Delivery" help:"Brokers to ask for the cluster, comma-separated host:port. Required."`
	KafkaClientID       Text     `group:"Delivery" default:"walrelay" help:"Client id shown in the brokers' logs and quotas."`
	Delivery            Choice   `group:"Delivery" default:"at-least-once" choices:"at-least-once,exactly-once" help:"Delivery promise. exactly-once: events and the position reached are written in Kafka transactions, for read_committed consumers. Stop every instance before changing it."`
	TransactionInterval Duration `group:"Delivery" default:"100ms" help:"exactly-once: time over which events are gathered into one Kafka transaction."`
	TransactionTimeout  Duration `group:"Delivery" default:"60s" help:"exactly-once: time after which the brokers end a transaction that walrelay has left; at most their transaction.max.timeout.ms."`
	StateTopic          Text     `group:"Delivery" default:"walrelay.state" help:"exactly-once: compacted topic of the positions reached; several streams may share it."`
	Compression         Choice   `group:"Delivery" default:"none" choices:"none,gzip,snappy,lz4,zstd" help:"Compression of batches."`
	BatchBytes          Size     `group:"Delivery" default:"1000000" help:"Uncompressed bytes of one partition's batch; at most the topic's max.message.bytes."`
	ProduceTimeout      Duration `group:"Delivery" default:"10s" help:"Time a broker may take to replicate and acknowledge a batch; then it is sent again."`
	BackoffMin          Duration `group:"Delivery" default:"100ms" help:"First pause before trying again; doubled at each failure."`
	BackoffMax          Duration `group:"Delivery" default:"30s" help:"Longest pause before trying again."`

	InFlightEvents  Int      `group:"Limits" default:"65536" unit:"events" help:"Events read but not yet acknowledged; reading waits at the limit."`
	InFlightBytes   Size     `group:"Limits" help:"Bytes of events read but not yet acknowledged; reading waits at the limit. Unset: 2MiB, in exactly-once delivery 8MiB."`
	MaxMessageBytes Size     `group:"Limits" default:"128MiB" help:"Largest single replication message (one row, or one logical message of any prefix) that is accepted."`
	StatusInterval  Duration `group:"Limits" default:"1s" help:"Interval of status reports to PostgreSQL and of checks of slot and publication."`
	ReceiveTimeout  Duration `group:"Limits" default:"60s" help:"Silence after which the database connection counts as dead."`
	ShutdownTimeout Duration `group:"Limits" default:"20s" help:"Time to wait for acknowledgements when stopping."`

	KafkaTLS           Bool   `name:"kafka-tls" group:"Kafka security" default:"false" help:"Connect to the brokers by TLS."`
	KafkaTLSCAFile     Text   `name:"kafka-tls-ca-file" group:"Kafka security" help:"PEM file of the authorities to trust. Unset: the system's."`
	KafkaTLSCertFile   Text   `name:"kafka-tls-cert-file" group:"Kafka security" help:"PEM file of the client certificate."`
	KafkaTLSKeyFile    Text   `name:"kafka-tls-key-file" group:"Kafka security" help:"PEM file of the client certificate's key."`
	KafkaTLSServerName Text   `name:"kafka-tls-server-name" group:"Kafka security" help:"Name that the brokers' certificates must have. Unset: the broker's host."`
	KafkaSASLMechanism Choice `name:"kafka-sasl-mechanism" group:"Kafka security" choices:",PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER,AWS_MSK_IAM" help:"How to log in to the brokers. Empty: not at all."`
	KafkaSASLUsername  Text   `name:"kafka-sasl-username" group:"Kafka security" help:"User name at the brokers, for PLAIN and SCRAM."`

	KafkaSASLPassword     Secret `name:"kafka-sasl-password" group:"Kafka security" help:"Password at the brokers, for PLAIN and SCRAM."`
	KafkaSASLPasswordFile Text   `name:"kafka-sasl-password-file" group:"Kafka security" help:"File that holds the password, read at every connection."`

	KafkaOAuthTokenURL         Text       `name:"kafka-oauth-token-url" group:"Kafka security" help:"OAUTHBEARER: endpoint that grants tokens for client credentials."`
	KafkaOAuthClientID         Text       `name:"kafka-oauth-client-id" group:"Kafka security" help:"OAUTHBEARER: client id at that endpoint."`
	KafkaOAuthClientSecret     Secret     `name:"kafka-oauth-client-secret" group:"Kafka security" help:"OAUTHBEARER: client secret at that endpoint."`
	KafkaOAuthClientSecretFile Text       `name:"kafka-oauth-client-secret-file" group:"Kafka security" help:"File that holds the client secret, read for every token."`
	KafkaOAuthScopes           Text       `name:"kafka-oauth-scopes" group:"Kafka security" help:"OAUTHBEARER: scopes to ask for, separated by spaces."`
	KafkaOAuthAudience         Text       `name:"kafka-oauth-audience" group:"Kafka security" help:"OAUTHBEARER: audience to ask for, where the endpoint takes that parameter."`
	KafkaOAuthExtensions       Extensions `name:"kafka-oauth-extensions" group:"Kafka security" help:"OAUTHBEARER: SASL extensions for the brokers, as name=value, comma-separated."`

	KafkaMSKRegion Text `name:"kafka-msk-region" group:"Kafka security" help:"AWS_MSK_IAM: region of the cluster."`
	KafkaMSKRole   Text `name:"kafka-msk-role" group:"Kafka security" help:"AWS_MSK_IAM: ARN of a role to assume. Unset: the identity of the AWS SDK's default chain."`

	AdminAddr       Text     `group:"Operation" default:":8080" help:"Address of the status page and of /metrics, /livez, /readyz, /status and /status/history. Empty: no admin server."`
	AdminToken      Secret   `group:"Operation" help:"Token that requests to the admin server must bear (Authorization: Bearer …), at least 16 characters; only /livez, the verdict of /readyz and the empty page are open without. Unset: everything is open."`
	AdminTokenFile  Text     `group:"Operation" help:"File that holds the admin token, read at every request."`
	ProgressTimeout Duration `group:"Operation" default:"60s" help:"Time that the oldest event may wait for its acknowledgement, and what is delivered for its confirmation, before /readyz answers 503."`
	LogLevel        Choice   `group:"Operation" default:"info" choices:"debug,info,warn,error" help:"Least severe level that is logged."`
	LogFormat       Choice   `group:"Operation" default:"json" choices:"json,console" help:"Format of the log on standard error."`
	Traces          Choice   `group:"Operation" default:"none" choices:"none,otlp" help:"otlp: export an OpenTelemetry span for each batch of records, to where the variables OTEL_* say; see operations.md."`
}

// StreamName is the stream's name: the slot's, unless it has its own.
func (s *Settings) StreamName() string {
	if s.Stream.Text != "" {
		return s.Stream.Text
	}
	return s.Slot.Text
}
