package network

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// ledger is a forkd-net that records its requests. To distinguish wires, it writes to each whether
// it was bound with handover.
type ledger struct {
	sandbox.NetPort
	answers chan struct{} // closed when it may answer; if nil, it answers immediately
	begun   chan struct{} // a value for each request to bind

	mu    sync.Mutex
	asked []string
	vms   map[string]bool // with handover?
}

const (
	handed  = "handover"
	relayed = "relayed"
)

func newLedger() *ledger { return &ledger{vms: map[string]bool{}, begun: make(chan struct{}, 16)} }

func (p *ledger) Bind(_ context.Context, vms []sandbox.NetBinding) ([]string, error) {
	p.mu.Lock()
	for _, b := range vms {
		how := relayed
		if b.Handover {
			how = handed
		}
		if _, is := p.vms[b.VM]; is {
			how += " twice"
		}
		p.asked, p.vms[b.VM] = append(p.asked, how), b.Handover
		if _, err := unix.Write(int(b.Wire.Fd()), []byte(how)); err != nil {
			panic(err)
		}
	}
	p.mu.Unlock()
	p.begun <- struct{}{}
	if p.answers != nil {
		<-p.answers
	}
	return make([]string, len(vms)), nil
}

func (p *ledger) Release(_ context.Context, vm string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, "release")
	delete(p.vms, vm)
	return nil
}

func (p *ledger) List(context.Context) (names []string, _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.vms {
		names = append(names, name)
	}
	return names, nil
}

func (p *ledger) Update(context.Context, string, netpolicy.Spec) (string, error) { return "", nil }
func (p *ledger) Close() error                                                   { return nil }

func (p *ledger) want(t *testing.T, asked ...string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.asked, asked) {
		t.Errorf("forkd-net was asked %q, want %q", p.asked, asked)
	}
}

// kindOf returns how a VMM's end was bound; empty if there is no end.
func kindOf(f *os.File) string {
	if f == nil {
		return ""
	}
	b := make([]byte, 64)
	n, _ := unix.Read(int(f.Fd()), b)
	return string(b[:max(n, 0)])
}

// seeingVM records how the ends that it gets were bound.
type seeingVM struct{ given []string }

func (v *seeingVM) SetNet(_ context.Context, f *os.File) error {
	v.given = append(v.given, kindOf(f))
	return nil
}
func (v *seeingVM) Done() <-chan struct{} { return nil }

// expecting makes a wire for a VMM expected to be confined.
func expecting(t *testing.T, p *ledger, of Source) (*Wires, *Wire) {
	t.Helper()
	w := wired(t, p)
	w.cfg.Confined = true
	all, err := w.Bind(t.Context(), of, public, "sb")
	if err != nil {
		t.Fatal(err)
	}
	if p.answers == nil {
		await(t, all[0])
	}
	return w, all[0]
}

func await(t *testing.T, x *Wire) {
	t.Helper()
	if err := x.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// wantLent lends a wire, and returns the lent end.
func wantLent(t *testing.T, w *Wires, x *Wire, had Lent, want string) Lent {
	t.Helper()
	l, err := w.Lend(t.Context(), x, had)
	if err != nil {
		t.Fatal(err)
	}
	if got := kindOf(l.File); got != want {
		t.Errorf("lent an end that is %q, want %q", got, want)
	}
	l.Close()
	return l
}

func TestOnlyAConfinedVMMIsLentAWireThatSocketsAreHandedOverOn(t *testing.T) {
	p := newLedger()
	w, x := expecting(t, p, Source{})
	l := wantLent(t, w, x, Lent{Confined: true}, handed)
	vm := &seeingVM{}
	w.Attach(t.Context(), x, vm, l)
	p.want(t, handed)

	p = newLedger()
	w, x = expecting(t, p, Source{})
	l = wantLent(t, w, x, Lent{}, relayed)
	w.Attach(t.Context(), x, vm, l)
	p.want(t, handed, "release", relayed)
	if len(vm.given) != 0 {
		t.Errorf("given %q beside what they were lent", vm.given)
	}
}

func TestAWireThatIsBoundWhileItsHandoverIsTakenBackIsBoundAnew(t *testing.T) {
	p := newLedger()
	p.answers = make(chan struct{})
	w, x := expecting(t, p, Source{})
	<-p.begun
	l := wantLent(t, w, x, Lent{}, "")
	close(p.answers)
	await(t, x)
	p.want(t, handed, "release", relayed)
	wantLent(t, w, x, l, relayed)
}

func TestAVMMThatWasLentNothingIsGivenAnEndOfItsKind(t *testing.T) {
	for _, tc := range []struct {
		confined bool
		of       Source
		want     string
		asked    []string
	}{
		{true, Source{}, handed, []string{handed}},
		{false, Source{}, relayed, []string{handed, "release", relayed}},
		{false, Source{Unconfined: true}, relayed, []string{relayed}},
	} {
		p := newLedger()
		w, x := expecting(t, p, tc.of)
		vm := &seeingVM{}
		w.Attach(t.Context(), x, vm, Lent{Confined: tc.confined})
		if !slices.Equal(vm.given, []string{tc.want}) {
			t.Errorf("given %q, want %q", vm.given, tc.want)
		}
		p.want(t, tc.asked...)
	}
}

// After a reconnect, forkd-net may serve a wire with a binding that was taken back since.
func TestAHandoverThatIsTakenBackWithoutAConnectionIsMadeUpFor(t *testing.T) {
	for _, attached := range []bool{true, false} {
		p := newLedger()
		w, x := expecting(t, p, Source{})
		w.lost(p)
		l := wantLent(t, w, x, Lent{}, "")
		vm := &seeingVM{}
		if attached {
			w.Attach(t.Context(), x, vm, l)
		}
		if err := w.reconcile(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		p.want(t, handed, "release", relayed)
		if !attached {
			l = wantLent(t, w, x, l, relayed)
			w.Attach(t.Context(), x, vm, l)
		} else if !slices.Equal(vm.given, []string{relayed}) {
			t.Errorf("given %q", vm.given)
		}
	}
}

func TestAWireThatIsReleasedAfterItsHandoverWasTakenBackIsForgotten(t *testing.T) {
	p := newLedger()
	w, x := expecting(t, p, Source{})
	wantLent(t, w, x, Lent{}, relayed)
	w.Release(x)
	if len(w.wires) != 0 || len(p.vms) != 0 || x.end.f != nil {
		t.Errorf("left: %v, %v", w.wires, p.vms)
	}
}
