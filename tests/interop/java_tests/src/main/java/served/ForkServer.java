package served;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;

/** The Python process that starts our bookies and tells of their ends; see fork_server.py. There is one, started when it is needed. */
final class ForkServer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static ForkServer instance;

    private final Writer commands;
    /** The process that the last command was about, once it is carried out. */
    private final BlockingQueue<Long> carriedOut = new ArrayBlockingQueue<>(1);
    private final Map<Long, CompletableFuture<Integer>> ends = new ConcurrentHashMap<>();

    private ForkServer() throws IOException {
        Process process = new ProcessBuilder(System.getProperty("served.python"), "-m", "tests.interop.java_tests.fork_server")
            .directory(Path.of(System.getProperty("served.root")).toFile())
            .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        commands = process.outputWriter(StandardCharsets.UTF_8);
        BufferedReader answers = process.inputReader(StandardCharsets.UTF_8);
        Thread reader = new Thread(() -> listen(answers), "fork-server");
        reader.setDaemon(true);
        reader.start();
    }

    static synchronized ForkServer get() throws IOException {
        if (instance == null) {
            instance = new ForkServer();
        }
        return instance;
    }

    private void listen(BufferedReader answers) {
        try {
            for (String line = answers.readLine(); line != null; line = answers.readLine()) {
                JsonNode answer = JSON.readTree(line);
                if (answer.has("started")) {
                    end(answer.get("started").asLong());
                    carriedOut.put(answer.get("started").asLong());
                } else if (answer.has("signalled")) {
                    carriedOut.put(answer.get("signalled").asLong());
                } else {
                    end(answer.get("ended").asLong()).complete(answer.get("status").asInt());
                }
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** The exit status of a process, once it has ended. */
    CompletableFuture<Integer> end(long pid) {
        return ends.computeIfAbsent(pid, key -> new CompletableFuture<>());
    }

    /** Start a bookie with these arguments; its process id. */
    synchronized long start(List<String> arguments, Path told, Path log) throws IOException {
        return carryOut(Map.of("start", arguments, "told", told.toString(), "log", log.toString()));
    }

    /** Returns when the process has the signal: a test that suspended a bookie counts on that. */
    synchronized void signal(long pid, int number) throws IOException {
        carryOut(Map.of("signal", number, "pid", pid));
    }

    private long carryOut(Map<String, ?> command) throws IOException {
        commands.write(JSON.writeValueAsString(command) + "\n");
        commands.flush();
        boolean isInterrupted = false; // by a test that took too long; the next command must not get the answer to this one
        try {
            while (true) {
                try {
                    return carriedOut.take();
                } catch (InterruptedException e) {
                    isInterrupted = true;
                }
            }
        } finally {
            if (isInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
