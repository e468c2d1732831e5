package org.apache.bookkeeper.test;

import io.netty.buffer.UnpooledByteBufAllocator;
import org.apache.bookkeeper.bookie.Bookie;
import org.apache.bookkeeper.bookie.BookieImpl;
import org.apache.bookkeeper.bookie.MockUncleanShutdownDetection;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.net.BookieSocketAddress;
import org.apache.bookkeeper.proto.BookieServer;
import org.apache.bookkeeper.replication.Auditor;
import org.apache.bookkeeper.replication.AutoRecoveryMain;
import org.apache.bookkeeper.replication.ReplicationWorker;
import served.ServedServer;

/**
 * Stands for the class of the same name in BookKeeper's tests, so that its member below can be compiled. The build removes what
 * comes of this class itself: theirs is used, and finds our member in place of its own, which comes later on the class path.
 */
public class BookKeeperClusterTestCase {
    /**
     * One bookie of a cluster in BookKeeper's tests: ours, in a process of its own.
     *
     * <p>A test that brings a bookie of Java with it, one that is slow or lies, gets that one.
     */
    public class ServerTester {
        // the enclosing class reads these two itself
        final BookieServer server;
        AutoRecoveryMain autoRecovery;
        private final ServerConfiguration conf;
        private final TestStatsProvider provider = new TestStatsProvider();
        private final BookieSocketAddress address;

        public ServerTester(ServerConfiguration conf) throws Exception {
            this.conf = conf;
            server = ServedServer.of(conf);
            address = BookieImpl.getBookieAddress(conf);
        }

        public ServerTester(ServerConfiguration conf, Bookie bookie)
                throws Exception {
            this.conf = conf;
            server = new BookieServer(
                conf, bookie, provider.getStatsLogger(""), UnpooledByteBufAllocator.DEFAULT, new MockUncleanShutdownDetection());
            address = BookieImpl.getBookieAddress(conf);
        }

        /** How the enclosing class of 4.17, which was compiled for Java 8, reads what later ones read directly. */
        static AutoRecoveryMain access$000(ServerTester tester) {
            return tester.autoRecovery;
        }

        static BookieServer access$100(ServerTester tester) {
            return tester.server;
        }

        public void startAutoRecovery() throws Exception {
            autoRecovery = new AutoRecoveryMain(conf);
            autoRecovery.start();
        }

        public void stopAutoRecovery() {
            if (autoRecovery != null) {
                autoRecovery.shutdown();
            }
        }

        public Auditor getAuditor() {
            return autoRecovery == null ? null : autoRecovery.getAuditor();
        }

        public ReplicationWorker getReplicationWorker() {
            return autoRecovery == null ? null : autoRecovery.getReplicationWorker();
        }

        public ServerConfiguration getConfiguration() {
            return conf;
        }

        public BookieServer getServer() {
            return server;
        }

        public TestStatsProvider getStatsProvider() {
            return provider;
        }

        public BookieSocketAddress getAddress() {
            return address;
        }

        public void shutdown() throws Exception {
            server.shutdown();
            stopAutoRecovery();
        }
    }
}
