package peer;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Base64;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.CreateBuilder;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LastConfirmedAndEntry;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteAdvHandle;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.stats.NullStatsLogger;

/** What the peer can be asked to do. Handles are kept by ledger id, one to write and one to read each. */
final class Operations {
    private static final int WINDOW = 1000;

    private final BookKeeper client;
    private final ClientConfiguration configuration;
    private final Map<Long, WriteHandle> writers = new ConcurrentHashMap<>();
    private final Map<Long, WriteAdvHandle> advanced = new ConcurrentHashMap<>();
    private final Map<Long, ReadHandle> readers = new ConcurrentHashMap<>();
    private Marks marks;

    Operations(BookKeeper client, ClientConfiguration configuration) {
        this.client = client;
        this.configuration = configuration;
    }

    ObjectNode perform(JsonNode request) throws Exception {
        long ledger = request.path("ledger").asLong(-1);
        switch (request.get("do").asText()) {
            case "create":
                return create(request);
            case "append":
                return append(request, writers.get(ledger));
            case "append_at":
                return result().put("entry", advanced.get(ledger).write(entry(request), payload(request)));
            case "force":
                return force(ledger);
            case "close":
                return close(ledger);
            case "open":
                return open(request);
            case "read":
                return read(request, reader(ledger));
            case "lac":
                return lac(request.get("how").asText(), reader(ledger));
            case "poll":
                return poll(request, reader(ledger));
            case "tail":
                return tail(request, reader(ledger));
            case "info":
                return info(ledger);
            case "list":
                return list();
            case "delete":
                client.newDeleteLedgerOp().withLedgerId(ledger).execute().get();
                return result();
            case "recover_bookie":
                return recoverBookie(request.get("bookie").asText());
            case "entries_on":
                return entriesOn(request.get("bookie").asText(), ledger);
            case "bookie_info":
                return result().put("bookies", client.getBookieInfo().size());
            default:
                return marks().perform(request.get("do").asText(), ledger, request);
        }
    }

    private synchronized Marks marks() throws Exception {
        if (marks == null) {
            marks = new Marks(configuration);
        }
        return marks;
    }

    private static ObjectNode result() {
        return Peer.JSON.createObjectNode();
    }

    private static long entry(JsonNode request) {
        return request.get("entry").asLong();
    }

    private static byte[] payload(JsonNode request) {
        return Base64.getDecoder().decode(request.get("payload").asText());
    }

    private static byte[] password(JsonNode request) {
        return Base64.getDecoder().decode(request.path("password").asText(""));
    }

    private static DigestType digest(JsonNode request) {
        return DigestType.valueOf(request.path("digest").asText("CRC32C"));
    }

    /** The payload that both languages give entry {@code i} of a pattern: of every size from nothing up. */
    static byte[] pattern(long i, int size) {
        byte[] payload = new byte[size < 0 ? (int) (i % 7) * 13 : size];
        for (int k = 0; k < payload.length; k++) {
            payload[k] = (byte) (i * 31 + k * 7);
        }
        return payload;
    }

    private ReadHandle reader(long ledger) {
        ReadHandle handle = readers.get(ledger);
        if (handle == null) {
            handle = writers.get(ledger);
        }
        if (handle == null) {
            throw new IllegalStateException("ledger " + ledger + " is not open here");
        }
        return handle;
    }

    private ObjectNode create(JsonNode request) throws Exception {
        Map<String, byte[]> custom = new HashMap<>();
        request.path("custom").fields().forEachRemaining(
                field -> custom.put(field.getKey(), Base64.getDecoder().decode(field.getValue().asText())));
        CreateBuilder builder = client.newCreateLedgerOp()
                .withEnsembleSize(request.path("ensemble").asInt(3))
                .withWriteQuorumSize(request.path("write_quorum").asInt(2))
                .withAckQuorumSize(request.path("ack_quorum").asInt(2))
                .withDigestType(digest(request))
                .withPassword(password(request))
                .withCustomMetadata(custom);
        if (request.path("deferred_sync").asBoolean()) {
            builder = builder.withWriteFlags(EnumSet.of(WriteFlag.DEFERRED_SYNC));
        }
        if (request.path("advanced").asBoolean() || request.has("ledger_id")) {
            WriteAdvHandle handle = request.has("ledger_id")
                    ? builder.makeAdv().withLedgerId(request.get("ledger_id").asLong()).execute().get()
                    : builder.makeAdv().execute().get();
            advanced.put(handle.getId(), handle);
            return result().put("ledger", handle.getId());
        }
        WriteHandle handle = builder.execute().get();
        writers.put(handle.getId(), handle);
        return result().put("ledger", handle.getId());
    }

