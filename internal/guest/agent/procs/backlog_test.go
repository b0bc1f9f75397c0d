package procs

import (
	"bytes"
	"strings"
	"testing"
)

func TestBacklogKeepsTheEnd(t *testing.T) {
	var l backlog
	l.add(fromStdout, []byte("first"))
	l.add(fromStdout, []byte(" more"))
	l.add(fromStderr, []byte("err"))
	if len(l.pieces) != 2 || string(l.pieces[0].b) != "first more" || l.size != 13 || l.dropped != 0 {
		t.Errorf("got %+v", l)
	}
	l.add(fromStdout, bytes.Repeat([]byte("x"), keepBytes-3))
	if len(l.pieces) != 2 || string(l.pieces[0].b) != "err" || l.size != keepBytes || l.dropped != 10 {
		t.Errorf("%d pieces, %d bytes, %d dropped", len(l.pieces), l.size, l.dropped)
	}
}

func TestBacklogBounds(t *testing.T) {
	t.Run("one write larger than all", func(t *testing.T) {
		var l backlog
		l.add(fromPTY, []byte(strings.Repeat("x", keepBytes)+"end"))
		if len(l.pieces) != 1 || l.size != keepBytes || l.dropped != 3 || !bytes.HasSuffix(l.pieces[0].b, []byte("xend")) {
			t.Errorf("%d pieces, %d bytes, %d dropped", len(l.pieces), l.size, l.dropped)
		}
	})
	t.Run("a stream for each byte", func(t *testing.T) {
		var l backlog
		for i := range 10 * keepPieces {
			l.add(stream(i%2), []byte{byte(i)})
		}
		if len(l.pieces) != keepPieces || l.size != keepPieces || l.dropped != 9*keepPieces {
			t.Errorf("%d pieces, %d bytes, %d dropped", len(l.pieces), l.size, l.dropped)
		}
	})
}

func TestHubKeepsForTheNextSubscriber(t *testing.T) {
	var h hub
	s, _ := h.subscribe()
	h.leave(s, false)
	h.publish(fromStdout, []byte("lost"))
	s, _ = h.subscribe()
	if s.missed != nil {
		t.Errorf("kept %v without being told", s.missed)
	}
	published := make(chan struct{})
	go func() { // waits for s, which leaves without reading it
		h.publish(fromStdout, []byte("a"))
		close(published)
	}()
	h.leave(s, true)
	<-published
	h.publish(fromStdout, []byte("b"))
	h.leave(s, true) // the second call does nothing
	s, _ = h.subscribe()
	if s.missed == nil || len(s.missed.pieces) != 1 || string(s.missed.pieces[0].b) != "ab" {
		t.Errorf("got %+v", s.missed)
	}
	h.leave(s, false)
	h.publish(fromStdout, []byte("lost"))
	h.finish(startEvent(1))
	if s, end := h.subscribe(); s.missed != nil || end == nil {
		t.Errorf("got %+v, %v", s.missed, end)
	}
}
