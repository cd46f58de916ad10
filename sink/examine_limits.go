package sink

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/IBM/sarama"
)

// limits compares the brokers' own configuration with ours.
func (x *examiner) limits(ctx context.Context) {
	for _, m := range x.reached {
		f := findings{object: fmt.Sprintf("broker %d at %s", m.id, m.addr)}
		set, err := x.brokerSettings(ctx, m)
		if err != nil {
			f.bad(LevelUnknown, "broker-config", err.Error(), "socket.request.max.bytes and transaction.max.timeout.ms could "+
				"not be looked at", x.grant("--cluster", "DescribeConfigs"))
			x.add(f.all...)
			continue
		}
		number := func(key string) int64 {
			n, _ := strconv.ParseInt(set[key], 10, 64)
			return n
		}
		request := int64(max(x.cfg.BatchBytes, x.cfg.RequestBytes, x.probe.LargestRecord))
		if most := number("socket.request.max.bytes"); most > 0 && request > most {
			f.bad(LevelFault, "request-bytes",
				fmt.Sprintf("socket.request.max.bytes is %d, a request may take %d", most, request),
				"the broker closes the connection, again and again", "set WALRELAY_BATCH_BYTES lower, or the broker's "+
					"socket.request.max.bytes higher")
		} else {
			f.ok("request-bytes", "socket.request.max.bytes is %d, a request may take %d", most, request)
		}
		if x.cfg.ExactlyOnce {
			x.transactionTimeout(&f, number("transaction.max.timeout.ms"))
		}
		x.add(f.all...)
	}
}

func (x *examiner) transactionTimeout(f *findings, most int64) {
	const check = "transaction-timeout"
	wanted := x.cfg.TransactionTimeout
	if most > 0 && wanted.Milliseconds() > most {
		f.bad(LevelFault, check, fmt.Sprintf("transaction.max.timeout.ms is %s, WALRELAY_TRANSACTION_TIMEOUT %s",
			millis(most), wanted), "the stream does not start while this broker is the coordinator",
			fmt.Sprintf("set WALRELAY_TRANSACTION_TIMEOUT=%s, or the brokers' transaction.max.timeout.ms higher", millis(most)))
		return
	}
	f.ok(check, "transaction.max.timeout.ms is %s, WALRELAY_TRANSACTION_TIMEOUT %s", millis(most), wanted)
}

func (x *examiner) brokerSettings(ctx context.Context, m *meeting) (settings, error) {
	l := x.to(m.addr)
	defer l.close()
	name := strconv.Itoa(int(m.id))
	values, refused, err := x.describe(ctx, l, sarama.BrokerResource, name)
	if err == nil {
		err = refused[name]
	}
	return values[name], err
}

// quotas names those that slow the stream down.
func (x *examiner) quotas(ctx context.Context) {
	f := findings{object: "cluster"}
	defer func() { x.add(f.all...) }()
	var res *sarama.DescribeClientQuotasResponse
	err := x.ask(ctx, x.admin.link, func(b *sarama.Broker) (err error) {
		res, err = b.DescribeClientQuotas(sarama.NewDescribeClientQuotasRequest(x.admin.conf.Version, nil, false))
		if err == nil && res.ErrorCode != sarama.ErrNoError {
			return res.ErrorCode
		}
		return err
	})
	if err != nil {
		f.bad(LevelUnknown, "quota", err.Error(), "a quota would hold the stream back",
			x.grant("--cluster", "DescribeConfigs"))
		return
	}
	for _, entry := range res.Entries {
		var of []string
		ours := true
		for _, e := range entry.Entity {
			ours = ours && x.ours(e)
			of = append(of, strings.TrimSpace(fmt.Sprintf("%s %s", e.EntityType, e.Name)))
		}
		if !ours {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(entry.Values)) {
			if key == "producer_byte_rate" || key == "request_percentage" {
				f.bad(LevelWarning, "quota", fmt.Sprintf("%s is %g for %s", key, entry.Values[key], strings.Join(of, ", ")),
					"the brokers hold the stream back when it is faster, as when it catches up", "raise it with kafka-configs.sh "+
						"--alter --entity-type users or clients, or leave it if it is meant")
			}
		}
	}
	if len(f.all) == 0 {
		f.ok("quota", "none for our user or client id")
	}
}

// ours says that a quota's entity means us: by name, or as the default.
func (x *examiner) ours(e sarama.QuotaEntityComponent) bool {
	if e.MatchType == sarama.QuotaMatchDefault {
		return true
	}
	switch e.EntityType {
	case sarama.QuotaEntityUser:
		return x.cfg.SASL != nil && e.Name == x.cfg.SASL.Username
	case sarama.QuotaEntityClientID:
		return e.Name == x.cfg.ClientID
	default: // an address: ours as the brokers see it is not known here
		return false
	}
}

// clock says what cannot be known: no answer that sarama reads carries the broker's time unless
// something is written. What the skew may be is in the topics' configuration.
func (x *examiner) clock() {
	why := "the brokers refuse a record whose timestamp, the commit's on the database's clock, is too far ahead of theirs"
	if len(x.ahead) > 0 {
		why += "; allowed are " + strings.Join(x.ahead, ", ")
	}
	x.add(Finding{
		Check: "clock-skew", Object: "brokers", Level: LevelUnknown,
		Found: "Kafka tells its time only in what it writes, and nothing is written here",
		Why:   why,
		Fix:   "keep the clocks of the brokers and of the database in step, by NTP",
	})
}
