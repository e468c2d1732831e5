package served;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.bookie.Bookie;
import org.apache.bookkeeper.bookie.StateManager;

/** The few questions to a bookie that a process can answer from outside; all others end with {@link InsideOfJava}. */
final class ServedBookie {
    private ServedBookie() {
    }

    static Bookie of(ServedProcess process) {
        StateManager state = proxy(StateManager.class, (self, method, arguments) -> switch (method.getName()) {
            case "isReadOnly" -> process.isReadOnly();
            case "isRunning" -> process.isRunning();
            case "transitionToReadOnlyMode" -> done(process, true);
            case "transitionToWritableMode" -> done(process, false);
            default -> throw new InsideOfJava("StateManager." + method.getName());
        });
        return proxy(Bookie.class, (self, method, arguments) -> switch (method.getName()) {
            case "getStateManager" -> state;
            case "getLedgerStorage" -> new ServedStorage(process);
            case "isReadOnly" -> process.isReadOnly();
            case "isRunning" -> process.isRunning();
            case "getExitCode" -> process.exitCode();
            case "toString" -> "a bookie of ours";
            case "hashCode" -> System.identityHashCode(self);
            case "equals" -> self == arguments[0];
            case "shutdown" -> {
                process.stop();
                yield process.exitCode();
            }
            default -> throw new InsideOfJava("Bookie." + method.getName());
        });
    }

    private static CompletableFuture<Void> done(ServedProcess process, boolean readOnly) throws Exception {
        process.setReadOnly(readOnly);
        return CompletableFuture.completedFuture(null);
    }

    private static <T> T proxy(Class<T> type, InvocationHandler handler) {
        return type.cast(Proxy.newProxyInstance(ServedBookie.class.getClassLoader(), new Class<?>[] {type}, handler));
    }
}
