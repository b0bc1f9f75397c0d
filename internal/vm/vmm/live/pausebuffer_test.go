package live

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/vm/guestmem"
	"github.com/forkd/forkd/internal/vm/startgate"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// stillGuest writes only when it is stopped, and then measures its VMM's memory.
type stillGuest struct {
	m       *Machine
	rewrite int64 // bytes that it writes between the last scan of its memory and the stop
	pauses  int
	taken   int64 // anonymous memory of the process at the pause's end
}

func (g *stillGuest) Pause() error {
	for at := int64(0); at < g.rewrite; at += guestmem.PageSize {
		g.m.mem.Linear()[at+8]++
	}
	g.pauses++
	g.m.state = vmm.StatePaused
	return nil
}

func (g *stillGuest) Resume() (int64, error) {
	g.taken = anonymous()
	g.m.state = vmm.StateRunning
	return startgate.Now(), nil
}

func (g *stillGuest) SaveState() ([]byte, error)  { return []byte("state"), nil }
func (g *stillGuest) SaveDigest(f *os.File) error { return g.m.SaveDigest(f) }

// anonymous returns the process's anonymous memory in bytes.
func anonymous() int64 {
	b, _ := os.ReadFile("/proc/self/status")
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if kib, ok := strings.CutPrefix(s.Text(), "RssAnon:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(kib, "kB")), 10, 64)
			return n << 10
		}
	}
	return 0
}

// stillMachine returns the machine of a guest that has written to every stride-th byte of its
// memory.
func stillMachine(t testing.TB, memory, stride int64) *stillGuest {
	t.Helper()
	m := newMachine(Config{})
	m.state = vmm.StateRunning
	var err error
	if m.mem, err = guestmem.Reserve(memory); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.mem.Close() })
	f, err := os.Create(filepath.Join(t.TempDir(), "base")) // of a file, like a child's: no huge pages
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(f.Truncate(memory), m.mem.MapFile(0, memory, int(f.Fd()), 0)); err != nil {
		t.Fatal(err)
	}
	for at := int64(0); at < memory; at += stride {
		m.mem.Linear()[at] = byte(at>>12) | 1
	}
	return &stillGuest{m: m}
}

// capture returns the capture's memory file and its pages.
func (g *stillGuest) capture(t testing.TB, c vmm.CaptureConfig, buffer int64) (*os.File, extent.PageSet, vmm.CaptureResult, error) {
	t.Helper()
	dir := t.TempDir()
	var keep []*os.File
	for i, to := range []**os.File{&c.Memory, &c.State, &c.Index} {
		path := filepath.Join(dir, strconv.Itoa(i))
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		mine, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { mine.Close() })
		*to, keep = f, append(keep, mine)
	}
	g.m.pauseBuffer = buffer
	finish, res, err := g.m.capture(g, c)
	if err != nil {
		return nil, nil, res, err
	}
	if err := finish(); err != nil {
		t.Fatal(err)
	}
	set, err := extent.DecodePageSet(keep[2], g.m.mem.Size())
	if err != nil {
		t.Fatal(err)
	}
	return keep[0], set, res, nil
}

// A capture takes at most its buffer of the host's memory, for any amount of private guest memory,
// and is correct. The rest is written to the file.
func TestACaptureTakesNoMoreThanItsBuffer(t *testing.T) {
	const memory, buffer, slack = 48 << 20, 4 << 20, 8 << 20 // slack: Go's heap for lists and sets
	for _, live := range []bool{true, false} {
		for _, rewrite := range []int64{0, 1 << 20, memory} {
			t.Run(fmt.Sprintf("live %v, writes %d MiB until it stands", live, rewrite>>20), func(t *testing.T) {
				g := stillMachine(t, memory, guestmem.PageSize)
				g.rewrite = rewrite
				before := anonymous()
				f, set, res, err := g.capture(t, vmm.CaptureConfig{Live: live}, buffer)
				if err != nil {
					t.Fatal(err)
				}
				if more := g.taken - before; more > buffer+slack {
					t.Errorf("it took %d MiB, want at most %d", more>>20, (buffer+slack)>>20)
				}
				if res.PausedBytes < rewrite || set.Bytes() != memory {
					t.Errorf("%d bytes were copied in the pause, %d in all", res.PausedBytes, set.Bytes())
				}
				got := make([]byte, memory)
				if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, g.m.mem.Linear()) {
					t.Errorf("the file is not the memory (%v)", err)
				}
			})
		}
	}
}

// A capture that cannot meet its limit neither stops the guest nor takes memory.
func TestACaptureThatIsTooSlowTakesNothing(t *testing.T) {
	const memory = 48 << 20
	for _, live := range []bool{true, false} {
		g := stillMachine(t, memory, guestmem.PageSize)
		before := anonymous()
		_, _, _, err := g.capture(t, vmm.CaptureConfig{Live: live, Max: time.Nanosecond}, 0)
		if !errors.Is(err, vmm.ErrPause) && !live {
			t.Errorf("it was made: %v", err)
		}
		if live {
			continue // its rounds leave nothing, and the stop alone exceeds the limit
		}
		if more := anonymous() - before; g.pauses != 0 || more > memory/4 {
			t.Errorf("live %v: it was stopped %d times, and %d MiB were taken", live, g.pauses, more>>20)
		}
	}
}

// A guest with scattered private memory has more runs than a list could hold.
func TestScatteredMemoryIsCaptured(t *testing.T) {
	const pages = 140_000
	_, set, _, err := stillMachine(t, pages*guestmem.PageSize, 2*guestmem.PageSize).capture(t, vmm.CaptureConfig{}, 0)
	checkOK(t, err)
	if set.Bytes() != pages/2*guestmem.PageSize {
		t.Errorf("%d of %d pages were captured", set.Bytes()/guestmem.PageSize, pages/2)
	}
}

// BenchmarkDiffPause measures the pause of a capture that is not live, with the buffer's limit and
// without one.
func BenchmarkDiffPause(b *testing.B) {
	for _, mib := range []int64{128, 256, 512, 1024} {
		for name, buffer := range map[string]int64{"bounded": 0, "unbounded": 4 << 30} {
			b.Run(fmt.Sprintf("%d MiB/%s", mib, name), func(b *testing.B) {
				g := stillMachine(b, mib<<20, guestmem.PageSize)
				var pause float64
				n := 0
				for b.Loop() {
					_, _, res, err := g.capture(b, vmm.CaptureConfig{}, buffer)
					if err != nil {
						b.Fatal(err)
					}
					pause += res.Pause.Seconds() * 1e3
					n++
				}
				b.ReportMetric(pause/float64(n), "pause-ms")
			})
		}
	}
}
