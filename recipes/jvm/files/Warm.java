import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.StandardProtocolFamily;
import java.net.URI;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.SecureRandom;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import javax.tools.FileObject;
import javax.tools.ForwardingJavaFileManager;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileManager;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import javax.tools.ToolProvider;

/**
 * Compiles and runs programs that arrive on a Unix socket, one after the other, in this JVM.
 * Request: the source, until the client ends its side. Answer: a line with the exit status, then the output.
 */
public class Warm {
    private static final Path SOCKET = Path.of("/tmp/java-run.sock");
    private static final int LARGEST = 16 << 20; // bytes of a program
    private static final JavaCompiler COMPILER = ToolProvider.getSystemJavaCompiler();
    private static final PrintStream OUT = System.out, ERR = System.err;

    public static void main(String[] args) throws IOException {
        Files.deleteIfExists(SOCKET);
        Clone.isNew();
        try (var server = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            server.bind(UnixDomainSocketAddress.of(SOCKET));
            Files.setPosixFilePermissions(SOCKET, PosixFilePermissions.fromString("rw-------"));
            while (true) {
                try (SocketChannel client = server.accept()) {
                    answer(Channels.newInputStream(client), Channels.newOutputStream(client));
                } catch (IOException e) { // the client went away
                    ERR.println("java-run: " + e);
                }
            }
        }
    }

    private static void answer(InputStream in, OutputStream out) throws IOException {
        byte[] source = in.readNBytes(LARGEST + 1);
        if (source.length > LARGEST) throw new IOException("a program of more than 16 MiB");
        if (Clone.isNew()) Clone.reseed();
        var output = new ByteArrayOutputStream();
        int status = run(new String(source, StandardCharsets.UTF_8), new PrintStream(output, true, StandardCharsets.UTF_8));
        out.write((status + "\n").getBytes(StandardCharsets.UTF_8));
        output.writeTo(out);
    }

    /** Runs a program in a thread of its own, and returns its exit status. */
    private static int run(String source, PrintStream out) throws IOException {
        int[] status = {1};
        var thread = new Thread(null, () -> status[0] = compileAndRun(source, out), "program", 8 << 20);
        System.setOut(out);
        System.setErr(out);
        try {
            thread.start();
            thread.join();
        } catch (InterruptedException e) { // nobody interrupts this thread
            throw new IOException(e);
        } finally {
            out.flush();
            System.setOut(OUT);
            System.setErr(ERR);
        }
        return status[0];
    }

    private static int compileAndRun(String source, PrintStream out) {
        try {
            var classes = new Classes(COMPILER.getStandardFileManager(null, null, null));
            var text = new SimpleJavaFileObject(URI.create("string:///Main.java"), JavaFileObject.Kind.SOURCE) {
                @Override public CharSequence getCharContent(boolean ignore) { return source; }
                // A public class may have any name.
                @Override public boolean isNameCompatible(String name, Kind kind) { return true; }
            };
            var errors = new PrintWriter(out, true);
            if (!COMPILER.getTask(errors, classes, null, List.of("-proc:none"), null, List.of(text)).call()) return 1;
            Method main = classes.main();
            if (main == null) {
                out.println("java-run: no class has public static void main(String[])");
                return 1;
            }
            main.setAccessible(true); // the class need not be public
            main.invoke(null, (Object) new String[0]);
            return 0;
        } catch (InvocationTargetException e) {
            e.getCause().printStackTrace(out);
        } catch (ReflectiveOperationException | RuntimeException | Error e) {
            e.printStackTrace(out);
        }
        return 1;
    }

    /** The classes of one program, in memory. */
    private static final class Classes extends ForwardingJavaFileManager<JavaFileManager> {
        private final Map<String, ByteArrayOutputStream> compiled = new HashMap<>();

        Classes(JavaFileManager files) { super(files); }

        @Override public JavaFileObject getJavaFileForOutput(Location at, String name, JavaFileObject.Kind kind, FileObject sibling) {
            return new SimpleJavaFileObject(URI.create("memory:///" + name.replace('.', '/') + kind.extension), kind) {
                @Override public OutputStream openOutputStream() {
                    var bytes = new ByteArrayOutputStream();
                    compiled.put(name, bytes);
                    return bytes;
                }
            };
        }

        Method main() throws ClassNotFoundException {
            var loader = new ClassLoader(ClassLoader.getSystemClassLoader()) {
                @Override protected Class<?> findClass(String name) throws ClassNotFoundException {
                    var bytes = compiled.get(name);
                    if (bytes == null) throw new ClassNotFoundException(name);
                    return defineClass(name, bytes.toByteArray(), 0, bytes.size());
                }
            };
            for (String name : compiled.keySet()) {
                try {
                    return loader.loadClass(name).getMethod("main", String[].class);
                } catch (NoSuchMethodException e) { // another class has it
                }
            }
            return null;
        }
    }

    /** What a clone must not share with its siblings. */
    private static final class Clone {
        private static String boot = "";

        /** Reports whether this JVM is a clone since the last call: a clone has a boot id of its own. */
        static boolean isNew() throws IOException {
            String now = Files.readString(Path.of("/proc/sys/kernel/random/boot_id"));
            boolean changed = !now.equals(boot);
            boot = now;
            return changed;
        }

        /**
         * Reseeds the generators of the JDK that keep a state in memory. SecureRandom reads the kernel's, and each
         * program has a thread of its own, which takes the seed of ThreadLocalRandom anew.
         */
        static void reseed() {
            var seed = new SecureRandom();
            set("java.lang.Math$RandomNumberGeneratorHolder", "randomNumberGenerator", v -> ((Random) v).setSeed(seed.nextLong()));
            set("java.lang.StrictMath$RandomNumberGeneratorHolder", "randomNumberGenerator", v -> ((Random) v).setSeed(seed.nextLong()));
            set("java.util.Collections", "r", v -> ((Random) v).setSeed(seed.nextLong()));
            set("java.util.Random", "seedUniquifier", v -> ((AtomicLong) v).set(seed.nextLong()));
            set("java.util.SplittableRandom", "defaultGen", v -> ((AtomicLong) v).set(seed.nextLong()));
            set("java.util.concurrent.ThreadLocalRandom", "seeder", v -> ((AtomicLong) v).set(seed.nextLong()));
        }

        private static void set(String type, String field, Consumer<Object> change) {
            try {
                var f = Class.forName(type).getDeclaredField(field);
                f.setAccessible(true);
                Object value = f.get(null);
                if (value != null) change.accept(value); // null: not used so far
            } catch (ReflectiveOperationException | RuntimeException e) {
                ERR.println("java-run: reseed " + type + ": " + e);
            }
        }
    }
}
