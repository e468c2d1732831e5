import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;

/**
 * Pulsar's client as a contender of the benchmarks, as {@code Bench} is for BookKeeper's: one JSON request a line on standard input, one answer a line on standard
 * output. Times are in seconds; CPU time is that of the whole process.
 */
public final class PulsarBench {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final Map<String, PulsarClient> CLIENTS = new HashMap<>();

    private static final Map<String, Producer<byte[]>> PRODUCERS = new HashMap<>();

    private PulsarBench() {}

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err); // whatever a library prints must not be taken for an answer
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            ObjectNode answer;
            try {
                answer = perform(JSON.readTree(line));
            } catch (Throwable failure) {
                answer = JSON.createObjectNode().put("error", String.valueOf(failure));
            }
            answers.println(answer);
            answers.flush();
        }
        System.exit(0);
    }

    private static ObjectNode perform(JsonNode request) throws Exception {
        switch (request.get("do").asText()) {
            case "open":
                return open(request);
            case "publish":
                return publish(request);
            case "close":
                return close(request);
            case "read":
                return read(request);
            default:
                throw new IllegalArgumentException(request.toString());
        }
    }

    private static PulsarClient client(JsonNode request) throws Exception {
        String url = request.get("url").asText();
        PulsarClient client = CLIENTS.get(url);
        if (client == null) {
            client = PulsarClient.builder().serviceUrl(url)
                    .operationTimeout(60, TimeUnit.SECONDS).build();
            CLIENTS.put(url, client);
        }
        return client;
    }

    /** Makes a producer for a topic and has it publish one message, so that everything is there. */
    private static ObjectNode open(JsonNode request) throws Exception {
        Producer<byte[]> producer = client(request).newProducer()
                .topic(request.get("topic").asText())
                .enableBatching(true)
                .batchingMaxMessages(request.get("batch_messages").asInt())
                .batchingMaxBytes(request.get("batch_bytes").asInt())
                .batchingMaxPublishDelay(request.get("batch_delay_us").asLong(), TimeUnit.MICROSECONDS)
                .maxPendingMessages(request.get("pending").asInt())
                .blockIfQueueFull(true)
                .sendTimeout(60, TimeUnit.SECONDS)
                .create();
        PRODUCERS.put(request.get("topic").asText(), producer);
        producer.send(new byte[request.get("size").asInt()]);
        return JSON.createObjectNode();
    }

    /** Publishes messages until all are acknowledged; a producer waits where too many are not. */
    private static ObjectNode publish(JsonNode request) throws Exception {
        int messages = request.get("messages").asInt();
        byte[] payload = new byte[request.get("size").asInt()];
        Producer<byte[]> producer = PRODUCERS.get(request.get("topic").asText());
        AtomicReference<Throwable> failure = new AtomicReference<>();
        CountDownLatch open = new CountDownLatch(messages);
        long cpu = SYSTEM.getProcessCpuTime();
        long wall = System.nanoTime();
        for (int i = 0; i < messages && failure.get() == null; i++) {
            producer.sendAsync(payload).whenComplete((id, error) -> {
                if (error != null) {
                    failure.set(error);
                }
                open.countDown();
            });
        }
        producer.flush();
        if (failure.get() == null && !open.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException(open.getCount() + " messages are not acknowledged");
        }
        ObjectNode result = cost(wall, cpu);
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
        return result;
    }

    private static ObjectNode close(JsonNode request) throws Exception {
        PRODUCERS.remove(request.get("topic").asText()).close();
        return JSON.createObjectNode();
    }

    /** Reads a topic from its beginning until {@code messages} were read. */
    private static ObjectNode read(JsonNode request) throws Exception {
        int messages = request.get("messages").asInt();
        long bytes = 0;
        long cpu = SYSTEM.getProcessCpuTime();
        long wall = System.nanoTime();
        try (Reader<byte[]> reader = client(request).newReader()
                .topic(request.get("topic").asText())
                .startMessageId(MessageId.earliest)
                .receiverQueueSize(request.get("pending").asInt())
                .create()) {
            for (int i = 0; i < messages; i++) {
                bytes += reader.readNext(60, TimeUnit.SECONDS).size();
            }
            ObjectNode result = cost(wall, cpu);
            if (bytes != (long) messages * request.get("size").asInt()) {
                throw new IllegalStateException(messages + " messages have " + bytes + " bytes");
            }
            return result;
        }
    }

    private static ObjectNode cost(long wall, long cpu) {
        return JSON.createObjectNode()
                .put("wall_s", (System.nanoTime() - wall) / 1e9)
                .put("cpu_s", (SYSTEM.getProcessCpuTime() - cpu) / 1e9);
    }
}
