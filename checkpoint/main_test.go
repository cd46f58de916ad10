package checkpoint_test

import (
	"testing"

	"github.com/walrelay/walrelay/testenv"
)

func TestMain(m *testing.M) { testenv.VerifyMain(m) }
