package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

// An outbox that is partitioned by time gets its partitions from the command, while the stream runs, and rows of
// theirs arrive whatever name the publication gives them.
func TestPartitions_Ahead(t *testing.T) {
	t.Parallel()
	everyMajor(t, func(t *testing.T, server *testenv.Server) {
		for _, viaRoot := range []bool{true, false} {
			t.Run(fmt.Sprintf("via_root=%t", viaRoot), func(t *testing.T) {
				s := newOwn(t, server, testenv.Kafka(t), 1, `CREATE TABLE outbox (id bigint, aggregate_type text NOT NULL,
						aggregate_id text, event_type text, payload json, created_at timestamptz DEFAULT now(),
						PRIMARY KEY (id, created_at)) PARTITION BY RANGE (created_at)`,
					fmt.Sprintf(`CREATE PUBLICATION outbox_pub FOR TABLE outbox
						WITH (publish = 'insert', publish_via_partition_root = %t)`, viaRoot))
				testenv.StayWithin(t, 24*time.Hour, 2*time.Minute) // the partitions are counted from the day
				require.Contains(t, s.says("partitions", "create", "--ahead=0s"), `created "public"."outbox_p`)
				s.relay()
				s.insertOwn(1, "k", `{}`)
				out := s.says("partitions", "create", "--ahead=48h", "--table=public.outbox")
				require.Equal(t, 2, strings.Count(out, "created"), out)
				require.Equal(t, "nothing to create for public.outbox\n", s.says("partitions", "create", "--ahead=24h"))
				s.db.Exec(t, `INSERT INTO outbox VALUES (2, 'orders', 'k', 'e', '{}', now() + interval '36 hours')`)
				consumer := s.cluster.Consume(t, s.topic)
				require.Equal(t, []string{"1", "2"}, delivered(consumer.WaitFor(t, 2, wait)))
			})
		}
	})
}
