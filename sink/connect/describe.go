package connect

import "strconv"

// named is the type and the name of a kind's schema.
func (k Kind) named() (kind, name string) {
	switch k {
	case JSON:
		return "string", "io.debezium.data.Json"
	case UUID:
		return "string", "io.debezium.data.Uuid"
	case XML:
		return "string", "io.debezium.data.Xml"
	case Words:
		return "string", "io.debezium.data.Tsvector"
	case Zoned:
		return "string", "io.debezium.time.ZonedTimestamp"
	case ZonedTime:
		return "string", "io.debezium.time.ZonedTime"
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
	case Decimal:
		return "bytes", "org.apache.kafka.connect.data.Decimal"
	case FreeDecimal:
		return "struct", "io.debezium.data.VariableScaleDecimal"
	case Date:
		return "int32", "io.debezium.time.Date"
	case Timestamp:
		return "int64", "io.debezium.time.MicroTimestamp"
	case MilliTimestamp:
		return "int64", "io.debezium.time.Timestamp"
	case Time:
		return "int64", "io.debezium.time.MicroTime"
	case MilliTime:
		return "int32", "io.debezium.time.Time"
	case Duration:
		return "int64", "io.debezium.time.MicroDuration"
	case Array:
		return "array", ""
	default:
		return "string", ""
	}
}

// AppendSchema appends the schema of a column as JsonConverter writes it, without the brace that ends it, so that the
// name of a field may follow.
func (t Type) AppendSchema(dst []byte, optional bool) []byte {
	kind, name := t.Kind.named()
	dst = append(append(append(dst, `{"type":"`...), kind...), '"')
	switch t.Kind {
	case Array:
		dst = append(t.Item.AppendSchema(append(dst, `,"items":`...), true), '}')
	case FreeDecimal:
		dst = append(dst, `,"fields":[{"type":"int32","optional":false,"field":"scale"},`...)
		dst = append(dst, `{"type":"bytes","optional":false,"field":"value"}]`...)
	default:
	}
	dst = appendBool(append(dst, `,"optional":`...), optional)
	if name != "" {
		dst = append(append(append(dst, `,"name":"`...), name...), `","version":1`...)
	}
	switch t.Kind {
	case Decimal:
		dst = strconv.AppendInt(append(dst, `,"parameters":{"scale":"`...), int64(t.Scale), 10)
		dst = strconv.AppendInt(append(dst, `","connect.decimal.precision":"`...), int64(t.Precision), 10)
		dst = append(dst, `"}`...)
	case FreeDecimal:
		dst = append(dst, `,"doc":"Variable scaled decimal"`...)
	default:
	}
	return dst
}

func appendBool(dst []byte, b bool) []byte {
	if b {
		return append(dst, "true"...)
	}
	return append(dst, "false"...)
}
