package sink

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) {
	// The library behind sarama's metrics keeps one goroutine for the life of the process.
	testenv.VerifyMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}
