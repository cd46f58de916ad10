package sink

import "encoding/binary"

// partitionOf is the partition that Kafka's Java client gives a key: murmur2 of the bytes, made
// positive, modulo the count (org.apache.kafka.clients.producer.internals.BuiltInPartitioner).
// It is a pure function of the key and the count, which the position fence depends on.
func partitionOf(key []byte, count int32) int32 {
	return int32(murmur2(key)&0x7fffffff) % count
}

// murmur2 is org.apache.kafka.common.utils.Utils.murmur2.
func murmur2(data []byte) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
	)
	h := uint32(seed) ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := binary.LittleEndian.Uint32(data)
		k *= m
		k ^= k >> 24
		k *= m
		h = h*m ^ k
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(data[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}
