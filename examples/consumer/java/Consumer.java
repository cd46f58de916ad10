import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.PrintStream;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Prints each event of a topic once, though the topic holds some of them several times. Java 17 or later, with the jar
 * of kafka-clients on the class path:
 *
 * <pre>java -cp 'lib/*' Consumer.java kafka-1:9092 outbox.event.order</pre>
 */
public class Consumer {
    public static void main(String[] args) {
        var settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("isolation.level", "read_committed"); // WALRELAY_DELIVERY may be exactly-once
        var out = new PrintStream(System.out, true, UTF_8); // whatever the locale
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            // From the beginning, each time: so what was seen may be kept in memory.
            List<TopicPartition> partitions = consumer.partitionsFor(args[1]).stream()
                    .map(p -> new TopicPartition(p.topic(), p.partition())).toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            var seen = new Seen();
            while (true) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    if (seen.add(record)) {
                        out.println(header(record, "id") + "\t" + text(record.key()) + "\t" + text(record.value()));
                    }
                }
            }
        }
    }

    /** What positions are compared within. */
    record Partition(String stream, String topic, int number) {}

    /**
     * What was handled. Whoever does not begin at the topic's beginning each time keeps it in a database, and writes
     * it in the transaction of the effect.
     */
    static class Seen {
        private final Map<Partition, String> positions = new HashMap<>(); // the highest one
        private final Set<String> ids = new HashSet<>();

        /** Says whether an event is new, and from then on it is not. */
        boolean add(ConsumerRecord<byte[], byte[]> record) {
            String stream = header(record, "walrelay-stream"), id = header(record, "id");
            if (stream == null || id == null) {
                throw new IllegalArgumentException("not a record of walrelay: " + record.topic() + ", partition "
                        + record.partition() + ", offset " + record.offset());
            }
            String position = header(record, "walrelay-position");
            if (position != null) { // fixed width: the order of the texts is that of the events
                if (position.length() != 43) {
                    throw new IllegalArgumentException("not a position: " + position);
                }
                var at = new Partition(stream, record.topic(), record.partition());
                if (position.compareTo(positions.getOrDefault(at, "")) <= 0) {
                    return false; // a repetition, or a late write of a process that was replaced
                }
                positions.put(at, position);
            }
            // A replay has walrelay-replay in place of a position, and a new epoch repeats under higher positions.
            return ids.add(id);
        }
    }

    static String header(ConsumerRecord<byte[], byte[]> record, String name) {
        var header = record.headers().lastHeader(name);
        return header == null ? null : text(header.value());
    }

    /** A null value is a tombstone. */
    static String text(byte[] bytes) {
        return bytes == null ? "null" : new String(bytes, UTF_8);
    }
}
