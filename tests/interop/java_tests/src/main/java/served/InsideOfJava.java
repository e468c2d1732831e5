package served;

/** A test reached for something that only a bookie inside its own process has. */
public final class InsideOfJava extends UnsupportedOperationException {
    private static final long serialVersionUID = 1L;

    InsideOfJava(String what) {
        super("reaches into a bookie of Java: " + what);
    }
}
