package served;

import java.io.UncheckedIOException;
import java.io.IOException;
import org.apache.bookkeeper.bookie.InterleavedLedgerStorage;

/** What a test takes for the storage of a bookie of Java, in which it looks for the collector of garbage to run it once. */
final class ServedStorage extends InterleavedLedgerStorage {
    /** Found by its name. */
    @SuppressWarnings("unused")
    private final Runnable gcThread;

    ServedStorage(ServedProcess process) {
        gcThread = () -> {
            try {
                process.collectGarbage();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        };
    }
}
