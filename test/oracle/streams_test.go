package oracle

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	vmctl "github.com/forkd/forkd/internal/vm/vmctl/client"
	"github.com/forkd/forkd/test/harness"
)

// A restored guest gets the message that all its connections are gone. Its driver acts on it while
// sockets open and close. Hundreds of sockets do so, in the source during a branch, and in the
// children as soon as they have a socket device. No guest kernel may report an error.
func TestStreamsInFlight(t *testing.T) {
	kvmtest.Drawn(t)
	kvmtest.Soak(t)
	d := daemon(t)
	seed := kvmtest.Seed(t)
	random := kvmtest.Random(seed, 1)
	children, rounds, span := 8, 2, time.Duration(0)
	if harness.Soaking() {
		children, span = 50, harness.Span(t, 0)
	}
	t.Cleanup(func() { clean(t, d) })
	source := d.Fork(t, parentTag, 1)[0].ID
	s := startStorm(d, seed)
	defer s.stop()
	forked := 0
	for end, i := time.Now().Add(span), 0; !t.Failed() && (i < rounds || time.Now().Before(end)); i++ {
		s.busy(t)
		began := time.Now()
		tag := fmt.Sprintf("streams%d", i)
		mode := []api.BranchMode{api.BranchLive, api.BranchDiff}[random.IntN(2)]
		if _, err := d.Client.Branch(t.Context(), source, api.BranchRequest{Tag: tag, Mode: mode}); err != nil {
			t.Fatalf("branch with streams in flight: %v", err)
		}
		branched := time.Now()
		sbs := d.Fork(t, tag, children)
		forked += len(sbs)
		ready := time.Now()
		for _, sb := range sbs {
			d.Shell(t, sb.ID, "true")
		}
		t.Logf("%s branch %s, fork %s, exec in each %s; %d streams so far", mode, branched.Sub(began).Round(time.Millisecond),
			ready.Sub(branched).Round(time.Millisecond), time.Since(ready).Round(time.Millisecond), s.opened.Load())
		sound(t, d, nil)
		for _, sb := range sbs {
			if err := d.Kill(sb.ID); err != nil {
				t.Error(err)
			}
		}
		if err := d.Client.DeleteSnapshot(t.Context(), tag, client.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	opened, most := s.stop()
	d.Shell(t, source, "true")
	sound(t, d, nil)
	t.Logf("%d children forked under %d streams that opened and closed, up to %d of them at once", forked, opened, most)
	if opened < int64(10*forked) && !t.Failed() {
		t.Errorf("only %d streams opened in all that time", opened)
	}
}

// Limits of a storm.
const (
	stormers   = 16
	heldByEach = 16
	// Each stormer rests for a multiple of its last dial's time. Without these rests the storm used
	// every CPU, and a guest's answer took a minute.
	lull = 7
	gust = 3 * time.Millisecond // the shortest rest
)

// storm opens and closes connections to the agents of all VMs, in all ways.
type storm struct {
	d      *harness.Daemon
	quit   chan struct{}
	once   sync.Once
	ended  sync.WaitGroup
	opened atomic.Int64
	open   atomic.Int64
	most   atomic.Int64
}

func startStorm(d *harness.Daemon, seed uint64) *storm {
	s := &storm{d: d, quit: make(chan struct{})}
	for i := range stormers {
		random := kvmtest.Random(seed, uint64(2+i))
		s.ended.Go(func() { s.rage(random) })
	}
	return s
}

// stop ends the storm. It returns the number of streams, and the maximum number open at the same
// time.
func (s *storm) stop() (opened, most int64) {
	s.once.Do(func() { close(s.quit) })
	s.ended.Wait()
	return s.opened.Load(), s.most.Load()
}

// busy waits until the storm has opened 2*stormers more streams.
func (s *storm) busy(t *testing.T) {
	t.Helper()
	for end, want := time.Now().Add(patience), s.opened.Load()+2*stormers; s.opened.Load() < want; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d streams in %s", s.opened.Load(), patience)
		}
	}
}

func (s *storm) rage(random *rand.Rand) {
	var held []net.Conn
	drop := func(i int) {
		held[i].Close()
		held = append(held[:i], held[i+1:]...)
		s.open.Add(-1)
	}
	defer func() {
		for len(held) > 0 {
			drop(0)
		}
	}()
	for took := time.Duration(0); ; {
		select {
		case <-s.quit:
			return
		case <-time.After(max(gust, lull*took)):
		}
		began := time.Now()
		c := s.dial(random)
		took = time.Since(began)
		if c != nil {
			held = append(held, c)
			for n := s.open.Add(1); ; {
				if most := s.most.Load(); n <= most || s.most.CompareAndSwap(most, n) {
					break
				}
			}
		}
		if len(held) > random.IntN(heldByEach) {
			drop(random.IntN(len(held)))
		}
	}
}

// dial opens a stream to one of the VMs and uses it.
func (s *storm) dial(random *rand.Rand) net.Conn {
	vms := s.d.VMDirs()
	if len(vms) == 0 {
		return nil
	}
	path := filepath.Join(s.d.Run, "vm", vms[random.IntN(len(vms))], vmctl.VsockSocket)
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return nil
	}
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	fmt.Fprintf(c, "CONNECT %d\n", agentproto.AgentPort)
	if random.IntN(4) == 0 { // closed before the connection is complete
		c.Close()
		s.opened.Add(1)
		return nil
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "OK") {
		c.Close()
		return nil
	}
	s.opened.Add(1)
	switch random.IntN(4) {
	case 0:
		_, _ = c.Write(make([]byte, random.IntN(64<<10)))
	case 1:
		_, _ = c.Write([]byte("GET / HTTP/1.1\r\nHost: guest\r\n\r\n"))
	case 2:
		_ = c.(*net.UnixConn).CloseWrite()
	}
	return c
}
