import java.io.BufferedReader;
import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import java.util.stream.Collectors;

import jdk.jshell.Diag;
import jdk.jshell.EvalException;
import jdk.jshell.ExpressionSnippet;
import jdk.jshell.JShell;
import jdk.jshell.JShellException;
import jdk.jshell.Snippet;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis.Completeness;
import jdk.jshell.SourceCodeAnalysis.CompletionInfo;
import jdk.jshell.UnresolvedReferenceException;
import jdk.jshell.VarSnippet;
import jdk.jshell.execution.LocalExecutionControlProvider;

/**
 * The kernel of Java: evaluates with the JDK's jshell, in this process. Requests are lines on the descriptor
 * that the first argument names, answers are lines of JSON on the second's (java.py, lines.py).
 */
public final class Kernel {
    /** What the jshell program imports, too. */
    private static final List<String> IMPORTS = List.of("java.io", "java.math", "java.net", "java.nio.file",
        "java.util", "java.util.concurrent", "java.util.function", "java.util.regex", "java.util.stream");

    private final BufferedReader requests;
    private final Answers answers;
    private final JShell shell;
    private final Map<String, String> properties = new HashMap<>(); // as they were before they were set here
    private volatile boolean interrupted;
    private volatile boolean stopped; // the interrupt has had all of its effect
    private int executions;

    private Kernel(BufferedReader requests, Answers answers) {
        this.requests = requests;
        this.answers = answers;
        System.setOut(answers.stream("stdout"));
        System.setErr(answers.stream("stderr"));
        shell = JShell.builder().executionEngine(new LocalExecutionControlProvider(), Map.of()).build();
        for (String name : IMPORTS) {
            shell.eval("import " + name + ".*;");
        }
        addToClasspath(System.getenv("CLASSPATH"));
    }

