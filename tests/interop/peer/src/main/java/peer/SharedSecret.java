package peer;

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.Arrays;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.bookkeeper.auth.AuthCallbacks;
import org.apache.bookkeeper.auth.AuthToken;
import org.apache.bookkeeper.auth.BookieAuthProvider;
import org.apache.bookkeeper.auth.ClientAuthProvider;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.conf.AbstractConfiguration;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.proto.BookieConnectionPeer;
import org.apache.bookkeeper.proto.ClientConnectionPeer;

/**
 * The plug-in of {@code bkclient.security.auth.SharedSecret} for both sides of Apache BookKeeper. The configuration key {@code peerSharedSecret}
 * holds the secret; with {@code peerAuthAfterTls} the client waits for TLS before it speaks, which BookKeeper's client does not demand.
 */
public final class SharedSecret {
    private static final String NAME = "bkclient-shared-secret";
    private static final int NONCE_SIZE = 16;

    private SharedSecret() {}

    private static byte[] secret(AbstractConfiguration<?> configuration) {
        return configuration.getString("peerSharedSecret").getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] nonce() {
        byte[] nonce = new byte[NONCE_SIZE];
        new SecureRandom().nextBytes(nonce);
        return nonce;
    }

    private static byte[] proof(byte[] secret, String of, byte[] clientNonce, byte[] bookieNonce) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(secret, "HmacSHA256"));
            mac.update(of.getBytes(StandardCharsets.US_ASCII));
            mac.update(clientNonce);
            return mac.doFinal(bookieNonce);
        } catch (GeneralSecurityException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static byte[] joined(byte[] first, byte[] second) {
        byte[] both = Arrays.copyOf(first, first.length + second.length);
        System.arraycopy(second, 0, both, first.length, second.length);
        return both;
    }

    /** The bookie's side. */
    public static final class Bookie implements BookieAuthProvider.Factory {
        private byte[] secret;

        @Override
        public void init(ServerConfiguration configuration) {
            secret = secret(configuration);
        }

        @Override
        public String getPluginName() {
            return NAME;
        }

        @Override
        public BookieAuthProvider newProvider(BookieConnectionPeer peer, AuthCallbacks.GenericCallback<Void> complete) {
            byte[] nonce = nonce();
            return new BookieAuthProvider() {
                private byte[] clientNonce;

                @Override
                public void process(AuthToken message, AuthCallbacks.GenericCallback<AuthToken> answer) {
                    byte[] payload = message.getData();
                    if (clientNonce == null) {
                        clientNonce = payload;
                        byte[] proof = proof(secret, "bookie", clientNonce, nonce);
                        answer.operationComplete(BKException.Code.OK, AuthToken.wrap(joined(nonce, proof)));
                    } else if (MessageDigest.isEqual(payload, proof(secret, "client", clientNonce, nonce))) {
                        complete.operationComplete(BKException.Code.OK, null);
                        answer.operationComplete(BKException.Code.OK, AuthToken.wrap(new byte[0]));
                    } else {
                        complete.operationComplete(BKException.Code.UnauthorizedAccessException, null);
                        answer.operationComplete(BKException.Code.UnauthorizedAccessException, null);
                    }
                }
            };
        }
    }

    /** The client's side. */
    public static final class Client implements ClientAuthProvider.Factory {
        private byte[] secret;
        private boolean afterTls;

        @Override
        public void init(ClientConfiguration configuration) {
            secret = secret(configuration);
            afterTls = configuration.getBoolean("peerAuthAfterTls", false);
        }

        @Override
        public String getPluginName() {
            return NAME;
        }

        @Override
        public ClientAuthProvider newProvider(ClientConnectionPeer peer, AuthCallbacks.GenericCallback<Void> complete) {
            byte[] nonce = nonce();
            return new ClientAuthProvider() {
                private AuthCallbacks.GenericCallback<AuthToken> waiting;
                private boolean hasProved;

                @Override
                public void init(AuthCallbacks.GenericCallback<AuthToken> first) {
                    if (afterTls) {
                        waiting = first;
                    } else {
                        first.operationComplete(BKException.Code.OK, AuthToken.wrap(nonce));
                    }
                }

                @Override
                public void onProtocolUpgrade() {
                    if (waiting != null) {
                        waiting.operationComplete(BKException.Code.OK, AuthToken.wrap(nonce));
                    }
                }

                @Override
                public void process(AuthToken message, AuthCallbacks.GenericCallback<AuthToken> answer) {
                    if (hasProved) {
                        complete.operationComplete(BKException.Code.OK, null);
                        return;
                    }
                    byte[] payload = message.getData();
                    byte[] bookieNonce = Arrays.copyOf(payload, NONCE_SIZE);
                    byte[] proof = Arrays.copyOfRange(payload, Math.min(NONCE_SIZE, payload.length), payload.length);
                    if (MessageDigest.isEqual(proof, proof(secret, "bookie", nonce, bookieNonce))) {
                        hasProved = true;
                        byte[] ours = proof(secret, "client", nonce, bookieNonce);
                        answer.operationComplete(BKException.Code.OK, AuthToken.wrap(ours));
                    } else {
                        complete.operationComplete(BKException.Code.UnauthorizedAccessException, null);
                    }
                }
            };
        }
    }
}
