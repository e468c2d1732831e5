import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.pulsar.PulsarClusterMetadataSetup;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.common.configuration.PulsarConfigurationLoader;

/**
 * A Pulsar broker: {@code PulsarBroker CONF}, where CONF is a {@code broker.conf}. It makes the metadata of its cluster with Pulsar's own tool, prints its URL when
 * it serves, and ends when its standard input does.
 */
public final class PulsarBroker {
    private PulsarBroker() {}

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err); // whatever a library prints must not be taken for the URL
        ServiceConfiguration configuration = PulsarConfigurationLoader.create(arguments[0], ServiceConfiguration.class);
        String port = ":" + configuration.getBrokerServicePort().orElseThrow();
        String webPort = ":" + configuration.getWebServicePort().orElseThrow();
        PulsarClusterMetadataSetup.main(new String[] {
            "--cluster", configuration.getClusterName(),
            "--metadata-store", configuration.getMetadataStoreUrl(),
            "--configuration-metadata-store", configuration.getMetadataStoreUrl(),
            "--existing-bk-metadata-service-uri", configuration.getBookkeeperMetadataStoreUrl(),
            "--web-service-url", "http://127.0.0.1" + webPort,
            "--broker-service-url", "pulsar://127.0.0.1" + port,
        });
        PulsarService broker = new PulsarService(configuration);
        broker.start();
        answers.println("pulsar://127.0.0.1" + port);
        answers.flush();
        while (System.in.read() >= 0) { } // nothing is asked of it this way
        Runtime.getRuntime().halt(0);
    }
}
