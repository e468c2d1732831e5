package served;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.bookkeeper.bookie.BookieImpl;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.net.BookieSocketAddress;

/**
 * {@code bk-sim bookie} as a process, on the port and the folders of a test's configuration.
 *
 * <p>It is told by system properties which Python to run ({@code served.python}) in which folder ({@code served.root}), and where to
 * leave logs ({@code served.logs}). The process ends with this one.
 */
final class ServedProcess {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long STOP_TIMEOUT_S = 20;
    /** A suspended bookie of theirs keeps its session, and a stopped process has to outlive the suspension with its own. */
    private static final double SESSION_MIN_S = 40;
    private static final int KILL = 9;
    private static final int TERMINATE = 15;
    static final int CONTINUE = 18;
    static final int STOP = 19;

    private final ServerConfiguration conf;
    private long pid;
    private CompletableFuture<Integer> end;
    private int adminPort;

    ServedProcess(ServerConfiguration conf) {
        this.conf = conf;
    }

    /** Start it and wait until it is registered; an IOException with what it logged if it does not come to that. */
    synchronized void start() throws IOException {
        BookieSocketAddress address = BookieImpl.getBookieAddress(conf);
        Path logs = Files.createDirectories(Path.of(System.getProperty("served.logs")));
        Path log = logs.resolve("bookie-" + address.getPort() + ".log");
        Path settings = logs.resolve("bookie-" + address.getPort() + ".conf");
        Files.write(settings, settings());
        Path told = logs.resolve("bookie-" + address.getPort() + ".told");
        ForkServer server = ForkServer.get();
        pid = server.start(
            List.of(
                "bookie", "--json", "--exit-with-stdin",
                "--metadata", conf.getMetadataServiceUriUnchecked(),
                "--id", BookieImpl.getBookieId(conf).getId(),
                "--host", address.getSocketAddress().getAddress().getHostAddress(),
                "--advertised-host", address.getHostName(),
                "--port", Integer.toString(address.getPort()),
                "--conf", settings.toString(),
                "--session-timeout-s", Double.toString(Math.max(SESSION_MIN_S, conf.getZkTimeout() / 1000.0)),
                "--max-frame-size", Integer.toString(conf.getNettyMaxFrameSizeBytes()),
                "--admin-port", "0"),
            told, log);
        end = server.end(pid);
        String line = "";
        while (!line.endsWith("\n") && !end.isDone()) {
            pause();
            line = Files.exists(told) ? Files.readString(told) : "";
        }
        JsonNode facts = line.endsWith("\n") ? JSON.readTree(line) : JSON.createObjectNode();
        if (!facts.has("bookie_id")) {
            stop();
            throw new IOException("a bookie of ours did not start: " + line + "\n" + Files.readString(log));
        }
        adminPort = facts.get("admin_port").asInt();
    }

    private static void pause() throws IOException {
        try {
            Thread.sleep(10);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IOException(e);
        }
    }

    /** All that the test set, by BookKeeper's own keys; ours takes what it knows. */
    private List<String> settings() {
        List<String> lines = new ArrayList<>();
        lines.add("journalDirectories=" + joined(conf.getJournalDirNames()));
        lines.add("ledgerDirectories=" + joined(conf.getLedgerDirNames()));
        if (conf.getIndexDirNames() != null) {
            lines.add("indexDirectories=" + joined(conf.getIndexDirNames()));
        }
        lines.add("ledgerStorageClass=" + conf.getLedgerStorageClass());
        lines.add("gcWaitTime=" + conf.getGcWaitTime());
        for (Iterator<String> keys = conf.getKeys(); keys.hasNext();) {
            String key = keys.next();
            Object value = conf.getProperty(key);
            boolean isListed = lines.stream().anyMatch(line -> line.startsWith(key + "="));
            // theirs write an old journal that loses explicit LACs; ours refuses to
            boolean isOurs = key.equals("journalFormatVersionToWrite") || key.startsWith("journalDirector");
            if (!isListed && !isOurs && (value instanceof Number || value instanceof Boolean
                    || value instanceof String)) {
                lines.add(key + "=" + value.toString().replace("\\", "\\\\").replace("\n", "\\n"));
            }
        }
        return lines;
    }

    private static String joined(String[] folders) {
        List<String> names = new ArrayList<>();
        for (String folder : folders) {
            names.add(new File(folder).getPath());
        }
        return String.join(",", names);
    }

    /** Let it shut down in order, as a test's own bookie does. */
    synchronized void stop() {
        if (!isRunning()) {
            return;
        }
        try {
            signal(TERMINATE);
            signal(CONTINUE);
            end.get(STOP_TIMEOUT_S, TimeUnit.SECONDS);
        } catch (InterruptedException | ExecutionException | TimeoutException | IOException e) {
            kill();
        }
    }

    private void kill() {
        try {
            signal(KILL);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        end.join();
    }

    void signal(int number) throws IOException {
        ForkServer.get().signal(pid, number);
    }

    boolean isRunning() {
        return end != null && !end.isDone();
    }

    void join() {
        end.join();
    }

    int exitCode() {
        return end == null ? 0 : end.getNow(0);
    }

    boolean isReadOnly() throws IOException, InterruptedException {
        return JSON.readTree(operate("GET", "bookie/state/readonly", "")).get("readOnly").asBoolean();
    }

    void setReadOnly(boolean readOnly) throws IOException, InterruptedException {
        operate("PUT", "bookie/state/readonly", "{\"readOnly\":" + readOnly + "}");
    }

    /** Collect garbage once, to the end. */
    void collectGarbage() throws IOException, InterruptedException {
        operate("PUT", "bookie/gc", "");
        do {
            pause();
        } while (JSON.readTree(operate("GET", "bookie/gc", "")).get("is_in_force_gc").asBoolean());
    }

    private String operate(String method, String path, String body) throws IOException, InterruptedException {
        URI uri = URI.create("http://127.0.0.1:" + adminPort + "/api/v1/" + path);
        HttpRequest request = HttpRequest.newBuilder(uri).method(method, HttpRequest.BodyPublishers.ofString(body)).build();
        HttpResponse<String> answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() != 200) {
            throw new IOException(uri + " answered " + answer.statusCode() + ": " + answer.body());
        }
        return answer.body();
    }
}
