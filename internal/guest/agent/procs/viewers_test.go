package procs

import (
	"bytes"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/guest/agentproto/process"
)

// drain takes all queued events of s and returns its output and the number of lost bytes.
func drain(h *hub, s *subscriber) (out []byte, lost int64) {
	for {
		ev := h.take(s)
		if ev == nil {
			return out, lost
		}
		out = append(out, ev.GetData().GetStdout()...)
		lost += ev.GetKeepalive().GetOutputDropped()
	}
}

func publishAll(h *hub, pieces int, done chan<- struct{}) {
	for i := range pieces {
		h.publish(fromStdout, bytes.Repeat([]byte{byte(i)}, chunkSize))
	}
	close(done)
}

// One reader stalls. The program keeps writing and the other reader gets every byte.
func TestAStalledViewerHoldsNobodyUp(t *testing.T) {
	var h hub
	stalled, _ := h.subscribe()
	reader, _ := h.subscribe()
	const pieces = 4 * queueBytes / chunkSize
	done := make(chan struct{})
	go publishAll(&h, pieces, done)
	var got []byte
	limit := time.After(10 * time.Second)
	for len(got) < pieces*chunkSize {
		select {
		case <-reader.ready:
			b, lost := drain(&h, reader)
			if got = append(got, b...); lost > 0 {
				t.Fatalf("the reader that reads lost %d bytes", lost)
			}
		case <-limit:
			t.Fatalf("the stalled viewer holds the program up: %d of %d bytes came", len(got), pieces*chunkSize)
		}
	}
	<-done
	h.finish(new(Process).endEvent(0))
	b, lost := drain(&h, stalled)
	if len(b) != queueBytes || lost != int64(pieces*chunkSize-queueBytes) || !bytes.HasPrefix(got, b) {
		t.Errorf("the stalled one got %d bytes and a loss of %d", len(b), lost)
	}
}

// The only reader loses no output: the program waits for it, as with a pipe.
func TestTheOnlyReaderHoldsTheProgramUp(t *testing.T) {
	var h hub
	s, _ := h.subscribe()
	const pieces = 3 * queueBytes / chunkSize
	done := make(chan struct{})
	go publishAll(&h, pieces, done)
	var got []byte
	for len(got) < pieces*chunkSize {
		<-s.ready
		if s.bytes > queueBytes {
			t.Fatalf("%d bytes wait", s.bytes)
		}
		b, lost := drain(&h, s)
		if got = append(got, b...); lost > 0 {
			t.Fatalf("lost %d bytes", lost)
		}
	}
	<-done
}

// A reader that continues is notified of its loss once, at the right place.
func TestALossIsToldInItsPlace(t *testing.T) {
	var h hub
	slow, _ := h.subscribe()
	fast, _ := h.subscribe()
	for range queueBytes/chunkSize + 2 {
		h.publish(fromStdout, make([]byte, chunkSize))
		drain(&h, fast)
	}
	for range queueBytes / chunkSize {
		if ev := h.take(slow); ev.GetData() == nil {
			t.Fatalf("got %v", ev)
		}
	}
	h.publish(fromStdout, []byte("after"))
	var kinds []*process.ProcessEvent
	for ev := h.take(slow); ev != nil; ev = h.take(slow) {
		kinds = append(kinds, ev)
	}
	if len(kinds) != 2 || kinds[0].GetKeepalive().GetOutputDropped() != 2*chunkSize ||
		string(kinds[1].GetData().GetStdout()) != "after" {
		t.Errorf("got %v", kinds)
	}
}

// A program that writes single bytes does not fill the agent's memory.
func TestPiecesOfAQueueAreBounded(t *testing.T) {
	var h hub
	slow, _ := h.subscribe()
	fast, _ := h.subscribe()
	for range queuePieces + 10 {
		h.publish(fromStdout, []byte("x"))
		drain(&h, fast)
	}
	if b, lost := drain(&h, slow); len(b) != queuePieces || lost != 0 { // reported with the next output
		t.Errorf("%d bytes, %d lost", len(b), lost)
	}
	h.finish(new(Process).endEvent(0))
	if _, lost := drain(&h, slow); lost != 10 {
		t.Errorf("%d lost", lost)
	}
}

// In a clone the source's reader is gone. Its queued output waits for the next reader.
func TestAClonesNextReaderGetsTheQueue(t *testing.T) {
	var h hub
	s, _ := h.subscribe()
	h.publish(fromStdout, []byte("waiting"))
	h.leave(s, true)
	h.publish(fromStdout, []byte(" and more"))
	h.finish(new(Process).endEvent(0))
	next, end := h.subscribe()
	if next.missed == nil || string(next.missed.pieces[0].b) != "waiting and more" || end == nil {
		t.Errorf("got %+v, %v", next.missed, end)
	}
}

// The caller that started the program may be slower than a viewer, and loses no output while it
// reads. An equally slow viewer blocks the program for a second, and then loses output.
func TestWhoMayBeSlow(t *testing.T) {
	for _, owner := range []bool{true, false} {
		var h hub
		slow, _ := h.subscribe()
		slow.owner = owner
		fast, _ := h.subscribe()
		const pieces = 2 * queueBytes / chunkSize
		done := make(chan struct{})
		go publishAll(&h, pieces, done)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for got := 0; got < pieces*chunkSize; {
				<-fast.ready
				b, _ := drain(&h, fast)
				got += len(b)
			}
		}()
		var got, lost int64
		take := func() {
			if ev := h.take(slow); ev != nil {
				got += int64(len(ev.GetData().GetStdout()))
				lost += ev.GetKeepalive().GetOutputDropped()
			}
		}
		for running := true; running; {
			select {
			case <-done:
				running = false
			case <-time.After(50 * time.Millisecond): // elapses: it is slow
				take()
			}
		}
		<-ended
		h.finish(new(Process).endEvent(0))
		for len(slow.queue) > 0 {
			take()
		}
		if got+lost != pieces*chunkSize || (lost > 0) == owner {
			t.Errorf("the slow one that started it: %t; it got %d bytes and a loss of %d, of %d", owner, got, lost, pieces*chunkSize)
		}
	}
}
