package live

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/vm/virtio/vsock"
	"github.com/forkd/forkd/internal/vm/vmctl/server"
	"github.com/forkd/forkd/internal/vm/vmctl/wire"
)

// simpleDaemon refuses every dial of a VM in the loop that reads its control socket. That works as
// long as the VMM reads too.
type simpleDaemon struct {
	t       *testing.T
	c       *net.UnixConn
	dials   atomic.Int32
	answers chan *wire.Error // in each answer
}

// simpleMessage has the needed fields of a message.
type simpleMessage struct {
	ID    uint64          `json:"id,omitempty"`
	Op    string          `json:"op,omitempty"`
	Event string          `json:"event,omitempty"`
	Error *wire.Error     `json:"error,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
}

func newSimpleDaemon(t *testing.T, path string) *simpleDaemon {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	d := &simpleDaemon{t: t, c: c, answers: make(chan *wire.Error, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.read()
	}()
	t.Cleanup(func() { c.Close(); <-done })
	return d
}

func (d *simpleDaemon) read() {
	buf := make([]byte, wire.MaxMessage)
	for {
		n, err := d.c.Read(buf)
		if err != nil {
			return
		}
		var m simpleMessage
		if err := json.Unmarshal(buf[:n], &m); err != nil {
			d.t.Errorf("%q: %v", buf[:n], err)
			return
		}
		if m.Event != "dial" {
			d.answers <- m.Error
			continue
		}
		d.dials.Add(1)
		if d.send(simpleMessage{ID: m.ID, Op: "dialed", Error: &wire.Error{Text: "no"}}) != nil {
			return
		}
	}
}

func (d *simpleDaemon) send(m simpleMessage, files ...*os.File) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	_, _, err = d.c.WriteMsgUnix(b, oob, nil)
	return err
}

func (d *simpleDaemon) call(op, body string, files ...*os.File) error {
	if err := d.send(simpleMessage{ID: 1, Op: op, Body: json.RawMessage(body)}, files...); err != nil {
		return err
	}
	select {
	case err := <-d.answers:
		if err != nil {
			return errors.New(err.Text)
		}
		return nil
	case <-time.After(bootLimit):
		return errors.New("no answer")
	}
}

// capture makes a live capture through the control socket.
func (d *simpleDaemon) capture(dir string) error {
	var files []*os.File
	for range 3 {
		f, err := os.CreateTemp(dir, "capture")
		if err != nil {
			return err
		}
		defer f.Close()
		defer os.Remove(f.Name())
		files = append(files, f)
	}
	if err := d.call("capture", `{"memory":1,"state":2,"index":3,"live":true}`, files...); err != nil {
		return err
	}
	return d.call("captured", `{}`)
}

// TestDialFloodDuringCaptures makes a guest dial the host without end while it is captured
// repeatedly, through the control socket.
func TestDialFloodDuringCaptures(t *testing.T) {
	const packet, noise = bareBuffers, 0x2600000
	s := newScript()
	_, tx := socketDevice(s)
	tx.put(0, packet, packetSize, 0, 0)
	s.packetAt(packet, 1, 1022, packetRequest, 0, 4096)
	from := s.here()
	s.op(opAdd16, packet+16, 1) // another port of the guest
	s.op(opAdd16, tx.avail+2, 1)
	tx.kick()
	tx.awaitAll()
	s.op(opAdd16, bareBeat, 1)
	s.loop(from, 0)

	v := newBare(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "c")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	srv := server.NewServer(l, &Controller{Machine: v.Machine})
	served := make(chan struct{})
	go func() {
		defer close(served)
		srv.Serve()
	}()
	t.Cleanup(func() { l.Close(); <-served })
	before := measure()
	v.run(s, srv.DialHost)
	text := make([]byte, 8<<20) // gives a capture some work
	for i := range text {
		text[i] = byte(i)
	}
	if err := v.mem.WriteAt(text, noise); err != nil {
		t.Fatal(err)
	}
	d := newSimpleDaemon(t, path)
	v.until("the flood", func() bool { return d.dials.Load() >= vsock.MaxDials })
	for i := range 50 {
		if i >= 5 && d.dials.Load() >= 1024 {
			break
		}
		was := d.dials.Load()
		if err := d.capture(dir); err != nil {
			t.Fatalf("capture %d, after %d dials: %v", i, d.dials.Load(), err)
		}
		t.Logf("capture %d: %d dials meanwhile", i, d.dials.Load()-was)
	}
	if n := d.dials.Load(); n < 1024 {
		t.Errorf("the guest dialled %d times, want 1024", n)
	}
	before.check(t)
	v.checkDeviceWorks(slotVsock)
	v.checkSound()
}
