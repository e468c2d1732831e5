package served;

import io.netty.buffer.UnpooledByteBufAllocator;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.bookkeeper.bookie.BookieImpl;
import org.apache.bookkeeper.bookie.MockUncleanShutdownDetection;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.net.BookieSocketAddress;
import org.apache.bookkeeper.proto.BookieRequestProcessor;
import org.apache.bookkeeper.proto.BookieServer;
import org.apache.bookkeeper.stats.NullStatsLogger;

/** What BookKeeper's tests take for a server of Java: a handle on a process that serves one of our bookies. */
public final class ServedServer extends BookieServer {
    private final ServerConfiguration conf;
    private final ServedProcess process;

    private ServedServer(ServerConfiguration conf, ServedProcess process) throws Exception {
        super(silent(conf), ServedBookie.of(process), NullStatsLogger.INSTANCE, UnpooledByteBufAllocator.DEFAULT,
            new MockUncleanShutdownDetection());
        super.getBookieRequestProcessor().close();
        this.conf = conf;
        this.process = process;
    }

    /** The bookie that a test's configuration describes; it does not run yet. */
    public static ServedServer of(ServerConfiguration conf) throws Exception {
        return new ServedServer(conf, new ServedProcess(conf));
    }

    /** The configuration for the parts of a Java server that its constructor makes in vain: none of them may listen. */
    private static ServerConfiguration silent(ServerConfiguration conf) {
        ServerConfiguration silent = new ServerConfiguration(conf);
        silent.setDisableServerSocketBind(true);
        silent.setEnableLocalTransport(false);
        return silent;
    }

    @Override
    public void start() throws IOException {
        process.start();
    }

    @Override
    public void shutdown() {
        process.stop();
    }

    @Override
    public void suspendProcessing() {
        signal(ServedProcess.STOP);
    }

    @Override
    public void resumeProcessing() {
        signal(ServedProcess.CONTINUE);
    }

    private void signal(int number) {
        try {
            process.signal(number);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public BookieSocketAddress getLocalAddress() throws java.net.UnknownHostException {
        return BookieImpl.getBookieAddress(conf);
    }

    @Override
    public BookieId getBookieId() throws java.net.UnknownHostException {
        return BookieImpl.getBookieId(conf);
    }

    @Override
    public boolean isRunning() {
        return process.isRunning();
    }

    @Override
    public boolean isBookieRunning() {
        return process.isRunning();
    }

    @Override
    public void join() {
        process.join();
    }

    @Override
    public int getExitCode() {
        return process.exitCode();
    }

    @Override
    public BookieRequestProcessor getBookieRequestProcessor() {
        throw new InsideOfJava("BookieServer.getBookieRequestProcessor");
    }
}
