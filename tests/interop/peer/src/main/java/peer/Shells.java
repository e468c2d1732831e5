package peer;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.File;
import java.nio.charset.StandardCharsets;
import org.apache.bookkeeper.bookie.BookieShell;
import org.apache.bookkeeper.conf.ServerConfiguration;

/**
 * BookKeeper's own shell for many commands in one process: each line of the standard input is a JSON array, the words of one
 * command. After what a command prints comes a line with its exit code behind {@link #END}.
 */
public final class Shells {
    private static final String END = "=== end of command ";

    private Shells() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ServerConfiguration configuration = new ServerConfiguration();
            configuration.loadConf(new File(arguments[0]).toURI().toURL());
            BookieShell shell = new BookieShell();
            shell.setConf(configuration);
            int code = -1;
            try {
                code = shell.run(Peer.JSON.readValue(line, String[].class));
            } catch (Exception error) {
                error.printStackTrace();
            }
            System.err.flush();
            System.out.println();
            System.out.println(END + code);
            System.out.flush();
        }
        System.exit(0);
    }
}
