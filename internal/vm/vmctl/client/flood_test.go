package client

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/vm/vmctl/wire"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// floods are messages that a hostile VMM sends without end. %d is a count.
var floods = []string{
	`{"event":"disks","body":{"seq":%d,"full":"no room"}}`,
	`{"event":"disks","body":{"seq":1}}`,
	`{"event":"disks","body":{"seq":%d,"full":"` + strings.Repeat("x", 3<<10) + `"}}`,
	`{"id":%d}`,
	`{"id":1,"error":{"text":"no"}}`,
	`{"id":%d,"event":"dial","body":{"port":7}}`,
	`{"event":"exit","body":{"kind":"reset","reason":"` + strings.Repeat("y", 3<<10) + `"}}`,
	`{"event":"ready"}`,
	`{"event":"dance"}`,
}

// flood answers the first request, and floods the daemon until the socket is closed.
func flood(c *net.UnixConn, message string, say func(string, ...*os.File) error) int {
	c.Read(make([]byte, wire.MaxMessage))
	for i := 1; ; i++ {
		text := message
		if strings.Contains(message, "%d") {
			text = fmt.Sprintf(message, i)
		}
		if say(text) != nil {
			time.Sleep(time.Hour)
		}
	}
}

// A VMM that sends without end is slowed down or ended. The daemon stores little of it, and answers
// of other VMs still arrive.
func TestAFloodFromAVMM(t *testing.T) {
	other := mustSpawn(t, behaveWell, refuse)
	for i, message := range floods {
		t.Run(fmt.Sprintf("%.40s", message), func(t *testing.T) {
			p := spawnHostile(t, floodFrom+i, refuse)
			var told atomic.Int64
			p.OnHealth(func(h vmm.Health) {
				told.Add(1)
				if len(h.Full) > 1<<10 {
					t.Errorf("a text has %d bytes", len(h.Full))
				}
			})
			before, goroutines := heap(), runtime.NumGoroutine()
			began := time.Now()
			go func() { _ = p.Pause(t.Context()) }() // begins the flood
			for n := 0; n < 20 || time.Since(began) < 300*time.Millisecond && !isOver(p); n++ {
				if _, err := other.Status(t.Context()); err != nil {
					t.Fatalf("another VM: %v", err)
				}
			}
			took := time.Since(began)
			if most := unaskedBurst + int64(took.Seconds()*unaskedRate) + 2; told.Load() > most {
				t.Errorf("it was told %d times of the disks in %s, want at most %d", told.Load(), took, most)
			}
			if n := runtime.NumGoroutine(); n > goroutines+4 {
				t.Errorf("%d goroutines, %d before", n, goroutines)
			}
			if grown := heap() - before; grown > 4<<20 {
				t.Errorf("the heap grew by %d bytes", grown)
			}
			began = time.Now()
			p.Kill()
			waitDone(t, p)
			if took := time.Since(began); took > limit/2 {
				t.Errorf("its end took %s", took)
			}
			if len(p.Exit().Reason) > 1<<10 {
				t.Errorf("the reason has %d bytes", len(p.Exit().Reason))
			}
			if _, err := p.Status(t.Context()); !errors.Is(err, vmm.ErrGone) {
				t.Errorf("got %v, want ErrGone", err)
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func isOver(p *Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// A status's texts are bounded and printable like an event's.
func TestAStatusIsPrintable(t *testing.T) {
	h := printableHealth(vmm.Health{Full: "\x1b[2J" + strings.Repeat("x", wire.MaxAnswer)})
	if strings.Contains(h.Full, "\x1b") || len(h.Full) > 1<<10 {
		t.Errorf("got %d bytes: %.20q", len(h.Full), h.Full)
	}
}
