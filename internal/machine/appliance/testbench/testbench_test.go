package testbench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/machine/appliance"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// roleEnv makes this test binary, running in the machine, behave like a certain kind of test binary.
const roleEnv = "FORKD_TEST_BENCH_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "":
		os.Exit(m.Run())
	case "exit":
		os.Exit(7)
	case "flood":
		flood(os.Stdout)
	case "streams":
		fmt.Println("to stdout")
		fmt.Fprintln(os.Stderr, "to stderr")
	case "hang":
		fmt.Println("before")
		time.Sleep(time.Hour)
	case "panic":
		panic("as a test does")
	case "testdata":
		b, err := os.ReadFile("testdata/sub/hello.txt")
		fmt.Printf("%s %v", b, err)
	}
}

const floodSize = 10 << 20

// flood writes floodSize bytes of distinct lines.
func flood(w io.Writer) {
	buf := make([]byte, 0, floodSize)
	for i := 0; len(buf) < floodSize; i++ {
		buf = fmt.Appendf(buf, "line %d\n", i)
	}
	_, _ = w.Write(buf[:floodSize])
}

// play runs this binary in the machine in a role.
func play(t *testing.T, role string, limit time.Duration) (code int, stdout, stderr string) {
	t.Helper()
	m, err := appliance.Open(kvmtest.Machine(t))
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code = Run(context.Background(), m, Options{
		Timeout: limit, Environ: []string{roleEnv + "=" + role}, Stdout: &out, Stderr: &errs,
	}, self, nil)
	return code, out.String(), errs.String()
}

func TestExitCodeComesBack(t *testing.T) {
	if code, _, errs := play(t, "exit", time.Minute); code != 7 {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// A binary left incomplete by a killed machine is not run, and one damaged during the upload is not kept.
func TestUploadsAreWhole(t *testing.T) {
	m, err := appliance.Open(kvmtest.Machine(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Start(t.Context(), appliance.StartOptions{AgentOnly: true}); err != nil {
		t.Fatal(err)
	}
	client, err := m.Agent()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var said bytes.Buffer
	b := &run1{ctx: t.Context(), client: client, opt: Options{Stderr: &said}}
	name := filepath.Join(t.TempDir(), "blob")
	if err := os.WriteFile(name, []byte("whole"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	digest, size, err := digestOf(f)
	if err != nil {
		t.Fatal(err)
	}
	to := path.Join(tmpDir, digest)
	for _, before := range []string{`rm -f "$1"`, `printf who > "$1"`, `:`} {
		if _, err := b.shell(`mkdir -p "${1%/*}"; `+before, to); err != nil {
			t.Fatal(err)
		}
		if err := b.put(f, size, digest, to); err != nil {
			t.Fatal(err)
		}
		if got, err := b.shell(`cat "$1"`, to); got != "whole" || err != nil {
			t.Errorf("after %s it holds %q, %v", before, got, err)
		}
	}
	if n := strings.Count(said.String(), "with 3 bytes in place of 5"); n != 1 {
		t.Errorf("it said %q", said.String())
	}
	err = b.put(f, size, strings.Repeat("0", len(digest)), to+"-other")
	if err == nil || !strings.Contains(err.Error(), "5 bytes arrived, with the digest "+digest) {
		t.Errorf("of another digest: %v", err)
	}
	if left, err := b.shell(`rm "$1"; ls "${1%/*}" | grep "${1##*/}" || true`, to); left != "" || err != nil {
		t.Errorf("%q is left, %v", left, err)
	}
}

func TestStreamsStayApart(t *testing.T) {
	code, out, errs := play(t, "streams", time.Minute)
	if code != 0 || out != "to stdout\n" || errs != "to stderr\n" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errs)
	}
}

func TestTenMegabytesComeBackUnharmed(t *testing.T) {
	var want bytes.Buffer
	flood(&want)
	code, out, errs := play(t, "flood", 2*time.Minute)
	if code != 0 || sha256.Sum256([]byte(out)) != sha256.Sum256(want.Bytes()) {
		t.Errorf("exit code %d, %d bytes of %d: %s", code, len(out), want.Len(), errs)
	}
}

func TestAHangIsKilledAtTheLimitWithTheConsole(t *testing.T) {
	began := time.Now()
	code, out, errs := play(t, "hang", 5*time.Second)
	if code != ExitTimeout || out != "before\n" {
		t.Errorf("exit code %d, stdout %q", code, out)
	}
	if !strings.Contains(errs, "killed after 5s") || !strings.Contains(errs, "machine's console") {
		t.Errorf("stderr is %q", errs)
	}
	if took := time.Since(began); took < 5*time.Second {
		t.Errorf("killed after %s", took)
	}
}

func TestAPanicLooksLikeOne(t *testing.T) {
	code, _, errs := play(t, "panic", time.Minute)
	if code != 2 || !strings.Contains(errs, "panic: as a test does") {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
}

func TestTestdataTravels(t *testing.T) {
	code, out, errs := play(t, "testdata", time.Minute)
	if code != 0 || out != "hello from the source tree\n <nil>" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errs)
	}
}
