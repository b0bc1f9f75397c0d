package usernet

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// Limits of the datagrams waiting for a far half: their number, and their total size in bytes.
const (
	datagramsWaiting = 64
	waitingBytes     = 256 << 10
	datagramMax      = 65535
)

// portDNS is the port of flows with a single question and answer.
const portDNS = 53

// answered is how long a flow to portDNS is kept without pending questions.
const answered = time.Second

// datagrams is a flow of UDP or of echo requests.
type datagrams struct {
	e    *Engine
	flow Flow
	idle time.Duration

	ctx     context.Context // cancelled by stop
	cancel  context.CancelFunc
	queue   chan []byte
	waiting atomic.Int64 // bytes in queue
	quote   atomic.Uint64
	pending atomic.Int64 // unanswered questions, on portDNS
	last    atomic.Int64 // time of the last datagram, as Unix nanoseconds
	dialing atomic.Bool
}

func (d *datagrams) stop() { d.cancel() }

func (d *datagrams) idleSince() (time.Time, bool) {
	return time.Unix(0, d.last.Load()), !d.dialing.Load()
}

// datagram takes a UDP datagram from the stack. If it leaves one to the stack, the stack answers
// with port unreachable.
func (e *Engine) datagram(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	h := header.UDP(pkt.TransportHeader().Slice())
	size := int(h.Length()) - header.UDPMinimumSize
	if size < 0 || size > pkt.Data().Size() || id.LocalPort == 0 {
		e.count.badFrames.Add(1)
		return true
	}
	payload := pkt.Data().AsRange().ToSlice()[:size]
	return e.toFlow(flowOf(UDP, id), payload, binary.BigEndian.Uint64(h))
}

// echo takes an echo request to another host.
func (e *Engine) echo(p packet) {
	if e.wire() == nil {
		return
	}
	f, message := p.echoFlow(), append([]byte(nil), p.segment.bytes...)
	if quote := binary.BigEndian.Uint64(message); !e.toFlow(f, message, quote) {
		e.unreachable(f, Prohibited, quoteDatagram(f, quote))
	}
}

// toFlow passes a datagram to its flow. It creates the flow if necessary. quote is the first 8
// bytes of the transport's header.
func (e *Engine) toFlow(f Flow, datagram []byte, quote uint64) bool {
	given := e.table.give(f, func(fl flow) {
		if d, ok := fl.(*datagrams); ok {
			d.put(datagram, quote)
		}
	})
	if given {
		return true
	}
	d := e.newDatagrams(f)
	d.put(datagram, quote)
	if !e.table.add(f, d) {
		d.cancel()
		return false
	}
	go d.run()
	return true
}

func (e *Engine) newDatagrams(f Flow) *datagrams {
	d := &datagrams{e: e, flow: f, idle: e.cfg.Limits.UDPIdle, queue: make(chan []byte, datagramsWaiting)}
	if f.Protocol == UDP && f.Far.Port() == portDNS {
		d.idle = e.cfg.Limits.DNSIdle
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.dialing.Store(true)
	d.used()
	return d
}

func (d *datagrams) used() { d.last.Store(d.e.now().UnixNano()) }

// put queues a datagram, or drops it. The table calls it from one goroutine at a time.
func (d *datagrams) put(b []byte, quote uint64) {
	d.used()
	d.quote.Store(quote)
	if d.waiting.Load()+int64(len(b)) > waitingBytes {
		d.e.count.lost.Add(1)
		return
	}
	select {
	case d.queue <- b:
		d.waiting.Add(int64(len(b)))
		d.pending.Add(1)
	default:
		d.e.count.lost.Add(1)
	}
}

// run is the flow's life. Datagrams arriving while it ends for being idle begin another flow.
func (d *datagrams) run() {
	idle := d.live()
	d.e.table.remove(d.flow, d)
	for idle && len(d.queue) > 0 {
		d.e.toFlow(d.flow, <-d.queue, d.quote.Load())
	}
}

// live dials and carries datagrams. It reports whether the flow ended because it was idle.
func (d *datagrams) live() (idle bool) {
	defer d.cancel()
	ctx, cancel := context.WithTimeout(d.ctx, d.e.cfg.Limits.DialTime)
	far, err := d.e.cfg.Dialer.DialDatagrams(ctx, d.flow)
	cancel()
	d.dialing.Store(false)
	d.e.table.dialed()
	if err != nil {
		if d.ctx.Err() == nil {
			d.e.count.refused.Add(1)
			d.refuse(reasonOf(err))
		}
		return false
	}
	d.e.count.opened.Add(1)
	d.used()
	var once sync.Once
	closeFar := func() { once.Do(func() { far.Close() }) }
	stopped := context.AfterFunc(d.ctx, closeFar)
	defer stopped()
	back := make(chan struct{})
	go func() {
		defer close(back)
		defer d.cancel()
		d.toGuest(far)
	}()
	idle = d.toFar(far)
	closeFar()
	<-back
	return idle
}

// toFar sends the guest's datagrams until the flow is idle or over.
func (d *datagrams) toFar(far Datagrams) (idle bool) {
	look := d.idle
	if d.flow.Far.Port() == portDNS {
		look = min(look, answered)
	}
	t := time.NewTimer(look)
	defer t.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return false
		case <-t.C:
			left := d.left()
			if left <= 0 {
				return true
			}
			t.Reset(min(left, look))
		case b := <-d.queue:
			d.waiting.Add(-int64(len(b)))
			if _, err := far.Write(b); err != nil && !d.soft(err) {
				return false
			}
		}
	}
}

// left returns how long the flow may still be idle.
func (d *datagrams) left() time.Duration {
	return d.idle - d.e.now().Sub(time.Unix(0, d.last.Load()))
}

// soft reports a refusal to the guest if the flow continues after it.
func (d *datagrams) soft(err error) bool {
	var r *Refusal
	if !errors.As(err, &r) {
		return false
	}
	d.refuse(r.Reason)
	return true
}

// toGuest passes the far end's datagrams to the guest.
func (d *datagrams) toGuest(far Datagrams) {
	out, err := d.e.newSender(d.flow)
	if err != nil {
		return
	}
	defer out.close()
	for d.ctx.Err() == nil {
		if err := d.carry(far, out); err != nil && !d.soft(err) {
			return
		}
	}
}

func (d *datagrams) carry(far Datagrams, out *sender) error {
	if w, ok := far.(readWaiter); ok {
		if err := w.WaitRead(); err != nil {
			return err
		}
	}
	buf := chunks.Get().(*[chunkMax]byte)
	defer chunks.Put(buf)
	n, err := far.Read(buf[:datagramMax])
	if err != nil {
		return err
	}
	d.used()
	out.datagram(d.flow, buf[:n])
	if d.flow.Far.Port() == portDNS && d.pending.Add(-1) <= 0 {
		d.last.Store(d.e.now().Add(answered - d.idle).UnixNano())
	}
	return nil
}

func (d *datagrams) refuse(r Reason) {
	if r != TimedOut {
		d.e.unreachable(d.flow, r, quoteDatagram(d.flow, d.quote.Load()))
	}
}
