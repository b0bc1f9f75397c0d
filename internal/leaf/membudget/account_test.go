package membudget

import (
	"sync"
	"testing"
)

// An account's charge ends with it, in whatever order its calls occur.
func TestAnAccountLeavesNothing(t *testing.T) {
	b := New(1000)
	a := b.Account(300)
	a.Of("t")
	if !a.Charge(200) || a.Charge(200) || a.ChargeUpTo(500) != 100 {
		t.Error("a request holds as much as one request may")
	}
	a.Of("other") // it has a charge already: too late
	if !a.Settle(50) || a.Held() != 50 || b.Used() != 50 || a.Settle(301) || a.Held() != 50 {
		t.Errorf("settled at %d, used %d", a.Held(), b.Used())
	}
	if a.Full(100) || !a.Full(300) || a.Held() != 50 {
		t.Error("asking for room changes nothing")
	}
	a.Owe(700) // above the share and the limit
	if next := b.Account(300); b.Used() != 700 || a.Charge(1) || next.Charge(200) {
		t.Errorf("used %d", b.Used())
	}
	a.Close()
	a.Close()
	a.Owe(10)
	if a.Charge(1) || a.ChargeUpTo(1) != 0 || a.Settle(1) || b.Used() != 0 {
		t.Errorf("%d bytes are charged after the end", b.Used())
	}
	var none *Account
	if none.Of("t"); !none.Charge(1) || none.ChargeUpTo(5) != 5 || !none.Settle(1) || none.Full(1) || none.Most() != 0 {
		t.Error("without an account there is no limit")
	}
	none.Owe(1)
	none.Release(1)
	none.Close()
}

func TestAnAccountThatEndsMeanwhile(t *testing.T) {
	b := New(1 << 20)
	for range 200 {
		a := b.Account(1000)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				a.Charge(10)
				a.ChargeUpTo(20)
				a.Settle(30)
				a.Release(5)
				a.Owe(7)
			})
		}
		all.Go(a.Close)
		all.Wait()
	}
	if b.Used() != 0 {
		t.Errorf("%d bytes are left", b.Used())
	}
}
