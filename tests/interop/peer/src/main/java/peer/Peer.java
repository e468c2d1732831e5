package peer;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * The Java client, driven from outside: one JSON object a line on standard input, one answer a line on standard output.
 *
 * <p>A request names its operation as {@code do} and carries an {@code id}, which its answer repeats; requests run side by side,
 * so an answer may overtake another. An answer holds {@code ok} or {@code error} with {@code code} and {@code message}. The only
 * argument is a JSON object of client properties, by their names in BookKeeper.
 */
public final class Peer {
    static final ObjectMapper JSON = new ObjectMapper();

    private Peer() {}

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err); // whatever a library prints must not be taken for an answer
        ClientConfiguration configuration = configuration(JSON.readTree(arguments[0]));
        BookKeeper client;
        try {
            client = new BookKeeper(configuration);
        } catch (Throwable failure) {
            answer(answers, failed(0, failure));
            System.exit(1);
            return;
        }
        ObjectNode ready = JSON.createObjectNode();
        ready.put("id", 0).set("ok", JSON.createObjectNode().put("version", version()));
        answer(answers, ready);
        serve(new Operations(client, configuration), answers);
        client.close();
        System.exit(0);
    }

    private static ClientConfiguration configuration(JsonNode properties) {
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setNumWorkerThreads(1);
        configuration.setNumIOThreads(1);
        for (Iterator<Map.Entry<String, JsonNode>> fields = properties.fields(); fields.hasNext(); ) {
            Map.Entry<String, JsonNode> field = fields.next();
            configuration.setProperty(field.getKey(), field.getValue().asText());
        }
        return configuration;
    }

    private static String version() {
        String version = BookKeeper.class.getPackage().getImplementationVersion();
        return version == null ? "unknown" : version;
    }

    private static void serve(Operations operations, PrintStream answers) throws Exception {
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = JSON.readTree(line);
            threads.submit(() -> {
                int id = request.get("id").asInt();
                ObjectNode outcome;
                try {
                    outcome = JSON.createObjectNode();
                    outcome.put("id", id).set("ok", operations.perform(request));
                } catch (Throwable failure) {
                    outcome = failed(id, failure);
                }
                answer(answers, outcome);
            });
        }
        threads.shutdownNow();
    }

    private static ObjectNode failed(int id, Throwable failure) {
        Throwable cause = failure;
        while (!(cause instanceof BKException) && cause.getCause() != null) {
            cause = cause.getCause();
        }
        ObjectNode outcome = JSON.createObjectNode();
        outcome.put("id", id).put("error", cause.getClass().getSimpleName()).put("message", String.valueOf(cause.getMessage()));
        if (cause instanceof BKException) {
            outcome.put("code", ((BKException) cause).getCode());
        }
        return outcome;
    }

    private static void answer(PrintStream answers, ObjectNode outcome) {
        synchronized (answers) {
            answers.println(outcome);
            answers.flush();
        }
    }
}
