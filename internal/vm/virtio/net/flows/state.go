package flows

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/forkd/forkd/internal/vm/virtio"
)

// Save appends the table to a device's state (docs/inside/formats/device-state.md).
func (t *Table) Save(w *virtio.StateWriter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	putBytes(w, t.peer[:])
	t.saveConnections(w)
	t.saveSessions(w)
}

// saveConnections also writes the connections still to be reset: the guest has them.
func (t *Table) saveConnections(w *virtio.StateWriter) {
	pending := t.resets[:min(len(t.resets), MaxTCP)]
	followed := MaxTCP - len(pending)
	w.U16(uint16(len(pending) + min(followed, t.connections.len())))
	for i := range pending {
		putConnection(w, &pending[i].key, &pending[i].connection)
	}
	t.connections.each(func(k key, c *connection) {
		if followed--; followed >= 0 {
			putConnection(w, &k, c)
		}
	})
}

// saveSessions writes the sessions used within Quarantine, and the guest's quarantined sessions:
// its clones may not use them either.
func (t *Table) saveSessions(w *virtio.StateWriter) {
	now := t.now()
	var list []key // the quarantined ones first, each group by use
	add := func(k key, s *session) {
		if (s.used.IsZero() || now.Sub(s.used) < Quarantine) && len(list) < MaxUDP {
			list = append(list, k)
		}
	}
	t.quarantine.each(add)
	t.sessions.each(add)
	w.U16(uint16(len(list)))
	for i := range list {
		putKey(w, &list[i])
	}
}

// Restore makes the table, which is new, a clone's table: all connections of the state are to be
// reset, and all sessions are in quarantine. Start follows.
func (t *Table) Restore(r *virtio.StateReader) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	getBytes(r, t.peer[:])
	n := r.U16()
	r.Check(n <= MaxTCP, "%d connections, at most %d are followed", n, MaxTCP)
	for range min(n, MaxTCP) {
		var c inherited
		getKey(r, &c.key)
		c.sent, c.ack, c.next, c.flags = r.U32(), r.U32(), r.U32(), r.U8()
		r.Check(c.flags&^allFlags == 0, "flags of a connection are %#x", c.flags)
		t.resets = append(t.resets, c)
	}
	n = r.U16()
	r.Check(n <= MaxUDP, "%d sessions, at most %d are followed", n, MaxUDP)
	for range min(n, MaxUDP) {
		var k key
		getKey(r, &k)
		t.quarantine.add(k)
	}
	if err := r.Close(); err != nil {
		return fmt.Errorf("flows: %w", err)
	}
	return nil
}

// Keep makes inherited connections to addresses in a prefix the guest's own: their far ends are clones of the same
// instant. It follows Restore, before the guest runs.
func (t *Table) Keep(far netip.Prefix) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.resets
	t.resets = nil
	for _, c := range slices.Backward(kept) { // the newest last
		if far.Contains(netip.AddrFrom16(c.key.far).Unmap()) {
			*t.connections.add(c.key) = c.connection
		} else {
			t.resets = append(t.resets, c)
		}
	}
	slices.Reverse(t.resets)
}

func putConnection(w *virtio.StateWriter, k *key, c *connection) {
	putKey(w, k)
	w.U32(c.sent)
	w.U32(c.ack)
	w.U32(c.next)
	w.U8(c.flags)
}

func putKey(w *virtio.StateWriter, k *key) {
	skip := 0
	w.Bool(!k.v4())
	if k.v4() {
		skip = 12
	}
	putBytes(w, k.guest[skip:])
	putBytes(w, k.far[skip:])
	w.U16(k.guestPort)
	w.U16(k.farPort)
}

func getKey(r *virtio.StateReader, k *key) {
	if r.Bool() {
		getBytes(r, k.guest[:])
		getBytes(r, k.far[:])
		mapped := netip.AddrFrom16(k.guest).Is4In6() || netip.AddrFrom16(k.far).Is4In6()
		r.Check(!mapped, "an IPv6 flow has a mapped IPv4 address")
	} else {
		var guest, far [4]byte
		getBytes(r, guest[:])
		getBytes(r, far[:])
		k.guest, k.far = netip.AddrFrom4(guest).As16(), netip.AddrFrom4(far).As16()
	}
	k.guestPort, k.farPort = r.U16(), r.U16()
}

func putBytes(w *virtio.StateWriter, p []byte) {
	for _, b := range p {
		w.U8(b)
	}
}

func getBytes(r *virtio.StateReader, p []byte) {
	for i := range p {
		p[i] = r.U8()
	}
}
