package connect

import "bytes"

// Kind is how the values of a column's type are held in Kafka Connect.
type Kind uint8

// The kinds. Types that are none of the others are Text: their text as PostgreSQL prints it.
const (
	Text           Kind = iota // string
	JSON                       // string, io.debezium.data.Json
	UUID                       // string, io.debezium.data.Uuid
	Zoned                      // timestamptz: string, io.debezium.time.ZonedTimestamp
	ZonedTime                  // timetz: string, io.debezium.time.ZonedTime
	XML                        // string, io.debezium.data.Xml
	Words                      // tsvector: string, io.debezium.data.Tsvector
	Bool                       // boolean
	Int16                      // int16
	Int32                      // int32
	Int64                      // int64
	Float32                    // float
	Float64                    // double
	Bytes                      // bytea: bytes
	Date                       // int32, io.debezium.time.Date: days since 1970
	Timestamp                  // int64, io.debezium.time.MicroTimestamp: microseconds since 1970
	MilliTimestamp             // int64, io.debezium.time.Timestamp: milliseconds since 1970
	Time                       // int64, io.debezium.time.MicroTime: microseconds since midnight
	MilliTime                  // int32, io.debezium.time.Time: milliseconds since midnight
	Duration                   // interval: int64, io.debezium.time.MicroDuration: microseconds
	Decimal                    // numeric(p,s): bytes, org.apache.kafka.connect.data.Decimal
	FreeDecimal                // numeric: struct, io.debezium.data.VariableScaleDecimal
	Array                      // array
)

// Type is a column's type as Kafka Connect holds its values. The zero value is text.
type Type struct {
	Kind Kind
	// Precision and Scale are those of a Decimal, in digits. Scale is that of a Zoned, in digits of a second, too.
	Precision, Scale int
	// Item is the type of an Array's items.
	Item *Type
}

// TypeOf returns the type of a column by the OID of its type, see pg_type.dat, and its modifier, which is below 0 when
// there is none. Debezium treats a domain as the type that it is over, so that one's OID is wanted.
func TypeOf(oid uint32, modifier int32) Type {
	if item, ok := itemTypes(oid); ok {
		t := TypeOf(item, modifier)
		return Type{Kind: Array, Item: &t}
	}
	switch oid {
	case 1114:
		return Type{Kind: byPrecision(modifier, MilliTimestamp, Timestamp)}
	case 1083:
		return Type{Kind: byPrecision(modifier, MilliTime, Time)}
	case 1184:
		return Type{Kind: Zoned, Scale: secondDigits(modifier)}
	case 1700:
		return numeric(modifier)
	}
	return Type{Kind: kindOf(oid)}
}

func kindOf(oid uint32) Kind {
	switch oid {
	case 114, 3802:
		return JSON
	case 142:
		return XML
	case 3614:
		return Words
	case 2950:
		return UUID
	case 1266:
		return ZonedTime
	case 16:
		return Bool
	case 21:
		return Int16
	case 23:
		return Int32
	case 20, 26: // oid too
		return Int64
	case 700:
		return Float32
	case 701:
		return Float64
	case 17:
		return Bytes
	case 1082:
		return Date
	case 1186:
		return Duration
	}
	return Text
}

// itemTypes maps the OID of an array's type to that of its items, of those that Debezium holds as arrays.
func itemTypes(oid uint32) (item uint32, ok bool) {
	switch oid {
	case 1005:
		return 21, true
	case 1007:
		return 23, true
	case 1016:
		return 20, true
	case 1028:
		return 26, true
	case 1002, 1009, 1014, 1015: // char, text, bpchar, varchar
		return 25, true
	case 1021:
		return 700, true
	case 1022:
		return 701, true
	case 1000:
		return 16, true
	case 2951:
		return 2950, true
	case 199, 3807:
		return 114, true
	case 1182:
		return 1082, true
	case 1231:
		return 1700, true
	case 1115:
		return 1114, true
	case 1185:
		return 1184, true
	case 1001:
		return 17, true
	}
	return 0, false
}

// secondDigits is the modifier of a type of times.
func secondDigits(modifier int32) int {
	if modifier < 0 {
		return 6
	}
	return int(modifier)
}

// byPrecision chooses by time.precision.mode=adaptive.
func byPrecision(modifier int32, milli, micro Kind) Kind {
	if secondDigits(modifier) <= 3 {
		return milli
	}
	return micro
}

// numeric reads the modifier of a numeric, see make_numeric_typmod.
func numeric(modifier int32) Type {
	const header = 4
	if modifier < header {
		return Type{Kind: FreeDecimal}
	}
	scale := int(modifier-header) & 0x7ff
	if scale >= 1<<10 {
		scale -= 1 << 11
	}
	return Type{Kind: Decimal, Precision: int(modifier-header) >> 16, Scale: scale}
}

// IsString says that values are strings there.
func (t Type) IsString() bool { return t.Kind <= Words }

// IsNull says that a value is null there: of a numeric, what is no number.
func (t Type) IsNull(text []byte) bool {
	if text == nil {
		return true
	}
	return (t.Kind == Decimal || t.Kind == FreeDecimal) && !bytes.ContainsAny(text, "0123456789")
}