    /** Appends {@code payloads}, or a pattern of {@code count} entries, pipelined unless {@code pause_ms} lies in between. */
    private ObjectNode append(JsonNode request, WriteHandle writer) throws Exception {
        List<byte[]> payloads = new ArrayList<>();
        request.path("payloads").forEach(node -> payloads.add(Base64.getDecoder().decode(node.asText())));
        long first = writer.getLastAddPushed() + 1;
        int count = request.path("count").asInt(payloads.size());
        int size = request.path("size").asInt(-1);
        long pauseMs = request.path("pause_ms").asLong(0);
        List<CompletableFuture<Long>> window = new ArrayList<>();
        long last = first - 1;
        for (int i = 0; i < count; i++) {
            byte[] payload = payloads.isEmpty() ? pattern(first + i, size) : payloads.get(i);
            window.add(writer.appendAsync(payload));
            if (pauseMs > 0 || window.size() == WINDOW || i == count - 1) {
                for (CompletableFuture<Long> add : window) {
                    last = add.get();
                }
                window.clear();
                if (pauseMs > 0) {
                    Thread.sleep(pauseMs);
                }
            }
        }
        return result().put("last", last).put("lac", writer.getLastAddConfirmed());
    }

    private ObjectNode force(long ledger) throws Exception {
        WriteHandle writer = writers.get(ledger);
        if (writer == null) {
            advanced.get(ledger).force().get();
            return result().put("lac", advanced.get(ledger).getLastAddConfirmed());
        }
        writer.force().get();
        return result().put("lac", writer.getLastAddConfirmed());
    }

    private ObjectNode close(long ledger) throws Exception {
        if (readers.containsKey(ledger)) {
            readers.remove(ledger).close();
        }
        if (advanced.containsKey(ledger)) {
            advanced.get(ledger).close();
        }
        if (writers.containsKey(ledger)) {
            writers.get(ledger).close();
        }
        return result();
    }

    private ObjectNode open(JsonNode request) throws Exception {
        ReadHandle handle = client.newOpenLedgerOp()
                .withLedgerId(request.get("ledger").asLong())
                .withDigestType(digest(request))
                .withPassword(password(request))
                .withRecovery(request.path("recover").asBoolean(true))
                .execute()
                .get();
        readers.put(handle.getId(), handle);
        return result().put("lac", handle.getLastAddConfirmed()).put("length", handle.getLength())
                .put("closed", handle.isClosed());
    }

    private static ObjectNode read(JsonNode request, ReadHandle handle) throws Exception {
        long first = request.path("first").asLong(0);
        long last = request.path("last").asLong(handle.getLastAddConfirmed());
        ObjectNode result = result();
        ArrayNode payloads = result.putArray("payloads");
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        boolean inFull = request.path("payloads").asBoolean(true);
        long entries = 0;
        for (long next = first; next <= last; ) {
            long end = Math.min(last, next + WINDOW - 1);
            String how = request.path("how").asText("read");
            try (LedgerEntries read = how.equals("unconfirmed") ? handle.readUnconfirmed(next, end)
                    : how.equals("batch") ? handle.batchRead(next, (int) (end - next + 1), request.path("bytes").asLong(0))
                    : handle.read(next, end)) {
                for (LedgerEntry entry : read) {
                    if (entry.getEntryId() != next) {
                        throw new IllegalStateException("entry " + entry.getEntryId() + " instead of " + next);
                    }
                    byte[] payload = entry.getEntryBytes();
                    digest.update(payload);
                    if (inFull) {
                        payloads.add(Base64.getEncoder().encodeToString(payload));
                    }
                    entries++;
                    next++;
                }
            }
        }
        return result.put("entries", entries).put("sha256", hex(digest.digest()));
    }

