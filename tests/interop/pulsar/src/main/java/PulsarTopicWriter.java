import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.Set;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.ManagedLedgerConfig;
import org.apache.bookkeeper.mledger.ManagedLedgerFactoryConfig;
import org.apache.bookkeeper.mledger.impl.ManagedLedgerFactoryImpl;
import org.apache.bookkeeper.mledger.impl.PositionImpl;
import org.apache.pulsar.common.api.proto.CompressionType;
import org.apache.pulsar.common.api.proto.MessageMetadata;
import org.apache.pulsar.common.api.proto.SingleMessageMetadata;
import org.apache.pulsar.common.compression.CompressionCodecProvider;
import org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor;
import org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor;
import org.apache.pulsar.common.intercept.BrokerEntryMetadataInterceptor;
import org.apache.pulsar.common.protocol.Commands;
import org.apache.pulsar.metadata.api.MetadataStoreConfig;
import org.apache.pulsar.metadata.api.extended.MetadataStoreExtended;

/**
 * Writes a topic as a Pulsar broker does, with Pulsar's own classes: PulsarTopicWriter ZOOKEEPER TOPIC COMPRESSION HOW. COMPRESSION is how
 * the list of ledgers is compressed, HOW a list of the ways in which messages are. Prints a line "name ledger:entry hex" for each entry, and at the end "node - hex", what ZooKeeper has.
 */
public class PulsarTopicWriter {
    private final List<String> said = new ArrayList<>();
    private ManagedLedger topic;
    private long sequence;

