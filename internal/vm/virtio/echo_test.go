package virtio_test

import (
	"encoding/binary"
	"testing"

	"github.com/forkd/forkd/internal/vm/virtio"
	"github.com/forkd/forkd/internal/vm/virtio/virtiotest"
)

// echo is the smallest device: it copies its readable bytes to its writable bytes.
type echo struct {
	virtio.Worker
	seen     uint64 // its state: requests served
	queues   []uint16
	features uint64
	queue    *virtio.Queue
}

var _ virtio.Device = (*echo)(nil)

func newEcho(size uint16) *echo {
	e := &echo{queues: []uint16{size}}
	e.Init(func(c *virtio.Chain) (uint32, error) {
		e.seen++
		p := make([]byte, min(c.Readable.Len(), 1<<16))
		c.Readable.CopyOut(p, 0)
		return uint32(c.Writable.CopyIn(0, p)), nil
	})
	return e
}

func (e *echo) Type() uint32               { return 4 }
func (e *echo) Features() uint64           { return 1 << 3 }
func (e *echo) QueueSizes() []uint16       { return e.queues }
func (e *echo) ReadConfig(uint64, []byte)  {}
func (e *echo) WriteConfig(uint64, []byte) {}
func (e *echo) Reset()                     { e.Stop() }
func (e *echo) Close() error               { e.Stop(); return nil }
func (e *echo) SaveState() []byte          { return binary.LittleEndian.AppendUint64(nil, e.seen) }

func (e *echo) Activate(features uint64, q []*virtio.Queue) error {
	e.features, e.queue = features, q[0]
	e.Start(q[0])
	return nil
}

func (e *echo) RestoreState(b []byte) error {
	r := virtio.NewStateReader(b)
	e.seen = r.U64()
	return r.Close()
}

const allFeatures = ^uint64(0)

func startEcho(t testing.TB, features uint64) (*virtiotest.Driver, *echo) {
	t.Helper()
	e := newEcho(16)
	d, err := virtiotest.New(t, e, virtiotest.NewMemory(1<<20)).Start(features)
	if err != nil {
		t.Fatal(err)
	}
	return d, e
}
