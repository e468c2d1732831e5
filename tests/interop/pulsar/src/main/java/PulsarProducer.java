import io.netty.buffer.ByteBufUtil;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.TypedMessageBuilder;

/**
 * Publishes to a broker with Pulsar's client, in the ways that its producers know: PulsarProducer URL ADMIN-URL. Prints a line "topic id key payload" for each message,
 * payloads in hex, in the order of each topic. At the end the topics are unloaded, so that their ledgers are closed.
 */
public final class PulsarProducer {
    private static final String TOPIC = "persistent://public/default/orders";
    private static final String SPLIT = "persistent://public/default/split";

    /** A busy machine is no failed broker. */
    private static final int PATIENCE_S = 300;

    private PulsarProducer() {}

    public static void main(String[] arguments) throws Exception {
        try (PulsarAdmin admin = PulsarAdmin.builder().serviceHttpUrl(arguments[1]).readTimeout(PATIENCE_S, TimeUnit.SECONDS)
                        .requestTimeout(PATIENCE_S, TimeUnit.SECONDS).build();
                PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).operationTimeout(PATIENCE_S, TimeUnit.SECONDS).build()) {
            alone(client);
            for (CompressionType how : CompressionType.values()) {
                batches(client, how);
            }
            admin.topics().unload(TOPIC); // what follows is in another ledger
            chunks(client);
            admin.topics().createPartitionedTopic(SPLIT, 2);
            partitions(client);
            admin.topics().unload(TOPIC);
            admin.topics().unload(SPLIT);
        }
    }

    private static ProducerBuilder<byte[]> producer(PulsarClient client, String topic) {
        return client.newProducer().topic(topic).blockIfQueueFull(true).sendTimeout(PATIENCE_S, TimeUnit.SECONDS);
    }

    private static void alone(PulsarClient client) throws Exception {
        try (Producer<byte[]> producer = producer(client, TOPIC).enableBatching(false).create()) {
            told(TOPIC, "-", "plain", producer.newMessage());
            told(TOPIC, "key", "with all", producer.newMessage().key("key").eventTime(1_600_000_000_123L)
                    .property("colour", "blau, größer").orderingKey("order".getBytes()));
            told(TOPIC, "gone", null, producer.newMessage().key("gone"));
        }
    }

    private static void batches(PulsarClient client, CompressionType how) throws Exception {
        try (Producer<byte[]> producer = producer(client, TOPIC).compressionType(how).enableBatching(true).batchingMaxMessages(7)
                .batchingMaxPublishDelay(10, TimeUnit.SECONDS).create()) {
            List<String> payloads = new ArrayList<>();
            List<CompletableFuture<MessageId>> ids = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                payloads.add(how + " " + i + " repeats".repeat(i));
                ids.add(producer.newMessage().key("k" + i % 3).value(payloads.get(i).getBytes()).sendAsync());
            }
            producer.flush();
            for (int i = 0; i < ids.size(); i++) {
                tell(TOPIC, ids.get(i).get(), "k" + i % 3, payloads.get(i));
            }
        }
    }

    private static void chunks(PulsarClient client) throws Exception {
        try (Producer<byte[]> producer = producer(client, TOPIC).enableBatching(false).enableChunking(true).chunkMaxMessageSize(1_000).create()) {
            told(TOPIC, "-", "0123456789".repeat(250), producer.newMessage());
            told(TOPIC, "-", "after", producer.newMessage());
        }
    }

    private static void partitions(PulsarClient client) throws Exception {
        try (Producer<byte[]> producer = producer(client, SPLIT).enableBatching(true).batchingMaxPublishDelay(1, TimeUnit.MILLISECONDS).create()) {
            for (int i = 0; i < 10; i++) {
                told(SPLIT, "key-" + i, "message " + i, producer.newMessage().key("key-" + i));
            }
        }
    }

    private static void told(String topic, String key, String payload, TypedMessageBuilder<byte[]> message) throws Exception {
        tell(topic, message.value(payload == null ? null : payload.getBytes(StandardCharsets.UTF_8)).send(), key, payload);
    }

    private static void tell(String topic, MessageId id, String key, String payload) {
        MessageIdAdv known = (MessageIdAdv) id;
        System.out.println(topic + " " + known.getLedgerId() + ":" + known.getEntryId() + ":" + known.getPartitionIndex() + ":" + known.getBatchIndex()
                + " " + key + " x" + ByteBufUtil.hexDump((payload == null ? "" : payload).getBytes(StandardCharsets.UTF_8)));
    }
}