    public static void main(String[] arguments) throws Exception {
        new PulsarTopicWriter().run(arguments[0], arguments[1], arguments[2], arguments[3].split(","));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private void run(String zookeeper, String name, String infoCompression, String[] ways) throws Exception {
        MetadataStoreExtended store = MetadataStoreExtended.create("zk:" + zookeeper, MetadataStoreConfig.builder().build());
        ClientConfiguration client = new ClientConfiguration();
        client.setMetadataServiceUri("zk+hierarchical://" + zookeeper + "/ledgers");
        ManagedLedgerFactoryConfig factoryConfig = new ManagedLedgerFactoryConfig();
        factoryConfig.setManagedLedgerInfoCompressionType(infoCompression);
        ManagedLedgerFactoryImpl factory = new ManagedLedgerFactoryImpl(store, client, factoryConfig);
        ManagedLedgerConfig config = new ManagedLedgerConfig();
        config.setEnsembleSize(3).setWriteQuorumSize(2).setAckQuorumSize(2).setDigestType(DigestType.CRC32C).setPassword("");
        config.setMaxEntriesPerLedger(6);
        config.setMinimumRolloverTime(0, java.util.concurrent.TimeUnit.MILLISECONDS);
        topic = factory.open(name, config);
        topic.openCursor("keeps-it");  // without a subscription Pulsar deletes what is closed

        add("plain", one(metadata(), "plain"));
        add("with-all", one(metadata().setPartitionKey("key").setEventTime(1_600_000_000_123L).setOrderingKey("order".getBytes())
                , "with all"));
        add("null-value", one(metadata().setPartitionKey("key").setNullValue(true), ""));
        add("base64-key", one(metadata().setPartitionKey("a2V5").setPartitionKeyB64Encoded(true), "base64 key"));
        add("empty", one(metadata(), ""));
        for (String way : ways) {
            CompressionType how = CompressionType.valueOf(way);
            add("compressed-" + how, compressed(metadata(), how, "text that compresses, ".repeat(40).getBytes()));
            add("batch-" + how, batch(metadata(), how, 3));
        }
        add("batch-of-one", batch(metadata(), CompressionType.NONE, 1));
        add("chunk-0", one(metadata().setUuid("p-7").setNumChunksFromMsg(2).setTotalChunkMsgSize(10).setChunkId(0), "first"));
        add("chunk-1", one(metadata().setUuid("p-7").setNumChunksFromMsg(2).setTotalChunkMsgSize(10).setChunkId(1), "other"));
        MessageMetadata encrypted = metadata().setEncryptionAlgo("AES/GCM").setEncryptionParam(new byte[] {1, 2, 3})
                .setCompression(CompressionType.LZ4).setUncompressedSize(99).setNumMessagesInBatch(2);
        encrypted.addEncryptionKey().setKey("app.key").setValue(new byte[] {9});
        add("encrypted", one(encrypted, "not to be read"));
        add("marker", one(metadata().setMarkerType(10), ""));
        add("transaction", one(metadata().setTxnidMostBits(4).setTxnidLeastBits(5), "in a transaction"));
        add("unchecked", Commands.serializeMetadataAndPayload(Commands.ChecksumType.None, metadata(), Unpooled.wrappedBuffer("no checksum".getBytes())));
        Set<BrokerEntryMetadataInterceptor> interceptors = Set.of(new AppendBrokerTimestampMetadataInterceptor(), new AppendIndexMetadataInterceptor());
        add("by-broker", Commands.addBrokerEntryMetadata(one(metadata(), "indexed"), interceptors, 1));
        add("batch-by-broker", Commands.addBrokerEntryMetadata(batch(metadata(), CompressionType.ZLIB, 3), interceptors, 3));

        byte[] node = store.get("/managed-ledgers/" + name).get().orElseThrow().getValue();
        System.out.print(String.join("", said));
        System.out.println("node - " + ByteBufUtil.hexDump(node));
    }

    private MessageMetadata metadata() {
        MessageMetadata made = new MessageMetadata().setProducerName("producer").setSequenceId(sequence++).setPublishTime(1_700_000_000_000L + sequence);
        made.addProperty().setKey("colour").setValue("blau, größer");
        return made;
    }

    private static ByteBuf one(MessageMetadata metadata, String payload) {
        return Commands.serializeMetadataAndPayload(Commands.ChecksumType.Crc32c, metadata, Unpooled.wrappedBuffer(payload.getBytes(StandardCharsets.UTF_8)));
    }

    private static ByteBuf compressed(MessageMetadata metadata, CompressionType how, byte[] payload) {
        ByteBuf packed = CompressionCodecProvider.getCompressionCodec(how).encode(Unpooled.wrappedBuffer(payload));
        metadata.setUncompressedSize(payload.length);
        if (how != CompressionType.NONE) {
            metadata.setCompression(how);
        }
        return Commands.serializeMetadataAndPayload(Commands.ChecksumType.Crc32c, metadata, packed);
    }

    private static ByteBuf batch(MessageMetadata metadata, CompressionType how, int count) {
        ByteBuf buffer = Unpooled.buffer();
        for (int number = 0; number < count; number++) {
            SingleMessageMetadata single = new SingleMessageMetadata().setSequenceId(metadata.getSequenceId() + number).setEventTime(5 + number);
            if (number == 1) {
                single.setPartitionKey("key").setNullValue(true);
            }
            single.addProperty().setKey("n").setValue("" + number);
            byte[] payload = number == 1 ? new byte[0] : ("message " + number).getBytes();
            Commands.serializeSingleMessageInBatchWithPayload(single, Unpooled.wrappedBuffer(payload), buffer);
        }
        metadata.setNumMessagesInBatch(count);
        byte[] whole = new byte[buffer.readableBytes()];
        buffer.readBytes(whole);
        return compressed(metadata, how, whole);
    }

    private void add(String what, ByteBuf entry) throws Exception {
        byte[] data = new byte[entry.readableBytes()];
        entry.readBytes(data);
        PositionImpl at = (PositionImpl) topic.addEntry(data);
        said.add(what + " " + at.getLedgerId() + ":" + at.getEntryId() + " " + ByteBufUtil.hexDump(data) + "\n");
    }
}
