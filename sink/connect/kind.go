package connect

// Kind is how the values of a column's type are held in Kafka Connect.
type Kind uint8

// The kinds. Types that are none of the others are Text: their text as PostgreSQL prints it.
const (
	Text      Kind = iota // string
	JSON                  // string, io.debezium.data.Json
	UUID                  // string, io.debezium.data.Uuid
	Zoned                 // timestamptz: string, io.debezium.time.ZonedTimestamp
	Bool                  // boolean
	Int16                 // int16
	Int32                 // int32
	Int64                 // int64
	Float32               // float
	Float64               // double
	Bytes                 // bytea: bytes
	Date                  // int32, io.debezium.time.Date: days since 1970
	Timestamp             // int64, io.debezium.time.MicroTimestamp: microseconds since 1970
)

// KindOf returns the kind of a type by its OID, see pg_type.dat. Debezium treats a domain as the type that it is over,
// so that one's OID is wanted.
func KindOf(oid uint32) Kind {
	switch oid {
	case 114, 3802:
		return JSON
	case 2950:
		return UUID
	case 1184:
		return Zoned
	case 16:
		return Bool
	case 21:
		return Int16
	case 23:
		return Int32
	case 20:
		return Int64
	case 700:
		return Float32
	case 701:
		return Float64
	case 17:
		return Bytes
	case 1082:
		return Date
	case 1114:
		return Timestamp
	}
	return Text
}

// schemaType is the type and the name of a kind's schema.
func (k Kind) schemaType() (kind, name string) {
	switch k {
	case JSON:
		return "string", "io.debezium.data.Json"
	case UUID:
		return "string", "io.debezium.data.Uuid"
	case Zoned:
		return "string", "io.debezium.time.ZonedTimestamp"
	case Bool:
		return "boolean", ""
	case Int16:
		return "int16", ""
	case Int32:
		return "int32", ""
	case Int64:
		return "int64", ""
	case Float32:
		return "float", ""
	case Float64:
		return "double", ""
	case Bytes:
		return "bytes", ""
	case Date:
		return "int32", "io.debezium.time.Date"
	case Timestamp:
		return "int64", "io.debezium.time.MicroTimestamp"
	default:
		return "string", ""
	}
}

// AppendSchema appends the schema of a column as JsonConverter writes it, without the brace that ends it, so that the
// name of a field may follow.
func (k Kind) AppendSchema(dst []byte, optional bool) []byte {
	kind, name := k.schemaType()
	dst = append(append(append(dst, `{"type":"`...), kind...), `","optional":`...)
	dst = appendBool(dst, optional)
	if name != "" {
		dst = append(append(append(dst, `,"name":"`...), name...), `","version":1`...)
	}
	return dst
}

func appendBool(dst []byte, b bool) []byte {
	if b {
		return append(dst, "true"...)
	}
	return append(dst, "false"...)
}
