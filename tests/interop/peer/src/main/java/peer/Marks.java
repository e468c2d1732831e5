package peer;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.net.URI;
import java.util.Iterator;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.meta.LedgerUnderreplicationManager;
import org.apache.bookkeeper.meta.MetadataBookieDriver;
import org.apache.bookkeeper.meta.MetadataDrivers;
import org.apache.bookkeeper.meta.UnderreplicatedLedger;
import org.apache.bookkeeper.stats.NullStatsLogger;

/** The marks and locks of auto-recovery, as BookKeeper's own auditor and worker set them, in a session that lives with the peer. */
final class Marks {
    private final LedgerUnderreplicationManager marks;

    Marks(ClientConfiguration client) throws Exception {
        ServerConfiguration configuration = new ServerConfiguration();
        configuration.setMetadataServiceUri(client.getMetadataServiceUri());
        configuration.setZkTimeout(client.getZkTimeout());
        configuration.setAllowLoopback(true);
        configuration.setAdvertisedAddress("127.0.0.1"); // locks say who holds them
        MetadataBookieDriver driver = MetadataDrivers.getBookieDriver(URI.create(client.getMetadataServiceUri()));
        driver.initialize(configuration, NullStatsLogger.INSTANCE);
        marks = driver.getLedgerManagerFactory().newLedgerUnderreplicationManager();
    }

    ObjectNode perform(String operation, long ledger, JsonNode request) throws Exception {
        ObjectNode result = Peer.JSON.createObjectNode();
        switch (operation) {
            case "mark":
                marks.markLedgerUnderreplicated(ledger, request.get("bookie").asText());
                return result;
            case "marked":
                ArrayNode found = result.putArray("marks");
                for (Iterator<UnderreplicatedLedger> all = marks.listLedgersToRereplicate(null); all.hasNext(); ) {
                    UnderreplicatedLedger each = all.next();
                    ArrayNode missing = found.addObject().put("ledger", each.getLedgerId()).putArray("missing");
                    each.getReplicaList().forEach(missing::add);
                }
                return result;
            case "lock_marked":
                return result.put("ledger", marks.pollLedgerToRereplicate());
            case "release_marked":
                marks.releaseUnderreplicatedLedger(ledger);
                return result;
            case "mark_replicated":
                marks.markLedgerReplicated(ledger);
                return result;
            case "holder_of_lock":
                return result.put("holder", marks.getReplicationWorkerIdRereplicatingLedger(ledger));
            default:
                throw new IllegalArgumentException("unknown operation " + operation);
        }
    }
}
