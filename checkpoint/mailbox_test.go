package checkpoint_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/checkpoint"
)

func awake(m *checkpoint.Mailbox) bool {
	select {
	case <-m.Wake():
		return true
	default:
		return false
	}
}

func TestMailbox_TakeEmpties(t *testing.T) {
	t.Parallel()
	m := checkpoint.NewMailbox()
	require.False(t, awake(m), "nothing was put")

	seqs := []uint64{3, 1}
	m.Settle(seqs)
	seqs[0] = 99 // the mailbox keeps a copy
	m.Settle([]uint64{2})
	m.PutPoison(checkpoint.Poison{Seq: 4, Action: checkpoint.Stopped})
	m.PutPartitions(checkpoint.Partitions{Topic: "orders", Count: 6})
	require.True(t, awake(m))
	require.False(t, awake(m), "one knock, however much was put")

	var mail checkpoint.Mail
	m.Take(&mail)
	require.Equal(t, []uint64{3, 1, 2}, mail.Settled)
	require.Equal(t, []checkpoint.Poison{{Seq: 4, Action: checkpoint.Stopped}}, mail.Poison)
	require.Equal(t, []checkpoint.Partitions{{Topic: "orders", Count: 6}}, mail.Partitions)
	require.NoError(t, mail.Err)

	m.Take(&mail)
	require.Empty(t, mail.Settled)
	require.Empty(t, mail.Poison)
	require.Empty(t, mail.Partitions)
}

func TestMailbox_FirstErrorStays(t *testing.T) {
	t.Parallel()
	m := checkpoint.NewMailbox()
	first := errors.New("first")
	m.Fail(first)
	m.Fail(errors.New("second"))
	require.True(t, awake(m))

	var mail checkpoint.Mail
	for range 2 {
		m.Take(&mail)
		require.Equal(t, first, mail.Err)
	}
}

// What is put while the reader works on its mail must not show up in that mail.
func TestMailbox_MailIsTheReaders(t *testing.T) {
	t.Parallel()
	m := checkpoint.NewMailbox()
	var mail checkpoint.Mail
	for round := range uint64(8) {
		m.Settle([]uint64{round})
		m.Take(&mail)
		m.Settle([]uint64{100, 101})
		require.Equal(t, []uint64{round}, mail.Settled)
		m.Take(&mail)
		require.Equal(t, []uint64{100, 101}, mail.Settled)
	}
}

// Many senders, one reader who looks only when woken: every sequence arrives once, and no wake-up
// is lost. Meant for the race detector.
func TestMailbox_Concurrent(t *testing.T) {
	t.Parallel()
	const senders, rounds, each = 8, 200, 5
	m := checkpoint.NewMailbox()

	var wg sync.WaitGroup
	for s := range uint64(senders) {
		wg.Go(func() {
			batch := make([]uint64, 0, each)
			for r := range uint64(rounds) {
				batch = batch[:0] // reused, as the sink does
				for i := range uint64(each) {
					batch = append(batch, (s*rounds+r)*each+i)
				}
				m.Settle(batch)
				if r == 0 {
					m.PutPoison(checkpoint.Poison{Seq: s})
					m.PutPartitions(checkpoint.Partitions{Count: int32(s)})
				}
			}
		})
	}
	go func() {
		wg.Wait()
		m.Fail(errors.New("end of run"))
	}()

	var mail checkpoint.Mail
	var got []uint64
	var poison, partitions int
	for mail.Err == nil {
		<-m.Wake()
		m.Take(&mail)
		got = append(got, mail.Settled...)
		poison += len(mail.Poison)
		partitions += len(mail.Partitions)
	}
	slices.Sort(got)
	require.Len(t, slices.Compact(got), senders*rounds*each)
	require.Equal(t, senders, poison)
	require.Equal(t, senders, partitions)
}

func TestMailbox_SettleAllocatesNothing(t *testing.T) {
	m := checkpoint.NewMailbox()
	var mail checkpoint.Mail
	seqs := make([]uint64, 500)
	m.Settle(seqs)
	m.Take(&mail)
	m.Settle(seqs)
	m.Take(&mail) // both buffers have grown
	require.Zero(t, testing.AllocsPerRun(100, func() {
		m.Settle(seqs)
		m.Take(&mail)
	}))
}
