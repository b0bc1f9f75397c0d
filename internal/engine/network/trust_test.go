package network

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
)

// quietVM runs until the test ends.
type quietVM struct{ done chan struct{} }

func (v quietVM) SetNet(context.Context, *os.File) error { return nil }
func (v quietVM) Done() <-chan struct{}                  { return v.done }

// Without the retries, such a guest could never connect to those hosts.
func TestAGuestThatWasTooSlowIsGivenTheCertificateLater(t *testing.T) {
	tries, given := 0, make(chan string, 1)
	w := New(Config{Log: slog.New(slog.DiscardHandler), Trust: func(_ context.Context, sandbox, ca string) error {
		if tries++; tries < 3 {
			return errors.New("it does not answer")
		}
		given <- sandbox + " has " + ca
		return nil
	}})
	x := &Wire{sandbox: "s", vm: quietVM{}, ca: "the new", given: "the old"}
	w.trust(t.Context(), x)
	if got := <-given; got != "s has the new" {
		t.Errorf("%s", got)
	}
	w.Close() // waits for the retries
	w.trust(t.Context(), x)
	if x.given != "the new" || x.trusting || tries != 3 {
		t.Errorf("after %d tries it was given %q", tries, x.given)
	}
}

func TestNobodyIsAskedAgainWhoseVMHasEnded(t *testing.T) {
	vm := quietVM{make(chan struct{})}
	w := New(Config{Log: slog.New(slog.DiscardHandler), Trust: func(context.Context, string, string) error {
		return errors.New("it does not answer")
	}})
	w.trust(t.Context(), &Wire{sandbox: "s", vm: vm, ca: "ca"})
	close(vm.done)
	w.watchers.Wait()
	w.Close()
}
