package wipeonfork

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain runs guest in a copy of the test binary.
func TestMain(m *testing.M) {
	if os.Getenv("FORKD_TEST_GUEST") != "" {
		if err := guest(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// guest has regions with and without the mark, prints "ready", and then for each line of the input its pages.
func guest(in io.Reader, out io.Writer) error {
	page := os.Getpagesize()
	regions := map[string][]byte{}
	for _, r := range []struct {
		name   string
		pages  int
		marked bool
	}{{"marked", 1, true}, {"many", 200, true}, {"untouched", 1 << 18, true}, {"other", 3, false}} {
		b, err := unix.Mmap(-1, 0, r.pages*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return err
		}
		if r.marked {
			if err := unix.Madvise(b, unix.MADV_WIPEONFORK); err != nil {
				return err
			}
		}
		if r.name != "untouched" {
			copy(b, bytes.Repeat([]byte{7}, len(b)))
		}
		regions[r.name] = b
	}
	regions["untouched"][5*page] = 7
	if err := unix.Mprotect(regions["many"], unix.PROT_READ); err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	for lines := bufio.NewScanner(in); lines.Scan(); {
		for _, name := range []string{"marked", "many", "other"} {
			fmt.Fprintf(out, "%s=%d ", name, len(regions[name])-bytes.Count(regions[name], []byte{0}))
		}
		fmt.Fprintf(out, "untouched=%d\n", regions["untouched"][5*page])
	}
	return nil
}

// start starts a guest program, and returns its process and a function that asks it.
func start(t *testing.T) (*exec.Cmd, func() string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FORKD_TEST_GUEST=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("the process answered %q, %v", lines.Text(), lines.Err())
	}
	return cmd, func() string {
		fmt.Fprintln(in)
		lines.Scan()
		return lines.Text()
	}
}

// only returns a folder like /proc with these processes.
func only(t *testing.T, pids ...int) string {
	t.Helper()
	dir := t.TempDir()
	for _, pid := range pids {
		if err := os.Symlink(fmt.Sprintf("/proc/%d", pid), filepath.Join(dir, strconv.Itoa(pid))); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Marked pages become zero, in every process, and no others.
func TestWipe(t *testing.T) {
	a, askA := start(t)
	b, askB := start(t)
	page := os.Getpagesize()
	before := fmt.Sprintf("marked=%d many=%d other=%d untouched=7", page, 200*page, 3*page)
	if got := askA(); got != before {
		t.Fatalf("before: %s, want %s", got, before)
	}
	w := Wiper{Proc: only(t, a.Process.Pid, b.Process.Pid, os.Getpid())}
	got, err := w.Wipe(t.Context())
	if want := (Wiped{Processes: 2, Pages: 2 * 202}); err != nil || got != want {
		t.Fatalf("got %+v, %v, want %+v", got, err, want)
	}
	after := fmt.Sprintf("marked=0 many=0 other=%d untouched=0", 3*page)
	for _, ask := range []func() string{askA, askB} {
		if got := ask(); got != after {
			t.Errorf("after: %s, want %s", got, after)
		}
	}
	if got, err := w.Wipe(t.Context()); err != nil || got.Pages != 404 {
		t.Errorf("a second time: %+v, %v", got, err) // zero pages are written again: they exist
	}
}

// A process that has ended is no error, and an expired time is one.
func TestWipeOfProcessesThatEnd(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	a, ask := start(t)
	w := Wiper{Proc: only(t, cmd.Process.Pid)}
	if got, err := w.Wipe(t.Context()); err != nil || got != (Wiped{}) {
		t.Errorf("a process that has ended: %+v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.Proc = only(t, a.Process.Pid)
	if _, err := w.Wipe(ctx); err == nil || !strings.Contains(err.Error(), strconv.Itoa(a.Process.Pid)) {
		t.Errorf("without time: %v", err)
	}
	if got := ask(); !strings.HasSuffix(got, "untouched=7") {
		t.Errorf("the process has %s", got)
	}
}

// The real list of processes has no process of the kernel and not the caller.
func TestProcesses(t *testing.T) {
	cmd, _ := start(t)
	pids, err := processes("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found bool
	for _, pid := range pids {
		found = found || pid == cmd.Process.Pid
		if pid == os.Getpid() {
			t.Error("the list has the caller")
		}
	}
	if !found {
		t.Errorf("the list has not %d: %v", cmd.Process.Pid, pids)
	}
}

const entry = "7f12a000-7f12b000 rw-p 00000000 00:00 0 \nSize:                  4 kB\nTHPeligible:    0\nVmFlags: rd wr mr mw me ac wf \n"

func TestMarked(t *testing.T) {
	plain := strings.Replace(entry, " wf", "", 1)
	for _, c := range []struct {
		name, in string
		want     int
		err      bool
	}{
		{name: "empty"},
		{name: "without", in: plain},
		{name: "one", in: plain + entry + plain, want: 1},
		{name: "cut off", in: strings.TrimSuffix(entry, " \n"), want: 1},
		{name: "a flag that contains the letters", in: strings.Replace(entry, "wf", "wfx", 1)},
		{name: "flags without a region", in: "VmFlags: wf\n"},
		{name: "a long name", in: strings.Replace(entry, " \nSize", " /"+strings.Repeat("VmFlags: wf", 999)+"\nSize", 1), want: 1},
		{name: "a long last line", in: strings.TrimSuffix(plain, "\n") + strings.Repeat("x", 9999)},
		{name: "addresses upside down", in: "7f12b000-7f12a000 rw-p\n", err: true},
		{name: "no addresses", in: "hello\n", err: true},
		{name: "too many", in: strings.Repeat(entry, maxRegions+1), err: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := marked(bufio.NewReaderSize(strings.NewReader(c.in), 256))
			if len(got) != c.want || (err != nil) != c.err {
				t.Errorf("got %d regions, %v", len(got), err)
			}
			for _, r := range got {
				if r != (region{0x7f12a000, 0x7f12b000}) {
					t.Errorf("got %+v", r)
				}
			}
		})
	}
}

func FuzzMarked(f *testing.F) {
	f.Add([]byte(entry))
	f.Add([]byte("0-1 \nVmFlags: wf"))
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := marked(bufio.NewReaderSize(bytes.NewReader(in), 64))
		for _, r := range got {
			if r.from >= r.to {
				t.Errorf("region %+v", r)
			}
		}
		if err == nil && len(got) > bytes.Count(in, []byte("VmFlags:")) {
			t.Errorf("%d regions", len(got))
		}
	})
}

// What Look saw is used as long as a process has the same regions. Another process with its ID is read anew.
func TestLook(t *testing.T) {
	a, ask := start(t)
	b, askB := start(t)
	w := Wiper{Proc: only(t, a.Process.Pid, b.Process.Pid)}
	awaitIdle(t, &w, a.Process.Pid)
	all := w.known[a.Process.Pid].marked
	if len(all) < 3 { // the Go runtime may have one
		t.Fatalf("marked are %v", all)
	}
	wipe := func(what string, want int) {
		t.Helper()
		if got, err := w.Wipe(t.Context()); err != nil || got.Processes != want {
			t.Errorf("%s: %+v, %v, want %d processes", what, got, err, want)
		}
	}
	forget := func(pid int, change func(*known)) {
		k := w.known[pid]
		k.marked = nil
		change(&k)
		w.known[pid] = k
	}
	forget(a.Process.Pid, func(*known) {})
	forget(b.Process.Pid, func(*known) {})
	wipe("what Look saw", 0)
	forget(a.Process.Pid, func(k *known) { k.activity.minorFaults++ })
	wipe("a process that worked, with the same regions", 0)
	forget(a.Process.Pid, func(k *known) { k.activity.minorFaults++; k.maps++ })
	wipe("other regions", 1)
	forget(b.Process.Pid, func(k *known) { k.activity.began++ })
	wipe("another process", 2)
	for _, ask := range []func() string{ask, askB} {
		if got := ask(); !strings.HasPrefix(got, "marked=0 ") {
			t.Errorf("after: %s", got)
		}
	}
}

// awaitIdle looks until the process has not worked between two looks: a new one still starts.
func awaitIdle(t *testing.T, w *Wiper, pid int) {
	t.Helper()
	for was := (activity{}); ; {
		if err := w.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if now := w.known[pid].activity; now == was {
			return
		} else {
			was = now
		}
	}
}

func TestParseStat(t *testing.T) {
	const rest = " S 1 2 3 4 5 6 70 8 90 10 11 12 13 14 15 16 2 18 500 4096 7\n"
	want := activity{minorFaults: 70, majorFaults: 90, userTime: 11, systemTime: 12, threads: 2, began: 500, size: 4096}
	for _, name := range []string{"sh", "a b", ") S 9 9 ("} {
		if got, err := parseStat([]byte("12 (" + name + ")" + rest)); err != nil || got != want {
			t.Errorf("%q: %+v, %v", name, got, err)
		}
	}
	for _, line := range []string{"", "12 (sh) S 1", "12 (sh)" + strings.Replace(rest, "4096", "-1", 1)} {
		if got, err := parseStat([]byte(line)); err == nil {
			t.Errorf("%q: %+v", line, got)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("12 (sh) S 1 2 3 4 5 6 70 8 90 10 11 12 13 14 15 16 2 18 500 4096 7"))
	f.Fuzz(func(_ *testing.T, line []byte) { _, _ = parseStat(line) })
}

// BenchmarkWipe is the cost of a process with 64 MiB in 300 regions and no mark: after Look, and without it.
func BenchmarkWipe(b *testing.B) {
	page := os.Getpagesize()
	for i := range 300 {
		m, err := unix.Mmap(-1, 0, 64<<20/300/page*page, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC*(i&1),
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = unix.Munmap(m) }()
		for at := 0; at < len(m); at += page {
			m[at] = 1
		}
	}
	root, err := os.OpenRoot("/proc/self")
	if err != nil {
		b.Fatal(err)
	}
	defer root.Close()
	p := &process{os.Getpid(), root}
	s := scan{lines: bufio.NewReaderSize(nil, bufferBytes)}
	b.Run("marks", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.marked(p); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("regions", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.maps(p); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("activity", func(b *testing.B) {
		for b.Loop() {
			if _, err := p.activity(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
