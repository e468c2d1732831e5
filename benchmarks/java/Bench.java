import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LastConfirmedAndEntry;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * The Java client as a contender of the benchmarks: one JSON request a line on standard input, one answer a line on standard output.
 *
 * <p>One process serves all requests of a run, one after the other, so that its code stays compiled. Times are in seconds, those of
 * single operations in microseconds. CPU time is that of the whole process.
 */
public final class Bench {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final Map<String, BookKeeper> CLIENTS = new HashMap<>();

    private Bench() {}

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
            case "append":
                return append(request);
            case "read":
                return read(request);
            case "recover":
                return recover(request);
            case "connect":
                return connect(request);
            case "handles":
                return handles(request);
            case "tail":
                return tail(request);
            case "disturbed":
                return disturbed(request);
            default:
                throw new IllegalArgumentException(request.toString());
        }
    }

    private static ClientConfiguration configuration(JsonNode properties) {
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setThrottleValue(0);
        properties.fields().forEachRemaining(each -> configuration.setProperty(each.getKey(), each.getValue().asText()));
        return configuration;
    }

    private static BookKeeper client(JsonNode request) throws Exception {
        String properties = request.get("client").toString();
        BookKeeper client = CLIENTS.get(properties);
        if (client == null) {
            client = BookKeeper.newBuilder(configuration(request.get("client"))).build();
            CLIENTS.put(properties, client);
        }
        return client;
    }

    private static WriteHandle create(BookKeeper client) throws Exception {
        return client.newCreateLedgerOp().withEnsembleSize(3).withWriteQuorumSize(3).withAckQuorumSize(2)
                .withDigestType(DigestType.CRC32C).withPassword(new byte[0]).execute().get();
    }

    private static ReadHandle open(BookKeeper client, long ledger, boolean recovery) throws Exception {
        return client.newOpenLedgerOp().withLedgerId(ledger).withDigestType(DigestType.CRC32C)
                .withPassword(new byte[0]).withRecovery(recovery).execute().get();
    }

    /** Appends to some ledgers in turn with a window; with {@code latencies}, how long each took. */
    private static ObjectNode append(JsonNode request) throws Exception {
        BookKeeper client = client(request);
        int entries = request.get("entries").asInt();
        byte[] payload = new byte[request.get("size").asInt()];
        int window = request.get("window").asInt();
        Semaphore room = new Semaphore(window);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        long[] took = new long[request.path("latencies").asBoolean() ? entries : 0];
        List<WriteHandle> ledgers = new ArrayList<>();
        for (int i = 0; i < request.path("ledgers").asInt(1); i++) {
            WriteHandle ledger = create(client);
            ledger.append(payload); // so that bookies know the ledger, and connections stand
            ledgers.add(ledger);
        }
        long cpu = SYSTEM.getProcessCpuTime();
        long wall = System.nanoTime();
        for (int i = 0; i < entries && failure.get() == null; i++) {
            room.acquire();
            int entry = i;
            long began = took.length > 0 ? System.nanoTime() : 0;
            ledgers.get(i % ledgers.size()).appendAsync(payload).whenComplete((id, error) -> {
                if (took.length > 0) {
                    took[entry] = System.nanoTime() - began;
                }
                if (error != null) {
                    failure.set(error);
                }
                room.release();
            });
        }
        room.acquire(window);
        ObjectNode result = cost(wall, cpu);
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
        if (took.length > 0) {
            latencies(result, took);
        }
        for (WriteHandle ledger : ledgers) {
            ledger.close();
        }
        return result.put("ledger", ledgers.get(0).getId());
    }

    /** Reads a ledger from its first entry on, in pieces: of one entry, of a range, or of a batch. */
    private static ObjectNode read(JsonNode request) throws Exception {
        int entries = request.get("entries").asInt();
        int piece = request.get("piece").asInt();
        boolean batch = request.path("batch").asBoolean();
        long[] took = new long[piece == 1 ? entries : 0];
        long bytes = 0;
        try (ReadHandle ledger = open(client(request), request.get("ledger").asLong(), false)) {
            long cpu = SYSTEM.getProcessCpuTime();
            long wall = System.nanoTime();
            for (int next = 0; next < entries; ) {
                long began = System.nanoTime();
                int last = Math.min(entries, next + piece) - 1;
                int first = next;
                try (LedgerEntries found = batch
                        ? ledger.batchRead(next, last - next + 1, 5 << 20) : ledger.read(next, last)) {
                    for (LedgerEntry entry : found) {
                        bytes += entry.getEntryBytes().length;
                        next++;
                    }
                }
                if (took.length > 0) {
                    took[first] = System.nanoTime() - began;
                }
            }
            ObjectNode result = cost(wall, cpu).put("bytes", bytes);
            if (took.length > 0) {
                latencies(result, took);
            }
            return result;
        }
    }

    private static ObjectNode recover(JsonNode request) throws Exception {
        BookKeeper client = client(request);
        long cpu = SYSTEM.getProcessCpuTime();
        long wall = System.nanoTime();
        try (ReadHandle ledger = open(client, request.get("ledger").asLong(), true)) {
            return cost(wall, cpu).put("last", ledger.getLastAddConfirmed());
        }
    }

    /** A new client, a ledger and an entry. */
    private static ObjectNode connect(JsonNode request) throws Exception {
        long cpu = SYSTEM.getProcessCpuTime();
        long wall = System.nanoTime();
        try (BookKeeper client = BookKeeper.newBuilder(configuration(request.get("client"))).build()) {
            WriteHandle ledger = create(client);
            ledger.append(new byte[100]);
            ObjectNode result = cost(wall, cpu);
            ledger.close();
            return result;
        }
    }

    /** How much the heap grows by open writers that do nothing. */
    private static ObjectNode handles(JsonNode request) throws Exception {
        BookKeeper client = client(request);
        create(client).append(new byte[100]);
        int count = request.get("count").asInt();
        List<WriteHandle> ledgers = new ArrayList<>(count);
        long before = heap();
        for (int i = 0; i < count; i++) {
            ledgers.add(create(client));
        }
        long bytes = heap() - before;
        for (WriteHandle ledger : ledgers) {
            ledger.close();
        }
        return JSON.createObjectNode().put("bytes", (double) bytes / count);
    }

    private static long heap() throws Exception {
        for (int i = 0; i < 3; i++) {
            System.gc();
            Thread.sleep(50);
        }
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }

    /** A reader follows a writer: how long after the append that confirms an entry the reader has it. */
    private static ObjectNode tail(JsonNode request) throws Exception {
        BookKeeper client = client(request);
        int entries = request.get("entries").asInt();
        long pause = request.get("pause_ms").asLong();
        WriteHandle writer = create(client);
        ReadHandle reader = open(client, writer.getId(), false);
        long[] appended = new long[entries + 1];
        long[] took = new long[entries];
        appended[0] = System.nanoTime();
        writer.append(new byte[100]); // bookies that know nothing of a ledger refuse its readers
        Thread appends = new Thread(() -> {
            try {
                for (int i = 1; i <= entries; i++) {
                    appended[i] = System.nanoTime();
                    writer.append(new byte[100]);
                    Thread.sleep(pause);
                }
            } catch (Exception failure) {
                throw new IllegalStateException(failure);
            }
        });
        appends.start();
        for (int next = 0; next < entries; ) {
            try (LastConfirmedAndEntry found = reader.readLastAddConfirmedAndEntry(next, 1000, false)) {
                if (found.hasEntry() && found.getEntry().getEntryId() == next) {
                    took[next] = System.nanoTime() - appended[next + 1];
                    next++;
                }
            }
        }
        appends.join();
        writer.close();
        reader.close();
        ObjectNode result = JSON.createObjectNode();
        latencies(result, took);
        return result;
    }

    /** Appends one at a time for some seconds, while bookies are killed by others. */
    private static ObjectNode disturbed(JsonNode request) throws Exception {
        WriteHandle ledger = create(client(request));
        ConcurrentLinkedQueue<Long> took = new ConcurrentLinkedQueue<>();
        long end = System.nanoTime() + (long) (request.get("seconds").asDouble() * 1e9);
        while (System.nanoTime() < end) {
            long began = System.nanoTime();
            ledger.append(new byte[100]);
            took.add(System.nanoTime() - began);
        }
        ObjectNode result = JSON.createObjectNode();
        result.put("ensembles", ((org.apache.bookkeeper.client.LedgerHandle) ledger).getLedgerMetadata().getAllEnsembles().size());
        latencies(result, took.stream().mapToLong(Long::longValue).toArray());
        ledger.close();
        return result;
    }

    private static ObjectNode cost(long wall, long cpu) {
        ObjectNode result = JSON.createObjectNode();
        result.put("wall_s", (System.nanoTime() - wall) / 1e9);
        return result.put("cpu_s", (SYSTEM.getProcessCpuTime() - cpu) / 1e9);
    }

    private static void latencies(ObjectNode result, long[] took) {
        Arrays.sort(took);
        result.put("p50_us", took[(int) (took.length * 0.5)] / 1e3);
        result.put("p99_us", took[(int) (took.length * 0.99)] / 1e3);
        result.put("p999_us", took[(int) (took.length * 0.999)] / 1e3);
        result.put("max_us", took[took.length - 1] / 1e3);
    }
}