    private static ObjectNode lac(String how, ReadHandle handle) throws Exception {
        switch (how) {
            case "read":
                return result().put("lac", handle.readLastAddConfirmed());
            case "try":
                return result().put("lac", handle.tryReadLastAddConfirmed());
            case "explicit":
                return result().put("lac", ((LedgerHandle) handle).readExplicitLastConfirmed());
            default:
                return result().put("lac", handle.getLastAddConfirmed());
        }
    }

    private static ObjectNode poll(JsonNode request, ReadHandle handle) throws Exception {
        try (LastConfirmedAndEntry found = handle.readLastAddConfirmedAndEntry(
                entry(request), request.get("timeout_ms").asLong(), request.path("parallel").asBoolean())) {
            ObjectNode result = result().put("lac", found.getLastAddConfirmed());
            if (found.hasEntry()) {
                result.put("entry", found.getEntry().getEntryId());
                result.put("payload", Base64.getEncoder().encodeToString(found.getEntry().getEntryBytes()));
            }
            return result;
        }
    }

    /** Follows an open ledger by long polls until it is closed and read to its end, or {@code entries} were read. */
    private static ObjectNode tail(JsonNode request, ReadHandle handle) throws Exception {
        long wanted = request.path("entries").asLong(Long.MAX_VALUE);
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        long next = 0;
        while (next < wanted && !(handle.isClosed() && next > handle.getLastAddConfirmed())) {
            try (LastConfirmedAndEntry found = handle.readLastAddConfirmedAndEntry(next, 500, false)) {
                if (found.hasEntry() && found.getEntry().getEntryId() == next) {
                    digest.update(found.getEntry().getEntryBytes());
                    next++;
                }
            }
        }
        return result().put("entries", next).put("sha256", hex(digest.digest()));
    }

    private ObjectNode info(long ledger) throws Exception {
        LedgerMetadata metadata = client.getLedgerMetadata(ledger).get();
        ObjectNode result = result()
                .put("state", metadata.getState().toString())
                .put("ensemble", metadata.getEnsembleSize())
                .put("write_quorum", metadata.getWriteQuorumSize())
                .put("ack_quorum", metadata.getAckQuorumSize())
                .put("digest", String.valueOf(metadata.getDigestType()))
                .put("last_entry", metadata.getLastEntryId())
                .put("length", metadata.getLength())
                .put("format", metadata.getMetadataFormatVersion())
                .put("ctime", metadata.getCtime());
        ObjectNode custom = result.putObject("custom");
        metadata.getCustomMetadata().forEach((key, value) -> custom.put(key, Base64.getEncoder().encodeToString(value)));
        ObjectNode fragments = result.putObject("fragments");
        metadata.getAllEnsembles().forEach((first, bookies) -> {
            ArrayNode members = fragments.putArray(Long.toString(first));
            bookies.forEach(bookie -> members.add(bookie.toString()));
        });
        return result;
    }

    private ObjectNode list() throws Exception {
        ObjectNode result = result();
        ArrayNode ledgers = result.putArray("ledgers");
        for (long id : client.newListLedgersOp().execute().get().toIterable()) {
            ledgers.add(id);
        }
        return result;
    }

    private ObjectNode recoverBookie(String bookie) throws Exception {
        // The constructor without a configuration makes an admin that cannot copy anything.
        try (BookKeeperAdmin admin = new BookKeeperAdmin(client, NullStatsLogger.INSTANCE, configuration)) {
            admin.recoverBookieData(BookieId.parse(bookie));
            return result();
        }
    }

    private ObjectNode entriesOn(String bookie, long ledger) throws Exception {
        try (BookKeeperAdmin admin = new BookKeeperAdmin(client)) {
            long entries = admin.asyncGetListOfEntriesOfLedger(BookieId.parse(bookie), ledger)
                    .get(10, TimeUnit.SECONDS).getTotalNumOfAvailableEntries();
            return result().put("entries", entries);
        }
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte b : bytes) {
            text.append(String.format("%02x", b));
        }
        return text.toString();
    }
}
