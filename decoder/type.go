package decoder

// decodeType reads what the server says of a type that is not one of its own, before each description of a relation
// that has a column of it. It names a domain by the type at the bottom of it, so no catalog has to be asked:
// logicalrep_write_typ in src/backend/replication/logical/proto.c.
func (d *Decoder) decodeType(r *reader) Kind {
	oid := r.uint32()
	schema, name := r.string(), r.string()
	// Dropped types leave their OIDs to others.
	delete(d.domains, oid)
	if base := builtIn(name); schema == "" && base != 0 { // pg_catalog is sent as an empty string
		d.domains[oid] = base
	}
	return KindType
}

// baseType is what Column.Type is for a column of the type.
func (d *Decoder) baseType(oid uint32) uint32 {
	if base, ok := d.domains[oid]; ok {
		return base
	}
	return oid
}

// byteaOID is the type OID of bytea.
const byteaOID = 17

// builtIn returns the OID of a type of pg_catalog whose text is not simply handed on by everyone, see pg_type.dat; 0
// for any other.
func builtIn(name string) uint32 {
	switch name {
	case "bool":
		return 16
	case "bytea":
		return byteaOID
	case "int8":
		return 20
	case "int2":
		return 21
	case "int4":
		return 23
	case "json":
		return 114
	case "float4":
		return 700
	case "float8":
		return 701
	case "date":
		return 1082
	case "timestamp":
		return 1114
	case "timestamptz":
		return 1184
	case "uuid":
		return 2950
	case "jsonb":
		return 3802
	default:
		return 0
	}
}