    public static void main(String[] args) throws IOException {
        Answers answers = new Answers(new FileOutputStream("/dev/fd/" + args[1]));
        Kernel kernel = new Kernel(new BufferedReader(new InputStreamReader(
            new FileInputStream("/dev/fd/" + args[0]), StandardCharsets.US_ASCII)), answers);
        sun.misc.Signal.handle(new sun.misc.Signal("INT"), s -> {
            kernel.interrupted = true;
            kernel.shell.stop();
            kernel.stopped = true;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(answers::flush));
        kernel.serve();
    }

    private void serve() throws IOException {
        answers.say("ready", Map.of());
        for (String line; (line = requests.readLine()) != null;) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "run" -> run(words.length > 1 ? unpacked(words[1]) : "");
                case "properties" -> List.of(words).subList(1, words.length).forEach(this::property);
                case "reseed" -> Seeds.renew(Long.parseLong(words[1]));
                case "settle" -> settle();
                default -> throw new IllegalArgumentException(words[0]);
            }
            answers.say("done", Map.of());
        }
        System.exit(0); // threads of user code may be there
    }

    private static String unpacked(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    /** Sets a system property, or puts it back: KEY:VALUE or KEY. */
    private void property(String word) {
        String[] pair = word.split(":", -1);
        String key = unpacked(pair[0]);
        if (key.isEmpty()) {
            return; // no property has that name
        }
        String value = pair.length > 1 ? unpacked(pair[1]) : properties.get(key);
        if (!properties.containsKey(key)) {
            properties.put(key, System.getProperty(key)); // or null
        }
        if (value == null) {
            System.clearProperty(key);
        } else {
            System.setProperty(key, value);
        }
        if (key.equals("CLASSPATH")) {
            addToClasspath(value);
        }
    }

    /** Adds folders and archives, or all archives of a folder: FOLDER/*. What is there stays. */
    private void addToClasspath(String paths) {
        for (String path : paths == null ? new String[0] : paths.split(File.pathSeparator)) {
            if (path.endsWith("/*")) {
                File[] jars = new File(path.substring(0, path.length() - 1))
                    .listFiles((d, name) -> name.endsWith(".jar"));
                for (File jar : jars == null ? new File[0] : jars) {
                    shell.addToClasspath(jar.getPath());
                }
            } else if (!path.isEmpty()) {
                shell.addToClasspath(path);
            }
        }
    }

    /** Waits for the interrupt of the last cell: the JVM handles signals on a thread of its own. */
    private void settle() {
        for (int i = 0; i < 100 && !stopped; i++) {
            try {
                Thread.sleep(10);
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    /** Evaluates a cell snippet by snippet, up to one that fails. */
    private void run(String code) {
        interrupted = stopped = false;
        answers.say("number_of_executions", Map.of("execution_count", ++executions));
        String value = null;
        for (String rest = code; !rest.isBlank();) {
            CompletionInfo info = shell.sourceCodeAnalysis().analyzeCompletion(rest);
            if (info.completeness() == Completeness.EMPTY) {
                break; // comments
            }
            boolean complete = info.completeness().isComplete();
            value = null;
            for (SnippetEvent event : shell.eval(complete ? info.source() : rest)) {
                if (interrupted) {
                    error("InterruptedException", "The execution was interrupted", "");
                    return;
                }
                if (event.causeSnippet() != null) {
                    continue; // what depends on the snippet
                }
                if (!succeeded(event)) {
                    return;
                }
                value = shown(event);
            }
            rest = complete ? info.remaining() : "";
        }
        if (value != null) {
            answers.say("result", Map.of("main", true, "data", Map.of("text/plain", value)));
        }
    }

    private boolean succeeded(SnippetEvent event) {
        if (event.exception() instanceof UnresolvedReferenceException e) {
            error("UnresolvedReferenceException", unresolved(e.getSnippet()), "");
        } else if (event.exception() instanceof EvalException e) {
            error(simple(e.getExceptionClassName()), e.getMessage(), trace(e));
        } else if (event.exception() != null) {
            error(event.exception().getClass().getSimpleName(), event.exception().getMessage(), "");
        } else if (event.status() == Snippet.Status.REJECTED) {
            List<Diag> wrong = shell.diagnostics(event.snippet()).filter(Diag::isError).toList();
            error("CompilationException", wrong.isEmpty() ? "The code is not valid" : wrong.get(0).getMessage(null),
                wrong.stream().map(d -> marked(event.snippet().source(), d)).collect(Collectors.joining("\n")));
        } else {
            if (event.status() != Snippet.Status.VALID) { // recoverable
                System.err.println("Note: " + unresolved(event.snippet()));
            }
            return true;
        }
        return false;
    }

    private String unresolved(Snippet snippet) {
        if (!(snippet instanceof jdk.jshell.DeclarationSnippet declaration)) {
            return "Something is not declared";
        }
        return declaration.name() + " cannot be used until there is "
            + shell.unresolvedDependencies(declaration).collect(Collectors.joining(", "));
    }

    /** What is shown of a snippet: the value of an expression that has one. */
    private static String shown(SnippetEvent event) {
        Snippet.SubKind kind = event.snippet().subKind();
        String value = event.value();
        if (!kind.hasValue() || kind == Snippet.SubKind.VAR_DECLARATION_SUBKIND
            || kind == Snippet.SubKind.VAR_DECLARATION_WITH_INITIALIZER_SUBKIND
            || value == null || value.isEmpty() || value.equals("null")) {
            return null;
        }
        boolean text = event.snippet() instanceof VarSnippet v && v.typeName().equals("String")
            || event.snippet() instanceof ExpressionSnippet x && x.typeName().equals("String");
        return text ? raw(value) : value;
    }

    /** The text of a String, which jshell shows as Java would have it: in quotes, with escapes. */
    private static String raw(String value) {
        try {
            return value.startsWith("\"") ? value.substring(1, value.length() - 1).translateEscapes() : value;
        } catch (IllegalArgumentException e) {
            return value;
        }
    }

    private static String simple(String name) {
        return name.substring(Math.max(name.lastIndexOf('.'), name.lastIndexOf('$')) + 1);
    }

    private static String trace(Throwable e) {
        StringBuilder text = new StringBuilder();
        for (Throwable at = e; at != null; at = at.getCause()) {
            String name = at instanceof EvalException v ? v.getExceptionClassName() : at.getClass().getName();
            text.append(at == e ? "" : "Caused by: ").append(name.replaceFirst("^REPL\\.\\$JShell\\$\\w+\\$", ""));
            text.append(at.getMessage() == null ? "" : ": " + at.getMessage()).append('\n');
            for (StackTraceElement frame : at.getStackTrace()) {
                String where = (frame.getFileName() == null ? "?" : frame.getFileName()) + ":" + frame.getLineNumber();
                String what = frame.getClassName().isEmpty() ? frame.getMethodName()
                    : frame.getClassName() + "." + frame.getMethodName();
                text.append("    at ").append(what.isEmpty() ? "" : what + " ").append("(").append(where).append(")\n");
            }
        }
        return text.toString();
    }

    /** A compiler's message, and the line that it is about. */
    private static String marked(String source, Diag d) {
        int at = (int) Math.max(0, Math.min(d.getPosition(), source.length()));
        int begin = source.lastIndexOf('\n', at - 1) + 1;
        int end = source.indexOf('\n', at);
        String line = source.substring(begin, end < 0 ? source.length() : end);
        return "error: " + d.getMessage(null) + "\n  " + line + "\n  " + " ".repeat(at - begin) + "^";
    }

    private void error(String name, String value, String traceback) {
        value = value == null ? "" : value;
        answers.say("error", Map.of("name", name, "value", value,
            "traceback", traceback.isEmpty() ? name + ": " + value : traceback));
    }

    /** Lines of JSON, with what was printed before each. */
    private static final class Answers {
        private static final int MOST = 1 << 16; // characters that are kept back
        private static final int PAUSE = 20; // milliseconds that they are

        private final OutputStream out;
        private final StringBuilder printed = new StringBuilder();
        private String name = "stdout"; // of the stream that it was printed to

        Answers(OutputStream out) {
            this.out = out;
            Thread flusher = new Thread(this::flushing, "flusher");
            flusher.setDaemon(true);
            flusher.start();
        }

        synchronized void say(String type, Map<String, Object> fields) {
            flush();
            Map<String, Object> event = new HashMap<>(fields);
            event.put("type", type);
            write(event);
        }

        synchronized void flush() {
            if (printed.length() > 0) {
                String text = printed.toString();
                printed.setLength(0);
                write(Map.of("type", name, "text", text));
            }
        }

        synchronized void print(String stream, String text) {
            if (!name.equals(stream)) {
                flush();
                name = stream;
            }
            printed.append(text);
            if (printed.length() >= MOST) {
                flush();
            } else {
                notify();
            }
        }

        /** Writes what was printed soon after, in one message. While nothing is, this sleeps. */
        private void flushing() {
            try {
                while (true) {
                    synchronized (this) {
                        while (printed.length() == 0) {
                            wait();
                        }
                    }
                    Thread.sleep(PAUSE);
                    flush();
                }
            } catch (InterruptedException e) {
                flush();
            }
        }

        PrintStream stream(String stream) {
            return new PrintStream(new OutputStream() {
                @Override
                public void write(int b) {
                    write(new byte[] {(byte) b}, 0, 1);
                }

                @Override
                public void write(byte[] b, int off, int len) {
                    print(stream, new String(b, off, len, StandardCharsets.UTF_8));
                }
            }, false, StandardCharsets.UTF_8);
        }

        private void write(Map<String, Object> event) {
            StringBuilder text = new StringBuilder();
            json(text, event);
            try {
                out.write(text.append('\n').toString().getBytes(StandardCharsets.US_ASCII));
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        private static void json(StringBuilder to, Object value) {
            if (value instanceof Map<?, ?> map) {
                String comma = "{";
                for (Map.Entry<?, ?> e : map.entrySet()) {
                    to.append(comma);
                    json(to, e.getKey());
                    to.append(':');
                    json(to, e.getValue());
                    comma = ",";
                }
                to.append(map.isEmpty() ? "{}" : "}");
            } else if (value instanceof String s) {
                to.append('"');
                s.chars().forEach(c -> {
                    if (c < ' ' || c > '~' || c == '"' || c == '\\') {
                        to.append(String.format("\\u%04x", c));
                    } else {
                        to.append((char) c);
                    }
                });
                to.append('"');
            } else {
                to.append(value); // numbers and booleans
            }
        }
    }

    /** What the JVM draws random numbers from, which a clone has a copy of. Another JDK may have others. */
    private static final class Seeds {
        static void renew(long seed) {
            SplittableRandom next = new SplittableRandom(seed);
            for (String type : List.of("Math", "StrictMath")) {
                of("java.lang." + type + "$RandomNumberGeneratorHolder", "randomNumberGenerator",
                    v -> ((Random) v).setSeed(next.nextLong()));
            }
            of("java.util.Collections", "r", v -> ((Random) v).setSeed(next.nextLong()));
            of("java.util.Random", "seedUniquifier", v -> ((AtomicLong) v).set(next.nextLong()));
            of("java.util.SplittableRandom", "defaultGen", v -> ((AtomicLong) v).set(next.nextLong()));
            of("java.util.UUID$Holder", "numberGenerator", v -> ((SecureRandom) v).setSeed(bytes(next.nextLong())));
            of("java.util.concurrent.ThreadLocalRandom", "seeder", v -> ((AtomicLong) v).set(next.nextLong()));
            try { // a thread whose probe is 0 takes a new seed of the seeder
                Field probe = Thread.class.getDeclaredField("threadLocalRandomProbe");
                probe.setAccessible(true);
                for (Thread t : Thread.getAllStackTraces().keySet()) {
                    probe.setInt(t, 0);
                }
            } catch (ReflectiveOperationException | RuntimeException e) {
                System.err.println("forkd: reseed threads: " + e);
            }
        }

        private static void of(String type, String field, Consumer<Object> renew) {
            try {
                Field f = Class.forName(type).getDeclaredField(field);
                f.setAccessible(true);
                Object value = f.get(null);
                if (value != null) {
                    renew.accept(value);
                }
            } catch (ReflectiveOperationException | RuntimeException e) {
                System.err.println("forkd: reseed " + type + ": " + e);
            }
        }

        private static byte[] bytes(long v) {
            return ByteBuffer.allocate(Long.BYTES).putLong(v).array();
        }
    }
}
