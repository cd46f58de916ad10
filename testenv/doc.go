// Package testenv starts real servers for the tests and benchmarks of the whole project: PostgreSQL
// 14 to 18 and Apache Kafka, without Docker. What they are made of comes through Maven (see pom.xml)
// into a cache that all test processes share.
//
//	func TestMain(m *testing.M) { testenv.Main(m) }
//
//	func TestDelivery(t *testing.T) {
//		db := testenv.Postgres(t, 18).Database(t)      // a fresh database on a shared server
//		kafka := testenv.Kafka(t)                      // a shared broker
//		topic := kafka.Topic(t, 3, nil)                // a fresh topic
//		records := kafka.Consume(t, topic).WaitFor(t, 10, time.Minute)
//	}
//
// Postgres and Kafka are shared by the tests of one process, started at first use and stopped by
// Main. StartPostgres and StartKafka start private ones that a test may stop, kill and pause.
//
// Whatever is started dies with the test process, however that ends: a child is started by a thread
// that lives as long as the child, with SIGKILL as its parent death signal. PostgreSQL refuses to run
// as root; then its processes get the uid "nobody" and everything of theirs lies below the
// system's temporary directory.
//
// Browser opens a page in a headless Chromium.
//
// Environment: WALRELAY_TESTENV_CACHE is where the fetched artifacts are kept (default: the user's
// cache directory), WALRELAY_TEST_MAJORS the PostgreSQL majors that tests run against ("14,18"),
// WALRELAY_TEST_CHROMIUM the browser's program.
package testenv
