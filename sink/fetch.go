package sink

import (
	"encoding/binary"

	"github.com/IBM/sarama"
)

// fetchBytes limits one fetch.
const fetchBytes = 4 << 20

// fetchOffset asks the leader of a partition for its oldest offset, or for the one behind its newest.
func fetchOffset(
	b *sarama.Broker, version sarama.KafkaVersion, topic string, partition int32, which int64,
) (int64, error) {
	req := sarama.NewOffsetRequest(version)
	req.AddBlock(topic, partition, which, 1)
	res, err := b.GetAvailableOffsets(req)
	if err != nil {
		return 0, err
	}
	block := res.GetBlock(topic, partition)
	if block == nil {
		return 0, sarama.ErrIncompleteResponse
	}
	return block.Offset, answered(block.Err)
}

// fetchRecords reads from an offset on, committed or not: the batch that holds it, whatever its size, and more up to
// most bytes.
func fetchRecords(
	b *sarama.Broker, topic string, partition int32, offset int64, most int32,
) (*sarama.FetchResponseBlock, error) {
	req := &sarama.FetchRequest{Version: 11, MaxBytes: most, SessionEpoch: -1}
	req.AddBlock(topic, partition, offset, most, -1)
	res, err := b.Fetch(req)
	if err != nil {
		return nil, err
	}
	block := res.GetBlock(topic, partition)
	if block == nil {
		return nil, sarama.ErrIncompleteResponse
	}
	return block, answered(block.Err)
}

// commits reports whether a control batch is the marker of a commit.
func commits(b *sarama.RecordBatch) bool {
	const commit = 1
	return len(b.Records) == 1 && len(b.Records[0].Key) >= 4 && binary.BigEndian.Uint16(b.Records[0].Key[2:]) == commit
}

func batches(block *sarama.FetchResponseBlock) (all []*sarama.RecordBatch) {
	for _, set := range block.RecordsSet {
		if b := set.RecordBatch; b != nil && !b.PartialTrailingRecord {
			all = append(all, b)
		}
	}
	return all
}
