package served;

import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileWriter;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import org.junit.platform.engine.FilterResult;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.TestSource;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.Launcher;
import org.junit.platform.launcher.PostDiscoveryFilter;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs one class of tests and writes a line of JSON for each run of a method to a file.
 *
 * <p>Arguments: the file, the class, and {@code only} or {@code without} with the methods that this means.
 */
public final class RunTests implements TestExecutionListener {
    private static final ObjectMapper JSON = new ObjectMapper();
    private final PrintWriter results;
    private final Map<TestIdentifier, Long> started = new LinkedHashMap<>();

    private RunTests(PrintWriter results) {
        this.results = results;
    }

    public static void main(String[] arguments) throws Exception {
        boolean only = arguments[2].equals("only");
        Set<String> named = Set.copyOf(Arrays.asList(arguments).subList(3, arguments.length));
        PostDiscoveryFilter wanted = test -> {
            String method = method(test.getSource().orElse(null));
            return FilterResult.includedIf(method.isEmpty() || named.contains(method) == only);
        };
        try (PrintWriter results = new PrintWriter(new FileWriter(arguments[0]), true)) {
            Launcher launcher = LauncherFactory.create();
            launcher.execute(
                LauncherDiscoveryRequestBuilder.request().selectors(selectClass(arguments[1])).filters(wanted).build(),
                new RunTests(results));
        }
        System.exit(0); // tests leave threads behind
    }

    private static String method(TestSource source) {
        return source instanceof MethodSource ? ((MethodSource) source).getMethodName() : "";
    }

    @Override
    public void executionStarted(TestIdentifier test) {
        started.put(test, System.nanoTime());
    }

    @Override
    public void executionSkipped(TestIdentifier test, String reason) {
        write(test, "skipped", reason);
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        boolean passed = result.getStatus() == TestExecutionResult.Status.SUCCESSFUL;
        if (test.isTest() || !passed) {
            StringWriter trace = new StringWriter();
            result.getThrowable().ifPresent(error -> error.printStackTrace(new PrintWriter(trace)));
            write(test, passed ? "passed" : result.getStatus().name().toLowerCase(), trace.toString());
        }
    }

    private void write(TestIdentifier test, String outcome, String why) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("method", method(test.getSource().orElse(null)));
        line.put("name", test.getDisplayName());
        line.put("outcome", outcome);
        line.put("seconds", (System.nanoTime() - started.getOrDefault(test, System.nanoTime())) / 1e9);
        line.put("why", why);
        try {
            results.println(JSON.writeValueAsString(line));
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }
}
