// Package monitor shows what a stream is doing: Prometheus metrics, probes and a JSON status, on one
// address.
//
//	/                the status page, which asks nobody but this server
//	/metrics         Prometheus text; lag is asked of the database at each scrape, never remembered
//	/livez           200 while the loops tick; a Kafka or database outage does not matter here
//	/readyz          200 when streaming with progress or standing by; else 503 and the reason
//	/status          everything as JSON
//	/status/history  samples of the last half hour as JSON, for the page's curves
//	/status/summary  the present as HTML, for the page
//
// It imports neither the session nor the sink: Config takes two functions for what it asks, and the
// Observer is what the sink tells it.
package monitor
