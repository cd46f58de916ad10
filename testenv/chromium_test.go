package testenv_test

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/walrelay/walrelay/testenv"
)

func TestBrowser(t *testing.T) {
	t.Parallel()
	sum, err := chromedp.Run(testenv.Browser(t), chromedp.Evaluate[int]("1+2"))
	require.NoError(t, err)
	require.Equal(t, 3, sum)
}
