package peer;

import com.sun.net.httpserver.HttpExchange;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Paths;
import java.util.HashMap;
import java.util.Map;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.http.AbstractHttpHandlerFactory;
import org.apache.bookkeeper.http.HttpRouter;
import org.apache.bookkeeper.http.HttpServer;
import org.apache.bookkeeper.http.service.HttpEndpointService;
import org.apache.bookkeeper.http.service.HttpServiceRequest;
import org.apache.bookkeeper.http.service.HttpServiceResponse;
import org.apache.bookkeeper.meta.MetadataBookieDriver;
import org.apache.bookkeeper.meta.MetadataDrivers;
import org.apache.bookkeeper.server.EmbeddedServer;
import org.apache.bookkeeper.server.conf.BookieConfiguration;
import org.apache.bookkeeper.server.http.BKHttpServiceProvider;
import org.apache.bookkeeper.stats.NullStatsLogger;

/** A bookie in this process, with the services behind its HTTP interface on a port; without the libraries that serve it there. */
public final class HttpBridge {
    private HttpBridge() {}

    public static void main(String[] arguments) throws Exception {
        ServerConfiguration conf = new ServerConfiguration();
        conf.loadConf(Paths.get(arguments[0]).toUri().toURL());
        EmbeddedServer embedded = EmbeddedServer.builder(new BookieConfiguration(conf)).build();
        embedded.getLifecycleComponentStack().start();
        MetadataBookieDriver driver = MetadataDrivers.getBookieDriver(URI.create(conf.getMetadataServiceUri()));
        driver.initialize(conf, NullStatsLogger.INSTANCE);
        BKHttpServiceProvider provider = new BKHttpServiceProvider.Builder()
            .setBookieServer(embedded.getBookieService().getServer())
            .setServerConfiguration(conf)
            .setStatsProvider(embedded.getStatsProvider())
            .setLedgerManagerFactory(driver.getLedgerManagerFactory())
            .build();
        com.sun.net.httpserver.HttpServer server =
            com.sun.net.httpserver.HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        Map<String, HttpEndpointService> services = new HashMap<>();
        new HttpRouter<HttpEndpointService>(new AbstractHttpHandlerFactory<HttpEndpointService>(provider) {
            @Override
            public HttpEndpointService newHandler(HttpServer.ApiType type) {
                return provider.provideHttpEndpointService(type);
            }
        }) {
            @Override
            public void bindHandler(String endpoint, HttpEndpointService service) {
                services.put(endpoint, service);
            }
        }.bindAll();
        server.createContext("/", exchange -> answer(exchange, services.get(exchange.getRequestURI().getPath())));
        server.start();
        System.out.println("port " + server.getAddress().getPort());
        System.out.flush();
        Thread.currentThread().join();
    }

    private static void answer(HttpExchange exchange, HttpEndpointService service) throws IOException {
        int status = 404;
        String text = "";
        if (service != null) {
            try {
                byte[] body = exchange.getRequestBody().readAllBytes();
                HttpServiceResponse response = service.handle(new HttpServiceRequest()
                    .setMethod(HttpServer.Method.valueOf(exchange.getRequestMethod()))
                    .setParams(params(exchange.getRequestURI()))
                    .setBody(body.length == 0 ? null : new String(body, StandardCharsets.UTF_8)));
                status = response.getStatusCode();
                text = response.getBody() == null ? "" : response.getBody();
            } catch (Exception e) {
                status = 500;
                text = "Internal Server Error";
            }
        }
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(status, bytes.length == 0 ? -1 : bytes.length);
        exchange.getResponseBody().write(bytes);
        exchange.close();
    }

    private static Map<String, String> params(URI uri) {
        Map<String, String> found = new HashMap<>();
        if (uri.getQuery() != null) {
            for (String part : uri.getQuery().split("&")) {
                String[] pair = part.split("=", 2);
                found.put(pair[0], pair.length > 1 ? pair[1] : "");
            }
        }
        return found;
    }
}
